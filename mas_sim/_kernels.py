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


# State of a queue (a row of int64[queues, STATE_FIELDS]): its next instruction (-1: none left), when it is free, and
# when that instruction asked for the channel (-1: not known yet).
Q_HEAD, Q_FREE, Q_REQUEST = 0, 1, 2
STATE_FIELDS = 3


@leaf
def _link(code: CodeArray, n: int, following: CodeArray, state: IntArray) -> None:
    """Link each queue's instructions: `Q_HEAD` is its first, `following[i]` the next one behind i, -1 at the end."""
    state[:, Q_HEAD] = -1
    state[:, Q_REQUEST] = -1  # the tail of each queue's list so far
    for i in range(n):
        q = code[i, F_QUEUE]
        following[i] = -1
        if state[q, Q_REQUEST] < 0:
            state[q, Q_HEAD] = i
        else:
            following[state[q, Q_REQUEST]] = i
        state[q, Q_REQUEST] = i
    state[:, Q_REQUEST] = -1
    state[:, Q_FREE] = 0


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
    code: CodeArray, cycles: IntArray, q: int, state: IntArray, following: CodeArray,
    start: IntArray, end: IntArray, busy: IntArray, stalls: IntArray, sync: int,
) -> int:  # fmt: skip
    """Time the instructions of compute queue q as far as their dependencies are known; return how many."""
    done = 0
    i = state[q, Q_HEAD]
    now = state[q, Q_FREE]
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
    state[q, Q_HEAD] = i
    state[q, Q_FREE] = now
    return done


@leaf
def _run_all_compute(
    code: CodeArray, cycles: IntArray, cores: int, state: IntArray, following: CodeArray,
    start: IntArray, end: IntArray, busy: IntArray, stalls: IntArray, sync: int,
) -> int:  # fmt: skip
    """Run every core's MAC and VEC queue until neither gets further; return how many instructions were timed."""
    done, moved = 0, 1
    while moved:
        moved = 0
        for core in range(cores):
            for unit in range(LOAD):
                q = core * UNITS + unit
                if state[q, Q_HEAD] >= 0:
                    moved += _run_compute(code, cycles, q, state, following, start, end, busy, stalls, sync)
        done += moved
    return done


@leaf
def _next_transfer(
    code: CodeArray, cores: int, state: IntArray, end: IntArray, busy: IntArray, stalls: IntArray, timing: IntArray
) -> int:
    """Return the queue whose transfer asked for the channel first (ties: lower core, earlier instruction), or -1."""
    best = -1
    for core in range(cores):
        for unit in range(LOAD, UNITS):
            q = core * UNITS + unit
            i = state[q, Q_HEAD]
            if i < 0:
                continue
            if state[q, Q_REQUEST] < 0:
                free = state[q, Q_FREE]
                time, cause, synced = _ready(code, i, end, free, timing[K_SYNC])
                if time < 0:
                    continue
                stalls[q, cause] += time - free - synced
                stalls[q, WAIT_SYNC] += synced
                state[q, Q_REQUEST] = time + timing[K_ISSUE]
                busy[q] += timing[K_ISSUE]
            if (
                best < 0
                or state[q, Q_REQUEST] < state[best, Q_REQUEST]
                or (state[q, Q_REQUEST] == state[best, Q_REQUEST] and best >= core * UNITS and i < state[best, Q_HEAD])
            ):
                best = q
    return best


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
    state = np.empty((cores * UNITS, STATE_FIELDS), np.int64)
    _link(code, n, following, state)
    end[:n] = -1
    busy[:] = 0
    stalls[:] = 0
    channel_free, remaining = 0, n
    while True:
        remaining -= _run_all_compute(code, cycles, cores, state, following, start, end, busy, stalls, timing[K_SYNC])
        q = _next_transfer(code, cores, state, end, busy, stalls, timing)
        if q < 0:
            break
        i = state[q, Q_HEAD]
        time = max(state[q, Q_REQUEST], channel_free)
        duration = cycles[code[i, F_KIND]]
        stalls[q, WAIT_CHANNEL] += time - state[q, Q_REQUEST]
        busy[q] += duration
        start[i] = time
        channel_free = time + duration
        end[i] = channel_free + timing[K_LATENCY]
        state[q, Q_HEAD], state[q, Q_FREE], state[q, Q_REQUEST] = following[i], channel_free, -1
        remaining -= 1
    if remaining > 0:
        return DEADLOCK
    total = 0
    for i in range(n):
        total = max(total, end[i])
    return total
