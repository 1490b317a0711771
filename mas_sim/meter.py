"""Metering: what a schedule moves and computes, including what proactive overwrite makes it do twice."""

from dataclasses import dataclass

import numpy as np

from mas_sim._jit import leaf
from mas_sim.schedule import (
    C_CYCLES,
    C_DRAM_READ,
    COST_FIELDS,
    F_FLAGS,
    F_KIND,
    F_OVER,
    F_QUEUE,
    FLAG_FIRST,
    LOAD,
    METER_FIELDS,
    CodeArray,
    IntArray,
    Schedule,
)
from mas_sim.timeline import Timeline


@dataclass(frozen=True)
class OverwriteCost:
    """What proactive overwrite cost.

    Attributes
    ----------
    overwrites
        Times that softmax wrote over tiles which were then loaded again.
    reloaded_bytes
        DRAM bytes of those loads.
    stops
        Products that were stopped in flight.
    lost_mac_cycles, redone_mac_cycles
        MAC cycles whose work was lost by that, and cycles spent on doing it again: they are equal.
    redone_counts : int64[METER_FIELDS]
        Actions of the lost work, which were metered again.
    """

    overwrites: int
    reloaded_bytes: int
    stops: int
    lost_mac_cycles: int
    redone_mac_cycles: int
    redone_counts: IntArray


@leaf
def add_redone(
    code: CodeArray, n: int, costs: IntArray, start: IntArray, redo: IntArray, loses_product: int, counts: IntArray
) -> None:
    """Add to `counts`, int64[METER_FIELDS], the actions of work that was lost when products were stopped.

    The stopped instruction had done its actions in proportion to the cycles it ran (rounded down); where the whole
    product is lost, the instructions of its earlier tiles had done all of theirs.
    """
    for i in range(redo.shape[0]):
        if redo[i, 2] == 0:
            continue
        kind = code[i, F_KIND]
        ran = start[code[i, F_OVER]] - redo[i, 1]
        for column in range(1, COST_FIELDS):
            counts[column - 1] += costs[kind, column] * ran // max(1, costs[kind, C_CYCLES])
        j = i
        while loses_product and not code[j, F_FLAGS] & FLAG_FIRST:
            j -= 1
            while code[j, F_QUEUE] != code[i, F_QUEUE]:
                j -= 1
            for column in range(1, COST_FIELDS):
                counts[column - 1] += costs[code[j, F_KIND], column]


def overwrite_cost(schedule: Schedule, timeline: Timeline) -> OverwriteCost:
    """Return what proactive overwrite cost in one run of a schedule."""
    code = schedule.instructions
    again = (schedule.unit_of == LOAD) & (code[:, F_OVER] >= 0)
    redone = np.zeros(METER_FIELDS, np.int64)
    loses_product = int(schedule.arch.preemption.lost_granularity == "matmul")
    add_redone(code, len(schedule), schedule.costs, timeline.start, timeline.redo, loses_product, redone)
    lost = int(timeline.lost_cycles.sum())
    return OverwriteCost(
        overwrites=len(np.unique(code[again, F_OVER])),
        reloaded_bytes=int(schedule.costs[code[again, F_KIND], C_DRAM_READ].sum()),
        stops=int((timeline.lost_cycles > 0).sum()),
        lost_mac_cycles=lost,
        redone_mac_cycles=lost,
        redone_counts=redone,
    )


def meter(schedule: Schedule, timeline: Timeline) -> IntArray:
    """Metered actions of one run, in the order of `energy.METER_COLUMNS`; int64[METER_FIELDS].

    Those of every instruction once, and of lost work a second time.
    """
    return schedule.meter_counts() + overwrite_cost(schedule, timeline).redone_counts
