"""What a tiling means before any instruction is written: the grid of work items, the cost of each kind, the L1 slots.

Compiled helpers that all dataflows share. A *kind* is an operation on tiles of one shape; since tiles are full or
ragged and groups of heads come in a few sizes, a schedule has tens of kinds whatever its length, and costs are
computed once a kind.
"""

import numpy as np

from mas_sim._jit import jit, leaf
from mas_sim.costs import (
    P_ACC_BYTES,
    P_ACC_ELEMENT,
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
    ceil_div,
    cost_of_dma,
    cost_of_matmul,
    cost_of_softmax,
)
from mas_sim.schedule import (
    COST_FIELDS,
    SLOT_BYTES,
    SLOT_OFFSET,
    SLOT_TENSOR,
    T_K,
    T_O,
    T_Q,
    T_S,
    T_STATS,
    T_V,
    Grid,
    IntArray,
)
from mas_sim.tiling import (
    TL_BATCH,
    TL_HEAD,
    TL_K_BUFFERS,
    TL_K_RESIDENT,
    TL_KV,
    TL_O_BUFFERS,
    TL_Q,
    TL_Q_BUFFERS,
    TL_SPLIT,
    TL_V_BUFFERS,
    TL_V_RESIDENT,
)

# First kind of each operation, int64[KIND_BASES]; indices within are `class * 2 + ragged row`, then `* 2 + ragged
# kv tile`.
KB_LOAD_Q, KB_STORE_O, KB_LOAD_K, KB_LOAD_V, KB_QK, KB_PV, KB_SOFTMAX = 0, 1, 2, 3, 4, 5, 6
KB_STORE_C, KB_LOAD_C, KB_STORE_P, KB_LOAD_P = 7, 8, 9, 10
KB_ROW_CLASSES, KB_PASSES, KB_TOTAL = 11, 12, 13
KIND_BASES = 14
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


@leaf
def tile_width(p: IntArray, t: IntArray, j: int) -> int:
    """Columns of kv tile j; the last one may be ragged."""
    return int(min(t[TL_KV], p[P_NKV] - j * t[TL_KV]))


@jit
def make_grid(p: IntArray, t: IntArray) -> Grid:
    """Cut the workload; see `schedule.Grid` for the arrays."""
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
    tiles = ceil_div(p[P_NKV], t[TL_KV])
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
def kind_bases(grid: Grid, passes: int) -> IntArray:
    """First kind of each operation; int64[KIND_BASES]."""
    classes, lengths = grid.class_heads.shape[0], grid.class_length.shape[0]
    by_row, by_tile, by_both, by_length = classes * 2, classes * 2, classes * 4, classes * 2 * lengths
    base = np.zeros(KIND_BASES, np.int64)
    sizes = (by_row, by_row, by_tile, by_tile, by_both, by_both * PV_VARIANTS, by_length * passes)
    total = 0
    for index, size in enumerate(sizes):
        base[index] = total
        total += size
    for index, size in enumerate((by_both, by_length, by_length, by_both)):
        base[KB_STORE_C + index] = total
        total += size
    base[KB_ROW_CLASSES], base[KB_PASSES], base[KB_TOTAL] = lengths, passes, total
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


@leaf
def output_spills(p: IntArray, heads: int, m: int) -> bool:
    """Whether partial sums of O do not fit the L0 accumulators and go through L1 between kv tiles."""
    return bool(heads * m * p[P_F] * p[P_ACC_ELEMENT] > p[P_ACC_BYTES])


@leaf
def group_heads(p: IntArray, t: IntArray) -> int:
    """(batch, head) pairs of a full group."""
    return int(min(t[TL_BATCH], p[P_BATCH]) * min(t[TL_HEAD], p[P_HEADS]))


