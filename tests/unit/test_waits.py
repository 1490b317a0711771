"""Whether the single waits that are told of a run add up to what the kernel counted, by queue and cause."""

import numpy as np
import pytest
from builders import MicroSchedule, edge, micro_schedules, schedules
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mas_sim.dataflows import DATAFLOWS, build_schedule
from mas_sim.schedule import F_OVER, F_QUEUE, MAC, Schedule
from mas_sim.simulator import simulate
from mas_sim.tiling import Tiling
from mas_sim.timeline import CAUSE_NAMES
from mas_sim.waits import waits
from mas_sim.workload import Workload

RANDOM = settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def assert_adds_up(schedule: Schedule) -> None:
    """Compare the sums with the kernel's, and look for waits that overlap each other or the queue's work."""
    timeline = simulate(schedule)
    told = waits(schedule, timeline)
    np.testing.assert_array_equal(told.totals(schedule.queues), timeline.stall_cycles)
    assert (told.end > told.begin).all()
    assert (np.diff(told.row) >= 0).all()
    for queue in range(schedule.queues):
        mine, rows = told.queue == queue, (schedule.instructions[:, F_QUEUE] == queue)
        held = rows & (timeline.channel_end > timeline.start)
        begin = np.concatenate([told.begin[mine], timeline.start[held]])
        end = np.concatenate([told.end[mine], timeline.channel_end[held]])
        order = np.argsort(begin, kind="stable")
        assert (begin[order][1:] >= end[order][:-1]).all()
        assert (schedule.instructions[told.row[mine], F_QUEUE] == queue).all()


@pytest.mark.parametrize("dataflow", sorted(DATAFLOWS))
@given(data=st.data())
@settings(RANDOM, max_examples=40)
def test_do_the_waits_of_every_dataflow_add_up(dataflow: str, data: st.DataObject) -> None:
    assert_adds_up(data.draw(schedules(dataflow)))


@given(micro=micro_schedules())
@settings(RANDOM, max_examples=150)
def test_do_the_waits_of_any_dependencies_add_up(micro: MicroSchedule) -> None:
    assert_adds_up(micro.build())


@pytest.mark.parametrize("supported", [True, False])
@pytest.mark.parametrize("granularity", ["tile", "matmul"])
@pytest.mark.parametrize("sync_cycles", [0, 3, 500])
def test_do_the_waits_of_an_overwrite_add_up(supported: bool, granularity: str, sync_cycles: int) -> None:
    """A product that was stopped waits for its tiles; a pass that may not stop it waits for the product."""
    changes = {
        "cores": 1, "l1.capacity_kib": 224, "vec.lanes": 32, "vec.op_lane_cycles.max": 5, "sync_cycles": sync_cycles,
        "dram.bandwidth_gb_per_s": 120, "preemption.supported": supported, "preemption.lost_granularity": granularity,
    }  # fmt: skip
    workload = Workload(name="bert_like", heads=1, n_q=512, n_kv=512, head_dim_qk=64, head_dim_v=64, dtype="fp16")
    tiling = Tiling(
        q_tile=32, kv_tile=128, k_resident_tiles=4, v_resident_tiles=4, k_buffers=1, v_buffers=1,
        softmax_in_place=False, overwrite="v",
    )  # fmt: skip
    schedule = build_schedule("mas", edge().with_(**changes), workload, tiling)
    assert_adds_up(schedule)
    timeline = simulate(schedule)
    told = waits(schedule, timeline)
    victims = (schedule.unit_of == MAC) & (schedule.instructions[:, F_OVER] >= 0) & (timeline.late > 0)
    of_victims = np.isin(told.row, np.flatnonzero(victims))
    assert set(told.cause[of_victims].tolist()) & {CAUSE_NAMES.index("load"), CAUSE_NAMES.index("sync")}


def test_does_a_wait_stand_where_it_was_and_name_its_cause() -> None:
    """x: 10 cycles for the load, 7 of latency, 3 of sync; the second load: for the channel, behind the first."""
    micro = MicroSchedule(cores=2, latency=7, sync=3, issue=2).load("a", 10).mac("x", 5, after=["a"])
    micro = micro.load("b", 4, core=1).vec("y", 1, after_buffer=["x"])
    schedule = micro.build()
    told = waits(schedule, simulate(schedule))
    facts = [
        (row, begin, end, CAUSE_NAMES[cause])
        for row, begin, end, cause in zip(told.row, told.begin, told.end, told.cause, strict=True)
    ]
    assert facts == [
        (1, 0, 19, "load"), (1, 19, 22, "sync"), (2, 2, 12, "channel"), (3, 0, 27, "buffer"), (3, 27, 30, "sync"),
    ]  # fmt: skip
    assert told.within(22, 27).row.tolist() == [3]
