"""Whether spans say when everything ran, and what it is called."""

import numpy as np
import pytest
from builders import MicroSchedule, small_arch

from mas_sim.dataflows import build_schedule
from mas_sim.schedule import (
    F_OP,
    F_OVER,
    F_TILE,
    LOAD,
    OP_NAMES,
    Schedule,
)
from mas_sim.simulator import simulate
from mas_sim.tiling import Tiling
from mas_sim.timeline import Timeline
from mas_sim.trace import item_name, kind_of, part_names, pass_number, pass_steps, spans
from mas_sim.workload import Workload


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


def test_is_every_instruction_a_span_and_a_stopped_product_two() -> None:
    schedule, timeline = overwriting()
    found = spans(schedule, timeline)
    assert [span.row for span in found if span.state != "stopped"] == list(range(len(schedule)))
    assert [span.begin for span in found if span.state != "stopped"] == timeline.start.tolist()
    assert [span.end for span in found if span.state != "stopped"] == timeline.channel_end.tolist()
    stopped = [span for span in found if span.state == "stopped"]
    assert len(stopped) > 2
    assert [span.row for span in stopped] == np.flatnonzero(timeline.lost_cycles > 0).tolist()
    assert [span.row for span in found if span.state == "redone"] == [span.row for span in stopped]
    reloads = np.flatnonzero((schedule.unit_of == LOAD) & (schedule.instructions[:, F_OVER] >= 0))
    assert [span.row for span in found if span.state == "reloaded"] == reloads.tolist() != []


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
    passes = {pass_number(schedule, span.row): pass_steps(schedule, span.row) for span in spans(schedule, timeline)}
    passes.pop(None)
    assert [passes[number] for number in range(len(passes))] == steps
