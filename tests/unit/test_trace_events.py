"""Whether a trace keeps the rules of its format, and says of a run what its timeline and meter say."""

import itertools
import json
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest
from builders import MicroSchedule, edge, small_arch, small_workload
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mas_sim.dataflows import DATAFLOWS, build_schedule
from mas_sim.errors import MasSimError
from mas_sim.meter import meter
from mas_sim.schedule import (
    C_DRAM_READ,
    C_L0_WRITE,
    F_KIND,
    F_OP,
    F_OVER,
    F_QUEUE,
    F_RELOAD,
    LOAD,
    OP_NAMES,
    UNIT_NAMES,
    UNITS,
    Schedule,
)
from mas_sim.simulator import simulate
from mas_sim.tiling import Tiling
from mas_sim.timeline import CAUSE_NAMES, Timeline
from mas_sim.trace_events import Clock, Event, Tracks, trace_events
from mas_sim.workload import Workload

BYTES = ("dram_read_bytes", "dram_write_bytes", "l1_read_bytes", "l1_write_bytes", "l0_read_bytes", "l0_write_bytes")

CASES = [(name, mask) for name in DATAFLOWS for mask in ("none", "causal")]
CASES += [
    ("overwrite", "tile"),
    ("overwrite", "matmul"),
    ("overwrite", "never"),
    ("overwrite", "two cores"),
    ("overwrite", "two tiles"),
]

REQUIRED = {
    "M": {"name", "ph", "pid", "tid", "args"},
    "X": {"name", "cat", "ph", "pid", "tid", "ts", "dur", "args"},
    "s": {"name", "cat", "ph", "pid", "tid", "ts", "id"},
    "f": {"name", "cat", "ph", "pid", "tid", "ts", "id", "bp"},
    "C": {"name", "ph", "pid", "tid", "ts", "args"},
}
"""Keys of each phase, by the format's rules; those of flows must be the same at both ends."""


def overwriting(case: str = "tile") -> tuple[Schedule, Timeline]:
    """Run a schedule whose products are stopped in the middle of a tile, or must end before they are overwritten."""
    changes = {
        "vec.lanes": 32, "vec.op_lane_cycles.max": 5, "preemption.drain_cycles": 30, "sync_cycles": 3,
        "preemption.lost_granularity": "matmul" if case == "matmul" else "tile", "dram.latency_cycles": 100,
        "preemption.supported": case != "never", "clock_ghz": 2.5, "issue_cycles": 2,
    }  # fmt: skip
    workload = Workload(name="bert_like", heads=2, n_q=160, n_kv=512, head_dim_qk=64, head_dim_v=64, dtype="fp16")
    tiling = Tiling(
        q_tile=32, kv_tile=256 if case == "two tiles" else 128, k_resident_tiles=4, v_resident_tiles=4,
        softmax_in_place=False, overwrite="v",
    )  # fmt: skip
    cores = 2 if case == "two cores" else 1
    schedule = build_schedule("mas", small_arch(cores=cores, **changes), workload, tiling)
    return schedule, simulate(schedule)


def run(name: str, case: str) -> tuple[Schedule, Timeline]:
    """Run one of `CASES`; the dataflows on two cores, with ragged tiles and all delays of the edge machine."""
    if name == "overwrite":
        return overwriting(case)
    workload = small_workload(
        batch=2, heads=4, kv_heads=2, n_q=40, n_kv=52, head_dim_qk=16, head_dim_v=8, dtype="fp16", mask=case
    )  # fmt: skip
    schedule = build_schedule(name, edge(), workload, Tiling(q_tile=16, kv_tile=16, k_resident_tiles=1))
    return schedule, simulate(schedule)


def read_back(schedule: Schedule, timeline: Timeline, **view: Any) -> list[Event]:
    """Return events as a viewer gets them: through JSON."""
    events: list[Event] = json.loads(json.dumps(list(trace_events(schedule, timeline, **view)), allow_nan=False))
    return events


