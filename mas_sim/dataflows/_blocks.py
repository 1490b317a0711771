"""The blocks that dataflows are written with: fetch a tile, compute scores, turn them into P, compute the output.

Row blocks of C and P move through a few places in L1 (`take_place`, `free_place`): a ring, and one more place
where P does not take C's bytes. Under proactive overwrite that one more place is where the last tiles of K or V
are, the *window*: softmax writes P over them, and they are loaded again into the place that C leaves.
"""

from mas_sim._jit import leaf
from mas_sim.costs import P_AHEAD, P_BACK, P_ELEMENT, P_F, P_NKV, P_NQ, ceil_div
from mas_sim.dataflows._emission import (
    BK_BASE,
    BK_BEFORE,
    BK_FIRST,
    BK_FREE,
    BK_FREE_COUNT,
    BK_FREE_HEAD,
    BK_GROUPS,
    BK_HELD,
    BK_K,
    BK_KINDS,
    BK_KV_TILES,
    BK_LAST,
    BK_LATEST,
    BK_MASKED,
    BK_P,
    BK_PLACE,
    BK_ROW_BLOCKS,
    BK_ROWS,
    BK_SHARED,
    BK_SPARE,
    BK_T,
    BK_TILES,
    BK_V,
    BK_WINDOW,
    FREE_PLACES,
    GROUP_CLASS,
    GROUP_FIELDS,
    GROUP_KEY,
    PLACE_P_TILE,
    RING,
    ROW_CLASS,
    ROW_FIELDS,
    ROW_FIRST,
    issue,
)
from mas_sim.dataflows._plan import (
    KB_FIRST_WRITE,
    KB_LOAD_K,
    KB_LOAD_P,
    KB_LOAD_Q,
    KB_MASK,
    KB_PASSES,
    KB_PV,
    KB_QK,
    KB_ROW_CLASSES,
    KB_SOFTMAX,
    KB_STORE_O,
    PV_VARIANTS,
)
from mas_sim.dataflows._slots import add_kv_slots, add_slots, group_heads, kv_span, output_bytes, row_blocks
from mas_sim.dataflows._window import (
    OVERWRITE_K,
    OVERWRITE_V,
    end_window_row,
    fetch_window,
    read_tile,
    reload_window,
)
from mas_sim.schedule import (
    FLAG_FIRST,
    FLAG_LAST,
    LOAD,
    MAC,
    OP_LOAD_K,
    OP_LOAD_P,
    OP_LOAD_Q,
    OP_MASK,
    OP_PV,
    OP_SOFTMAX,
    OP_STORE_O,
    STORE,
    T_K,
    T_O,
    T_Q,
    T_S,
    T_STATS,
    T_TILE,
    T_V,
    VEC,
    CodeArray,
    IntArray,
)
from mas_sim.tiling import (
    TILING_FIELDS,
    TL_IN_PLACE,
    TL_K_BUFFERS,
    TL_K_RESIDENT,
    TL_KV,
    TL_O_BUFFERS,
    TL_OVERWRITE,
    TL_Q,
    TL_Q_BUFFERS,
    TL_SCORE_BUFFERS,
)


@leaf
def row_kind(book: IntArray, g: int, i: int) -> int:
    """Index of an item's shape: `2 * class of the group`, plus 1 if row block i is the ragged last one."""
    ragged = 1 if (i + 1) * book[BK_T + TL_Q] > book[BK_P + P_NQ] else 0
    return int(book[book[BK_GROUPS] + g * GROUP_FIELDS + GROUP_CLASS] * 2 + ragged)


@leaf
def length_kind(book: IntArray, g: int, i: int) -> int:
    """Index of whole rows' shape: that of the group's class and of the row block."""
    cls = book[book[BK_GROUPS] + g * GROUP_FIELDS + GROUP_CLASS]
    return int(cls * book[BK_KINDS + KB_ROW_CLASSES] + book[book[BK_ROWS] + i * ROW_FIELDS + ROW_CLASS])


@leaf
def ragged_kv(book: IntArray, j: int) -> int:
    """Return 1 if kv tile j is the last one and smaller than the others."""
    return 1 if (j + 1) * book[BK_T + TL_KV] > book[BK_P + P_NKV] else 0


@leaf
def first_tile(book: IntArray, i: int) -> int:
    """Where row block i's kv tiles start in the list that `tile_at` reads; those of row block i + 1 follow."""
    return int(book[book[BK_ROWS] + i * ROW_FIELDS + ROW_FIRST])


