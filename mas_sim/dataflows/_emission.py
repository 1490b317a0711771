"""Writing instructions: the emission state, and the scoreboard that derives dependencies.

A dataflow says in which order instructions stand and which slots they use; `issue` derives the dependencies from that:
a read waits for the slot's last writer, a write for the slot's last readers and writer, where those are on other
queues. A queue that already waits for a later instruction of another queue need not wait for an earlier one again
(each queue ends its instructions in order), so only dependencies that matter are written down.
"""

import numpy as np

from mas_sim._jit import jit, leaf
from mas_sim.costs import P_AHEAD, P_BACK, P_CORES, P_NKV, P_NQ, PROBLEM_FIELDS
from mas_sim.dataflows._plan import KIND_BASES
from mas_sim.dataflows._slots import window_tiles
from mas_sim.schedule import (
    F_DEP0,
    F_DST,
    F_FLAGS,
    F_GROUP,
    F_KIND,
    F_OP,
    F_QUEUE,
    F_ROW,
    F_SRC0,
    F_SRC1,
    F_STEP,
    F_TILE,
    FIELDS,
    MAC,
    MAX_DEPS,
    STORE,
    UNITS,
    VEC,
    CodeArray,
    Grid,
    IntArray,
)
from mas_sim.tiling import TILING_FIELDS, TL_KV

# The book: one int64 vector that holds everything emission reads and writes besides the instructions themselves.
# It is one vector because every array costs a compiled call seven arguments. Fixed sections first, then those
# whose start stands in the first section.
BK_N, BK_CORE, BK_FIRST, BK_LAST = 0, 1, 2, 3  # instructions so far; the current core and its items [first, last)
BK_K, BK_V = 4, 7  # each: the next streamed tile's buffer, number and key of the current set of resident tiles
BK_BOARD, BK_HELD, BK_GROUPS, BK_ROWS, BK_TILES, BK_ROW_BLOCKS = 10, 11, 12, 13, 14, 15  # starts; number of row blocks
BK_SEEN = 16  # latest instruction of unit `other` that unit `unit` already waits for, at `unit * UNITS + other`
BK_BASE = 32  # first slot of each tensor, of the current core
BK_PLAN = 42  # the same within one core
BK_P = 52  # the problem
BK_T = 96  # the tiling
BK_KINDS = 112  # first kind of each operation
BK_FREE_HEAD, BK_FREE_COUNT, BK_FREE = 136, 137, 138  # row blocks' places that are free, first in first out
BK_PLACE = 146  # where the row block of each of the last RING items is
BK_SPARE = 150  # the place that P is written to, where it does not take C's
# The window (the tiles that softmax may overwrite): the K/V they are of (-1: nothing), the pass that last overwrote
# them if their next reader may come before it (-1: it may not), the load that brought them back, where they were, and
# the load that had brought them there (as a token).
BK_KEY, BK_OVER, BK_RELOAD, BK_OLD, BK_LOADED = 151, 152, 153, 154, 155
BK_WINDOW = 156  # how many tiles the window has, 0 without overwrite
BK_KV_TILES = 157  # kv tiles of a head
BK_DATAFLOW, BK_MASKED = 158, 159  # its number; whether there is a mask
# Row blocks that share streamed tiles: their common name (-1: they do not), and of the tile of K, then of V, that was
# loaded last: that name, the tile and its slot.
BK_SHARED, BK_LATEST = 160, 161
BK_STATE = 168  # of the current core, for the dataflow's own use
BK_BEFORE = 186  # the set of K, then of V, that was current before: its number, its key; then how many sets there were
BK_COUNTS = 192  # instructions of each kind so far

RING = 4
FREE_PLACES = 8

BOARD_FIELDS = 1 + UNITS  # last writer (4 * index + unit), then the last reader on each unit, of each slot
GROUP_CLASS, GROUP_KEY, GROUP_FIELDS = 0, 1, 2
ROW_FIRST, ROW_CLASS, ROW_FIELDS = 0, 1, 2  # of a row block: its place in the list of kv tiles, and its length's class
PLACES = 9  # where slots of a tensor start: the T_* tensors, and PLACE_P_TILE
PLACE_P_TILE = 8


