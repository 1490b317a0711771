"""The event kernel: when each instruction of a schedule starts and ends.

It rests on two facts. A compute queue (MAC, VEC) shares nothing, so an instruction's start is known as soon as its
dependencies' ends are. The DRAM channel is shared, but of all transfers whose request time is known, the one with the
earliest can be granted at once: any other still waits for some transfer that is not granted yet, and so asks
later. So the kernel runs compute queues as far as they go, grants one transfer, and repeats; no event heap is needed.
`reference.py` holds the chronological twin. This module imports numpy and numba (by way of `_jit`) only, so the
layout of instructions is repeated here as plain numbers; a test holds them equal to `schedule`'s.
"""

import numpy as np
import numpy.typing as npt

from mas_sim._jit import jit, leaf

IntArray = npt.NDArray[np.int64]
CodeArray = npt.NDArray[np.int32]

F_QUEUE, F_KIND, F_DEP0, MAX_DEPS = 1, 2, 11, 5
UNITS, LOAD = 4, 2

# Why a queue stood still: it waited for the result of a unit, for the channel, for a buffer, or for synchronisation.
WAIT_MAC, WAIT_VEC, WAIT_LOAD, WAIT_STORE, WAIT_CHANNEL, WAIT_BUFFER, WAIT_SYNC = 0, 1, 2, 3, 4, 5, 6
CAUSES = 7

# Timing parameters (int64 vector).
K_SYNC, K_LATENCY, K_ISSUE = 0, 1, 2

DEADLOCK = -1


@leaf
def _link(code: CodeArray, n: int, following: CodeArray, head: IntArray, tail: IntArray) -> None:
    """Link each queue's instructions: `head[q]` is its first, `following[i]` the next one behind i, -1 at the end.

    `tail`, int64[queues] like `head`, is scratch.
    """
    head[:] = -1
    tail[:] = -1
    for i in range(n):
        q = code[i, F_QUEUE]
        following[i] = -1
        if tail[q] < 0:
            head[q] = i
        else:
            following[tail[q]] = i
        tail[q] = i


@leaf
def _ready(code: CodeArray, i: int, end: IntArray, free: int, sync: int) -> tuple[int, int, int]:
    """When instruction i can start.

    Returns
    -------
    (int, int, int)
        The cycle, at least `free`, or -1 if a dependency has not been timed; the cause of waiting beyond `free`; and
        how much of that wait is synchronisation.
    """
    q = code[i, F_QUEUE]
    time, cause, synced = free, 0, 0
    for slot in range(MAX_DEPS):
        dep = code[i, F_DEP0 + slot]
        if dep < 0:
            continue
        other = dep >> 1
        done = end[other]
        if done < 0:
            return -1, 0, 0
        other_q = code[other, F_QUEUE]
        extra = sync if other_q != q else 0
        if done + extra > time:
            time = done + extra
            cause = WAIT_BUFFER if dep & 1 else other_q % UNITS
            synced = min(extra, time - free)
    return time, cause, synced


@leaf
def _run_compute(
    code: CodeArray, cycles: IntArray, q: int, head: IntArray, free: IntArray, following: CodeArray,
    start: IntArray, end: IntArray, busy: IntArray, stalls: IntArray, sync: int,
) -> int:  # fmt: skip
    """Time the instructions of compute queue q as far as their dependencies are known; return how many."""
    done = 0
    i = head[q]
    now = free[q]
    while i >= 0:
        time, cause, synced = _ready(code, i, end, now, sync)
        if time < 0:
            break
        stalls[q, cause] += time - now - synced
        stalls[q, WAIT_SYNC] += synced
        duration = cycles[code[i, F_KIND]]
        start[i] = time
        now = time + duration
        end[i] = now
        busy[q] += duration
        i = following[i]
        done += 1
    head[q] = i
    free[q] = now
    return done


@jit
def simulate_events(
    code: CodeArray, n: int, cycles: IntArray, cores: int, timing: IntArray, following: CodeArray,
    start: IntArray, end: IntArray, busy: IntArray, stalls: IntArray,
) -> int:  # fmt: skip
    """Time a schedule.

    Parameters
    ----------
    code : int32[>= n, FIELDS]
        Instructions in program order; dependencies point backwards.
    cycles : int64[kinds]
        Duration of each kind; a transfer's is its time on the channel.
    timing : int64[3]
        `sync_cycles`, DRAM latency and `issue_cycles` of a transfer.
    following : int32[>= n]
        Scratch.
    start, end : int64[>= n]
        Filled: first cycle, and first cycle after. A transfer starts when it gets the channel, and ends a latency after
        it has left it.
    busy : int64[queues], stalls : int64[queues, CAUSES]
        Filled: cycles each queue worked, and waited by cause (up to its last instruction).

    Returns
    -------
    int
        Cycles until the last instruction has ended, or `DEADLOCK`.
    """
    queues = cores * UNITS
    sync, latency, issue = timing[K_SYNC], timing[K_LATENCY], timing[K_ISSUE]
    head, free, request = np.empty(queues, np.int64), np.zeros(queues, np.int64), np.empty(queues, np.int64)
    _link(code, n, following, head, request)
    request[:] = -1
    for i in range(n):
        end[i] = -1
    busy[:] = 0
    stalls[:] = 0
    channel_free, remaining = 0, n
    while remaining > 0:
        moved = 1
        while moved:
            moved = 0
            for core in range(cores):
                for unit in range(2):
                    q = core * UNITS + unit
                    if head[q] >= 0:
                        moved += _run_compute(code, cycles, q, head, free, following, start, end, busy, stalls, sync)
            remaining -= moved
        best = -1
        for core in range(cores):
            for unit in range(LOAD, UNITS):
                q = core * UNITS + unit
                i = head[q]
                if i < 0:
                    continue
                if request[q] < 0:
                    time, cause, synced = _ready(code, i, end, free[q], sync)
                    if time < 0:
                        continue
                    stalls[q, cause] += time - free[q] - synced
                    stalls[q, WAIT_SYNC] += synced
                    request[q] = time + issue
                    busy[q] += issue
                if (
                    best < 0
                    or request[q] < request[best]
                    or (request[q] == request[best] and q // UNITS == best // UNITS and i < head[best])
                ):
                    best = q
        if best < 0:
            if remaining > 0:
                return DEADLOCK
            break
        i = head[best]
        time = max(request[best], channel_free)
        duration = cycles[code[i, F_KIND]]
        stalls[best, WAIT_CHANNEL] += time - request[best]
        busy[best] += duration
        start[i] = time
        channel_free = time + duration
        end[i] = channel_free + latency
        free[best], head[best], request[best] = channel_free, following[i], -1
        remaining -= 1
    total = 0
    for i in range(n):
        total = max(total, end[i])
    return total
