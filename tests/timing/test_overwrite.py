"""Is proactive overwrite priced to the cycle? Hand-computed cases, on the kernel and on its chronological twin.

One core, drain 3 cycles. The schedule: a load `w` brings the window (10 cycles). The vector unit is busy with `before`,
then writes over the window in `x` (8 cycles), and ends its softmax with `y` (4). The load `back` (6) follows `y`.
The MAC unit computes a product of two tiles, 20 cycles each: `a` does not read the window, `b` does.
"""

from dataclasses import replace

import numpy as np
import pytest
from builders import MicroSchedule, nonzero_stalls

from mas_sim.meter import overwrite_cost
from mas_sim.reference import simulate_reference
from mas_sim.schedule import (
    F_ALT,
    F_FIRST_VICTIM,
    F_FLAGS,
    F_LAST_VICTIM,
    F_OVER,
    F_RELOAD,
    FLAG_FIRST,
    FLAG_LAST,
    MAC,
    VEC,
    Schedule,
)
from mas_sim.simulator import Timeline, simulate

DRAIN = 3


def schedule(
    before: int, *, supported: bool = True, lost: str = "tile", sync: int = 0
) -> tuple[MicroSchedule, Schedule]:
    micro = MicroSchedule(sync=sync).load("w", cycles=10)
    micro.vec("before", cycles=before).vec("x", cycles=8).vec("y", cycles=4)
    micro.load("back", cycles=6, after_buffer=["y"]).mac("a", cycles=20).mac("b", cycles=20, after=["w"])
    built = micro.build()
    row = {name: at for at, name in enumerate(micro.names)}
    code = built.instructions
    code[row["a"], F_FLAGS], code[row["b"], F_FLAGS] = FLAG_FIRST, FLAG_LAST
    code[row["b"], [F_OVER, F_RELOAD, F_ALT]] = row["x"], row["back"], 0
    code[row["x"], [F_FIRST_VICTIM, F_LAST_VICTIM]] = row["b"], row["b"]
    code[row["back"], F_OVER] = row["x"]
    stop = {
        "preemption.supported": supported,
        "preemption.drain_cycles": DRAIN,
        "preemption.lost_granularity": lost,
    }
    return micro, replace(built, arch=built.arch.with_(**stop))


def run(micro: MicroSchedule, built: Schedule) -> tuple[dict[str, tuple[int, int]], Timeline]:
    """Simulate, check that the twin agrees in everything, and return the spans by name."""
    timeline, twin = simulate(built), simulate_reference(built)
    for name in ("start", "end", "busy_cycles", "stall_cycles", "redo"):
        np.testing.assert_array_equal(getattr(timeline, name), getattr(twin, name), err_msg=name)
    assert timeline.cycles == twin.cycles
    return micro.spans(timeline), timeline


@pytest.mark.parametrize(("lost", "again"), [("tile", 0), ("matmul", 20)])
def test_is_a_product_stopped_in_the_middle_of_a_tile(lost: str, again: int) -> None:
    # x starts at 25, when b has run 5 of 20 cycles; y ends at 25 + 8 + 4 = 37, the window is back at 43. b runs again
    # from there: 20 cycles, and 20 more for a where the whole product is lost.
    spans, timeline = run(*schedule(25, lost=lost))
    assert spans["x"] == (25, 33)
    assert spans["back"] == (37, 43)
    assert spans["b"] == (43, 63 + again)
    assert timeline.redo[6].tolist() == [1, 20, 5 + again]
    # MAC: a 0..20, b 20..25 and its drain to 28, then nothing until 43.
    assert timeline.busy_cycles[MAC] == 20 + 5 + DRAIN + again + 20
    assert nonzero_stalls(timeline, 0, MAC) == {"load": 43 - 28}


