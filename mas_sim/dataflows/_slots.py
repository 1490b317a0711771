"""Where the buffers of a tiling are in one core's L1: the slots, and the bytes they span.

Compiled helpers that all dataflows share. Slots stand one behind the other, at the same offsets in every core's share.
"""

from mas_sim._jit import leaf
from mas_sim.costs import (
    P_ACC_BYTES,
    P_ACC_ELEMENT,
    P_BATCH,
    P_E,
    P_ELEMENT,
    P_F,
    P_HEADS,
    P_KV_HEADS,
    P_NKV,
    ceil_div,
)
from mas_sim.dataflows._numbers import FUSEMAX, streams
from mas_sim.schedule import (
    SLOT_BYTES,
    SLOT_OFFSET,
    SLOT_TENSOR,
    T_K,
    T_O,
    T_PART,
    T_Q,
    T_S,
    T_STATS,
    T_TILE,
    T_V,
    IntArray,
)
from mas_sim.tiling import (
    TL_BATCH,
    TL_EXP_ON,
    TL_HEAD,
    TL_IN_PLACE,
    TL_K_BUFFERS,
    TL_K_RESIDENT,
    TL_KV,
    TL_O_BUFFERS,
    TL_OVERWRITE,
    TL_Q,
    TL_Q_BUFFERS,
)


@leaf
def tile_width(p: IntArray, t: IntArray, j: int) -> int:
    """Columns of kv tile j; the last one may be ragged."""
    return int(min(t[TL_KV], p[P_NKV] - j * t[TL_KV]))


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
def window_tiles(p: IntArray, t: IntArray, row_length: int) -> int:
    """Tiles of V (K) that a row block of P covers: the last ones, as few as hold it; 0 without overwrite.

    More tiles than there are means that no window is large enough.
    """
    if t[TL_OVERWRITE] == 0:
        return 0
    block = group_heads(p, t) * t[TL_Q] * row_length * p[P_ELEMENT]
    tiles = ceil_div(p[P_NKV], t[TL_KV])
    column_bytes = group_kv_heads(p, t) * (p[P_F] if t[TL_OVERWRITE] == 1 else p[P_E]) * p[P_ELEMENT]
    last = tile_width(p, t, tiles - 1) * column_bytes
    if block <= last:
        return 1
    return 1 + ceil_div(block - last, t[TL_KV] * column_bytes)


@leaf
def window_bytes(p: IntArray, t: IntArray, row_length: int) -> int:
    """Bytes of those tiles, for a full group; 0 without overwrite."""
    count = window_tiles(p, t, row_length)
    if count == 0:
        return 0
    tiles = ceil_div(p[P_NKV], t[TL_KV])
    columns = (count - 1) * t[TL_KV] + tile_width(p, t, tiles - 1)
    return int(group_kv_heads(p, t) * (p[P_F] if t[TL_OVERWRITE] == 1 else p[P_E]) * p[P_ELEMENT] * columns)


@leaf
def add_kv_slots(
    slots: IntArray, n: int, offset: int, tensor: int, window: int, head_dim: int, p: IntArray, t: IntArray
) -> tuple[int, int]:
    """Append the slots of K or V: a set of the resident tiles a buffer, then the buffers of the streamed tiles.

    A resident last tile has a slot of its own ragged size; a streamed one shares the slots of the full tiles. The last
    `window` tiles have no slot here: they live in a row block's place.
    """
    is_v = 1 if tensor == T_V else 0
    tiles = ceil_div(p[P_NKV], t[TL_KV]) - window
    resident, buffers = min(t[TL_K_RESIDENT + is_v], tiles), t[TL_K_BUFFERS + is_v]
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
    places[T_Q] = 0
    n, offset = add_slots(slots, 0, 0, T_Q, t[TL_Q_BUFFERS], heads * t[TL_Q] * p[P_E] * p[P_ELEMENT])
    window = window_tiles(p, t, row_length)
    places[T_K] = n
    n, offset = add_kv_slots(slots, n, offset, T_K, window if t[TL_OVERWRITE] == 2 else 0, p[P_E], p, t)
    places[T_V] = n
    n, offset = add_kv_slots(slots, n, offset, T_V, window if t[TL_OVERWRITE] == 1 else 0, p[P_F], p, t)
    places[T_S] = n
    block = max(heads * t[TL_Q] * row_length * p[P_ELEMENT], window_bytes(p, t, row_length))
    n, offset = add_slots(slots, n, offset, T_S, row_blocks(t, rings), block)
    places[T_STATS] = n
    n, offset = add_slots(slots, n, offset, T_STATS, 1, stats_bytes(p, heads, t[TL_Q]))
    places[T_O] = n
    tiles = ceil_div(row_length, t[TL_KV])
    n, offset = add_slots(slots, n, offset, T_O, t[TL_O_BUFFERS], output_bytes(p, heads, t[TL_Q], tiles))
    return n


@leaf
def plan_tiles(p: IntArray, t: IntArray, row_length: int, rings: int, slots: IntArray, places: IntArray) -> int:
    """Lay out one core's L1 as `plan_fused` does, but each kv tile of a row block of C/P in a slot of its own."""
    heads = group_heads(p, t)
    rows = heads * t[TL_Q]
    places[T_Q] = 0
    n, offset = add_slots(slots, 0, 0, T_Q, t[TL_Q_BUFFERS], rows * p[P_E] * p[P_ELEMENT])
    places[T_K] = n
    n, offset = add_kv_slots(slots, n, offset, T_K, 0, p[P_E], p, t)
    places[T_V] = n
    n, offset = add_kv_slots(slots, n, offset, T_V, 0, p[P_F], p, t)
    places[T_TILE] = n
    tiles = ceil_div(row_length, t[TL_KV])
    for _ in range(rings):
        n, offset = add_slots(slots, n, offset, T_TILE, tiles - 1, rows * t[TL_KV] * p[P_ELEMENT])
        last = row_length - (tiles - 1) * t[TL_KV]
        n, offset = add_slots(slots, n, offset, T_TILE, 1, rows * last * p[P_ELEMENT])
    places[T_STATS] = n
    n, offset = add_slots(slots, n, offset, T_STATS, 1, stats_bytes(p, heads, t[TL_Q]))
    places[T_O] = n
    n, offset = add_slots(slots, n, offset, T_O, t[TL_O_BUFFERS], output_bytes(p, heads, t[TL_Q], tiles))
    return n


