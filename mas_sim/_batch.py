"""Compiled evaluation of many tilings: which are legal and what bounds them (`scan`), and what they take (`evaluate`).

Both release the GIL, so two threads use two cores. A tiling is built into scratch memory, simulated, metered and
forgotten: no Python object is made per tiling.
"""

import numpy as np
import numpy.typing as npt

from mas_sim._jit import jit, leaf
from mas_sim._kernels import CAUSES, REDO_FIELDS, simulate_events
from mas_sim._tally import tally_width
from mas_sim._work import CORE_FIELDS, ROW_FIELDS, WORK_FIELDS, least_cycles, tiling_work
from mas_sim.costs import (
    P_CORES,
    P_DRAIN,
    P_ISSUE,
    P_L1_BYTES,
    P_L1_SHARED,
    P_LATENCY,
    P_LOSES_PRODUCT,
    P_NKV,
    P_PREEMPTS,
    P_SYNC,
    ceil_div,
)
from mas_sim.dataflows._dispatch import emit, instruction_bound, is_possible, plan_slots, span
from mas_sim.dataflows._emission import BK_COUNTS, make_book
from mas_sim.dataflows._numbers import FLAT, LAYER_WISE
from mas_sim.dataflows._plan import (
    active_core_count,
    core_items,
    cost_table,
    kind_bases,
    make_grid,
)
from mas_sim.meter import add_redone
from mas_sim.schedule import C_CYCLES, COST_FIELDS, FIELDS, METER_FIELDS, UNITS, Grid, IntArray
from mas_sim.tiling import (
    TILING_FIELDS,
    TL_BATCH,
    TL_EXP_ON,
    TL_HEAD,
    TL_IN_PLACE,
    TL_K_BUFFERS,
    TL_K_RESIDENT,
    TL_KV,
    TL_O_BUFFERS,
    TL_OVERLAP,
    TL_OVERWRITE,
    TL_Q,
    TL_Q_BUFFERS,
    TL_SCORE_BUFFERS,
    TL_SPLIT,
    TL_V_BUFFERS,
    TL_V_RESIDENT,
)

FloatArray = npt.NDArray[np.float64]

# Columns of an inner choice (int64 vector): everything of a tiling but its tile sizes. Residency is a share of the
# tiles. Choices of the same first six columns form a block.
IN_SPLIT, IN_OVERWRITE, IN_SCORE_BUFFERS, IN_IN_PLACE, IN_EXP_ON, IN_OVERLAP = 0, 1, 2, 3, 4, 5
IN_K_SHARE, IN_V_SHARE, IN_Q_BUFFERS, IN_K_BUFFERS, IN_V_BUFFERS, IN_O_BUFFERS = 6, 7, 8, 9, 10, 11
INNER_FIELDS = 12
SHARES = 8
"""Residency is chosen in eighths of a tensor's tiles, rounded up."""

# Columns of an evaluated tiling.
E_CYCLES, E_L1_BYTES, E_METER = 0, 1, 2
EVALUATION_FIELDS = 2 + METER_FIELDS

# How many tilings fell out where, and how many are legal.
N_TOO_LONG, N_DUPLICATE, N_ILLEGAL, N_OVERFULL, N_ROOM_LEFT, N_LEGAL = 0, 1, 2, 3, 4, 5
COUNT_FIELDS = 6

