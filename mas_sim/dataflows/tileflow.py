"""TileFlow's attention (Zheng et al., MICRO 2023): fused, all dimensions tiled, and pipelined over kv tiles.

The published mapping streams one kv tile after the other through C, softmax and O, which is legal only because it
leaves softmax's dependence on whole rows out. Ours keeps softmax exact over full rows: products and vector work are
cut into kv tiles, and the MAC unit alternates a tile of C_r with a tile of O of an earlier row block; but the vector
unit takes exponentials only behind the maximum of the whole row, and divides behind its sum. So O lags one row block
behind C with two row blocks of C/P in L1 (`score_buffers` 2), or two with three; docs/model.md, section 4.
"""

from mas_sim._jit import leaf
from mas_sim.dataflows._blocks import (
    begin_places,
    edge_flags,
    fetch_kv,
    fetch_q,
    first_tile,
    free_place,
    mask_tile,
    ragged_kv,
    row_kind,
    take_place,
    tile_at,
)
from mas_sim.dataflows._emission import (
    BK_BASE,
    BK_FIRST,
    BK_KINDS,
    BK_LAST,
    BK_PLACE,
    BK_ROW_BLOCKS,
    BK_STATE,
    BK_T,
    RING,
    issue,
)
from mas_sim.dataflows._plan import (
    KB_FIRST_WRITE,
    KB_MAX_END,
    KB_PASSES,
    KB_PV,
    KB_QK,
    KB_SOFTMAX,
    KB_STORE_O,
    KB_SUM_END,
    PV_VARIANTS,
)
from mas_sim.dataflows._slots import plan_tiles
from mas_sim.schedule import (
    FLAG_PASS,
    MAC,
    OP_PV,
    OP_QK,
    OP_STORE_O,
    OP_TILE_SOFTMAX,
    STORE,
    T_O,
    T_STATS,
    T_TILE,
    VEC,
    CodeArray,
    IntArray,
)
from mas_sim.tiling import TL_O_BUFFERS, TL_SCORE_BUFFERS

TILES = BK_STATE
"""Where the book keeps how many kv tiles a row block has at most."""


@leaf
def plan(p: IntArray, t: IntArray, row_length: int, slots: IntArray, places: IntArray) -> int:
    """Lay out one core's L1 with a ring of `score_buffers` row blocks in tiles, and return the number of slots."""
    return plan_tiles(p, t, row_length, t[TL_SCORE_BUFFERS], slots, places)


@leaf
def _slot(book: IntArray, place: int, step: int) -> int:
    """Slot of the `step`-th kv tile of C/P of the core's `place`-th item."""
    ring = book[BK_PLACE + place % RING]
    return int(book[BK_BASE + T_TILE] + ring * book[TILES] + step)


@leaf
def _passes(
    code: CodeArray, book: IntArray, slot: int, g: int, i: int, step: int, begin: int, end: int, flags: int
) -> None:
    """Write softmax passes `[begin, end)` over the `step`-th kv tile of a row block, which is in `slot`."""
    j = tile_at(book, first_tile(book, i) + step)
    kind = book[BK_KINDS + KB_SOFTMAX] + (row_kind(book, g, i) * 2 + ragged_kv(book, j)) * book[BK_KINDS + KB_PASSES]
    stats, writes = book[BK_BASE + T_STATS], book[BK_KINDS + KB_FIRST_WRITE]
    for number in range(begin, end):
        # A pass that only reduces changes no score; a later one that does so works in place all the same.
        dst = slot if number >= writes else -1
        marks = flags + number * FLAG_PASS
        issue(code, book, OP_TILE_SOFTMAX, VEC, kind + number, dst, slot, stats, g, i, j, step, marks)


@leaf
def _finish_softmax(code: CodeArray, book: IntArray, place: int) -> None:
    """Write what softmax of the core's `place`-th item does behind its rows' maxima, then behind their sums."""
    item = book[BK_FIRST] + place
    g, i = item // book[BK_ROW_BLOCKS], item % book[BK_ROW_BLOCKS]
    tiles = first_tile(book, i + 1) - first_tile(book, i)
    ends = (book[BK_KINDS + KB_MAX_END], book[BK_KINDS + KB_SUM_END], book[BK_KINDS + KB_PASSES])
    for phase in range(2):
        for step in range(tiles):
            slot = _slot(book, place, step)
            _passes(code, book, slot, g, i, step, ends[phase], ends[phase + 1], edge_flags(step, 0, tiles))


