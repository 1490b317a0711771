"""Proactive overwrite as a schedule declares it and a timeline shows it: who read what before, who behind, what twice.

A product that reads tiles which a softmax pass may overwrite is a *victim* of that pass. It ran early, on the tiles as
they were, or late, on the tiles loaded again; if it was in flight when the pass began to write, it was stopped and ran
again. `audit` and `execute` take from here which slot each victim read, and which lost work it did again.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mas_sim.geometry import Geometry
from mas_sim.schedule import (
    F_ALT,
    F_DST,
    F_FIRST_VICTIM,
    F_FLAGS,
    F_GROUP,
    F_LAST_VICTIM,
    F_OP,
    F_OVER,
    F_QUEUE,
    F_RELOAD,
    F_ROW,
    F_SRC1,
    F_STEP,
    F_TILE,
    FLAG_FIRST,
    LOAD,
    MAC,
    OP_LOAD_K,
    OP_LOAD_V,
    OP_QK,
    OP_SOFTMAX,
    UNITS,
    VEC,
    IntArray,
    Schedule,
)
from mas_sim.timeline import Timeline

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Overwrites:
    """What proactive overwrite did to a run.

    Attributes
    ----------
    victims : int64[victims]
        Rows of the products whose tiles a softmax pass may overwrite.
    source : int64[n]
        Slot that each instruction took its second operand from; of an early victim, `F_ALT`.
    redone : int64[redone, 2]
        Products that did earlier tiles of theirs again, and the instruction of each of those tiles.
    """

    victims: IntArray
    source: IntArray
    redone: IntArray


def begin_of(timeline: Timeline) -> IntArray:
    """Return when each instruction first kept its unit busy: its start, or that of the run that was stopped."""
    return (
        np.where(timeline.lost_cycles > 0, timeline.redo[:, 1], timeline.start)
        if len(timeline.redo)
        else timeline.start
    )


def victims_of(schedule: Schedule) -> IntArray:
    """Return the rows of all victims, in program order."""
    return np.flatnonzero((schedule.unit_of == MAC) & (schedule.instructions[:, F_OVER] >= 0))


def read_overwrites(schedule: Schedule, timeline: Timeline) -> Overwrites:
    """Look up what became of each victim; the schedule must have passed `broken_links`."""
    victims, code = victims_of(schedule), schedule.instructions
    source, stopped = code[:, F_SRC1].astype(np.int64), np.flatnonzero(timeline.lost_cycles > 0)
    early = victims[timeline.late[victims] == 0]
    source[early] = code[early, F_ALT]
    loses_product = schedule.arch.preemption.lost_granularity == "matmul"
    redone = _earlier_tiles(schedule, stopped) if loses_product and stopped.size else np.zeros((0, 2), np.int64)
    return Overwrites(victims, source, redone)


def _earlier_tiles(schedule: Schedule, products: IntArray) -> IntArray:
    """List (product, instruction of an earlier tile of it) for some instructions of the MAC units; int64[pairs, 2]."""
    code = schedule.instructions
    rows = np.flatnonzero(schedule.unit_of == MAC)
    rows = rows[np.argsort(code[rows, F_QUEUE], kind="stable")]
    opens = (code[rows, F_FLAGS] & FLAG_FIRST) > 0
    opens[1:] |= code[rows[1:], F_QUEUE] != code[rows[:-1], F_QUEUE]
    first = np.maximum.accumulate(np.where(opens, np.arange(len(rows)), 0))
    place = np.zeros(len(code), np.int64)
    place[rows] = np.arange(len(rows))
    count = place[products] - first[place[products]]
    product = np.repeat(products, count)
    running = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    earlier = rows[first[place[product]] + running]
    same = (code[product][:, [F_OP, F_GROUP, F_ROW]] == code[earlier][:, [F_OP, F_GROUP, F_ROW]]).all(axis=1)
    return np.stack([product[same], earlier[same]], axis=1)


def broken_links(schedule: Schedule, geometry: Geometry) -> list[str]:
    """Find victims that name no pass, no load or no slot, so that nothing can be said of what they read.

    Returns
    -------
    list of str
        One message for each such victim and field.
    """
    code, n, victims = schedule.instructions, len(schedule), victims_of(schedule)
    queue, faults = code[victims, F_QUEUE], list[str]()

    def refuse(bad: Flags, problem: str) -> None:
        faults.extend(f"malformed instruction: {schedule.describe(int(i))} {problem}" for i in victims[bad])

    over = code[victims, F_OVER]
    writer = code[np.where(over < n, over, 0)]
    writes = (writer[:, F_OP] == OP_SOFTMAX) & (writer[:, F_TILE] >= geometry.first_write) & (writer[:, F_DST] >= 0)
    refuse(
        (over >= n) | ~writes | (writer[:, F_QUEUE] != queue + VEC - MAC),
        "is the victim of a row that is no writing softmax pass of its core",
    )
    back = code[victims, F_RELOAD]
    load = code[np.where((back >= 0) & (back < n), back, 0)]
    loads = load[:, F_OP] == np.where(code[victims, F_OP] == OP_QK, OP_LOAD_K, OP_LOAD_V)
    refuse(
        (back < 0) | (back >= n) | ~loads | (load[:, F_QUEUE] != queue + LOAD - MAC),
        "waits for a row that is no load of such tiles on its core",
    )
    slot = code[victims, F_ALT]
    refuse((slot < 0) | (slot >= len(schedule.slots) * schedule.arch.cores), "lacks a slot for its tiles as they were")
    if not schedule.arch.l1.shared:
        away = slot // len(schedule.slots) != queue // UNITS
        refuse((slot >= 0) & away, "had its tiles in another core's private L1")
    return faults


def wrong_links(schedule: Schedule) -> list[str]:
    """Find victims that disagree with the pass or the load that they name; they must have passed `broken_links`."""
    code, faults = schedule.instructions, list[str]()
    victims = victims_of(schedule)
    over, back = code[victims, F_OVER], code[victims, F_RELOAD]
    written, loaded = code[over, F_DST], code[back, F_DST]
    for at in np.flatnonzero(code[victims, F_ALT] != written):
        who, other = schedule.describe(int(victims[at])), schedule.describe(int(over[at]))
        slot = code[victims[at], F_ALT]
        faults.append(f"wrong slot: {who} reads slot {slot} until {other} overwrites it, but that writes {written[at]}")
    for at in np.flatnonzero(code[victims, F_SRC1] != loaded):
        who, other = schedule.describe(int(victims[at])), schedule.describe(int(back[at]))
        slot = code[victims[at], F_SRC1]
        faults.append(f"wrong slot: {who} reads slot {slot} once {other} has ended, but that loads to {loaded[at]}")
    tile, first = code[victims, F_TILE], code[back, F_TILE]
    for at in np.flatnonzero((tile < first) | (tile > first + code[back, F_STEP])):
        who, other = schedule.describe(int(victims[at])), schedule.describe(int(back[at]))
        faults.append(f"wrong window: {who} waits for {other}, which does not bring its tile back")
    n = len(schedule)
    least, most = np.full(n, n), np.full(n, -1)
    np.minimum.at(least, over, victims)
    np.maximum.at(most, over, victims)
    named = code[:, [F_FIRST_VICTIM, F_LAST_VICTIM]]
    meant = np.stack([np.where(most < 0, -1, least), most], axis=1)
    for i in np.flatnonzero((schedule.unit_of == VEC) & (named != meant).any(axis=1)):
        says, has = named[i].tolist(), meant[i].tolist()
        faults.append(f"wrong victims: {schedule.describe(int(i))} says that its victims are rows {says}, not {has}")
    return faults


def broken_timeline(schedule: Schedule, timeline: Timeline) -> str:
    """Say what keeps a timeline from telling what became of the schedule's victims; empty if nothing does."""
    n = len(schedule)
    if schedule.overwrites and timeline.redo.shape != (n, 3):
        return f"malformed timeline: it says of {len(timeline.redo)} of {n} products whether they were stopped"
    if not len(timeline.redo):
        return ""
    spared = np.ones(n, np.bool_)
    spared[victims_of(schedule)] = False
    stray = np.flatnonzero(spared & (timeline.redo[:, [0, 2]] != 0).any(axis=1))
    if stray.size:
        return f"malformed timeline: {schedule.describe(int(stray[0]))} is no victim, but was stopped or came late"
    return ""


