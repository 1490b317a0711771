"""Compiled evaluation of many tilings: which are legal and what bounds them (`scan`), and what they take (`evaluate`).

Both release the GIL, so two threads use two cores. A tiling is built into scratch memory, simulated, metered and
forgotten: no Python object is made per tiling.
"""

import numpy as np
import numpy.typing as npt

from mas_sim._jit import jit
from mas_sim._kernels import CAUSES, simulate_events
from mas_sim.bounds import TALLY_FIELDS, W_CYCLES, WORK_FIELDS, tiling_work
from mas_sim.costs import P_CORES, P_ISSUE, P_L1_BYTES, P_L1_SHARED, P_LATENCY, P_NKV, P_SYNC, ceil_div
from mas_sim.dataflows._dispatch import LAYER_WISE, emit, instruction_bound, plan_slots, span_bytes
from mas_sim.dataflows._emission import BK_COUNTS, make_book
from mas_sim.dataflows._plan import (
    MAX_GROUP_CLASSES,
    active_core_count,
    cost_table,
    kind_bases,
    make_grid,
)
from mas_sim.schedule import C_CYCLES, COST_FIELDS, FIELDS, METER_FIELDS, UNITS, Grid, IntArray
from mas_sim.tiling import (
    TILING_FIELDS,
    TL_BATCH,
    TL_HEAD,
    TL_K_BUFFERS,
    TL_K_RESIDENT,
    TL_KV,
    TL_O_BUFFERS,
    TL_Q,
    TL_Q_BUFFERS,
    TL_SCORE_BUFFERS,
    TL_SPLIT,
    TL_V_BUFFERS,
    TL_V_RESIDENT,
)

FloatArray = npt.NDArray[np.float64]

# Columns of an inner choice (int64 vector): everything of a tiling but its tile sizes. Residency is a share of the
# tiles.
IN_K_SHARE, IN_V_SHARE, IN_Q_BUFFERS, IN_K_BUFFERS, IN_V_BUFFERS, IN_SCORE_BUFFERS, IN_O_BUFFERS, IN_SPLIT = range(8)
INNER_FIELDS = 8
SHARES = 8
"""Residency is chosen in eighths of a tensor's tiles, rounded up."""

# Columns of an evaluated tiling.
E_CYCLES, E_L1_BYTES, E_METER = 0, 1, 2
EVALUATION_FIELDS = 2 + METER_FIELDS

# How many tilings fell out where.
N_TOTAL, N_TOO_LONG, N_OVERFULL = 0, 1, 2


@jit
def apply_inner(t: IntArray, inner: IntArray, tiles: int) -> None:
    """Complete the packed tiling `t`, whose tile sizes are set, with an inner choice."""
    t[TL_K_RESIDENT] = ceil_div(tiles * inner[IN_K_SHARE], SHARES)
    t[TL_V_RESIDENT] = ceil_div(tiles * inner[IN_V_SHARE], SHARES)
    t[TL_Q_BUFFERS], t[TL_K_BUFFERS], t[TL_V_BUFFERS] = inner[IN_Q_BUFFERS], inner[IN_K_BUFFERS], inner[IN_V_BUFFERS]
    t[TL_SCORE_BUFFERS], t[TL_O_BUFFERS], t[TL_SPLIT] = inner[IN_SCORE_BUFFERS], inner[IN_O_BUFFERS], inner[IN_SPLIT]


