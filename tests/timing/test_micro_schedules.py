"""Whether schedules small enough to be timed on paper take exactly the cycles worked out there.

Every test runs on the compiled kernel and on its plain twin. A span is (first cycle, first cycle after); the channel is
the DRAM channel.
"""

from collections.abc import Callable

import numpy as np
import pytest
from builders import MicroSchedule, nonzero_stalls, small_arch, small_workload

from mas_sim.dataflows import build_schedule
from mas_sim.reference import simulate_reference
from mas_sim.schedule import F_QUEUE, LOAD, MAC, OP_NAMES, STORE, UNITS, VEC, Schedule
from mas_sim.simulator import simulate
from mas_sim.tiling import Tiling
from mas_sim.timeline import Timeline

Timing = Callable[[Schedule], Timeline]


@pytest.fixture(params=[simulate, simulate_reference], ids=["kernel", "twin"])
def timing(request: pytest.FixtureRequest) -> Timing:
    """Either way of timing a schedule."""
    chosen: Timing = request.param
    return chosen


def spans(timing: Timing, micro: MicroSchedule) -> dict[str, tuple[int, int]]:
    return micro.spans(timing(micro.build()))


# --- Do queues overlap, and wait when they must? ---


def test_does_the_second_tile_load_while_the_first_is_computed(timing: Timing) -> None:
    micro = MicroSchedule()
    micro.load("a", cycles=10).mac("x", cycles=12, after=["a"])
    micro.load("b", cycles=10).mac("y", cycles=12, after=["b"])
    timeline = timing(micro.build())
    # x waits for a until 10; b follows a on the channel, 10 + 10 = 20; y waits for x: 10 + 12 = 22, 22 + 12 = 34.
    assert micro.spans(timeline) == {"a": (0, 10), "x": (10, 22), "b": (10, 20), "y": (22, 34)}
    assert timeline.cycles == 34


def test_does_a_compute_unit_wait_for_loads_that_are_slower(timing: Timing) -> None:
    micro = MicroSchedule()
    micro.load("a", cycles=10).mac("x", cycles=5, after=["a"])
    micro.load("b", cycles=10).mac("y", cycles=5, after=["b"])
    timeline = timing(micro.build())
    # x ends at 15, but b only at 20: y runs 20..25, and the MAC unit stood still for 10 + 5 cycles.
    assert micro.spans(timeline)["y"] == (20, 25)
    assert nonzero_stalls(timeline, 0, MAC) == {"load": 15}


def test_does_a_single_buffer_serialise_load_and_compute(timing: Timing) -> None:
    micro = MicroSchedule()
    micro.load("a", cycles=10).mac("x", cycles=5, after=["a"])
    micro.load("b", cycles=10, after_buffer=["x"]).mac("y", cycles=5, after=["b"])
    # a 0..10, x 10..15 frees the buffer, b 15..25, y 25..30.
    assert spans(timing, micro) == {"a": (0, 10), "x": (10, 15), "b": (15, 25), "y": (25, 30)}


@pytest.mark.parametrize(("load_cycles", "start", "stall"), [(9, 10, 0), (10, 10, 0), (11, 11, 1)])
def test_is_an_instruction_blocked_until_the_very_cycle_its_data_arrives(
    timing: Timing, load_cycles: int, start: int, stall: int
) -> None:
    micro = MicroSchedule().load("a", cycles=load_cycles).mac("w", cycles=10).mac("x", cycles=3, after=["a"])
    timeline = timing(micro.build())
    # The MAC unit is free at 10; x starts at max(10, end of a).
    assert micro.spans(timeline)["x"] == (start, start + 3)
    assert sum(nonzero_stalls(timeline, 0, MAC).values()) == stall


@pytest.mark.parametrize(("asked", "start", "stall"), [(9, 10, 1), (10, 10, 0), (11, 11, 0)])
def test_is_a_transfer_blocked_until_the_very_cycle_the_channel_is_left(
    timing: Timing, asked: int, start: int, stall: int
) -> None:
    micro = MicroSchedule(cores=2).load("a", cycles=10)
    micro.vec("gate", cycles=asked, core=1).load("b", cycles=4, after=["gate"], core=1)
    timeline = timing(micro.build())
    # a holds the channel 0..10; b asks when its gate has ended.
    assert micro.spans(timeline)["b"] == (start, start + 4)
    assert nonzero_stalls(timeline, 1, LOAD).get("channel", 0) == stall


