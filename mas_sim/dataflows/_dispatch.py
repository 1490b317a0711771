"""From a dataflow's number to its compiled functions: the one place that lists them for compiled callers.

Numba cannot cache functions that take functions as arguments, so batch evaluation reaches a dataflow through these
`if` chains. A new dataflow adds a line to each.
"""

import numpy as np

from mas_sim._jit import jit, leaf
from mas_sim.costs import P_CORES, PROBLEM_FIELDS
from mas_sim.dataflows import flat, layer_wise, mas
from mas_sim.dataflows._emission import BK_N, BK_P, BK_T, PLACES, begin_core
from mas_sim.dataflows._plan import core_items
from mas_sim.schedule import SLOT_BYTES, SLOT_FIELDS, SLOT_OFFSET, CodeArray, Grid, IntArray
from mas_sim.tiling import TILING_FIELDS, TL_KV

LAYER_WISE, FLAT, MAS = 0, 1, 2


@jit
def plan_slots(dataflow: int, p: IntArray, t: IntArray, grid: Grid) -> tuple[IntArray, IntArray]:
    """Lay out one core's L1.

    Returns
    -------
    (int64[slots, SLOT_FIELDS], int64[PLACES])
        The slot table, and the first slot of each tensor.
    """
    row_length = grid.row_length.max()
    tiles = (row_length + t[TL_KV] - 1) // t[TL_KV]
    slots = np.zeros((2 * (tiles + 1) * 4 + 32, SLOT_FIELDS), np.int64)
    places = np.zeros(PLACES, np.int64)
    if dataflow == LAYER_WISE:
        n = layer_wise.plan(p, t, row_length, slots, places)
    elif dataflow == FLAT:
        n = flat.plan(p, t, row_length, slots, places)
    else:
        n = mas.plan(p, t, row_length, slots, places)
    return slots[:n], places


@leaf
def span_bytes(slots: IntArray) -> int:
    """L1 bytes that a core's slots span."""
    span = 0
    for s in range(slots.shape[0]):
        span = max(span, slots[s, SLOT_OFFSET] + slots[s, SLOT_BYTES])
    return span


@leaf
def instruction_bound(dataflow: int, grid: Grid, passes: int) -> int:
    """Upper bound of the number of instructions."""
    groups = grid.group_class.shape[0]
    items = groups * (grid.row_ptr.shape[0] - 1)
    pairs = groups * grid.row_tiles.shape[0]
    if dataflow == LAYER_WISE:
        return int(items * (4 + passes) + pairs * 6)
    return int(items * (2 + passes) + pairs * 4)


@leaf
def emit(dataflow: int, code: CodeArray, book: IntArray, n_slots: int) -> int:
    """Write all cores' streams into `code`; return the number of instructions.

    `code`, int32[capacity, FIELDS], must have room for `instruction_bound` rows; `book` is new from `make_book`, and
    counts the instructions of each kind from `BK_COUNTS` on.
    """
    p, t = book[BK_P : BK_P + PROBLEM_FIELDS], book[BK_T : BK_T + TILING_FIELDS]
    for core in range(p[P_CORES]):
        first, last = core_items(p, t, core)
        if first == last:
            continue
        begin_core(book, core, first, last, n_slots)
        if dataflow == LAYER_WISE:
            layer_wise.emit_core(code, book)
        elif dataflow == FLAT:
            flat.emit_core(code, book)
        else:
            mas.emit_core(code, book)
    return int(book[BK_N])
