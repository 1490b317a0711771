"""Layer-wise attention: three separate passes, with C and P through DRAM.

Pass 1 computes all tiles of C = Q K^T and stores them; pass 2 loads row blocks of C, applies softmax, stores P;
pass 3 loads the tiles of P and computes O = P V. A pass starts when the one before has ended on its core, as three
kernels would, and so L1 is laid out anew for each. Within a pass, transfers and computation overlap as far as the
buffers allow.
"""

from mas_sim._jit import leaf
from mas_sim.costs import P_E, P_ELEMENT
from mas_sim.dataflows._blocks import (
    begin_places,
    fetch_kv,
    fetch_q,
    first_tile,
    free_place,
    length_kind,
    output_pass,
    output_pass_span,
    plan_output_pass,
    ragged_kv,
    row_kind,
    slot_of,
    softmax,
    take_place,
    tile_at,
)
from mas_sim.dataflows._emission import (
    BK_BASE,
    BK_FIRST,
    BK_KINDS,
    BK_LAST,
    BK_N,
    BK_ROW_BLOCKS,
    BK_T,
    begin_pass,
    issue,
    link_pass,
)
from mas_sim.dataflows._plan import (
    KB_LOAD_C,
    KB_QK,
    KB_STORE_C,
    KB_STORE_P,
)
from mas_sim.dataflows._slots import (
    add_kv_slots,
    add_slots,
    group_heads,
    kv_span,
    row_blocks,
    stats_bytes,
)
from mas_sim.schedule import (
    LOAD,
    MAC,
    OP_LOAD_C,
    OP_QK,
    OP_STORE_C,
    OP_STORE_P,
    STORE,
    T_K,
    T_Q,
    T_S,
    T_STATS,
    T_TILE,
    CodeArray,
    IntArray,
)
from mas_sim.tiling import (
    TL_KV,
    TL_Q,
    TL_Q_BUFFERS,
    TL_SCORE_BUFFERS,
)


@leaf
def plan(p: IntArray, t: IntArray, row_length: int, slots: IntArray, places: IntArray) -> int:
    """Lay out one core's L1, each pass from offset 0, and return the number of slots."""
    heads = group_heads(p, t)
    q_bytes = heads * t[TL_Q] * p[P_E] * p[P_ELEMENT]
    tile_bytes = heads * t[TL_Q] * t[TL_KV] * p[P_ELEMENT]
    row_bytes = heads * t[TL_Q] * row_length * p[P_ELEMENT]
    n, offset = add_slots(slots, 0, 0, T_Q, t[TL_Q_BUFFERS], q_bytes)
    places[T_K] = n
    n, offset = add_kv_slots(slots, n, offset, T_K, 0, p[P_E], p, t)
    places[T_TILE] = n
    n, offset = add_slots(slots, n, offset, T_TILE, t[TL_SCORE_BUFFERS], tile_bytes)
    places[T_S] = n
    n, offset = add_slots(slots, n, 0, T_S, row_blocks(t, t[TL_SCORE_BUFFERS]), row_bytes)
    places[T_STATS] = n
    n, offset = add_slots(slots, n, offset, T_STATS, 1, stats_bytes(p, heads, t[TL_Q]))
    return plan_output_pass(p, t, row_length, slots, places, n)


@leaf
def span(p: IntArray, t: IntArray, row_length: int) -> int:
    """Bytes that the slots of `plan` span: the greatest of the three passes."""
    heads = group_heads(p, t)
    tile = t[TL_SCORE_BUFFERS] * heads * t[TL_Q] * t[TL_KV] * p[P_ELEMENT]
    first = heads * t[TL_Q] * p[P_E] * p[P_ELEMENT] * t[TL_Q_BUFFERS] + kv_span(p, t, 0, 0) + tile
    second = row_blocks(t, t[TL_SCORE_BUFFERS]) * heads * t[TL_Q] * row_length * p[P_ELEMENT]
    second += stats_bytes(p, heads, t[TL_Q])
    return int(max(first, second, output_pass_span(p, t, row_length)))


@leaf
def _scores_pass(code: CodeArray, book: IntArray) -> None:
    done = 0
    for item in range(book[BK_FIRST], book[BK_LAST]):
        g, i = item // book[BK_ROW_BLOCKS], item % book[BK_ROW_BLOCKS]
        q_slot = fetch_q(code, book, item - book[BK_FIRST], g, i)
        row = row_kind(book, g, i) * 2
        first = first_tile(book, i)
        for at in range(first, first_tile(book, i + 1)):
            j = tile_at(book, at)
            k_slot = fetch_kv(code, book, 0, g, i, j)
            slot = book[BK_BASE + T_TILE] + done % book[BK_T + TL_SCORE_BUFFERS]
            kind = row + ragged_kv(book, j)
            qk, store = book[BK_KINDS + KB_QK] + kind, book[BK_KINDS + KB_STORE_C] + kind
            issue(code, book, OP_QK, MAC, qk, slot, q_slot, k_slot, g, i, j, at - first, 3)
            issue(code, book, OP_STORE_C, STORE, store, -1, slot, -1, g, i, j, at - first, 3)
            done += 1


@leaf
def _softmax_pass(code: CodeArray, book: IntArray) -> None:
    begin_places(book, book[BK_T + TL_SCORE_BUFFERS])
    for item in range(book[BK_FIRST], book[BK_LAST]):
        g, i, place = item // book[BK_ROW_BLOCKS], item % book[BK_ROW_BLOCKS], item - book[BK_FIRST]
        kind = length_kind(book, g, i)
        slot = take_place(book, place)
        issue(code, book, OP_LOAD_C, LOAD, book[BK_KINDS + KB_LOAD_C] + kind, slot, -1, -1, g, i, 0, 0, 3)
        softmax(code, book, place)
        slot = slot_of(book, place)
        free_place(book, place)
        issue(code, book, OP_STORE_P, STORE, book[BK_KINDS + KB_STORE_P] + kind, -1, slot, -1, g, i, 0, 0, 3)


@leaf
def emit_core(code: CodeArray, book: IntArray) -> None:
    """Write the streams of one core: the three passes."""
    start = book[BK_N]
    _scores_pass(code, book)
    second = begin_pass(book)
    _softmax_pass(code, book)
    link_pass(code, book, second, start)
    third = begin_pass(book)
    output_pass(code, book)
    link_pass(code, book, third, start)