def complete(events: list[Event]) -> list[Event]:
    """Keep the slices."""
    return [event for event in events if event["ph"] == "X"]


def of_cores(schedule: Schedule, events: list[Event]) -> list[Event]:
    """Keep the slices on the units of cores, without the channel's."""
    return [event for event in complete(events) if event["pid"] <= schedule.arch.cores]


def bound_flows(events: list[Event]) -> set[tuple[int, int, str]]:
    """Bind flow events to slices as Perfetto does; return who is waited for, who waits, and why.

    Times are cut off to nanoseconds, and events sorted by them, those of one time as they stand in the file. A flow
    event belongs to the newest slice of its thread.
    """
    order = sorted((event for event in events if event["ph"] in "Xsf"), key=lambda event: int(event["ts"] * 1000))
    newest: dict[tuple[int, int], Event] = {}
    opened: dict[int, tuple[int, str]] = {}
    bound = set()
    for event in order:
        track = event["pid"], event["tid"]
        if event["ph"] == "X":
            newest[track] = event
            continue
        current = newest[track]
        assert current["ts"] <= event["ts"] <= current["ts"] + current["dur"]
        row = current["args"]["instruction"]
        if event["ph"] == "s":
            assert event["id"] not in opened
            opened[event["id"]] = row, event["name"]
        else:
            source, name = opened.pop(event["id"])
            assert name == event["name"]
            assert event["ts"] == current["ts"]
            bound.add((source, row, name))
    assert not opened
    return bound


# --- the format ---


@pytest.mark.parametrize(("name", "case"), CASES)
def test_has_every_event_the_keys_of_its_phase(name: str, case: str) -> None:
    events = read_back(*run(name, case))
    assert Counter(event["ph"] for event in events).keys() == REQUIRED.keys()
    for event in events:
        assert event.keys() == REQUIRED[event["ph"]], event
        assert all(isinstance(event[key], int) and event[key] > 0 for key in ("pid", "tid"))
        assert isinstance(event["name"], str)
        assert event["name"]
        assert event.get("ts", 0) >= 0
        assert event.get("dur", 0) >= 0
        assert event.get("bp", "e") == "e"
        if event["ph"] == "C":
            assert all(isinstance(value, int | float) for value in event["args"].values())


def test_is_every_track_named_once_and_no_number_shared() -> None:
    schedule, timeline = overwriting("two cores")
    events = read_back(schedule, timeline)
    threads = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    processes = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert list(threads.values()) == [*UNIT_NAMES, *UNIT_NAMES, "channel"]
    assert processes == {1: "core 0", 2: "core 1", 3: "DRAM", 4: "L1 of all cores"}
    assert not threads.keys() & processes.keys()
    assert {event["tid"] for event in complete(events)} == threads.keys()
    assert {event["pid"] for event in events} == processes.keys()
    # A thread belongs to one process.
    assert len({(event["pid"], event["tid"]) for event in complete(events)}) == len(threads)


@pytest.mark.parametrize("clock_ghz", [0.7, 1, 3.75, 7])
def test_do_slices_of_a_track_never_overlap_however_times_are_read(clock_ghz: float) -> None:
    """As floats, and cut off to whole nanoseconds as Perfetto does, even where a cycle is shorter than one."""
    schedule, _ = overwriting()
    schedule = build_schedule(
        "mas", schedule.arch.with_(clock_ghz=clock_ghz), schedule.workload, schedule.tiling
    )  # fmt: skip
    tracks = defaultdict(list)
    for event in complete(read_back(schedule, simulate(schedule))):
        tracks[event["tid"]].append((event["ts"], event["dur"]))
    assert len(tracks) == UNITS + 1
    for times in tracks.values():
        assert times == sorted(times)
        for (begin, length), (following, _) in itertools.pairwise(times):
            assert begin + length <= following
            assert int(begin * 1000) + int(length * 1000) <= int(following * 1000)


