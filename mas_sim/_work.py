"""What one tiling must do, in closed form: its exact actions and DRAM bytes, and a lower bound of its cycles.

Search prunes with it, so it must be quick as well as tight: `tiling_work` sums up what does not depend on the
buffers, and `least_cycles` adds what they cost. `Schedule.meter_counts` equals the actions; no simulation is below
the bound.
"""

from mas_sim._jit import leaf
from mas_sim._tally import N_LOADS, N_ROWS, N_WINDOW, tally_core
from mas_sim.costs import P_CORES, P_ISSUE, P_LATENCY, P_NQ, P_SYNC
from mas_sim.dataflows._numbers import (
    FLAT,
    FUSEMAX,
    LAYER_WISE,
    MAS,
    OVERLAP_NONE,
    SOFT_PIPE,
    TILEFLOW,
    by_tiles,
    in_pairs,
    is_online,
)
from mas_sim.dataflows._plan import (
    KB_ADD,
    KB_EXP,
    KB_LOAD_C,
    KB_LOAD_K,
    KB_LOAD_P,
    KB_LOAD_Q,
    KB_LOAD_V,
    KB_LOAD_WINDOW,
    KB_MASK,
    KB_MAX_END,
    KB_NORMALIZE,
    KB_PASSES,
    KB_PV,
    KB_QK,
    KB_RESCALE,
    KB_ROW_CLASSES,
    KB_SOFTMAX,
    KB_STORE_C,
    KB_STORE_O,
    KB_STORE_P,
    KB_SUM_END,
    PV_VARIANTS,
    core_items,
)
from mas_sim.dataflows._slots import window_tiles
from mas_sim.schedule import (
    C_CYCLES,
    COST_FIELDS,
    R_PARTIAL,
    R_PARTIAL_RAGGED,
    R_RAGGED_KV,
    R_RAGGED_ROW,
    R_TILES,
    Grid,
    IntArray,
)
from mas_sim.tiling import (
    TL_EXP_ON,
    TL_K_BUFFERS,
    TL_K_RESIDENT,
    TL_O_BUFFERS,
    TL_OVERLAP,
    TL_OVERWRITE,
    TL_Q,
    TL_Q_BUFFERS,
    TL_SCORE_BUFFERS,
)

# Columns of the work vector: the meter (METER_FIELDS columns), the channel's cycles, and the shortest instruction
# of some kinds on a full kv tile (channel cycles of K and V tiles, the first Q and any O; MAC cycles of products,
# also the longest).
W_DMA_CYCLES, W_LOAD_K, W_LOAD_V, W_LOAD_Q, W_STORE_O = 12, 13, 14, 15, 16
W_MIN_QK, W_MIN_PV, W_MAX_QK, W_MAX_PV = 17, 18, 19, 20
WORK_FIELDS = 21

# Columns of a core's row: its MAC and VEC cycles, items, the channel cycles of its first Q and K and of its last O, the
# shortest and longest C, softmax and O of its row blocks; MAC cycles of O alone; VEC cycles that other work may hide
# even in sequence; those that nothing can hide; the shortest division of O.
CW_MAC, CW_VEC, CW_ITEMS, CW_FIRST_LOADS, CW_LAST_STORE = 0, 1, 2, 3, 4
CW_MIN_SCORES, CW_MIN_SOFTMAX, CW_MIN_OUT, CW_MAX_SCORES, CW_MAX_SOFTMAX, CW_MAX_OUT = 5, 6, 7, 8, 9, 10
CW_OUT, CW_HIDDEN, CW_WAITS, CW_MIN_NORMALIZE = 11, 12, 13, 14
CORE_FIELDS = 15

UNKNOWN = 1 << 62

# What one row block takes: cycles of C, of softmax up to P, of O, of vector work that corrects O, of dividing it; of
# softmax between the row's maximum and its sum.
ROW_SCORES, ROW_SOFTMAX, ROW_OUT, ROW_CORRECT, ROW_NORMALIZE, ROW_MIDDLE = 0, 1, 2, 3, 4, 5
ROW_FIELDS = 6


@leaf
def _add(work: IntArray, costs: IntArray, kind: int, count: int) -> int:
    """Add the metered actions of `count` instructions of a kind to `work`; return their cycles."""
    for column in range(1, COST_FIELDS):
        work[column - 1] += count * costs[kind, column]
    return int(count * costs[kind, C_CYCLES])