@leaf
def _score_tile(code: CodeArray, book: IntArray, place: int, q_slot: int, step: int) -> None:
    """Write C of the `step`-th kv tile of the core's `place`-th item, and its part in the row's maxima."""
    item = book[BK_FIRST] + place
    g, i = item // book[BK_ROW_BLOCKS], item % book[BK_ROW_BLOCKS]
    first, tiles = first_tile(book, i), first_tile(book, i + 1) - first_tile(book, i)
    j, slot, flags = tile_at(book, first + step), _slot(book, place, step), edge_flags(step, 0, tiles)
    k_slot = fetch_kv(code, book, 0, g, i, j)
    kind = book[BK_KINDS + KB_QK] + row_kind(book, g, i) * 2 + ragged_kv(book, j)
    issue(code, book, OP_QK, MAC, kind, slot, q_slot, k_slot, g, i, j, step, flags)
    mask_tile(code, book, slot, g, i, j, step)
    _passes(code, book, slot, g, i, step, 0, book[BK_KINDS + KB_MAX_END], flags)


@leaf
def _output_tile(code: CodeArray, book: IntArray, place: int, step: int) -> None:
    """Write the product of the `step`-th kv tile of the core's `place`-th item; behind the last one its O is stored."""
    item = book[BK_FIRST] + place
    g, i = item // book[BK_ROW_BLOCKS], item % book[BK_ROW_BLOCKS]
    first, tiles = first_tile(book, i), first_tile(book, i + 1) - first_tile(book, i)
    j, flags, row = tile_at(book, first + step), edge_flags(step, 0, tiles), row_kind(book, g, i)
    v_slot = fetch_kv(code, book, 1, g, i, j)
    o_slot = book[BK_BASE + T_O] + place % book[BK_T + TL_O_BUFFERS]
    kind = book[BK_KINDS + KB_PV] + (row * 2 + ragged_kv(book, j)) * PV_VARIANTS + flags
    issue(code, book, OP_PV, MAC, kind, o_slot, _slot(book, place, step), v_slot, g, i, j, step, flags)
    if step == tiles - 1:
        free_place(book, place)
        issue(code, book, OP_STORE_O, STORE, book[BK_KINDS + KB_STORE_O] + row, -1, o_slot, -1, g, i, 0, 0, 3)


@leaf
def _tiles_of(book: IntArray, place: int) -> int:
    """Kv tiles of the core's `place`-th item, 0 if there is no such item."""
    if place < 0 or place >= book[BK_LAST] - book[BK_FIRST]:
        return 0
    i = (book[BK_FIRST] + place) % book[BK_ROW_BLOCKS]
    return first_tile(book, i + 1) - first_tile(book, i)


@leaf
def emit_core(code: CodeArray, book: IntArray) -> None:
    """Write the streams of one core: in round r, tiles of C_r and of O of `score_buffers - 1` rounds ago in turn."""
    items, ring = book[BK_LAST] - book[BK_FIRST], book[BK_T + TL_SCORE_BUFFERS]
    begin_places(book, ring)
    for i in range(book[BK_ROW_BLOCKS]):
        book[TILES] = max(book[TILES], first_tile(book, i + 1) - first_tile(book, i))
    for r in range(items + ring - 1):
        done = r - (ring - 1)
        scores, outputs, q_slot = _tiles_of(book, r), _tiles_of(book, done), -1
        if 1 <= r <= items:
            _finish_softmax(code, book, r - 1)
        if r < items:
            item = book[BK_FIRST] + r
            q_slot = fetch_q(code, book, r, item // book[BK_ROW_BLOCKS], item % book[BK_ROW_BLOCKS])
            take_place(book, r)
        for step in range(max(scores, outputs)):
            if step < scores:
                _score_tile(code, book, r, q_slot, step)
            if step < outputs:
                _output_tile(code, book, done, step)
