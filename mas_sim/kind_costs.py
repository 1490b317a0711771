"""What one instruction costs, by operation: its cycles and its metered actions, from the formulas in `costs`.

Each function fills one row of the cost table, int64[COST_FIELDS], whose columns are zero before.
"""

from mas_sim._jit import leaf
from mas_sim.costs import (
    P_ACC_BYTES,
    P_ACC_ELEMENT,
    P_BW_DEN,
    P_BW_NUM,
    P_COLS,
    P_DEPTH,
    P_ELEMENT,
    P_EXP_STEPS,
    P_HEADS,
    P_ISSUE,
    P_KV_HEADS,
    P_LANES,
    P_LC_ADD,
    P_LC_DIV,
    P_LC_MASK,
    P_LC_MAX,
    P_LC_MUL,
    P_MAC_PORT,
    P_OPERAND_BYTES,
    P_PATH_BYTES,
    P_RECIPROCAL,
    P_REDUCE,
    P_ROWS,
    P_SETUP,
    P_STATIONARY,
    P_TIMING,
    P_VEC_PORT,
    S_LANE_CYCLES,
    S_OPS,
    S_READS_C,
    S_REDUCTIONS,
    S_ROW_CYCLES,
    S_ROW_OPS,
    S_ROWS_ONLY,
    S_WRITES,
    ceil_div,
    dma_channel_cycles,
    l0_repeats,
    mac_array_cycles,
    vec_cycles,
)
from mas_sim.schedule import (
    C_CYCLES,
    C_DRAM_READ,
    C_DRAM_WRITE,
    C_L0_READ,
    C_L0_WRITE,
    C_L1_READ,
    C_L1_WRITE,
    C_MACS,
    C_VEC_ADD,
    C_VEC_DIV,
    C_VEC_MAX,
    C_VEC_MUL,
    PACK_BATCHES,
    PACK_LEAD,
    PACK_TAIL,
    PACK_WHOLE,
    IntArray,
)


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


# Variants of a product, bits of `variant` in `cost_of_matmul`.
V_FIRST, V_LAST, V_SPILLED, V_TO_VEC, V_STAYS, V_DRAINS = 1, 2, 4, 8, 16, 32


@leaf
def _skew(timing: int, p: IntArray) -> int:
    """Cycles that a wavefront takes across the array, where the machine's `mac.timing` is this one; else 0."""
    return int(p[P_ROWS] + p[P_COLS] - 2 if p[P_TIMING] == timing else 0)


@leaf
def _array_cycles(m: int, k: int, n: int, count: int, is_pv: bool, variant: int, p: IntArray) -> int:
    """Cycles of `count` products on the array, without what is there once an instruction.

    Where scores stay in the array (`V_STAYS`), each of its positions holds one: C adds a step for the local
    maximum, and O = P V takes `F` steps a fold, its sums running across the array, and one for the local sum (FuseMax).
    """
    rows, cols, timing = p[P_ROWS], p[P_COLS], p[P_TIMING]
    if variant & V_STAYS:
        columns, steps = (k, n + 1) if is_pv else (n, ceil_div(k, p[P_DEPTH]) + 1)
        return int(count * ceil_div(m, rows) * ceil_div(columns, cols) * (steps + _skew(2, p)))
    return mac_array_cycles(m, k, n, count, rows, cols, p[P_DEPTH], 0 if timing == 1 else timing, p[P_STATIONARY])


@leaf
def _stacks(packs: IntArray, part: int, p: IntArray) -> tuple[int, int]:
    """Return a group's stacks of query heads of one kind (`part` 0 to 2): how many there are, and heads in each."""
    share = p[P_HEADS] // p[P_KV_HEADS]
    stacked = packs[PACK_LEAD] if part == 0 else (share if part == 1 else packs[PACK_TAIL])
    count = packs[PACK_BATCHES] * (packs[PACK_WHOLE] if part == 1 else (1 if stacked > 0 else 0))
    return int(count), int(stacked)


