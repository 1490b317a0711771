"""The result of timing a schedule: when each instruction ran, and why each queue stood still.

It stands apart from the simulator so that both the compiled kernel's front (`simulator`) and its plain twin
(`reference`) can return it, and the twin needs nothing compiled.
"""

from dataclasses import dataclass, field

import numpy as np

from mas_sim.schedule import UNITS, IntArray

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
        Cycles each queue stood still before its last instruction, by cause (`CAUSE_NAMES`). Busy and stall cycles add
        up to the time at which the queue ran out of instructions.
    cycles
        When the last instruction ended.
    redo : int64[n, 3], or int64[0, 3] for a schedule that overwrites nothing
        What proactive overwrite did to each product: 1 if it ran behind the overwrite, on the tiles loaded again;
        when it had first started, if it was stopped (else -1 or 0); and the MAC cycles that were lost by it, and
        done again.
    """

    start: IntArray
    end: IntArray
    channel_end: IntArray
    busy_cycles: IntArray
    stall_cycles: IntArray
    cycles: int
    redo: IntArray = field(default_factory=lambda: np.zeros((0, 3), np.int64))

    @property
    def late(self) -> IntArray:
        """1 for each product that ran behind the overwrite of its tiles; int64[n]."""
        return self.redo[:, 0] if len(self.redo) else np.zeros(len(self.start), np.int64)

    @property
    def lost_cycles(self) -> IntArray:
        """MAC cycles lost by stopping each product, and so done again; int64[n]."""
        return self.redo[:, 2] if len(self.redo) else np.zeros(len(self.start), np.int64)

    def stalls_of(self, core: int, unit: int) -> dict[str, int]:
        """Stall cycles of one queue by cause."""
        return dict(zip(CAUSE_NAMES, self.stall_cycles[core * UNITS + unit].tolist(), strict=True))

    def unit_busy_cycles(self, unit: int) -> int:
        """Busy cycles of one unit, summed over the cores."""
        return int(self.busy_cycles[unit::UNITS].sum())
