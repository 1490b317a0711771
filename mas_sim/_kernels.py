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

from mas_sim._jit import inlined, jit, leaf

IntArray = npt.NDArray[np.int64]
CodeArray = npt.NDArray[np.int32]

F_QUEUE, F_KIND, F_FLAGS, F_DEP0, MAX_DEPS = 1, 2, 10, 11, 5
F_OVER, F_RELOAD, F_FIRST_VICTIM, F_LAST_VICTIM, FLAG_FIRST = 16, 17, 16, 17, 1
UNITS, MAC, LOAD = 4, 0, 2

# Why a queue stood still: it waited for the result of a unit, for the channel, for a buffer, or for synchronisation.
WAIT_MAC, WAIT_VEC, WAIT_LOAD, WAIT_STORE, WAIT_CHANNEL, WAIT_BUFFER, WAIT_SYNC = 0, 1, 2, 3, 4, 5, 6
CAUSES = 7

# Timing parameters (int64 vector): synchronisation, DRAM latency, issue of a transfer; and of preemption: whether it is
# supported, how long stopping takes, and whether all of a product is lost, or only the stopped instruction's part.
K_SYNC, K_LATENCY, K_ISSUE, K_PREEMPTS, K_DRAIN, K_LOSES_PRODUCT = 0, 1, 2, 3, 4, 5
TIMING_FIELDS = 6

# What proactive overwrite did to a product (int64[n, REDO_FIELDS]): whether it ran behind the overwrite, when it had
# started before it was stopped (-1: never), and the MAC cycles lost, and so done again.
R_LATE, R_STOPPED, R_LOST = 0, 1, 2
REDO_FIELDS = 3
RUN, WAIT, LATE, STOPPED = 0, 1, 2, 3
NEVER = 1 << 62

DEADLOCK = -1


# State of a queue (a row of int64[queues, STATE_FIELDS]): its next instruction (-1: none left), when it is free, when
# that instruction asked for the channel, or could start but for an overwrite that is not settled (-1: not known), and
# the cycles of the current product so far.
Q_HEAD, Q_FREE, Q_REQUEST, Q_PRODUCT = 0, 1, 2, 3
STATE_FIELDS = 4


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


@inlined
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
def _judge(
    code: CodeArray, i: int, q: int, time: int, duration: int, state: IntArray, start: IntArray, end: IntArray,
    timing: IntArray, horizon: int,
) -> tuple[int, int]:  # fmt: skip
    """Say what becomes of product i, which could start at `time`, and reads tiles that a softmax pass overwrites.

    Returns
    -------
    (int, int)
        `RUN` at `time` on the old tiles; `WAIT` until more is known; `LATE` (it had not started) or `STOPPED` (it
        was in flight), and then the cycle at which the tiles are back. A pass that is not timed yet starts behind
        `horizon`.
    """
    over, back = code[i, F_OVER], code[i, F_RELOAD]
    begins = start[over]
    if begins < 0:
        if timing[K_PREEMPTS]:
            return (RUN if time + duration <= horizon else WAIT), 0
        vec = q + 1
        asked = state[vec, Q_REQUEST] if state[vec, Q_HEAD] == over else -1
        first = time < asked if asked >= 0 else time <= horizon
        return (RUN if first else WAIT), 0
    if time + duration <= begins or (time < begins and not timing[K_PREEMPTS]):
        return RUN, 0
    if end[back] < 0:
        return WAIT, 0
    resume = end[back] + timing[K_SYNC]
    if time >= begins:
        return LATE, max(time, resume)
    return STOPPED, max(begins + timing[K_DRAIN], resume)


