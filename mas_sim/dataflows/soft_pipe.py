"""Soft-pipe attention: C and softmax pipelined on chip, P through DRAM, O in a second pass.

Pass 1: while the vector unit computes P_{r-1}, the MAC unit computes C_r; P is stored row block by row block. Pass 2
loads the tiles of P and computes O = P V. The second pass starts when the first has ended on its core, and lays L1
out anew. So C never leaves the chip, P does once (the baseline of that name in MAS-Attention, MLSys 2025).
"""

from mas_sim._jit import leaf
from mas_sim.costs import P_E, P_ELEMENT
from mas_sim.dataflows._blocks import (
    begin_places,
    free_place,
    length_kind,
    load_and_score,
    output_pass,
    output_pass_span,
    plan_output_pass,
    slot_of,
    softmax,
)
from mas_sim.dataflows._emission import (
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
from mas_sim.dataflows._plan import KB_STORE_P
from mas_sim.dataflows._slots import (
    add_kv_slots,
    add_slots,
    group_heads,
    kv_span,
    row_blocks,
    stats_bytes,
)
from mas_sim.schedule import (
    OP_STORE_P,
    STORE,
    T_K,
    T_Q,
    T_S,
    T_STATS,
    CodeArray,
    IntArray,
)
from mas_sim.tiling import TL_Q, TL_Q_BUFFERS, TL_SCORE_BUFFERS


@leaf
def plan(p: IntArray, t: IntArray, row_length: int, slots: IntArray, places: IntArray) -> int:
    """Lay out one core's L1, each pass from offset 0, and return the number of slots."""
    heads, rings = group_heads(p, t), t[TL_SCORE_BUFFERS]
    places[T_Q] = 0
    n, offset = add_slots(slots, 0, 0, T_Q, t[TL_Q_BUFFERS], heads * t[TL_Q] * p[P_E] * p[P_ELEMENT])
    places[T_K] = n
    n, offset = add_kv_slots(slots, n, offset, T_K, 0, p[P_E], p, t)
    places[T_S] = n
    row_bytes = heads * t[TL_Q] * row_length * p[P_ELEMENT]
    n, offset = add_slots(slots, n, offset, T_S, row_blocks(t, rings), row_bytes)
    places[T_STATS] = n
    n, offset = add_slots(slots, n, offset, T_STATS, 1, stats_bytes(p, heads, t[TL_Q]))
    return plan_output_pass(p, t, row_length, slots, places, n)


@leaf
def span(p: IntArray, t: IntArray, row_length: int) -> int:
    """Bytes that the slots of `plan` span: the greater of the two passes."""
    heads, rings = group_heads(p, t), t[TL_SCORE_BUFFERS]
    first = heads * t[TL_Q] * p[P_E] * p[P_ELEMENT] * t[TL_Q_BUFFERS] + kv_span(p, t, 0, 0)
    first += row_blocks(t, rings) * heads * t[TL_Q] * row_length * p[P_ELEMENT] + stats_bytes(p, heads, t[TL_Q])
    return int(max(first, output_pass_span(p, t, row_length)))


@leaf
def _score_pass(code: CodeArray, book: IntArray) -> None:
    items = book[BK_LAST] - book[BK_FIRST]
    begin_places(book, book[BK_T + TL_SCORE_BUFFERS])
    for r in range(items + 1):
        if r < items:
            load_and_score(code, book, r)
        if r == 0:
            continue
        softmax(code, book, r - 1)
        slot = slot_of(book, r - 1)
        free_place(book, r - 1)
        item = book[BK_FIRST] + r - 1
        g, i = item // book[BK_ROW_BLOCKS], item % book[BK_ROW_BLOCKS]
        kind = book[BK_KINDS + KB_STORE_P] + length_kind(book, g, i)
        issue(code, book, OP_STORE_P, STORE, kind, -1, slot, -1, g, i, 0, 0, 3)


@leaf
def emit_core(code: CodeArray, book: IntArray) -> None:
    """Write the streams of one core: the two passes."""
    start = book[BK_N]
    _score_pass(code, book)
    second = begin_pass(book)
    output_pass(code, book)
    link_pass(code, book, second, start)
