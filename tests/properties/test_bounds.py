"""Whether no schedule beats its bounds, and whether the closed forms of a tiling's work are what its schedule does."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from builders import Problem, random_tiling, small_workload
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mas_sim._tally import tally_width
from mas_sim._work import CORE_FIELDS, ROW_FIELDS, W_DMA_CYCLES, WORK_FIELDS, least_cycles, tiling_work
from mas_sim.bounds import bounds, closed_form_dram_bytes
from mas_sim.costs import pack_problem
from mas_sim.dataflows import DATAFLOWS, get_dataflow
from mas_sim.dataflows._dispatch import span
from mas_sim.dataflows._plan import kind_bases
from mas_sim.errors import ScheduleError, TilingError
from mas_sim.schedule import C_CYCLES, F_KIND, LOAD, METER_FIELDS, IntArray, Schedule
from mas_sim.simulator import simulate
from mas_sim.tiling import Tiling

RANDOM = settings(derandomize=True, deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])

NO_DELAYS = {
    "sync_cycles": 0,
    "issue_cycles": 0,
    "dram.latency_cycles": 0,
    "dram.setup_cycles": 0,
    "dram.bandwidth_gb_per_s": 10000,
}


def work_of(schedule: Schedule) -> tuple[IntArray, int]:
    """Return the closed forms for a schedule's tiling, int64[WORK_FIELDS], and the bound of its cycles."""
    flow, grid = get_dataflow(schedule.dataflow), schedule.grid
    p, passes = pack_problem(schedule.arch, schedule.workload), flow.softmax(schedule.arch)
    t = schedule.tiling.pack()
    kinds = kind_bases(flow.number, t, grid, passes)
    work, times = np.zeros(WORK_FIELDS, np.int64), np.zeros(ROW_FIELDS, np.int64)
    tally = np.zeros((len(grid.class_heads) + 2, tally_width(grid)), np.int64)
    cores = np.zeros((schedule.arch.cores, CORE_FIELDS), np.int64)
    tiling_work(flow.number, p, t, grid, kinds, schedule.costs, tally, cores, work, times)
    return work, int(least_cycles(flow.number, p, t, grid, cores, work))


def draw_problem(data: st.DataObject, dataflow: str) -> Problem:
    """Draw a problem, at times without the delays and transfers that would hide a bound that is just too high."""
    problem = data.draw(random_tiling(dataflow))
    if data.draw(st.booleans(), label="delays"):
        return problem
    return problem._replace(arch=problem.arch.with_(**NO_DELAYS))


@pytest.mark.parametrize("dataflow", sorted(DATAFLOWS))
@given(data=st.data())
@settings(RANDOM)
def test_is_the_work_of_a_tiling_what_its_schedule_does(dataflow: str, data: st.DataObject) -> None:
    schedule = draw_problem(data, dataflow).build()
    work, _ = work_of(schedule)
    np.testing.assert_array_equal(work[:METER_FIELDS], schedule.meter_counts())
    transfers = schedule.unit_of >= LOAD
    assert work[W_DMA_CYCLES] == schedule.costs[schedule.instructions[transfers, F_KIND], C_CYCLES].sum()


@pytest.mark.parametrize("dataflow", sorted(DATAFLOWS))
@given(data=st.data())
@settings(RANDOM)
def test_is_no_schedule_faster_than_the_bound_of_its_tiling(dataflow: str, data: st.DataObject) -> None:
    schedule = draw_problem(data, dataflow).build()
    assert 0 < work_of(schedule)[1] <= simulate(schedule).cycles


@pytest.mark.parametrize("dataflow", sorted(DATAFLOWS))
@given(data=st.data())
@settings(RANDOM)
def test_is_no_schedule_below_the_bounds_of_its_workload(dataflow: str, data: st.DataObject) -> None:
    problem = draw_problem(data, dataflow)
    schedule = problem.build()
    least = bounds(problem.arch, problem.workload, dataflow)
    read_bytes, written_bytes = schedule.meter_counts()[:2]
    assert least.lower_cycles >= max(least.mac_cycles, least.vec_cycles, least.dram_cycles)
    assert least.lower_cycles <= simulate(schedule).cycles, least
    assert read_bytes + written_bytes >= least.dram_bytes >= problem.workload.compulsory_bytes