def mistimed(schedule: Schedule, timeline: Timeline, overwrites: Overwrites) -> list[str]:
    """Find victims that the timeline treats in a way that no machine could; `audit` looks at the data they read.

    Returns
    -------
    list of str
        One message for each victim and rule.
    """
    code, stop, victims = schedule.instructions, schedule.arch.preemption, overwrites.victims
    start, end, begin = timeline.start[victims], timeline.end[victims], begin_of(timeline)[victims]
    late, lost = timeline.late[victims] > 0, timeline.lost_cycles[victims]
    stopped = lost > 0
    over, back = code[victims, F_OVER], code[victims, F_RELOAD]
    writes, ready = timeline.start[over], timeline.end[back] + schedule.arch.sync_cycles
    drained = writes + stop.drain_cycles
    work = np.zeros(len(schedule), np.int64)
    np.add.at(work, overwrites.redone[:, 0], schedule.cycles[overwrites.redone[:, 1]])
    again, needs = work[victims], work[victims] + schedule.cycles[victims]
    faults: list[str] = []

    def refuse(bad: Flags, problem: str, *numbers: IntArray) -> None:
        kind, _, rest = problem.partition(": ")
        for at in np.flatnonzero(bad):
            said = rest.format(*(int(column[at]) for column in numbers))
            faults.append(f"{kind}: {schedule.describe(int(victims[at]))} {said}")

    refuse(
        late & (start < ready),
        "window not awaited: starts in cycle {} on tiles that are back, and known to be, in cycle {}", start, ready,
    )  # fmt: skip
    refuse(stopped & (not stop.supported), "stopped: in cycle {}, on a machine that cannot stop a product", writes)
    refuse(stopped & ~late, "stopped: in cycle {}, and never runs again behind that", writes)
    refuse(stopped & (begin >= writes), "stopped: in cycle {}, before it starts in cycle {}", writes, begin)
    refuse(
        stopped & (start < drained),
        "two things at once: runs again in cycle {}, but its stopped run keeps the unit until {}", start, drained,
    )  # fmt: skip
    lost_truly = writes - begin + again
    refuse(stopped & (lost != lost_truly), "lost cycles: are {} by the timeline, but {} in truth", lost, lost_truly)
    refuse(
        end - start < needs,
        "lost work not done again: takes {} cycles, but {} are needed with what was lost", end - start, needs,
    )  # fmt: skip
    return faults
