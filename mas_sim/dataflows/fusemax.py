"""FuseMax (Nayak et al., MICRO 2024): one pass of online softmax, division deferred, MAC and VEC pipelined.

Of every kv tile the MAC array computes C and a partial O = P V; the vector unit keeps the running maximum and adds the
partial O to the scaled O. Exp, local maximum and local sum are on the vector unit (`exp_on: vec`) or in the MAC array's
own positions, which then hold the scores throughout (`mac`; the array must be able to: `mac.exp_steps`).

As in the paper's cascade, every kv tile corrects and adds, the first one too: it finds O and the row sums zero.

`overlap: pipelined` (the paper's "binding"): while the MAC array works on kv tile s, the vector unit corrects and adds
tile s - 1, on through row blocks and heads. `none` (its "architecture"): each tile ends before the next begins, and the
local maxima must leave the array before the vector unit can have them.
"""

from mas_sim._jit import leaf
from mas_sim.dataflows._blocks import edge_flags, fetch_q, ragged_kv, row_kind
from mas_sim.dataflows._emission import (
    BK_BASE,
    BK_FIRST,
    BK_KINDS,
    BK_LAST,
    BK_STATE,
    BK_T,
    also_wait_for,
    issue,
)
from mas_sim.dataflows._numbers import FUSEMAX, OVERLAP_NONE
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
from mas_sim.dataflows._plan import KB_ADD, KB_EXP
from mas_sim.dataflows._slots import plan_online
from mas_sim.schedule import (
    MAC,
    OP_ADD,
    OP_EXP,
    T_O,
    T_PART,
    T_STATS,
    T_TILE,
    UNITS,
    VEC,
    CodeArray,
    IntArray,
)
from mas_sim.tiling import TL_EXP_ON, TL_O_BUFFERS, TL_OVERLAP

LAST_ADD = BK_STATE
"""Where the book keeps the row of the last sum of O, as a token, -1 before the first."""


@leaf
def plan(p: IntArray, t: IntArray, row_length: int, slots: IntArray, places: IntArray) -> int:
    """Lay out one core's L1 with one or two kv tiles of C/P and partial O, and return the number of slots."""
    return plan_online(FUSEMAX, p, t, slots, places)


@leaf
def _begin_tile(code: CodeArray, book: IntArray, place: int, step: int, done: int, q_slot: int, in_turn: bool) -> None:
    """Write C of the core's `done`-th kv tile, the `step`-th of its `place`-th item."""
    slot = book[BK_BASE + T_TILE] + (0 if in_turn else done % 2)
    n = score_tile(code, book, place, step, q_slot, slot)
    if in_turn:
        also_wait_for(code, book, n, book[LAST_ADD], MAC, 1)


@leaf
def _update_stats(code: CodeArray, book: IntArray, place: int, step: int, done: int, in_turn: bool) -> None:
    """Write the passes of the core's `done`-th kv tile: from the statistics of the tile before it to its own."""
    now, before = (0, 0) if in_turn else (done % 2, (done + 1) % 2)
    tile, stats = book[BK_BASE + T_TILE] + now, book[BK_BASE + T_STATS]
    online_passes(code, book, place, step, tile, stats + now, stats + before)


@leaf
def _multiply(code: CodeArray, book: IntArray, place: int, step: int, done: int, in_turn: bool) -> None:
    """Write exp, if it runs on the MAC array, and the partial O of the core's `done`-th kv tile."""
    now = 0 if in_turn else done % 2
    slot, stats = book[BK_BASE + T_TILE] + now, book[BK_BASE + T_STATS] + now
    g, i = group_of(book, place), row_of(book, place)
    if book[BK_T + TL_EXP_ON] == 1:
        j = step_tile(book, i, step)
        kind = book[BK_KINDS + KB_EXP] + row_kind(book, g, i) * 2 + ragged_kv(book, j)
        flags = edge_flags(step, 0, tile_count(book, i))
        issue(code, book, OP_EXP, MAC, kind, slot, slot, stats, g, i, j, step, flags)
    product(code, book, place, step, slot, book[BK_BASE + T_PART] + now)


@leaf
def _o_slot(book: IntArray, place: int) -> int:
    return int(book[BK_BASE + T_O] + place % book[BK_T + TL_O_BUFFERS])


@leaf
def _correct(code: CodeArray, book: IntArray, place: int, step: int, done: int, in_turn: bool) -> None:
    """Write the scaling of O by the correction of the core's `done`-th kv tile."""
    rescale(code, book, place, step, _o_slot(book, place), book[BK_BASE + T_STATS] + (0 if in_turn else done % 2))


@leaf
def _add(code: CodeArray, book: IntArray, place: int, step: int, done: int, in_turn: bool) -> None:
    """Write the sum of O and the partial O of the core's `done`-th kv tile; behind the last one of a row O is ready."""
    now = 0 if in_turn else done % 2
    g, i = group_of(book, place), row_of(book, place)
    o_slot, tiles = _o_slot(book, place), tile_count(book, i)
    kind, flags = book[BK_KINDS + KB_ADD] + row_kind(book, g, i), edge_flags(step, 0, tiles)
    part = book[BK_BASE + T_PART] + now
    n = issue(code, book, OP_ADD, VEC, kind, o_slot, part, -1, g, i, step_tile(book, i, step), step, flags)
    book[LAST_ADD] = n * UNITS + VEC
    if step == tiles - 1:
        finish_row(code, book, place, o_slot, book[BK_BASE + T_STATS] + now)


@leaf
def emit_core(code: CodeArray, book: IntArray) -> None:
    """Write the streams of one core, kv tile by kv tile of all its items."""
    in_turn = book[BK_T + TL_OVERLAP] == OVERLAP_NONE
    done, old_place, old_step = 0, -1, -1
    for place in range(book[BK_LAST] - book[BK_FIRST]):
        q_slot = fetch_q(code, book, place, group_of(book, place), row_of(book, place))
        for step in range(tile_count(book, row_of(book, place))):
            _begin_tile(code, book, place, step, done, q_slot, in_turn)
            if in_turn:
                _update_stats(code, book, place, step, done, in_turn)
                _correct(code, book, place, step, done, in_turn)
                _multiply(code, book, place, step, done, in_turn)
                _add(code, book, place, step, done, in_turn)
            else:
                if old_place >= 0:
                    _correct(code, book, old_place, old_step, done - 1, in_turn)
                _update_stats(code, book, place, step, done, in_turn)
                if old_place >= 0:
                    _multiply(code, book, old_place, old_step, done - 1, in_turn)
                    _add(code, book, old_place, old_step, done - 1, in_turn)
            done, old_place, old_step = done + 1, place, step
    if not in_turn and old_place >= 0:
        _correct(code, book, old_place, old_step, done - 1, in_turn)
        _multiply(code, book, old_place, old_step, done - 1, in_turn)
        _add(code, book, old_place, old_step, done - 1, in_turn)
