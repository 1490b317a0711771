"""What each instruction reads and writes, and in which order: the facts that `audit` and `execute` share.

One table, `RULES`, says for every operation which operand holds which version of which tensor. `list_accesses` applies
it to a schedule and gives byte ranges; nothing here looks at the dependencies that the schedule declares.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mas_sim.geometry import TENSORS, Geometry, in_row_block
from mas_sim.overwrites import Overwrites, broken_links, victims_of
from mas_sim.schedule import (
    F_ALT,
    F_DST,
    F_GROUP,
    F_OP,
    F_QUEUE,
    F_ROW,
    F_SRC0,
    F_SRC1,
    F_STEP,
    F_TILE,
    OP_LOAD_C,
    OP_LOAD_K,
    OP_LOAD_P,
    OP_LOAD_Q,
    OP_LOAD_V,
    OP_PV,
    OP_QK,
    OP_SOFTMAX,
    OP_STORE_C,
    OP_STORE_O,
    OP_STORE_P,
    SLOT_BYTES,
    SLOT_OFFSET,
    T_K,
    T_O,
    T_Q,
    T_S,
    T_STATS,
    T_V,
    UNITS,
    IntArray,
    Schedule,
)
from mas_sim.timeline import Timeline

DRAM_C, DRAM_P = -1, -2
"""Operands that are no L1 slot: the scores and the probabilities that a dataflow keeps in DRAM."""

# How far the data has come when it is read, or has been written: of scores and stats, softmax passes; of an output,
# products added.
NONE, ALL_PASSES, PASS, NEXT_PASS, STEP, NEXT_STEP, ALL_STEPS = 0, 1, 2, 3, 4, 5, 6


class Rule(NamedTuple):
    """One operand of an operation.

    Attributes
    ----------
    operand
        The field that names its slot, or `DRAM_C`, `DRAM_P`.
    tensor
        What it holds (`T_*`; C and P are versions of `T_S`).
    is_write
        Whether this access writes. An operand that is updated in place has two rules.
    stage
        How far the data has come (`NONE` to `ALL_STEPS`): expected of a read, made by a write.
    whole_row
        The access covers the scores of every kv tile of the row block, not of one.
    whole_window
        The access covers as many kv tiles as the instruction's step says, and one more.
    """

    operand: int
    tensor: int
    is_write: bool
    stage: int = NONE
    whole_row: bool = False
    whole_window: bool = False


RULES: dict[int, tuple[Rule, ...]] = {
    OP_LOAD_Q: (Rule(F_DST, T_Q, True),),
    OP_LOAD_K: (Rule(F_DST, T_K, True, whole_window=True),),
    OP_LOAD_V: (Rule(F_DST, T_V, True, whole_window=True),),
    OP_LOAD_C: (Rule(DRAM_C, T_S, False, NONE, True), Rule(F_DST, T_S, True, NONE, True)),
    OP_LOAD_P: (Rule(DRAM_P, T_S, False, ALL_PASSES), Rule(F_DST, T_S, True, ALL_PASSES)),
    OP_QK: (Rule(F_SRC0, T_Q, False), Rule(F_SRC1, T_K, False), Rule(F_DST, T_S, True)),
    OP_PV: (
        Rule(F_SRC0, T_S, False, ALL_PASSES),
        Rule(F_SRC1, T_V, False),
        Rule(F_DST, T_O, False, STEP),
        Rule(F_DST, T_O, True, NEXT_STEP),
    ),
    OP_SOFTMAX: (
        Rule(F_SRC0, T_S, False, PASS, True),
        Rule(F_DST, T_S, True, NEXT_PASS, True),
        Rule(F_SRC1, T_STATS, False, PASS),
        Rule(F_SRC1, T_STATS, True, NEXT_PASS),
    ),
    OP_STORE_C: (Rule(F_SRC0, T_S, False), Rule(DRAM_C, T_S, True)),
    OP_STORE_P: (Rule(F_SRC0, T_S, False, ALL_PASSES, True), Rule(DRAM_P, T_S, True, ALL_PASSES, True)),
    OP_STORE_O: (Rule(F_SRC0, T_O, False, ALL_STEPS),),
}
"""What each operation reads and writes. Where a stage of an output or of stats is 0, there is nothing to read yet.

