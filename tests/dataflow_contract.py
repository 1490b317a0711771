"""What every dataflow promises: a legal schedule that computes attention, again and again the same.

A dataflow joins by one subclass of `DataflowContract`, in `tests/contracts`.
"""

import functools
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from mas_sim.arch import Arch, load_arch
from mas_sim.audit import audit
from mas_sim.dataflows import DATAFLOWS, build_schedule
from mas_sim.errors import TilingError
from mas_sim.execute import execute
from mas_sim.schedule import Schedule
from mas_sim.simulator import simulate
from mas_sim.tiling import Tiling
from mas_sim.workload import Workload

TOLERANCE = 1e-4  # float32 against float64


@dataclass(frozen=True)
class Case:
    """A workload, a tiling and a machine; `arch` are changes to the edge machine."""

    name: str
    workload: Workload
    tiling: Tiling
    arch: dict[str, Any] = field(default_factory=dict)


def attention(heads: int, n_q: int, n_kv: int, **other: Any) -> Workload:
    return Workload(**{"name": "case", "head_dim_qk": 8, "head_dim_v": 12, **other}, heads=heads, n_q=n_q, n_kv=n_kv)


ONE_PASS = (("max", "subtract", "exp", "sum", "divide"),)
SCALED = (("scale",), ("max", "subtract"), ("exp", "sum"), ("divide",))
RECIPROCAL = (("max",), ("subtract", "exp"), ("sum", "reciprocal", "multiply"))
RECIPROCAL_APART = (("max", "subtract"), ("exp", "sum"), ("reciprocal",), ("multiply",))
NO_WAITING = {"sync_cycles": 0, "issue_cycles": 0, "dram.latency_cycles": 0, "dram.setup_cycles": 0}
FREE_VECTOR = {f"vec.op_lane_cycles.{op}": 0 for op in ("max", "add", "subtract", "multiply", "exp", "divide")}

TILED = Tiling(q_tile=16, kv_tile=16)
CASES = [
    Case("one tile", attention(1, 16, 16), Tiling()),
    Case("one number", attention(1, 1, 1, head_dim_qk=1, head_dim_v=1), Tiling()),
    Case("exact tiles", attention(2, 32, 48), TILED),
    Case("ragged rows", attention(2, 37, 48), TILED),
    Case("ragged kv tiles", attention(2, 32, 50), Tiling(q_tile=16, kv_tile=16, k_resident_tiles=2)),
    Case("ragged both", attention(3, 37, 50), Tiling(q_tile=16, kv_tile=16, k_resident_tiles=4, v_resident_tiles=4)),
    Case("groups of two", attention(4, 37, 50), Tiling(head_tile=2, q_tile=16, kv_tile=16)),
    Case("heads not divisible", attention(5, 37, 50), Tiling(head_tile=2, q_tile=16, kv_tile=16, k_resident_tiles=1)),
    Case("two batches", attention(2, 20, 30, batch=2), Tiling(head_tile=2, q_tile=16, kv_tile=16)),
    Case("batches together", attention(3, 20, 30, batch=3), Tiling(batch_tile=2, head_tile=2, q_tile=16, kv_tile=16)),
    Case("grouped query", attention(6, 37, 50, kv_heads=2), Tiling(q_tile=16, kv_tile=16, k_resident_tiles=4)),
    Case("grouped by heads", attention(6, 20, 30, kv_heads=2), Tiling(head_tile=3, q_tile=16, kv_tile=16)),
    Case(
        "grouped across kv heads",
        attention(6, 20, 30, kv_heads=3, batch=2),
        Tiling(batch_tile=2, head_tile=3, q_tile=16, kv_tile=16, k_resident_tiles=1, v_resident_tiles=2),
    ),
    Case("split by items", attention(2, 50, 50), Tiling(q_tile=16, kv_tile=16, core_split="items")),
    Case("more cores than work", attention(1, 16, 50), Tiling(q_tile=16, kv_tile=16, core_split="items")),
    Case("decode", attention(4, 1, 90, kv_heads=1), Tiling(head_tile=4, q_tile=1, kv_tile=16)),
    Case("eight bits", attention(2, 37, 50, dtype="int8"), TILED),
    Case("softmax in one pass", attention(2, 37, 50), TILED, {"vec.softmax_passes": ONE_PASS}),
    Case("softmax that scales", attention(2, 37, 50), TILED, {"vec.softmax_passes": SCALED}),
    Case("no waiting", attention(2, 37, 50), TILED, NO_WAITING),
    Case("softmax in no time", attention(2, 37, 50), TILED, NO_WAITING | FREE_VECTOR),
    Case("slow DRAM", attention(2, 37, 50), TILED, {"dram.bandwidth_gb_per_s": 0.5}),
    Case("private L1", attention(2, 37, 50), TILED, {"l1.shared": False}),
    Case("softmax by reciprocals", attention(2, 37, 50), TILED, {"vec.softmax_passes": RECIPROCAL}),
    Case("reciprocals apart", attention(2, 37, 50), TILED, {"vec.softmax_passes": RECIPROCAL_APART}),
    Case("spilled sums", attention(2, 37, 50), TILED, {"l0.accumulator_kib": 0.25}),
]