LATENCY, ENERGY, EDP = 0, 1, 2


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
def _fate(
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
def _leaves_room(
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
def _value(objective: int, cycles: int, energy: float) -> float:
    """Objective of a tiling, or of its bounds."""
    if objective == LATENCY:
        return float(cycles)
    return energy if objective == ENERGY else energy * cycles


@jit
def _scratch(grid: Grid) -> tuple[IntArray, IntArray]:
    """Make the scratch arrays of `tiling_work`."""
    tally = np.zeros((grid.class_heads.shape[0] + 1, tally_width(grid)), np.int64)
    return tally, np.zeros(ROW_FIELDS, np.int64)


@jit
def _scan_outer(
    dataflow: int, p: IntArray, passes: IntArray, t: IntArray, inner: IntArray, blocks: IntArray, max_instructions: int,
    steps: IntArray, pj: FloatArray, leakage_pj: float, objective: int, limit: float, index0: int, found: int,
    out_index: IntArray, out_value: FloatArray, counts: IntArray,
) -> int:  # fmt: skip
    """Scan all inner choices of one outer choice; see `scan`."""
    tiles = ceil_div(p[P_NKV], t[TL_KV])
    if instruction_bound(dataflow, p, t, passes.shape[0]) > max_instructions:
        counts[N_TOO_LONG] += inner.shape[0]
        return found
    grid = make_grid(p, t, False)
    longest = grid.row_length.max()
    work, cores = np.zeros(WORK_FIELDS, np.int64), np.zeros((p[P_CORES], CORE_FIELDS), np.int64)
    tally, times = _scratch(grid)
    kinds, costs = np.zeros(0, np.int64), np.zeros((0, COST_FIELDS), np.int64)
    differ = splits_differ(p, t)
    priced, summed, dynamic = -1, -1, 0.0
    for block in range(blocks.shape[0] - 1):
        begin, end = blocks[block], blocks[block + 1]
        first = _first_of_block(dataflow, p, t, inner, begin, end, tiles, longest, differ, steps, counts)
        for c in range(first, end):
            apply_inner(t, inner[c], tiles)
            fate = _fate(dataflow, p, t, inner, c, tiles, longest, differ)
            if fate == N_LEGAL and steps.shape[1] > 0 and _leaves_room(dataflow, p, t, inner[c], tiles, longest, steps):
                fate = N_ROOM_LEFT
            counts[fate] += 1
            if fate != N_LEGAL:
                continue
            kind = (t[TL_OVERWRITE] * 2 + t[TL_EXP_ON]) * 4 + t[TL_OVERLAP]
            what = ((kind * 2 + inner[c, IN_SPLIT]) * 16 + inner[c, IN_K_SHARE]) * 16 + inner[c, IN_V_SHARE]
            if what != summed:
                if kind != priced:
                    kinds = kind_bases(dataflow, t, grid, passes)
                    costs = cost_table(dataflow, p, t, passes, grid, kinds)
                    priced = kind
                tiling_work(dataflow, p, t, grid, kinds, costs, tally, cores, work, times)
                summed, dynamic = what, 0.0
                for column in range(METER_FIELDS):
                    dynamic += pj[column] * work[column]
            cycles = least_cycles(dataflow, p, t, grid, cores, work)
            value = _value(objective, cycles, dynamic + leakage_pj * cycles)
            if value <= limit:
                out_index[found], out_value[found] = index0 + c, value
                found += 1
    return found


@leaf
def _first_of_block(
    dataflow: int, p: IntArray, t: IntArray, inner: IntArray, begin: int, end: int, tiles: int, longest: int,
    differ: bool, steps: IntArray, counts: IntArray,
) -> int:  # fmt: skip
    """Return the first choice of a block that must be looked at by itself, and count those before it.

    None, if even the one that needs the fewest bytes does not fit; the last one, if that needs the most and fits, so
    that all the others leave room.
    """
    apply_inner(t, inner[begin], tiles)
    fate = _fate(dataflow, p, t, inner, begin, tiles, longest, differ)
    if fate in (N_OVERFULL, N_ILLEGAL) or (fate == N_DUPLICATE and not _own_schedule(dataflow, inner[begin], differ)):
        counts[fate] += end - begin
        return end
    apply_inner(t, inner[end - 1], tiles)
    if steps.shape[1] > 0 and _fate(dataflow, p, t, inner, end - 1, tiles, longest, differ) == N_LEGAL:
        counts[N_ROOM_LEFT] += end - 1 - begin
        return end - 1
    return begin


@leaf
def _own_schedule(dataflow: int, inner: IntArray, differ: bool) -> bool:
    """Whether a block's choices can give schedules that no other block gives."""
    if inner[IN_SPLIT] == 1 and not differ:
        return False
    return not (dataflow == FLAT and inner[IN_IN_PLACE] == 0)  # in sequence, P's own bytes change nothing


@jit
def scan(
    dataflow: int, p: IntArray, passes: IntArray, outer: IntArray, inner: IntArray, blocks: IntArray,
    max_instructions: int, steps: IntArray, pj: FloatArray, leakage_pj: float, objective: int, limit: float,
    index0: int, out_index: IntArray, out_value: FloatArray, counts: IntArray,
) -> int:  # fmt: skip
    """Find the legal tilings among `outer x inner` whose lower bound is at most `limit`; return how many there are.

    Parameters
    ----------
    outer : int64[n, 4], inner : int64[m, INNER_FIELDS]
        Tile sizes (batch, head, q, kv), and the other choices.
    blocks : int64[blocks + 1]
        Where the inner choices' blocks begin.
    steps : int64[2, n]
        The space's shares and depths, if only tilings that leave no room in L1 are wanted; int64[2, 0] if all are.
    pj : float64[METER_FIELDS], leakage_pj : float
        Energy per metered action, and per cycle.
    objective
        `LATENCY`, `ENERGY` or `EDP`.
    index0
        Index in the whole space of the first outer row's first inner choice.
    out_index, out_value : [n * m]
        Filled, for each such tiling: its index, and the lower bound of its objective.
    counts : int64[COUNT_FIELDS]
        Filled: the `N_*` columns. A schedule that the space has under two names is legal once.
    """
    t = np.zeros(TILING_FIELDS, np.int64)
    found = 0
    counts[:] = 0
    for o in range(outer.shape[0]):
        t[TL_BATCH], t[TL_HEAD], t[TL_Q], t[TL_KV] = outer[o, 0], outer[o, 1], outer[o, 2], outer[o, 3]
        found = _scan_outer(
            dataflow, p, passes, t, inner, blocks, max_instructions, steps, pj, leakage_pj, objective, limit,
            index0 + o * inner.shape[0], found, out_index, out_value, counts,
        )  # fmt: skip
    return found


@leaf
def _meter_into(result: IntArray, book: IntArray, costs: IntArray) -> None:
    """Fill the metered actions of an evaluated tiling from the counts of its kinds."""
    for kind in range(costs.shape[0]):
        count = book[BK_COUNTS + kind]
        if count:
            for column in range(METER_FIELDS):
                result[E_METER + column] += count * costs[kind, column + 1]


@jit
def evaluate(dataflow: int, p: IntArray, passes: IntArray, tilings: IntArray, results: IntArray) -> None:
    """Build and simulate each of `tilings`, int64[n, TILING_FIELDS]; fill `results`, int64[n, EVALUATION_FIELDS].

    The tilings must be legal (as `scan` finds them).
    """
    queues = p[P_CORES] * UNITS
    timing = np.array([p[P_SYNC], p[P_LATENCY], p[P_ISSUE], p[P_PREEMPTS], p[P_DRAIN], p[P_LOSES_PRODUCT]])
    busy, stalls = np.empty(queues, np.int64), np.empty((queues, CAUSES), np.int64)
    code = np.empty((0, FIELDS), np.int32)
    following, start, end = np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64)
    for row in range(tilings.shape[0]):
        t = tilings[row]
        grid = make_grid(p, t, True)
        kinds = kind_bases(dataflow, t, grid, passes)
        costs = cost_table(dataflow, p, t, passes, grid, kinds)
        slots, places = plan_slots(dataflow, p, t, grid.row_length.max())
        room = instruction_bound(dataflow, p, t, passes.shape[0])
        if room > code.shape[0]:
            code = np.empty((room, FIELDS), np.int32)
            following, start, end = np.empty(room, np.int32), np.empty(room, np.int64), np.empty(room, np.int64)
        book = make_book(dataflow, p, t, kinds, costs.shape[0], grid, slots.shape[0], places)
        n = emit(code, book, slots.shape[0])
        cycles = costs[:, C_CYCLES].copy()
        redo = np.empty((n if t[TL_OVERWRITE] else 0, REDO_FIELDS), np.int64)
        results[row, E_CYCLES] = simulate_events(
            code, n, cycles, p[P_CORES], timing, following, start, end, busy, stalls, redo
        )
        active = active_core_count(p, t) if p[P_L1_SHARED] else 1
        results[row, E_L1_BYTES] = span(dataflow, p, t, grid.row_length.max()) * active
        results[row, E_METER:] = 0
        _meter_into(results[row], book, costs)
        if t[TL_OVERWRITE]:
            add_redone(code, n, costs, start, redo, p[P_LOSES_PRODUCT], results[row, E_METER:])
