"""A run in the trace event format, which Perfetto (https://ui.perfetto.dev) and chrome://tracing show.

A core is a process, a unit a thread of it. The DRAM channel is one more process, which shows every transfer once more,
whichever core it is for, and how fast it runs. Instructions are complete events ("X"), dependencies between units are
flow events ("s" to "f"), bytes over time are counter events ("C"), names are metadata ("M").

Sources of the format's rules: "Trace Event Format" by Google (docs.google.com/document/d/
1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU), and "Visualizing external trace formats with Perfetto"
(perfetto.dev/docs/getting-started/other-formats). These of them shape the code:

- Times are microseconds and may have fractions. Perfetto cuts them off to whole nanoseconds, begin and duration apart,
  and slices of one thread must nest or be apart. So durations are such that no two slices overlap, neither as they
  stand nor so cut (`Clock`). The exact cycles are in `args`.
- A flow event belongs to the slice that its thread shows at that time; of events at the same time the order in the file
  decides. So flow events stand right behind their slice, in program order.
- The viewer hides process 0 and thread 0, and names threads by their number alone. So no number is 0, and no two
  threads share one.
"""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from mas_sim._trace_facts import Facts
from mas_sim.arch import Arch
from mas_sim.errors import MasSimError
from mas_sim.occupancy import dram_bandwidth, l1_occupancies
from mas_sim.schedule import (
    C_DRAM_READ,
    C_DRAM_WRITE,
    F_DEP0,
    F_KIND,
    F_OP,
    F_QUEUE,
    F_RELOAD,
    LOAD,
    MAX_DEPS,
    OP_NAMES,
    UNIT_NAMES,
    UNITS,
    IntArray,
    Schedule,
)
from mas_sim.timeline import Timeline
from mas_sim.trace import Span, spans

Event = dict[str, Any]
"""One event, as it stands in the file."""

FLOW_NAMES = ("data", "buffer", "reload")
"""Why an instruction waits for another: for what it makes, for its buffer, for tiles that it loads again."""


class Clock:
    """Turns cycles into microseconds."""

    def __init__(self, arch: Arch) -> None:
        self._cycles_per_us = arch.clock_ghz * 1e3

    def at(self, cycle: int) -> float:
        """Return when a cycle begins, in microseconds."""
        return cycle / self._cycles_per_us

    def interval(self, begin: int, end: int) -> tuple[float, float]:
        """Return begin and duration of cycles `[begin, end)`, in microseconds.

        Rounded as floats are, and cut off to whole nanoseconds as Perfetto does, `begin + duration` is never behind
        `at(end)`, so that a slice which begins there does not overlap. It falls short of the true duration by less
        than the rounding of `at(end)`.
        """
        start, stop = self.at(begin), self.at(end)
        duration = stop - start
        most_ns = int(stop * 1000) - int(start * 1000)
        if int(duration * 1000) > most_ns:
            duration = (most_ns + 1) / 1000
        while duration > 0 and (int(duration * 1000) > most_ns or start + duration > stop):
            duration = math.nextafter(duration, 0)
        return start, duration


class Tracks:
    """Numbers of processes and threads; none is 0, and no two threads have the same, nor that of a process."""

    def __init__(self, arch: Arch) -> None:
        self._first_tid = arch.cores + 3
        self.dram, self.l1 = arch.cores + 1, arch.cores + 2
        self.channel = self._first_tid + arch.cores * UNITS

    def pid(self, core: int) -> int:
        """Return the process of a core."""
        return core + 1

    def tid(self, core: int, unit: int) -> int:
        """Return the thread of a unit."""
        return self._first_tid + core * UNITS + unit


def trace_events(
    schedule: Schedule,
    timeline: Timeline,
    *,
    core: int | None = None,
    first_cycle: int = 0,
    last_cycle: int | None = None,
    flows: bool = True,
) -> Iterator[Event]:
    """Return a run in the trace event format, one event after the other.

    Parameters
    ----------
    core
        Show the units and the L1 of this core only (and the transfers of it, but the bandwidth of all).
    first_cycle, last_cycle
        Show instructions that touch cycles `[first_cycle, last_cycle)`, in full, and counters between these; to the end
        of the run if `last_cycle` is None.
    flows
        Whether to show the dependencies between units, of those instructions that are shown.

    Returns
    -------
    iterator of dict
        Metadata; slices in program order, each with the flows that end and start there; the channel's slices in the
        order of time; counters. A product that was stopped has an extra slice "stopped" for the run that was lost.

    Raises
    ------
    MasSimError
        If there is no such core, or no such cycles.
    ScheduleError
        As `l1_occupancy`.
    """
    cores, cycles = schedule.arch.cores, timeline.cycles
    if core is not None and not 0 <= core < cores:
        raise MasSimError(f"core {core}: the machine {schedule.arch.name} has cores 0 to {cores - 1}")
    last = cycles if last_cycle is None else last_cycle
    if first_cycle < 0 or first_cycle >= max(1, cycles) or (last <= first_cycle and cycles > 0):
        raise MasSimError(f"cycles {first_cycle:,} to {last:,}: nothing is there; the run has cycles 0 to {cycles:,}")
    window = (first_cycle, min(last, cycles))
    shown = spans(schedule, timeline, first_cycle=window[0], last_cycle=window[1], core=core)
    return itertools.chain(
        _metadata(schedule, core),
        _slices(schedule, timeline, shown, flows),
        _transfers(schedule, timeline, shown),
        _counters(schedule, timeline, core, window),
    )


