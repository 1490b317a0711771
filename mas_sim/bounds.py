"""Lower bounds: what no schedule can beat, in closed form.

`bounds` is the roofline of a workload on an arch, whatever the tiling: it is printed beside every result. (`_work`
has what one tiling must do; search prunes with that.) No simulation may ever be below it; tests hold that for
random inputs.
"""

import math
from dataclasses import asdict, dataclass

import numpy as np

from mas_sim.arch import Arch
from mas_sim.costs import (
    S_LANE_CYCLES,
    S_READS_C,
    S_WRITES,
    STATIONARIES,
    TIMINGS,
    mac_array_cycles,
    pack_softmax,
)
from mas_sim.schedule import IntArray
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
