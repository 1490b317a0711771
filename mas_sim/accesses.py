"""What each instruction reads and writes, and in which order: the facts that `audit` and `execute` share.

One table, `RULES`, says for every operation which operand holds which version of which tensor. `list_accesses` applies
it to a schedule and gives byte ranges; nothing here looks at the dependencies that the schedule declares. Data has
*versions*: Q, K and V have one per tile; the scores of one kv tile have one per softmax pass that went over them; an
output row block has one per product added to it.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mas_sim.schedule import (
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
    SLOT_TENSOR,
    T_K,
    T_O,
    T_Q,
    T_S,
    T_STATS,
    T_V,
    TENSOR_NAMES,
    UNITS,
    IntArray,
    Schedule,
)
from mas_sim.timeline import Timeline

DRAM_C, DRAM_P = -1, -2
"""Operands that are no L1 slot: the scores and the probabilities that a dataflow keeps in DRAM."""

TENSORS = len(TENSOR_NAMES)

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
    """

    operand: int
    tensor: int
    is_write: bool
    stage: int = NONE
    whole_row: bool = False


RULES: dict[int, tuple[Rule, ...]] = {
    OP_LOAD_Q: (Rule(F_DST, T_Q, True),),
    OP_LOAD_K: (Rule(F_DST, T_K, True),),
    OP_LOAD_V: (Rule(F_DST, T_V, True),),
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
"""What each operation reads and writes. Where a stage of an output or of stats is 0, there is nothing to read yet."""

TILE_OPS = (OP_LOAD_K, OP_LOAD_V, OP_QK, OP_PV, OP_STORE_C, OP_LOAD_P)
"""Operations whose tile field is a kv tile."""

STEP_OPS = (OP_QK, OP_PV, OP_STORE_C, OP_LOAD_P)
"""Operations whose step field is a place in the row block's list of kv tiles."""


@dataclass(frozen=True)
class Geometry:
    """Sizes of a schedule's tiles, and where the scores of each kv tile lie in a row block.

    A *pair* is a row block and a place in its list of kv tiles. A row block's scores lie pair by pair: all rows of the
    first kv tile, then all rows of the second, each as high as a full row block of a full group.

    Attributes
    ----------
    groups, rows, pairs, tiles, passes
        Groups of heads, row blocks, pairs, kv tiles, softmax passes.
    row_height : int64[rows]
        Rows of each row block.
    tile_width : int64[tiles]
        Columns of each kv tile.
    row_first, row_pairs : int64[rows]
        First pair of each row block, and how many it has.
    pair_width, pair_before : int64[pairs]
        Columns of each pair, and columns in front of it in its row block.
    key_of : int64[groups]
        Equal for groups that use the very same K and V.
    columns
        Columns that a full row block has room for.
    """

    groups: int
    rows: int
    pairs: int
    tiles: int
    passes: int
    row_height: IntArray
    tile_width: IntArray
    row_first: IntArray
    row_pairs: IntArray
    pair_width: IntArray
    pair_before: IntArray
    key_of: IntArray
    columns: int

    @property
    def stages(self) -> int:
        """Versions of one piece of data at most."""
        return max(self.passes, int(self.row_pairs.max())) + 2


def make_geometry(schedule: Schedule) -> Geometry:
    """Measure the tiles of a schedule."""
    grid, tiling, workload = schedule.grid, schedule.tiling, schedule.workload
    rows, tiles = len(grid.row_ptr) - 1, tiling.kv_tiles(workload)
    tile_width = np.minimum(tiling.kv_tile, workload.n_kv - np.arange(tiles) * tiling.kv_tile)
    pair_width = tile_width[grid.row_tiles]
    row_pairs = np.diff(grid.row_ptr)
    ahead = np.concatenate([[0], np.cumsum(pair_width)])
    return Geometry(
        groups=len(grid.group_class),
        rows=rows,
        pairs=len(grid.row_tiles),
        tiles=tiles,
        passes=len(schedule.arch.vec.softmax_passes),
        row_height=np.minimum(tiling.q_tile, workload.n_q - np.arange(rows) * tiling.q_tile),
        tile_width=tile_width,
        row_first=grid.row_ptr[:-1],
        row_pairs=row_pairs,
        pair_width=pair_width,
        pair_before=ahead[:-1] - np.repeat(ahead[grid.row_ptr[:-1]], row_pairs),
        key_of=np.unique(grid.group_key, return_inverse=True)[1].astype(np.int64),
        columns=int(grid.row_length.max()),
    )


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


def list_accesses(schedule: Schedule, geometry: Geometry) -> Accesses:
    """Apply `RULES` to every instruction; those must have passed `malformed`."""
    ops = schedule.instructions[:, F_OP]
    parts = [
        _apply(rule, np.flatnonzero(ops == op), schedule, geometry) for op, rules in RULES.items() for rule in rules
    ]
    return Accesses(*(np.concatenate(column) for column in zip(*parts, strict=True)))


@dataclass(frozen=True)
class _Work:
    """The instructions that a rule applies to, and what they work on; int64[accesses] each.

    Attributes
    ----------
    instruction, group, row, tile, step
        Fields of the instructions; `tile` is the pass of a softmax. `step` runs over the row block's list where a rule
        covers whole rows.
    pair
        The pair of row block and step.
    """

    instruction: IntArray
    group: IntArray
    row: IntArray
    tile: IntArray
    step: IntArray
    pair: IntArray


def _work_of(rule: Rule, chosen: IntArray, schedule: Schedule, geometry: Geometry) -> _Work:
    """Look up what the instructions `chosen` work on, one entry for each access of the rule."""
    step = schedule.instructions[chosen, F_STEP].astype(np.int64)
    if rule.whole_row:
        repeats = geometry.row_pairs[schedule.instructions[chosen, F_ROW]]
        step = np.arange(repeats.sum()) - np.repeat(np.cumsum(repeats) - repeats, repeats)
        chosen = np.repeat(chosen, repeats)
    group, row, tile = (schedule.instructions[chosen, field].astype(np.int64) for field in (F_GROUP, F_ROW, F_TILE))
    return _Work(chosen, group, row, tile, step, geometry.row_first[row] + step)


def _piece_of(tensor: int, work: _Work, geometry: Geometry) -> IntArray:
    """Give each piece of a tensor a number: pairs of C and P, kv tiles of K and V, row blocks of the others."""
    if tensor == T_S:
        return work.group * geometry.pairs + work.pair
    if tensor in (T_K, T_V):
        return geometry.key_of[work.group] * geometry.tiles + work.tile
    return work.group * geometry.rows + work.row


def _stage_of(stage: int, work: _Work, geometry: Geometry) -> IntArray:
    """Turn a stage code (`NONE` to `ALL_STEPS`) into numbers."""
    if stage in (PASS, NEXT_PASS):
        return work.tile + (stage == NEXT_PASS)
    if stage in (STEP, NEXT_STEP):
        return work.step + (stage == NEXT_STEP)
    if stage == ALL_STEPS:
        return geometry.row_pairs[work.row]
    return np.full_like(work.step, geometry.passes if stage == ALL_PASSES else 0)


def _bytes_of(tensor: int, work: _Work, schedule: Schedule, geometry: Geometry) -> IntArray:
    """Bytes of the data itself, ragged groups and tiles taken as small as they are."""
    grid, workload = schedule.grid, schedule.workload
    element = workload.bytes_per_element
    if tensor in (T_K, T_V):
        head_dim = workload.head_dim_qk if tensor == T_K else workload.head_dim_v
        kv_heads = grid.group_batches[work.group] * grid.group_kv_heads[work.group]
        return kv_heads * geometry.tile_width[work.tile] * head_dim * element
    lines = grid.group_batches[work.group] * grid.group_heads[work.group] * geometry.row_height[work.row]
    if tensor == T_S:
        return lines * geometry.pair_width[work.pair] * element
    if tensor == T_STATS:
        return 2 * lines * workload.accumulator_bytes
    return lines * (workload.head_dim_qk if tensor == T_Q else workload.head_dim_v) * element


def _apply(rule: Rule, chosen: IntArray, schedule: Schedule, geometry: Geometry) -> Accesses:
    """List the accesses of one rule in the instructions `chosen`."""
    work = _work_of(rule, chosen, schedule, geometry)
    piece = _piece_of(rule.tensor, work, geometry)
    stage = _stage_of(rule.stage, work, geometry)
    version = (piece * geometry.stages + stage) * TENSORS + rule.tensor
    if rule.operand < 0:
        behind_l1 = schedule.core_l1_bytes * schedule.arch.cores
        first = behind_l1 + (DRAM_C - rule.operand) * geometry.groups * geometry.pairs + piece
        size, need = np.ones_like(first), np.zeros_like(first)
    else:
        core, slot = np.divmod(
            schedule.instructions[work.instruction, rule.operand].astype(np.int64), len(schedule.slots)
        )
        first = core * schedule.core_l1_bytes + schedule.slots[slot, SLOT_OFFSET]
        size = schedule.slots[slot, SLOT_BYTES]
        need = _bytes_of(rule.tensor, work, schedule, geometry)
        if rule.tensor == T_S:
            in_row = schedule.slots[slot, SLOT_TENSOR] == T_S
            column_bytes = size // geometry.columns
            first = first + np.where(in_row, geometry.pair_before[work.pair] * column_bytes, 0)
            size = np.where(in_row, geometry.pair_width[work.pair] * column_bytes, size)
    accesses = Accesses(work.instruction, np.full_like(first, rule.is_write), version, first, first + size, need)
    if rule.is_write or rule.tensor not in (T_O, T_STATS):
        return accesses
    return Accesses(*(column[stage > 0] for column in accesses))


def describe_version(version: int, schedule: Schedule, geometry: Geometry) -> str:
    """Say in words what a version is: `C/P(group 0, row 1, step 2) after 3 softmax passes`."""
    rest, tensor = divmod(version, TENSORS)
    piece, stage = divmod(rest, geometry.stages)
    if tensor in (T_K, T_V):
        key, tile = divmod(piece, geometry.tiles)
        return f"{TENSOR_NAMES[tensor]}(group {int(np.argmax(geometry.key_of == key))}, tile {tile})"
    if tensor == T_S:
        group, pair = divmod(piece, geometry.pairs)
        row = int(np.searchsorted(geometry.row_first, pair, side="right")) - 1
        place = f"group {group}, row {row}, step {pair - geometry.row_first[row]}"
        return f"C/P({place}) after {stage} of {geometry.passes} softmax passes"
    group, row = divmod(piece, geometry.rows)
    progress = {T_O: f" after {stage} products", T_STATS: f" after {stage} softmax passes"}
    return f"{TENSOR_NAMES[tensor]}(group {group}, row {row}){progress.get(tensor, '')}"


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
    for op, rules in RULES.items():
        for operand in {rule.operand for rule in rules if rule.operand >= 0}:
            slot = code[:, operand]
            refuse((ops == op) & (slot < 0), "lacks a slot")
            if not schedule.arch.l1.shared:
                away = slot // len(schedule.slots) != code[:, F_QUEUE] // UNITS
                refuse((ops == op) & (slot >= 0) & away, "uses a slot in another core's private L1")
    return faults


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