def _shared_by_several(schedule: Schedule, core: int | None) -> bool:
    """Whether there is an L1 of several cores to be shown."""
    return core is None and schedule.arch.l1.shared and schedule.active_cores > 1


def _cores_shown(schedule: Schedule, core: int | None) -> list[int]:
    """List the cores that do anything, or the one that was asked for."""
    return sorted(set((schedule.instructions[:, F_QUEUE] // UNITS).tolist())) if core is None else [core]


def _metadata(schedule: Schedule, core: int | None) -> Iterator[Event]:
    """Name every process and thread, and keep them in the order of their numbers."""
    tracks = Tracks(schedule.arch)
    named: list[tuple[int, str, list[tuple[int, str]]]] = [
        (tracks.pid(at), f"core {at}", [(tracks.tid(at, unit), name) for unit, name in enumerate(UNIT_NAMES)])
        for at in _cores_shown(schedule, core)
    ]
    named.append((tracks.dram, "DRAM", [(tracks.channel, "channel")]))
    if _shared_by_several(schedule, core):
        named.append((tracks.l1, "L1 of all cores", []))
    for pid, process, threads in named:
        for tid, kind, name in ((pid, "process", process), *((tid, "thread", name) for tid, name in threads)):
            event = {"ph": "M", "pid": pid, "tid": tid}
            yield {"name": f"{kind}_name", **event, "args": {"name": name}}
            yield {"name": f"{kind}_sort_index", **event, "args": {"sort_index": tid}}


# --- slices and flows ---------------------------------------------------------------------------------------------


def _slices(schedule: Schedule, timeline: Timeline, shown: list[Span], flows: bool) -> Iterator[Event]:
    """Show every span on its unit, with the flows that end there and those that start there."""
    clock, tracks, facts = Clock(schedule.arch), Tracks(schedule.arch), Facts(schedule, timeline)
    arrows = _Flows(schedule, timeline, shown) if flows else None
    for span in shown:
        start, duration = clock.interval(span.begin, span.end)
        track = {"pid": tracks.pid(span.core), "tid": tracks.tid(span.core, span.unit)}
        name = "stopped" if span.state == "stopped" else OP_NAMES[schedule.instructions[span.row, F_OP]]
        event = {"name": name, "cat": span.state, "ph": "X", **track, "ts": start, "dur": duration}
        yield {**event, "args": facts.of(span)}
        if arrows is not None:
            for number, why in arrows.into(span):
                flow = {"name": FLOW_NAMES[why], "cat": "dependency", "ph": "f", "bp": "e", "id": number}
                yield {**flow, **track, "ts": start}
            for number, why in arrows.out_of(span):
                flow = {"name": FLOW_NAMES[why], "cat": "dependency", "ph": "s", "id": number}
                yield {**flow, **track, "ts": start + duration / 2}


def _transfers(schedule: Schedule, timeline: Timeline, shown: list[Span]) -> Iterator[Event]:
    """Show transfers once more, on the channel."""
    clock, tracks = Clock(schedule.arch), Tracks(schedule.arch)
    for span in sorted((span for span in shown if span.unit >= LOAD), key=lambda span: span.begin):
        code = schedule.instructions[span.row]
        read, written = schedule.costs[code[F_KIND], [C_DRAM_READ, C_DRAM_WRITE]].tolist()
        start, duration = clock.interval(span.begin, span.end)
        event = {"name": OP_NAMES[code[F_OP]], "cat": span.state, "ph": "X", "pid": tracks.dram, "tid": tracks.channel}
        args = {"instruction": span.row, "core": span.core, "start_cycle": span.begin, "end_cycle": span.end}
        args |= {"cycles": span.end - span.begin, "arrival_cycle": int(timeline.end[span.row])}
        yield {**event, "ts": start, "dur": duration, "args": {**args, "bytes": read + written}}


def dependencies(schedule: Schedule, timeline: Timeline) -> tuple[IntArray, IntArray, IntArray]:
    """List the dependencies between instructions of different queues, each pair of instructions once.

    Returns
    -------
    (int64[n], int64[n], int64[n])
        Who is waited for, who waits, and why (place in `FLOW_NAMES`); rising by who waits. A product that ran behind
        the overwrite of its tiles also waits for the load that brought them back.
    """
    code = schedule.instructions
    waiting, column = np.nonzero(code[:, F_DEP0 : F_DEP0 + MAX_DEPS] >= 0)
    packed = code[waiting, F_DEP0 + column].astype(np.int64)
    late = np.flatnonzero(timeline.late)
    other = np.concatenate([packed >> 1, code[late, F_RELOAD]])
    waiting, why = np.concatenate([waiting, late]), np.concatenate([packed & 1, np.full(len(late), 2)])
    across = code[waiting, F_QUEUE] != code[other, F_QUEUE]
    # Of a pair that depends twice the first reason counts: the data.
    order = np.lexsort((why, other, waiting))
    order = order[across[order]]
    waiting, other, why = waiting[order], other[order], why[order]
    new = np.ones(len(order), np.bool_)
    new[1:] = (np.diff(waiting) != 0) | (np.diff(other) != 0)
    return other[new], waiting[new], why[new]


class _Flows:
    """Dependencies between spans that are shown. A flow's number is its place among all of the schedule, from 1 on."""

    def __init__(self, schedule: Schedule, timeline: Timeline, shown: list[Span]) -> None:
        source, target, why = dependencies(schedule, timeline)
        # What waits is a product's first run, except for tiles that are loaded again; what is waited for is its last.
        begins, ends = np.zeros(len(schedule), np.bool_), np.zeros(len(schedule), np.bool_)
        begins[[span.row for span in shown if span.state != "redone"]] = True
        ends[[span.row for span in shown if span.state != "stopped"]] = True
        kept = ends[source] & np.where(why == FLOW_NAMES.index("reload"), ends[target], begins[target])
        number = np.flatnonzero(kept)
        self._into = _by_row(target[kept], number + 1, why[kept], len(schedule))
        self._out = _by_row(source[kept], number + 1, why[kept], len(schedule))

    def into(self, span: Span) -> list[tuple[int, int]]:
        """List number and reason of the flows that end in a span."""
        found = _entries(self._into, span.row)
        if span.state not in ("stopped", "redone"):
            return found
        return [flow for flow in found if (FLOW_NAMES[flow[1]] == "reload") == (span.state == "redone")]

    def out_of(self, span: Span) -> list[tuple[int, int]]:
        """List number and reason of the flows that start in a span."""
        return [] if span.state == "stopped" else _entries(self._out, span.row)


_Table = tuple[list[int], list[tuple[int, int]]]
"""Where each row's entries begin (and the last one's end), and the entries."""


def _by_row(row: IntArray, first: IntArray, second: IntArray, rows: int) -> _Table:
    """Sort pairs of numbers by row."""
    order = np.argsort(row, kind="stable")
    begins: npt.NDArray[np.intp] = np.searchsorted(row[order], np.arange(rows + 1))
    return begins.tolist(), list(zip(first[order].tolist(), second[order].tolist(), strict=True))


def _entries(table: _Table, row: int) -> list[tuple[int, int]]:
    begins, entries = table
    return entries[begins[row] : begins[row + 1]]


# --- counters -----------------------------------------------------------------------------------------------------


def _counters(schedule: Schedule, timeline: Timeline, core: int | None, window: tuple[int, int]) -> Iterator[Event]:
    """Show bytes over time: live in L1, and moved by DRAM."""
    tracks = Tracks(schedule.arch)
    levels: list[tuple[int, int | None]] = [(tracks.pid(at), at) for at in _cores_shown(schedule, core)]
    if _shared_by_several(schedule, core):
        levels.append((tracks.l1, None))
    clock = Clock(schedule.arch)
    occupancies = l1_occupancies(schedule, timeline, [whose for _, whose in levels])
    for (pid, _), steps in zip(levels, occupancies, strict=True):
        yield from _counter(clock, pid, "L1 occupancy", "bytes", steps.cycles, steps.bytes, window)
    rate = dram_bandwidth(schedule, timeline)
    per_cycle = rate.bytes_per_cycle
    gb_per_s = per_cycle * schedule.arch.clock_ghz  # a byte in a nanosecond is 1 GB/s
    yield from _counter(clock, tracks.dram, "DRAM bandwidth", "GB/s", rate.cycles, gb_per_s, window)
    yield from _counter(clock, tracks.dram, "DRAM bytes per cycle", "bytes", rate.cycles, per_cycle, window)


def _counter(
    clock: Clock,
    pid: int,
    name: str,
    unit: str,
    cycles: IntArray,
    values: IntArray | npt.NDArray[np.float64],
    window: tuple[int, int],
) -> Iterator[Event]:
    """Show a step function where it changes, and what it is at the window's first cycle."""
    changes = np.ones(len(values), np.bool_)
    changes[1:] = values[1:] != values[:-1]
    cycles, values = cycles[changes], values[changes]
    first = int(np.searchsorted(cycles, window[0], side="right")) - 1
    last = int(np.searchsorted(cycles, window[1], side="right"))
    for cycle, value in zip(cycles[first:last].tolist(), values[first:last].tolist(), strict=True):
        at = clock.at(max(cycle, window[0]))
        yield {"name": name, "ph": "C", "pid": pid, "tid": pid, "ts": at, "args": {unit: value}}
