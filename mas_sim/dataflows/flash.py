"""FlashAttention on two units: online softmax over kv tiles, O rescaled by the vector unit between products.

`overlap: none` is in sequence (FlashAttention-2, Dao 2023): C of a kv tile, its softmax, O *= correction, O += P V, and
only then the next tile. `ping_pong` (FlashAttention-3, Shah et al. 2024) takes two row blocks in turn: while the vector
unit works on one's tile, the MAC unit does the other's products. Two of the same group share the streamed tiles of K
and V that they both visit, which so are loaded once for both. Two of different groups are a pair too, so that there is
no bubble at a head's end, where L1 can hold what is resident of both groups (two buffers); else the odd one goes alone.
"""

from mas_sim._jit import leaf
from mas_sim.dataflows._blocks import load_q
from mas_sim.dataflows._emission import BK_BASE, BK_FIRST, BK_LAST, BK_SHARED, BK_STATE, BK_T
from mas_sim.dataflows._numbers import FLASH, OVERLAP_PING_PONG, pairs_across
from mas_sim.dataflows._online import (
    finish_row,
    group_of,
    online_passes,
    product,
    rescale,
    row_of,
    score_tile,
    step_tile,
    tile_count,
)
from mas_sim.dataflows._slots import plan_online
from mas_sim.schedule import T_O, T_Q, T_STATS, T_TILE, CodeArray, IntArray
from mas_sim.tiling import TILING_FIELDS, TL_O_BUFFERS, TL_OVERLAP, TL_Q_BUFFERS

# What each of two streams is at, from BK_STATE on: its item, the kv tile whose product is still to come (-1: none), its
# slot of Q, the name it shares tiles under.
ST_PLACE, ST_STEP, ST_Q, ST_SHARED, STREAM_FIELDS = 0, 1, 2, 3, 4


@leaf
def plan(p: IntArray, t: IntArray, row_length: int, slots: IntArray, places: IntArray) -> int:
    """Lay out one core's L1 with a kv tile of C/P for each stream, and return the number of slots."""
    return plan_online(FLASH, p, t, slots, places)


@leaf
def _o_slot(book: IntArray, place: int, streams: int) -> int:
    return int(book[BK_BASE + T_O] + place % (streams * book[BK_T + TL_O_BUFFERS]))


@leaf
def _begin_row(code: CodeArray, book: IntArray, x: int, place: int, streams: int) -> None:
    """Let stream x go on to the core's `place`-th item."""
    state = BK_STATE + x * STREAM_FIELDS
    slot = book[BK_BASE + T_Q] + place % (streams * book[BK_T + TL_Q_BUFFERS])
    load_q(code, book, slot, group_of(book, place), row_of(book, place))
    book[state + ST_PLACE], book[state + ST_STEP], book[state + ST_Q] = place, -1, slot


@leaf
def _finish_tile(code: CodeArray, book: IntArray, x: int, streams: int) -> None:
    """Write the product that stream x still has to do, if any, and what follows the last one of a row block."""
    state = BK_STATE + x * STREAM_FIELDS
    step = book[state + ST_STEP]
    if step < 0:
        return
    place = book[state + ST_PLACE]
    o_slot = _o_slot(book, place, streams)
    book[BK_SHARED] = book[state + ST_SHARED]
    product(code, book, place, step, book[BK_BASE + T_TILE] + x, o_slot)
    if step == tile_count(book, row_of(book, place)) - 1:
        finish_row(code, book, place, o_slot, book[BK_BASE + T_STATS] + x)
    book[state + ST_STEP] = -1


@leaf
def _begin_tile(code: CodeArray, book: IntArray, x: int, step: int, streams: int) -> None:
    """Write C, softmax and the correction of O for the `step`-th kv tile of stream x's row block."""
    state = BK_STATE + x * STREAM_FIELDS
    place, s_slot, stats = book[state + ST_PLACE], book[BK_BASE + T_TILE] + x, book[BK_BASE + T_STATS] + x
    book[BK_SHARED] = book[state + ST_SHARED]
    score_tile(code, book, place, step, book[state + ST_Q], s_slot)
    online_passes(code, book, place, step, s_slot, stats, stats)
    if step > 0:  # before, there is nothing to scale
        rescale(code, book, place, step, _o_slot(book, place, streams), stats)
    book[state + ST_STEP] = step


@leaf
def _in_sequence(code: CodeArray, book: IntArray, place: int, streams: int) -> None:
    """Write the core's `place`-th item by itself, in stream 0."""
    _finish_tile(code, book, 0, streams)
    _begin_row(code, book, 0, place, streams)
    book[BK_STATE + ST_SHARED] = -1
    for step in range(tile_count(book, row_of(book, place))):
        _begin_tile(code, book, 0, step, streams)
        _finish_tile(code, book, 0, streams)


@leaf
def _ping_pong(code: CodeArray, book: IntArray, place: int) -> None:
    """Write the core's `place`-th item and the next one in turn, tile by tile of those that either visits."""
    a, b = row_of(book, place), row_of(book, place + 1)
    shared = place if group_of(book, place) == group_of(book, place + 1) else -1
    first = min(step_tile(book, a, 0), step_tile(book, b, 0))
    last = max(step_tile(book, a, tile_count(book, a) - 1), step_tile(book, b, tile_count(book, b) - 1))
    for j in range(first, last + 1):
        for x in range(2):
            i = b if x else a
            step = j - step_tile(book, i, 0)
            _finish_tile(code, book, x, 2)
            if step == 0:
                _begin_row(code, book, x, place + x, 2)
                book[BK_STATE + x * STREAM_FIELDS + ST_SHARED] = shared
            if 0 <= step < tile_count(book, i):
                _begin_tile(code, book, x, step, 2)


@leaf
def emit_core(code: CodeArray, book: IntArray) -> None:
    """Write the streams of one core."""
    items = book[BK_LAST] - book[BK_FIRST]
    if book[BK_T + TL_OVERLAP] != OVERLAP_PING_PONG:
        for place in range(items):
            _in_sequence(code, book, place, 1)
        return
    across = pairs_across(book[BK_T : BK_T + TILING_FIELDS])
    place = 0
    while place < items:
        if place + 1 < items and (across or group_of(book, place) == group_of(book, place + 1)):
            _ping_pong(code, book, place)
            place += 2
        else:
            _finish_tile(code, book, 0, 2)
            _finish_tile(code, book, 1, 2)
            _in_sequence(code, book, place, 2)
            place += 1
    _finish_tile(code, book, 0, 2)
    _finish_tile(code, book, 1, 2)
