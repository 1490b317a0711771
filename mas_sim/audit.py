"""Is a schedule legal? The audit proves it from the timeline, whatever dependencies the schedule declares.

It asks what a machine without interlocks would ask: whether each unit does one thing at a time, whether the buffers fit
L1, whether every read finds the very version of the data that it expects, and whether the whole output comes out. So
it judges one run: a schedule whose dependencies are incomplete fails as soon as that shows in its timeline.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mas_sim.completeness import check_completeness
from mas_sim.errors import ScheduleError
from mas_sim.geometry import make_geometry
from mas_sim.hazards import describe_when, find_hazards
from mas_sim.malformed import malformed
from mas_sim.overwrites import begin_of, broken_timeline, mistimed, read_overwrites, wrong_links
from mas_sim.schedule import (
    F_ALT,
    F_DEP0,
    F_DST,
    F_QUEUE,
    F_SRC0,
    F_SRC1,
    LOAD,
    MAX_DEPS,
    SLOT_BYTES,
    SLOT_OFFSET,
    UNIT_NAMES,
    UNITS,
    IntArray,
    Schedule,
)
from mas_sim.timeline import Timeline

MAX_DESCRIBED = 20
"""Faults that are described; the others are counted."""


@dataclass(frozen=True)
class AuditResult:
    """What an audit found.

    Attributes
    ----------
    faults
        One message each, at most `MAX_DESCRIBED`, and then how many more there are. Empty if the schedule is legal.
    """

    faults: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether the schedule is legal."""
        return not self.faults

    def summary(self) -> str:
        """Return `ok`, or the faults, one a line."""
        return "\n".join(self.faults) or "ok"