@settings(derandomize=True, deadline=None, max_examples=500)
@given(
    st.sampled_from([0.05, 0.1, 0.5, 0.8, 1, 2.5, 3.75]) | st.floats(0.05, 20),
    st.integers(0, 10**9),
    st.integers(0, 10**6),
)
@example(1, 7, 1008)  # the duration would be cut off to a nanosecond too much
@example(0.5, 7, 1004)
@example(3.75, 9151, 637)  # begin + duration would round to more than the end
def test_does_an_interval_end_before_the_next_one_begins(clock_ghz: float, begin: int, cycles: int) -> None:
    clock = Clock(small_arch(clock_ghz=clock_ghz))
    start, duration = clock.interval(begin, begin + cycles)
    stop = clock.at(begin + cycles)
    assert start == clock.at(begin)
    assert duration >= 0
    assert start + duration <= stop
    assert int(start * 1000) + int(duration * 1000) <= int(stop * 1000)
    assert duration == pytest.approx(cycles / (clock_ghz * 1e3), rel=1e-12, abs=2 * np.spacing(stop))


# --- slices ---


def test_is_every_cycle_of_a_hand_written_schedule_in_its_trace() -> None:
    micro = MicroSchedule(latency=7).load("a", 10).mac("x", 5, after=["a"]).store("s", 4, after=["x"])
    schedule = micro.build()
    events = complete(read_back(schedule, simulate(schedule)))
    names = {event["tid"]: name for event, name in zip(events, ["LOAD", "MAC", "STORE", "channel", ""], strict=True)}
    at = [(names[e["tid"]], e["args"]["start_cycle"], e["args"]["end_cycle"], e["args"]["cycles"]) for e in events]
    # Each transfer is on its queue's track, and on the channel's, while it holds the channel; its data come later.
    times = [("LOAD", 0, 10, 10), ("MAC", 17, 22, 5), ("STORE", 22, 26, 4)]
    assert [entry for entry in at if entry[0] in ("LOAD", "MAC", "STORE")] == times
    assert [entry[1:] for entry in at[3:]] == [(0, 10, 10), (22, 26, 4)]
    assert [event["args"].get("arrival_cycle") for event in events] == [17, None, 33, 17, 33]


@pytest.mark.parametrize(("name", "case"), CASES)
def test_can_the_run_be_read_back_from_the_arguments(name: str, case: str) -> None:
    """Every instruction once, apart from the lost runs of stopped products, where and when it ran."""
    schedule, timeline = run(name, case)
    tracks, code = Tracks(schedule.arch), schedule.instructions
    ran = [event for event in of_cores(schedule, read_back(schedule, timeline)) if event["name"] != "stopped"]
    assert [event["args"]["instruction"] for event in ran] == list(range(len(schedule)))
    assert [event["args"]["start_cycle"] for event in ran] == timeline.start.tolist()
    assert [event["args"]["end_cycle"] for event in ran] == timeline.channel_end.tolist()
    queues = [divmod(queue, UNITS) for queue in code[:, F_QUEUE].tolist()]
    assert [(event["pid"], event["tid"]) for event in ran] == [(tracks.pid(c), tracks.tid(c, u)) for c, u in queues]
    assert [event["name"] for event in ran] == [OP_NAMES[op] for op in code[:, F_OP]]
    moved = [[event["args"][name] for name in BYTES] for event in ran]
    assert moved == schedule.costs[code[:, F_KIND], C_DRAM_READ : C_L0_WRITE + 1].tolist()
    for event in ran:
        assert event["ts"] * schedule.arch.clock_ghz * 1e3 == pytest.approx(event["args"]["start_cycle"], rel=1e-12)