@jit
def make_book(
    dataflow: int, p: IntArray, t: IntArray, kinds: IntArray, n_kinds: int, grid: Grid, n_slots: int, places: IntArray
) -> IntArray:
    """Lay out the book of a schedule; `n_slots` and `places` are of one core."""
    groups, rows, pairs = grid.group_class.shape[0], grid.row_class.shape[0], grid.row_tiles.shape[0]
    board = BK_COUNTS + n_kinds
    held = board + n_slots * p[P_CORES] * BOARD_FIELDS
    group_at = held + n_slots * p[P_CORES]
    row_at = group_at + groups * GROUP_FIELDS
    tile_at = row_at + (rows + 1) * ROW_FIELDS
    book = np.empty(tile_at + pairs, np.int64)
    book[:BK_P] = 0
    book[BK_BOARD], book[BK_HELD], book[BK_GROUPS] = board, held, group_at
    book[BK_ROWS], book[BK_TILES], book[BK_ROW_BLOCKS] = row_at, tile_at, rows
    book[BK_PLAN : BK_PLAN + PLACES] = places
    book[BK_WINDOW] = window_tiles(p, t, grid.row_length.max())
    book[BK_KV_TILES] = (p[P_NKV] + t[TL_KV] - 1) // t[TL_KV]
    book[BK_DATAFLOW] = dataflow
    # The last row stands at the last key, the first one N_q - 1 before it.
    book[BK_MASKED] = 1 if p[P_BACK] < p[P_NKV] - 1 or p[P_AHEAD] < p[P_NQ] - 1 else 0
    book[BK_P : BK_P + PROBLEM_FIELDS] = p
    book[BK_T : BK_T + TILING_FIELDS] = t
    book[BK_KINDS : BK_KINDS + KIND_BASES] = kinds
    book[BK_COUNTS:board] = 0
    book[board:group_at] = -1
    for g in range(groups):
        book[group_at + g * GROUP_FIELDS + GROUP_CLASS] = grid.group_class[g]
        book[group_at + g * GROUP_FIELDS + GROUP_KEY] = grid.group_key[g]
    for i in range(rows):
        book[row_at + i * ROW_FIELDS + ROW_FIRST] = grid.row_ptr[i]
        book[row_at + i * ROW_FIELDS + ROW_CLASS] = grid.row_class[i]
    book[row_at + rows * ROW_FIELDS + ROW_FIRST] = pairs
    book[tile_at:] = grid.row_tiles
    return book


@leaf
def begin_core(book: IntArray, core: int, first: int, last: int, n_slots: int) -> None:
    """Start writing the streams of `core`, whose items are `[first, last)`."""
    book[BK_CORE], book[BK_FIRST], book[BK_LAST] = core, first, last
    for column in range(BK_K, BK_BOARD):
        book[column] = 0
    book[BK_K + 2] = -1
    book[BK_V + 2] = -1
    for place in range(PLACES):
        book[BK_BASE + place] = core * n_slots + book[BK_PLAN + place]
    for pair in range(UNITS * UNITS):
        book[BK_SEEN + pair] = -1
    book[BK_KEY], book[BK_OVER], book[BK_LOADED] = -1, -1, -1
    for at in range(BK_SHARED, BK_COUNTS):
        book[at] = -1
    book[BK_BEFORE + 2], book[BK_BEFORE + 5] = 0, 0


@leaf
def wait_for(code: CodeArray, book: IntArray, n: int, deps: int, token: int, unit: int, is_buffer: int) -> int:
    """Add a dependency on the instruction `token >> 2` of unit `token & 3`, unless it is implied."""
    if token < 0:
        return deps
    other = token & 3
    index = token >> 2
    seen = BK_SEEN + unit * UNITS + other
    if other == unit or index <= book[seen]:
        return deps
    book[seen] = index
    code[n, F_DEP0 + deps] = 2 * index + is_buffer
    return deps + 1


