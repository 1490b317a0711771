"""What a run looks like: the spans in which each unit was busy, and what to call the work in them.

A *span* is one instruction on its unit, or a run of a product that proactive overwrite stopped, whose result is lost.
Spans of one unit never overlap; `plots` draws them, and `trace_events` gives them to a trace viewer.
"""

from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from mas_sim.costs import FORM_ONLINE, FORM_ROWS, FORM_TILES, softmax_passes
from mas_sim.errors import ConfigError, Fault
from mas_sim.schedule import (
    F_FLAGS,
    F_GROUP,
    F_OP,
    F_OVER,
    F_QUEUE,
    F_ROW,
    F_STEP,
    F_TILE,
    FLAG_PASS,
    LOAD,
    OP_ADD,
    OP_EXP,
    OP_LOAD_C,
    OP_LOAD_K,
    OP_LOAD_Q,
    OP_LOAD_V,
    OP_MASK,
    OP_NORMALIZE,
    OP_ONLINE,
    OP_RESCALE,
    OP_SOFTMAX,
    OP_STORE_O,
    OP_STORE_P,
    OP_TILE_SOFTMAX,
    UNITS,
    Schedule,
)
from mas_sim.timeline import Timeline

State = Literal["done", "stopped", "redone", "reloaded"]
"""Of a span: an ordinary run; one that was stopped, and lost; the run that made good for it; tiles loaded again."""

_LETTERS = "QKVCPCOPCPOCPPOOOP"
"""What each operation loads, computes or stores, in the order of `OP_NAMES`."""

_KINDS = (
    *("load",) * 5, "qk", "pv", "softmax", *("store",) * 3,
    "mask", "softmax", "online", "correct", "correct", "normalize", "exp",
)  # fmt: skip
"""Kind of work of each operation, in the order of `OP_NAMES`."""

_PARTS = {OP_MASK: ("mask", "m"), OP_RESCALE: ("scale", "×"), OP_ADD: ("add", "+"), OP_EXP: ("exp", "e")}
"""What each operation on one kv tile is called, at length and shortly."""


class Span(NamedTuple):
    """A time in which a unit was busy with one instruction.

    Attributes
    ----------
    row
        The instruction.
    core, unit
        Where it ran.
    begin, end
        First cycle, and the first cycle after it. A transfer's are those in which it held the DRAM channel; its data
        arrive at `Timeline.end`, the DRAM latency later.
    state
        What became of it.
    """

    row: int
    core: int
    unit: int
    begin: int
    end: int
    state: State


def spans(
    schedule: Schedule,
    timeline: Timeline,
    *,
    first_cycle: int = 0,
    last_cycle: int | None = None,
    core: int | None = None,
) -> list[Span]:
    """List the spans that touch cycles `[first_cycle, last_cycle)` of a run, of one core or of all.

    Returns
    -------
    list of Span
        In program order, one for each instruction; a stopped run stands before the one that made good for it.
    """
    window = (first_cycle, timeline.cycles if last_cycle is None else last_cycle)
    code = schedule.instructions
    lost = timeline.lost_cycles > 0
    over = code[:, F_OVER]
    begin, end = timeline.start, timeline.channel_end
    # A stopped product has two spans, and either may be the one in the window.
    first = np.where(lost, timeline.redo[:, 1], begin) if len(timeline.redo) else begin
    seen = (first < window[1]) & (np.maximum(end, begin + 1) > window[0])
    if core is not None:
        seen &= code[:, F_QUEUE] // UNITS == core
    drain = schedule.arch.preemption.drain_cycles
    found = []
    for row in np.flatnonzero(seen).tolist():
        on_core, unit = divmod(int(code[row, F_QUEUE]), UNITS)
        state: State = "done"
        if lost[row]:
            state = "redone"
            stop = int(timeline.start[over[row]]) + drain
            found.append(Span(row, on_core, unit, int(first[row]), stop, "stopped"))
        elif unit == LOAD and over[row] >= 0:
            state = "reloaded"
        found.append(Span(row, on_core, unit, int(begin[row]), int(end[row]), state))
    return [span for span in found if span.begin < window[1] and max(span.end, span.begin + 1) > window[0]]


def kind_of(schedule: Schedule, span: Span) -> str:
    """Return what became of a span, or if that is nothing special, its kind of work: `_KINDS`."""
    return _KINDS[schedule.instructions[span.row, F_OP]] if span.state == "done" else span.state


