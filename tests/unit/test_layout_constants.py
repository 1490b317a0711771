"""Whether the layout of instructions, which compiled code repeats as plain numbers, is the same everywhere."""

from dataclasses import replace
from types import ModuleType
from typing import get_args

import numpy as np
import pytest
from builders import MicroSchedule

from mas_sim import _kernels, arch, costs, energy, schedule, tiling
from mas_sim.simulator import timing_vector
from mas_sim.timeline import CAUSE_NAMES


def constants(module: ModuleType) -> dict[str, int]:
    """Whole numbers that a module calls by a name in capitals."""
    return {name: value for name, value in vars(module).items() if name.isupper() and isinstance(value, int)}


REPEATED = (
    "F_QUEUE", "F_KIND", "F_FLAGS", "F_DEP0", "MAX_DEPS", "F_OVER", "F_RELOAD", "F_FIRST_VICTIM", "F_LAST_VICTIM",
    "FLAG_FIRST", "UNITS", "MAC", "LOAD",
)  # fmt: skip


@pytest.mark.parametrize("name", REPEATED)
def test_does_the_kernel_read_the_schedules_columns(name: str) -> None:
    assert constants(_kernels)[name] == constants(schedule)[name]


def test_does_the_kernel_repeat_no_other_constant_of_the_schedule() -> None:
    assert set(constants(_kernels)) & set(constants(schedule)) == set(REPEATED)


def test_are_the_kernels_causes_the_named_ones_in_order() -> None:
    waits = {name: value for name, value in constants(_kernels).items() if name.startswith("WAIT_")}
    assert [name.removeprefix("WAIT_").lower() for name in sorted(waits, key=lambda name: waits[name])] == [
        *CAUSE_NAMES
    ]
    assert sorted(waits.values()) == list(range(_kernels.CAUSES))


def test_is_the_cause_of_waiting_for_a_unit_that_units_number() -> None:
    assert CAUSE_NAMES[: schedule.UNITS] == tuple(name.lower() for name in schedule.UNIT_NAMES)
    units = (schedule.MAC, schedule.VEC, schedule.LOAD, schedule.STORE)
    assert units == (_kernels.WAIT_MAC, _kernels.WAIT_VEC, _kernels.WAIT_LOAD, _kernels.WAIT_STORE)
    assert max(schedule.MAC, schedule.VEC) < schedule.LOAD < schedule.STORE == schedule.UNITS - 1


def test_are_the_timing_parameters_where_the_kernel_looks_for_them() -> None:
    vector = timing_vector(MicroSchedule(sync=5, latency=6, issue=7).build())
    assert vector.dtype == np.int64
    assert len(vector) == _kernels.TIMING_FIELDS
    assert vector[[_kernels.K_SYNC, _kernels.K_LATENCY, _kernels.K_ISSUE]].tolist() == [5, 6, 7]
    stops = MicroSchedule(sync=5, latency=6, issue=7).build()
    preemption = {"preemption.supported": True, "preemption.drain_cycles": 8, "preemption.lost_granularity": "matmul"}
    vector = timing_vector(replace(stops, arch=stops.arch.with_(**preemption)))
    assert vector[[_kernels.K_PREEMPTS, _kernels.K_DRAIN, _kernels.K_LOSES_PRODUCT]].tolist() == [1, 8, 1]


def test_do_the_columns_of_an_instruction_fill_its_row_without_overlap() -> None:
    columns = {name: value for name, value in constants(schedule).items() if name.startswith("F_")}
    # A pass that overwrites names its victims where a victim names the pass and the load.
    assert (columns.pop("F_FIRST_VICTIM"), columns.pop("F_LAST_VICTIM")) == (schedule.F_OVER, schedule.F_RELOAD)
    # Only products have a second place of their tiles, only passes of online softmax have statistics from before.
    assert columns.pop("F_SRC2") == schedule.F_ALT
    dependencies = range(schedule.F_DEP0 + 1, schedule.F_DEP0 + schedule.MAX_DEPS)
    assert sorted([*columns.values(), *dependencies]) == list(range(schedule.FIELDS))


def test_does_every_code_have_a_name() -> None:
    operations = sorted(value for name, value in constants(schedule).items() if name.startswith("OP_"))
    assert operations == list(range(len(schedule.OP_NAMES)))
    tensors = sorted(value for name, value in constants(schedule).items() if name.startswith("T_"))
    assert tensors == list(range(len(schedule.TENSOR_NAMES)))
    assert len(schedule.UNIT_NAMES) == schedule.UNITS


def test_are_the_costs_cycles_and_then_the_metered_columns_in_order() -> None:
    columns = {value: name for name, value in constants(schedule).items() if name.startswith("C_")}
    assert columns.pop(schedule.C_CYCLES) == "C_CYCLES"
    assert schedule.C_CYCLES == 0
    metered = [
        name.removesuffix("_bytes").replace("mac_ops", "macs").removesuffix("_ops") for name in energy.METER_COLUMNS
    ]
    assert [columns[c] for c in sorted(columns)] == [f"C_{name.upper()}" for name in metered]
    assert schedule.METER_FIELDS == len(energy.METER_COLUMNS) == schedule.COST_FIELDS - 1


def test_do_the_packed_choices_cover_the_files_choices() -> None:
    fields = arch.MacUnit.model_fields
    assert set(costs.TIMINGS) == set(get_args(fields["timing"].annotation))
    assert set(costs.STATIONARIES) == set(get_args(fields["stationary"].annotation))
    assert set(costs.PATHS) == set(get_args(arch.MacVecPath.model_fields["kind"].annotation))
    assert set(costs.SOFTMAX_STEPS) == set(get_args(arch.SoftmaxStep))


@pytest.mark.parametrize(
    ("module", "prefix", "size"),
    [
        (costs, "P_", costs.PROBLEM_FIELDS),
        (tiling, "TL_", tiling.TILING_FIELDS),
        (schedule, "C_", schedule.COST_FIELDS),
    ],
)
def test_does_every_column_of_a_packed_vector_have_one_name(module: ModuleType, prefix: str, size: int) -> None:
    columns = sorted(value for name, value in constants(module).items() if name.startswith(prefix))
    assert columns == list(range(size))
