"""What each instruction reads and writes, and in which order: the facts that `audit` and `execute` share.

`list_accesses` applies the rules of `access_rules` to a schedule and gives byte ranges; nothing here looks at the
dependencies that the schedule declares.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mas_sim.access_rules import (
    ALL_PASSES,
    ALL_STEPS,
    CARRIED,
    DRAM_C,
    NEXT_PASS,
    NEXT_STEP,
    NORMALIZED,
    PASS,
    READY,
    ROW_DONE,
    RULES,
    STEP,
    TILE_DONE,
    UNCORRECTED,
    WITH_MASK,
    Rule,
    rules_of,
)
from mas_sim.geometry import MASKED, RAW, TENSORS, Flags, Geometry, in_row_block, pass_of
from mas_sim.overwrites import Overwrites
from mas_sim.schedule import (
    F_GROUP,
    F_OP,
    F_ROW,
    F_SRC1,
    F_STEP,
    F_TILE,
    OP_ONLINE,
    OP_TILE_SOFTMAX,
    SLOT_BYTES,
    SLOT_OFFSET,
    T_K,
    T_O,
    T_PART,
    T_Q,
    T_S,
    T_STATS,
    T_V,
    IntArray,
    Schedule,
)
from mas_sim.timeline import Timeline


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
    """Apply the rules of every operation to its instructions; those must have passed `malformed`.

    Products that do lost work again read their earlier tiles as well, in the time that they take themselves.
    """
    ops = schedule.instructions[:, F_OP]
    redoing, earlier = overwrites.redone.T
    parts = []
    for op in RULES:
        chosen, again = np.flatnonzero(ops == op), ops[redoing] == op
        for rule in rules_of(op, geometry):
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
        Fields of the instructions. `step` runs over the row block's list where a rule covers whole rows, and `tile`
        over the window's tiles where it covers those.
    number
        The pass of a softmax.
    pair
        The pair of row block and step.
    """

    instruction: IntArray
    named_by: IntArray
    group: IntArray
    row: IntArray
    tile: IntArray
    step: IntArray
    number: IntArray
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
    return _Work(chosen, named_by, group, row, tile, step, pass_of(code[named_by]), geometry.row_first[row] + step)


def _piece_of(tensor: int, work: _Work, geometry: Geometry) -> IntArray:
    """Number the pieces of a tensor: pairs of C, P and partial O, kv tiles of K and V, row blocks of the others."""
    if tensor in (T_S, T_PART):
        return work.group * geometry.pairs + work.pair
    if tensor in (T_K, T_V):
        return geometry.key_of[work.group] * geometry.tiles + work.tile
    return work.group * geometry.rows + work.row


def _stage_of(rule: Rule, work: _Work, geometry: Geometry) -> IntArray:
    """Turn a rule's stage code (`NONE` to `NORMALIZED`) into numbers, which grow as the work goes on."""
    if rule.tensor == T_S:
        return _score_stage(rule.stage, work, geometry)
    if rule.tensor == T_STATS:
        return _stats_stage(rule.stage, work, geometry)
    if rule.tensor == T_O:
        return _output_stage(rule.stage, work, geometry)
    return np.zeros_like(work.step)


def _score_stage(stage: int, work: _Work, geometry: Geometry) -> IntArray:
    """Stages of C and P: `RAW`, `MASKED`, then one more for each softmax pass from the first on that changes them."""
    ready = np.where(geometry.pair_partial[work.pair], MASKED, RAW)
    if stage in (PASS, NEXT_PASS):
        done = work.number + (stage == NEXT_PASS)
        return np.where(done > geometry.first_write, MASKED + done, ready)
    if stage == ALL_PASSES:
        return np.full_like(ready, MASKED + geometry.passes)
    return ready if stage == READY else np.full_like(ready, MASKED if stage == WITH_MASK else RAW)


def _stats_stage(stage: int, work: _Work, geometry: Geometry) -> IntArray:
    """Stages of a row block's statistics: passes done on them. Over kv tiles, a phase of passes goes tile by tile."""
    passes, number = geometry.passes, work.number
    if stage == ROW_DONE:
        return passes * geometry.row_pairs[work.row]
    if stage in (CARRIED, TILE_DONE):
        return passes * (work.step + (stage == TILE_DONE))
    if geometry.softmax_op in (OP_TILE_SOFTMAX, OP_ONLINE):
        first, last = geometry.phase_first[number], geometry.phase_last[number]
        number = first * geometry.row_pairs[work.row] + work.step * (last - first) + number - first
    return number + (stage == NEXT_PASS)


def _output_stage(stage: int, work: _Work, geometry: Geometry) -> IntArray:
    """Stages of an output: products added, or, if it is online, twice as many, corrections counting as well.

    Online, the correction for step s makes stage `2 s`, its product `2 s + 1`, the division of all T steps `2 T`.
    """
    pairs = geometry.row_pairs[work.row]
    if not geometry.online:
        return pairs if stage in (ALL_STEPS, NORMALIZED) else work.step + (stage == NEXT_STEP)
    if stage in (ALL_STEPS, NORMALIZED):
        return 2 * pairs - (stage == ALL_STEPS)
    return 2 * work.step + {UNCORRECTED: -1, STEP: 0, NEXT_STEP: 1}[stage]


def _bytes_of(tensor: int, stage: IntArray, work: _Work, schedule: Schedule, geometry: Geometry) -> IntArray:
    """Bytes of the data itself, ragged groups and tiles taken as small as they are."""
    grid, workload = schedule.grid, schedule.workload
    element = workload.bytes_per_element
    if tensor in (T_K, T_V):
        return _kv_column_bytes(tensor, work, schedule) * geometry.tile_width[work.tile]
    lines = grid.group_batches[work.group] * grid.group_heads[work.group] * geometry.row_height[work.row]
    if tensor == T_S:
        return lines * geometry.pair_width[work.pair] * element
    if tensor == T_STATS:  # maximum and sum; online, the correction of what came before as well
        return (3 if geometry.online else 2) * lines * workload.accumulator_bytes
    if tensor == T_Q:
        return lines * workload.head_dim_qk * element
    sums = lines * geometry.output_columns(workload.head_dim_v) * workload.accumulator_bytes
    if tensor == T_PART:
        return sums
    unfinished = geometry.online & (stage < 2 * geometry.row_pairs[work.row])
    return np.where(unfinished, sums, lines * workload.head_dim_v * element)


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
        need = _bytes_of(rule.tensor, stage, work, schedule, geometry)
    accesses = Accesses(work.instruction, np.full_like(first, rule.is_write), version, first, last, need)
    there = _takes_place(rule, work, stage, redoing, geometry)
    return Accesses(*(column[there] for column in accesses))


def _takes_place(rule: Rule, work: _Work, stage: IntArray, redoing: IntArray, geometry: Geometry) -> Flags:
    """Whether accesses happen: not everything that a rule lists is written or read by every pass and every step."""
    there = np.ones(len(stage), np.bool_)
    if rule.tensor == T_S and rule.stage == NEXT_PASS:
        there = work.number >= geometry.first_write
    elif rule.tensor in (T_O, T_STATS) and not rule.is_write:
        there = stage > 0
    if rule.tensor == T_O and not rule.is_write:
        # Of an output that is computed anew, what was there before is lost.
        there &= ~np.isin(work.instruction, redoing)
    if rule.tensor == T_STATS and geometry.online and rule.stage in (PASS, CARRIED):
        # The first pass over a kv tile takes the statistics from where they were.
        there &= (work.number == 0) == (rule.stage == CARRIED)
    return there


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