def tiles_of(schedule: Schedule, row: int) -> tuple[int, int]:
    """Return the first and the last kv tile of an instruction (or its softmax pass); only a load can have several."""
    code = schedule.instructions[row]
    more = int(code[F_STEP]) if code[F_OP] in (OP_LOAD_K, OP_LOAD_V) else 0
    return int(code[F_TILE]), int(code[F_TILE]) + more


def item_name(schedule: Schedule, row: int, *, with_group: bool) -> str:
    """Return what an instruction works on, as mathematics: `$C_{3}$` (row block 3), `$C_{1,3}$` (of group 1), `$K$`."""
    code = schedule.instructions[row]
    letter, group, block = _LETTERS[code[F_OP]], int(code[F_GROUP]), int(code[F_ROW])
    if letter in "KV":
        return f"${letter}_{{{group}}}$" if with_group else f"${letter}$"
    return f"${letter}_{{{group},{block}}}$" if with_group else f"${letter}_{{{block}}}$"


def items(schedule: Schedule, lane: list[Span], gap_cycles: int) -> list[tuple[str, int, int]]:
    """Join spans of one unit, in order of time, that work on the same thing with hardly a gap between them.

    Returns
    -------
    list of (str, int, int)
        The thing's `item_name`, the first cycle, and the first cycle after it.
    """
    with_group = len(set(schedule.instructions[:, F_GROUP].tolist())) > 1
    joined: list[tuple[str, int, int]] = []
    for span in lane:
        name, begin = item_name(schedule, span.row, with_group=with_group), span.begin
        if joined and joined[-1][0] == name and begin - joined[-1][2] <= gap_cycles:
            begin = joined.pop()[1]
        joined.append((name, begin, span.end))
    return joined


def pass_number(schedule: Schedule, row: int) -> int | None:
    """Return which pass of softmax an instruction does; None if it is none."""
    op, tile, flags = (int(schedule.instructions[row, field]) for field in (F_OP, F_TILE, F_FLAGS))
    if op == OP_SOFTMAX:
        return tile
    return flags // FLAG_PASS if op in (OP_TILE_SOFTMAX, OP_ONLINE) else None


def pass_steps(schedule: Schedule, row: int) -> tuple[str, ...]:
    """Return the steps of a softmax pass; of online softmax with exp on the MAC array, it only keeps the maximum."""
    op, number = int(schedule.instructions[row, F_OP]), pass_number(schedule, row) or 0
    if op == OP_ONLINE and schedule.tiling.exp_on == "mac":
        return ("max so far",)
    form = {OP_TILE_SOFTMAX: FORM_TILES, OP_ONLINE: FORM_ONLINE}.get(op, FORM_ROWS)
    passes = softmax_passes(schedule.arch, form)
    return passes[number] if number < len(passes) else ("softmax",)


def part_names(schedule: Schedule, span: Span) -> tuple[str, ...]:
    """Return which part of its item a span does: kv tiles, or the steps of a softmax pass; the longest name first.

    Empty where an instruction does all of the item.
    """
    op, step = (int(schedule.instructions[span.row, field]) for field in (F_OP, F_STEP))
    first, last = tiles_of(schedule, span.row)
    if op in (OP_SOFTMAX, OP_TILE_SOFTMAX, OP_ONLINE):
        steps = pass_steps(schedule, span.row)
        names = ", ".join(steps), ", ".join(step[:3] for step in steps)
        return names if op == OP_SOFTMAX else (f"{names[0]}, tile {first}", f"{names[1]} {first}", str(first))
    if op in _PARTS:
        name, sign = _PARTS[op]
        return f"{name}, tile {first}", f"{name} {first}", name, sign
    if op == OP_NORMALIZE:
        return "normalize", "norm", "÷"
    if op in (OP_LOAD_Q, OP_LOAD_C, OP_STORE_P, OP_STORE_O):
        return ()
    if span.state == "redone" and step > 0 and schedule.arch.preemption.lost_granularity == "matmul":
        return f"tiles up to {first}", f"≤{first}"  # all of the product so far was lost
    return (f"tiles {first}–{last}", f"{first}–{last}") if last > first else (f"tile {first}", str(first))


def unwritable(path: str | Path, error: OSError) -> ConfigError:
    """Return the error that says why a file could not be written."""
    return ConfigError([Fault(str(path), None, "", f"cannot be written: {error.strerror or error}")])
