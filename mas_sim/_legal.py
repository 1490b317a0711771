"""Which tilings of a space are legal: one compiled look at each, in the order of the space.

Choices come in blocks of equal form (core split, overwrite, ring, place of P, exp, overlap), within which the first
needs the fewest bytes of L1 and the last the most; so most blocks are settled by two looks.
"""

import numpy as np
import numpy.typing as npt

from mas_sim._jit import jit, leaf
from mas_sim.costs import P_CORES, P_L1_BYTES, P_L1_SHARED, ceil_div
from mas_sim.dataflows._dispatch import is_possible, span
from mas_sim.dataflows._numbers import FLAT, LAYER_WISE
from mas_sim.dataflows._plan import active_core_count, core_items
from mas_sim.schedule import IntArray
from mas_sim.tiling import (
    TL_EXP_ON,
    TL_IN_PLACE,
    TL_K_BUFFERS,
    TL_K_RESIDENT,
    TL_O_BUFFERS,
    TL_OVERLAP,
    TL_OVERWRITE,
    TL_Q_BUFFERS,
    TL_SCORE_BUFFERS,
    TL_SPLIT,
    TL_V_BUFFERS,
    TL_V_RESIDENT,
)

# Columns of an inner choice (int64 vector): everything of a tiling but its tile sizes. Residency is a share of the
# tiles. Choices of the same first six columns form a block.
IN_SPLIT, IN_OVERWRITE, IN_SCORE_BUFFERS, IN_IN_PLACE, IN_EXP_ON, IN_OVERLAP = 0, 1, 2, 3, 4, 5
IN_K_SHARE, IN_V_SHARE, IN_Q_BUFFERS, IN_K_BUFFERS, IN_V_BUFFERS, IN_O_BUFFERS = 6, 7, 8, 9, 10, 11
INNER_FIELDS = 12
SHARES = 8
"""Residency is chosen in eighths of a tensor's tiles, rounded up."""

# How many tilings fell out where, and how many are legal.
N_TOO_LONG, N_DUPLICATE, N_ILLEGAL, N_OVERFULL, N_ROOM_LEFT, N_LEGAL = 0, 1, 2, 3, 4, 5
COUNT_FIELDS = 6


@leaf
def apply_inner(t: IntArray, inner: IntArray, tiles: int) -> None:
    """Complete the packed tiling `t`, whose tile sizes are set, with an inner choice."""
    t[TL_K_RESIDENT] = ceil_div(tiles * inner[IN_K_SHARE], SHARES)
    t[TL_V_RESIDENT] = ceil_div(tiles * inner[IN_V_SHARE], SHARES)
    t[TL_Q_BUFFERS], t[TL_K_BUFFERS], t[TL_V_BUFFERS] = inner[IN_Q_BUFFERS], inner[IN_K_BUFFERS], inner[IN_V_BUFFERS]
    t[TL_SCORE_BUFFERS], t[TL_O_BUFFERS], t[TL_SPLIT] = inner[IN_SCORE_BUFFERS], inner[IN_O_BUFFERS], inner[IN_SPLIT]
    t[TL_IN_PLACE], t[TL_OVERWRITE] = inner[IN_IN_PLACE], inner[IN_OVERWRITE]
    t[TL_EXP_ON], t[TL_OVERLAP] = inner[IN_EXP_ON], inner[IN_OVERLAP]


@leaf
def splits_differ(p: IntArray, t: IntArray) -> bool:
    """Whether dealing out items gives any core others than dealing out whole groups does."""
    t[TL_SPLIT] = 0
    differ = False
    for core in range(p[P_CORES]):
        t[TL_SPLIT] = 0
        first, last = core_items(p, t, core)
        t[TL_SPLIT] = 1
        other_first, other_last = core_items(p, t, core)
        differ = differ or first != other_first or last != other_last
    return differ


@leaf
def fate_of(
    dataflow: int, p: IntArray, t: IntArray, choices: IntArray, c: int, tiles: int, longest: int, differ: bool
) -> int:
    """Return where the tiling of the space's inner choice c falls out (`N_*`), or `N_LEGAL`.

    A duplicate gives the very schedule of another choice of the space: a share that is the whole already, or more than
    the fewest buffers for a single streamed tile.
    """
    inner, last = choices[c], choices.shape[0] - 1
    if not _own_schedule(dataflow, inner, differ):
        return N_DUPLICATE
    for is_v in range(2):
        share, resident = inner[IN_K_SHARE + is_v], t[TL_K_RESIDENT + is_v]
        if 0 < share < choices[last, IN_K_SHARE + is_v] and resident == tiles:
            return N_DUPLICATE
        if resident == 0 and tiles == 1 and t[TL_K_BUFFERS + is_v] > choices[0, IN_K_BUFFERS + is_v]:
            return N_DUPLICATE
    if not is_possible(dataflow, p, t, longest):
        return N_ILLEGAL
    return N_LEGAL if _fits(dataflow, p, t, longest) else N_OVERFULL


