"""Whether the compiled event kernel and its plain, chronological twin time every schedule alike, to the cycle."""

import subprocess
import sys

import numpy as np
import pytest
from builders import MicroSchedule, micro_schedules, schedules
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mas_sim.dataflows import DATAFLOWS
from mas_sim.reference import simulate_reference
from mas_sim.schedule import F_QUEUE, LOAD, Schedule
from mas_sim.simulator import simulate
from mas_sim.timeline import Timeline

RANDOM = settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def assert_timed_alike(schedule: Schedule) -> None:
    """Compare both timelines, and name the first instruction that differs."""
    kernel, twin = simulate(schedule), simulate_reference(schedule)
    for name in ("start", "end", "channel_end"):
        differing = np.flatnonzero(getattr(kernel, name) != getattr(twin, name))
        assert not differing.size, f"{name} differs first at {schedule.describe(int(differing[0]))}"
    np.testing.assert_array_equal(kernel.busy_cycles, twin.busy_cycles)
    np.testing.assert_array_equal(kernel.stall_cycles, twin.stall_cycles)
    np.testing.assert_array_equal(kernel.redo, twin.redo)
    assert kernel.cycles == twin.cycles


def assert_obeys_the_rules(schedule: Schedule, timeline: Timeline) -> None:
    """Check what must hold of any timeline, whoever made it."""
    queue_of = schedule.instructions[:, F_QUEUE]
    for q in range(schedule.queues):
        rows = np.flatnonzero(queue_of == q)
        assert (timeline.start[rows][1:] >= timeline.channel_end[rows][:-1]).all(), "a queue ran out of order"
        ran_out = int(timeline.channel_end[rows].max(initial=0))
        assert timeline.busy_cycles[q] + timeline.stall_cycles[q].sum() == ran_out
    for i in range(len(schedule)):
        for dep, _ in schedule.dependencies(i):
            sync = schedule.arch.sync_cycles if queue_of[dep] != queue_of[i] else 0
            issue = schedule.arch.issue_cycles if schedule.unit_of[i] >= LOAD else 0
            assert timeline.start[i] >= timeline.end[dep] + sync + issue, "an instruction overtook its dependency"
    transfers = np.flatnonzero(schedule.unit_of >= LOAD)
    transfers = transfers[np.argsort(timeline.start[transfers], kind="stable")]
    assert (timeline.start[transfers][1:] >= timeline.channel_end[transfers][:-1]).all(), (
        "the channel served two at once"
    )
    assert (timeline.stall_cycles >= 0).all()
    assert timeline.cycles == timeline.end.max(initial=0)


@pytest.mark.parametrize("dataflow", sorted(DATAFLOWS))
@given(data=st.data())
@settings(RANDOM, max_examples=150)
def test_do_both_time_every_schedule_of_a_dataflow_alike(dataflow: str, data: st.DataObject) -> None:
    schedule = data.draw(schedules(dataflow))
    assert len(schedule) <= 450
    assert_timed_alike(schedule)


@given(micro=micro_schedules())
@settings(RANDOM, max_examples=1000)
def test_do_both_time_any_instructions_with_any_dependencies_alike(micro: MicroSchedule) -> None:
    assert_timed_alike(micro.build())


@given(micro=micro_schedules())
@settings(RANDOM, max_examples=300)
def test_do_both_obey_the_rules_that_they_were_written_for(micro: MicroSchedule) -> None:
    schedule = micro.build()
    assert_obeys_the_rules(schedule, simulate(schedule))
    assert_obeys_the_rules(schedule, simulate_reference(schedule))


IMPORT_TWIN_ALONE = """
import importlib.util, sys, types
bare = types.ModuleType("mas_sim")  # without running the package's own imports
bare.__path__ = importlib.util.find_spec("mas_sim").submodule_search_locations
sys.modules["mas_sim"] = bare
import mas_sim.reference
compiled = {"numba", "mas_sim._kernels", "mas_sim._jit"} & set(sys.modules)
sys.exit(f"it imports {compiled}" if compiled else 0)
"""


def test_does_the_twin_need_nothing_compiled() -> None:
    result = subprocess.run([sys.executable, "-c", IMPORT_TWIN_ALONE], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