@pytest.mark.parametrize(("name", "case"), CASES)
def test_do_slices_add_up_to_the_busy_and_waits_to_the_stall_cycles(name: str, case: str) -> None:
    """A transfer's queue is busy for its issue cycles as well, in which nothing is shown."""
    schedule, timeline = run(name, case)
    busy = np.zeros(schedule.queues, np.int64)
    waited = np.zeros((schedule.queues, len(CAUSE_NAMES)), np.int64)
    for event in of_cores(schedule, read_back(schedule, timeline)):
        args = event["args"]
        queue = schedule.instructions[args["instruction"], F_QUEUE]
        busy[queue] += args["cycles"] + schedule.arch.issue_cycles * (queue % UNITS >= LOAD)
        assert sum(args.get("waited_for", {}).values()) == args.get("waited_cycles", 0)
        for cause, cycles in args.get("waited_for", {}).items():
            waited[queue, CAUSE_NAMES.index(cause)] += cycles
    assert busy.tolist() == timeline.busy_cycles.tolist()
    assert waited.tolist() == timeline.stall_cycles.tolist()


@pytest.mark.parametrize("case", ["tile", "matmul"])
def test_does_a_stopped_product_show_twice(case: str) -> None:
    schedule, timeline = overwriting(case)
    events = complete(read_back(schedule, timeline))
    stopped = [event for event in events if event["name"] == "stopped"]
    rows = np.flatnonzero(timeline.lost_cycles > 0)
    assert len(rows) > 2
    assert [event["args"]["instruction"] for event in stopped] == rows.tolist()
    passes = schedule.instructions[rows, F_OVER]
    assert [event["args"]["start_cycle"] for event in stopped] == timeline.redo[rows, 1].tolist()
    assert [event["args"]["end_cycle"] for event in stopped] == (timeline.start[passes] + 30).tolist()
    assert [event["args"]["lost_cycles"] for event in stopped] == timeline.lost_cycles[rows].tolist()
    assert [event["args"]["overwritten_by"] for event in stopped] == passes.tolist()
    again = [event for event in events if event["cat"] == "redone"]
    assert [event["args"]["start_cycle"] for event in again] == timeline.start[rows].tolist()
    assert [event["name"] for event in again] == ["pv"] * len(rows)
    # A run that was stopped moved a part of its bytes only, which is the meter's to say.
    assert not any(name in event["args"] for event in stopped for name in BYTES)


def test_do_loads_that_bring_tiles_back_say_so() -> None:
    schedule, timeline = overwriting()
    rows = np.flatnonzero((schedule.unit_of == LOAD) & (schedule.instructions[:, F_OVER] >= 0))
    again = [event for event in of_cores(schedule, read_back(schedule, timeline)) if event["cat"] == "reloaded"]
    assert [event["args"]["instruction"] for event in again] == rows.tolist() != []
    told = {(event["name"], *(event["args"][key] for key in ("tile", "tiles", "keys", "kv_heads"))) for event in again}
    assert told == {("load_v", 2, 2, "256..511", "0"), ("load_v", 2, 2, "256..511", "1")}


def size(text: str) -> int:
    """Return how many elements a range names."""
    first, _, last = text.partition("..")
    return int(last or first) - int(first) + 1


@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize("name", DATAFLOWS)
def test_do_the_ranges_of_elements_cover_all_scores_once(name: str, mask: str) -> None:
    """Every score is computed by one `qk`, and goes through softmax; loads and stores name what they move."""
    schedule, timeline = run(name, mask)
    elements: dict[tuple[str, int], int] = defaultdict(int)
    named: dict[str, set[str]] = defaultdict(set)
    for event in of_cores(schedule, read_back(schedule, timeline)):
        args = event["args"]
        for key in ("batches", "heads", "kv_heads"):
            named[key].add(args.get(key, "0"))
        elements[args["op"], args.get("pass", 0)] += (
            size(args["batches"]) * size(args.get("heads", args.get("kv_heads")))
            * size(args.get("queries", "0")) * size(args.get("keys", "0"))
        )  # fmt: skip
        if args["op"] in ("load_k", "load_v"):
            tensor_bytes = size(args["keys"]) * 2 * (16 if args["op"] == "load_k" else 8)
            assert args["dram_read_bytes"] == size(args["batches"]) * size(args["kv_heads"]) * tensor_bytes
    heights = np.minimum(16, 40 - 16 * np.arange(3))
    scores = 2 * 4 * int(heights @ schedule.grid.row_length)
    assert scores == 2 * 4 * 40 * 52 or mask == "causal"
    assert elements["qk", 0] == elements["pv", 0] == scores
    softmax = {op: count for (op, number), count in elements.items() if "softmax" in op or op == "online"}
    assert set(softmax.values()) == {scores}
    assert elements["store_o", 0] == 2 * 4 * 40
    assert named == {"batches": {"0", "1"}, "heads": {"0", "1", "2", "3"}, "kv_heads": {"0", "1"}}


