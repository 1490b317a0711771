"""The formulas of the machine model: cycles of the array, the vector unit and the channel, L0 traffic, softmax passes.

They work on plain integers, so that compiled code and tests use the very same ones. `pack_problem` turns an arch and a
workload into the integer vector they read. What a whole instruction costs is put together in `kind_costs`.
"""

import numpy as np

from mas_sim._jit import leaf
from mas_sim.arch import Arch
from mas_sim.schedule import IntArray
from mas_sim.workload import Workload

# Columns of a packed problem (int64 vector).
P_CORES, P_ROWS, P_COLS, P_DEPTH, P_TIMING, P_STATIONARY, P_MAC_PORT = 0, 1, 2, 3, 4, 5, 6
P_LANES, P_VEC_PORT, P_REDUCE = 7, 8, 9
P_ISSUE, P_SYNC, P_LATENCY, P_SETUP, P_BW_NUM, P_BW_DEN = 10, 11, 12, 13, 14, 15
P_OPERAND_BYTES, P_ACC_BYTES, P_L1_BYTES, P_L1_SHARED, P_PATH, P_PATH_BYTES = 16, 17, 18, 19, 20, 21
P_BATCH, P_HEADS, P_KV_HEADS, P_NQ, P_NKV, P_E, P_F, P_ELEMENT, P_ACC_ELEMENT = 22, 23, 24, 25, 26, 27, 28, 29, 30
P_PREEMPTS, P_DRAIN, P_LOSES_PRODUCT = 31, 32, 33
P_BACK, P_AHEAD = 34, 35  # the mask: keys that far behind and ahead of a query count
P_EXP_STEPS = 36  # array steps of exp on the MAC array, 0 if it cannot
P_LC_MASK, P_LC_MAX, P_LC_ADD, P_LC_MUL, P_LC_DIV = 37, 38, 39, 40, 41  # lane-cycles of one element
P_RECIPROCAL = 42  # 1 if rows are normalised by a reciprocal and multiplications
PROBLEM_FIELDS = 43

TIMINGS = ("ideal", "pipelined", "systolic")
STATIONARIES = ("output", "weight", "input")
PATHS = ("l1", "direct", "dram")

# Columns of a softmax pass table, one row a pass through the vector unit: work on each element, then on each row.
# S_OPS, S_ROW_OPS: max, add, mul, exp, div.
S_LANE_CYCLES, S_REDUCTIONS, S_WRITES, S_READS_C, S_OPS = 0, 1, 2, 3, 4
S_ROW_CYCLES, S_ROW_OPS = 9, 10
S_ROWS_ONLY = 15  # the pass does not read the scores, only what the MAC array has reduced
PASS_FIELDS = 16

# How softmax is cut into passes: over whole rows; over one kv tile at a time, so that a pass ends where the whole row's
# maximum or sum is needed; online, over one kv tile, division left out. Then those of online softmax whose exp runs on
# the MAC array.
FORM_ROWS, FORM_TILES, FORM_ONLINE = 0, 1, 2

# softmax step -> (key of the lane-cycle table, metered operation, is a row reduction, is one operation a row)
SOFTMAX_STEPS = {
    "scale": ("multiply", 2, False, False),
    "max": ("max", 0, True, False),
    "subtract": ("subtract", 1, False, False),
    "exp": ("exp", 3, False, False),
    "sum": ("add", 1, True, False),
    "divide": ("divide", 4, False, False),
    "reciprocal": ("divide", 4, False, True),
    "multiply": ("multiply", 2, False, False),
}
NORMALIZING = ("divide", "reciprocal", "multiply")
# What online softmax does once a row beside a step: the running maximum and the correction, the running sum.
ONLINE_ROW_STEPS = {
    "max": (("max", 0), ("subtract", 1), ("exp", 3)),
    "sum": (("multiply", 2), ("add", 1)),
}