@leaf
def _behind_victims(
    code: CodeArray, i: int, q: int, time: int, state: IntArray, start: IntArray, end: IntArray, horizon: int
) -> tuple[int, bool]:
    """When overwriting pass i, ready at `time`, can start on a machine that cannot stop a product in flight.

    Returns
    -------
    (int, bool)
        The cycle: the end of the product in flight, if there is one. And whether it is settled.
    """
    mac = q - 1
    for v in range(max(0, code[i, F_FIRST_VICTIM]), code[i, F_LAST_VICTIM] + 1):
        if code[v, F_QUEUE] != mac or code[v, F_OVER] != i:
            continue
        if end[v] >= 0:
            if start[v] < time < end[v]:
                time = end[v]
            continue
        asked = state[mac, Q_REQUEST] if state[mac, Q_HEAD] == v else -1
        return time, (asked >= time if asked >= 0 else time <= horizon)
    return time, True


@leaf
def _resume(
    code: CodeArray, i: int, q: int, verdict: int, time: int, resume: int, duration: int, begins: int, state: IntArray,
    busy: IntArray, stalls: IntArray, redo: IntArray, timing: IntArray,
) -> int:  # fmt: skip
    """Account for product i, `LATE` or `STOPPED`; return the cycles that what is lost besides it takes to redo."""
    again, idle_from = 0, time
    redo[i, R_LATE] = 1
    if verdict == STOPPED:
        idle_from = begins + timing[K_DRAIN]
        again = state[q, Q_PRODUCT] if timing[K_LOSES_PRODUCT] else 0
        redo[i, R_STOPPED], redo[i, R_LOST] = time, begins - time + again
        busy[q] += idle_from - time + again
    synced = min(timing[K_SYNC], resume - idle_from)
    stalls[q, WAIT_LOAD] += resume - idle_from - synced
    stalls[q, WAIT_SYNC] += synced
    return int(again)


@leaf
def _settle(
    code: CodeArray, i: int, q: int, time: int, duration: int, state: IntArray, start: IntArray, end: IntArray,
    busy: IntArray, stalls: IntArray, redo: IntArray, timing: IntArray, horizon: int,
) -> tuple[int, int]:  # fmt: skip
    """Settle an instruction that overwrite concerns, and could start at `time`.

    Returns
    -------
    (int, int)
        When it starts (again), or -1 if that cannot be said yet; and the cycles of lost work that it does again first.
    """
    begin, again, settled = time, 0, True
    if q % UNITS == MAC:
        verdict, resume = _judge(code, i, q, time, duration, state, start, end, timing, horizon)
        settled = verdict != WAIT
        if verdict > WAIT:
            begins = start[code[i, F_OVER]]
            again = _resume(code, i, q, verdict, time, resume, duration, begins, state, busy, stalls, redo, timing)
            begin = resume
    elif not timing[K_PREEMPTS]:
        begin, settled = _behind_victims(code, i, q, time, state, start, end, horizon)
        if settled:
            stalls[q, WAIT_MAC] += begin - time
    state[q, Q_REQUEST] = -1 if settled else begin
    return (begin if settled else -1), again


@inlined
def _run_compute(
    code: CodeArray, cycles: IntArray, q: int, state: IntArray, following: CodeArray, start: IntArray, end: IntArray,
    busy: IntArray, stalls: IntArray, redo: IntArray, timing: IntArray, horizon: int,
) -> int:  # fmt: skip
    """Time the instructions of compute queue q as far as is known what they wait for; return how many."""
    done = 0
    i = state[q, Q_HEAD]
    now = state[q, Q_FREE]
    while i >= 0:
        time, cause, synced = _ready(code, i, end, now, timing[K_SYNC])
        if time < 0:
            break
        duration = cycles[code[i, F_KIND]]
        begin, again = time, 0
        if redo.shape[0] > 0:
            if code[i, F_FLAGS] & FLAG_FIRST:
                state[q, Q_PRODUCT] = 0
            if code[i, F_OVER] >= 0:
                begin, again = _settle(
                    code, i, q, time, duration, state, start, end, busy, stalls, redo, timing, horizon
                )
                if begin < 0:
                    break
            state[q, Q_PRODUCT] += duration
        stalls[q, cause] += time - now - synced
        stalls[q, WAIT_SYNC] += synced
        start[i] = begin
        now = begin + again + duration
        end[i] = now
        busy[q] += duration
        i = following[i]
        done += 1
    state[q, Q_HEAD] = i
    state[q, Q_FREE] = now
    return done