@leaf
def _operands(
    m: int, k: int, n: int, packs: IntArray, is_pv: bool, variant: int, held: int, p: IntArray
) -> tuple[int, int, int, int, int]:
    """Sum up the stacked products of a group: array cycles, bytes of A and of B into L0, of both out of it; heads."""
    rows, cols, element = p[P_ROWS], p[P_COLS], p[P_ELEMENT]
    array, a_bytes, b_bytes, operand_reads, heads = 0, 0, 0, 0, 0
    for part in range(3):
        count, stacked = _stacks(packs, part, p)
        if count == 0:
            continue
        tall = m * stacked
        array += _array_cycles(tall, k, n, count, is_pv, variant, p)
        repeats_n, repeats_m = l0_repeats(
            tall, n, k, rows, cols, p[P_DEPTH], element, p[P_ACC_ELEMENT], p[P_OPERAND_BYTES], p[P_ACC_BYTES] - held
        )
        a_bytes += count * tall * k * repeats_n * element
        b_bytes += count * k * n * repeats_m * element
        operand_reads += count * (tall * k * ceil_div(n, cols) + k * n * ceil_div(tall, rows)) * element
        heads += count * stacked
    array += _skew(1, p)
    if variant & V_DRAINS:
        array += rows
    return array, a_bytes, b_bytes, operand_reads, heads


@leaf
def cost_of_matmul(
    cost: IntArray, m: int, k: int, n: int, packs: IntArray, is_pv: bool, variant: int, path: int, held: int,
    p: IntArray,
) -> None:  # fmt: skip
    """Fill `cost`, int64[COST_FIELDS], for the products C[m, n] = A[m, k] B[k, n] of a group, one instruction.

    Parameters
    ----------
    packs : int64[PACK_FIELDS]
        The group's heads. The query heads of one K/V head share B, so their rows are stacked: one product with as many
        times m rows.
    is_pv
        False for C = Q K^T (writes C over the MAC-VEC path), True for O = P V (reads P over it).
    variant
        Bits. Of O = P V: `V_FIRST`, `V_LAST` of its accumulation. Partial sums stay in the L0 accumulators, and O is
        written to L1 by the last product, unless they do not fit there (`V_SPILLED`): then each product writes them to
        L1, and each but the first reads them back into L0 first, in the accumulator's data type. `V_TO_VEC`: partial
        sums cross to the vector unit instead, over the path. Of both: `V_STAYS`, scores never leave the array (one
        kv tile at a time, exp on the array). `V_DRAINS`: what it has reduced leaves the array before anything else
        runs, `rows` cycles.
    path
        0 L1, 1 direct, 2 DRAM: where C and P cross between MAC and VEC.
    held
        Bytes of the L0 accumulators that an unfinished O holds meanwhile.

    Notes
    -----
    Bytes between L1 and L0, per stacked product: `m k ceil(n/n0) + k n ceil(m/m0)` elements for the best L0 tile
    (`l0_repeats`). Bytes between L0 and the array: `m k ceil(n/cols) + k n ceil(m/rows)` elements. Cycles: the array's,
    but never fewer than the L1 bytes over the MAC port's bandwidth, nor than the path's bytes over the path's. Source:
    docs/model.md, section 2.
    """
    element, acc = p[P_ELEMENT], p[P_ACC_ELEMENT]
    array, a_bytes, b_bytes, operand_reads, heads = _operands(m, k, n, packs, is_pv, variant, held, p)
    out = heads * m * n
    accumulates = is_pv and variant & (V_FIRST | V_TO_VEC) == 0
    cost[C_L1_READ] += b_bytes
    if variant & V_STAYS:
        cost[C_VEC_ADD if is_pv else C_VEC_MAX] += heads * m * (k if is_pv else n)
        if is_pv:  # P is in the array already
            operand_reads, a_bytes = operand_reads - heads * m * k * ceil_div(n, p[P_COLS]) * element, 0
    path_bytes = _traffic(cost, a_bytes, out, is_pv, variant, path, p)
    cycles = max(array, ceil_div(cost[C_L1_READ] + cost[C_L1_WRITE], p[P_MAC_PORT]))
    if path != 0:
        cycles = max(cycles, ceil_div(path_bytes, p[P_PATH_BYTES]))
    cost[C_CYCLES] = p[P_ISSUE] + cycles
    leaves = variant & (V_LAST | V_SPILLED | V_TO_VEC) if is_pv else variant & V_STAYS == 0
    cost[C_L0_READ] = operand_reads + out * acc * (int(accumulates) + (1 if leaves else 0))
    refilled = out * acc if accumulates and variant & V_SPILLED else 0
    cost[C_L0_WRITE] = a_bytes + b_bytes + out * acc + refilled
    cost[C_MACS] = heads * m * k * n