@leaf
def _products(
    work: IntArray, costs: IntArray, kinds: IntArray, row: int, full: int, ragged: int, count: int
) -> tuple[int, int]:
    """Add the products of `count` row blocks of kind `row`, `full + ragged` kv tiles each; return one's cycles."""
    qk, pv = kinds[KB_QK] + row * 2, kinds[KB_PV] + row * 2 * PV_VARIANTS
    scores = _add(work, costs, qk, count * full) + _add(work, costs, qk + 1, count * ragged)
    tiles = full + ragged
    out = 0
    for place in range(min(tiles, 3)):
        # place 0: the first tile, 1: the last one, 2: all between
        is_last = place == 1 or tiles == 1
        flags = (1 if place == 0 else 0) + (2 if is_last else 0)
        is_ragged = 1 if is_last and ragged else 0
        times = tiles - 2 if place == 2 else 1
        out += _add(work, costs, pv + is_ragged * PV_VARIANTS + flags, count * times)
    return scores // count, out // count


@leaf
def _both_tiles(work: IntArray, costs: IntArray, kind: int, full: int, ragged: int, count: int) -> int:
    """Add `count` times `full` instructions of a kind and `ragged` of the next one; return the cycles of one time."""
    return (_add(work, costs, kind, count * full) + _add(work, costs, kind + 1, count * ragged)) // count


@leaf
def _softmax_cycles(
    dataflow: int, work: IntArray, costs: IntArray, kinds: IntArray, row: int, length: int, full: int, ragged: int,
    count: int, times: IntArray,
) -> None:  # fmt: skip
    """Add the softmax passes of `count` row blocks; add one's cycles to `times`."""
    passes = kinds[KB_PASSES]
    if not by_tiles(dataflow):
        for step in range(passes):
            times[ROW_SOFTMAX] += _add(work, costs, kinds[KB_SOFTMAX] + length * passes + step, count) // count
        return
    kind = kinds[KB_SOFTMAX] + row * 2 * passes
    for step in range(passes):
        cycles = _add(work, costs, kind + step, count * full) + _add(work, costs, kind + passes + step, count * ragged)
        times[ROW_SOFTMAX] += cycles // count
        if kinds[KB_MAX_END] <= step < kinds[KB_SUM_END]:
            times[ROW_MIDDLE] += cycles // count


@leaf
def _row_work(
    dataflow: int, t: IntArray, work: IntArray, costs: IntArray, kinds: IntArray, grid: Grid, cls: int, length: int,
    count: int, times: IntArray,
) -> int:  # fmt: skip
    """Add `count` row blocks of a class of groups and of row blocks to `work`, but for K and V.

    Fills `times`, int64[6] (`ROW_*`), with the cycles of one, and returns the channel cycles of all.
    """
    times[:] = 0
    shape = grid.row_shapes[length]
    row, whole = cls * 2 + shape[R_RAGGED_ROW], cls * kinds[KB_ROW_CLASSES] + length
    ragged = shape[R_RAGGED_KV]
    full, tiles = shape[R_TILES] - ragged, shape[R_TILES]
    dma = _add(work, costs, kinds[KB_LOAD_Q] + row, count) + _add(work, costs, kinds[KB_STORE_O] + row, count)
    times[ROW_SCORES], times[ROW_OUT] = _products(work, costs, kinds, row, full, ragged, count)
    times[ROW_SOFTMAX] = _both_tiles(
        work, costs, kinds[KB_MASK] + row * 2, shape[R_PARTIAL], shape[R_PARTIAL_RAGGED], count
    )
    _softmax_cycles(dataflow, work, costs, kinds, row, whole, full, ragged, count, times)
    if is_online(dataflow):
        corrections = tiles if dataflow == FUSEMAX else tiles - 1
        times[ROW_CORRECT] = _add(work, costs, kinds[KB_RESCALE] + row, count * corrections) // count
        times[ROW_NORMALIZE] = _add(work, costs, kinds[KB_NORMALIZE] + row, count) // count
    if dataflow == FUSEMAX:
        times[ROW_SOFTMAX] += _add(work, costs, kinds[KB_ADD] + row, count * tiles) // count
        if t[TL_EXP_ON]:
            times[ROW_OUT] += _both_tiles(work, costs, kinds[KB_EXP] + row * 2, full, ragged, count)
    if dataflow == LAYER_WISE:
        dma += _add(work, costs, kinds[KB_LOAD_C] + whole, count)
        dma += _both_tiles(work, costs, kinds[KB_STORE_C] + row * 2, full, ragged, count) * count
    if dataflow in (LAYER_WISE, SOFT_PIPE):
        dma += _add(work, costs, kinds[KB_STORE_P] + whole, count)
        dma += _both_tiles(work, costs, kinds[KB_LOAD_P] + row * 2, full, ragged, count) * count
    return dma