@inlined
def _run_all_compute(
    code: CodeArray, cycles: IntArray, cores: int, state: IntArray, following: CodeArray, start: IntArray,
    end: IntArray, busy: IntArray, stalls: IntArray, redo: IntArray, timing: IntArray, horizon: int,
) -> int:  # fmt: skip
    """Run every core's MAC and VEC queue until neither gets further; return how many instructions were timed."""
    done, moved = 0, 1
    while moved:
        moved = 0
        for core in range(cores):
            for unit in range(LOAD):
                q = core * UNITS + unit
                if state[q, Q_HEAD] >= 0:
                    moved += _run_compute(
                        code, cycles, q, state, following, start, end, busy, stalls, redo, timing, horizon
                    )
        done += moved
    return done


@inlined
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
                # Equal times: a lower core was looked at before; of one core's two queues, the earlier instruction.
                or (
                    state[q, Q_REQUEST] == state[best, Q_REQUEST] and q // UNITS == best // UNITS and i < state[best, 0]
                )
            ):
                best = q
    return best


@leaf
def _run(
    code: CodeArray, n: int, cycles: IntArray, cores: int, timing: IntArray, following: CodeArray, start: IntArray,
    end: IntArray, busy: IntArray, stalls: IntArray, redo: IntArray, state: IntArray,
) -> int:  # fmt: skip
    """Time a schedule, as `simulate_events` says; `state` is scratch."""
    _link(code, n, following, state)
    for i in range(n):
        start[i], end[i] = -1, -1
    busy[:] = 0
    stalls[:] = 0
    redo[:] = 0
    channel_free, remaining, horizon = 0, n, -1
    while True:
        moved = _run_all_compute(code, cycles, cores, state, following, start, end, busy, stalls, redo, timing, horizon)
        remaining -= moved
        if horizon < 0 or moved:
            horizon = -1
            q = _next_transfer(code, cores, state, end, busy, stalls, timing)
            if redo.shape[0] > 0 and remaining > 0:
                # Whatever is not known yet waits for a transfer, and so comes behind the first that asks.
                horizon = state[q, Q_REQUEST] if q >= 0 else NEVER
                continue
        if q < 0:
            break
        horizon = -1
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


@jit
def simulate_events(
    code: CodeArray, n: int, cycles: IntArray, cores: int, timing: IntArray, following: CodeArray, start: IntArray,
    end: IntArray, busy: IntArray, stalls: IntArray, redo: IntArray,
) -> int:  # fmt: skip
    """Time a schedule.

    Parameters
    ----------
    code : int32[>= n, FIELDS]
        Instructions in program order; dependencies point backwards.
    cycles : int64[kinds]
        Duration of each kind; a transfer's is its time on the channel.
    timing : int64[TIMING_FIELDS]
        The `K_*` columns.
    following : int32[>= n]
        Scratch.
    start, end : int64[>= n]
        Filled: first cycle, and first cycle after. A transfer starts when it gets the channel, and ends a latency after
        it has left it. A stopped product starts when it runs again.
    busy : int64[queues], stalls : int64[queues, CAUSES]
        Filled: cycles each queue worked, and waited by cause (up to its last instruction).
    redo : int64[>= n, REDO_FIELDS], or [0, REDO_FIELDS] if nothing is overwritten
        Filled: what proactive overwrite did to each product.

    Returns
    -------
    int
        Cycles until the last instruction has ended, or `DEADLOCK`.
    """
    state = np.empty((cores * UNITS, STATE_FIELDS), np.int64)
    return _run(code, n, cycles, cores, timing, following, start, end, busy, stalls, redo, state)