@leaf
def tile_at(book: IntArray, at: int) -> int:
    """Return the kv tile at a place in the list of all row blocks' kv tiles."""
    return int(book[book[BK_TILES] + at])


@leaf
def is_partial(book: IntArray, i: int, j: int) -> bool:
    """Whether the mask keeps kv tile j in part only for row block i, which visits it."""
    if book[BK_MASKED] == 0:
        return False
    q, kv, n_q, n_kv = book[BK_T + TL_Q], book[BK_T + TL_KV], book[BK_P + P_NQ], book[BK_P + P_NKV]
    top, bottom = i * q + n_kv - n_q, min((i + 1) * q, n_q) - 1 + n_kv - n_q
    is_whole = j * kv >= bottom - book[BK_P + P_BACK] and min((j + 1) * kv, n_kv) - 1 <= top + book[BK_P + P_AHEAD]
    return not is_whole


@leaf
def mask_tile(code: CodeArray, book: IntArray, slot: int, g: int, i: int, j: int, step: int) -> None:
    """Mask the scores of kv tile j in `slot`, the `step`-th of row block i, if the mask keeps them in part only."""
    if is_partial(book, i, j):
        kind = book[BK_KINDS + KB_MASK] + row_kind(book, g, i) * 2 + ragged_kv(book, j)
        issue(code, book, OP_MASK, VEC, kind, slot, slot, -1, g, i, j, step, 3)


@leaf
def edge_flags(at: int, first: int, last: int) -> int:
    """Flags of the instruction for place `at` of an accumulation over `[first, last)`."""
    return (FLAG_FIRST if at == first else 0) + (FLAG_LAST if at == last - 1 else 0)


@leaf
def fetch_q(code: CodeArray, book: IntArray, place: int, g: int, i: int) -> int:
    """Load the Q rows of an item, the core's `place`-th, and return their slot."""
    slot = book[BK_BASE + T_Q] + place % book[BK_T + TL_Q_BUFFERS]
    load_q(code, book, slot, g, i)
    return int(slot)


@leaf
def load_q(code: CodeArray, book: IntArray, slot: int, g: int, i: int) -> None:
    """Load the Q rows of an item to a slot."""
    issue(code, book, OP_LOAD_Q, LOAD, book[BK_KINDS + KB_LOAD_Q] + row_kind(book, g, i), slot, -1, -1, g, i, 0, 0, 0)


@leaf
def begin_places(book: IntArray, rings: int) -> None:
    """Set up the places of row blocks for the current core: a ring of `rings`, and the spare one, if there is one."""
    places = row_blocks(book[BK_T : BK_T + TILING_FIELDS], rings)
    book[BK_FREE_HEAD], book[BK_FREE_COUNT] = 0, rings
    for place in range(rings):
        book[BK_FREE + place] = place
    book[BK_SPARE] = places - 1 if places > rings else -1


@leaf
def take_place(book: IntArray, place: int) -> int:
    """Give the core's `place`-th item the row block's place that has been free the longest; return its slot."""
    head = book[BK_FREE_HEAD]
    book[BK_FREE_HEAD] = (head + 1) % FREE_PLACES
    book[BK_FREE_COUNT] -= 1
    book[BK_PLACE + place % RING] = book[BK_FREE + head]
    return int(book[BK_BASE + T_S] + book[BK_FREE + head])


@leaf
def slot_of(book: IntArray, place: int) -> int:
    """Slot of the row block of the core's `place`-th item."""
    return int(book[BK_BASE + T_S] + book[BK_PLACE + place % RING])


@leaf
def free_place(book: IntArray, place: int) -> None:
    """Free the row block of the core's `place`-th item: all that reads it has been issued."""
    tail = (book[BK_FREE_HEAD] + book[BK_FREE_COUNT]) % FREE_PLACES
    book[BK_FREE + tail] = book[BK_PLACE + place % RING]
    book[BK_FREE_COUNT] += 1


@leaf
def turn_to(book: IntArray, is_v: int, key: int) -> None:
    """Make the set of K (V) with a key the current one: the one before, or else a new one."""
    cursor, before = BK_V if is_v else BK_K, BK_BEFORE + 3 * is_v
    at, old = book[cursor + 1], book[cursor + 2]
    if key == book[before + 1]:
        book[cursor + 1] = book[before]
    else:
        book[before + 2] += 1
        book[cursor + 1] = book[before + 2]
    book[cursor + 2] = key
    book[before], book[before + 1] = at, old