@jit
def scan(
    dataflow: int, p: IntArray, passes: IntArray, outer: IntArray, inner: IntArray, max_instructions: int,
    pj: FloatArray, leakage_pj: float, index0: int, out_index: IntArray, out_cycles: IntArray, out_energy: FloatArray,
    fell_out: IntArray,
) -> int:  # fmt: skip
    """Find the legal tilings among `outer x inner`, and bound each; return how many there are.

    Parameters
    ----------
    outer : int64[n, 4], inner : int64[m, INNER_FIELDS]
        Tile sizes (batch, head, q, kv), and the other choices.
    pj : float64[METER_FIELDS], leakage_pj : float
        Energy per metered action, and per cycle.
    index0
        Index in the whole space of the first outer row's first inner choice.
    out_index, out_cycles, out_energy : [n * m]
        Filled, for each legal tiling: its index, a lower bound of its cycles, and one of its energy (its exact actions,
        and leakage over those cycles).
    fell_out : int64[3]
        Filled: tilings looked at, too long to build, and not fitting L1.
    """
    t, work = np.zeros(TILING_FIELDS, np.int64), np.zeros(WORK_FIELDS, np.int64)
    tally = np.zeros((MAX_GROUP_CLASSES, TALLY_FIELDS), np.int64)
    found = 0
    fell_out[:] = 0
    for o in range(outer.shape[0]):
        t[TL_BATCH], t[TL_HEAD], t[TL_Q], t[TL_KV] = outer[o, 0], outer[o, 1], outer[o, 2], outer[o, 3]
        fell_out[N_TOTAL] += inner.shape[0]
        grid = make_grid(p, t)
        if instruction_bound(dataflow, grid, passes.shape[0]) > max_instructions:
            fell_out[N_TOO_LONG] += inner.shape[0]
            continue
        kinds = kind_bases(grid, passes.shape[0])
        costs = np.zeros((0, COST_FIELDS), np.int64)
        for c in range(inner.shape[0]):
            apply_inner(t, inner[c], ceil_div(p[P_NKV], t[TL_KV]))
            if l1_bytes(dataflow, p, t, grid) > p[P_L1_BYTES]:
                fell_out[N_OVERFULL] += 1
                continue
            if costs.shape[0] == 0:
                costs = cost_table(p, t, passes, grid, kinds, dataflow == LAYER_WISE)
            tiling_work(dataflow, p, t, grid, kinds, costs, tally, work)
            out_index[found] = index0 + o * inner.shape[0] + c
            out_cycles[found] = work[W_CYCLES]
            out_energy[found] = leakage_pj * work[W_CYCLES]
            for column in range(METER_FIELDS):
                out_energy[found] += pj[column] * work[column]
            found += 1
    return found


@jit
def l1_bytes(dataflow: int, p: IntArray, t: IntArray, grid: Grid) -> int:
    """Bytes that a tiling needs in the fullest L1."""
    slots, _ = plan_slots(dataflow, p, t, grid)
    return span_bytes(slots) * (active_core_count(p, t) if p[P_L1_SHARED] else 1)


@jit
def evaluate(dataflow: int, p: IntArray, passes: IntArray, tilings: IntArray, results: IntArray) -> None:
    """Build and simulate each of `tilings`, int64[n, TILING_FIELDS]; fill `results`, int64[n, EVALUATION_FIELDS].

    The tilings must be legal (as `scan` finds them).
    """
    queues = p[P_CORES] * UNITS
    timing = np.array([p[P_SYNC], p[P_LATENCY], p[P_ISSUE]])
    busy, stalls = np.empty(queues, np.int64), np.empty((queues, CAUSES), np.int64)
    code = np.empty((0, FIELDS), np.int32)
    following, start, end = np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64)
    for row in range(tilings.shape[0]):
        t = tilings[row]
        grid = make_grid(p, t)
        kinds = kind_bases(grid, passes.shape[0])
        costs = cost_table(p, t, passes, grid, kinds, dataflow == LAYER_WISE)
        slots, places = plan_slots(dataflow, p, t, grid)
        room = instruction_bound(dataflow, grid, passes.shape[0])
        if room > code.shape[0]:
            code = np.empty((room, FIELDS), np.int32)
            following, start, end = np.empty(room, np.int32), np.empty(room, np.int64), np.empty(room, np.int64)
        book = make_book(p, t, kinds, costs.shape[0], grid, slots.shape[0], places)
        n = emit(dataflow, code, book, slots.shape[0])
        cycles = costs[:, C_CYCLES].copy()
        results[row, E_CYCLES] = simulate_events(
            code, n, cycles, p[P_CORES], timing, following, start, end, busy, stalls
        )
        results[row, E_L1_BYTES] = l1_bytes(dataflow, p, t, grid)
        results[row, E_METER:] = 0
        for kind in range(costs.shape[0]):
            count = book[BK_COUNTS + kind]
            if count:
                for column in range(METER_FIELDS):
                    results[row, E_METER + column] += count * costs[kind, column + 1]
