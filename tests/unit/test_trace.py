"""Whether a trace says when everything ran, exactly, and in a form that trace viewers read."""

import itertools
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import MicroSchedule, small_arch

from mas_sim.dataflows import build_schedule
from mas_sim.errors import ConfigError
from mas_sim.schedule import (
    C_DRAM_READ,
    C_L0_WRITE,
    F_KIND,
    F_OP,
    F_OVER,
    F_QUEUE,
    F_TILE,
    LOAD,
    OP_NAMES,
    UNIT_NAMES,
    UNITS,
    Schedule,
)
from mas_sim.simulator import simulate
from mas_sim.tiling import Tiling
from mas_sim.timeline import Timeline
from mas_sim.trace import item_name, kind_of, part_names, pass_steps, spans, trace_events, write_trace
from mas_sim.workload import Workload

Event = dict[str, Any]
BYTES = ("dram_read_bytes", "dram_write_bytes", "l1_read_bytes", "l1_write_bytes", "l0_read_bytes", "l0_write_bytes")


def overwriting(lost_granularity: str = "tile", cores: int = 1) -> tuple[Schedule, Timeline]:
    """Run a schedule whose products are stopped in the middle of a tile."""
    changes = {
        "vec.lanes": 32, "vec.op_lane_cycles.max": 5, "preemption.drain_cycles": 30,
        "preemption.lost_granularity": lost_granularity, "dram.latency_cycles": 100, "clock_ghz": 2.5,
    }  # fmt: skip
    workload = Workload(name="bert_like", heads=2, n_q=160, n_kv=512, head_dim_qk=64, head_dim_v=64, dtype="fp16")
    tiling = Tiling(
        q_tile=32, kv_tile=128, k_resident_tiles=4, v_resident_tiles=4, softmax_in_place=False, overwrite="v"
    )
    schedule = build_schedule("mas", small_arch(cores=cores, **changes), workload, tiling)
    return schedule, simulate(schedule)


def complete(events: list[Event]) -> list[Event]:
    """Keep what happened, without the names of tracks."""
    return [event for event in events if event["ph"] == "X"]


def of_cores(schedule: Schedule, events: list[Event]) -> list[Event]:
    """Keep what happened on the units of cores, without the channel."""
    return [event for event in complete(events) if event["pid"] < schedule.arch.cores]


def test_is_every_cycle_of_a_hand_written_schedule_in_its_trace() -> None:
    micro = MicroSchedule(latency=7).load("a", 10).mac("x", 5, after=["a"]).store("s", 4, after=["x"])
    schedule = micro.build()
    events = complete(trace_events(schedule, simulate(schedule)))
    at = [(e["pid"], e["tid"], e["args"]["start_cycle"], e["args"]["end_cycle"], e["args"]["cycles"]) for e in events]
    # Each transfer is on its queue's track, then on the channel's, while it holds the channel; its data come later.
    assert at == [(0, 2, 0, 10, 10), (1, 0, 0, 10, 10), (0, 0, 17, 22, 5), (0, 3, 22, 26, 4), (1, 0, 22, 26, 4)]
    assert [event["args"].get("arrival_cycle") for event in events] == [17, 17, None, 33, 33]


@pytest.mark.parametrize("cores", [1, 2])
def test_can_the_timeline_be_read_back_from_the_arguments(cores: int) -> None:
    schedule, timeline = overwriting(cores=cores)
    ran = [event for event in of_cores(schedule, trace_events(schedule, timeline)) if event["name"] != "stopped"]
    assert [event["args"]["instruction"] for event in ran] == list(range(len(schedule)))
    assert [event["args"]["start_cycle"] for event in ran] == timeline.start.tolist()
    assert [event["args"]["end_cycle"] for event in ran] == timeline.channel_end.tolist()
    assert [event["pid"] * UNITS + event["tid"] for event in ran] == schedule.instructions[:, F_QUEUE].tolist()
    assert [event["name"] for event in ran] == [OP_NAMES[op] for op in schedule.instructions[:, 0]]
    moved = [[event["args"][name] for name in BYTES] for event in ran]
    assert moved == schedule.costs[schedule.instructions[:, F_KIND], C_DRAM_READ : C_L0_WRITE + 1].tolist()


