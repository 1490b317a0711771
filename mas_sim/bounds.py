"""Lower bounds: what no schedule can beat, in closed form.

`bounds` is the roofline of a workload on an arch, whatever the tiling: it is printed beside every result. (`_work`
has what one tiling must do; search prunes with that.) No simulation may ever be below it; tests hold that for
random inputs. `closed_form_dram_bytes` is what the README's table of dataflows says of DRAM, in full.
"""

import itertools
import math
from dataclasses import asdict, dataclass

import numpy as np

from mas_sim.arch import Arch
from mas_sim.costs import (
    S_LANE_CYCLES,
    S_READS_C,
    S_ROWS_ONLY,
    S_WRITES,
    STATIONARIES,
    TIMINGS,
    mac_array_cycles,
)
from mas_sim.dataflows import get_dataflow
from mas_sim.errors import TilingError
from mas_sim.schedule import IntArray
from mas_sim.tiling import Tiling
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
        for `layer_wise` the scores and probabilities written and read, for `soft_pipe` the probabilities.
    lower_cycles
        The greatest of the three; for dataflows that run MAC and VEC in turn also their sum, and for `soft_pipe` that
        of VEC and the second product.
    limited_by
        Which of them that is: `mac`, `vec`, `dram`, `mac+vec` or `vec+pv`.
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

ONLINE_DATAFLOWS = ("flash", "fusemax")
"""Dataflows that never have a whole row of scores in L1."""


