"""The blocks of online softmax: scores of one kv tile, their passes with running statistics, corrections of O.

Online softmax (Milakov and Gimelshein 2018; FlashAttention) keeps, for each row, the maximum m and the sum l of what it
has seen. A new kv tile with maximum m' makes `alpha = exp(m - max(m, m'))`, by which l and the unfinished O are scaled;
O is divided by l once, behind the last tile. `flash` and `fusemax` are written with these blocks.
"""

from mas_sim._jit import leaf
from mas_sim.dataflows._blocks import edge_flags, fetch_kv, first_tile, mask_tile, ragged_kv, row_kind, tile_at
from mas_sim.dataflows._emission import (
    BK_FIRST,
    BK_KINDS,
    BK_ROW_BLOCKS,
    BK_T,
    also_write,
    issue,
)
from mas_sim.dataflows._plan import (
    KB_FIRST_WRITE,
    KB_NORMALIZE,
    KB_PASSES,
    KB_PV,
    KB_QK,
    KB_RESCALE,
    KB_SOFTMAX,
    KB_STORE_O,
    PV_VARIANTS,
)
from mas_sim.schedule import (
    F_SRC2,
    FLAG_PASS,
    MAC,
    OP_NORMALIZE,
    OP_ONLINE,
    OP_PV,
    OP_QK,
    OP_RESCALE,
    OP_STORE_O,
    STORE,
    VEC,
    CodeArray,
    IntArray,
)
from mas_sim.tiling import TL_EXP_ON


@leaf
def group_of(book: IntArray, place: int) -> int:
    """Group of the core's `place`-th item."""
    return int((book[BK_FIRST] + place) // book[BK_ROW_BLOCKS])


@leaf
def row_of(book: IntArray, place: int) -> int:
    """Row block of the core's `place`-th item."""
    return int((book[BK_FIRST] + place) % book[BK_ROW_BLOCKS])


@leaf
def tile_count(book: IntArray, i: int) -> int:
    """Kv tiles that row block i visits."""
    return first_tile(book, i + 1) - first_tile(book, i)


@leaf
def step_tile(book: IntArray, i: int, step: int) -> int:
    """Return the kv tile that is row block i's `step`-th."""
    return tile_at(book, first_tile(book, i) + step)


@leaf
def score_tile(code: CodeArray, book: IntArray, place: int, step: int, q_slot: int, s_slot: int) -> int:
    """Load the `step`-th kv tile of K for the core's `place`-th item where needed, write its C; return its row."""
    g, i = group_of(book, place), row_of(book, place)
    j = step_tile(book, i, step)
    k_slot = fetch_kv(code, book, 0, g, i, j)
    kind = book[BK_KINDS + KB_QK] + row_kind(book, g, i) * 2 + ragged_kv(book, j)
    flags = edge_flags(step, 0, tile_count(book, i))
    return issue(code, book, OP_QK, MAC, kind, s_slot, q_slot, k_slot, g, i, j, step, flags)


@leaf
def online_passes(code: CodeArray, book: IntArray, place: int, step: int, s_slot: int, stats: int, before: int) -> None:
    """Mask the tile in `s_slot` if need be, and write its passes; they take statistics from `before` to `stats`."""
    g, i = group_of(book, place), row_of(book, place)
    j = step_tile(book, i, step)
    mask_tile(code, book, s_slot, g, i, j, step)
    passes, writes = book[BK_KINDS + KB_PASSES], book[BK_KINDS + KB_FIRST_WRITE]
    on_mac = book[BK_T + TL_EXP_ON] == 1
    kind = book[BK_KINDS + KB_SOFTMAX] + (row_kind(book, g, i) * 2 + ragged_kv(book, j)) * passes
    flags = edge_flags(step, 0, tile_count(book, i))
    for number in range(passes):
        dst = s_slot if number >= writes and not on_mac else -1
        marks = flags + number * FLAG_PASS
        n = issue(code, book, OP_ONLINE, VEC, kind + number, dst, s_slot, stats, g, i, j, step, marks)
        code[n, F_SRC2] = (before if step > 0 else -1) if number == 0 else -1
        if on_mac:
            also_write(code, book, n, stats, VEC)  # the MAC array reads them


@leaf
def rescale(code: CodeArray, book: IntArray, place: int, step: int, o_slot: int, stats: int) -> None:
    """Scale the unfinished O by the `step`-th kv tile's correction; at the first tile that makes it zero."""
    g, i = group_of(book, place), row_of(book, place)
    kind, flags = book[BK_KINDS + KB_RESCALE] + row_kind(book, g, i), edge_flags(step, 0, tile_count(book, i))
    issue(code, book, OP_RESCALE, VEC, kind, o_slot, -1, stats, g, i, step_tile(book, i, step), step, flags)


@leaf
def product(code: CodeArray, book: IntArray, place: int, step: int, s_slot: int, dst: int) -> int:
    """Load the `step`-th kv tile of V where needed, and write its product with P; return its row."""
    g, i = group_of(book, place), row_of(book, place)
    j = step_tile(book, i, step)
    v_slot = fetch_kv(code, book, 1, g, i, j)
    flags = edge_flags(step, 0, tile_count(book, i))
    kind = book[BK_KINDS + KB_PV] + (row_kind(book, g, i) * 2 + ragged_kv(book, j)) * PV_VARIANTS + flags
    return issue(code, book, OP_PV, MAC, kind, dst, s_slot, v_slot, g, i, j, step, flags)


@leaf
def finish_row(code: CodeArray, book: IntArray, place: int, o_slot: int, stats: int) -> None:
    """Divide O of the core's `place`-th item by its rows' sums, and store it."""
    g, i = group_of(book, place), row_of(book, place)
    row = row_kind(book, g, i)
    issue(code, book, OP_NORMALIZE, VEC, book[BK_KINDS + KB_NORMALIZE] + row, o_slot, -1, stats, g, i, 0, 0, 3)
    issue(code, book, OP_STORE_O, STORE, book[BK_KINDS + KB_STORE_O] + row, -1, o_slot, -1, g, i, 0, 0, 3)
