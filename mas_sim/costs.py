"""What one instruction costs: every formula of the machine model stands here, once.

The functions work on plain integers, so that compiled code and tests use the very same ones. `pack_problem` turns an
arch and a workload into the integer vector they read; `cost_table` fills the table of instruction kinds of one tiling.
"""

import numpy as np

from mas_sim._jit import leaf
from mas_sim.arch import Arch
from mas_sim.schedule import (
    C_CYCLES,
    C_DRAM_READ,
    C_DRAM_WRITE,
    C_L0_READ,
    C_L0_WRITE,
    C_L1_READ,
    C_L1_WRITE,
    C_MACS,
    C_VEC_MAX,
    IntArray,
)
from mas_sim.workload import Workload

# Columns of a packed problem (int64 vector).
P_CORES, P_ROWS, P_COLS, P_DEPTH, P_TIMING, P_STATIONARY, P_MAC_PORT = 0, 1, 2, 3, 4, 5, 6
P_LANES, P_VEC_PORT, P_REDUCE = 7, 8, 9
P_ISSUE, P_SYNC, P_LATENCY, P_SETUP, P_BW_NUM, P_BW_DEN = 10, 11, 12, 13, 14, 15
P_OPERAND_BYTES, P_ACC_BYTES, P_L1_BYTES, P_L1_SHARED, P_PATH, P_PATH_BYTES = 16, 17, 18, 19, 20, 21
P_BATCH, P_HEADS, P_KV_HEADS, P_NQ, P_NKV, P_E, P_F, P_ELEMENT, P_ACC_ELEMENT = 22, 23, 24, 25, 26, 27, 28, 29, 30
P_PREEMPTS, P_DRAIN, P_LOSES_PRODUCT = 31, 32, 33
PROBLEM_FIELDS = 34

TIMINGS = ("ideal", "pipelined", "systolic")
STATIONARIES = ("output", "weight", "input")
PATHS = ("l1", "direct", "dram")

# Columns of the softmax pass table: one row a pass through the vector unit.
S_LANE_CYCLES, S_REDUCTIONS, S_WRITES, S_READS_C, S_OPS = 0, 1, 2, 3, 4  # S_OPS: max, add, mul, exp, div per element
PASS_FIELDS = 9

