"""Timing: run a schedule through the event kernel and give its timeline.

`simulate` checks, packs, calls the compiled kernel and unpacks; the kernel itself is `_kernels.simulate_events`, its slow
twin `reference.simulate_reference`.
"""

from dataclasses import dataclass

import numpy as np

from mas_sim import _kernels
from mas_sim.errors import ScheduleError
from mas_sim.schedule import C_CYCLES, UNIT_NAMES, UNITS, IntArray, Schedule

CAUSE_NAMES = ("mac", "vec", "load", "store", "channel", "buffer", "sync")
"""Why a queue stood still: for the result of a unit, for the DRAM channel, for a buffer to be free, to synchronise."""


@dataclass(frozen=True)
class Timeline:
    """When everything happened.

    Attributes
    ----------
    start, end : int64[n]
        First cycle of each instruction, and the first cycle after it. A transfer starts when it gets the DRAM channel
        and ends when its data has arrived, the DRAM latency after it left the channel.
    channel_end : int64[n]
        For a transfer, the first cycle at which the channel is free again; for others, `end`.
    busy_cycles : int64[queues]
        Cycles each queue worked (a DMA queue: issuing, or holding the channel).
    stall_cycles : int64[queues, causes]
        Cycles each queue stood still before its last instruction, by cause (`CAUSE_NAMES`). Busy and stall cycles add up to
        the time at which the queue ran out of instructions.
    cycles
        When the last instruction ended.
    """

    start: IntArray
    end: IntArray
    channel_end: IntArray
    busy_cycles: IntArray
    stall_cycles: IntArray
    cycles: int

    def stalls_of(self, core: int, unit: int) -> dict[str, int]:
        """Stall cycles of one queue by cause."""
        return dict(zip(CAUSE_NAMES, self.stall_cycles[core * UNITS + unit].tolist(), strict=True))

    def unit_busy_cycles(self, unit: int) -> int:
        """Busy cycles of one unit, summed over the cores."""
        return int(self.busy_cycles[unit::UNITS].sum())


def timing_vector(schedule: Schedule) -> IntArray:
    """Timing parameters of the kernel: synchronisation, DRAM latency, issue of a transfer, in cycles; int64[3]."""
    arch = schedule.arch
    return np.array([arch.sync_cycles, arch.dram.latency_cycles, arch.issue_cycles], dtype=np.int64)


def simulate(schedule: Schedule) -> Timeline:
    """Time a schedule, event by event.

    Each queue runs its instructions in order. An instruction starts when its queue is free and all its dependencies have
    ended, `sync_cycles` later for those on other queues. Transfers also need the DRAM channel, which serves one at a time,
    in the order in which they ask; ties go to the lower core, then the earlier instruction.

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
    )
    if cycles == _kernels.DEADLOCK:
        raise ScheduleError("the queues deadlock: no instruction can start although some are left")
    is_dma = schedule.unit_of >= _kernels.LOAD
    channel_end = np.where(is_dma, start + schedule.cycles, end)
    return Timeline(start, end, channel_end, busy, stalls, int(cycles))


__all__ = ["CAUSE_NAMES", "UNIT_NAMES", "Timeline", "simulate", "timing_vector"]
