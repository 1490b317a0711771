"""Whether no schedule beats its bounds, and whether the closed forms of a tiling's work are what its schedule does."""

import numpy as np
import pytest
from builders import Problem, random_tiling
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mas_sim._work import CORE_FIELDS, TALLY_FIELDS, W_DMA_CYCLES, WORK_FIELDS, least_cycles, tiling_work
from mas_sim.bounds import bounds
from mas_sim.costs import pack_problem, pack_softmax
from mas_sim.dataflows import DATAFLOWS, get_dataflow
from mas_sim.dataflows._dispatch import span
from mas_sim.dataflows._plan import MAX_GROUP_CLASSES, kind_bases
from mas_sim.schedule import C_CYCLES, F_KIND, LOAD, METER_FIELDS, IntArray, Schedule
from mas_sim.simulator import simulate

RANDOM = settings(derandomize=True, deadline=None, max_examples=400, suppress_health_check=[HealthCheck.too_slow])

NO_DELAYS = {
    "sync_cycles": 0,
    "issue_cycles": 0,
    "dram.latency_cycles": 0,
    "dram.setup_cycles": 0,
    "dram.bandwidth_gb_per_s": 10000,
}


def work_of(schedule: Schedule) -> tuple[IntArray, int]:
    """Return the closed forms for a schedule's tiling, int64[WORK_FIELDS], and the bound of its cycles."""
    p, passes = pack_problem(schedule.arch, schedule.workload), pack_softmax(schedule.arch)
    kinds, t = kind_bases(schedule.grid, passes), schedule.tiling.pack()
    work, tally = np.zeros(WORK_FIELDS, np.int64), np.zeros((MAX_GROUP_CLASSES, TALLY_FIELDS), np.int64)
    cores = np.zeros((schedule.arch.cores, CORE_FIELDS), np.int64)
    number = get_dataflow(schedule.dataflow).number
    tiling_work(number, p, t, schedule.grid, kinds, schedule.costs, tally, cores, work)
    return work, int(least_cycles(number, p, t, cores, work))


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
    assert span(get_dataflow(dataflow).number, p, t, schedule.workload.n_kv) == schedule.core_l1_bytes
