"""Writing instructions: the emission state, the scoreboard that derives dependencies, and the blocks dataflows share.

A dataflow says in which order instructions stand and which slots they use; `issue` derives the dependencies from that:
a read waits for the slot's last writer, a write for the slot's last readers and writer, where those are on other
queues. A queue that already waits for a later instruction of another queue need not wait for an earlier one again
(each queue ends its instructions in order), so only dependencies that matter are written down.
"""

import numpy as np

from mas_sim._jit import jit, leaf
from mas_sim.costs import P_CORES, P_NKV, P_NQ, PROBLEM_FIELDS
from mas_sim.dataflows._plan import (
    KB_LOAD_K,
    KB_LOAD_Q,
    KB_PASSES,
    KB_PV,
    KB_QK,
    KB_ROW_CLASSES,
    KB_SOFTMAX,
    KB_STORE_O,
    KIND_BASES,
    PV_VARIANTS,
)
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
    FLAG_FIRST,
    FLAG_LAST,
    LOAD,
    MAC,
    MAX_DEPS,
    OP_LOAD_K,
    OP_LOAD_Q,
    OP_PV,
    OP_QK,
    OP_SOFTMAX,
    OP_STORE_O,
    STORE,
    T_K,
    T_O,
    T_Q,
    T_S,
    T_STATS,
    UNITS,
    VEC,
    CodeArray,
    Grid,
    IntArray,
)
from mas_sim.tiling import (
    TILING_FIELDS,
    TL_K_BUFFERS,
    TL_K_RESIDENT,
    TL_KV,
    TL_O_BUFFERS,
    TL_Q,
    TL_Q_BUFFERS,
    TL_SCORE_BUFFERS,
)

# The book: one int64 vector that holds everything emission reads and writes besides the instructions themselves.
# It is one vector because every array costs a compiled call seven arguments. Fixed sections first, then those
# whose start stands in the first section.
BK_N, BK_CORE, BK_FIRST, BK_LAST = 0, 1, 2, 3  # instructions so far; the current core and its items [first, last)
BK_K, BK_V = 4, 7  # each: streamed tiles so far, sets of resident tiles so far, key of the current set
BK_BOARD, BK_HELD, BK_GROUPS, BK_ROWS, BK_TILES, BK_ROW_BLOCKS = 10, 11, 12, 13, 14, 15  # starts; number of row blocks
BK_SEEN = 16  # latest instruction of unit `other` that unit `unit` already waits for, at `unit * UNITS + other`
BK_BASE = 32  # first slot of each tensor, of the current core
BK_PLAN = 40  # the same within one core
BK_P = 48  # the problem
BK_T = 80  # the tiling
BK_KINDS = 96  # first kind of each operation
BK_COUNTS = 112  # instructions of each kind so far

BOARD_FIELDS = 1 + UNITS  # last writer (4 * index + unit), then the last reader on each unit, of each slot
GROUP_CLASS, GROUP_KEY, GROUP_FIELDS = 0, 1, 2
ROW_FIRST, ROW_CLASS, ROW_FIELDS = 0, 1, 2  # of a row block: its place in the list of kv tiles, and its length's class
PLACES = 8  # where slots of a tensor start: the T_* tensors, and PLACE_P_TILE
PLACE_P_TILE = 7