@leaf
def fetch_kv(code: CodeArray, book: IntArray, is_v: int, g: int, i: int, j: int) -> int:
    """Return the slot of K (or V) tile j for group g, loading the tile unless it is resident and already there."""
    cursor = BK_V if is_v else BK_K
    resident = book[BK_T + TL_K_RESIDENT + is_v]
    buffers = book[BK_T + TL_K_BUFFERS + is_v]
    base = book[BK_BASE + T_K + is_v]
    group = book[BK_GROUPS] + g * GROUP_FIELDS
    key = book[group + GROUP_KEY]
    tiles = book[BK_KV_TILES]
    if book[BK_T + TL_OVERWRITE] == (OVERWRITE_V if is_v else OVERWRITE_K):
        tiles -= book[BK_WINDOW]
        if j >= tiles:
            return fetch_window(code, book, is_v, g, i)
        resident = tiles
    if key != book[cursor + 2]:
        turn_to(book, is_v, key)
    if j < resident:
        slot = base + book[cursor + 1] % buffers * resident + j
        held = book[BK_HELD] + slot
        if book[held] == key:
            return int(slot)
        book[held] = key
    else:
        latest = BK_LATEST + 3 * is_v
        if book[BK_SHARED] >= 0 and book[latest] == book[BK_SHARED] and book[latest + 1] == j:
            return int(book[latest + 2])
        slot = base + resident * buffers + book[cursor]
        book[cursor] += 1
        if book[cursor] >= min(buffers, tiles - resident):
            book[cursor] = 0
        book[latest], book[latest + 1], book[latest + 2] = book[BK_SHARED], j, slot
    kind = book[BK_KINDS + KB_LOAD_K + is_v] + book[group + GROUP_CLASS] * 2 + ragged_kv(book, j)
    issue(code, book, OP_LOAD_K + is_v, LOAD, kind, slot, -1, -1, g, i, j, 0, 0)
    return int(slot)


@leaf
def scores(code: CodeArray, book: IntArray, place: int, q_slot: int) -> None:
    """Load K where needed, and compute the scores C of the core's `place`-th item from the Q rows in `q_slot`."""
    item = book[BK_FIRST] + place
    g, i = item // book[BK_ROW_BLOCKS], item % book[BK_ROW_BLOCKS]
    s_slot = take_place(book, place)
    kind = book[BK_KINDS + KB_QK] + row_kind(book, g, i) * 2
    first, last = first_tile(book, i), first_tile(book, i + 1)
    for at in range(first, last):
        j = tile_at(book, at)
        k_slot = fetch_kv(code, book, 0, g, i, j)
        flags = edge_flags(at, first, last)
        read_tile(code, book, 0, kind + ragged_kv(book, j), s_slot, q_slot, k_slot, g, i, j, at - first, flags)
    end_window_row(book, 0)