# --- flows ---


@pytest.mark.parametrize(("name", "case"), CASES)
def test_join_flows_the_slices_that_depend_on_each_other_and_no_others(name: str, case: str) -> None:
    schedule, timeline = run(name, case)
    code = schedule.instructions
    expected: dict[tuple[int, int], str] = {}
    for row in range(len(schedule)):
        for other, is_buffer in sorted(schedule.dependencies(row), key=lambda dep: dep[1]):
            if code[row, F_QUEUE] != code[other, F_QUEUE]:
                expected.setdefault((other, row), "buffer" if is_buffer else "data")
    for row in np.flatnonzero(timeline.late).tolist():
        expected.setdefault((int(code[row, F_RELOAD]), row), "reload")
    events = read_back(schedule, timeline)
    assert bound_flows(events) == {(*pair, why) for pair, why in expected.items()}
    ids = [event["id"] for event in events if event["ph"] == "s"]
    assert len(set(ids)) == len(ids) == len(expected) > 20


@pytest.mark.parametrize("case", ["tile", "matmul", "two cores", "two tiles"])
def test_do_arrows_lead_to_the_first_run_of_a_stopped_product_and_from_its_last(case: str) -> None:
    """All but those from the loads that bring its tiles back, which lead to its second run."""
    schedule, timeline = overwriting(case)
    joined: Counter[tuple[str, str, str]] = Counter()
    for event in read_back(schedule, timeline):
        if event["ph"] == "X":
            current = event
        elif event["ph"] in "sf":  # they stand right behind their slice
            joined[event["ph"], current["cat"], event["name"]] += 1
    stops = int((timeline.lost_cycles > 0).sum())
    assert joined["f", "redone", "reload"] == stops
    assert {name for end, state, name in joined if (end, state) == ("f", "redone")} == {"reload"}
    assert {name for end, state, name in joined if (end, state) == ("f", "stopped")} <= {"data", "buffer"}
    assert not any(state == "stopped" for end, state, _ in joined if end == "s")
    assert any(state == "redone" for end, state, _ in joined if end == "s") == (case == "two tiles")
    assert joined["f", "done", "reload"] == timeline.late.sum() - stops


def test_is_a_pair_that_depends_twice_one_arrow() -> None:
    """It stands for the data; what is waited for on the same queue needs none."""
    micro = MicroSchedule().load("a", 4).mac("b", 3, after=["a"], after_buffer=["a"]).mac("c", 3, after=["b"])
    schedule = micro.vec("d", 2, after_buffer=["c"], after=["a"]).build()
    assert bound_flows(read_back(schedule, simulate(schedule))) == {(0, 1, "data"), (0, 3, "data"), (2, 3, "buffer")}


# --- counters ---


def counter(events: list[Event], name: str, pid: int) -> list[tuple[float, float]]:
    """Return times and values of a counter, in the order of the file."""
    chosen = [event for event in events if event["ph"] == "C" and event["name"] == name and event["pid"] == pid]
    return [(event["ts"], *event["args"].values()) for event in chosen]