CAUSAL: dict[str, Any] = {"mask": "causal"}
SMALL_HEADS = Tiling(head_tile=2, q_tile=16, kv_tile=16, k_resident_tiles=2)


def window(back: int, ahead: int | None = None) -> dict[str, Any]:
    return {"mask": "sliding_window", "window_back": back, "window_ahead": ahead}


# Masks, data types, and the shapes that people run: decoding, cross attention, head dimensions that fit no array.
CASES += [
    Case("causal", attention(2, 48, 48, **CAUSAL), TILED),
    Case("causal ragged", attention(2, 37, 37, **CAUSAL), replace(TILED, kv_tile=12)),
    Case("causal low row blocks", attention(2, 20, 20, **CAUSAL), Tiling(q_tile=3, kv_tile=16)),
    Case("causal high row blocks", attention(2, 40, 40, **CAUSAL), Tiling(q_tile=32, kv_tile=7)),
    Case("causal behind a prefix", attention(2, 21, 50, **CAUSAL), TILED),
    Case("causal in one tile", attention(2, 9, 9, **CAUSAL), Tiling()),
    Case("causal groups of two", attention(5, 37, 37, batch=2, **CAUSAL), replace(SMALL_HEADS, batch_tile=2)),
    Case("causal grouped query", attention(6, 37, 50, kv_heads=2, **CAUSAL), SMALL_HEADS),
    Case("causal that scales", attention(2, 37, 37, **CAUSAL), TILED, {"vec.softmax_passes": SCALED}),
    Case("causal in one pass", attention(2, 37, 37, **CAUSAL), TILED, {"vec.softmax_passes": ONE_PASS}),
    Case("causal split by items", attention(1, 50, 50, **CAUSAL), replace(TILED, core_split="items")),
    Case("window behind", attention(2, 60, 60, **window(20)), TILED),
    Case("window on both sides", attention(2, 60, 60, **window(13, 9)), TILED),
    Case("window of one tile", attention(2, 60, 60, **window(15)), TILED),
    Case("window smaller than a tile", attention(2, 40, 40, **window(3)), TILED),
    Case("window of its own key", attention(2, 20, 20, **window(0)), Tiling(q_tile=8, kv_tile=5)),
    Case("window ahead only", attention(2, 40, 40, **window(0, 11)), TILED),
    Case("window of all keys", attention(2, 30, 30, **window(29, 29)), TILED),
    Case("window behind a prefix", attention(2, 21, 50, **window(20)), replace(TILED, k_resident_tiles=2)),
    Case("window over more queries than keys", attention(2, 30, 20, **window(5, 12)), TILED),
    Case("window that cuts the first queries", attention(2, 30, 20, **window(20, 20)), TILED),
    Case("window grouped by heads", attention(6, 37, 50, kv_heads=2, **window(17)), replace(TILED, head_tile=3)),
    Case("decode one row", attention(8, 1, 90, kv_heads=2, **CAUSAL), Tiling(head_tile=4, q_tile=1, kv_tile=16)),
    Case("decode two rows", attention(8, 2, 70, kv_heads=2, **CAUSAL), Tiling(head_tile=8, q_tile=2, kv_tile=32)),
    Case("decode five rows", attention(6, 5, 70, kv_heads=2, **CAUSAL), Tiling(head_tile=3, q_tile=4, kv_tile=16)),
    Case("decode sixteen rows", attention(4, 16, 70, kv_heads=1, **window(30)), replace(TILED, head_tile=4)),
    Case("cross attention", attention(2, 24, 77), TILED),
    Case("cross attention of few keys", attention(2, 50, 7), TILED),
    Case("head dimensions 72 and 96", attention(1, 20, 30, head_dim_qk=72, head_dim_v=96), TILED),
    Case("head dimensions 80 and 64", attention(1, 20, 30, head_dim_qk=80, head_dim_v=64, **CAUSAL), TILED),
    Case("head dimensions 96 and 72", attention(2, 20, 30, kv_heads=1, head_dim_qk=96, head_dim_v=72), TILED),
    Case("bf16", attention(2, 37, 50, dtype="bf16"), TILED),
    Case("bf16 causal", attention(2, 37, 50, dtype="bf16", **CAUSAL), TILED),
    Case("eight bits causal", attention(2, 37, 50, dtype="int8", **CAUSAL), TILED),
    Case("eight bits in float sums", attention(2, 37, 50, dtype="int8", accumulator="fp32"), TILED),
]