def pack_problem(arch: Arch, workload: Workload) -> IntArray:
    """Pack arch and workload into the vector compiled code reads.

    Returns
    -------
    int64[PROBLEM_FIELDS]
        Columns are the `P_*` constants. DRAM bytes per cycle are kept as the exact fraction `BW_NUM / BW_DEN`.
    """
    mac, vec, path = arch.mac, arch.vec, arch.mac_vec_path
    bandwidth = arch.dram_bytes_per_cycle
    machine = [
        *(arch.cores, mac.rows, mac.cols, mac.depth),
        *(TIMINGS.index(mac.timing), STATIONARIES.index(mac.stationary), mac.l1_port_bytes_per_cycle),
        *(vec.lanes, vec.l1_port_bytes_per_cycle, vec.row_reduction_cycles),
        *(arch.issue_cycles, arch.sync_cycles, arch.dram.latency_cycles, arch.dram.setup_cycles),
        *(bandwidth.numerator, bandwidth.denominator),
        *(arch.l0.operand_bytes, arch.l0.accumulator_bytes, arch.l1.capacity_bytes, int(arch.l1.shared)),
        *(PATHS.index(path.kind), path.bytes_per_cycle or 1),
    ]
    shape = [
        *(workload.batch, workload.heads, workload.kv_heads, workload.n_q, workload.n_kv),
        *(workload.head_dim_qk, workload.head_dim_v, workload.bytes_per_element, workload.accumulator_bytes),
    ]
    stop, lane_cycles = arch.preemption, arch.vec.op_lane_cycles
    preemption = [int(stop.supported), stop.drain_cycles, int(stop.lost_granularity == "matmul")]
    rest = [
        *(*workload.band, mac.exp_steps or 0),
        *(lane_cycles.mask, lane_cycles.max, lane_cycles.add, lane_cycles.multiply, lane_cycles.divide),
        int(vec.normalize == "reciprocal"),
    ]
    return np.array(machine + shape + preemption + rest, dtype=np.int64)


def softmax_passes(arch: Arch, form: int) -> tuple[tuple[str, ...], ...]:
    """Return the steps of each pass of softmax in one of its forms.

    `FORM_ROWS`: as the arch says. `FORM_TILES`: cut behind `max` and behind `sum`, for what follows needs those of the
    whole row. `FORM_ONLINE`: without the steps that normalise, which one `normalize` over the output replaces.
    """
    passes: tuple[tuple[str, ...], ...] = arch.vec.softmax_passes
    if form == FORM_ROWS:
        return passes
    if form == FORM_ONLINE:
        kept = (tuple(step for step in steps if step not in NORMALIZING) for steps in passes)
        return tuple(steps for steps in kept if steps)
    cut: list[tuple[str, ...]] = []
    for steps in passes:
        part: tuple[str, ...] = ()
        for step in steps:
            part = (*part, step)
            if step in ("max", "sum"):
                cut.append(part)
                part = ()
        cut += [part] if part else []
    return tuple(cut)


def pack_softmax(arch: Arch, form: int = FORM_ROWS) -> IntArray:
    """Return the softmax passes of an arch as int64[passes, PASS_FIELDS]; columns are the `S_*` constants.

    A pass reads its elements once; it writes them once unless all its steps are row reductions (max, sum). Passes up to
    the first one that writes read C itself (`S_READS_C`). The table of `FORM_ONLINE` has one more row, the last: the
    only pass where exp runs on the MAC array, which updates the running maximum from the tile's.
    """
    lane_cycles = arch.vec.op_lane_cycles.model_dump()
    passes = softmax_passes(arch, form)
    table = np.zeros((len(passes) + (form == FORM_ONLINE), PASS_FIELDS), dtype=np.int64)
    reads_c = 1
    for row, steps in zip(table, passes, strict=False):
        row[S_READS_C] = reads_c
        for step in steps:
            key, op, is_reduction, per_row = SOFTMAX_STEPS[step]
            row[S_ROW_CYCLES if per_row else S_LANE_CYCLES] += lane_cycles[key]
            row[(S_ROW_OPS if per_row else S_OPS) + op] += 1
            row[S_REDUCTIONS] += int(is_reduction)
            row[S_WRITES] |= int(not is_reduction and not per_row)
            if form == FORM_ONLINE:
                _add_row_steps(row, step, lane_cycles)
        reads_c = int(reads_c and not row[S_WRITES])
    if form == FORM_ONLINE:
        _add_row_steps(table[-1], "max", lane_cycles)
        table[-1, S_ROWS_ONLY] = 1
    return table


def _add_row_steps(row: IntArray, step: str, lane_cycles: dict[str, int]) -> None:
    """Add what online softmax does once a row beside a step."""
    for key, op in ONLINE_ROW_STEPS.get(step, ()):
        row[S_ROW_CYCLES] += lane_cycles[key]
        row[S_ROW_OPS + op] += 1


