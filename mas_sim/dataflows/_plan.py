"""What a tiling means before any instruction is written: the grid of work items, the cost of each kind, the L1 slots.

Compiled helpers that all dataflows share. A *kind* is an operation on tiles of one shape; since tiles are full or
ragged and groups of heads come in a few sizes, a schedule has tens of kinds whatever its length, and costs are
computed once a kind.
"""

import numpy as np

from mas_sim._jit import jit, leaf
from mas_sim.costs import (
    P_ACC_ELEMENT,
    P_AHEAD,
    P_BACK,
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
    S_REDUCTIONS,
    S_WRITES,
    ceil_div,
)
from mas_sim.dataflows._numbers import (
    FLASH,
    FUSEMAX,
    LAYER_WISE,
    OVERLAP_NONE,
    SOFT_PIPE,
    TILEFLOW,
    by_tiles,
    first_pass,
    is_online,
    pass_count,
)
from mas_sim.dataflows._slots import group_kv_heads, output_columns, output_spills, window_bytes
from mas_sim.kind_costs import (
    V_DRAINS,
    V_FIRST,
    V_LAST,
    V_SPILLED,
    V_STAYS,
    V_TO_VEC,
    cost_of_add,
    cost_of_dma,
    cost_of_exp,
    cost_of_mask,
    cost_of_matmul,
    cost_of_normalize,
    cost_of_rescale,
    cost_of_softmax,
)
from mas_sim.schedule import (
    COST_FIELDS,
    PACK_BATCHES,
    PACK_FIELDS,
    PACK_LEAD,
    PACK_TAIL,
    PACK_WHOLE,
    R_LENGTH,
    R_PARTIAL,
    R_PARTIAL_RAGGED,
    R_RAGGED_KV,
    R_RAGGED_ROW,
    R_TILES,
    ROW_SHAPE_FIELDS,
    Grid,
    IntArray,
)
from mas_sim.tiling import (
    TL_BATCH,
    TL_EXP_ON,
    TL_HEAD,
    TL_KV,
    TL_OVERLAP,
    TL_Q,
    TL_SPLIT,
)

# First kind of each operation, int64[KIND_BASES]; indices within are `class * 2 + ragged row`, then `* 2 + ragged
# kv tile`; of whole rows `class * row classes + row class`.
KB_LOAD_Q, KB_STORE_O, KB_LOAD_K, KB_LOAD_V, KB_QK, KB_PV, KB_SOFTMAX = 0, 1, 2, 3, 4, 5, 6
KB_STORE_C, KB_LOAD_C, KB_STORE_P, KB_LOAD_P = 7, 8, 9, 10
KB_LOAD_WINDOW = 11  # the tiles that softmax may overwrite, as one transfer
KB_MASK, KB_EXP, KB_RESCALE, KB_ADD, KB_NORMALIZE = 12, 13, 14, 15, 16
# Not kinds: row classes, passes, the first pass that writes, passes up to the row's maximum and up to its sum, kinds.
KB_ROW_CLASSES, KB_PASSES, KB_FIRST_WRITE, KB_MAX_END, KB_SUM_END, KB_TOTAL = 17, 18, 19, 20, 21, 22
KIND_BASES = 23
PV_VARIANTS = 4

LATEST_CLASSES = 4
"""How many row classes are looked at for one of the same shape: those of neighbouring row blocks are alike."""


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
def _pack_group(packs: IntArray, batches: int, first_head: int, heads: int, share: int) -> int:
    """Fill `packs`, int64[PACK_FIELDS], for heads `[first_head, first_head + heads)`; return their K/V heads.

    The greater one of two incomplete sets of heads comes first, so that alike groups look alike.
    """
    lead = min(heads, (share - first_head % share) % share)
    whole, tail = (heads - lead) // share, (heads - lead) % share
    packs[PACK_BATCHES], packs[PACK_WHOLE] = batches, whole
    packs[PACK_LEAD], packs[PACK_TAIL] = max(lead, tail), min(lead, tail)
    return int(whole + (1 if lead > 0 else 0) + (1 if tail > 0 else 0))


@leaf
def _same(a: IntArray, b: IntArray) -> bool:
    same = True
    for i in range(a.shape[0]):
        same = same and a[i] == b[i]
    return same


