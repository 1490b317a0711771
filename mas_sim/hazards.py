"""Does every read find the data that it expects? The search for hazards in a timeline, byte range by byte range.

Slots of different tensors may overlap in address (a pass may lay L1 out anew), so accesses are cut into elementary
ranges of addresses. In each, at the start of a read, the last write must have ended and have made the expected version,
from the same first byte on; at the start of a write, all reads and writes before it must have ended. Those two rules
find every hazard, and so every byte of a tile of K or V that a product used although softmax had overwritten it.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mas_sim.accesses import Accesses, event_ranks, list_accesses
from mas_sim.geometry import Geometry, describe_version, tensor_of
from mas_sim.overwrites import Overwrites
from mas_sim.schedule import F_OP, F_OVER, F_QUEUE, MAC, OP_SOFTMAX, T_K, T_V, UNITS, IntArray, Schedule
from mas_sim.timeline import Timeline


def describe_when(schedule: Schedule, timeline: Timeline, index: int) -> str:
    """Describe an instruction and the cycles it takes."""
    return f"{schedule.describe(index)} in cycles {timeline.start[index]}..{timeline.end[index]}"


class _Touches(NamedTuple):
    """Accesses cut into elementary ranges of addresses, which no access covers in part; sorted by range, then by start.

    Attributes
    ----------
    cell
        The elementary range; int64[touches], like all.
    access
        Row in `Accesses`.
    instruction, is_write, version, first
        As there.
    start, end
        Places of the instruction's start and end in the order of events.
    """

    cell: IntArray
    access: IntArray
    instruction: IntArray
    is_write: IntArray
    version: IntArray
    first: IntArray
    start: IntArray
    end: IntArray


def _cut(accesses: Accesses, start: IntArray, end: IntArray) -> _Touches:
    """Cut accesses at every address where any of them begins or ends."""
    borders = np.unique(np.concatenate([accesses.first, accesses.last]))
    first, last = np.searchsorted(borders, accesses.first), np.searchsorted(borders, accesses.last)
    count = last - first
    access = np.repeat(np.arange(len(first)), count)
    cell = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count - first, count)
    # An instruction that updates data in place reads it before it writes it.
    key = (cell * (2 * len(start)) + start[accesses.instruction[access]]) * 2 + accesses.is_write[access]
    order = np.argsort(key)
    access = access[order]
    instruction = accesses.instruction[access]
    return _Touches(
        cell[order], access, instruction, accesses.is_write[access], accesses.version[access], accesses.first[access],
        start[instruction], end[instruction],
    )  # fmt: skip


@dataclass(frozen=True)
class Hazards:
    """Reads and writes at the wrong time, each pair of instructions once.

    Attributes
    ----------
    rows : int64[hazards, 3]
        The instruction that comes too early or too late, the one that it collides with (-1: nobody), and the touch at
        which it does so; in the order of time.
    too_small : int64[...]
        Accesses whose data is larger than their slot.
    """

    schedule: Schedule
    timeline: Timeline
    geometry: Geometry
    accesses: Accesses
    touches: _Touches
    rows: IntArray
    too_small: IntArray

    def __len__(self) -> int:
        """Return the number of hazards."""
        return len(self.rows) + len(self.too_small)

    def describe(self, index: int) -> str:
        """Put one hazard into words."""
        if index >= len(self.rows):
            return self._describe_size(int(self.too_small[index - len(self.rows)]))
        instruction, other, touch = (int(entry) for entry in self.rows[index])
        if self.touches.is_write[touch]:
            return self._describe_write(instruction, other, touch)
        return self._describe_read(instruction, other, touch)

    def _when(self, instruction: int) -> str:
        return describe_when(self.schedule, self.timeline, instruction)

    def _version(self, touch: int) -> str:
        return describe_version(int(self.touches.version[touch]), self.schedule, self.geometry)

    def _describe_size(self, access: int) -> str:
        size = self.accesses.last[access] - self.accesses.first[access]
        who = self.schedule.describe(int(self.accesses.instruction[access]))
        what = describe_version(int(self.accesses.version[access]), self.schedule, self.geometry)
        return f"slot too small: {who} needs {self.accesses.need[access]:,} bytes for {what}, its slot has {size:,}"

    def _describe_write(self, instruction: int, other: int, touch: int) -> str:
        both = f"{self._when(instruction)} writes {self._version(touch)} while {self._when(other)}"
        at = self._in_cell(touch)
        theirs = np.flatnonzero(self.touches.instruction[at] == other) + at.start
        if (self.touches.is_write[theirs] > 0).any():
            return f"two writes at once: {both} writes the same bytes"
        if self._is_softmax(instruction) and self._is_kv(int(theirs[0])):
            return f"overwritten in use: {both} still reads {self._version(int(theirs[0]))} there"
        return f"buffer reused too early: {both} still reads what was there"

    def _is_softmax(self, instruction: int) -> bool:
        return bool(self.schedule.instructions[instruction, F_OP] == OP_SOFTMAX)

    def _is_kv(self, touch: int) -> bool:
        return tensor_of(int(self.touches.version[touch])) in (T_K, T_V)

    def _ran_early(self, instruction: int) -> bool:
        """Whether it is a victim of proactive overwrite that ran before that, by the timeline."""
        fields = self.schedule.instructions[instruction]
        return bool(fields[F_QUEUE] % UNITS == MAC and fields[F_OVER] >= 0 and not self.timeline.late[instruction])

    def _in_cell(self, touch: int) -> slice:
        cell = self.touches.cell[touch]
        first, last = np.searchsorted(self.touches.cell, [cell, cell + 1])
        return slice(int(first), int(last))

    def _describe_read(self, instruction: int, other: int, touch: int) -> str:
        """Say what went wrong: the data comes later, has been overwritten, is never there, or not loaded again."""
        at = self._in_cell(touch)
        makes = (self.touches.is_write[at] > 0) & (self.touches.version[at] == self.touches.version[touch])
        makers = np.flatnonzero(makes & (self.touches.instruction[at] != instruction)) + at.start
        who = f"{self._when(instruction)} reads {self._version(touch)}"
        if other >= 0 and self.timeline.end[other] <= self.timeline.start[instruction]:
            found = self._write_of(other, at)
            if self.touches.version[found] == self.touches.version[touch]:
                here, there = self.touches.first[touch], self.touches.first[found]
                return f"wrong data: {who} from byte {here:,} on, but {self._when(other)} wrote it from {there:,} on"
        overwritten = self.schedule.overwrites and self._is_kv(touch) and other >= 0
        overwritten = overwritten and not self._is_kv(self._write_of(other, at))
        if overwritten and self._ran_early(instruction):
            return f"overwritten byte used: {who}, but {self._when(other)} writes {self._found(other, at)} there"
        if not makers.size:
            if other < 0:
                return f"wrong data: {who}, but nothing was ever written there"
            return f"wrong data: {who}, but finds {self._found(other, at)}, written by {self._when(other)}"
        # Data may be made several times, as when a tile is loaded again: the last one ahead in program order is meant.
        made_by = self.touches.instruction[makers]
        meant = makers[np.argmax(np.where(made_by < instruction, made_by, -1 - made_by))]
        if self.touches.end[meant] < self.touches.start[touch]:
            if overwritten:
                return f"not loaded again: {who}, but finds {self._found(other, at)}, written by {self._when(other)}"
            return (
                f"buffer reused too early: {who}, but by then {self._when(other)} writes {self._found(other, at)} there"
            )
        return f"read too early: {who}, but {self._when(int(self.touches.instruction[meant]))} writes that"

    def _write_of(self, writer: int, at: slice) -> int:
        """Touch by which an instruction writes to a range."""
        chosen = (self.touches.instruction[at] == writer) & (self.touches.is_write[at] > 0)
        return int(at.start + np.flatnonzero(chosen)[0])

    def _found(self, writer: int, at: slice) -> str:
        return self._version(self._write_of(writer, at))


def find_hazards(schedule: Schedule, timeline: Timeline, geometry: Geometry, overwrites: Overwrites) -> Hazards:
    """Find every read that does not see the version it expects, and every write that disturbs a read or a write.

    Parameters
    ----------
    schedule, timeline
        What ran, and when.
    geometry
        Of the schedule; its instructions must have passed `accesses.malformed`.
    overwrites
        What became of the victims of proactive overwrite.
    """
    accesses = list_accesses(schedule, geometry, overwrites)
    touches = _cut(accesses, *event_ranks(timeline))
    n = len(touches.cell)
    place = np.arange(n)
    opens = np.ones(n, np.bool_)
    opens[1:] = touches.cell[1:] != touches.cell[:-1]
    cell_first = np.maximum.accumulate(np.where(opens, place, 0))

    writes = touches.is_write > 0
    last_write = _before(np.maximum.accumulate(np.where(writes, place, -1)))
    written = last_write >= cell_first
    in_flight = written & (touches.end[last_write] > touches.start)
    other_data = (touches.version[last_write] != touches.version) | (touches.first[last_write] != touches.first)
    stale = ~writes & (~written | in_flight | other_data)
    writer = np.where(written, touches.instruction[last_write], -1)

    # The two halves of an update, an instruction that reads and writes the same bytes, stand behind each other.
    halves = np.flatnonzero(~opens[1:] & writes[1:] & (touches.instruction[1:] == touches.instruction[:-1]))
    stale_update = np.zeros(n, np.bool_)
    stale_update[halves + 1] = stale[halves]

    # The latest end of the reads so far, restarted in each cell. Stale reads are left out, for it is they that are at
    # fault and not a write that meets them; and so are the read halves of updates, for a write that meets one meets the
    # write half as well.
    counts = ~writes & ~stale
    counts[halves] = False
    events = 2 * len(schedule)
    base = touches.cell * (events + 1)
    read_end = base + np.where(counts, touches.end + 1, 0)
    last_read = np.maximum(_before(np.maximum.accumulate(read_end)) - base - 1, -1)
    instruction_of_end = np.zeros(events + 1, np.int64)
    instruction_of_end[touches.end] = touches.instruction

    found = [
        (place[stale], writer),
        (place[writes & (last_read > touches.start)], instruction_of_end[last_read]),
        (place[writes & in_flight & ~stale_update[last_write]], writer),
    ]
    rows = np.concatenate([np.stack([touches.instruction[at], other[at], at], axis=1) for at, other in found])
    rows = rows[np.unique(rows[:, :2], axis=0, return_index=True)[1]]
    rows = rows[np.argsort(touches.start[rows[:, 2]], kind="stable")]
    too_small = np.flatnonzero(accesses.need > accesses.last - accesses.first)
    return Hazards(schedule, timeline, geometry, accesses, touches, rows, too_small)


def _before(running: IntArray) -> IntArray:
    """Shift a running maximum by one, so that each entry sees those before it only."""
    return np.concatenate([[-1], running[:-1]])
