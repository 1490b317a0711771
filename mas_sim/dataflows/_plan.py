"""What a tiling means before any instruction is written: the grid of work items, the cost of each kind, the L1 slots.

Compiled helpers that all dataflows share. A *kind* is an operation on tiles of one shape; since tiles are full or
ragged and groups of heads come in a few sizes, a schedule has tens of kinds whatever its length, and costs are
computed once a kind.
"""

import numpy as np

from mas_sim._jit import jit, leaf
from mas_sim.costs import (
    P_BATCH,
    P_CORES,
    P_E,
    P_ELEMENT,
    P_F,
    P_HEADS,
    P_KV_HEADS,
    P_NKV,
    P_NQ,
    P_PATH,
    S_WRITES,
    ceil_div,
    cost_of_dma,
    cost_of_matmul,
    cost_of_softmax,
)
from mas_sim.dataflows._slots import group_kv_heads, output_spills, window_bytes
from mas_sim.schedule import (
    COST_FIELDS,
    Grid,
    IntArray,
)
from mas_sim.tiling import (
    TL_BATCH,
    TL_HEAD,
    TL_KV,
    TL_Q,
    TL_SPLIT,
)

# First kind of each operation, int64[KIND_BASES]; indices within are `class * 2 + ragged row`, then `* 2 + ragged
# kv tile`.
KB_LOAD_Q, KB_STORE_O, KB_LOAD_K, KB_LOAD_V, KB_QK, KB_PV, KB_SOFTMAX = 0, 1, 2, 3, 4, 5, 6
KB_STORE_C, KB_LOAD_C, KB_STORE_P, KB_LOAD_P = 7, 8, 9, 10
KB_LOAD_WINDOW = 11  # the tiles that softmax may overwrite, as one transfer
KB_ROW_CLASSES, KB_PASSES, KB_FIRST_WRITE, KB_TOTAL = 12, 13, 14, 15  # not kinds: counts, and the first writing pass
KIND_BASES = 16
PV_VARIANTS = 4

MAX_GROUP_CLASSES = 32


@leaf
def group_count(p: IntArray, t: IntArray) -> int:
    """Number of groups of heads."""
    return ceil_div(p[P_BATCH], t[TL_BATCH]) * ceil_div(p[P_HEADS], t[TL_HEAD])


@leaf
def item_count(p: IntArray, t: IntArray) -> int:
    """Number of work items: row blocks of all groups."""
    return group_count(p, t) * ceil_div(p[P_NQ], t[TL_Q])


@leaf
def core_items(p: IntArray, t: IntArray, core: int) -> tuple[int, int]:
    """Items `[first, last)` of a core; items are numbered `group * row_blocks + row block`.

    Split by `groups`, core c of n takes groups `[c G // n, (c+1) G // n)`; split by `items`, the same rule over
    all items. With fewer groups (items) than cores, the first cores are among the idle ones.
    """
    rows = ceil_div(p[P_NQ], t[TL_Q])
    groups = group_count(p, t)
    unit = rows if t[TL_SPLIT] == 0 else 1
    total = groups if t[TL_SPLIT] == 0 else groups * rows
    return core * total // p[P_CORES] * unit, (core + 1) * total // p[P_CORES] * unit


@leaf
def active_core_count(p: IntArray, t: IntArray) -> int:
    """Cores that have at least one item."""
    active = 0
    for core in range(p[P_CORES]):
        first, last = core_items(p, t, core)
        if last > first:
            active += 1
    return active


@jit
def make_grid(p: IntArray, t: IntArray, lists: bool) -> Grid:
    """Cut the workload; see `schedule.Grid` for the arrays.

    Without `lists`, every row block's list of kv tiles is left empty: costs and bounds do not need them, and for a long
    sequence in small tiles they are as long as its schedule.
    """
    n_heads = ceil_div(p[P_HEADS], t[TL_HEAD])
    groups = group_count(p, t)
    shape = np.empty((7, groups), np.int64)
    group_class = np.empty(groups, np.int64)
    class_heads = np.empty(MAX_GROUP_CLASSES, np.int64)
    class_kv = np.empty(MAX_GROUP_CLASSES, np.int64)
    classes = 0
    share = p[P_HEADS] // p[P_KV_HEADS]
    for g in range(groups):
        batch, head = g // n_heads * t[TL_BATCH], g % n_heads * t[TL_HEAD]
        batches, heads = min(t[TL_BATCH], p[P_BATCH] - batch), min(t[TL_HEAD], p[P_HEADS] - head)
        kv_head = head // share
        kv_heads = (head + heads - 1) // share - kv_head + 1
        shape[0, g], shape[1, g], shape[2, g] = batches, heads, kv_heads
        shape[3, g], shape[4, g], shape[5, g] = batch, head, kv_head
        shape[6, g] = (batch * p[P_KV_HEADS] + kv_head) * (p[P_KV_HEADS] + 1) + kv_heads
        cls = 0
        while cls < classes and not (class_heads[cls] == batches * heads and class_kv[cls] == batches * kv_heads):
            cls += 1
        if cls == classes:
            class_heads[cls], class_kv[cls] = batches * heads, batches * kv_heads
            classes += 1
        group_class[g] = cls
    rows = ceil_div(p[P_NQ], t[TL_Q])
    tiles = ceil_div(p[P_NKV], t[TL_KV]) if lists else 0
    row_ptr = np.arange(rows + 1) * tiles
    row_tiles = np.empty(rows * tiles, np.int64)
    for i in range(rows):
        for j in range(tiles):
            row_tiles[i * tiles + j] = j
    row_length = np.full(rows, p[P_NKV], np.int64)
    row_class = np.zeros(rows, np.int64)
    class_length = np.full(1, p[P_NKV], np.int64)
    return Grid(
        shape[0], shape[1], shape[2], shape[3], shape[4], shape[5], shape[6],
        group_class, class_heads[:classes], class_kv[:classes],
        row_ptr, row_tiles, row_length, row_class, class_length,
    )  # fmt: skip