@pytest.mark.parametrize("dataflow", sorted(DATAFLOWS))
@given(data=st.data())
@settings(RANDOM)
def test_is_the_span_of_the_slots_what_its_closed_form_says(dataflow: str, data: st.DataObject) -> None:
    schedule = draw_problem(data, dataflow).build()
    p, t = pack_problem(schedule.arch, schedule.workload), schedule.tiling.pack()
    assert span(get_dataflow(dataflow).number, p, t, int(schedule.grid.row_length.max())) == schedule.core_l1_bytes


def on_one_core(problem: Problem) -> Problem:
    """Change a problem to one core, without overwrite, its scores kept off DRAM."""
    changes: dict[str, Any] = {"cores": 1}
    if problem.arch.mac_vec_path.kind == "dram":
        changes |= {"mac_vec_path.kind": "direct"}
    return problem._replace(arch=problem.arch.with_(**changes), tiling=replace(problem.tiling, overwrite="none"))


@pytest.mark.parametrize("dataflow", sorted(DATAFLOWS))
@given(data=st.data())
@settings(RANDOM, max_examples=200)
def test_are_the_dram_bytes_of_the_readme_those_of_the_schedule(dataflow: str, data: st.DataObject) -> None:
    problem = on_one_core(data.draw(random_tiling(dataflow)))
    read_bytes, written_bytes = problem.build().meter_counts()[:2]
    assert closed_form_dram_bytes(dataflow, problem.workload, problem.tiling) == read_bytes + written_bytes


@pytest.mark.parametrize(
    ("dataflow", "form"),
    [
        ("layer_wise", lambda q, k, v, o, s: q + k + 3 * v + o + 4 * s),
        ("soft_pipe", lambda q, k, v, o, s: q + k + 3 * v + o + 2 * s),
        ("flat", lambda q, k, v, o, s: q + k + 3 * v + o),
        ("tileflow", lambda q, k, v, o, s: q + k + 3 * v + o),
        ("flash", lambda q, k, v, o, s: q + k + 2 * v + o),
        ("fusemax", lambda q, k, v, o, s: q + k + 3 * v + o),
        ("mas", lambda q, k, v, o, s: q + k + 3 * v + o),
    ],
)
def test_are_the_formulas_of_the_readme_those_of_the_function(dataflow: str, form: Callable[..., int]) -> None:
    """Three row blocks, K kept and V streamed; `flash` in ping-pong loads V for two row blocks at a time."""
    w = small_workload(heads=3, n_q=45, n_kv=64, head_dim_v=24)
    overlap = "ping_pong" if dataflow == "flash" else "auto"
    tiling = Tiling(q_tile=16, kv_tile=16, k_resident_tiles=4, v_resident_tiles=0, overlap=overlap)
    expected = form(w.q_bytes, w.k_bytes, w.v_bytes, w.o_bytes, w.scores * w.bytes_per_element)
    assert closed_form_dram_bytes(dataflow, w, tiling) == expected


def test_does_the_form_refuse_what_it_does_not_cover() -> None:
    with pytest.raises(ScheduleError, match="did you mean 'flash'"):
        closed_form_dram_bytes("flahs", small_workload(), Tiling())
    for dataflow, tiling in (("mas", Tiling(overwrite="v")), ("mas", Tiling(overlap="ping_pong"))):
        with pytest.raises(TilingError, match="overwrite must be none"):
            closed_form_dram_bytes(dataflow, small_workload(), tiling)
    with pytest.raises(TilingError, match="q_tile must be"):
        closed_form_dram_bytes("mas", small_workload(), Tiling(q_tile=0))