@leaf
def _note_row(dataflow: int, t: IntArray, core: IntArray, times: IntArray, count: int, alone: int) -> None:
    """Add `count` row blocks that take `times`, `alone` of them in sequence beside pairs, to a core's row."""
    scores, softmax, out = times[ROW_SCORES], times[ROW_SOFTMAX], times[ROW_OUT]
    vec = softmax + times[ROW_CORRECT] + times[ROW_NORMALIZE]
    core[CW_MAC] += count * (scores + out)
    core[CW_VEC] += count * vec
    core[CW_OUT] += count * out
    core[CW_HIDDEN] += count * (times[ROW_NORMALIZE] + (times[ROW_CORRECT] if dataflow == FUSEMAX else 0))
    if in_pairs(dataflow, t):
        core[CW_WAITS] += alone * (vec - times[ROW_NORMALIZE])
    elif dataflow == TILEFLOW:
        core[CW_WAITS] += count * times[ROW_MIDDLE]
    core[CW_MIN_SCORES], core[CW_MAX_SCORES] = min(core[CW_MIN_SCORES], scores), max(core[CW_MAX_SCORES], scores)
    core[CW_MIN_SOFTMAX] = min(core[CW_MIN_SOFTMAX], softmax)
    core[CW_MAX_SOFTMAX] = max(core[CW_MAX_SOFTMAX], softmax)
    core[CW_MIN_OUT], core[CW_MAX_OUT] = min(core[CW_MIN_OUT], out), max(core[CW_MAX_OUT], out)
    core[CW_MIN_NORMALIZE] = min(core[CW_MIN_NORMALIZE], times[ROW_NORMALIZE])


@leaf
def _class_work(
    dataflow: int, t: IntArray, costs: IntArray, kinds: IntArray, grid: Grid, work: IntArray, core: IntArray, cls: int,
    tally: IntArray, times: IntArray,
) -> int:  # fmt: skip
    """Add what one class of groups does on one core to `work` and to the core's row; return channel cycles."""
    lengths, dma = grid.row_shapes.shape[0], 0
    for length in range(lengths):
        count = tally[cls, N_ROWS + length]
        if count > 0:
            dma += _row_work(dataflow, t, work, costs, kinds, grid, cls, length, count, times)
            _note_row(dataflow, t, core, times, count, tally[cls, N_ROWS + lengths + length])
            core[CW_ITEMS] += count
    for is_v in range(2):
        kind, at = kinds[KB_LOAD_K + is_v] + cls * 2, N_LOADS + 2 * is_v
        dma += _add(work, costs, kind, tally[cls, at]) + _add(work, costs, kind + 1, tally[cls, at + 1])
    return dma + _add(work, costs, kinds[KB_LOAD_WINDOW] + cls, tally[cls, N_WINDOW])


@leaf
def _note_instructions(work: IntArray, costs: IntArray, kinds: IntArray, grid: Grid, cls: int, tally: IntArray) -> None:
    """Keep in `work` the shortest (and of products the longest) instructions on full kv tiles of a class of groups."""
    for ragged in range(2):
        for is_v in range(2):
            load = costs[kinds[KB_LOAD_K] + (kinds[KB_LOAD_V] - kinds[KB_LOAD_K]) * is_v + cls * 2 + ragged, C_CYCLES]
            if load > 0:
                work[W_LOAD_K + is_v] = min(work[W_LOAD_K + is_v], load)
    for length in range(grid.row_shapes.shape[0]):
        if tally[cls, N_ROWS + length] == 0:
            continue
        row = cls * 2 + grid.row_shapes[length, R_RAGGED_ROW]
        work[W_LOAD_Q] = min(work[W_LOAD_Q], costs[kinds[KB_LOAD_Q] + row, C_CYCLES])
        work[W_STORE_O] = min(work[W_STORE_O], costs[kinds[KB_STORE_O] + row, C_CYCLES])
        if grid.row_shapes[length, R_TILES] == grid.row_shapes[length, R_RAGGED_KV]:
            continue
        qk = costs[kinds[KB_QK] + row * 2, C_CYCLES]
        work[W_MIN_QK], work[W_MAX_QK] = min(work[W_MIN_QK], qk), max(work[W_MAX_QK], qk)
        for variant in range(PV_VARIANTS):
            pv = costs[kinds[KB_PV] + row * 2 * PV_VARIANTS + variant, C_CYCLES]
            work[W_MIN_PV], work[W_MAX_PV] = min(work[W_MIN_PV], pv), max(work[W_MAX_PV], pv)