class _Faults:
    """Messages as they are found; a broken schedule can have thousands, so those beyond `MAX_DESCRIBED` are counted."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._untold = 0

    def add(self, found: IntArray, describe: Callable[[int], str]) -> None:
        """Add one fault for each entry of `found`; `describe` puts it into words."""
        room = MAX_DESCRIBED - len(self._texts)
        self._texts += [describe(int(entry)) for entry in found[:room]]
        self._untold += max(0, len(found) - room)

    def add_texts(self, texts: list[str]) -> None:
        """Add faults that are in words already."""
        self.add(np.arange(len(texts)), texts.__getitem__)

    def result(self) -> AuditResult:
        """Return all faults."""
        more = (f"... and {self._untold:,} more faults",) if self._untold else ()
        return AuditResult((*self._texts, *more))


def audit(schedule: Schedule, timeline: Timeline) -> AuditResult:
    """Prove from its timeline that a schedule is legal, or say why it is not.

    Parameters
    ----------
    schedule
        Any schedule, also one that was built although it does not fit (`allow_overfull`).
    timeline
        When its instructions ran: from `simulate`, or from anywhere else.

    Returns
    -------
    AuditResult
        Faults, each of which starts with its kind: `two things at once`, `out of order`, `L1 overfull`, `slot too
        small`, `dependency not respected`, `read too early`, `buffer reused too early`, `wrong data`, `two writes at
        once`, `wrong tile`, `wrong flags`, `wrong list`, `incomplete`, `repeated`, `mask missing`, `mask repeated`,
        `stored ... times`, `normalized ... times`, `malformed ...`. And of proactive overwrite: `overwritten byte
        used`, `overwritten in use`, `not loaded again`, `window not awaited`, `stopped`, `lost cycles`, `lost work not
        done again`, `wrong slot`, `wrong window`, `wrong victims`.
    """
    faults = _Faults()
    try:
        schedule.check()
    except ScheduleError as error:
        return AuditResult((f"malformed schedule: {error}",))
    if not len(timeline.start) == len(timeline.end) == len(timeline.channel_end) == len(schedule):
        return AuditResult((f"malformed timeline: {len(timeline.start)} entries for {len(schedule)} instructions",))
    untold = broken_timeline(schedule, timeline)
    if untold:
        return AuditResult((untold,))
    begin = begin_of(timeline)
    _check_units(schedule, timeline, begin, faults)
    _check_capacity(schedule, faults)
    _check_dependencies(schedule, timeline, begin, faults)
    geometry = make_geometry(schedule)
    broken = malformed(schedule, geometry)
    faults.add_texts(broken)
    if not broken:
        overwrites = read_overwrites(schedule, timeline)
        faults.add_texts(wrong_links(schedule) + mistimed(schedule, timeline, overwrites))
        hazards = find_hazards(schedule, timeline, geometry, overwrites)
        faults.add(np.arange(len(hazards)), hazards.describe)
        check_completeness(schedule, geometry, faults)
    return faults.result()


def _check_units(schedule: Schedule, timeline: Timeline, begin: IntArray, faults: _Faults) -> None:
    """Look for queues that do two things at once, or in another order than written, and for overlapping transfers.

    `begin` is when each instruction first kept its unit busy. A product that was stopped keeps it until it has run
    again, for what is behind it in the queue has to wait.
    """
    start, end, is_dma = begin, timeline.end, schedule.unit_of >= LOAD
    finish = np.where(is_dma, timeline.channel_end, end)
    backwards = np.flatnonzero((finish < start) | (end < finish) | (start < 0))
    faults.add(backwards, lambda i: f"malformed timeline: {describe_when(schedule, timeline, i)} ends before it starts")
    queue = schedule.instructions[:, F_QUEUE]
    order = np.argsort(queue, kind="stable")
    before, after = order[:-1], order[1:]
    clash = np.flatnonzero((queue[before] == queue[after]) & (start[after] < finish[before]))

    def describe(at: int) -> str:
        first, second = int(before[at]), int(after[at])
        core, unit = divmod(int(queue[first]), UNITS)
        both = f"{describe_when(schedule, timeline, first)} and {describe_when(schedule, timeline, second)}"
        if finish[second] <= start[first]:
            return f"out of order: core {core} {UNIT_NAMES[unit]} runs {both} the wrong way round"
        return f"two things at once: core {core} {UNIT_NAMES[unit]} runs {both}"

    faults.add(clash, describe)
    transfers = np.flatnonzero(is_dma)
    transfers = transfers[np.argsort(start[transfers], kind="stable")]
    overlap = np.flatnonzero(start[transfers[1:]] < finish[transfers[:-1]])

    def describe_overlap(at: int) -> str:
        first, second = (describe_when(schedule, timeline, int(i)) for i in transfers[at : at + 2])
        return f"two things at once: the DRAM channel serves {first} and {second}"

    faults.add(overlap, describe_overlap)


def _check_capacity(schedule: Schedule, faults: _Faults) -> None:
    """Compare the span of the slots that instructions name with the capacity of L1."""
    named = np.unique(schedule.instructions[:, [F_DST, F_SRC0, F_SRC1, F_ALT]])
    named = named[(named >= 0) & (named < len(schedule.slots) * schedule.arch.cores)]
    core, slot = np.divmod(named, len(schedule.slots))
    spans = np.zeros(schedule.arch.cores, np.int64)
    np.maximum.at(spans, core, schedule.slots[slot, SLOT_OFFSET] + schedule.slots[slot, SLOT_BYTES])
    shared, capacity = schedule.arch.l1.shared, schedule.arch.l1.capacity_bytes
    used = np.array([spans.sum()]) if shared else spans
    faults.add(
        np.flatnonzero(used > capacity),
        lambda at: (
            f"L1 overfull by {used[at] - capacity:,} bytes: "
            f"{'the slots of all cores' if shared else f'the slots of core {at}'} need {used[at]:,} of {capacity:,}"
        ),
    )


def _check_dependencies(schedule: Schedule, timeline: Timeline, begin: IntArray, faults: _Faults) -> None:
    """Look for instructions that start before a declared dependency has ended, synchronisation included."""
    deps = schedule.instructions[:, F_DEP0 : F_DEP0 + MAX_DEPS]
    waiting, column = np.nonzero(deps >= 0)
    other = deps[waiting, column] >> 1
    queue = schedule.instructions[:, F_QUEUE]
    sync = np.where(queue[waiting] != queue[other], schedule.arch.sync_cycles, 0)
    early = np.flatnonzero(begin[waiting] < timeline.end[other] + sync)
    faults.add(
        early,
        lambda at: (
            f"dependency not respected: {describe_when(schedule, timeline, int(waiting[at]))} must wait for "
            f"{describe_when(schedule, timeline, int(other[at]))}, and {sync[at]} cycles to synchronise"
        ),
    )