Softmax passes before the first one that changes the scores read them as they are, and write stats only.
"""

TILE_OPS = (OP_LOAD_K, OP_LOAD_V, OP_QK, OP_PV, OP_STORE_C, OP_LOAD_P)
"""Operations whose tile field is a kv tile."""

LOADS_OF_KV = (OP_LOAD_K, OP_LOAD_V)

STEP_OPS = (OP_QK, OP_PV, OP_STORE_C, OP_LOAD_P)
"""Operations whose step field is a place in the row block's list of kv tiles."""


class Accesses(NamedTuple):
    """All reads and writes of a schedule, in no particular order; int64[accesses] each.

    Attributes
    ----------
    instruction
        Row of the instruction.
    is_write
        1 if it writes, 0 if it reads.
    version
        The version that it expects, or makes (`describe_version`).
    first, last
        Bytes `[first, last)`: of L1, core after core, then places of C and of P in DRAM, one for each pair.
    need
        Bytes that the data has; more than the range holds if the slot is too small. 0 in DRAM.
    """

    instruction: IntArray
    is_write: IntArray
    version: IntArray
    first: IntArray
    last: IntArray
    need: IntArray


def list_accesses(schedule: Schedule, geometry: Geometry, overwrites: Overwrites) -> Accesses:
    """Apply `RULES` to every instruction; those must have passed `malformed`.

    Products that do lost work again read their earlier tiles as well, in the time that they take themselves.
    """
    ops = schedule.instructions[:, F_OP]
    redoing, earlier = overwrites.redone.T
    parts = []
    for op, rules in RULES.items():
        chosen, again = np.flatnonzero(ops == op), ops[redoing] == op
        for rule in rules:
            work = _work_of(rule, chosen, chosen, schedule, geometry)
            parts.append(_apply(rule, work, overwrites.source, redoing, schedule, geometry))
            if again.any() and rule.tensor != T_O:
                work = _work_of(rule, redoing[again], earlier[again], schedule, geometry)
                source = schedule.instructions[:, F_SRC1].astype(np.int64)
                parts.append(_apply(rule, work, source, redoing, schedule, geometry))
    return Accesses(*(np.concatenate(column) for column in zip(*parts, strict=True)))


@dataclass(frozen=True)
class _Work:
    """The instructions that a rule applies to, and what they work on; int64[accesses] each.

    Attributes
    ----------
    instruction
        Which instruction makes the access.
    named_by
        The instruction whose fields name it: another one, if its work is done again.
    group, row, tile, step
        Fields of the instructions; `tile` is the pass of a softmax. `step` runs over the row block's list where a rule
        covers whole rows, and `tile` over the window's tiles where it covers those.
    pair
        The pair of row block and step.
    """

    instruction: IntArray
    named_by: IntArray
    group: IntArray
    row: IntArray
    tile: IntArray
    step: IntArray
    pair: IntArray


def _work_of(rule: Rule, chosen: IntArray, named_by: IntArray, schedule: Schedule, geometry: Geometry) -> _Work:
    """Look up what the instructions `chosen` work on, one entry for each access of the rule."""
    code = schedule.instructions
    step = code[named_by, F_STEP].astype(np.int64)
    running = np.zeros(len(chosen), np.int64)
    if rule.whole_row or (rule.whole_window and step.any()):
        repeats = step + 1 if rule.whole_window else geometry.row_pairs[code[named_by, F_ROW]]
        running = np.arange(repeats.sum()) - np.repeat(np.cumsum(repeats) - repeats, repeats)
        chosen, named_by = np.repeat(chosen, repeats), np.repeat(named_by, repeats)
    group, row, tile = (code[named_by, field].astype(np.int64) for field in (F_GROUP, F_ROW, F_TILE))
    if rule.whole_window:
        tile, step = tile + running, running
    elif rule.whole_row:
        step = running
    return _Work(chosen, named_by, group, row, tile, step, geometry.row_first[row] + step)


def _piece_of(tensor: int, work: _Work, geometry: Geometry) -> IntArray:
    """Give each piece of a tensor a number: pairs of C and P, kv tiles of K and V, row blocks of the others."""
    if tensor == T_S:
        return work.group * geometry.pairs + work.pair
    if tensor in (T_K, T_V):
        return geometry.key_of[work.group] * geometry.tiles + work.tile
    return work.group * geometry.rows + work.row