@leaf
def row_blocks(t: IntArray, rings: int) -> int:
    """Places for row blocks in L1: the ring, and one more where P does not take C's bytes."""
    return rings + (0 if t[TL_IN_PLACE] else 1)


@leaf
def kv_span(p: IntArray, t: IntArray, is_v: int, window: int) -> int:
    """Bytes of the slots that `add_kv_slots` adds for K (or V)."""
    tiles = ceil_div(p[P_NKV], t[TL_KV]) - window
    resident, buffers = min(t[TL_K_RESIDENT + is_v], tiles), t[TL_K_BUFFERS + is_v]
    columns = min(resident * t[TL_KV], p[P_NKV]) * buffers
    columns += min(buffers, tiles - resident) * tile_width(p, t, min(resident, tiles - 1))
    return int(columns * group_kv_heads(p, t) * (p[P_F] if is_v else p[P_E]) * p[P_ELEMENT])


@leaf
def fused_span(p: IntArray, t: IntArray, row_length: int, rings: int) -> int:
    """Bytes that the slots of `plan_fused` span."""
    heads = group_heads(p, t)
    window = window_tiles(p, t, row_length)
    block = max(heads * t[TL_Q] * row_length * p[P_ELEMENT], window_bytes(p, t, row_length))
    size = heads * t[TL_Q] * p[P_E] * p[P_ELEMENT] * t[TL_Q_BUFFERS]
    size += kv_span(p, t, 0, window if t[TL_OVERWRITE] == 2 else 0)
    size += kv_span(p, t, 1, window if t[TL_OVERWRITE] == 1 else 0)
    size += block * row_blocks(t, rings) + stats_bytes(p, heads, t[TL_Q])
    return int(size + t[TL_O_BUFFERS] * output_bytes(p, heads, t[TL_Q], ceil_div(row_length, t[TL_KV])))


@leaf
def output_columns(dataflow: int, p: IntArray, t: IntArray) -> int:
    """Columns of O under online softmax: F, and one for the row sum where the MAC array adds it up."""
    return int(p[P_F] + (1 if dataflow == FUSEMAX and t[TL_EXP_ON] else 0))


@leaf
def plan_online(dataflow: int, p: IntArray, t: IntArray, slots: IntArray, places: IntArray) -> int:
    """Lay out one core's L1 for online softmax, and return the number of slots.

    Never a whole row of scores: a kv tile of C/P, its statistics and O, each as often as there are streams (`flash`:
    row blocks; `fusemax`: kv tiles, of which it also keeps partial O). O is in the accumulator's data type.
    """
    heads, many = group_heads(p, t), streams(dataflow, t)
    rows = heads * t[TL_Q]
    blocks = 1 if dataflow == FUSEMAX else many
    out = rows * output_columns(dataflow, p, t) * p[P_ACC_ELEMENT]
    places[T_Q] = 0
    n, offset = add_slots(slots, 0, 0, T_Q, blocks * t[TL_Q_BUFFERS], rows * p[P_E] * p[P_ELEMENT])
    places[T_K] = n
    n, offset = add_kv_slots(slots, n, offset, T_K, 0, p[P_E], p, t)
    places[T_V] = n
    n, offset = add_kv_slots(slots, n, offset, T_V, 0, p[P_F], p, t)
    places[T_TILE] = n
    n, offset = add_slots(slots, n, offset, T_TILE, many, rows * min(t[TL_KV], p[P_NKV]) * p[P_ELEMENT])
    places[T_STATS] = n
    n, offset = add_slots(slots, n, offset, T_STATS, many, online_stats_bytes(p, rows))
    places[T_PART] = n
    n, offset = add_slots(slots, n, offset, T_PART, many if dataflow == FUSEMAX else 0, out)
    places[T_O] = n
    n, offset = add_slots(slots, n, offset, T_O, blocks * t[TL_O_BUFFERS], out)
    return n


@leaf
def online_stats_bytes(p: IntArray, rows: int) -> int:
    """Bytes of the running maximum, the running sum and the correction of rows, in the accumulator's data type."""
    return int(3 * rows * p[P_ACC_ELEMENT])


@leaf
def online_span(dataflow: int, p: IntArray, t: IntArray) -> int:
    """Bytes that the slots of `plan_online` span."""
    rows, many = group_heads(p, t) * t[TL_Q], streams(dataflow, t)
    blocks = 1 if dataflow == FUSEMAX else many
    out = rows * output_columns(dataflow, p, t) * p[P_ACC_ELEMENT]
    size = blocks * t[TL_Q_BUFFERS] * rows * p[P_E] * p[P_ELEMENT] + kv_span(p, t, 0, 0) + kv_span(p, t, 1, 0)
    size += many * (rows * min(t[TL_KV], p[P_NKV]) * p[P_ELEMENT] + online_stats_bytes(p, rows))
    return int(size + (many if dataflow == FUSEMAX else 0) * out + blocks * t[TL_O_BUFFERS] * out)