@leaf
def _traffic(cost: IntArray, a_bytes: int, out: int, is_pv: bool, variant: int, path: int, p: IntArray) -> int:
    """Charge what a product moves of A, C, P and O (`out` elements), beside B; return the bytes that cross the path."""
    element, acc = p[P_ELEMENT], p[P_ACC_ELEMENT]
    path_bytes = 0
    if not is_pv:
        cost[C_L1_READ] += a_bytes
        path_bytes = 0 if variant & V_STAYS else out * element
        _charge_path(cost, path, path_bytes, False)
        return int(path_bytes)
    if variant & V_STAYS == 0:
        path_bytes = a_bytes
        _charge_path(cost, path, a_bytes, True)
    if variant & V_TO_VEC:
        path_bytes += out * acc
        _charge_path(cost, path, out * acc, False)
    elif variant & V_SPILLED:
        cost[C_L1_READ] += 0 if variant & V_FIRST else out * acc
        cost[C_L1_WRITE] += out * (element if variant & V_LAST else acc)
    elif variant & V_LAST:
        cost[C_L1_WRITE] += out * element
    return int(path_bytes)


@leaf
def cost_of_exp(cost: IntArray, m: int, n: int, packs: IntArray, p: IntArray) -> None:
    """Fill `cost` for exp of a tile of `m x n` scores a head in the MAC array's own positions (FuseMax).

    One step subtracts the row's maximum, `mac.exp_steps` multiply-adds evaluate the polynomial; accumulators are read
    and written once. The wavefront crosses the array once an instruction (`pipelined`) or once a fold (`systolic`).
    """
    folds, heads = 0, 0
    for part in range(3):
        count, stacked = _stacks(packs, part, p)
        folds += count * ceil_div(m * stacked, p[P_ROWS]) * ceil_div(n, p[P_COLS])
        heads += count * stacked
    elements = heads * m * n
    cost[C_CYCLES] = p[P_ISSUE] + folds * (1 + p[P_EXP_STEPS] + _skew(2, p)) + _skew(1, p)
    cost[C_MACS] = elements * p[P_EXP_STEPS]
    cost[C_VEC_ADD] = elements
    cost[C_L0_READ] = cost[C_L0_WRITE] = elements * p[P_ACC_ELEMENT]


@leaf
def cost_of_softmax(
    cost: IntArray, rows: int, columns: int, index: int, passes: IntArray, path: int, path_out: int, p: IntArray
) -> None:
    """Fill `cost`, int64[COST_FIELDS], for softmax pass `index` over `rows x columns` scores.

    C comes over `path`, P leaves over `path_out`.

    Cycles: `vec_cycles`, and `ceil(rows / lanes)` times the lane-cycles of what is done once a row, but never fewer
    than the bytes read and written over the VEC port's bandwidth. Passes that read C, and the last one, which writes P,
    do so over the MAC-VEC path. Row maxima, sums and corrections stay beside the lanes and are not metered.
    """
    row = passes[index]
    elements = 0 if row[S_ROWS_ONLY] else rows * columns
    size = elements * p[P_ELEMENT]
    crosses_in = row[S_READS_C] > 0
    crosses_out = row[S_WRITES] > 0
    for later in range(index + 1, passes.shape[0]):
        crosses_out = crosses_out and passes[later, S_WRITES] == 0
    _charge_path(cost, path if crosses_in else 0, size, True)
    if row[S_WRITES]:
        _charge_path(cost, path_out if crosses_out else 0, size, False)
    cycles = vec_cycles(elements, p[P_LANES], row[S_LANE_CYCLES], row[S_REDUCTIONS], p[P_REDUCE])
    cycles += ceil_div(rows, p[P_LANES]) * row[S_ROW_CYCLES]
    crossing = size * (int(crosses_in) + int(crosses_out and path_out != 0))
    _limit_vec(cost, cycles, crossing, path, p)
    for op in range(5):
        cost[C_VEC_MAX + op] = elements * row[S_OPS + op] + rows * row[S_ROW_OPS + op]