def test_do_instructions_of_one_queue_run_in_order_even_if_a_later_one_could_go(timing: Timing) -> None:
    micro = MicroSchedule().load("a", cycles=10).mac("x", cycles=5, after=["a"]).mac("y", cycles=5)
    # y needs nothing, but stands behind x: 10 + 5 = 15.
    assert spans(timing, micro)["y"] == (15, 20)


def test_does_an_idle_core_cost_nothing_and_an_empty_schedule_no_time(timing: Timing) -> None:
    timeline = timing(MicroSchedule(cores=2).mac("x", cycles=5).build())
    assert not timeline.busy_cycles[UNITS:].any()
    assert not timeline.stall_cycles[UNITS:].any()
    assert timing(MicroSchedule().build()).cycles == 0


# --- Where do the fixed delays go? ---


def test_are_sync_cycles_added_between_queues_only(timing: Timing) -> None:
    micro = MicroSchedule(cores=2, sync=4).load("a", cycles=10).mac("x", cycles=5, after=["a"])
    micro.mac("y", cycles=5, after=["x"]).vec("z", cycles=2, after=["y"]).mac("w", cycles=1, after=["x"], core=1)
    # x: 10 + 4 = 14..19. y, same queue: 19..24. z: 24 + 4 = 28..30. w, the MAC unit of another core: 19 + 4 = 23.
    assert spans(timing, micro) == {"a": (0, 10), "x": (14, 19), "y": (19, 24), "z": (28, 30), "w": (23, 24)}


def test_is_sync_paid_for_each_crossing_but_not_on_top_of_a_longer_wait(timing: Timing) -> None:
    micro = MicroSchedule(sync=4).load("a", cycles=10).vec("v", cycles=13).mac("x", cycles=5, after=["a", "v"])
    # a is seen at 14 and v at 17; not at 13 + 4 + 4.
    assert spans(timing, micro)["x"] == (17, 22)


def test_does_latency_delay_the_data_but_not_the_channel(timing: Timing) -> None:
    micro = MicroSchedule(latency=30).load("a", cycles=10).load("b", cycles=10).mac("x", cycles=5, after=["b"])
    timeline = timing(micro.build())
    # The channel is left at 10 and 20; the data arrive at 10 + 30 and 20 + 30.
    assert micro.spans(timeline) == {"a": (0, 40), "b": (10, 50), "x": (50, 55)}
    assert timeline.channel_end.tolist() == [10, 20, 55]


def test_does_the_run_end_only_when_the_last_store_has_arrived(timing: Timing) -> None:
    micro = MicroSchedule(latency=30).mac("x", cycles=5).store("s", cycles=10, after=["x"])
    timeline = timing(micro.build())
    assert timeline.cycles == 5 + 10 + 30
    assert timeline.busy_cycles[STORE] == 10  # but the latency is no work of the queue


def test_does_issuing_a_transfer_delay_its_request_and_leave_the_channel_to_others(timing: Timing) -> None:
    micro = MicroSchedule(cores=2, issue=3).load("a", cycles=10).load("b", cycles=10)
    micro.load("c", cycles=5, core=1)
    timeline = timing(micro.build())
    # a asks at 3: 3..13. c asks at 3: 13..18. b is issued 13..16, asks at 16, and waits until 18: 18..28.
    assert micro.spans(timeline) == {"a": (3, 13), "b": (18, 28), "c": (13, 18)}
    assert timeline.busy_cycles[[LOAD, UNITS + LOAD]].tolist() == [3 + 10 + 3 + 10, 3 + 5]
    assert nonzero_stalls(timeline, 0, LOAD) == {"channel": 2}
    assert nonzero_stalls(timeline, 1, LOAD) == {"channel": 10}


def test_is_a_transfer_issued_only_after_its_dependency_and_synchronisation(timing: Timing) -> None:
    micro = MicroSchedule(sync=4, issue=3, latency=30).mac("x", cycles=10).store("s", cycles=8, after=["x"])
    # 10 + sync 4 + issue 3 = 17 on the channel, 8 there, 30 of latency.
    assert spans(timing, micro)["s"] == (17, 17 + 8 + 30)


# --- Who gets the channel? ---


def test_does_the_lower_core_win_a_tie_whatever_the_program_order(timing: Timing) -> None:
    micro = MicroSchedule(cores=3)
    micro.load("c", cycles=3, core=2).load("b", cycles=4, core=1).load("a", cycles=5)
    # All ask at 0: core 0, then 1, then 2.
    assert spans(timing, micro) == {"a": (0, 5), "b": (5, 9), "c": (9, 12)}