@leaf
def _fits(dataflow: int, p: IntArray, t: IntArray, longest: int) -> bool:
    """Whether a tiling's buffers fit L1; the longest row has `longest` columns."""
    size = span(dataflow, p, t, longest) * (active_core_count(p, t) if p[P_L1_SHARED] else 1)
    return bool(size <= p[P_L1_BYTES])


@leaf
def leaves_room(
    dataflow: int, p: IntArray, t: IntArray, inner: IntArray, tiles: int, longest: int, steps: IntArray
) -> bool:
    """Whether L1 has room to buffer a tensor more deeply, or to keep more of K or V, as the space's next choice would.

    `steps`, int64[2, n], holds the space's shares and its depths, each in rising order and padded with its last value.
    """
    room = False
    for column in (TL_Q_BUFFERS, TL_K_BUFFERS, TL_V_BUFFERS, TL_O_BUFFERS, TL_SCORE_BUFFERS):
        if column == TL_SCORE_BUFFERS and dataflow != LAYER_WISE:
            continue
        was = t[column]
        t[column] = _next(steps[1], was)
        if t[column] > was and not room:
            useless = tiles == 1 and column in (TL_K_BUFFERS, TL_V_BUFFERS) and t[column - 3] == 0
            room = not useless and _fits(dataflow, p, t, longest)
        t[column] = was
    for is_v in range(2):
        column, share = TL_K_RESIDENT + is_v, inner[IN_K_SHARE + is_v]
        was = t[column]
        while share < SHARES and t[column] == was and _next(steps[0], share) > share:
            share = _next(steps[0], share)
            t[column] = ceil_div(tiles * share, SHARES)
        if t[column] > was and not room:
            room = _fits(dataflow, p, t, longest)
        t[column] = was
    return room


@leaf
def _next(values: IntArray, value: int) -> int:
    """Return the next greater one of rising values, or `value` itself if there is none."""
    for i in range(values.shape[0]):
        if values[i] > value:
            return int(values[i])
    return int(value)


@leaf
def first_of_block(
    dataflow: int, p: IntArray, t: IntArray, inner: IntArray, begin: int, end: int, tiles: int, longest: int,
    differ: bool, steps: IntArray, counts: IntArray,
) -> int:  # fmt: skip
    """Return the first choice of a block that must be looked at by itself, and count those before it.

    None, if even the one that needs the fewest bytes does not fit; the last one, if that needs the most and fits, so
    that all the others leave room.
    """
    apply_inner(t, inner[begin], tiles)
    fate = fate_of(dataflow, p, t, inner, begin, tiles, longest, differ)
    if fate in (N_OVERFULL, N_ILLEGAL) or (fate == N_DUPLICATE and not _own_schedule(dataflow, inner[begin], differ)):
        counts[fate] += end - begin
        return end
    apply_inner(t, inner[end - 1], tiles)
    if steps.shape[1] > 0 and fate_of(dataflow, p, t, inner, end - 1, tiles, longest, differ) == N_LEGAL:
        counts[N_ROOM_LEFT] += end - 1 - begin
        return end - 1
    return begin


@leaf
def _own_schedule(dataflow: int, inner: IntArray, differ: bool) -> bool:
    """Whether a block's choices can give schedules that no other block gives."""
    if inner[IN_SPLIT] == 1 and not differ:
        return False
    return not (dataflow == FLAT and inner[IN_IN_PLACE] == 0)  # in sequence, P's own bytes change nothing


ChoiceArray = npt.NDArray[np.int16]


@leaf
def _first_not_below(choices: ChoiceArray, level: int, begin: int, end: int, value: int) -> int:
    """First row of sorted `[begin, end)` whose choice at a level is not below a value; `end` if there is none."""
    while begin < end:
        middle = (begin + end) // 2
        if choices[middle, level] < value:
            begin = middle + 1
        else:
            end = middle
    return begin


@jit
def nearest_rows(choices: ChoiceArray, wanted: IntArray) -> IntArray:
    """Repair choices to legal ones: level by level, the nearest choice that any legal tiling goes on with.

    Parameters
    ----------
    choices : int16[rows, levels]
        All legal choices, in lexicographic order.
    wanted : int64[n, levels]

    Returns
    -------
    int64[n]
        Rows of `choices`; of two equally near choices the lower one.
    """
    found = np.empty(wanted.shape[0], np.int64)
    for k in range(wanted.shape[0]):
        begin, end = 0, choices.shape[0]
        for level in range(choices.shape[1]):
            at = _first_not_below(choices, level, begin, end, wanted[k, level])
            value = choices[begin, level]
            if at == end:
                value = choices[end - 1, level]
            elif at > begin:
                above, below = choices[at, level], choices[at - 1, level]
                value = above if above - wanted[k, level] < wanted[k, level] - below else below
            begin = _first_not_below(choices, level, begin, end, value)
            end = _first_not_below(choices, level, begin, end, value + 1)
        found[k] = begin
    return found