@leaf
def group_kv_heads(p: IntArray, t: IntArray) -> int:
    """(batch, K/V head) pairs that a group may touch at most."""
    share = p[P_HEADS] // p[P_KV_HEADS]
    heads = min(t[TL_HEAD], p[P_HEADS])
    touched = heads if share == 1 else (1 if share % heads == 0 else (heads + share - 2) // share + 1)
    if heads % share == 0:
        touched = heads // share
    return int(min(t[TL_BATCH], p[P_BATCH]) * min(touched, p[P_KV_HEADS]))


@leaf
def add_slots(slots: IntArray, n: int, offset: int, tensor: int, count: int, size_bytes: int) -> tuple[int, int]:
    """Append `count` slots of `size_bytes` each, one behind the other, from `offset`.

    Returns
    -------
    (int, int)
        The new number of slots, and the offset behind them.
    """
    for _ in range(count):
        slots[n, SLOT_TENSOR], slots[n, SLOT_OFFSET], slots[n, SLOT_BYTES] = tensor, offset, size_bytes
        n += 1
        offset += size_bytes
    return n, offset


@leaf
def kv_slot_count(tiles: int, resident: int, buffers: int) -> int:
    """Slots of K or V: the resident tiles, as often as they are buffered, and the buffers of the streamed ones."""
    return resident * buffers + min(buffers, tiles - resident)


@leaf
def add_kv_slots(
    slots: IntArray,
    n: int,
    offset: int,
    tensor: int,
    resident: int,
    buffers: int,
    head_dim: int,
    p: IntArray,
    t: IntArray,
) -> tuple[int, int]:
    """Append the slots of K or V: `buffers` sets of the resident tiles, then those of the streamed tiles.

    A resident last tile has a slot of its own ragged size; a streamed one shares the slots of the full tiles.
    """
    tiles = ceil_div(p[P_NKV], t[TL_KV])
    column_bytes = group_kv_heads(p, t) * head_dim * p[P_ELEMENT]
    for _ in range(buffers):
        for j in range(resident):
            n, offset = add_slots(slots, n, offset, tensor, 1, tile_width(p, t, j) * column_bytes)
    streamed = min(buffers, tiles - resident)
    width = tile_width(p, t, min(resident, tiles - 1))
    return add_slots(slots, n, offset, tensor, streamed, width * column_bytes)


@leaf
def stats_bytes(p: IntArray, heads: int, rows: int) -> int:
    """Bytes of the running row maximum and row sum of a row block, in the accumulator's data type."""
    return int(2 * heads * rows * p[P_ACC_ELEMENT])


@leaf
def output_bytes(p: IntArray, heads: int, rows: int, tiles: int) -> int:
    """Bytes of an output tile in L1: in the accumulator's data type if its partial sums go through L1."""
    spills = tiles > 1 and output_spills(p, heads, rows)
    return int(heads * rows * p[P_F] * (p[P_ACC_ELEMENT] if spills else p[P_ELEMENT]))


@leaf
def plan_fused(p: IntArray, t: IntArray, row_length: int, rings: int, slots: IntArray, places: IntArray) -> int:
    """Lay out one core's L1 for a fused dataflow with `rings` row blocks of C and P; return the number of slots.

    Fills `slots`, int64[>= slots, SLOT_FIELDS], and `places`, int64[PLACES]: the first slot of each tensor.
    """
    heads = group_heads(p, t)
    q_bytes = heads * t[TL_Q] * p[P_E] * p[P_ELEMENT]
    places[T_Q] = 0
    n, offset = add_slots(slots, 0, 0, T_Q, t[TL_Q_BUFFERS], q_bytes)
    places[T_K] = n
    n, offset = add_kv_slots(slots, n, offset, T_K, t[TL_K_RESIDENT], t[TL_K_BUFFERS], p[P_E], p, t)
    places[T_V] = n
    n, offset = add_kv_slots(slots, n, offset, T_V, t[TL_V_RESIDENT], t[TL_V_BUFFERS], p[P_F], p, t)
    places[T_S] = n
    n, offset = add_slots(slots, n, offset, T_S, rings, heads * t[TL_Q] * row_length * p[P_ELEMENT])
    places[T_STATS] = n
    n, offset = add_slots(slots, n, offset, T_STATS, 1, stats_bytes(p, heads, t[TL_Q]))
    places[T_O] = n
    tiles = ceil_div(row_length, t[TL_KV])
    n, offset = add_slots(slots, n, offset, T_O, t[TL_O_BUFFERS], output_bytes(p, heads, t[TL_Q], tiles))
    return n
