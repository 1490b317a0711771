"""Compiled evaluation of many tilings: which are legal and what bounds them (`scan`), and what they take (`evaluate`).

Both release the GIL, so two threads use two cores. A tiling is built into scratch memory, simulated, metered and
forgotten: no Python object is made per tiling.
"""

import numpy as np
import numpy.typing as npt

from mas_sim._jit import jit, leaf
from mas_sim._kernels import CAUSES, REDO_FIELDS, simulate_events
from mas_sim._legal import (
    IN_K_SHARE,
    IN_SPLIT,
    IN_V_SHARE,
    N_LEGAL,
    N_ROOM_LEFT,
    N_TOO_LONG,
    apply_inner,
    fate_of,
    first_of_block,
    leaves_room,
    splits_differ,
)
from mas_sim._tally import tally_width
from mas_sim._work import CORE_FIELDS, ROW_FIELDS, WORK_FIELDS, least_cycles, tiling_work
from mas_sim.costs import (
    P_CORES,
    P_DRAIN,
    P_ISSUE,
    P_L1_SHARED,
    P_LATENCY,
    P_LOSES_PRODUCT,
    P_NKV,
    P_PREEMPTS,
    P_SYNC,
    ceil_div,
)
from mas_sim.dataflows._dispatch import emit, instruction_bound, plan_slots, span
from mas_sim.dataflows._emission import BK_COUNTS, make_book
from mas_sim.dataflows._numbers import in_pairs, pairs_across
from mas_sim.dataflows._plan import active_core_count, cost_table, kind_bases, make_grid
from mas_sim.meter import add_redone
from mas_sim.schedule import C_CYCLES, COST_FIELDS, FIELDS, METER_FIELDS, UNITS, Grid, IntArray
from mas_sim.tiling import TILING_FIELDS, TL_BATCH, TL_EXP_ON, TL_HEAD, TL_KV, TL_OVERLAP, TL_OVERWRITE, TL_Q

FloatArray = npt.NDArray[np.float64]

# Columns of an evaluated tiling.
E_CYCLES, E_L1_BYTES, E_METER = 0, 1, 2
EVALUATION_FIELDS = 2 + METER_FIELDS


@jit
def _scratch(grid: Grid) -> tuple[IntArray, IntArray]:
    """Make the scratch arrays of `tiling_work`."""
    tally = np.zeros((grid.class_heads.shape[0] + 2, tally_width(grid)), np.int64)
    return tally, np.zeros(ROW_FIELDS, np.int64)


@jit
def _scan_outer(
    dataflow: int, p: IntArray, passes: IntArray, t: IntArray, inner: IntArray, blocks: IntArray, max_instructions: int,
    steps: IntArray, pj: FloatArray, leakage_pj: float, priced: bool, index0: int, found: int,
    out_index: IntArray, out_cycles: FloatArray, out_energy: FloatArray, counts: IntArray,
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
    filled, summed, dynamic = -1, -1, 0.0
    for block in range(blocks.shape[0] - 1):
        begin, end = blocks[block], blocks[block + 1]
        first = first_of_block(dataflow, p, t, inner, begin, end, tiles, longest, differ, steps, counts)
        for c in range(first, end):
            apply_inner(t, inner[c], tiles)
            fate = fate_of(dataflow, p, t, inner, c, tiles, longest, differ)
            if fate == N_LEGAL and steps.shape[1] > 0 and leaves_room(dataflow, p, t, inner[c], tiles, longest, steps):
                fate = N_ROOM_LEFT
            counts[fate] += 1
            if fate != N_LEGAL:
                continue
            out_index[found] = index0 + c
            found += 1
            if not priced:
                continue
            kind = (t[TL_OVERWRITE] * 2 + t[TL_EXP_ON]) * 4 + t[TL_OVERLAP]
            across = 1 if in_pairs(dataflow, t) and pairs_across(t) else 0
            what = (((kind * 2 + across) * 2 + inner[c, IN_SPLIT]) * 16 + inner[c, IN_K_SHARE]) * 16
            what += inner[c, IN_V_SHARE]
            if what != summed:
                if kind != filled:
                    kinds = kind_bases(dataflow, t, grid, passes)
                    costs = cost_table(dataflow, p, t, passes, grid, kinds)
                    filled = kind
                tiling_work(dataflow, p, t, grid, kinds, costs, tally, cores, work, times)
                summed, dynamic = what, 0.0
                for column in range(METER_FIELDS):
                    dynamic += pj[column] * work[column]
            cycles = least_cycles(dataflow, p, t, grid, cores, work)
            out_cycles[found - 1], out_energy[found - 1] = cycles, dynamic + leakage_pj * cycles
    return found


@jit
def scan(
    dataflow: int, p: IntArray, passes: IntArray, outer: IntArray, inner: IntArray, blocks: IntArray,
    max_instructions: int, steps: IntArray, pj: FloatArray, leakage_pj: float, priced: bool, index0: int,
    out_index: IntArray, out_cycles: FloatArray, out_energy: FloatArray, counts: IntArray,
) -> int:  # fmt: skip
    """Find the legal tilings among `outer x inner`, with lower bounds if `priced`; return how many there are.

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
    index0
        Index in the whole space of the first outer row's first inner choice.
    out_index, out_cycles, out_energy : [n * m]
        Filled, for each such tiling, in rising order: its index, and lower bounds of its cycles and its energy in pJ.
    counts : int64[COUNT_FIELDS]
        Filled: the `N_*` columns. A schedule that the space has under two names is legal once,
        but where two shares of a tensor's tiles come to the same number of them.
    """
    t = np.zeros(TILING_FIELDS, np.int64)
    found = 0
    counts[:] = 0
    for o in range(outer.shape[0]):
        t[TL_BATCH], t[TL_HEAD], t[TL_Q], t[TL_KV] = outer[o, 0], outer[o, 1], outer[o, 2], outer[o, 3]
        found = _scan_outer(
            dataflow, p, passes, t, inner, blocks, max_instructions, steps, pj, leakage_pj, priced,
            index0 + o * inner.shape[0], found, out_index, out_cycles, out_energy, counts,
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