def _stage_of(rule: Rule, work: _Work, geometry: Geometry) -> IntArray:
    """Turn a rule's stage code (`NONE` to `ALL_STEPS`) into numbers."""
    if rule.stage in (PASS, NEXT_PASS):
        stage = work.tile + (rule.stage == NEXT_PASS)
        return np.where(stage > geometry.first_write, stage, 0) if rule.tensor == T_S else stage
    if rule.stage in (STEP, NEXT_STEP):
        return work.step + (rule.stage == NEXT_STEP)
    if rule.stage == ALL_STEPS:
        return geometry.row_pairs[work.row]
    return np.full_like(work.step, geometry.passes if rule.stage == ALL_PASSES else 0)


def _bytes_of(tensor: int, work: _Work, schedule: Schedule, geometry: Geometry) -> IntArray:
    """Bytes of the data itself, ragged groups and tiles taken as small as they are."""
    grid, workload = schedule.grid, schedule.workload
    element = workload.bytes_per_element
    if tensor in (T_K, T_V):
        return _kv_column_bytes(tensor, work, schedule) * geometry.tile_width[work.tile]
    lines = grid.group_batches[work.group] * grid.group_heads[work.group] * geometry.row_height[work.row]
    if tensor == T_S:
        return lines * geometry.pair_width[work.pair] * element
    if tensor == T_STATS:
        return 2 * lines * workload.accumulator_bytes
    return lines * (workload.head_dim_qk if tensor == T_Q else workload.head_dim_v) * element


def _kv_column_bytes(tensor: int, work: _Work, schedule: Schedule) -> IntArray:
    """Bytes of one column of K or V of a group."""
    grid, workload = schedule.grid, schedule.workload
    head_dim = workload.head_dim_qk if tensor == T_K else workload.head_dim_v
    return grid.group_batches[work.group] * grid.group_kv_heads[work.group] * head_dim * workload.bytes_per_element


def _apply(
    rule: Rule, work: _Work, source: IntArray, redoing: IntArray, schedule: Schedule, geometry: Geometry
) -> Accesses:
    """List the accesses of one rule; `source` holds the slot of every instruction's second operand."""
    piece = _piece_of(rule.tensor, work, geometry)
    stage = _stage_of(rule, work, geometry)
    version = (piece * geometry.stages + stage) * TENSORS + rule.tensor
    if rule.operand < 0:
        behind_l1 = schedule.core_l1_bytes * schedule.arch.cores
        first = behind_l1 + (DRAM_C - rule.operand) * geometry.groups * geometry.pairs + piece
        last, need = first + 1, np.zeros_like(first)
    else:
        operand = source if rule.operand == F_SRC1 else schedule.instructions[:, rule.operand].astype(np.int64)
        first, last = _range_of(rule, work, operand[work.named_by], schedule, geometry)
        need = _bytes_of(rule.tensor, work, schedule, geometry)
    accesses = Accesses(work.instruction, np.full_like(first, rule.is_write), version, first, last, need)
    if rule.tensor == T_S and rule.stage == NEXT_PASS:
        there = work.tile >= geometry.first_write
    elif not rule.is_write and rule.tensor in (T_O, T_STATS):
        # Of an output that is computed anew, what was there before is lost.
        there = (stage > 0) & ((rule.tensor != T_O) | ~np.isin(work.instruction, redoing))
    else:
        return accesses
    return Accesses(*(column[there] for column in accesses))


def _range_of(
    rule: Rule, work: _Work, operand: IntArray, schedule: Schedule, geometry: Geometry
) -> tuple[IntArray, IntArray]:
    """Bytes `[first, last)` of L1 that accesses touch in the slots `operand`: all of a slot, or their tile's share."""
    core, slot = np.divmod(operand, len(schedule.slots))
    first = core * schedule.core_l1_bytes + schedule.slots[slot, SLOT_OFFSET]
    last = first + schedule.slots[slot, SLOT_BYTES]
    shared = in_row_block(schedule, operand)
    if rule.tensor not in (T_S, T_K, T_V) or not shared.any():
        return first, last
    before, size = _share_of(rule, work, schedule, geometry)
    begin = np.where(shared, np.minimum(first + before, last), first)
    return begin, np.where(shared, np.minimum(begin + size, last), last)


