"""Lower bounds: what no schedule can beat, in closed form.

Two kinds. `bounds` is the roofline of a workload on an arch, whatever the tiling: it is printed beside every result.
`tiling_work` is what one tiling must do under one dataflow: its exact actions and DRAM bytes, and a lower bound of its
cycles; exhaustive search prunes with it. No simulation may ever be below either; tests hold that for random inputs.
"""

import math
from dataclasses import asdict, dataclass

import numpy as np

from mas_sim._jit import leaf
from mas_sim.arch import Arch
from mas_sim.costs import (
    P_CORES,
    P_ISSUE,
    P_LATENCY,
    P_NKV,
    P_NQ,
    P_SYNC,
    S_LANE_CYCLES,
    S_READS_C,
    S_WRITES,
    STATIONARIES,
    TIMINGS,
    mac_array_cycles,
    pack_softmax,
)
from mas_sim.dataflows._dispatch import FLAT, LAYER_WISE
from mas_sim.dataflows._plan import (
    KB_LOAD_C,
    KB_LOAD_K,
    KB_LOAD_P,
    KB_LOAD_Q,
    KB_LOAD_V,
    KB_PASSES,
    KB_PV,
    KB_QK,
    KB_ROW_CLASSES,
    KB_SOFTMAX,
    KB_STORE_C,
    KB_STORE_O,
    KB_STORE_P,
    PV_VARIANTS,
    core_items,
)
from mas_sim.schedule import C_CYCLES, COST_FIELDS, Grid, IntArray
from mas_sim.tiling import TL_K_RESIDENT, TL_KV, TL_Q, TL_SCORE_BUFFERS, TL_V_RESIDENT
from mas_sim.workload import Workload


@dataclass(frozen=True)
class Bounds:
    """Cycles below which no schedule of a dataflow can be, whatever its tiling.

    Attributes
    ----------
    mac_cycles, vec_cycles
        The MAC (VEC) work, spread evenly over the cores.
    dram_cycles
        The least bytes that use the DRAM channel, over its bandwidth.
    dram_bytes
        Those bytes: every input read once, the output written once, whatever capacity forces to be read again, and
        for `layer_wise` the scores and probabilities written and read.
    lower_cycles
        The greatest of the three; for dataflows that run MAC and VEC in turn also their sum.
    limited_by
        Which of them that is: `mac`, `vec`, `dram` or `mac+vec`.
    """

    mac_cycles: int
    vec_cycles: int
    dram_cycles: int
    dram_bytes: int
    lower_cycles: int
    limited_by: str

    def as_dict(self) -> dict[str, int | str]:
        """Return the fields by name, for results."""
        return asdict(self)


SERIAL_DATAFLOWS = ("layer_wise", "flat")
"""Dataflows in which a core's MAC and vector unit never work at the same time."""