@leaf
def _limit_vec(cost: IntArray, cycles: int, crossing_bytes: int, path: int, p: IntArray) -> None:
    """Set the cycles of vector work: never fewer than its bytes over the VEC port, nor those over the path."""
    cycles = max(cycles, ceil_div(cost[C_L1_READ] + cost[C_L1_WRITE], p[P_VEC_PORT]))
    if path != 0 and crossing_bytes > 0:
        cycles = max(cycles, ceil_div(crossing_bytes, p[P_PATH_BYTES]))
    cost[C_CYCLES] = p[P_ISSUE] + cycles


@leaf
def cost_of_mask(cost: IntArray, elements: int, with_max: bool, path: int, p: IntArray) -> None:
    """Fill `cost` for masking a tile of scores: each is read and written over the MAC-VEC path, one select an element.

    `with_max`: the tile's row maxima are taken again, since the MAC array took them before the mask.
    """
    size = elements * p[P_ELEMENT]
    _charge_path(cost, path, size, True)
    _charge_path(cost, path, size, False)
    lane_cycles = p[P_LC_MASK] + (p[P_LC_MAX] if with_max else 0)
    cycles = vec_cycles(elements, p[P_LANES], lane_cycles, 1 if with_max else 0, p[P_REDUCE])
    _limit_vec(cost, cycles, 2 * size, path, p)
    cost[C_VEC_ADD] = elements
    cost[C_VEC_MAX] = elements if with_max else 0


@leaf
def cost_of_rescale(cost: IntArray, elements: int, p: IntArray) -> None:
    """Fill `cost` for `O *= correction`, elements of accumulators in L1.

    One multiplication an element: FlashAttention-2 (Dao 2023, arXiv 2307.08691), algorithm 1.
    """
    cost[C_L1_READ] = cost[C_L1_WRITE] = elements * p[P_ACC_ELEMENT]
    _limit_vec(cost, vec_cycles(elements, p[P_LANES], p[P_LC_MUL], 0, 0), 0, 0, p)
    cost[C_VEC_MUL] = elements


@leaf
def cost_of_add(cost: IntArray, elements: int, path: int, p: IntArray) -> None:
    """Fill `cost` for `O += partial O`: accumulators in L1, partial sums of the MAC array over the MAC-VEC path.

    One addition an element: the cascade of FuseMax (Nayak et al., MICRO 2024, arXiv 2406.10491).
    """
    size = elements * p[P_ACC_ELEMENT]
    cost[C_L1_READ] = cost[C_L1_WRITE] = size
    _charge_path(cost, path, size, True)
    _limit_vec(cost, vec_cycles(elements, p[P_LANES], p[P_LC_ADD], 0, 0), size, path, p)
    cost[C_VEC_ADD] = elements


@leaf
def cost_of_normalize(cost: IntArray, rows: int, columns: int, p: IntArray) -> None:
    """Fill `cost` for `O / row sum`: accumulators in L1 become elements; by divisions, or one reciprocal a row.

    Deferred to the end of a row block: FlashAttention-2 (Dao 2023), algorithm 1; FuseMax (MICRO 2024).
    """
    elements = rows * columns
    cost[C_L1_READ], cost[C_L1_WRITE] = elements * p[P_ACC_ELEMENT], elements * p[P_ELEMENT]
    if p[P_RECIPROCAL]:
        cycles = ceil_div(rows, p[P_LANES]) * p[P_LC_DIV] + ceil_div(elements, p[P_LANES]) * p[P_LC_MUL]
        cost[C_VEC_DIV], cost[C_VEC_MUL] = rows, elements
    else:
        cycles = ceil_div(elements, p[P_LANES]) * p[P_LC_DIV]
        cost[C_VEC_DIV] = elements
    _limit_vec(cost, cycles, 0, 0, p)