@pytest.mark.parametrize("store_first", [False, True])
def test_does_the_earlier_instruction_of_one_core_win_a_tie(timing: Timing, store_first: bool) -> None:
    micro = MicroSchedule()
    if store_first:
        micro.store("first", cycles=5).load("second", cycles=7)
    else:
        micro.load("first", cycles=5).store("second", cycles=7)
    assert spans(timing, micro) == {"first": (0, 5), "second": (5, 12)}


def test_does_an_older_request_win_over_a_lower_core(timing: Timing) -> None:
    micro = MicroSchedule(cores=3).load("long", cycles=10, core=2)
    micro.vec("g0", cycles=4).load("a", cycles=5, after=["g0"])
    micro.vec("g1", cycles=3, core=1).load("b", cycles=5, after=["g1"], core=1)
    # The channel is held 0..10; b asked at 3, a at 4: b 10..15, a 15..20.
    assert {name: spans(timing, micro)[name] for name in "ab"} == {"b": (10, 15), "a": (15, 20)}


def test_do_two_cores_take_turns_when_both_always_want_the_channel(timing: Timing) -> None:
    micro = MicroSchedule(cores=2)
    micro.load("a0", cycles=10).load("a1", cycles=10).load("a2", cycles=10)
    micro.load("b0", cycles=1, core=1).load("b1", cycles=1, core=1)
    # A queue asks for its next transfer when it has left the channel. a0 0..10; b0, asked at 0, before a1, asked at 10:
    # 10..11; a1, asked at 10, before b1, asked at 11: 11..21; b1 21..22; a2, asked at 21: 22..32.
    expected = {"a0": (0, 10), "b0": (10, 11), "a1": (11, 21), "b1": (21, 22), "a2": (22, 32)}
    assert spans(timing, micro) == expected


def test_does_a_store_that_waits_for_its_data_let_an_independent_load_pass(timing: Timing) -> None:
    micro = MicroSchedule()
    micro.load("a", cycles=10).mac("x", cycles=100, after=["a"]).store("s", cycles=20, after=["x"])
    micro.load("b", cycles=10).mac("y", cycles=5, after=["b"])
    # s cannot ask before 110, and b does not wait for it: 10..20. y waits for the MAC unit only: 110..115.
    expected = {"a": (0, 10), "x": (10, 110), "s": (110, 130), "b": (10, 20), "y": (110, 115)}
    assert spans(timing, micro) == expected


# --- Is work that is shared out unevenly timed as such? ---


def test_does_the_core_with_more_items_end_last(timing: Timing) -> None:
    micro = MicroSchedule(cores=2)
    micro.load("a", cycles=10).mac("x", cycles=50, after=["a"])
    micro.load("b", cycles=10, core=1).mac("y", cycles=50, after=["b"], core=1)
    micro.load("c", cycles=10, core=1).mac("z", cycles=50, after=["c"], core=1)
    timeline = timing(micro.build())
    # Core 0: 10 + 50 = 60. Core 1: b 10..20, c 20..30, y 20..70, z 70..120.
    assert micro.spans(timeline)["x"] == (10, 60)
    assert micro.spans(timeline)["z"] == (70, 120)
    assert timeline.cycles == 120
    assert timeline.busy_cycles[MAC::UNITS].tolist() == [50, 100]


