"""How full L1 is and how busy DRAM is, cycle by cycle: step functions of time, for drawings and traces.

A byte of L1 is *live* from the start of the instruction that writes it anew until the end of the last one that uses
what it holds: updates in place (a sum that grows, softmax that writes P over C) go on with the same life. Bytes are
counted, not slots: a double buffer counts while it holds something, a ragged tile as small as it is, and P that
overwrites tiles of K or V takes their bytes over. So a slot that waits for its next tile is room that L1 has to spare.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mas_sim.accesses import Accesses, list_accesses
from mas_sim.errors import MasSimError, ScheduleError
from mas_sim.geometry import Geometry, make_geometry
from mas_sim.malformed import malformed
from mas_sim.overwrites import Overwrites, broken_timeline, read_overwrites
from mas_sim.schedule import (
    C_CYCLES,
    C_DRAM_READ,
    C_DRAM_WRITE,
    F_ALT,
    F_KIND,
    F_OVER,
    IntArray,
    Schedule,
)
from mas_sim.timeline import Timeline


@dataclass(frozen=True)
class Steps:
    """Bytes over time, as a step function.

    Attributes
    ----------
    cycles : int64[n]
        Where the number changes; strictly rising, the first is 0.
    bytes : int64[n]
        Bytes from `cycles[i]` up to `cycles[i + 1]`. The last is 0, and holds from there on.
    """

    cycles: IntArray
    bytes: IntArray

    @property
    def peak_bytes(self) -> int:
        """The largest number of bytes."""
        return int(self.bytes.max())


@dataclass(frozen=True)
class Rate:
    """Bytes moved over time, in intervals of constant rate.

    Attributes
    ----------
    cycles : int64[n]
        Where intervals begin; strictly rising, the first is 0.
    bytes : int64[n]
        Bytes moved from `cycles[i]` up to `cycles[i + 1]`. The last is 0: nothing moves from there on.
    """

    cycles: IntArray
    bytes: IntArray

    @property
    def bytes_per_cycle(self) -> npt.NDArray[np.float64]:
        """Bytes per cycle in each interval; float64[n]."""
        rate = np.zeros(len(self.cycles))
        rate[:-1] = self.bytes[:-1] / np.diff(self.cycles)
        return rate

    @property
    def total_bytes(self) -> int:
        """All bytes: the integral."""
        return int(self.bytes.sum())


class _Uses(NamedTuple):
    """Accesses to L1 with the cycles that they take; int64[accesses] each.

    Attributes
    ----------
    is_write, first, last
        Of the access, as in `Accesses`; but `last` is the end of the data, not of the slot.
    instruction
        Who makes it: an update is a read and a write of one instruction. Runs that were stopped count apart.
    start, end
        First cycle of the instruction, and the first one after it.
    """

    is_write: IntArray
    first: IntArray
    last: IntArray
    instruction: IntArray
    start: IntArray
    end: IntArray


def l1_occupancy(schedule: Schedule, timeline: Timeline, core: int | None = None) -> Steps:
    """Return the bytes of L1 that hold live data, over the time of a run.

    A transfer uses its bytes from when it gets the channel until its data have arrived; a product that proactive
    overwrite stopped uses its operands up to the stop. Bytes are those of the data, so that a slot that is larger than
    its (ragged) tile counts less than itself. All cores together never exceed `core_l1_bytes * active_cores`, which is
    `l1_peak_bytes` where L1 is shared; one core never exceeds `core_l1_bytes`.

    Parameters
    ----------
    schedule, timeline
        What ran, and when.
    core
        The core whose share is counted; all of them together if it is None.

    Raises
    ------
    ScheduleError
        If an instruction names a tile, a step or a slot that does not exist, or the timeline is not of this schedule.
    MasSimError
        If there is no such core.
    """
    return l1_occupancies(schedule, timeline, [core])[0]


def l1_occupancies(schedule: Schedule, timeline: Timeline, cores: Sequence[int | None]) -> list[Steps]:
    """Return `l1_occupancy` for each of several cores, which looks at the schedule only once.

    Raises
    ------
    ScheduleError, MasSimError
        As there.
    """
    count, size = schedule.arch.cores, schedule.core_l1_bytes
    for core in cores:
        if core is not None and not 0 <= core < count:
            raise MasSimError(f"core {core}: the machine {schedule.arch.name} has cores 0 to {count - 1}")
    if not len(schedule.slots):  # written by hand, without data
        return [Steps(np.zeros(1, np.int64), np.zeros(1, np.int64)) for _ in cores]
    uses = _uses_of(schedule, timeline)
    found = []
    for core in cores:
        first, last = (0, count * size) if core is None else (core * size, (core + 1) * size)
        mine = (uses.first >= first) & (uses.first < last) & (uses.last > uses.first)
        found.append(_live(_Uses(*(column[mine] for column in uses))))
    return found


def _uses_of(schedule: Schedule, timeline: Timeline) -> _Uses:
    """List who uses which bytes when, runs that were stopped included."""
    schedule.check()
    if not len(timeline.start) == len(timeline.end) == len(schedule):
        raise ScheduleError(f"malformed timeline: {len(timeline.start)} entries for {len(schedule)} instructions")
    geometry = make_geometry(schedule)
    broken = malformed(schedule, geometry) or [broken_timeline(schedule, timeline)]
    if broken[0]:
        raise ScheduleError(broken[0])
    accesses = list_accesses(schedule, geometry, read_overwrites(schedule, timeline))
    uses = [_timed(accesses, accesses.instruction, timeline.start, timeline.end)]
    stopped = np.flatnonzero(timeline.lost_cycles > 0)
    if stopped.size:
        lost = _lost_runs(schedule, geometry, stopped)
        stop = timeline.start[schedule.instructions[stopped, F_OVER]] + schedule.arch.preemption.drain_cycles
        uses.append(_timed(lost, lost.instruction + len(schedule), timeline.redo[stopped, 1], stop))
    return _Uses(*(np.concatenate(column) for column in zip(*uses, strict=True)))


def _timed(accesses: Accesses, who: IntArray, start: IntArray, end: IntArray) -> _Uses:
    """Give accesses their cycles; `start` and `end` are by instruction, and `who` is a name for it."""
    size = np.minimum(accesses.need, accesses.last - accesses.first)  # 0 in DRAM
    row = accesses.instruction
    return _Uses(accesses.is_write, accesses.first, accesses.first + size, who, start[row], end[row])


def _lost_runs(schedule: Schedule, geometry: Geometry, stopped: IntArray) -> Accesses:
    """List what the stopped runs of products used: their tiles of K or V as they were before the overwrite."""
    code = schedule.instructions[stopped]
    nothing = np.zeros(0, np.int64)
    as_they_were = Overwrites(nothing, code[:, F_ALT].astype(np.int64), np.zeros((0, 2), np.int64))
    return list_accesses(replace(schedule, instructions=code), geometry, as_they_were)


def _live(uses: _Uses) -> Steps:
    """Add up the bytes that are live.

    Addresses are cut wherever a use begins or ends, so that no use covers a range in part. In each range, in the order
    of time, a write by an instruction that does not read there begins a new life, which ends with the last use of it,
    or at the latest where the next one begins.
    """
    borders = np.unique(np.concatenate([uses.first, uses.last]))
    low, high = np.searchsorted(borders, uses.first), np.searchsorted(borders, uses.last)
    count = high - low
    use = np.repeat(np.arange(len(low)), count)
    cell = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count - low, count)
    # Reads before writes, so that the two halves of an update stand behind each other.
    order = np.lexsort((uses.is_write[use], uses.instruction[use], uses.start[use], cell))
    cell, use = cell[order], use[order]
    if not len(cell):
        return Steps(np.zeros(1, np.int64), np.zeros(1, np.int64))
    who, start, end = uses.instruction[use], uses.start[use], uses.end[use]
    begins = uses.is_write[use] > 0
    begins[1:] &= (who[1:] != who[:-1]) | (cell[1:] != cell[:-1])
    begins[0] = True
    begins[1:] |= cell[1:] != cell[:-1]
    at = np.flatnonzero(begins)
    cell, start, end = cell[at], start[at], np.maximum.reduceat(end, at)
    follows = cell[1:] == cell[:-1]
    end[:-1] = np.where(follows, np.minimum(end[:-1], start[1:]), end[:-1])
    size = np.diff(borders)[cell]
    return Steps(*_summed(np.concatenate([start, end]), np.concatenate([size, -size])))


def _summed(cycles: IntArray, changes: IntArray) -> tuple[IntArray, IntArray]:
    """Add up changes in the order of time; keep the cycles at which the sum changes, and cycle 0."""
    at, which = np.unique(np.concatenate([[0], cycles]), return_inverse=True)
    change = np.zeros(len(at), np.int64)
    np.add.at(change, which[1:], changes)
    kept = change != 0
    kept[0] = True
    return at[kept], np.cumsum(change)[kept]


def dram_bandwidth(schedule: Schedule, timeline: Timeline) -> Rate:
    """Return the DRAM bytes moved, over the time of a run.

    A transfer's bytes are spread evenly over the cycles in which it holds the channel, set-up included. Where the path
    between MAC and VEC leads through DRAM, the bytes of products and of vector work are spread over the cycles that the
    instruction takes, and those of a run that was stopped over the cycles up to the stop.

    The total is exact, and equals what `meter` counts: bytes are whole numbers. Where intervals of several instructions
    overlap, an instruction of b bytes and d cycles has moved `b * t // d` of them t cycles after its start.
    """
    code = schedule.instructions
    per_kind = schedule.costs[:, C_DRAM_READ] + schedule.costs[:, C_DRAM_WRITE]
    moved = per_kind[code[:, F_KIND]]
    again = moved.copy()
    parts = []
    stopped = np.flatnonzero(timeline.lost_cycles > 0)
    if stopped.size:
        redone = read_overwrites(schedule, timeline).redone
        np.add.at(again, redone[:, 0], moved[redone[:, 1]])
        begin, stop = timeline.redo[stopped, 1], timeline.start[code[stopped, F_OVER]]
        kinds = schedule.costs[code[stopped, F_KIND]]
        ran, whole = (stop - begin)[:, None], np.maximum(1, kinds[:, C_CYCLES])[:, None]
        lost = (kinds[:, [C_DRAM_READ, C_DRAM_WRITE]] * ran // whole).sum(axis=1)  # as `meter` rounds
        parts.append((begin, stop, lost))
    parts.append((timeline.start, timeline.channel_end, again))
    begin, end, moved = (np.concatenate(column) for column in zip(*parts, strict=True))
    some = moved > 0
    return _spread(begin[some], np.maximum(end, begin + 1)[some], moved[some])


def _spread(begin: IntArray, end: IntArray, moved: IntArray) -> Rate:
    """Spread whole bytes over cycles; int64[intervals] each."""
    cycles = np.unique(np.concatenate([[0], begin, end]))
    first, last = np.searchsorted(cycles, begin), np.searchsorted(cycles, end)
    count = last - first
    which = np.repeat(np.arange(len(begin)), count)
    cell = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count - first, count)
    size, since, length = moved[which], begin[which], (end - begin)[which]
    total = np.zeros(len(cycles), np.int64)
    after, before = (size * (cycles[at] - since) // length for at in (cell + 1, cell))
    np.add.at(total, cell, after - before)
    return Rate(cycles, total)