@jit
def kind_bases(grid: Grid, passes: IntArray) -> IntArray:
    """First kind of each operation; int64[KIND_BASES]. `passes` is the softmax pass table."""
    n_passes = passes.shape[0]
    classes, lengths = grid.class_heads.shape[0], grid.class_length.shape[0]
    by_row, by_tile, by_both, by_length = classes * 2, classes * 2, classes * 4, classes * 2 * lengths
    base = np.zeros(KIND_BASES, np.int64)
    sizes = (by_row, by_row, by_tile, by_tile, by_both, by_both * PV_VARIANTS, by_length * n_passes)
    total = 0
    for index, size in enumerate(sizes):
        base[index] = total
        total += size
    for index, size in enumerate((by_both, by_length, by_length, by_both, classes)):
        base[KB_STORE_C + index] = total
        total += size
    base[KB_ROW_CLASSES], base[KB_PASSES], base[KB_TOTAL] = lengths, n_passes, total
    while base[KB_FIRST_WRITE] < n_passes - 1 and passes[base[KB_FIRST_WRITE], S_WRITES] == 0:
        base[KB_FIRST_WRITE] += 1
    return base


@leaf
def _fill_tile_costs(
    costs: IntArray, base: IntArray, cls: int, ragged_row: int, ragged_kv: int, shape: tuple[int, int, int],
    path: int, spills: bool, p: IntArray,
) -> None:  # fmt: skip
    """Costs of the kinds that work on one tile of C: its products, and its transfers if C and P go through DRAM."""
    m, n, heads = shape
    index = (cls * 2 + ragged_row) * 2 + ragged_kv
    cost_of_matmul(costs[base[KB_QK] + index], m, p[P_E], n, heads, False, 0, path, p)
    for variant in range(PV_VARIANTS):
        kind = base[KB_PV] + index * PV_VARIANTS + variant
        full_variant = variant + (4 if spills else 0)
        cost_of_matmul(costs[kind], m, n, p[P_F], heads, True, full_variant, path, p)
    cost_of_dma(costs[base[KB_STORE_C] + index], heads * m * n * p[P_ELEMENT], False, p)
    cost_of_dma(costs[base[KB_LOAD_P] + index], heads * m * n * p[P_ELEMENT], True, p)


@jit
def cost_table(p: IntArray, t: IntArray, passes: IntArray, grid: Grid, base: IntArray, via_dram: bool) -> IntArray:
    """Fill the costs of every kind that the tiling can need.

    Parameters
    ----------
    via_dram
        The dataflow moves C and P through DRAM itself (`layer_wise`), so the MAC-VEC path is L1 whatever the arch says.

    Returns
    -------
    int64[kinds, COST_FIELDS]
        Rows of shapes that do not occur stay zero.
    """
    costs = np.zeros((base[KB_TOTAL], COST_FIELDS), np.int64)
    path = 0 if via_dram else p[P_PATH]
    element = p[P_ELEMENT]
    rows, tiles = ceil_div(p[P_NQ], t[TL_Q]), ceil_div(p[P_NKV], t[TL_KV])
    lengths = grid.class_length.shape[0]
    for cls in range(grid.class_heads.shape[0]):
        heads, kv_heads = grid.class_heads[cls], grid.class_kv[cls]
        window = window_bytes(p, t, grid.row_length.max()) // group_kv_heads(p, t) * kv_heads
        cost_of_dma(costs[base[KB_LOAD_WINDOW] + cls], window, True, p)
        for ragged_kv in range(2):
            n = t[TL_KV] if ragged_kv == 0 else p[P_NKV] - (tiles - 1) * t[TL_KV]
            cost_of_dma(costs[base[KB_LOAD_K] + cls * 2 + ragged_kv], kv_heads * n * p[P_E] * element, True, p)
            cost_of_dma(costs[base[KB_LOAD_V] + cls * 2 + ragged_kv], kv_heads * n * p[P_F] * element, True, p)
        for ragged_row in range(2):
            m = t[TL_Q] if ragged_row == 0 else p[P_NQ] - (rows - 1) * t[TL_Q]
            if ragged_row == 1 and m == t[TL_Q]:
                continue
            index = cls * 2 + ragged_row
            spills = output_spills(p, heads, m)
            cost_of_dma(costs[base[KB_LOAD_Q] + index], heads * m * p[P_E] * element, True, p)
            cost_of_dma(costs[base[KB_STORE_O] + index], heads * m * p[P_F] * element, False, p)
            for ragged_kv in range(2):
                n = t[TL_KV] if ragged_kv == 0 else p[P_NKV] - (tiles - 1) * t[TL_KV]
                if ragged_kv == 0 or n < t[TL_KV]:
                    shape = (m, n, heads)
                    _fill_tile_costs(costs, base, cls, ragged_row, ragged_kv, shape, path, spills, p)
            for length in range(lengths):
                columns = grid.class_length[length]
                row = index * lengths + length
                cost_of_dma(costs[base[KB_LOAD_C] + row], heads * m * columns * element, True, p)
                cost_of_dma(costs[base[KB_STORE_P] + row], heads * m * columns * element, False, p)
                for step in range(passes.shape[0]):
                    kind = base[KB_SOFTMAX] + row * passes.shape[0] + step
                    cost_of_softmax(costs[kind], heads * m, columns, step, passes, path, p)
    return costs