def test_are_times_microseconds_of_the_machines_clock() -> None:
    schedule, timeline = overwriting()
    for event in complete(trace_events(schedule, timeline)):
        assert event["ts"] * 2500 == pytest.approx(event["args"]["start_cycle"], rel=1e-12)
        assert event["dur"] * 2500 == pytest.approx(event["args"]["cycles"], rel=1e-12)


@pytest.mark.parametrize("lost_granularity", ["tile", "matmul"])
def test_does_a_stopped_product_show_twice(lost_granularity: str) -> None:
    schedule, timeline = overwriting(lost_granularity)
    events = complete(trace_events(schedule, timeline))
    stopped = [event for event in events if event["name"] == "stopped"]
    rows = np.flatnonzero(timeline.lost_cycles > 0)
    assert len(rows) > 2
    assert [event["args"]["instruction"] for event in stopped] == rows.tolist()
    passes = schedule.instructions[rows, F_OVER]
    assert [event["args"]["start_cycle"] for event in stopped] == timeline.redo[rows, 1].tolist()
    assert [event["args"]["end_cycle"] for event in stopped] == (timeline.start[passes] + 30).tolist()
    assert [event["args"]["lost_cycles"] for event in stopped] == timeline.lost_cycles[rows].tolist()
    again = [event for event in events if event["cat"] == "redone"]
    assert [event["args"]["start_cycle"] for event in again] == timeline.start[rows].tolist()
    assert [event["name"] for event in again] == ["pv"] * len(rows)
    # A run that was stopped moved a part of its bytes only, which is the meter's to say.
    assert not any(name in event["args"] for event in stopped for name in BYTES)


def test_do_loads_that_bring_tiles_back_say_so() -> None:
    schedule, timeline = overwriting()
    rows = np.flatnonzero((schedule.unit_of == LOAD) & (schedule.instructions[:, F_OVER] >= 0))
    again = [e for e in of_cores(schedule, trace_events(schedule, timeline)) if e["cat"] == "reloaded"]
    assert [event["args"]["instruction"] for event in again] == rows.tolist() != []
    assert {(event["name"], event["args"]["tile"], event["args"]["tiles"]) for event in again} == {("load_v", 2, 2)}


@pytest.mark.parametrize("cores", [1, 2])
def test_does_every_track_show_one_thing_at_a_time(cores: int) -> None:
    schedule, timeline = overwriting(cores=cores)
    tracks = defaultdict(list)
    for event in complete(trace_events(schedule, timeline)):
        tracks[event["pid"], event["tid"]].append((event["args"]["start_cycle"], event["args"]["end_cycle"]))
    assert len(tracks) == cores * UNITS + 1
    for times in tracks.values():
        times.sort()
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(times))
    assert len(tracks[cores, 0]) == (schedule.unit_of >= LOAD).sum()


def test_is_every_track_named() -> None:
    schedule, timeline = overwriting(cores=2)
    events = trace_events(schedule, timeline)
    named = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert named == {(core, u): name for core in (0, 1) for u, name in enumerate(UNIT_NAMES)} | {(2, 0): "channel"}
    processes = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert processes == {0: "core 0", 1: "core 1", 2: "DRAM"}
    assert {(event["pid"], event["tid"]) for event in complete(events)} == set(named)


def test_is_a_trace_file_the_same_json_each_time(tmp_path: Path) -> None:
    schedule, timeline = overwriting()
    for name in ("one.json", "two.json"):
        write_trace(schedule, timeline, tmp_path / name)
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()
    trace = json.loads((tmp_path / "one.json").read_text(encoding="utf-8"))
    assert trace["traceEvents"] == trace_events(schedule, timeline)
    assert trace["otherData"]["cycles"] == timeline.cycles
    assert Tiling(**trace["otherData"]["tiling"]) == schedule.tiling


def test_is_a_file_that_cannot_be_written_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent.*cannot be written: No such file"):
        write_trace(*overwriting(), tmp_path / "absent" / "trace.json")