def test_are_three_row_blocks_of_flat_on_two_cores_timed_as_on_paper(timing: Timing) -> None:
    one_pass = [["max", "subtract", "exp", "sum", "divide"]]
    changes = {"mac.timing": "ideal", "vec.row_reduction_cycles": 0, "vec.softmax_passes": one_pass}
    ports = {"mac.l1_port_bytes_per_cycle": 4096, "vec.l1_port_bytes_per_cycle": 4096}
    tiling = Tiling(q_tile=16, kv_tile=16, k_resident_tiles=1, v_resident_tiles=1, core_split="items")
    schedule = build_schedule("flat", small_arch(cores=2, **changes, **ports), small_workload(n_q=48), tiling)
    # Every tile is 16 x 16 int8 = 256 bytes: 256 / 8 = 32 cycles of channel. Both products: k = 16 steps of the array.
    # Softmax: 256 elements on 256 lanes, 1 + 1 + 6 + 1 + 4 = 13 cycles. Core 0 has row block 0, core 1 has 1 and 2.
    timeline = timing(schedule)
    got = [
        (q // UNITS, OP_NAMES[op], (start, end))
        for op, q, start, end in zip(
            schedule.instructions[:, 0].tolist(),
            schedule.instructions[:, F_QUEUE].tolist(),
            timeline.start.tolist(),
            timeline.end.tolist(),
            strict=True,
        )
    ]
    assert got == [
        (0, "load_q", (0, 32)),
        (0, "load_k", (64, 96)),  # asked at 32, behind core 1's load of Q, asked at 0
        (0, "qk", (96, 112)),
        (0, "softmax", (112, 125)),
        (0, "load_v", (128, 160)),
        (0, "pv", (160, 176)),
        (0, "store_o", (192, 224)),  # asked at 176, while core 1 loads V
        (1, "load_q", (32, 64)),
        (1, "load_k", (96, 128)),
        (1, "qk", (128, 144)),
        (1, "softmax", (144, 157)),
        (1, "load_v", (160, 192)),
        (1, "pv", (192, 208)),
        (1, "store_o", (256, 288)),  # asked at 208, behind the next Q
        (1, "load_q", (224, 256)),  # asked at 192, behind core 0's store; K and V are resident
        (1, "qk", (256, 272)),
        (1, "softmax", (272, 285)),
        (1, "pv", (285, 301)),
        (1, "store_o", (301, 333)),
    ]
    assert timeline.cycles == 333


# --- Is every stall blamed on what caused it? ---

CAUSE_CASES: dict[str, tuple[MicroSchedule, int, dict[str, int]]] = {
    # name: the schedule, the unit of core 0 that stands still, and for what
    "mac": (MicroSchedule().mac("p", cycles=10).vec("q", cycles=1, after=["p"]), VEC, {"mac": 10}),
    "vec": (MicroSchedule().vec("p", cycles=10).mac("q", cycles=1, after=["p"]), MAC, {"vec": 10}),
    "load": (MicroSchedule().load("p", cycles=10).mac("q", cycles=1, after=["p"]), MAC, {"load": 10}),
    "store": (MicroSchedule().store("p", cycles=10).load("q", cycles=1, after=["p"]), LOAD, {"store": 10}),
    # The two transfers are unrelated.
    "channel": (MicroSchedule().load("p", cycles=10).store("q", cycles=1), STORE, {"channel": 10}),
    "buffer": (MicroSchedule().mac("p", cycles=10).load("q", cycles=1, after_buffer=["p"]), LOAD, {"buffer": 10}),
    # p is seen at 10 + 4 = 14, and the vector unit is free since 12.
    "sync": (
        MicroSchedule(sync=4).mac("p", cycles=10).vec("v", cycles=12).vec("q", cycles=1, after=["p"]),
        VEC,
        {"sync": 2},
    ),
    # The vector unit is free since 0: 10 cycles for the result, then 4 to synchronise.
    "result and sync": (
        MicroSchedule(sync=4).mac("p", cycles=10).vec("q", cycles=1, after=["p"]),
        VEC,
        {"mac": 10, "sync": 4},
    ),
    "buffer and sync": (
        MicroSchedule(sync=4).mac("p", cycles=10).load("q", cycles=1, after_buffer=["p"]),
        LOAD,
        {"buffer": 10, "sync": 4},
    ),
    # q may start issuing at 10, asks at 13, and finds the channel held 3..23: issuing is work, not waiting.
    "result, then channel": (
        MicroSchedule(issue=3).mac("p", cycles=10).load("l", cycles=20).store("q", cycles=1, after=["p"]),
        STORE,
        {"mac": 10, "channel": 10},
    ),
    # The last of several is to blame, for the whole wait.
    "the last of two": (
        MicroSchedule().load("p", cycles=10).vec("v", cycles=25).mac("q", cycles=1, after=["v", "p"]),
        MAC,
        {"vec": 25},
    ),
    # Synchronisation can make an earlier end the later one to be seen: s at 11 (own queue), p at 10 + 4.
    "the last to be seen": (
        MicroSchedule(sync=4).load("p", cycles=10).mac("s", cycles=11).mac("q", cycles=1, after=["s", "p"]),
        MAC,
        {"sync": 3},
    ),
    # Of equals the first that is named.
    "tie, load first": (
        MicroSchedule().load("p", cycles=10).vec("v", cycles=10).mac("q", cycles=1, after=["p", "v"]),
        MAC,
        {"load": 10},
    ),
    "tie, vec first": (
        MicroSchedule().load("p", cycles=10).vec("v", cycles=10).mac("q", cycles=1, after=["v", "p"]),
        MAC,
        {"vec": 10},
    ),
    # The queue leaves the channel at 10, and the data arrive at 40; there is no synchronisation within a queue.
    "latency of the own queue": (
        MicroSchedule(sync=4, latency=30).load("p", cycles=10).load("q", cycles=1, after=["p"]),
        LOAD,
        {"load": 30},
    ),
    "same unit of another core": (
        MicroSchedule(cores=2).mac("p", cycles=10, core=1).mac("q", cycles=1, after=["p"]),
        MAC,
        {"mac": 10},
    ),
    # Nobody waits for what has ended already.
    "nothing": (
        MicroSchedule().load("p", cycles=10).mac("m", cycles=10).mac("q", cycles=1, after=["p"]),
        MAC,
        {},
    ),
}


@pytest.mark.parametrize("case", list(CAUSE_CASES))
def test_is_the_stall_blamed_on_its_cause(timing: Timing, case: str) -> None:
    micro, unit, expected = CAUSE_CASES[case]
    assert nonzero_stalls(timing(micro.build()), 0, unit) == expected


def test_do_busy_and_stall_cycles_add_up_to_when_each_queue_ran_out(timing: Timing) -> None:
    micro = MicroSchedule(cores=2, sync=4, latency=30, issue=3)
    micro.load("a", cycles=10).load("b", cycles=10, core=1).mac("x", cycles=20, after=["a"])
    micro.vec("v", cycles=7, after=["x"]).store("s", cycles=6, after=["v"]).load("c", cycles=9, after_buffer=["x"])
    timeline = timing(micro.build())
    # a: issued 0..3, channel 3..13, there at 43. b: channel 13..23. x: 43 + 4 = 47..67. v: 67 + 4 = 71..78.
    # s: 78 + 4 + 3 = 85 on the channel, but c asked at 67 + 4 + 3 = 74: c 74..83, s 85..91.
    assert micro.spans(timeline) == {
        "a": (3, 43),
        "b": (13, 53),
        "x": (47, 67),
        "v": (71, 78),
        "s": (85, 121),
        "c": (74, 113),
    }
    ran_out = (timeline.busy_cycles + timeline.stall_cycles.sum(axis=1)).tolist()
    # Core 0's MAC, VEC, LOAD, STORE, then core 1's: a DMA queue is done when it leaves the channel.
    assert ran_out == [67, 78, 83, 91, 0, 0, 23, 0]
    # LOAD of core 0, free at 13: 67 - 13 cycles for the buffer, 4 to synchronise; x: all of 47 but 4 for the load.
    assert nonzero_stalls(timeline, 0, LOAD) == {"buffer": 54, "sync": 4}
    assert nonzero_stalls(timeline, 0, MAC) == {"load": 43, "sync": 4}
    assert nonzero_stalls(timeline, 1, LOAD) == {"channel": 10}


# --- Do instructions that take no time work? ---


def test_does_a_chain_of_instructions_without_duration_pass_in_one_cycle(timing: Timing) -> None:
    micro = MicroSchedule().load("a", cycles=10).mac("x", cycles=0, after=["a"]).vec("y", cycles=0, after=["x"])
    micro.mac("z", cycles=0, after=["y"]).store("s", cycles=5, after=["z"])
    assert spans(timing, micro) == {"a": (0, 10), "x": (10, 10), "y": (10, 10), "z": (10, 10), "s": (10, 15)}
    assert timing(MicroSchedule().mac("x", cycles=0).vec("y", cycles=0, after=["x"]).build()).cycles == 0


def test_does_a_request_at_the_end_of_such_a_chain_still_tie_with_others_of_its_cycle(timing: Timing) -> None:
    micro = MicroSchedule(cores=2).mac("h", cycles=10, core=1).load("b", cycles=5, after=["h"], core=1)
    micro.vec("g", cycles=10).mac("z", cycles=0, after=["g"]).load("a", cycles=5, after=["z"])
    # Both ask at 10, a by way of z; core 0 goes first.
    assert {name: spans(timing, micro)[name] for name in "ab"} == {"a": (10, 15), "b": (15, 20)}


def test_is_a_timeline_the_same_every_time(timing: Timing) -> None:
    schedule = MicroSchedule(cores=2).load("a", cycles=3).load("b", cycles=3, core=1).store("s", cycles=3).build()
    first, second = timing(schedule), timing(schedule)
    assert np.array_equal(first.start, second.start)
    assert np.array_equal(first.stall_cycles, second.stall_cycles)