@leaf
def load_and_score(code: CodeArray, book: IntArray, place: int) -> None:
    """Load Q, and K where needed, and compute the scores C of the core's `place`-th item."""
    item = book[BK_FIRST] + place
    q_slot = fetch_q(code, book, place, item // book[BK_ROW_BLOCKS], item % book[BK_ROW_BLOCKS])
    scores(code, book, place, q_slot)


@leaf
def softmax(code: CodeArray, book: IntArray, place: int) -> None:
    """Turn the scores of the core's `place`-th item into probabilities, pass by pass.

    In place; or into the spare place, from the first pass that writes on. C's place is then the next spare one,
    and under overwrite the window, over which P has been written, is loaded again there.
    """
    item = book[BK_FIRST] + place
    g, i = item // book[BK_ROW_BLOCKS], item % book[BK_ROW_BLOCKS]
    passes, writes = book[BK_KINDS + KB_PASSES], book[BK_KINDS + KB_FIRST_WRITE]
    kind = book[BK_KINDS + KB_SOFTMAX] + length_kind(book, g, i) * passes
    stats = book[BK_BASE + T_STATS]
    old = book[BK_PLACE + place % RING]
    new = old if book[BK_T + TL_IN_PLACE] else book[BK_SPARE]
    c_slot, p_slot = book[BK_BASE + T_S] + old, book[BK_BASE + T_S] + new
    over, n = -1, -1
    if book[BK_MASKED]:
        first = first_tile(book, i)
        for at in range(first, first_tile(book, i + 1)):
            mask_tile(code, book, c_slot, g, i, tile_at(book, at), at - first)
    for step in range(passes):
        flags = edge_flags(step, 0, passes)
        src = c_slot if step <= writes else p_slot
        dst = p_slot if step >= writes else -1
        n = issue(code, book, OP_SOFTMAX, VEC, kind + step, dst, src, stats, g, i, step, step, flags)
        if step == writes:
            over = n
    book[BK_PLACE + place % RING] = new
    if new != old:
        book[BK_SPARE] = old
        if book[BK_T + TL_OVERWRITE]:
            reload_window(code, book, place, over, n, p_slot)


@leaf
def output(code: CodeArray, book: IntArray, place: int) -> None:
    """Load V where needed, compute the output O of the core's `place`-th item, and store it."""
    item = book[BK_FIRST] + place
    g, i = item // book[BK_ROW_BLOCKS], item % book[BK_ROW_BLOCKS]
    s_slot = slot_of(book, place)
    o_slot = book[BK_BASE + T_O] + place % book[BK_T + TL_O_BUFFERS]
    row = row_kind(book, g, i)
    first, last = first_tile(book, i), first_tile(book, i + 1)
    for at in range(first, last):
        j = tile_at(book, at)
        v_slot = fetch_kv(code, book, 1, g, i, j)
        flags = edge_flags(at, first, last)
        kind = book[BK_KINDS + KB_PV] + (row * 2 + ragged_kv(book, j)) * PV_VARIANTS + flags
        read_tile(code, book, 1, kind, o_slot, s_slot, v_slot, g, i, j, at - first, flags)
    end_window_row(book, 1)
    free_place(book, place)
    issue(code, book, OP_STORE_O, STORE, book[BK_KINDS + KB_STORE_O] + row, -1, o_slot, -1, g, i, 0, 0, 3)


@leaf
def plan_output_pass(p: IntArray, t: IntArray, row_length: int, slots: IntArray, places: IntArray, n: int) -> int:
    """Append the slots of `output_pass`, from offset 0, to the `n` there are; return how many there are then."""
    heads, tiles = group_heads(p, t), ceil_div(row_length, t[TL_KV])
    places[PLACE_P_TILE] = n
    tile_bytes = heads * t[TL_Q] * t[TL_KV] * p[P_ELEMENT]
    n, offset = add_slots(slots, n, 0, T_TILE, t[TL_SCORE_BUFFERS], tile_bytes)
    places[T_V] = n
    n, offset = add_kv_slots(slots, n, offset, T_V, 0, p[P_F], p, t)
    places[T_O] = n
    n, offset = add_slots(slots, n, offset, T_O, t[TL_O_BUFFERS], output_bytes(p, heads, t[TL_Q], tiles))
    return n


@leaf
def output_pass_span(p: IntArray, t: IntArray, row_length: int) -> int:
    """Bytes that the slots of `plan_output_pass` span."""
    heads = group_heads(p, t)
    size = t[TL_SCORE_BUFFERS] * heads * t[TL_Q] * t[TL_KV] * p[P_ELEMENT] + kv_span(p, t, 1, 0)
    out = output_bytes(p, heads, t[TL_Q], ceil_div(row_length, t[TL_KV]))
    return int(size + t[TL_O_BUFFERS] * out)


@leaf
def output_pass(code: CodeArray, book: IntArray) -> None:
    """Compute O of all items of the core from V and tiles of P that are loaded from DRAM, as a pass of its own."""
    done = 0
    for item in range(book[BK_FIRST], book[BK_LAST]):
        g, i = item // book[BK_ROW_BLOCKS], item % book[BK_ROW_BLOCKS]
        o_slot = book[BK_BASE + T_O] + (item - book[BK_FIRST]) % book[BK_T + TL_O_BUFFERS]
        row = row_kind(book, g, i)
        first, last = first_tile(book, i), first_tile(book, i + 1)
        for at in range(first, last):
            j = tile_at(book, at)
            slot = book[BK_BASE + PLACE_P_TILE] + done % book[BK_T + TL_SCORE_BUFFERS]
            kind = row * 2 + ragged_kv(book, j)
            load = book[BK_KINDS + KB_LOAD_P] + kind
            issue(code, book, OP_LOAD_P, LOAD, load, slot, -1, -1, g, i, j, at - first, 3)
            v_slot = fetch_kv(code, book, 1, g, i, j)
            flags = edge_flags(at, first, last)
            kind = book[BK_KINDS + KB_PV] + kind * PV_VARIANTS + flags
            issue(code, book, OP_PV, MAC, kind, o_slot, slot, v_slot, g, i, j, at - first, flags)
            done += 1
        issue(code, book, OP_STORE_O, STORE, book[BK_KINDS + KB_STORE_O] + row, -1, o_slot, -1, g, i, 0, 0, 3)