@leaf
def also_wait_for(code: CodeArray, book: IntArray, n: int, token: int, unit: int, is_buffer: int) -> None:
    """Add a dependency to instruction n, of `unit`, that has just been issued."""
    deps = 0
    while deps < MAX_DEPS and code[n, F_DEP0 + deps] >= 0:
        deps += 1
    wait_for(code, book, n, deps, token, unit, is_buffer)


@leaf
def also_write(code: CodeArray, book: IntArray, n: int, slot: int, unit: int) -> None:
    """Let instruction n, of `unit`, that has just been issued, write a second slot besides its `dst`."""
    at = book[BK_BOARD] + slot * BOARD_FIELDS
    for other in range(UNITS):
        reader = book[at + 1 + other]
        if reader >= 0 and reader != n:
            also_wait_for(code, book, n, reader * UNITS + other, unit, 1)
        book[at + 1 + other] = -1
    also_wait_for(code, book, n, book[at], unit, 1)
    book[at] = n * UNITS + unit


@leaf
def issue(
    code: CodeArray, book: IntArray, op: int, unit: int, kind: int, dst: int, src0: int, src1: int,
    group: int, row: int, tile: int, step: int, flags: int,
) -> int:  # fmt: skip
    """Append one instruction, with its dependencies, and return its row.

    A softmax pass does not wait for readers on the MAC unit: those of a row block are always done by then, and those of
    tiles that it overwrites it stops.
    """
    n = book[BK_N]
    book[BK_N] = n + 1
    book[BK_COUNTS + kind] += 1
    code[n, F_OP], code[n, F_QUEUE], code[n, F_KIND] = op, book[BK_CORE] * UNITS + unit, kind
    code[n, F_DST], code[n, F_SRC0], code[n, F_SRC1] = dst, src0, src1
    code[n, F_GROUP], code[n, F_ROW], code[n, F_TILE] = group, row, tile
    code[n, F_STEP], code[n, F_FLAGS] = step, flags
    for column in range(F_DEP0, FIELDS):
        code[n, column] = -1
    deps = 0
    if src0 >= 0:
        at = book[BK_BOARD] + src0 * BOARD_FIELDS
        deps = wait_for(code, book, n, deps, book[at], unit, 0)
        book[at + 1 + unit] = n
    if src1 >= 0:
        at = book[BK_BOARD] + src1 * BOARD_FIELDS
        deps = wait_for(code, book, n, deps, book[at], unit, 0)
        book[at + 1 + unit] = n
    if dst >= 0:
        at = book[BK_BOARD] + dst * BOARD_FIELDS
        for other in range(UNITS):
            reader = book[at + 1 + other]
            if reader >= 0:
                if unit != VEC or other != MAC:
                    deps = wait_for(code, book, n, deps, reader * UNITS + other, unit, 1)
                book[at + 1 + other] = -1
        deps = wait_for(code, book, n, deps, book[at], unit, 1)
        book[at] = n * UNITS + unit
    return int(n)


@leaf
def begin_pass(book: IntArray) -> int:
    """Start a pass that reuses L1 from scratch, and return its first row; `link_pass` must follow its emission."""
    for at in range(book[BK_BOARD], book[BK_GROUPS]):
        book[at] = -1
    return int(book[BK_N])


@leaf
def link_pass(code: CodeArray, book: IntArray, start: int, core_start: int) -> None:
    """Let the pass that starts at row `start`, a LOAD, wait for all that this core wrote in rows `[core_start, start)`.

    Everything else of the pass depends on that load or stands behind it, so nothing of the pass can start, or
    reuse L1, before the last pass has ended. It waits for the stored data, and for the buffers of the others.
    """
    deps = 0
    for unit in (STORE, MAC, VEC):
        queue = book[BK_CORE] * UNITS + unit
        n = start - 1
        while n >= core_start and code[n, F_QUEUE] != queue:
            n -= 1
        if n >= core_start:
            code[start, F_DEP0 + deps] = 2 * n + (0 if unit == STORE else 1)
            deps += 1