def _share_of(rule: Rule, work: _Work, schedule: Schedule, geometry: Geometry) -> tuple[IntArray, IntArray]:
    """Bytes in front of a tile's share of a row block's slot, and bytes of that share."""
    if rule.tensor == T_S:
        column_bytes = geometry.column_elements * schedule.workload.bytes_per_element
        return geometry.pair_before[work.pair] * column_bytes, geometry.pair_width[work.pair] * column_bytes
    window = work.tile - work.step if rule.whole_window else geometry.window_of(rule.tensor)
    kv_column_bytes = _kv_column_bytes(rule.tensor, work, schedule)
    before = (work.tile - window) * schedule.tiling.kv_tile
    return before * kv_column_bytes, geometry.tile_width[work.tile] * kv_column_bytes


def malformed(schedule: Schedule, geometry: Geometry) -> list[str]:
    """Find the instructions whose fields name no tile, no step or no slot, so that nothing can be said of their data.

    Returns
    -------
    list of str
        One message for each such instruction and field.
    """
    code = schedule.instructions
    ops, group, row = code[:, F_OP], code[:, F_GROUP], code[:, F_ROW]
    faults: list[str] = []

    def refuse(bad: npt.NDArray[np.bool_], problem: str) -> None:
        faults.extend(f"malformed instruction: {schedule.describe(int(i))} {problem}" for i in np.flatnonzero(bad))

    no_row = (row < 0) | (row >= geometry.rows)
    refuse(no_row | (group < 0) | (group >= geometry.groups), "works on a row block that does not exist")
    tiles = np.where(np.isin(ops, TILE_OPS), geometry.tiles, np.where(ops == OP_SOFTMAX, geometry.passes, 1 << 30))
    refuse((code[:, F_TILE] < 0) | (code[:, F_TILE] >= tiles), "works on a tile or a pass that does not exist")
    steps = np.where(np.isin(ops, STEP_OPS), geometry.row_pairs[np.where(no_row, 0, row)], 1 << 30)
    refuse((code[:, F_STEP] < 0) | (code[:, F_STEP] >= steps), "is at a step that its row block does not have")
    only_reduces = (ops == OP_SOFTMAX) & (code[:, F_TILE] < geometry.first_write)
    for op, rules in RULES.items():
        for operand in {rule.operand for rule in rules if rule.operand >= 0}:
            slot = code[:, operand]
            refuse((ops == op) & (slot < 0) & ~(only_reduces & (operand == F_DST)), "lacks a slot")
            if not schedule.arch.l1.shared:
                away = slot // len(schedule.slots) != code[:, F_QUEUE] // UNITS
                refuse((ops == op) & (slot >= 0) & away, "uses a slot in another core's private L1")
    loads = np.isin(ops, LOADS_OF_KV)
    refuse(loads & (code[:, F_TILE] + code[:, F_STEP] >= geometry.tiles), "loads tiles that do not exist")
    to_row_block = in_row_block(schedule, code[:, F_DST])
    refuse(loads & (code[:, F_STEP] > 0) & ~to_row_block, "loads several tiles to a place for one")
    window = np.where(ops == OP_QK, geometry.k_window, geometry.v_window)
    outside = ((ops == OP_QK) | (ops == OP_PV)) & (code[:, F_TILE] < window)
    early_slot = np.where(np.isin(np.arange(len(code)), victims_of(schedule)), code[:, F_ALT], -1)
    in_window = in_row_block(schedule, code[:, F_SRC1]) | in_row_block(schedule, early_slot)
    refuse(outside & in_window, "reads a tile from the window that is not in there")
    return faults + broken_links(schedule, geometry)


def event_ranks(timeline: Timeline) -> tuple[IntArray, IntArray]:
    """Put all starts and ends in one order.

    At equal cycles, ends come before starts, so that a unit may use at once what another has just finished.
    Instructions that take no time start and end among the starts, in program order.

    Returns
    -------
    (int64[n], int64[n])
        The place of each instruction's start, and of its end, in that order; all 2 n places differ.
    """
    n = len(timeline.start)
    takes_time = timeline.end > timeline.start
    cycle = np.concatenate([timeline.start, timeline.end])
    is_end = np.repeat([0, 1], n)
    phase = np.concatenate([np.ones(n, np.int64), np.where(takes_time, 0, 1)])
    order = np.lexsort((is_end, np.tile(np.arange(n), 2), phase, cycle))
    ranks = np.empty(2 * n, np.int64)
    ranks[order] = np.arange(2 * n)
    return ranks[:n], ranks[n:]
