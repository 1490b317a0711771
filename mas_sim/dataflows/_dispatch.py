"""From a dataflow's number to its compiled functions: the one place that lists them for compiled callers.

Numba cannot cache functions that take functions as arguments, so batch evaluation reaches a dataflow through these
`if` chains. A new dataflow adds a line to each.
"""

import numpy as np

from mas_sim._jit import jit, leaf
from mas_sim.costs import P_ACC_BYTES, P_ACC_ELEMENT, P_CORES, P_EXP_STEPS, P_NKV, PROBLEM_FIELDS, ceil_div
from mas_sim.dataflows import flash, flat, fusemax, layer_wise, mas, soft_pipe, tileflow
from mas_sim.dataflows._emission import BK_DATAFLOW, BK_N, BK_P, BK_T, PLACES, begin_core
from mas_sim.dataflows._numbers import FLASH, FLAT, FUSEMAX, LAYER_WISE, SOFT_PIPE, TILEFLOW, is_online, streams
from mas_sim.dataflows._plan import (
    core_items,
    item_count,
)
from mas_sim.dataflows._slots import fused_span, group_heads, online_span, window_tiles
from mas_sim.schedule import SLOT_BYTES, SLOT_FIELDS, SLOT_OFFSET, CodeArray, IntArray
from mas_sim.tiling import (
    TILING_FIELDS,
    TL_EXP_ON,
    TL_K_BUFFERS,
    TL_K_RESIDENT,
    TL_KV,
    TL_OVERWRITE,
    TL_Q,
    TL_SCORE_BUFFERS,
    TL_V_BUFFERS,
    TL_V_RESIDENT,
)

ROOM = 64
"""Slots that a dataflow may have besides those of K and V."""


@jit
def plan_slots(dataflow: int, p: IntArray, t: IntArray, row_length: int) -> tuple[IntArray, IntArray]:
    """Lay out one core's L1; the longest row of C has `row_length` columns.

    Returns
    -------
    (int64[slots, SLOT_FIELDS], int64[PLACES])
        The slot table, and the first slot of each tensor.
    """
    room = (t[TL_K_RESIDENT] + 1) * t[TL_K_BUFFERS] + (t[TL_V_RESIDENT] + 1) * t[TL_V_BUFFERS] + ROOM
    if dataflow == TILEFLOW:
        room += t[TL_SCORE_BUFFERS] * ceil_div(row_length, t[TL_KV])
    slots = np.zeros((room, SLOT_FIELDS), np.int64)
    places = np.zeros(PLACES, np.int64)
    if dataflow == LAYER_WISE:
        n = layer_wise.plan(p, t, row_length, slots, places)
    elif dataflow == SOFT_PIPE:
        n = soft_pipe.plan(p, t, row_length, slots, places)
    elif dataflow == FLAT:
        n = flat.plan(p, t, row_length, slots, places)
    elif dataflow == TILEFLOW:
        n = tileflow.plan(p, t, row_length, slots, places)
    elif dataflow == FLASH:
        n = flash.plan(p, t, row_length, slots, places)
    elif dataflow == FUSEMAX:
        n = fusemax.plan(p, t, row_length, slots, places)
    else:
        n = mas.plan(p, t, row_length, slots, places)
    return slots[:n], places


@leaf
def is_possible(dataflow: int, p: IntArray, t: IntArray, row_length: int) -> bool:
    """Whether a dataflow can work with a tiling at all, but for L1's capacity.

    Overwrite needs a window no larger than all tiles. Exp on the MAC array needs an array that can do it, whose
    accumulators hold the scores of every kv tile in the making.
    """
    if t[TL_OVERWRITE] and window_tiles(p, t, row_length) > ceil_div(p[P_NKV], t[TL_KV]):
        return False
    if t[TL_EXP_ON] == 0:
        return True
    tile_bytes = group_heads(p, t) * t[TL_Q] * min(t[TL_KV], p[P_NKV]) * p[P_ACC_ELEMENT]
    return bool(p[P_EXP_STEPS] > 0 and streams(dataflow, t) * tile_bytes <= p[P_ACC_BYTES])


@leaf
def span_bytes(slots: IntArray) -> int:
    """L1 bytes that a core's slots span."""
    span = 0
    for s in range(slots.shape[0]):
        span = max(span, slots[s, SLOT_OFFSET] + slots[s, SLOT_BYTES])
    return span


@leaf
def span(dataflow: int, p: IntArray, t: IntArray, row_length: int) -> int:
    """Return what `span_bytes` gives for the slots of a tiling, without laying them out."""
    if dataflow == LAYER_WISE:
        return layer_wise.span(p, t, row_length)
    if dataflow == SOFT_PIPE:
        return soft_pipe.span(p, t, row_length)
    if is_online(dataflow):
        return online_span(dataflow, p, t)
    rings = 1 if dataflow == FLAT else t[TL_SCORE_BUFFERS]
    return fused_span(p, t, row_length, rings)


@leaf
def instruction_bound(dataflow: int, p: IntArray, t: IntArray, passes: int) -> int:
    """Upper bound of the number of instructions, by arithmetic alone: nothing is allocated for it.

    `passes` are the rows of the dataflow's pass table. A mask leaves tiles out, and masks at most each of the others.
    """
    items = item_count(p, t)
    pairs = items * ceil_div(p[P_NKV], t[TL_KV])
    if dataflow == LAYER_WISE:
        return int(items * (4 + passes) + pairs * 7)
    if dataflow == SOFT_PIPE:
        return int(items * (3 + passes) + pairs * 6)
    if dataflow == TILEFLOW:
        return int(items * 2 + pairs * (5 + passes))
    if is_online(dataflow):
        return int(items * 3 + pairs * (8 + passes))
    return int(items * (2 + passes) + pairs * 5)


@leaf
def emit(code: CodeArray, book: IntArray, n_slots: int) -> int:
    """Write all cores' streams into `code`; return the number of instructions.

    `code`, int32[capacity, FIELDS], must have room for `instruction_bound` rows; `book` is new from `make_book`, and
    counts the instructions of each kind from `BK_COUNTS` on.
    """
    p, t = book[BK_P : BK_P + PROBLEM_FIELDS], book[BK_T : BK_T + TILING_FIELDS]
    dataflow = book[BK_DATAFLOW]
    for core in range(p[P_CORES]):
        first, last = core_items(p, t, core)
        if first == last:
            continue
        begin_core(book, core, first, last, n_slots)
        if dataflow == LAYER_WISE:
            layer_wise.emit_core(code, book)
        elif dataflow == SOFT_PIPE:
            soft_pipe.emit_core(code, book)
        elif dataflow == FLAT:
            flat.emit_core(code, book)
        elif dataflow == TILEFLOW:
            tileflow.emit_core(code, book)
        elif dataflow == FLASH:
            flash.emit_core(code, book)
        elif dataflow == FUSEMAX:
            fusemax.emit_core(code, book)
        else:
            mas.emit_core(code, book)
    return int(book[BK_N])
