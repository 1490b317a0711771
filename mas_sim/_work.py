"""What one tiling must do, in closed form: its exact actions and DRAM bytes, and a lower bound of its cycles.

Search prunes with it, so it must be quick as well as tight: `tiling_work` sums up what does not depend on the
buffers, and `least_cycles` adds what they cost. `Schedule.meter_counts` equals the actions; no simulation is below
the bound.
"""

from mas_sim._jit import leaf
from mas_sim.costs import P_CORES, P_ISSUE, P_LATENCY, P_NKV, P_NQ, P_SYNC
from mas_sim.dataflows._dispatch import FLAT, LAYER_WISE
from mas_sim.dataflows._plan import (
    KB_LOAD_C,
    KB_LOAD_K,
    KB_LOAD_P,
    KB_LOAD_Q,
    KB_LOAD_V,
    KB_LOAD_WINDOW,
    KB_PASSES,
    KB_PV,
    KB_QK,
    KB_ROW_CLASSES,
    KB_SOFTMAX,
    KB_STORE_C,
    KB_STORE_O,
    KB_STORE_P,
    PV_VARIANTS,
    core_items,
)
from mas_sim.dataflows._slots import window_tiles
from mas_sim.schedule import C_CYCLES, COST_FIELDS, Grid, IntArray
from mas_sim.tiling import (
    TL_K_BUFFERS,
    TL_K_RESIDENT,
    TL_KV,
    TL_O_BUFFERS,
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

# Columns of a core's row: its MAC and VEC cycles, items, the channel cycles of its first Q and K and of its last O, and
# the shortest and longest C, softmax and O of its row blocks.
CW_MAC, CW_VEC, CW_ITEMS, CW_FIRST_LOADS, CW_LAST_STORE = 0, 1, 2, 3, 4
CW_MIN_SCORES, CW_MIN_SOFTMAX, CW_MIN_OUT, CW_MAX_SCORES, CW_MAX_SOFTMAX, CW_MAX_OUT = 5, 6, 7, 8, 9, 10
CORE_FIELDS = 11

UNKNOWN = 1 << 62

# Columns of the tally: what one core has of each class of groups, and whether V's window is not loaded again for
# the last row block, since that of the one before is still there.
N_FULL, N_RAGGED, N_SETS, N_TAIL, TALLY_FIELDS = 0, 1, 2, 3, 4


@leaf
def _add(work: IntArray, costs: IntArray, kind: int, count: int) -> int:
    """Add the metered actions of `count` instructions of a kind to `work`; return their cycles."""
    for column in range(1, COST_FIELDS):
        work[column - 1] += count * costs[kind, column]
    return int(count * costs[kind, C_CYCLES])


@leaf
def _kv_tile_cycles(
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
    return scores // max(1, count), out // max(1, count)


@leaf
def _kv_loads(
    work: IntArray, costs: IntArray, kinds: IntArray, base: int, cls: int, full: int, ragged: int, resident: int,
    sets: int, blocks: int,
) -> int:  # fmt: skip
    """Add the loads of K (or V): the resident tiles `sets` times, the others once a row block; return the cycles."""
    tiles = full + ragged
    stays = min(resident, full)
    kind = kinds[base] + cls * 2
    cycles = _add(work, costs, kind, stays * sets + (full - stays) * blocks)
    if ragged:
        cycles += _add(work, costs, kind + 1, sets if resident == tiles else blocks)
    return cycles


@leaf
def _row_dma_cycles(
    work: IntArray, costs: IntArray, kinds: IntArray, row: int, full: int, ragged: int, count: int
) -> int:
    """Add the transfers of C and P that `layer_wise` makes for `count` row blocks; return channel cycles."""
    lengths = kinds[KB_ROW_CLASSES]
    cycles = _add(work, costs, kinds[KB_LOAD_C] + row * lengths, count)
    cycles += _add(work, costs, kinds[KB_STORE_P] + row * lengths, count)
    for base in (KB_STORE_C, KB_LOAD_P):
        cycles += _add(work, costs, kinds[base] + row * 2, count * full)
        cycles += _add(work, costs, kinds[base] + row * 2 + 1, count * ragged)
    return cycles


@leaf
def _class_work(
    dataflow: int,
    costs: IntArray,
    kinds: IntArray,
    work: IntArray,
    core: IntArray,
    cls: int,
    tally: IntArray,
    full: int,
    ragged: int,
) -> tuple[int, int, int]:
    """Add the row blocks of one class of groups on one core to `work`, but for K and V; return MAC, VEC, DMA cycles.

    Keeps in `core`, a row of int64[cores, CORE_FIELDS], the shortest and the longest C, softmax and O of any row block.
    """
    mac, vec, dma = 0, 0, 0
    passes = kinds[KB_PASSES]
    for is_ragged in range(2):
        count = tally[cls, N_RAGGED if is_ragged else N_FULL]
        if count == 0:
            continue
        row = cls * 2 + is_ragged
        dma += _add(work, costs, kinds[KB_LOAD_Q] + row, count) + _add(work, costs, kinds[KB_STORE_O] + row, count)
        scores, out = _kv_tile_cycles(work, costs, kinds, row, full, ragged, count)
        softmax = 0
        for step in range(passes):
            kind = kinds[KB_SOFTMAX] + row * kinds[KB_ROW_CLASSES] * passes + step
            softmax += _add(work, costs, kind, count) // count
        mac += (scores + out) * count
        vec += softmax * count
        if dataflow == LAYER_WISE:
            dma += _row_dma_cycles(work, costs, kinds, row, full, ragged, count)
        core[CW_MIN_SCORES], core[CW_MAX_SCORES] = min(core[CW_MIN_SCORES], scores), max(core[CW_MAX_SCORES], scores)
        core[CW_MIN_SOFTMAX], core[CW_MAX_SOFTMAX] = (
            min(core[CW_MIN_SOFTMAX], softmax),
            max(core[CW_MAX_SOFTMAX], softmax),
        )
        core[CW_MIN_OUT], core[CW_MAX_OUT] = min(core[CW_MIN_OUT], out), max(core[CW_MAX_OUT], out)
    return mac, vec, dma


@leaf
def kv_work(
    costs: IntArray, kinds: IntArray, work: IntArray, cls: int, tally: IntArray, full: int, ragged: int,
    t: IntArray, window: int,
) -> int:  # fmt: skip
    """Add the loads of K and V for one class of groups on one core to `work`; return their channel cycles."""
    dma = 0
    blocks = tally[cls, N_FULL] + tally[cls, N_RAGGED]
    for is_v in range(2):
        base, resident = KB_LOAD_K + is_v, t[TL_K_RESIDENT + is_v]
        if window and t[TL_OVERWRITE] == (1 if is_v else 2):
            kept = full + ragged - window
            dma += _kv_loads(work, costs, kinds, base, cls, kept, 0, kept, tally[cls, N_SETS], blocks)
            loads = blocks - (tally[cls, N_TAIL] if is_v else 0)
            dma += _add(work, costs, kinds[KB_LOAD_WINDOW] + cls, loads)
        else:
            dma += _kv_loads(work, costs, kinds, base, cls, full, ragged, resident, tally[cls, N_SETS], blocks)
    return dma


@leaf
def _tally_core(p: IntArray, t: IntArray, grid: Grid, first: int, last: int, tally: IntArray) -> int:
    """Count a core's row blocks, full and ragged, and sets of K and V, by class of group; return its last row kind."""
    rows = grid.row_ptr.shape[0] - 1
    ragged_row = 1 if p[P_NQ] % t[TL_Q] else 0
    tally[: grid.class_heads.shape[0]] = 0
    key, run, cls, end = -1, 0, 0, 0
    for g in range(first // rows, (last - 1) // rows + 1):
        begin, end = max(first, g * rows) - g * rows, min(last, (g + 1) * rows) - g * rows
        n_ragged = 1 if ragged_row and end == rows else 0
        cls = grid.group_class[g]
        tally[cls, N_FULL] += end - begin - n_ragged
        tally[cls, N_RAGGED] += n_ragged
        if grid.group_key[g] != key:
            key, run = grid.group_key[g], 0
            tally[cls, N_SETS] += 1
        run += end - begin
    if run > 1:
        tally[cls, N_TAIL] = 1
    return int(cls * 2 + (1 if ragged_row and end == rows else 0))


@leaf
def _note_instructions(work: IntArray, costs: IntArray, kinds: IntArray, cls: int, tally: IntArray, full: int) -> None:
    """Keep in `work` the shortest (and of products the longest) instructions on full kv tiles of a class of groups."""
    for ragged in range(2):
        for is_v in range(2):
            load = costs[kinds[KB_LOAD_K] + (kinds[KB_LOAD_V] - kinds[KB_LOAD_K]) * is_v + cls * 2 + ragged, C_CYCLES]
            if load > 0:
                work[W_LOAD_K + is_v] = min(work[W_LOAD_K + is_v], load)
        if tally[cls, N_RAGGED if ragged else N_FULL] == 0:
            continue
        row = cls * 2 + ragged
        work[W_LOAD_Q] = min(work[W_LOAD_Q], costs[kinds[KB_LOAD_Q] + row, C_CYCLES])
        work[W_STORE_O] = min(work[W_STORE_O], costs[kinds[KB_STORE_O] + row, C_CYCLES])
        if full == 0:
            continue
        qk = costs[kinds[KB_QK] + row * 2, C_CYCLES]
        work[W_MIN_QK], work[W_MAX_QK] = min(work[W_MIN_QK], qk), max(work[W_MAX_QK], qk)
        for variant in range(PV_VARIANTS):
            pv = costs[kinds[KB_PV] + row * 2 * PV_VARIANTS + variant, C_CYCLES]
            work[W_MIN_PV], work[W_MAX_PV] = min(work[W_MIN_PV], pv), max(work[W_MAX_PV], pv)


@leaf
def tiling_work(
    dataflow: int, p: IntArray, t: IntArray, grid: Grid, kinds: IntArray, costs: IntArray, tally: IntArray,
    cores: IntArray, work: IntArray,
) -> None:  # fmt: skip
    """Sum up what one tiling does, whatever its buffers.

    Fills `work`, int64[WORK_FIELDS]: columns 0..11 are the exact metered actions, but for work that overwrite
    makes it do twice; and `cores`, int64[cores, CORE_FIELDS]. `tally`, int64[>= classes, TALLY_FIELDS], is scratch.
    """
    work[:] = 0
    work[W_DMA_CYCLES + 1 : W_MAX_QK] = UNKNOWN
    cores[:] = 0
    rows = grid.row_ptr.shape[0] - 1
    tiles = (p[P_NKV] + t[TL_KV] - 1) // t[TL_KV]
    ragged = 1 if p[P_NKV] % t[TL_KV] else 0
    window = window_tiles(p, t, grid.row_length[0])
    for c in range(p[P_CORES]):
        first, last = core_items(p, t, c)
        if first == last:
            continue
        core = cores[c]
        core[CW_MIN_SCORES], core[CW_MIN_SOFTMAX], core[CW_MIN_OUT] = UNKNOWN, UNKNOWN, UNKNOWN
        last_row = _tally_core(p, t, grid, first, last, tally)
        for cls in range(grid.class_heads.shape[0]):
            if tally[cls, N_FULL] + tally[cls, N_RAGGED] == 0:
                continue
            mac, vec, dma = _class_work(dataflow, costs, kinds, work, core, cls, tally, tiles - ragged, ragged)
            dma += kv_work(costs, kinds, work, cls, tally, tiles - ragged, ragged, t, window)
            core[CW_MAC], core[CW_VEC] = core[CW_MAC] + mac, core[CW_VEC] + vec
            work[W_DMA_CYCLES] += dma
            _note_instructions(work, costs, kinds, cls, tally, tiles - ragged)
        core[CW_ITEMS] = last - first
        cls = grid.group_class[first // rows]
        q, k = costs[kinds[KB_LOAD_Q] + cls * 2, C_CYCLES], costs[kinds[KB_LOAD_K] + cls * 2, C_CYCLES]
        if p[P_NQ] % t[TL_Q]:
            q = min(q, costs[kinds[KB_LOAD_Q] + cls * 2 + 1, C_CYCLES])
        core[CW_FIRST_LOADS] = q + min(k, costs[kinds[KB_LOAD_K] + cls * 2 + 1, C_CYCLES])
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
def _core_cycles(
    dataflow: int, p: IntArray, t: IntArray, core: IntArray, work: IntArray, idle_k: int, idle_v: int
) -> int:
    """Least cycles of a core between the arrival of its first loads and the start of its last store.

    In turn (`flat`, `layer_wise`): the sum of both units' work. `mas`: the vector unit cannot start before a first
    C, nor the last O before its end; and behind the last C the MAC unit has only the O of one or two row blocks
    (ring of two or three) to hide the last softmax behind. Single buffers of Q and O: from one C (O) to the next,
    a round trip.
    """
    items = core[CW_ITEMS]
    mac = core[CW_MAC] + items * (idle_k + idle_v)
    fixed = 2 * p[P_SYNC] + p[P_ISSUE] + p[P_LATENCY]
    serial = dataflow in (FLAT, LAYER_WISE)
    idle = 0
    if dataflow != LAYER_WISE:
        other = core[CW_MAX_SOFTMAX] if serial else 0
        if t[TL_Q_BUFFERS] == 1:
            idle = max(0, work[W_LOAD_Q] + fixed - core[CW_MAX_OUT] - idle_v - other)
        if t[TL_O_BUFFERS] == 1:
            idle = max(idle, work[W_STORE_O] + fixed - core[CW_MAX_SCORES] - idle_k - other)
    idle *= items - 1
    if serial:
        return int(mac + core[CW_VEC] + idle)
    hidden = 0
    if items > 1:
        hidden = core[CW_MAX_OUT] * (2 if t[TL_SCORE_BUFFERS] > 2 and items > 2 else 1)
    tail = max(0, core[CW_MIN_SOFTMAX] - hidden)
    return int(max(mac + max(tail, idle), core[CW_VEC] + core[CW_MIN_SCORES] + core[CW_MIN_OUT]))


@leaf
def least_cycles(dataflow: int, p: IntArray, t: IntArray, cores: IntArray, work: IntArray) -> int:
    """Lower bound of a tiling's cycles, from what `tiling_work` summed up and its buffers.

    The busiest core's work, before which its first Q and K must have arrived and behind which its last O must
    leave; the last core to start, before which every core's first Q and K have passed the channel, has the least
    busy one's work at least; and the whole channel time.
    """
    tiles = (p[P_NKV] + t[TL_KV] - 1) // t[TL_KV]
    idle_k, idle_v = 0, 0
    if work[W_MAX_QK] > 0 and t[TL_OVERWRITE] == 0:
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
        cycles = _core_cycles(dataflow, p, t, core, work, idle_k, idle_v)
        longest = max(longest, cycles + core[CW_FIRST_LOADS] + core[CW_LAST_STORE])
        loads += core[CW_FIRST_LOADS]
        shortest, store = min(shortest, cycles), min(store, core[CW_LAST_STORE])
    longest = max(longest, loads + shortest + store) + edge
    return int(max(longest, work[W_DMA_CYCLES] + p[P_ISSUE] + p[P_LATENCY]))