@pytest.mark.parametrize("lost", ["tile", "matmul"])
def test_does_a_product_wait_that_is_overwritten_between_tiles(lost: str) -> None:
    # x starts at 15, in the middle of a, which does not read the window and goes on. The window is back at 33; b, not
    # started at 20, runs then. Nothing is lost.
    spans, timeline = run(*schedule(15, lost=lost))
    assert spans["a"] == (0, 20)
    assert spans["back"] == (27, 33)
    assert spans["b"] == (33, 53)
    assert timeline.redo[6].tolist() == [1, 0, 0]
    assert nonzero_stalls(timeline, 0, MAC) == {"load": 13}


@pytest.mark.parametrize("supported", [True, False])
def test_is_nothing_stopped_or_redone_if_the_product_has_finished(supported: bool) -> None:
    # x starts at 40, just when b has ended.
    spans, timeline = run(*schedule(40, supported=supported))
    assert spans["x"] == (40, 48)
    assert spans["b"] == (20, 40)
    assert not timeline.redo.any()
    assert spans["back"] == (52, 58)


def test_is_the_last_cycle_of_a_product_still_in_flight() -> None:
    # x starts at 39: b has run 19 of its 20 cycles, and all of them are lost.
    spans, timeline = run(*schedule(39))
    assert timeline.redo[6].tolist() == [1, 20, 19]
    assert spans["b"] == (39 + 8 + 4 + 6, 77)


def test_has_a_product_not_started_that_would_start_in_the_same_cycle() -> None:
    spans, timeline = run(*schedule(20))
    assert timeline.redo[6].tolist() == [1, 0, 0]
    assert spans["b"] == (20 + 8 + 4 + 6, 58)


def test_is_the_drain_over_before_the_product_runs_again() -> None:
    # With a drain longer than softmax and load together, it is what b waits for: 25 + 40 = 65.
    micro, built = schedule(25)
    spans, _ = run(micro, replace(built, arch=built.arch.with_(**{"preemption.drain_cycles": 40})))
    assert spans["b"] == (65, 85)


def test_does_softmax_wait_for_the_product_where_the_machine_cannot_stop_it() -> None:
    # x is ready at 25, b is in flight until 40.
    spans, timeline = run(*schedule(25, supported=False))
    assert spans["b"] == (20, 40)
    assert spans["x"] == (40, 48)
    assert not timeline.redo.any()
    assert nonzero_stalls(timeline, 0, VEC) == {"mac": 15}


def test_does_softmax_not_wait_for_a_product_that_has_not_started() -> None:
    spans, timeline = run(*schedule(15, supported=False))
    assert spans["x"] == (15, 23)
    assert spans["b"] == (33, 53)
    assert timeline.redo[6].tolist() == [1, 0, 0]


def test_is_the_window_seen_a_synchronisation_after_its_load() -> None:
    # back starts 2 cycles after y and is seen 2 cycles after its end: 37 + 2 + 6 + 2 = 47. w is seen at 12.
    spans, timeline = run(*schedule(25, sync=2))
    assert spans["back"] == (39, 45)
    assert spans["b"] == (47, 67)
    assert nonzero_stalls(timeline, 0, MAC) == {"load": 45 - 28, "sync": 2}


def test_are_the_costs_of_overwrite_counted() -> None:
    _, built = schedule(25, lost="matmul")
    cost = overwrite_cost(built, simulate(built))
    assert (cost.overwrites, cost.stops) == (1, 1)
    assert cost.lost_mac_cycles == cost.redone_mac_cycles == 25


def test_is_lost_work_metered_in_proportion() -> None:
    # b has 100 actions and is stopped after 5 of 20 cycles: 25 are done twice; where the product is lost, a's 60 too.
    for lost, expected in (("tile", 25), ("matmul", 25 + 60)):
        _, built = schedule(25, lost=lost)
        costs = np.vstack([built.costs, built.costs[built.instructions[5:7, 2]]])
        costs[-2, 7], costs[-1, 7] = 60, 100
        code = built.instructions.copy()
        code[5, 2], code[6, 2] = len(costs) - 2, len(costs) - 1
        priced = replace(built, costs=costs, instructions=code)
        assert overwrite_cost(priced, simulate(priced)).redone_counts[6] == expected