@jit
def make_book(
    p: IntArray, t: IntArray, kinds: IntArray, n_kinds: int, grid: Grid, n_slots: int, places: IntArray
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


@leaf
def _wait(code: CodeArray, book: IntArray, n: int, deps: int, token: int, unit: int, is_buffer: int) -> int:
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
def issue(
    code: CodeArray, book: IntArray, op: int, unit: int, kind: int, dst: int, src0: int, src1: int,
    group: int, row: int, tile: int, step: int, flags: int,
) -> None:  # fmt: skip
    """Append one instruction, with its dependencies."""
    n = book[BK_N]
    book[BK_N] = n + 1
    book[BK_COUNTS + kind] += 1
    code[n, F_OP], code[n, F_QUEUE], code[n, F_KIND] = op, book[BK_CORE] * UNITS + unit, kind
    code[n, F_DST], code[n, F_SRC0], code[n, F_SRC1] = dst, src0, src1
    code[n, F_GROUP], code[n, F_ROW], code[n, F_TILE] = group, row, tile
    code[n, F_STEP], code[n, F_FLAGS] = step, flags
    for d in range(MAX_DEPS):
        code[n, F_DEP0 + d] = -1
    deps = 0
    if src0 >= 0:
        at = book[BK_BOARD] + src0 * BOARD_FIELDS
        deps = _wait(code, book, n, deps, book[at], unit, 0)
        book[at + 1 + unit] = n
    if src1 >= 0:
        at = book[BK_BOARD] + src1 * BOARD_FIELDS
        deps = _wait(code, book, n, deps, book[at], unit, 0)
        book[at + 1 + unit] = n
    if dst >= 0:
        at = book[BK_BOARD] + dst * BOARD_FIELDS
        for other in range(UNITS):
            reader = book[at + 1 + other]
            if reader >= 0:
                deps = _wait(code, book, n, deps, reader * UNITS + other, unit, 1)
                book[at + 1 + other] = -1
        deps = _wait(code, book, n, deps, book[at], unit, 1)
        book[at] = n * UNITS + unit


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


@leaf
def row_kind(book: IntArray, g: int, i: int) -> int:
    """Index of an item's shape: `2 * class of the group`, plus 1 if row block i is the ragged last one."""
    ragged = 1 if (i + 1) * book[BK_T + TL_Q] > book[BK_P + P_NQ] else 0
    return int(book[book[BK_GROUPS] + g * GROUP_FIELDS + GROUP_CLASS] * 2 + ragged)


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
def edge_flags(at: int, first: int, last: int) -> int:
    """Flags of the instruction for place `at` of an accumulation over `[first, last)`."""
    return (FLAG_FIRST if at == first else 0) + (FLAG_LAST if at == last - 1 else 0)


@leaf
def fetch_q(code: CodeArray, book: IntArray, place: int, g: int, i: int) -> int:
    """Load the Q rows of an item, the core's `place`-th, and return their slot."""
    slot = book[BK_BASE + T_Q] + place % book[BK_T + TL_Q_BUFFERS]
    issue(code, book, OP_LOAD_Q, LOAD, book[BK_KINDS + KB_LOAD_Q] + row_kind(book, g, i), slot, -1, -1, g, i, 0, 0, 0)
    return int(slot)


@leaf
def fetch_kv(code: CodeArray, book: IntArray, is_v: int, g: int, i: int, j: int) -> int:
    """Return the slot of K (or V) tile j for group g, loading the tile unless it is resident and already there."""
    cursor = BK_V if is_v else BK_K
    resident = book[BK_T + TL_K_RESIDENT + is_v]
    buffers = book[BK_T + TL_K_BUFFERS + is_v]
    base = book[BK_BASE + T_K + is_v]
    group = book[BK_GROUPS] + g * GROUP_FIELDS
    key = book[group + GROUP_KEY]
    if key != book[cursor + 2]:
        book[cursor + 2] = key
        book[cursor + 1] += 1
    if j < resident:
        slot = base + book[cursor + 1] % buffers * resident + j
        held = book[BK_HELD] + slot
        if book[held] == key:
            return int(slot)
        book[held] = key
    else:
        tiles = (book[BK_P + P_NKV] + book[BK_T + TL_KV] - 1) // book[BK_T + TL_KV]
        slot = base + resident * buffers + book[cursor] % min(buffers, tiles - resident)
        book[cursor] += 1
    kind = book[BK_KINDS + KB_LOAD_K + is_v] + book[group + GROUP_CLASS] * 2 + ragged_kv(book, j)
    issue(code, book, OP_LOAD_K + is_v, LOAD, kind, slot, -1, -1, g, i, j, 0, 0)
    return int(slot)


@leaf
def scores(code: CodeArray, book: IntArray, place: int) -> None:
    """Load Q, and K where needed, and compute the scores C of the core's `place`-th item."""
    item = book[BK_FIRST] + place
    g, i = item // book[BK_ROW_BLOCKS], item % book[BK_ROW_BLOCKS]
    q_slot = fetch_q(code, book, place, g, i)
    s_slot = book[BK_BASE + T_S] + place % book[BK_T + TL_SCORE_BUFFERS]
    kind = book[BK_KINDS + KB_QK] + row_kind(book, g, i) * 2
    first, last = first_tile(book, i), first_tile(book, i + 1)
    for at in range(first, last):
        j = tile_at(book, at)
        k_slot = fetch_kv(code, book, 0, g, i, j)
        flags = edge_flags(at, first, last)
        issue(code, book, OP_QK, MAC, kind + ragged_kv(book, j), s_slot, q_slot, k_slot, g, i, j, at - first, flags)


@leaf
def softmax(code: CodeArray, book: IntArray, place: int) -> None:
    """Turn the scores of the core's `place`-th item into probabilities, pass by pass, in place."""
    item = book[BK_FIRST] + place
    g, i = item // book[BK_ROW_BLOCKS], item % book[BK_ROW_BLOCKS]
    s_slot = book[BK_BASE + T_S] + place % book[BK_T + TL_SCORE_BUFFERS]
    kind = row_kind(book, g, i) * book[BK_KINDS + KB_ROW_CLASSES]
    kind += book[book[BK_ROWS] + i * ROW_FIELDS + ROW_CLASS]
    passes = book[BK_KINDS + KB_PASSES]
    kind = book[BK_KINDS + KB_SOFTMAX] + kind * passes
    stats = book[BK_BASE + T_STATS]
    for step in range(passes):
        flags = edge_flags(step, 0, passes)
        issue(code, book, OP_SOFTMAX, VEC, kind + step, s_slot, s_slot, stats, g, i, step, step, flags)


@leaf
def output(code: CodeArray, book: IntArray, place: int) -> None:
    """Load V where needed, compute the output O of the core's `place`-th item, and store it."""
    item = book[BK_FIRST] + place
    g, i = item // book[BK_ROW_BLOCKS], item % book[BK_ROW_BLOCKS]
    s_slot = book[BK_BASE + T_S] + place % book[BK_T + TL_SCORE_BUFFERS]
    o_slot = book[BK_BASE + T_O] + place % book[BK_T + TL_O_BUFFERS]
    row = row_kind(book, g, i)
    first, last = first_tile(book, i), first_tile(book, i + 1)
    for at in range(first, last):
        j = tile_at(book, at)
        v_slot = fetch_kv(code, book, 1, g, i, j)
        flags = edge_flags(at, first, last)
        kind = book[BK_KINDS + KB_PV] + (row * 2 + ragged_kv(book, j)) * PV_VARIANTS + flags
        issue(code, book, OP_PV, MAC, kind, o_slot, s_slot, v_slot, g, i, j, at - first, flags)
    issue(code, book, OP_STORE_O, STORE, book[BK_KINDS + KB_STORE_O] + row, -1, o_slot, -1, g, i, 0, 0, 3)