@pytest.mark.parametrize(("name", "case"), CASES)
def test_are_counters_within_capacity_and_zero_at_the_end(name: str, case: str) -> None:
    schedule, timeline = run(name, case)
    events, arch = read_back(schedule, timeline), schedule.arch
    tracks = Tracks(arch)
    for core in range(arch.cores):
        steps = counter(events, "L1 occupancy", tracks.pid(core))
        assert [at for at, _ in steps] == sorted({at for at, _ in steps})
        assert 0 < max(value for _, value in steps) <= schedule.core_l1_bytes
        assert (steps[0][0], steps[-1][1]) == (0, 0)
    both = counter(events, "L1 occupancy", tracks.l1)
    assert bool(both) == (arch.cores > 1)
    assert max((value for _, value in both), default=0) <= schedule.l1_peak_bytes
    # The last byte moves before its transfer's latency has passed.
    rate = counter(events, "DRAM bytes per cycle", tracks.dram)
    assert rate[-1][1] == 0
    assert max(value for _, value in rate) <= arch.dram_bytes_per_cycle
    moved = sum(
        value * round((until - at) * arch.clock_ghz * 1e3, 6) for (at, value), (until, _) in itertools.pairwise(rate)
    )
    assert moved == pytest.approx(meter(schedule, timeline)[:2].sum(), rel=1e-9)
    per_second = counter(events, "DRAM bandwidth", tracks.dram)
    assert [value for _, value in per_second] == [value * arch.clock_ghz for _, value in rate]


def test_has_a_private_l1_no_counter_of_all_cores() -> None:
    workload = small_workload(heads=2)
    schedule = build_schedule("flat", edge().with_(**{"l1.shared": False}), workload, Tiling())
    events = read_back(schedule, simulate(schedule))
    assert {event["pid"] for event in events if event["name"] == "L1 occupancy"} == {1, 2}


# --- windows ---


def test_does_a_window_hold_what_touches_it_and_nothing_else() -> None:
    schedule, timeline = overwriting("two cores")
    whole = read_back(schedule, timeline)
    first, last = timeline.cycles // 3, timeline.cycles // 2
    for core in (None, 1):
        part = read_back(schedule, timeline, first_cycle=first, last_cycle=last, core=core)
        inside = [
            event for event in complete(whole)
            if event["args"]["start_cycle"] < last and event["args"]["end_cycle"] > first
            and core in (None, event["args"]["core"])
        ]  # fmt: skip
        assert complete(part) == inside
        shown = {event["args"]["instruction"] for event in inside}
        flows = {flow for flow in bound_flows(whole) if shown.issuperset(flow[:2])}
        assert bound_flows(part) <= flows
        assert len(bound_flows(part)) > len(flows) / 2
        pid = 2
        steps = counter(whole, "L1 occupancy", pid)
        clock = Clock(schedule.arch)
        before = [value for at, value in steps if at <= clock.at(first)][-1]
        within = [step for step in steps if clock.at(first) < step[0] <= clock.at(last)]
        assert counter(part, "L1 occupancy", pid) == [(clock.at(first), before), *within]
    assert {event["pid"] for event in part} == {2, 3}


def test_are_flows_left_out_when_they_are_not_wanted() -> None:
    schedule, timeline = overwriting()
    with_flows, without = read_back(schedule, timeline), read_back(schedule, timeline, flows=False)
    assert without == [event for event in with_flows if event["ph"] not in "sf"] != with_flows


@pytest.mark.parametrize(
    ("view", "message"),
    [
        ({"core": 1}, r"core 1: the machine mas_edge has cores 0 to 0"),
        ({"core": -1}, r"core -1: the machine"),
        ({"first_cycle": -1}, r"cycles -1 to [\d,]+: nothing is there; the run has cycles 0 to [\d,]+"),
        ({"first_cycle": 10**9}, r"nothing is there"),
        ({"first_cycle": 7, "last_cycle": 7}, r"cycles 7 to 7: nothing is there"),
    ],
)
def test_is_a_view_of_nothing_an_error_at_once(view: dict[str, Any], message: str) -> None:
    with pytest.raises(MasSimError, match=message):
        trace_events(*overwriting(), **view)


def test_is_an_empty_run_a_trace_without_slices() -> None:
    schedule = MicroSchedule().build()
    events = read_back(schedule, simulate(schedule))
    assert Counter(event["ph"] for event in events)["X"] == 0
    assert {event["pid"] for event in events} == {2}