def test_does_a_window_hold_what_touches_it_and_nothing_else() -> None:
    micro = MicroSchedule().mac("a", 10).mac("none", 0).mac("b", 10).vec("c", 30)
    schedule = micro.build()
    timeline = simulate(schedule)

    def names(first: int, last: int, core: int | None = None) -> list[str]:
        return [micro.names[s.row] for s in spans(schedule, timeline, first_cycle=first, last_cycle=last, core=core)]

    assert names(0, 30) == ["a", "none", "b", "c"]
    assert names(0, 10) == ["a", "c"]  # both ends of a window are sharp
    assert names(10, 11) == ["none", "b", "c"]
    assert names(20, 25, core=0) == ["c"]
    assert names(20, 25, core=1) == []
    assert names(30, 40) == []


def test_can_a_window_hold_one_run_of_a_stopped_product_only() -> None:
    schedule, timeline = overwriting()
    row = int(np.flatnonzero(timeline.lost_cycles > 0)[0])
    first, again = int(timeline.redo[row, 1]), int(timeline.start[row])
    states = [
        [span.state for span in spans(schedule, timeline, first_cycle=cycle, last_cycle=cycle + 1) if span.row == row]
        for cycle in (first - 1, first, again - 1, again)
    ]
    assert states == [[], ["stopped"], [], ["redone"]]


ONLINE = [("tileflow", "auto", "vec"), ("flash", "ping_pong", "vec"), ("fusemax", "none", "vec")]
ONLINE += [("flash", "none", "vec"), ("fusemax", "pipelined", "mac")]


def by_tiles(dataflow: str, overlap: str, exp_on: str) -> tuple[Schedule, Timeline]:
    """Run a dataflow that does softmax tile by tile, under a mask."""
    workload = Workload(
        name="masked", heads=2, n_q=48, n_kv=64, head_dim_qk=16, head_dim_v=16, dtype="fp16", mask="causal"
    )
    tiling = Tiling(q_tile=16, kv_tile=16, overlap=overlap, exp_on=exp_on)
    schedule = build_schedule(dataflow, small_arch(), workload, tiling)
    return schedule, simulate(schedule)


@pytest.mark.parametrize(("dataflow", "overlap", "exp_on"), ONLINE)
def test_has_every_operation_a_kind_a_letter_and_a_part(dataflow: str, overlap: str, exp_on: str) -> None:
    schedule, timeline = by_tiles(dataflow, overlap, exp_on)
    for span in spans(schedule, timeline):
        op = OP_NAMES[schedule.instructions[span.row, F_OP]]
        kind = {"load": "load", "store": "store", "tile": "softmax", "rescale": "correct", "add": "correct"}
        assert kind_of(schedule, span) == kind.get(op.partition("_")[0], op)
        letters = {"qk": "C", "mask": "C", "exp": "P", "tile_softmax": "P", "online": "P"}
        letter = letters.get(op, op[-1].upper() if op.partition("_")[0] in ("load", "store") else "O")
        assert item_name(schedule, span.row, with_group=False).startswith(f"${letter}")
        names = part_names(schedule, span)
        assert sorted(names, key=len, reverse=True) == list(names)
        tile = schedule.instructions[span.row, F_TILE]
        if op in ("qk", "pv", "mask", "online", "tile_softmax", "rescale", "add", "exp"):
            assert names[0].endswith(f"tile {tile}")


@pytest.mark.parametrize(
    ("dataflow", "overlap", "exp_on", "steps"),
    [
        ("tileflow", "auto", "vec", [("max",), ("subtract",), ("exp",), ("sum",), ("divide",)]),
        ("flash", "none", "vec", [("max",), ("subtract",), ("exp",), ("sum",)]),
        ("fusemax", "pipelined", "vec", [("max",), ("subtract",), ("exp",), ("sum",)]),
        ("fusemax", "pipelined", "mac", [("max so far",)]),
    ],
)
def test_are_passes_over_a_tile_numbered_and_named(
    dataflow: str, overlap: str, exp_on: str, steps: list[tuple[str, ...]]
) -> None:
    schedule, timeline = by_tiles(dataflow, overlap, exp_on)
    passes = {
        event["args"]["pass"]: pass_steps(schedule, event["args"]["instruction"])
        for event in complete(trace_events(schedule, timeline))
        if "pass" in event["args"]
    }
    assert [passes[number] for number in range(len(passes))] == steps