def bounds(arch: Arch, workload: Workload, dataflow: str) -> Bounds:
    """Return the lower bounds of a dataflow on a workload.

    Notes
    -----
    MAC: the array cycles of the two untiled products of each head (cutting a product never shortens it, and a
    pipelined array fills at least once), and the operands' bytes over the MAC port. VEC: per softmax pass,
    elements times lane-cycles over lanes, and its bytes over the VEC port. DRAM: see `least_dram_bytes`. The two
    ports are only charged for bytes that pass L1, which C and P do not on another MAC-VEC path.
    """
    heads = workload.batch * workload.heads
    mac = _least_mac_cycles(arch, workload, dataflow)
    vec = _least_vec_cycles(arch, workload, dataflow)
    dram_bytes = least_dram_bytes(arch, workload, dataflow)
    parts = {
        "mac": -(-mac * heads // arch.cores),
        "vec": -(-vec * heads // arch.cores),
        "dram": math.ceil((dram_bytes - path_bytes(arch, workload, dataflow)) / arch.dram_bytes_per_cycle),
    }
    if dataflow in SERIAL_DATAFLOWS:
        parts["mac+vec"] = -(-(mac + vec) * heads // arch.cores)
    limited_by = max(parts, key=lambda name: parts[name])
    return Bounds(parts["mac"], parts["vec"], parts["dram"], dram_bytes, parts[limited_by], limited_by)


def _least_mac_cycles(arch: Arch, workload: Workload, dataflow: str) -> int:
    """MAC cycles of one head, at least."""
    mac = arch.mac
    timing, stationary = TIMINGS.index(mac.timing), STATIONARIES.index(mac.stationary)
    if timing == 1:
        timing = 0  # one instruction may cover many heads, so filling once per head is not a bound
    n_q, n_kv, e, f = workload.n_q, workload.n_kv, workload.head_dim_qk, workload.head_dim_v
    array = (
        mac_array_cycles(n_q, e, n_kv, 1, mac.rows, mac.cols, mac.depth, timing, stationary),
        mac_array_cycles(n_q, n_kv, f, 1, mac.rows, mac.cols, mac.depth, timing, stationary),
    )
    scores = n_q * n_kv if dataflow == "layer_wise" or arch.mac_vec_path.kind == "l1" else 0
    port_bytes = (
        (n_q * e + e * n_kv + scores) * workload.bytes_per_element,
        (scores + n_kv * f + n_q * f) * workload.bytes_per_element,
    )
    return sum(max(a, b // mac.l1_port_bytes_per_cycle) for a, b in zip(array, port_bytes, strict=True))


def _least_vec_cycles(arch: Arch, workload: Workload, dataflow: str) -> int:
    """Vector cycles of one head, at least."""
    passes = pack_softmax(arch)
    scores = workload.n_q * workload.n_kv
    on_l1 = dataflow == "layer_wise" or arch.mac_vec_path.kind == "l1"
    total = 0
    for index, row in enumerate(passes.tolist()):
        crossings = int(on_l1 or not row[S_READS_C]) + int(row[S_WRITES] > 0 and (index < len(passes) - 1 or on_l1))
        port = scores * workload.bytes_per_element * crossings // arch.vec.l1_port_bytes_per_cycle
        total += max(scores * row[S_LANE_CYCLES] // arch.vec.lanes, port)
    return total


def path_bytes(arch: Arch, workload: Workload, dataflow: str) -> int:
    """DRAM bytes of C and P where the MAC-VEC path leads through DRAM, at least; they do not use the shared channel."""
    if arch.mac_vec_path.kind != "dram" or dataflow == "layer_wise":
        return 0
    return 4 * workload.scores * workload.bytes_per_element


def least_dram_bytes(arch: Arch, workload: Workload, dataflow: str) -> int:
    """DRAM bytes that a dataflow must move, at least.

    Compulsory: Q, K, V once each, O once. Capacity: a fused row block of q rows holds at least one row block of
    scores in L1, `q N_kv` elements, so at most the rest of L1 keeps K and V over the `ceil(N_q / q)` row blocks of
    a head, and what it cannot keep is read again for each but the first: the least over q counts. (One head at a
    time, the whole L1: the kindest case.) `layer_wise` writes and reads C and P, four times the scores.
    """
    base = workload.compulsory_bytes
    size = workload.bytes_per_element
    if dataflow == "layer_wise":
        return base + 4 * workload.scores * size
    base += path_bytes(arch, workload, dataflow)
    row_blocks = np.unique(-(-workload.n_q // np.unique(_divisor_like(workload.n_q))))
    rows = -(-workload.n_q // row_blocks)
    kv_bytes = workload.n_kv * (workload.head_dim_qk + workload.head_dim_v) * size
    kept = arch.l1.capacity_bytes - rows * workload.n_kv * size
    again = (row_blocks - 1) * np.maximum(0, kv_bytes - np.maximum(0, kept))
    feasible = kept >= 0
    least = int(again[feasible].min()) if feasible.any() else 0
    return base + workload.batch * workload.kv_heads * least


def _divisor_like(n: int) -> IntArray:
    """Values q that reach every `ceil(n / q)`: all up to sqrt(n), and `ceil(n / k)` for those k."""
    small = np.arange(1, math.isqrt(n) + 2, dtype=np.int64)
    return np.concatenate([small, -(-n // small)])


# --- one tiling ---------------------------------------------------------------------------------------------------
# Columns of the work vector: the meter (METER_FIELDS columns), then these.
W_CYCLES = 12
W_DMA_CYCLES = 13
W_MIN_SCORES, W_MIN_SOFTMAX, W_MIN_OUT, W_MAX_OUT = 14, 15, 16, 17  # scratch, of the row blocks of one core
WORK_FIELDS = 18


@leaf
def _add(work: IntArray, costs: IntArray, kind: int, count: int) -> int:
    """Add the metered actions of `count` instructions of a kind to `work`; return their cycles."""
    for column in range(1, COST_FIELDS):
        work[column - 1] += count * costs[kind, column]
    return int(count * costs[kind, C_CYCLES])


@leaf
def _kv_tile_cycles(
    work: IntArray, costs: IntArray, kinds: IntArray, row: int, full: int, ragged: int, count: int
) -> tuple[int, int]:
    """Add the products of `count` row blocks of kind `row`, `full + ragged` kv tiles each; return one's cycles."""
    qk, pv = kinds[KB_QK] + row * 2, kinds[KB_PV] + row * 2 * PV_VARIANTS
    scores = _add(work, costs, qk, count * full) + _add(work, costs, qk + 1, count * ragged)
    tiles = full + ragged
    out = 0
    for place in range(min(tiles, 3)):
        # place 0: the first tile, 1: the last one, 2: all between
        is_last = place == 1 or tiles == 1
        flags = (1 if place == 0 else 0) + (2 if is_last else 0)
        is_ragged = 1 if is_last and ragged else 0
        times = tiles - 2 if place == 2 else 1
        out += _add(work, costs, pv + is_ragged * PV_VARIANTS + flags, count * times)
    return scores // max(1, count), out // max(1, count)


@leaf
def _kv_loads(
    work: IntArray, costs: IntArray, kinds: IntArray, base: int, cls: int, full: int, ragged: int, resident: int,
    sets: int, blocks: int,
) -> int:  # fmt: skip
    """Add the loads of K (or V): the resident tiles `sets` times, the others once a row block; return the cycles."""
    tiles = full + ragged
    stays = min(resident, full)
    kind = kinds[base] + cls * 2
    cycles = _add(work, costs, kind, stays * sets + (full - stays) * blocks)
    if ragged:
        cycles += _add(work, costs, kind + 1, sets if resident == tiles else blocks)
    return cycles


@leaf
def _row_dma_cycles(
    work: IntArray, costs: IntArray, kinds: IntArray, row: int, full: int, ragged: int, count: int
) -> int:
    """Add the transfers of C and P that `layer_wise` makes for `count` row blocks; return channel cycles."""
    lengths = kinds[KB_ROW_CLASSES]
    cycles = _add(work, costs, kinds[KB_LOAD_C] + row * lengths, count)
    cycles += _add(work, costs, kinds[KB_STORE_P] + row * lengths, count)
    for base in (KB_STORE_C, KB_LOAD_P):
        cycles += _add(work, costs, kinds[base] + row * 2, count * full)
        cycles += _add(work, costs, kinds[base] + row * 2 + 1, count * ragged)
    return cycles


@leaf
def _class_work(
    dataflow: int, t: IntArray, costs: IntArray, kinds: IntArray, work: IntArray, cls: int,
    n_full: int, n_ragged: int, full: int, ragged: int, sets: int,
) -> tuple[int, int, int]:  # fmt: skip
    """Add the row blocks of one class of groups on one core to `work`; return its MAC, VEC and channel cycles.

    Keeps in `work` the shortest C, softmax and O of any row block so far, and the longest O.
    """
    mac, vec, dma = 0, 0, 0
    passes = kinds[KB_PASSES]
    for is_ragged in range(2):
        count = n_ragged if is_ragged else n_full
        if count == 0:
            continue
        row = cls * 2 + is_ragged
        dma += _add(work, costs, kinds[KB_LOAD_Q] + row, count) + _add(work, costs, kinds[KB_STORE_O] + row, count)
        scores, out = _kv_tile_cycles(work, costs, kinds, row, full, ragged, count)
        softmax = 0
        for step in range(passes):
            kind = kinds[KB_SOFTMAX] + row * kinds[KB_ROW_CLASSES] * passes + step
            softmax += _add(work, costs, kind, count) // count
        mac += (scores + out) * count
        vec += softmax * count
        if dataflow == LAYER_WISE:
            dma += _row_dma_cycles(work, costs, kinds, row, full, ragged, count)
        work[W_MIN_SCORES] = min(work[W_MIN_SCORES], scores)
        work[W_MIN_SOFTMAX] = min(work[W_MIN_SOFTMAX], softmax)
        work[W_MIN_OUT], work[W_MAX_OUT] = min(work[W_MIN_OUT], out), max(work[W_MAX_OUT], out)
    blocks = n_full + n_ragged
    dma += _kv_loads(work, costs, kinds, KB_LOAD_K, cls, full, ragged, t[TL_K_RESIDENT], sets, blocks)
    dma += _kv_loads(work, costs, kinds, KB_LOAD_V, cls, full, ragged, t[TL_V_RESIDENT], sets, blocks)
    return mac, vec, dma


@leaf
def _core_cycles(dataflow: int, t: IntArray, items: int, mac: int, vec: int, work: IntArray) -> int:
    """Least cycles of a core between its first loads and its last store.

    In turn: the sum. `mas`: the vector unit cannot start before a first C nor the last O before its end; and behind the
    last
    C the MAC unit has only the O of one or two row blocks (ring of two or three) to hide the last softmax behind.
    """
    if dataflow in (FLAT, LAYER_WISE):
        return mac + vec
    softmax = work[W_MIN_SOFTMAX]
    hidden = 0
    if items > 1:
        hidden = work[W_MAX_OUT] * (2 if t[TL_SCORE_BUFFERS] > 2 and items > 2 else 1)
    return int(max(mac + max(0, softmax - hidden), vec + work[W_MIN_SCORES] + work[W_MIN_OUT]))


@leaf
def _edge_cycles(p: IntArray, costs: IntArray, kinds: IntArray, cls: int, last_row: int) -> int:
    """Cycles before a core's first product (its Q and first K tile arrive) and behind its last one (its O leaves).

    `cls` is the class of its first group; `last_row` the kind of its last row block. A first row block or K tile
    that is
    itself the ragged one counts nothing.
    """
    q, k, o = kinds[KB_LOAD_Q] + cls * 2, kinds[KB_LOAD_K] + cls * 2, kinds[KB_STORE_O] + last_row
    loads = min(costs[q, C_CYCLES], costs[q + 1, C_CYCLES]) if costs[q + 1, C_CYCLES] else costs[q, C_CYCLES]
    loads += min(costs[k, C_CYCLES], costs[k + 1, C_CYCLES])
    return int(loads + costs[o, C_CYCLES] + 2 * p[P_LATENCY] + 2 * p[P_SYNC] + 2 * p[P_ISSUE])


# Columns of the tally: what one core has of each class of groups, and whether its last row block is ragged.
N_FULL, N_RAGGED, N_SETS, TALLY_FIELDS = 0, 1, 2, 3


@leaf
def _tally_core(p: IntArray, t: IntArray, grid: Grid, first: int, last: int, tally: IntArray) -> int:
    """Count a core's row blocks, full and ragged, and sets of K and V, by class of group; return its last row kind."""
    rows = grid.row_ptr.shape[0] - 1
    ragged_row = 1 if p[P_NQ] % t[TL_Q] else 0
    tally[: grid.class_heads.shape[0]] = 0
    key, end, g = -1, 0, 0
    for g in range(first // rows, (last - 1) // rows + 1):
        begin, end = max(first, g * rows) - g * rows, min(last, (g + 1) * rows) - g * rows
        n_ragged = 1 if ragged_row and end == rows else 0
        cls = grid.group_class[g]
        tally[cls, N_FULL] += end - begin - n_ragged
        tally[cls, N_RAGGED] += n_ragged
        if grid.group_key[g] != key:
            key = grid.group_key[g]
            tally[cls, N_SETS] += 1
    return int(grid.group_class[g] * 2 + (1 if ragged_row and end == rows else 0))


@leaf
def tiling_work(
    dataflow: int,
    p: IntArray,
    t: IntArray,
    grid: Grid,
    kinds: IntArray,
    costs: IntArray,
    tally: IntArray,
    work: IntArray,
) -> None:
    """Fill `work`, int64[WORK_FIELDS]: what one tiling does, and the least cycles it can take.

    Columns 0..11 are the exact metered actions (DRAM bytes among them): the closed forms that `Schedule.meter_counts`
    equals. `W_CYCLES` is a lower bound of the cycles: the busiest core's, from its first loads to its last store, or
    the
    whole channel time, `W_DMA_CYCLES`. `tally`, int64[>= classes, TALLY_FIELDS], is scratch.
    """
    work[:] = 0
    rows = grid.row_ptr.shape[0] - 1
    tiles = grid.row_tiles.shape[0] // rows
    ragged = 1 if p[P_NKV] % t[TL_KV] else 0
    longest, dma_total = 0, 0
    for core in range(p[P_CORES]):
        first, last = core_items(p, t, core)
        if first == last:
            continue
        last_row = _tally_core(p, t, grid, first, last, tally)
        mac_total, vec_total = 0, 0
        work[W_MIN_SCORES], work[W_MIN_SOFTMAX], work[W_MIN_OUT], work[W_MAX_OUT] = 1 << 62, 1 << 62, 1 << 62, 0
        for cls in range(grid.class_heads.shape[0]):
            n_full, n_ragged, sets = tally[cls, N_FULL], tally[cls, N_RAGGED], tally[cls, N_SETS]
            if n_full + n_ragged > 0:
                mac, vec, dma = _class_work(
                    dataflow, t, costs, kinds, work, cls, n_full, n_ragged, tiles - ragged, ragged, sets
                )
                mac_total, vec_total, dma_total = mac_total + mac, vec_total + vec, dma_total + dma
        busy = _core_cycles(dataflow, t, last - first, mac_total, vec_total, work)
        longest = max(longest, busy + _edge_cycles(p, costs, kinds, grid.group_class[first // rows], last_row))
    work[W_CYCLES] = max(longest, dma_total + p[P_ISSUE] + p[P_LATENCY])
    work[W_DMA_CYCLES] = dma_total