def bounds(arch: Arch, workload: Workload, dataflow: str) -> Bounds:
    """Return the lower bounds of a dataflow on a workload.

    Notes
    -----
    MAC: the array cycles of the two untiled products of each K/V head, the rows of its query heads stacked (cutting a
    product never shortens it, and a pipelined array fills at least once), and the operands' bytes over the MAC port.
    VEC: per softmax pass, elements times lane-cycles over lanes, and its bytes over the VEC port. Under a mask, the
    multiply-adds and elements that it keeps. DRAM: see `least_dram_bytes`. The two ports are only charged for bytes
    that pass L1, which C and P do not on another MAC-VEC path.
    """
    heads = workload.batch * workload.kv_heads
    scores, out = _least_mac_cycles(arch, workload, dataflow)
    vec = _least_vec_cycles(arch, workload, dataflow)
    dram_bytes = least_dram_bytes(arch, workload, dataflow)
    parts = {
        "mac": -(-(scores + out) * heads // arch.cores),
        "vec": -(-vec // arch.cores),
        "dram": math.ceil((dram_bytes - path_bytes(arch, workload, dataflow)) / arch.dram_bytes_per_cycle),
    }
    if dataflow in SERIAL_DATAFLOWS:
        parts["mac+vec"] = -(-((scores + out) * heads + vec) // arch.cores)
    if dataflow == "soft_pipe":
        parts["vec+pv"] = -(-(out * heads + vec) // arch.cores)
    limited_by = max(parts, key=lambda name: parts[name])
    return Bounds(parts["mac"], parts["vec"], parts["dram"], dram_bytes, parts[limited_by], limited_by)


def _on_l1(arch: Arch, dataflow: str) -> bool:
    """Whether C and P pass L1 between MAC and VEC, at any rate."""
    keeps = dataflow == "fusemax" and arch.mac.exp_steps is not None
    return dataflow == "layer_wise" or (arch.mac_vec_path.kind == "l1" and not keeps)


def _least_mac_cycles(arch: Arch, workload: Workload, dataflow: str) -> tuple[int, int]:
    """MAC cycles of C and of O for one K/V head, at least; its query heads' rows are stacked."""
    mac, size = arch.mac, workload.bytes_per_element
    share, kv_heads = workload.heads // workload.kv_heads, workload.batch * workload.kv_heads
    rows, n_kv, e, f = share * workload.n_q, workload.n_kv, workload.head_dim_qk, workload.head_dim_v
    kept = workload.kept_scores // kv_heads
    crossing = kept if _on_l1(arch, dataflow) else 0
    keys = n_kv if workload.mask == "none" else 0
    port_bytes = ((rows * e + e * keys + crossing) * size, (crossing + keys * f + rows * f) * size)
    peak = mac.rows * mac.cols * mac.depth
    array = (kept * e // peak, kept * f // peak)
    if workload.mask == "none":
        timing, stationary = TIMINGS.index(mac.timing), STATIONARIES.index(mac.stationary)
        if timing == 1:
            timing = 0  # one instruction may cover many heads, so filling once per head is not a bound
        array = (
            mac_array_cycles(rows, e, n_kv, 1, mac.rows, mac.cols, mac.depth, timing, stationary),
            mac_array_cycles(rows, n_kv, f, 1, mac.rows, mac.cols, mac.depth, timing, stationary),
        )
        if dataflow == "fusemax" and mac.exp_steps is not None:
            # Where scores stay in the array, it does both products another way.
            folds = -(-rows // mac.rows) * -(-n_kv // mac.cols)
            array = (min(array[0], folds * -(-e // mac.depth)), min(array[1], folds * f))
    scores, out = (max(a, b // mac.l1_port_bytes_per_cycle) for a, b in zip(array, port_bytes, strict=True))
    return scores, out


def _least_vec_cycles(arch: Arch, workload: Workload, dataflow: str) -> int:
    """Vector cycles of all heads, at least."""
    flow, vec = get_dataflow(dataflow), arch.vec
    scores, on_l1 = workload.kept_scores, _on_l1(arch, dataflow)
    total = 0
    if dataflow in ONLINE_DATAFLOWS:
        elements = workload.batch * workload.heads * workload.n_q * workload.head_dim_v
        costs = vec.op_lane_cycles
        total = elements * (costs.divide if vec.normalize == "divide" else costs.multiply) // vec.lanes
    if "mac" in flow.exp_on and arch.mac.exp_steps is not None:
        return total
    passes = [row for row in flow.softmax(arch).tolist() if not row[S_ROWS_ONLY]]
    for index, row in enumerate(passes):
        is_last = not any(later[S_WRITES] for later in passes[index + 1 :])
        out_on_l1 = on_l1 or dataflow == "soft_pipe"
        crossings = int(on_l1 or not row[S_READS_C]) + int(row[S_WRITES] > 0 and (not is_last or out_on_l1))
        port = scores * workload.bytes_per_element * crossings // vec.l1_port_bytes_per_cycle
        total += max(scores * row[S_LANE_CYCLES] // vec.lanes, port)
    return total


def path_bytes(arch: Arch, workload: Workload, dataflow: str) -> int:
    """DRAM bytes of C and P where the MAC-VEC path leads through DRAM, at least; they do not use the shared channel."""
    keeps = dataflow == "fusemax" and arch.mac.exp_steps is not None
    if arch.mac_vec_path.kind != "dram" or dataflow == "layer_wise" or keeps:
        return 0
    return (2 if dataflow == "soft_pipe" else 4) * workload.kept_scores * workload.bytes_per_element


def least_dram_bytes(arch: Arch, workload: Workload, dataflow: str) -> int:
    """DRAM bytes that a dataflow must move, at least.

    Compulsory: Q, the keys and values that any row keeps once each, O once. `layer_wise` writes and reads C and P, four
    times the scores; `soft_pipe` P alone. Capacity, without a mask: a fused pass over K and V of q rows (of all the
    heads that share them) holds a row block of scores in L1, `q N_kv` elements, or, online, Q and O, `q (E + F)`. So at
    most the rest of L1 keeps K and V over the `ceil(rows / q)` passes, and what it cannot keep is read again for each
    but the first: the least over q counts. (One K/V head at a time, the whole L1: the kindest case.)
    """
    base = workload.compulsory_bytes
    size = workload.bytes_per_element
    if dataflow == "layer_wise":
        return base + 4 * workload.kept_scores * size
    base += path_bytes(arch, workload, dataflow)
    if dataflow == "soft_pipe":
        return base + 2 * workload.kept_scores * size
    if workload.mask != "none":
        return base
    total = workload.n_q * workload.heads // workload.kv_heads
    passes = np.unique(-(-total // np.unique(_divisor_like(total))))
    rows = -(-total // passes)
    head_dims = workload.head_dim_qk + workload.head_dim_v
    kv_bytes = workload.n_kv * head_dims * size
    kept = arch.l1.capacity_bytes - rows * (head_dims if dataflow in ONLINE_DATAFLOWS else workload.n_kv) * size
    again = (passes - 1) * np.maximum(0, kv_bytes - np.maximum(0, kept))
    feasible = kept >= 0
    least = int(again[feasible].min()) if feasible.any() else 0
    return base + workload.batch * workload.kv_heads * least


def _divisor_like(n: int) -> IntArray:
    """Values q that reach every `ceil(n / q)`: all up to sqrt(n), and `ceil(n / k)` for those k."""
    small = np.arange(1, math.isqrt(n) + 2, dtype=np.int64)
    return np.concatenate([small, -(-n // small)])


def closed_form_dram_bytes(dataflow: str, workload: Workload, tiling: Tiling) -> int:
    """Return the DRAM bytes of a schedule on one core without overwrite, as one writes them down on paper.

    Notes
    -----
    With `S` the bytes of the scores in the kv tiles that each row block visits, and `X'` what is loaded of K (V):

    - `layer_wise`: `Q + K' + V' + O + 4 S`; `soft_pipe`: `Q + K' + V' + O + 2 S`; all others: `Q + K' + V' + O`.
    - Without a mask and with a K/V head for each head, `X' = X (rho + n (1 - rho))` for a share `rho` of resident tiles
      and `n = ceil(N_q / q_tile)` row blocks; `n = ceil(N_q / q_tile / 2)` for `flash` with `ping_pong`, in which two
      row blocks of a group share each streamed tile.

    In general, each group of heads loads its resident tiles once, unless the group before has the same K/V heads (GQA);
    and every row block (every two) loads the streamed tiles from the first to the last that it (either) visits. It is
    the schedule's own count, checked by tests, for a MAC-VEC path that does not lead through DRAM.

    Raises
    ------
    ScheduleError
        If there is no such dataflow.
    TilingError
        If a field of the tiling is out of its range, or it overwrites or overlaps as this form does not cover.
    """
    flow = get_dataflow(dataflow)
    tiling.check()
    if tiling.overwrite != "none" or tiling.overlap not in ("auto", *flow.overlaps):
        overlaps = " or ".join(flow.overlaps)
        ways = f"overwrite must be none (got {tiling.overwrite}), overlap {overlaps} (got {tiling.overlap})"
        raise TilingError(f"DRAM bytes of {dataflow} in closed form: {ways}")
    tiling, size = tiling.clipped(workload), workload.bytes_per_element
    heads, step = workload.batch * workload.heads, 2 if tiling.overlap == "ping_pong" else 1
    edges = [*range(0, workload.n_q, tiling.q_tile), workload.n_q]
    rows = list(itertools.pairwise(edges))
    spans = [
        (workload.key_range(first)[0] // tiling.kv_tile, -(-workload.key_range(last - 1)[1] // tiling.kv_tile))
        for first, last in rows
    ]

    def keys(first_tile: int, last_tile: int) -> int:
        """Keys in tiles `[first_tile, last_tile)`."""
        first, last = (min(tile * tiling.kv_tile, workload.n_kv) for tile in (first_tile, last_tile))
        return max(0, last - first)

    scores = heads * sum((last - first) * keys(*span) for (first, last), span in zip(rows, spans, strict=True))
    total: int = (
        workload.q_bytes + workload.o_bytes + {"layer_wise": 4, "soft_pipe": 2}.get(dataflow, 0) * scores * size
    )
    streaming_heads, keeping_heads = _kv_heads_of_groups(workload, tiling, len(rows) if _pairs_across(tiling) else 0)
    for resident, head_dim in (
        (tiling.k_resident_tiles, workload.head_dim_qk),
        (tiling.v_resident_tiles, workload.head_dim_v),
    ):
        for lead, kv_heads in enumerate(streaming_heads):
            streamed = sum(keys(max(resident, first), last) for first, last in _visits(spans, step, lead))
            total += kv_heads * streamed * head_dim * size
        kept = keys(spans[0][0], min(resident, spans[-1][1]))
        total += keeping_heads * kept * head_dim * size
    return total


def _pairs_across(tiling: Tiling) -> bool:
    """Whether `ping_pong` also pairs row blocks of two groups: L1 holds what is resident of both groups' K and V."""
    keeps_k = tiling.k_resident_tiles == 0 or tiling.k_buffers > 1
    keeps_v = tiling.v_resident_tiles == 0 or tiling.v_buffers > 1
    return tiling.overlap == "ping_pong" and keeps_k and keeps_v


def _visits(spans: list[tuple[int, int]], step: int, lead: int) -> list[tuple[int, int]]:
    """Return the kv tiles that row blocks load together, `step` at a time.

    The first `lead` of a group by itself: it ends a pair with the last one of the group before.
    """
    starts = [*range(lead), *range(lead, len(spans), step)]
    return [(spans[i][0], spans[j - 1][1]) for i, j in itertools.pairwise([*starts, len(spans)])]


def _kv_heads_of_groups(workload: Workload, tiling: Tiling, rows: int) -> tuple[list[int], int]:
    """K/V heads of groups added up; and without those groups whose K/V heads the group before them has too.

    The former apart for groups whose first row block, of `rows` in each, has an even number in all and an odd one.
    """
    share, every, new, groups = workload.heads // workload.kv_heads, [0, 0], 0, 0
    before = (-1, -1, -1)
    for batch in range(0, workload.batch, tiling.batch_tile):
        for head in range(0, workload.heads, tiling.head_tile):
            last_head = min(head + tiling.head_tile, workload.heads) - 1
            group = (batch, head // share, last_head // share + 1)
            kv_heads = min(tiling.batch_tile, workload.batch - batch) * (group[2] - group[1])
            every[groups * rows % 2] += kv_heads
            groups += 1
            new += 0 if group == before else kv_heads
            before = group
    return every, new