@leaf
def tiling_work(
    dataflow: int, p: IntArray, t: IntArray, grid: Grid, kinds: IntArray, costs: IntArray, tally: IntArray,
    cores: IntArray, work: IntArray, times: IntArray,
) -> None:  # fmt: skip
    """Sum up what one tiling does, whatever its buffers.

    Fills `work`, int64[WORK_FIELDS]: columns 0..11 are the exact metered actions, but for work that overwrite
    makes it do twice; and `cores`, int64[cores, CORE_FIELDS]. `tally`, int64[classes + 2, tally_width], and `times`,
    int64[6], are scratch.
    """
    work[:] = 0
    work[W_DMA_CYCLES + 1 : W_MAX_QK] = UNKNOWN
    cores[:] = 0
    rows = grid.row_class.shape[0]
    window = window_tiles(p, t, grid.row_length[0])
    for c in range(p[P_CORES]):
        first, last = core_items(p, t, c)
        if first == last:
            continue
        core = cores[c]
        core[CW_MIN_SCORES], core[CW_MIN_SOFTMAX], core[CW_MIN_OUT] = UNKNOWN, UNKNOWN, UNKNOWN
        core[CW_MIN_NORMALIZE] = UNKNOWN
        last_class = tally_core(dataflow, p, t, grid, first, last, window, tally)
        for cls in range(grid.class_heads.shape[0]):
            work[W_DMA_CYCLES] += _class_work(dataflow, t, costs, kinds, grid, work, core, cls, tally, times)
            _note_instructions(work, costs, kinds, grid, cls, tally)
        cls = grid.group_class[first // rows]
        q, k = costs[kinds[KB_LOAD_Q] + cls * 2, C_CYCLES], costs[kinds[KB_LOAD_K] + cls * 2, C_CYCLES]
        if p[P_NQ] % t[TL_Q]:
            q = min(q, costs[kinds[KB_LOAD_Q] + cls * 2 + 1, C_CYCLES])
        core[CW_FIRST_LOADS] = q + min(k, costs[kinds[KB_LOAD_K] + cls * 2 + 1, C_CYCLES])
        last_row = last_class * 2 + grid.row_shapes[grid.row_class[(last - 1) % rows], R_RAGGED_ROW]
        core[CW_LAST_STORE] = costs[kinds[KB_STORE_O] + last_row, C_CYCLES]


@leaf
def _stream_idle(p: IntArray, tiles: int, buffers: int, product_min: int, product_max: int, load: int) -> int:
    """Cycles that the MAC unit idles within a row block because its K (V) tiles are streamed through few buffers.

    Tile j + buffers is loaded behind product j, and used behind that load: every `buffers` tiles take a product
    and a round trip.
    """
    if tiles < 2:
        return 0
    trip = load + p[P_LATENCY] + 2 * p[P_SYNC] + p[P_ISSUE]
    return int(max(0, (tiles - 1) // buffers * (product_min + trip) - (tiles - 1) * product_max))


@leaf
def _hand_over(
    dataflow: int, p: IntArray, t: IntArray, core: IntArray, work: IntArray, idle_k: int, idle_v: int
) -> int:
    """Cycles that the MAC unit idles between two row blocks because Q or O has a single buffer, and so a round trip."""
    fixed = 2 * p[P_SYNC] + p[P_ISSUE] + p[P_LATENCY]
    idle = 0
    if dataflow in (FLAT, MAS):
        other = core[CW_MAX_SOFTMAX] if dataflow == FLAT else 0
        if t[TL_Q_BUFFERS] == 1:
            idle = max(0, work[W_LOAD_Q] + fixed - core[CW_MAX_OUT] - idle_v - other)
        if t[TL_O_BUFFERS] == 1:
            idle = max(idle, work[W_STORE_O] + fixed - core[CW_MAX_SCORES] - idle_k - other)
    elif dataflow in (LAYER_WISE, SOFT_PIPE):
        # Passes of their own: C behind C, and O behind O.
        idle = work[W_LOAD_Q] + fixed if t[TL_Q_BUFFERS] == 1 else 0
        idle += work[W_STORE_O] + fixed if t[TL_O_BUFFERS] == 1 else 0
    return int(idle)


@leaf
def _core_cycles(
    dataflow: int, p: IntArray, t: IntArray, core: IntArray, work: IntArray, idle_k: int, idle_v: int, same: bool
) -> int:
    """Least cycles of a core between the arrival of its first loads and the start of its last store.

    In turn (`flat`, `layer_wise`; `flash` and `fusemax` without overlap, but for what they do of O meanwhile): the sum
    of both units' work. `soft_pipe`: the longer of C and softmax, then O. `mas`: the vector unit cannot start before a
    first C, nor the last O before its end; and behind the last C the MAC unit has only the O of one or two row blocks
    (ring of two or three) to hide the last softmax behind. `tileflow` with two row blocks: between the last C tile of a
    row block and its own first O tile the MAC unit has one tile of the next C and one of the O before to do.
    """
    items = core[CW_ITEMS]
    mac = core[CW_MAC] + items * (idle_k + idle_v)
    idle = (items - 1) * _hand_over(dataflow, p, t, core, work, idle_k, idle_v)
    in_turn = t[TL_OVERLAP] == OVERLAP_NONE
    if dataflow in (FLAT, LAYER_WISE):
        return int(mac + core[CW_VEC] + idle)
    if dataflow == SOFT_PIPE:
        scores = mac - core[CW_OUT] - items * idle_v
        return int(max(scores + core[CW_MIN_SOFTMAX], core[CW_VEC] + core[CW_MIN_SCORES]) + mac - scores)
    if is_online(dataflow):
        last = core[CW_MIN_NORMALIZE]
        if in_turn:
            return int(mac + core[CW_VEC] - core[CW_HIDDEN] + last)
        return int(max(mac + core[CW_WAITS] + last, core[CW_VEC]))
    if dataflow == TILEFLOW:
        waits = 0
        if t[TL_SCORE_BUFFERS] == 2 and same and work[W_MAX_QK]:
            waits = max(0, core[CW_WAITS] - items * (work[W_MAX_QK] + work[W_MAX_PV]))
        return int(max(mac + waits, core[CW_VEC]))
    hidden = 0
    if items > 1:
        hidden = (core[CW_MAX_OUT] + idle_v) * (2 if t[TL_SCORE_BUFFERS] > 2 and items > 2 else 1)
    tail = max(0, core[CW_MIN_SOFTMAX] - hidden)
    return int(max(mac + max(tail, idle), core[CW_VEC] + core[CW_MIN_SCORES] + core[CW_MIN_OUT]))


@leaf
def _same_spans(grid: Grid) -> bool:
    """Whether every row block visits the same kv tiles, so that they all have the same to wait for."""
    same = True
    for length in range(grid.row_shapes.shape[0]):
        same = same and grid.row_shapes[length, R_TILES] == grid.row_shapes[0, R_TILES]
    return same


@leaf
def least_cycles(dataflow: int, p: IntArray, t: IntArray, grid: Grid, cores: IntArray, work: IntArray) -> int:
    """Lower bound of a tiling's cycles, from what `tiling_work` summed up and its buffers.

    The busiest core's work, before which its first Q and K must have arrived and behind which its last O must
    leave; the last core to start, before which every core's first Q and K have passed the channel, has the least
    busy one's work at least; and the whole channel time.
    """
    idle_k, idle_v = 0, 0
    same = _same_spans(grid)
    by_rows = not by_tiles(dataflow) and same
    if work[W_MAX_QK] > 0 and t[TL_OVERWRITE] == 0 and by_rows and grid.row_span[0, 0] == 0:
        tiles = grid.row_shapes[0, R_TILES]
        streamed = tiles - t[TL_K_RESIDENT]
        idle_k = _stream_idle(p, streamed, t[TL_K_BUFFERS], work[W_MIN_QK], work[W_MAX_QK], work[W_LOAD_K])
        streamed = tiles - t[TL_K_RESIDENT + 1]
        idle_v = _stream_idle(p, streamed, t[TL_K_BUFFERS + 1], work[W_MIN_PV], work[W_MAX_PV], work[W_LOAD_V])
    edge = 2 * p[P_LATENCY] + 2 * p[P_SYNC] + 2 * p[P_ISSUE]
    longest, shortest, loads, store = 0, UNKNOWN, 0, UNKNOWN
    for c in range(cores.shape[0]):
        core = cores[c]
        if core[CW_ITEMS] == 0:
            continue
        cycles = _core_cycles(dataflow, p, t, core, work, idle_k, idle_v, same)
        longest = max(longest, cycles + core[CW_FIRST_LOADS] + core[CW_LAST_STORE])
        loads += core[CW_FIRST_LOADS]
        shortest, store = min(shortest, cycles), min(store, core[CW_LAST_STORE])
    longest = max(longest, loads + shortest + store) + edge
    return int(max(longest, work[W_DMA_CYCLES] + p[P_ISSUE] + p[P_LATENCY]))