BUFFERS_OF_ONE: dict[str, Any] = {"q_buffers": 1, "k_buffers": 1, "v_buffers": 1, "o_buffers": 1}
BUFFERS: list[dict[str, Any]] = [
    {
        "k_resident_tiles": k_resident,
        "v_resident_tiles": v_resident,
        "q_buffers": q,
        "k_buffers": k,
        "v_buffers": v,
        "o_buffers": o,
    }
    for k_resident, v_resident, q, k, v, o in product((0, 2, 4), (0, 3, 4), (1, 2), (1, 3), (1, 2), (1, 2))
    if (q + k // 2 + v + o) % 2 == 0  # half of all, in which any three of the buffers take all their values
]

# Everything is resident, and no two cores need the same K and V: nothing needs to move twice.
RESIDENT = [
    (attention(4, 37, 50), TILED, 3),
    (attention(5, 37, 50, batch=2), Tiling(head_tile=2, q_tile=16, kv_tile=16), 2),
    (attention(6, 37, 50, kv_heads=2), Tiling(head_tile=3, q_tile=16, kv_tile=16), 2),
    (attention(6, 37, 50, kv_heads=2), Tiling(q_tile=16, kv_tile=16, k_buffers=1, v_buffers=1), 1),
]


machine = functools.cache(load_arch)


def edge(**changes: Any) -> Arch:
    return machine("mas_edge").with_(**changes)


def dram_bytes(schedule: Schedule) -> int:
    read, write = schedule.meter_counts()[:2]
    return int(read + write)


class DataflowContract:
    """The promises; a subclass names the dataflow."""

    bytes_through_dram = 0
    """How often every score crosses DRAM, of those that are no compulsory traffic."""

    choices: tuple[dict[str, Any], ...] = ({},)
    """Changes to a case's tiling: choices that only this dataflow has."""

    arch: dict[str, Any] = {}  # noqa: RUF012
    """Changes to every machine, over those of the case."""

    @pytest.fixture
    def dataflow(self) -> str:
        raise NotImplementedError

    def tilings(self, dataflow: str, tiling: Tiling) -> list[Tiling]:
        """Return the tiling with all numbers of score buffers, with softmax in place and not, and all choices."""
        flow = DATAFLOWS[dataflow]
        return [
            replace(tiling, score_buffers=count, softmax_in_place=stays, **choice)
            for count, stays, choice in product(flow.score_buffers, flow.in_place, self.choices)
        ]

    def schedules(self, dataflow: str, case: Case, cores: int) -> list[Schedule]:
        """Build the case in all of these ways."""
        arch = edge(**case.arch | self.arch, cores=cores)
        return [build_schedule(dataflow, arch, case.workload, tiling) for tiling in self.tilings(dataflow, case.tiling)]

    @pytest.mark.parametrize("cores", [1, 3])
    @pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
    def test_is_it_legal_and_does_it_compute_attention(self, dataflow: str, case: Case, cores: int) -> None:
        """On two cores in every way, on others in one of them."""
        schedules = self.schedules(dataflow, case, cores)
        for schedule in schedules if cores == 2 else [schedules[cores % len(schedules)]]:
            timeline = simulate(schedule)
            assert audit(schedule, timeline).summary() == "ok"
            assert execute(schedule, timeline).max_abs_error < TOLERANCE
            assert dram_bytes(schedule) >= case.workload.compulsory_bytes

    @pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
    def test_is_it_the_same_every_time(self, dataflow: str, case: Case) -> None:
        outputs = []
        for first, second in zip(self.schedules(dataflow, case, 2), self.schedules(dataflow, case, 2), strict=True):
            assert np.array_equal(first.instructions, second.instructions)
            assert np.array_equal(first.costs, second.costs)
            one, two = simulate(first), simulate(second)
            assert one.cycles == two.cycles
            assert np.array_equal(one.start, two.start)
            outputs = [(first, one), (second, two)]
        first_output, second_output = (execute(*run).output for run in outputs)
        assert np.array_equal(first_output, second_output)

    @pytest.mark.parametrize(("workload", "tiling", "cores"), RESIDENT)
    def test_does_it_move_nothing_twice_when_everything_is_resident(
        self, dataflow: str, workload: Workload, tiling: Tiling, cores: int
    ) -> None:
        tiling = replace(tiling, k_resident_tiles=4, v_resident_tiles=4)
        passed = self.bytes_through_dram * workload.scores * workload.bytes_per_element
        for schedule in self.schedules(dataflow, Case("resident", workload, tiling), cores):
            assert dram_bytes(schedule) == workload.compulsory_bytes + passed

    def test_is_every_choice_of_residency_and_buffers_legal(self, dataflow: str) -> None:
        """With each choice of the dataflow's own in turn, under a mask and without."""
        arch = edge(**self.arch, cores=2)
        for number, buffers in enumerate(BUFFERS):
            workload = attention(4, 23, 50, kv_heads=2, **(CAUSAL if number % 3 == 0 else {}))
            tilings = self.tilings(dataflow, replace(TILED, **buffers))
            schedule = build_schedule(dataflow, arch, workload, tilings[number * 5 % 7 % len(tilings)])
            timeline = simulate(schedule)
            assert audit(schedule, timeline).summary() == "ok", buffers
            assert execute(schedule, timeline).max_abs_error < TOLERANCE, buffers

    @pytest.mark.parametrize("name", ["mas_edge", "davinci_lite", "fusemax_cloud"])
    def test_does_it_work_on_every_shipped_machine(self, dataflow: str, name: str) -> None:
        """Unless the machine cannot do what the dataflow is to do there."""
        arch, workload = machine(name), attention(5, 70, 100)
        for tiling in self.tilings(dataflow, Tiling(head_tile=2, q_tile=32, kv_tile=32)):
            if tiling.exp_on == "mac" and arch.mac.exp_steps is None:
                with pytest.raises(TilingError, match=r"mac\.exp_steps of davinci_lite is not set"):
                    build_schedule(dataflow, arch, workload, tiling)
                continue
            schedule = build_schedule(dataflow, arch, workload, tiling)
            timeline = simulate(schedule)
            assert audit(schedule, timeline).summary() == "ok"
            assert execute(schedule, timeline).max_abs_error < TOLERANCE
