"""When each unit stood still, and what it waited for: the stall cycles of a timeline, one by one.

The kernel only adds up how long each queue waited for each cause. From the times of a run and the dependencies of its
schedule the single waits can be told again, without simulating: this module does, and tests hold their sums equal to
`Timeline.stall_cycles`, cycle for cycle.
"""

from dataclasses import dataclass

import numpy as np

from mas_sim.schedule import F_DEP0, F_OVER, F_QUEUE, LOAD, MAC, MAX_DEPS, UNITS, VEC, IntArray, Schedule
from mas_sim.timeline import CAUSE_NAMES, Timeline

_MAC, _LOAD, _CHANNEL, _BUFFER, _SYNC = (CAUSE_NAMES.index(n) for n in ("mac", "load", "channel", "buffer", "sync"))


@dataclass(frozen=True)
class Waits:
    """Times in which a queue stood still; none is empty, and those of one queue do not overlap.

    Attributes
    ----------
    row : int64[n]
        The instruction that waited. Rising; an instruction may wait for several causes, one after the other.
    queue : int64[n]
        Its queue, `core * UNITS + unit`.
    begin, end : int64[n]
        First cycle, and the first cycle after it.
    cause : int64[n]
        Place in `CAUSE_NAMES`.
    """

    row: IntArray
    queue: IntArray
    begin: IntArray
    end: IntArray
    cause: IntArray

    def __len__(self) -> int:
        return len(self.row)

    def within(self, first_cycle: int, last_cycle: int) -> "Waits":
        """Return those that touch cycles `[first_cycle, last_cycle)`, in full."""
        seen = (self.begin < last_cycle) & (self.end > first_cycle)
        return Waits(self.row[seen], self.queue[seen], self.begin[seen], self.end[seen], self.cause[seen])

    def totals(self, queues: int) -> IntArray:
        """Cycles waited by queue and cause, as `Timeline.stall_cycles`; int64[queues, causes]."""
        total = np.zeros((queues, len(CAUSE_NAMES)), np.int64)
        np.add.at(total, (self.queue, self.cause), self.end - self.begin)
        return total


def waits(schedule: Schedule, timeline: Timeline) -> Waits:
    """Tell every wait of a run, and its cause.

    Notes
    -----
    An instruction is looked at when its queue is free. It waits for the dependency that ends last, of equals the first
    it names (the cause is that unit, or `buffer` if it only waits for room), the last `sync_cycles` of it for `sync`
    if that ran on another queue. A transfer is then issued, and waits for the `channel`. A product whose tiles were
    overwritten waits for their `load`, from when it could have started or was stopped; a pass that must not stop the
    product in flight waits for `mac`.
    """
    code = schedule.instructions
    n, sync = len(code), schedule.arch.sync_cycles
    queue = code[:, F_QUEUE].astype(np.int64)
    is_transfer = queue % UNITS >= LOAD
    free = _free_since(queue, timeline)
    ready, cause, synced = _ready(schedule, timeline, free)
    parts = [(free, ready - synced, cause), (ready - synced, ready, np.full(n, _SYNC))]
    asked = np.where(is_transfer, ready + schedule.arch.issue_cycles, ready)
    parts.append((np.where(is_transfer, asked, timeline.start), timeline.start, np.full(n, _CHANNEL)))
    if len(timeline.redo):
        behind = (queue % UNITS == VEC) & (timeline.start > ready)
        parts.append((np.where(behind, ready, timeline.start), timeline.start, np.full(n, _MAC)))
        late = (queue % UNITS == MAC) & (timeline.late > 0)
        stop = timeline.start[np.maximum(code[:, F_OVER], 0)] + schedule.arch.preemption.drain_cycles
        idle = np.where(late, np.where(timeline.lost_cycles > 0, stop, ready), timeline.start)
        back = np.minimum(sync, timeline.start - idle)
        parts += [
            (idle, timeline.start - back, np.full(n, _LOAD)),
            (timeline.start - back, timeline.start, np.full(n, _SYNC)),
        ]
    begin, end, why = (np.stack(columns, axis=1).ravel() for columns in zip(*parts, strict=True))
    row = np.repeat(np.arange(n, dtype=np.int64), len(parts))
    there = end > begin
    return Waits(row[there], queue[row[there]], begin[there], end[there], why[there])


def _free_since(queue: IntArray, timeline: Timeline) -> IntArray:
    """When the queue of each instruction became free for it: when the one before it left; int64[n]."""
    order = np.argsort(queue, kind="stable")
    left = np.zeros(len(queue), np.int64)
    left[1:] = timeline.channel_end[order[:-1]]
    left[np.flatnonzero(np.diff(queue[order], prepend=-1))] = 0  # the first of each queue
    free = np.empty_like(left)
    free[order] = left
    return free


def _ready(schedule: Schedule, timeline: Timeline, free: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """When each instruction had all it waits for, the cause of waiting until then, and the cycles of `sync` in it."""
    queue = schedule.instructions[:, F_QUEUE]
    ready, cause, synced = free.copy(), np.zeros(len(free), np.int64), np.zeros(len(free), np.int64)
    for column in range(F_DEP0, F_DEP0 + MAX_DEPS):
        dep = schedule.instructions[:, column]
        other = np.maximum(dep, 0) >> 1
        extra = np.where(queue[other] != queue, schedule.arch.sync_cycles, 0)
        done = timeline.end[other] + extra
        later = (dep >= 0) & (done > ready)
        ready = np.where(later, done, ready)
        cause = np.where(later, np.where(dep & 1, _BUFFER, queue[other] % UNITS), cause)
        synced = np.where(later, np.minimum(extra, ready - free), synced)
    return ready, cause, synced
