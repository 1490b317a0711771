"""The slow, obvious twin of the event kernel: the same rules, told in the order in which things happen.

`simulate_reference` walks through time with a heap of events, as a discrete-event library would, in plain Python. The
kernel (`simulator.simulate`) never looks at the clock; it derives each time from those already known. They share no
code, so a rule that one of them has wrong shows as a difference, and property tests hold them equal to the cycle.
"""

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from mas_sim.schedule import F_FLAGS, F_OVER, F_QUEUE, F_RELOAD, FLAG_FIRST, LOAD, MAC, UNITS, VEC, Schedule
from mas_sim.timeline import CAUSE_NAMES, Timeline

CHANNEL, BUFFER, SYNC = (CAUSE_NAMES.index(name) for name in ("channel", "buffer", "sync"))

# Two kinds of moments in one cycle: the channel picks a request only after everything else of that cycle has happened,
# or else a request made in the same cycle by a lower core might come too late.
HAPPENS, ARBITRATES = 0, 1


@dataclass
class _Queue:
    """One in-order queue: what it has left to do, and whether it may take up its next instruction."""

    todo: deque[int] = field(default_factory=deque)
    is_free: bool = True
    free_since: int = 0
    running: int = -1


class _Machine:
    """All queues, the DRAM channel, and the heap of what is going to happen."""

    def __init__(self, schedule: Schedule) -> None:
        n = len(schedule)
        self.schedule = schedule
        self.queue_of = schedule.instructions[:, F_QUEUE].tolist()
        self.cycles_of = schedule.cycles.tolist()
        self.deps_of = [schedule.dependencies(i) for i in range(n)]
        self.queues = [_Queue() for _ in range(schedule.queues)]
        for i, q in enumerate(self.queue_of):
            self.queues[q].todo.append(i)
        self.now = 0
        self.events: list[tuple[int, int, int, Callable[[int], None], int]] = []
        self.event_count = 0
        self.requests: list[tuple[int, int, int]] = []  # (cycle of the request, core, instruction)
        self.channel_is_free = True
        self.start, self.left, self.end = [-1] * n, [0] * n, [-1] * n  # below zero: not yet
        self.booked: dict[int, list[int]] = {}  # events of the product that each MAC queue has in flight
        self.cancelled: set[int] = set()
        self.over, self.back = (schedule.instructions[:, column].tolist() for column in (F_OVER, F_RELOAD))
        self.waits_for_back: dict[int, tuple[int, int, int]] = {}  # load -> (product, since when, cycles to do again)
        self.redo = np.zeros((n if schedule.overwrites else 0, 3), np.int64)
        self.busy = np.zeros(schedule.queues, np.int64)
        self.stalls = np.zeros((schedule.queues, len(CAUSE_NAMES)), np.int64)

    def at(self, cycle: int, action: Callable[[int], None], i: int, phase: int = HAPPENS) -> None:
        """Let `action` happen to instruction i at `cycle`; those of one cycle and phase happen as they were booked."""
        heapq.heappush(self.events, (cycle, phase, self.event_count, action, i))
        self.event_count += 1

    def run(self) -> None:
        """Let everything happen; since dependencies point backwards, every instruction gets its turn."""
        self.look_at_queues()
        while self.events:
            self.now, _, number, action, i = heapq.heappop(self.events)
            if number not in self.cancelled:
                action(i)

    def look_at_queues(self) -> None:
        """Book the start of every queue's next instruction if the queue is free and all its dependencies have ended."""
        for queue in self.queues:
            if not queue.is_free or not queue.todo or any(self.end[dep] < 0 for dep, _ in self.deps_of[queue.todo[0]]):
                continue
            i = queue.todo.popleft()
            queue.is_free = False
            cycle = max([queue.free_since, *(self.end[dep] + self.sync(dep, i) for dep, _ in self.deps_of[i])])
            self.at(cycle, self.begin, i)

    def sync(self, dep: int, i: int) -> int:
        """Cycles that pass until the end of `dep` is seen by the queue of i."""
        return 0 if self.queue_of[dep] == self.queue_of[i] else self.schedule.arch.sync_cycles

    def begin(self, i: int) -> None:
        """Start a compute instruction, or issue a transfer, which then asks for the channel."""
        q = self.queue_of[i]
        if q % UNITS == VEC and self.over[i] >= 0 and not self.clears_the_way(i):
            return
        self.book_wait(i, self.now - self.queues[q].free_since)
        if q % UNITS < LOAD:
            if q % UNITS == MAC and self.over[i] >= 0 and self.has_begun(self.over[i]):
                self.wait_for_tiles(i, self.now, 0)
            else:
                self.work(i, 0)
        else:
            issue_cycles = self.schedule.arch.issue_cycles
            self.at(self.now + issue_cycles, self.ask, i)
            self.busy[q] += issue_cycles

    def work(self, i: int, again: int) -> None:
        """Run a compute instruction from now on, behind `again` cycles of work that was lost."""
        q = self.queue_of[i]
        duration = again + self.cycles_of[i]
        self.start[i], self.queues[q].running = self.now, i
        self.booked[q] = [self.event_count, self.event_count + 1]
        self.at(self.now + duration, self.leave, i)
        self.at(self.now + duration, self.finish, i)
        self.busy[q] += duration

    # --- proactive overwrite ---

    def has_begun(self, i: int) -> bool:
        """Whether a softmax pass has begun to write."""
        return self.start[i] >= 0

    def clears_the_way(self, i: int) -> bool:
        """Deal with the product in flight that reads what pass i is about to overwrite; False if the pass must wait."""
        mac = self.queue_of[i] - 1
        v = self.queues[mac].running
        if v < 0 or self.over[v] != i or self.start[v] + self.cycles_of[v] <= self.now:
            return True
        if self.start[v] < self.now and not self.schedule.arch.preemption.supported:
            end = self.start[v] + self.cycles_of[v]
            vec = self.queue_of[i]
            self.book_wait(i, self.now - self.queues[vec].free_since)
            self.stalls[vec, MAC] += end - self.now
            self.queues[vec].free_since = end  # the wait so far is booked
            self.at(end, self.begin, i)
            return False
        # Take back what was booked for it: it is stopped now, or (of the same cycle) has not started at all.
        self.cancelled.update(self.booked[mac])
        self.busy[mac] -= self.cycles_of[v]
        done, self.queues[mac].running = self.now - self.start[v], -1
        if done == 0:
            self.wait_for_tiles(v, self.now, 0)
            return True
        stop = self.schedule.arch.preemption
        again = self.product_so_far(v) if stop.lost_granularity == "matmul" else 0
        self.busy[mac] += done + stop.drain_cycles
        self.redo[v, 1:] = self.start[v], done + again
        self.wait_for_tiles(v, self.now + stop.drain_cycles, again)
        return True

    def product_so_far(self, v: int) -> int:
        """Cycles of the tiles of v's product that its queue has done before v."""
        total = 0
        while not self.schedule.instructions[v, F_FLAGS] & FLAG_FIRST:
            v = max(j for j in range(v) if self.queue_of[j] == self.queue_of[v])
            total += self.cycles_of[v]
        return total

    def wait_for_tiles(self, v: int, since: int, again: int) -> None:
        """Let product v run once its tiles have been loaded again, and `again` lost cycles before it."""
        self.redo[v, 0] = 1
        load = self.back[v]
        if self.end[load] < 0:
            self.waits_for_back[load] = (v, since, again)
            return
        resume = max(since, self.end[load] + self.schedule.arch.sync_cycles)
        synced = min(self.schedule.arch.sync_cycles, resume - since)
        self.stalls[self.queue_of[v], SYNC] += synced
        self.stalls[self.queue_of[v], LOAD] += resume - since - synced
        self.at(resume, lambda i: self.work(i, again), v)

    def book_wait(self, i: int, gap: int) -> None:
        """Charge the `gap` cycles before i to the dependency that came last, of equals the first that i names."""
        if gap == 0:
            return
        dep, is_buffer = next(d for d in self.deps_of[i] if self.end[d[0]] + self.sync(d[0], i) == self.now)
        synced = min(self.sync(dep, i), gap)
        q = self.queue_of[i]
        self.stalls[q, SYNC] += synced
        self.stalls[q, BUFFER if is_buffer else self.queue_of[dep] % UNITS] += gap - synced

    def ask(self, i: int) -> None:
        """Ask for the channel."""
        self.requests.append((self.now, self.queue_of[i] // UNITS, i))
        self.at(self.now, self.arbitrate, i, ARBITRATES)

    def arbitrate(self, _: int) -> None:
        """Give the channel, if free, to the oldest request; of equals to the lower core's, then the earlier one."""
        if not self.channel_is_free or not self.requests:
            return
        asked, _core, i = granted = min(self.requests)
        self.requests.remove(granted)
        self.channel_is_free = False
        self.start[i] = self.now
        done = self.now + self.cycles_of[i]
        self.at(done, self.leave, i)
        self.at(done + self.schedule.arch.dram.latency_cycles, self.finish, i)
        self.busy[self.queue_of[i]] += self.cycles_of[i]
        self.stalls[self.queue_of[i], CHANNEL] += self.now - asked

    def leave(self, i: int) -> None:
        """Free the queue for its next instruction, and the channel for its next transfer if this was one."""
        queue = self.queues[self.queue_of[i]]
        queue.is_free, queue.free_since, queue.running = True, self.now, -1
        self.left[i] = self.now
        if self.queue_of[i] % UNITS >= LOAD:
            self.channel_is_free = True
            self.at(self.now, self.arbitrate, i, ARBITRATES)
        self.look_at_queues()

    def finish(self, i: int) -> None:
        """Let whatever waited for the result of i start."""
        self.end[i] = self.now
        if i in self.waits_for_back:
            self.wait_for_tiles(*self.waits_for_back.pop(i))
        self.look_at_queues()


def simulate_reference(schedule: Schedule) -> Timeline:
    """Time a schedule in the order in which things happen; slow, for checking `simulator.simulate`.

    Each queue takes up its instructions in order, each when the queue is free and all its dependencies have ended
    (`sync_cycles` later for those on other queues). A transfer is issued for `issue_cycles`, then asks for the DRAM
    channel, which serves one at a time, first come, first served (of equals the lower core's, then the earlier one),
    for the transfer's cycles; with that its queue is free, and a DRAM latency later the transfer has ended.

    Parameters
    ----------
    schedule
        Transfers must take at least one cycle, as `costs.dma_channel_cycles` sees to.

    Returns
    -------
    Timeline
        What `simulator.simulate` must return as well.

    Raises
    ------
    ScheduleError
        If the instructions are malformed (see `Schedule.check`).
    """
    schedule.check()
    machine = _Machine(schedule)
    machine.run()
    start, end, left = (np.array(times, dtype=np.int64) for times in (machine.start, machine.end, machine.left))
    return Timeline(start, end, left, machine.busy, machine.stalls, max(machine.end, default=0), machine.redo)
