"""Proactive overwrite: the *window*, the last tiles of K or V, over which softmax writes P.

Softmax writes P over the window although a product may be reading it; the tiles are then loaded again into the place
that C leaves. Products that read the window name the pass that overwrites it and the load that brings it back.
"""

from mas_sim._jit import inlined, leaf
from mas_sim.dataflows._emission import (
    BK_BASE,
    BK_BOARD,
    BK_FIRST,
    BK_GROUPS,
    BK_KEY,
    BK_KINDS,
    BK_KV_TILES,
    BK_LAST,
    BK_LOADED,
    BK_OLD,
    BK_OVER,
    BK_RELOAD,
    BK_ROW_BLOCKS,
    BK_SPARE,
    BK_T,
    BK_WINDOW,
    BOARD_FIELDS,
    GROUP_CLASS,
    GROUP_FIELDS,
    GROUP_KEY,
    also_wait_for,
    issue,
)
from mas_sim.dataflows._plan import KB_LOAD_WINDOW
from mas_sim.schedule import (
    F_ALT,
    F_DEP0,
    F_FIRST_VICTIM,
    F_LAST_VICTIM,
    F_OVER,
    F_RELOAD,
    F_SRC1,
    LOAD,
    MAC,
    MAX_DEPS,
    OP_LOAD_K,
    OP_QK,
    T_S,
    UNITS,
    VEC,
    CodeArray,
    IntArray,
)
from mas_sim.tiling import TL_OVERWRITE

OVERWRITE_V, OVERWRITE_K = 1, 2


@leaf
def fetch_window(code: CodeArray, book: IntArray, is_v: int, g: int, i: int) -> int:
    """Return the slot of the window's tiles for group g, loading them all at once if they are not there."""
    slot = book[BK_BASE + T_S] + book[BK_SPARE]
    group = book[BK_GROUPS] + g * GROUP_FIELDS
    if book[BK_KEY] != book[group + GROUP_KEY]:
        tiles = book[BK_KV_TILES]
        kind = book[BK_KINDS + KB_LOAD_WINDOW] + book[group + GROUP_CLASS]
        count = book[BK_WINDOW]
        before = book[book[BK_BOARD] + slot * BOARD_FIELDS]
        n = issue(code, book, OP_LOAD_K + is_v, LOAD, kind, slot, -1, -1, g, i, tiles - count, count - 1, 0)
        if before >= 0 and before % UNITS == LOAD:
            # Nobody may have read what the last load brought here, and its data may still be on the way.
            wait_for_load(code, n, before // UNITS)
        book[BK_KEY] = book[group + GROUP_KEY]
        book[BK_LOADED], book[BK_OVER] = n * UNITS + LOAD, -1
    return int(slot)


@leaf
def wait_for_load(code: CodeArray, n: int, load: int) -> None:
    """Let load n wait until an earlier load has ended, and not only left the channel, as in its queue it would."""
    deps = 0
    while deps < MAX_DEPS and code[n, F_DEP0 + deps] >= 0:
        deps += 1
    code[n, F_DEP0 + deps] = 2 * load + 1


@leaf
def mark_victim(code: CodeArray, book: IntArray, n: int) -> None:
    """Let product n, which reads the window, run before the pass that overwrites it, if it ends in time.

    Otherwise it waits until the window is loaded again. It is one of the products which that pass may stop.
    """
    if book[BK_OVER] < 0:
        return
    over = book[BK_OVER]
    code[n, F_OVER], code[n, F_RELOAD], code[n, F_ALT] = over, book[BK_RELOAD], book[BK_OLD]
    if code[over, F_FIRST_VICTIM] < 0:
        code[over, F_FIRST_VICTIM] = n
    code[over, F_LAST_VICTIM] = n


@inlined
def read_tile(
    code: CodeArray, book: IntArray, is_v: int, kind: int, dst: int, src0: int, src1: int,
    g: int, i: int, j: int, step: int, flags: int,
) -> None:  # fmt: skip
    """Append the product that reads K (V) tile j from slot `src1`."""
    tiles = book[BK_KV_TILES]
    in_window = book[BK_T + TL_OVERWRITE] == (OVERWRITE_V if is_v else OVERWRITE_K) and j >= tiles - book[BK_WINDOW]
    if in_window and book[BK_OVER] >= 0:
        # It may run on the tiles as they are before the overwrite, so it does not depend on the load behind that.
        n = issue(code, book, OP_QK + is_v, MAC, kind, dst, src0, -1, g, i, j, step, flags)
        code[n, F_SRC1] = src1
        also_wait_for(code, book, n, book[BK_LOADED], MAC, 0)
        mark_victim(code, book, n)
        board = book[BK_BOARD] + src1 * BOARD_FIELDS
        book[board + 1 + MAC] = n
    else:
        issue(code, book, OP_QK + is_v, MAC, kind, dst, src0, src1, g, i, j, step, flags)


@leaf
def end_window_row(book: IntArray, is_v: int) -> None:
    """Note that a whole row block has read the window since it was loaded again: later ones cannot come before that."""
    if book[BK_T + TL_OVERWRITE] == (OVERWRITE_V if is_v else OVERWRITE_K) and book[BK_OVER] >= 0:
        book[BK_LOADED], book[BK_OVER] = book[BK_RELOAD] * UNITS + LOAD, -1


@leaf
def reload_window(code: CodeArray, book: IntArray, place: int, over: int, done: int, p_slot: int) -> None:
    """Bring the window back, for the row block that reads it next, once the softmax that overwrote it has ended.

    That row block is the item before for V (its O comes next), the item behind for K (its C comes next).
    """
    is_v = 1 if book[BK_T + TL_OVERWRITE] == OVERWRITE_V else 0
    held = book[BK_KEY]
    book[BK_KEY], book[BK_OVER] = -1, -1
    reader = book[BK_FIRST] + (place - 1 if is_v else place + 1)
    if reader < book[BK_FIRST] or reader >= book[BK_LAST]:
        return
    loaded = book[BK_LOADED]
    g, i = reader // book[BK_ROW_BLOCKS], reader % book[BK_ROW_BLOCKS]
    fetch_window(code, book, is_v, g, i)
    reload = book[BK_LOADED] // UNITS
    also_wait_for(code, book, reload, done * UNITS + VEC, LOAD, 1)
    if held == book[BK_KEY]:
        code[reload, F_OVER] = over
        book[BK_OVER], book[BK_RELOAD], book[BK_OLD], book[BK_LOADED] = over, reload, p_slot, loaded