# softmax step -> (key of the lane-cycle table, metered operation, is a row reduction)
SOFTMAX_STEPS = {
    "scale": ("multiply", 2, False),
    "max": ("max", 0, True),
    "subtract": ("subtract", 1, False),
    "exp": ("exp", 3, False),
    "sum": ("add", 1, True),
    "divide": ("divide", 4, False),
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
    stop = arch.preemption
    preemption = [int(stop.supported), stop.drain_cycles, int(stop.lost_granularity == "matmul")]
    return np.array(machine + shape + preemption, dtype=np.int64)


def pack_softmax(arch: Arch) -> IntArray:
    """Return the softmax passes of an arch as int64[passes, PASS_FIELDS]: lane-cycles, reductions, writes, operations.

    A pass reads its elements once; it writes them once unless all its steps are row reductions (max, sum). Passes up to
    the first one that writes read C itself (`S_READS_C`).
    """
    lane_cycles = arch.vec.op_lane_cycles.model_dump()
    table = np.zeros((len(arch.vec.softmax_passes), PASS_FIELDS), dtype=np.int64)
    reads_c = 1
    for row, steps in zip(table, arch.vec.softmax_passes, strict=True):
        row[S_READS_C] = reads_c
        for step in steps:
            key, op, is_reduction = SOFTMAX_STEPS[step]
            row[S_LANE_CYCLES] += lane_cycles[key]
            row[S_REDUCTIONS] += int(is_reduction)
            row[S_WRITES] |= int(not is_reduction)
            row[S_OPS + op] += 1
        reads_c = int(reads_c and not row[S_WRITES])
    return table


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


@leaf
def cost_of_dma(cost: IntArray, size_bytes: int, is_load: bool, p: IntArray) -> None:
    """Fill `cost`, int64[COST_FIELDS], for a transfer of `size_bytes` between DRAM and L1."""
    cost[C_CYCLES] = dma_channel_cycles(size_bytes, p[P_SETUP], p[P_BW_NUM], p[P_BW_DEN])
    if is_load:
        cost[C_DRAM_READ] = size_bytes
        cost[C_L1_WRITE] = size_bytes
    else:
        cost[C_L1_READ] = size_bytes
        cost[C_DRAM_WRITE] = size_bytes


@leaf
def _charge_path(cost: IntArray, path: int, size_bytes: int, is_read: bool) -> None:
    """Charge C or P bytes between MAC and VEC to the level they cross: L1, none (`direct`) or DRAM."""
    if path == 0:
        cost[C_L1_READ if is_read else C_L1_WRITE] += size_bytes
    elif path == 2:
        cost[C_DRAM_READ if is_read else C_DRAM_WRITE] += size_bytes


@leaf
def cost_of_matmul(
    cost: IntArray, m: int, k: int, n: int, heads: int, is_pv: bool, variant: int, path: int, p: IntArray
) -> None:
    """Fill `cost`, int64[COST_FIELDS], for `heads` products C[m, n] = A[m, k] B[k, n] issued as one instruction.

    Parameters
    ----------
    is_pv
        False for C = Q K^T (writes C over the MAC-VEC path), True for O = P V (reads P over it).
    variant
        Of O = P V, `first + 2 * last + 4 * spilled`. Partial sums stay in the L0 accumulators, and O is written to
        L1 by the last product, unless they do not fit there (`spilled`): then each product writes them to L1, and
        each but the first reads them back into L0 first, in the accumulator's data type.
    path
        0 L1, 1 direct, 2 DRAM: where C and P cross between MAC and VEC.

    Notes
    -----
    Bytes between L1 and L0, per head: `m k ceil(n/n0) + k n ceil(m/m0)` elements for the best L0 tile (`l0_repeats`).
    Bytes between L0 and the array: `m k ceil(n/cols) + k n ceil(m/rows)` elements. Cycles: the array's, but never
    fewer than the L1 bytes over the MAC port's bandwidth, nor than the path's bytes over the path's. Source:
    docs/design.md.
    """
    rows, cols, element, acc = p[P_ROWS], p[P_COLS], p[P_ELEMENT], p[P_ACC_ELEMENT]
    array = mac_array_cycles(m, k, n, heads, rows, cols, p[P_DEPTH], p[P_TIMING], p[P_STATIONARY])
    repeats_n, repeats_m = l0_repeats(m, n, k, rows, cols, p[P_DEPTH], element, acc, p[P_OPERAND_BYTES], p[P_ACC_BYTES])
    a_bytes = heads * m * k * repeats_n * element
    b_bytes = heads * k * n * repeats_m * element
    out = heads * m * n
    accumulates = is_pv and variant & 1 == 0
    cost[C_L1_READ] += b_bytes
    path_bytes = 0
    if is_pv:
        path_bytes = a_bytes
        _charge_path(cost, path, a_bytes, True)
        if variant & 4:
            cost[C_L1_READ] += out * acc if accumulates else 0
            cost[C_L1_WRITE] += out * (element if variant & 2 else acc)
        elif variant & 2:
            cost[C_L1_WRITE] += out * element
    else:
        cost[C_L1_READ] += a_bytes
        path_bytes = out * element
        _charge_path(cost, path, path_bytes, False)
    l1_bytes = cost[C_L1_READ] + cost[C_L1_WRITE]
    cycles = max(array, ceil_div(l1_bytes, p[P_MAC_PORT]))
    if path != 0:
        cycles = max(cycles, ceil_div(path_bytes, p[P_PATH_BYTES]))
    cost[C_CYCLES] = p[P_ISSUE] + cycles
    operand_reads = heads * (m * k * ceil_div(n, cols) + k * n * ceil_div(m, rows)) * element
    cost[C_L0_READ] = operand_reads + (out * acc if accumulates else 0) + (out * acc if not is_pv or variant & 6 else 0)
    refilled = out * acc if accumulates and variant & 4 else 0
    cost[C_L0_WRITE] = a_bytes + b_bytes + out * acc + refilled
    cost[C_MACS] = heads * m * k * n


@leaf
def cost_of_softmax(
    cost: IntArray, rows: int, columns: int, index: int, passes: IntArray, path: int, p: IntArray
) -> None:
    """Fill `cost`, int64[COST_FIELDS], for softmax pass `index` over `rows x columns` scores.

    Cycles: `vec_cycles`, but never fewer than the bytes read and written over the VEC port's bandwidth. Passes that
    read C, and the last one, which writes P, do so over the MAC-VEC path. Row maxima and sums stay beside the
    lanes and are not metered.
    """
    row = passes[index]
    elements = rows * columns
    size = elements * p[P_ELEMENT]
    crosses_in = row[S_READS_C] > 0
    crosses_out = index == passes.shape[0] - 1 and row[S_WRITES] > 0
    _charge_path(cost, path if crosses_in else 0, size, True)
    if row[S_WRITES]:
        _charge_path(cost, path if crosses_out else 0, size, False)
    l1_bytes = cost[C_L1_READ] + cost[C_L1_WRITE]
    cycles = vec_cycles(elements, p[P_LANES], row[S_LANE_CYCLES], row[S_REDUCTIONS], p[P_REDUCE])
    cycles = max(cycles, ceil_div(l1_bytes, p[P_VEC_PORT]))
    if path != 0 and (crosses_in or crosses_out):
        cycles = max(cycles, ceil_div(size * (int(crosses_in) + int(crosses_out)), p[P_PATH_BYTES]))
    cost[C_CYCLES] = p[P_ISSUE] + cycles
    for op in range(5):
        cost[C_VEC_MAX + op] = elements * row[S_OPS + op]