@leaf
def ceil_div(a: int, b: int) -> int:
    """Return `ceil(a / b)` for non-negative a and positive b."""
    return (a + b - 1) // b


@leaf
def mac_array_cycles(
    m: int, k: int, n: int, count: int, rows: int, cols: int, depth: int, timing: int, stationary: int
) -> int:
    """Cycles of `count` products C[m, n] = A[m, k] B[k, n] in one instruction, on a `rows x cols x depth` array.

    Parameters
    ----------
    timing
        0 `ideal`: `ceil(m/rows) ceil(n/cols) ceil(k/depth)` steps, nothing else. 1 `pipelined`: the same, plus fill and
        drain, `rows + cols - 2`, once per instruction. 2 `systolic`: fill and drain once per fold.
    stationary
        For `systolic`. 0 output: `ceil(m/rows) ceil(n/cols) (k + rows + cols - 2)`. 1 weight:
        `ceil(k/rows) ceil(n/cols) (m + 2 rows + cols - 2)`. 2 input: `ceil(k/rows) ceil(m/cols) (n + 2 rows + cols
        - 2)`. These equal SCALE-Sim 3.0.0's cycles (its last cycle's index, plus one) on every row of
        `tests/golden/scalesim_gemm.csv`; with `depth > 1` the k of each step is `ceil(k/depth)`.

    Returns
    -------
    int
        Cycles.
    """
    steps_k = (k + depth - 1) // depth
    if timing == 2:
        if stationary == 0:
            return count * ceil_div(m, rows) * ceil_div(n, cols) * (steps_k + rows + cols - 2)
        if stationary == 1:
            return count * ceil_div(steps_k, rows) * ceil_div(n, cols) * (m + 2 * rows + cols - 2)
        return count * ceil_div(steps_k, rows) * ceil_div(m, cols) * (n + 2 * rows + cols - 2)
    steps = count * ceil_div(m, rows) * ceil_div(n, cols) * steps_k
    return steps + (rows + cols - 2 if timing == 1 else 0)


@leaf
def l0_repeats(
    m: int, n: int, k: int, rows: int, cols: int, depth: int, element: int, acc_element: int, operand: int, acc: int
) -> tuple[int, int]:
    """How often the operands of a product are read from L1: `(ceil(n/n0), ceil(m/m0))` for the best L0 tile m0 x n0.

    The L0 tile minimises `m k ceil(n/n0) + k n ceil(m/m0)` (elements of A and of B moved) over multiples of the
    array's sides with `m0 n0 acc_element <= acc` bytes of accumulators and `(m0 + n0) min(k, depth) element <=
    operand` bytes of operands. One array tile always fits: its accumulators are the array's own.
    """
    best_n, best_m = ceil_div(n, cols), ceil_div(m, rows)
    best = m * k * best_n + k * n * best_m
    slice_bytes = min(k, depth) * element
    m0 = rows
    while True:
        n0 = min(acc // (m0 * acc_element), operand // slice_bytes - m0)
        n0 = n0 // cols * cols
        if n0 < cols:
            break
        repeats_n, repeats_m = ceil_div(n, n0), ceil_div(m, m0)
        moved = m * k * repeats_n + k * n * repeats_m
        if moved < best:
            best, best_n, best_m = moved, repeats_n, repeats_m
        if m0 >= m:
            break
        m0 += rows
    return best_n, best_m


@leaf
def dma_channel_cycles(size_bytes: int, setup: int, bandwidth_num: int, bandwidth_den: int) -> int:
    """Cycles a transfer holds the DRAM channel: `setup + ceil(bytes / bytes_per_cycle)`; at least 1."""
    # size * den could overflow; the remainder's product cannot, since numerator and denominator are below 2**31.
    whole, rest = size_bytes // bandwidth_num, size_bytes % bandwidth_num
    return max(1, setup + whole * bandwidth_den + (rest * bandwidth_den + bandwidth_num - 1) // bandwidth_num)


@leaf
def vec_cycles(elements: int, lanes: int, lane_cycles: int, reductions: int, reduction_cycles: int) -> int:
    """Cycles of vector work: `ceil(elements / lanes) * lane_cycles + reductions * reduction_cycles`.

    Row reductions are pipelined over the rows of an instruction, so each adds its latency once.
    """
    return ceil_div(elements, lanes) * lane_cycles + reductions * reduction_cycles
