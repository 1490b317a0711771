"""Timing: run a schedule through the event kernel and give its timeline.

`simulate` checks, packs, calls the compiled kernel and unpacks; the kernel itself is `_kernels.simulate_events`,
its slow twin `reference.simulate_reference`.
"""

import numpy as np

from mas_sim import _kernels
from mas_sim.errors import ScheduleError
from mas_sim.schedule import C_CYCLES, UNIT_NAMES, IntArray, Schedule
from mas_sim.timeline import CAUSE_NAMES, Timeline


def timing_vector(schedule: Schedule) -> IntArray:
    """Timing parameters of the kernel, its `K_*` columns; int64[TIMING_FIELDS]."""
    arch, stop = schedule.arch, schedule.arch.preemption
    delays = [arch.sync_cycles, arch.dram.latency_cycles, arch.issue_cycles]
    preemption = [int(stop.supported), stop.drain_cycles, int(stop.lost_granularity == "matmul")]
    return np.array(delays + preemption, dtype=np.int64)


def simulate(schedule: Schedule) -> Timeline:
    """Time a schedule, event by event.

    Each queue runs its instructions in order. An instruction starts when its queue is free and all its
    dependencies have ended, `sync_cycles` later for those on other queues. Transfers also need the DRAM channel,
    which serves one at a time, in the order in which they ask; ties go to the lower core, then the earlier
    instruction. When softmax starts to write over tiles that the MAC unit reads or has yet to read, the product in
    flight is stopped, the others wait, and the lost work is done again once the tiles are back; where the arch
    cannot stop a product, softmax waits for it.

    Returns
    -------
    Timeline
        Deterministic: the same schedule always gives the same timeline.

    Raises
    ------
    ScheduleError
        If the instructions are malformed (see `Schedule.check`).
    """
    schedule.check()
    n, queues = len(schedule), schedule.queues
    start, end = np.zeros(n, np.int64), np.zeros(n, np.int64)
    busy, stalls = np.zeros(queues, np.int64), np.zeros((queues, _kernels.CAUSES), np.int64)
    redo = np.zeros((n if schedule.overwrites else 0, _kernels.REDO_FIELDS), np.int64)
    cycles = _kernels.simulate_events(
        np.ascontiguousarray(schedule.instructions),
        n,
        np.ascontiguousarray(schedule.costs[:, C_CYCLES]),
        schedule.arch.cores,
        timing_vector(schedule),
        np.empty(n, np.int32),
        start,
        end,
        busy,
        stalls,
        redo,
    )
    if cycles == _kernels.DEADLOCK:
        raise ScheduleError("the queues deadlock: no instruction can start although some are left")
    is_dma = schedule.unit_of >= _kernels.LOAD
    channel_end = np.where(is_dma, start + schedule.cycles, end)
    return Timeline(start, end, channel_end, busy, stalls, int(cycles), redo)


__all__ = ["CAUSE_NAMES", "UNIT_NAMES", "Timeline", "simulate", "timing_vector"]