@leaf
def shape_row(p: IntArray, t: IntArray, i: int, span: IntArray, shape: IntArray) -> None:
    """Fill row block i's range of kv tiles, int64[2], and its shape, int64[ROW_SHAPE_FIELDS].

    Row r stands at position `r + N_kv - N_q`, and keeps the keys of `[position - back, position + ahead]`. A row block
    visits the tiles that hold any key of any of its rows; one that all its rows keep whole needs no mask.
    """
    q, kv, n_kv = t[TL_Q], t[TL_KV], p[P_NKV]
    top = i * q + n_kv - p[P_NQ]
    bottom = min((i + 1) * q, p[P_NQ]) - 1 + n_kv - p[P_NQ]
    first = max(0, top - p[P_BACK]) // kv
    last = min(n_kv - 1, bottom + p[P_AHEAD]) // kv + 1
    tiles = ceil_div(n_kv, kv)
    whole_first = ceil_div(max(0, bottom - p[P_BACK]), kv)
    whole_last = min(tiles, (top + p[P_AHEAD] + 1) // kv) if top + p[P_AHEAD] + 1 < n_kv else tiles
    whole = max(0, min(whole_last, last) - max(whole_first, first))
    ragged = 1 if last == tiles and n_kv % kv else 0
    ragged_is_whole = whole > 0 and min(whole_last, last) == tiles
    span[0], span[1] = first, last
    shape[R_LENGTH] = min(last * kv, n_kv) - first * kv
    shape[R_TILES], shape[R_RAGGED_KV] = last - first, ragged
    shape[R_PARTIAL_RAGGED] = 1 if ragged and not ragged_is_whole else 0
    shape[R_PARTIAL] = last - first - whole - shape[R_PARTIAL_RAGGED]
    shape[R_RAGGED_ROW] = 1 if (i + 1) * q > p[P_NQ] else 0


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
    packs = np.zeros((groups + 1, PACK_FIELDS), np.int64)
    class_heads, class_kv = np.empty(groups, np.int64), np.empty(groups, np.int64)
    classes = 0
    share = p[P_HEADS] // p[P_KV_HEADS]
    for g in range(groups):
        batch, head = g // n_heads * t[TL_BATCH], g % n_heads * t[TL_HEAD]
        batches, heads = min(t[TL_BATCH], p[P_BATCH] - batch), min(t[TL_HEAD], p[P_HEADS] - head)
        kv_head = head // share
        kv_heads = _pack_group(packs[classes], batches, head, heads, share)
        shape[0, g], shape[1, g], shape[2, g] = batches, heads, kv_heads
        shape[3, g], shape[4, g], shape[5, g] = batch, head, kv_head
        shape[6, g] = (batch * p[P_KV_HEADS] + kv_head) * (p[P_KV_HEADS] + 1) + kv_heads
        cls = 0
        while cls < classes and not _same(packs[cls], packs[classes]):
            cls += 1
        if cls == classes:
            class_heads[cls], class_kv[cls] = batches * heads, batches * kv_heads
            classes += 1
        group_class[g] = cls
    rows = ceil_div(p[P_NQ], t[TL_Q])
    row_ptr, row_span = np.zeros(rows + 1, np.int64), np.empty((rows, 2), np.int64)
    row_length, row_class = np.empty(rows, np.int64), np.empty(rows, np.int64)
    row_shapes = np.empty((rows + 1, ROW_SHAPE_FIELDS), np.int64)
    shapes = 0
    for i in range(rows):
        shape_row(p, t, i, row_span[i], row_shapes[shapes])
        row_length[i] = row_shapes[shapes, R_LENGTH]
        row_ptr[i + 1] = row_ptr[i] + (row_shapes[shapes, R_TILES] if lists else 0)
        cls = max(0, shapes - LATEST_CLASSES)
        while cls < shapes and not _same(row_shapes[cls], row_shapes[shapes]):
            cls += 1
        row_class[i] = cls
        shapes = max(shapes, cls + 1)
    row_tiles = np.empty(row_ptr[rows], np.int64)
    for i in range(rows):
        for at in range(row_ptr[i], row_ptr[i + 1]):
            row_tiles[at] = row_span[i, 0] + at - row_ptr[i]
    return Grid(
        shape[0], shape[1], shape[2], shape[3], shape[4], shape[5], shape[6],
        group_class, class_heads[:classes], class_kv[:classes], packs[:classes],
        row_ptr, row_tiles, row_span, row_length, row_class, row_shapes[:shapes],
    )  # fmt: skip


@jit
def kind_bases(dataflow: int, t: IntArray, grid: Grid, passes: IntArray) -> IntArray:
    """First kind of each operation; int64[KIND_BASES]. `passes` is the softmax pass table."""
    first, n_passes = first_pass(dataflow, t, passes.shape[0]), pass_count(dataflow, t, passes.shape[0])
    classes, lengths = grid.class_heads.shape[0], grid.row_shapes.shape[0]
    by_row, by_tile, by_both, by_length = classes * 2, classes * 2, classes * 4, classes * lengths
    base = np.zeros(KIND_BASES, np.int64)
    softmax = (by_both if by_tiles(dataflow) else by_length) * n_passes
    whole_rows = by_length if dataflow in (LAYER_WISE, SOFT_PIPE) else 0
    sizes = (by_row, by_row, by_tile, by_tile, by_both, by_both * PV_VARIANTS, softmax)
    total = 0
    for index, size in enumerate(sizes):
        base[index] = total
        total += size
    rest = (by_both, whole_rows, whole_rows, by_both, classes, by_both, by_both, by_row, by_row, by_row)
    for index, size in enumerate(rest):
        base[KB_STORE_C + index] = total
        total += size
    base[KB_ROW_CLASSES], base[KB_PASSES], base[KB_TOTAL] = lengths, n_passes, total
    while base[KB_FIRST_WRITE] < n_passes - 1 and passes[first + base[KB_FIRST_WRITE], S_WRITES] == 0:
        base[KB_FIRST_WRITE] += 1
    for step in range(n_passes):
        if passes[first + step, S_REDUCTIONS] and base[KB_MAX_END] == 0:
            base[KB_MAX_END] = step + 1
        elif passes[first + step, S_REDUCTIONS]:
            base[KB_SUM_END] = step + 1
    return base


@leaf
def _pv_variant(dataflow: int, t: IntArray, flags: int, spills: bool) -> int:
    """Variant of the product O = P V (`V_*`) with such flags.

    `flash`: the vector unit rescales O between products, so each reads it from L1 and writes it there. `fusemax`: each
    product is a partial O that the vector unit adds up.
    """
    if dataflow == FLASH:
        return V_SPILLED + (flags & V_FIRST)
    if dataflow == FUSEMAX:
        return V_FIRST + V_TO_VEC + (V_STAYS if t[TL_EXP_ON] else 0)
    return (flags & (V_FIRST | V_LAST)) + (V_SPILLED if spills else 0)


@leaf
def _p_path(dataflow: int, path: int) -> int:
    """Return the path that P takes between MAC and VEC: `soft_pipe` stores it from L1, and loads it there again."""
    return 0 if dataflow == SOFT_PIPE else path


@leaf
def _fill_tile_costs(
    costs: IntArray, base: IntArray, dataflow: int, grid: Grid, cls: int, index: int, m: int, n: int, path: int,
    passes: IntArray, p: IntArray, t: IntArray,
) -> None:  # fmt: skip
    """Costs of the kinds that work on one tile of C of `m x n` a head; `index` is of its class and raggedness."""
    heads, packs = grid.class_heads[cls], grid.class_packs[cls]
    spills = output_spills(p, heads, m)
    held = heads * m * p[P_F] * p[P_ACC_ELEMENT] if dataflow == TILEFLOW and not spills else 0
    stays = dataflow == FUSEMAX and t[TL_EXP_ON] == 1
    scores = (V_STAYS + (V_DRAINS if t[TL_OVERLAP] == OVERLAP_NONE else 0)) if stays else 0
    cost_of_matmul(costs[base[KB_QK] + index], m, p[P_E], n, packs, False, scores, path, held, p)
    for flags in range(PV_VARIANTS):
        kind = base[KB_PV] + index * PV_VARIANTS + flags
        variant = _pv_variant(dataflow, t, flags, spills)
        cost_of_matmul(costs[kind], m, n, p[P_F], packs, True, variant, _p_path(dataflow, path), 0, p)
    cost_of_dma(costs[base[KB_STORE_C] + index], heads * m * n * p[P_ELEMENT], False, p)
    cost_of_dma(costs[base[KB_LOAD_P] + index], heads * m * n * p[P_ELEMENT], True, p)
    cost_of_mask(costs[base[KB_MASK] + index], heads * m * n, stays, path, p)
    if stays:
        cost_of_exp(costs[base[KB_EXP] + index], m, n, packs, p)
    if by_tiles(dataflow):
        for step in range(base[KB_PASSES]):
            kind = base[KB_SOFTMAX] + index * base[KB_PASSES] + step
            cost_of_softmax(costs[kind], heads * m, n, step, passes, path, path, p)


@leaf
def _fill_row_costs(
    costs: IntArray, base: IntArray, dataflow: int, grid: Grid, cls: int, m: int, ragged_row: int, path: int,
    passes: IntArray, p: IntArray, t: IntArray,
) -> None:  # fmt: skip
    """Costs of the kinds that work on whole rows, of `m` rows a head."""
    heads, index = grid.class_heads[cls], cls * 2 + ragged_row
    element, columns = p[P_ELEMENT], output_columns(dataflow, p, t)
    cost_of_dma(costs[base[KB_LOAD_Q] + index], heads * m * p[P_E] * element, True, p)
    cost_of_dma(costs[base[KB_STORE_O] + index], heads * m * p[P_F] * element, False, p)
    if is_online(dataflow):
        cost_of_rescale(costs[base[KB_RESCALE] + index], heads * m * columns, p)
        cost_of_add(costs[base[KB_ADD] + index], heads * m * columns, path, p)
        cost_of_normalize(costs[base[KB_NORMALIZE] + index], heads * m, p[P_F], p)
    if by_tiles(dataflow):
        return
    for length in range(base[KB_ROW_CLASSES]):
        if grid.row_shapes[length, R_RAGGED_ROW] != ragged_row:
            continue
        columns, row = grid.row_shapes[length, R_LENGTH], cls * base[KB_ROW_CLASSES] + length
        if dataflow == LAYER_WISE:
            cost_of_dma(costs[base[KB_LOAD_C] + row], heads * m * columns * element, True, p)
        if dataflow in (LAYER_WISE, SOFT_PIPE):
            cost_of_dma(costs[base[KB_STORE_P] + row], heads * m * columns * element, False, p)
        for step in range(base[KB_PASSES]):
            kind = base[KB_SOFTMAX] + row * base[KB_PASSES] + step
            cost_of_softmax(costs[kind], heads * m, columns, step, passes, path, _p_path(dataflow, path), p)


@jit
def cost_table(dataflow: int, p: IntArray, t: IntArray, passes: IntArray, grid: Grid, base: IntArray) -> IntArray:
    """Fill the costs of every kind that the tiling can need.

    Parameters
    ----------
    passes
        The dataflow's softmax pass table (`pack_softmax` of its `softmax_form`).

    Returns
    -------
    int64[kinds, COST_FIELDS]
        Rows of shapes that do not occur stay zero. `layer_wise` moves C and P through DRAM itself, so the MAC-VEC path
        is L1 there whatever the arch says.
    """
    costs = np.zeros((base[KB_TOTAL], COST_FIELDS), np.int64)
    path = 0 if dataflow == LAYER_WISE else p[P_PATH]
    element = p[P_ELEMENT]
    start = first_pass(dataflow, t, passes.shape[0])
    used = passes[start : start + base[KB_PASSES]]
    rows, tiles = ceil_div(p[P_NQ], t[TL_Q]), ceil_div(p[P_NKV], t[TL_KV])
    for cls in range(grid.class_heads.shape[0]):
        kv_heads = grid.class_kv[cls]
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
            _fill_row_costs(costs, base, dataflow, grid, cls, m, ragged_row, path, used, p, t)
            for ragged_kv in range(2):
                n = t[TL_KV] if ragged_kv == 0 else p[P_NKV] - (tiles - 1) * t[TL_KV]
                if ragged_kv == 0 or n < t[TL_KV]:
                    index = (cls * 2 + ragged_row) * 2 + ragged_kv
                    _fill_tile_costs(costs, base, dataflow, grid, cls, index, m, n, path, used, p, t)
    return costs
