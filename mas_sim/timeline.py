"""The result of timing a schedule: when each instruction ran, and why each queue stood still.

It stands apart from the simulator so that both the compiled kernel's front (`simulator`) and its plain twin
(`reference`) can return it, and the twin needs nothing compiled.
"""

from dataclasses import dataclass

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
