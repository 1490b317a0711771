"""FuseMax's closed forms: what Nayak et al. publish for their four designs, from the parameters of an arch.

Nothing here is simulated. The forms are outside truth for the `fusemax` dataflow: its schedules are compared
with them, and they with the 24 published workloads (`docs/validation.md`).

Source: FuseMax, MICRO 2024, arXiv 2406.10491, and its artifact (FPSG-UIUC/micro24-fusemax-artifact).

Work is counted in blocks of `n` queries by `n` keys, where `n` is the side of the array and the number of
lanes: `U = B H N_q N_kv / n^2` blocks, and `M1 = N_kv / n` of them for each block of queries. `E` and `F` are
the head dimensions of Q, K and of V. An array step does one operation on each score of a block. A lane-cycle
does one operation for each query of a block, so that one for each score takes the lanes `n` cycles.

The forms charge no fill, issue, synchronisation, latency or port time, whatever the arch says of them.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple, get_args

from mas_sim.arch import Arch
from mas_sim.errors import ConfigError, Fault, nearest
from mas_sim.workload import Workload

FuseMaxDesign = Literal["flat", "cascade", "architecture", "binding"]
"""FLAT as FuseMax models it, then FuseMax's own, each with one idea more than the one before."""

FUSEMAX_DESIGNS: tuple[FuseMaxDesign, ...] = get_args(FuseMaxDesign)

LANE_EXP_CYCLES = 1
"""In `flat` and `cascade` the lanes have an exponential unit of their own, pipelined: a result a cycle."""

MAX_STEPS = SUM_STEPS = SUBTRACT_STEPS = 1
"""Array steps of one local maximum, local sum or subtraction."""


class BusyCycles(NamedTuple):
    """Cycles in which each of the two arrays works.

    Attributes
    ----------
    array : float
        Of the MAC array (the paper's 2D array).
    lanes : float
        Of the vector unit (the paper's 1D array).
    """

    array: float
    lanes: float


@dataclass(frozen=True)
class _Phases:
    """What one block takes, by operation, named after the tensors it makes.

    `scores`, `local_max`, `exps`, `local_sum` and `weighted` (the product with V) are array steps. The others
    are lane-cycles: `running_max`, `correction` (exp of the old minus the new maximum), `rescale_sum`,
    `add_sum`, `rescale_out`, `add_out` (of the F accumulators) and `divide_out` (F divisions per query,
    shared by the M1 blocks).
    """

    scores: int
    local_max: int
    exps: int
    local_sum: int
    weighted: int
    running_max: int
    correction: int
    rescale_sum: int
    add_sum: int
    rescale_out: int
    add_out: int
    divide_out: Fraction

    @property
    def array_steps(self) -> int:
        """All steps of the array: `E + F + 9` at the preset's costs."""
        return self.scores + self.local_max + self.exps + self.local_sum + self.weighted

    @property
    def lane_cycles(self) -> Fraction:
        """All lane-cycles of a query: `2F + 10 + F/M1` at the preset's costs."""
        per_sum = self.running_max + self.correction + self.rescale_sum + self.add_sum
        return per_sum + self.rescale_out + self.add_out + self.divide_out


def fusemax_compute_cycles(design: FuseMaxDesign, arch: Arch, workload: Workload) -> float:
    """Return the cycles of a design's computation, DRAM aside.

    Parameters
    ----------
    design : {"flat", "cascade", "architecture", "binding"}
        Which of the published designs.
    arch : Arch
        One core, with an `n x n` array of depth 1 and `n` lanes.
    workload : Workload
        Unmasked, as many K/V heads as heads, both lengths multiples of `n`.

    Returns
    -------
    float
        Cycles; a fraction where the divisions of a query do not fill whole cycles.

    Raises
    ------
    ConfigError
        With every reason why no closed form holds.

    Notes
    -----
    Array steps of a block: QK E, local max 1, subtract and exp 1 + s (`s = mac.exp_steps`, 6), local sum 1,
    SV F. Lane-cycles, priced by `vec.op_lane_cycles`: running max 1, correction 1 + 6, sum rescale 1 and
    add 1, output rescale F and add F, divide F/M1. Cycles of a block:

    - `binding` overlaps two blocks, in phases as long as the slower array: `max(QK + local max, add sum + add
      output + divide) + running max + max(exp + local sum, correction + rescale sum) + max(SV, rescale
      output)`, which is `max(E + 1, 1 + F + F/M1) + 1 + 8 + F`.
    - `architecture` does one block after the other, and stalls `n` cycles while the maxima leave the array:
      `max(QK + local max, add sum + divide) + n + running max + max(exp + local sum, correction + rescale
      sum) + max(SV, rescale output + add output)`, which is `max(E + 1, 1 + F/M1) + n + 1 + 8 + 2F`.
    - `cascade` leaves all but the two products to the lanes, which have an exponential unit
      (`LANE_EXP_CYCLES`): n times max, subtract, exp and sum, then per query as above, the correction now 2:
      `4n + 5 + 2F + F/M1`, or the array's `E + F` if longer.
    - `flat` does max, exp, sum and divide for each score on the lanes, subtraction and exponential pipelined
      into one cycle: `4n`, or the array's `E + F` if longer.
    """
    _refuse(design, arch, workload)
    blocks, n = _blocks(arch, workload), arch.mac.cols
    p = _phases(design, arch, workload)
    if design in ("flat", "cascade"):
        return float(blocks * max(Fraction(p.array_steps), _lane_cycles(design, arch, workload)))
    on_array = Fraction(p.scores + p.local_max)
    middle = p.running_max + max(p.exps + p.local_sum, p.correction + p.rescale_sum)
    if design == "architecture":
        first = max(on_array, p.add_sum + p.divide_out) + p.local_max * n
        return float(blocks * (first + middle + max(p.weighted, p.rescale_out + p.add_out)))
    first = max(on_array, p.add_sum + p.add_out + p.divide_out)
    return float(blocks * (first + middle + max(p.weighted, p.rescale_out)))


def fusemax_busy_cycles(design: FuseMaxDesign, arch: Arch, workload: Workload) -> BusyCycles:
    """Return the cycles in which each array works; over the latency's cycles they are its utilisation.

    Parameters, errors and costs are those of `fusemax_compute_cycles`. At the preset's costs a block takes
    `binding` and `architecture` `E + F + 9` array steps and `2F + 10 + F/M1` lane-cycles; `cascade` and
    `flat` take `E + F` array steps, and all their lane-cycles.
    """
    _refuse(design, arch, workload)
    blocks = _blocks(arch, workload)
    array = blocks * _phases(design, arch, workload).array_steps
    return BusyCycles(float(array), float(blocks * _lane_cycles(design, arch, workload)))


def query_tile(design: FuseMaxDesign, arch: Arch, workload: Workload) -> int:
    """Return the rows of Q that a design holds in L1 while all of K and V pass by: `T = p n`.

    Parameters
    ----------
    design : {"cascade", "architecture", "binding"}
        Which design; FLAT's tile is not given in closed form.
    arch, workload : Arch, Workload
        As in `fusemax_compute_cycles`.

    Returns
    -------
    int
        Query rows.

    Raises
    ------
    ConfigError
        With every reason why no closed form holds, or if L1 cannot hold even `n` rows.

    Notes
    -----
    `p` is the largest divisor of `N_q / n` for which `p n` rows fit beside one tile of K and V:
    `p n (per row) <= L1 - n (E + F)` elements. A row holds its Q and its output, its maximum and its sum,
    `E + F + 2` elements; in `cascade` also its scores and its probabilities of the tile, `2n` more.
    """
    _refuse(design, arch, workload, needs_tile=True)
    return _row_blocks(design, arch, workload) * arch.mac.rows


def fusemax_dram_bytes(design: FuseMaxDesign, arch: Arch, workload: Workload) -> int:
    """Return the bytes that a design moves through DRAM.

    Q is read and O written once, K and V once for each tile of `T` query rows (`query_tile`):
    `B H (N_q (E + F) + ceil(N_q / T) N_kv (E + F))` elements. The parameters and errors are those of
    `query_tile`: no closed form is given for `flat`.
    """
    rows = query_tile(design, arch, workload)
    passes = -(-workload.n_q // rows)
    elements = (workload.n_q + passes * workload.n_kv) * (workload.head_dim_qk + workload.head_dim_v)
    return workload.batch * workload.heads * elements * workload.bytes_per_element


def fusemax_latency_s(
    design: FuseMaxDesign, arch: Arch, workload: Workload, *, dram_bytes: float | None = None
) -> float:
    """Return a design's latency in seconds: the longer of its computation and its DRAM traffic.

    Parameters
    ----------
    design : {"flat", "cascade", "architecture", "binding"}
        Which of the published designs.
    arch, workload : Arch, Workload
        As in `fusemax_compute_cycles`.
    dram_bytes : float, optional
        Bytes through DRAM; required for `flat`, else `fusemax_dram_bytes`.

    Returns
    -------
    float
        `max(compute cycles / clock, bytes / bandwidth)`.

    Raises
    ------
    ConfigError
        With every reason why no closed form holds.
    """
    if dram_bytes is None:
        dram_bytes = fusemax_dram_bytes(design, arch, workload)
    elif not 0 <= dram_bytes < float("inf"):
        fault = Fault.of("<python>", None, "dram_bytes", "must be finite and at least 0", dram_bytes)
        raise ConfigError([fault])
    compute_s = fusemax_compute_cycles(design, arch, workload) / (arch.clock_ghz * 1e9)
    return max(compute_s, dram_bytes / (arch.dram.bandwidth_gb_per_s * 1e9))


def _blocks(arch: Arch, workload: Workload) -> int:
    """`U`: blocks of n queries by n keys."""
    return workload.scores // (arch.mac.rows * arch.mac.cols)


def _phases(design: FuseMaxDesign, arch: Arch, workload: Workload) -> _Phases:
    """What one block takes; the array of `flat` and `cascade` does the two products only."""
    op, f = arch.vec.op_lane_cycles, workload.head_dim_v
    softmax_on_array = design in ("architecture", "binding")
    lane_exp = op.exp if softmax_on_array else LANE_EXP_CYCLES
    return _Phases(
        scores=workload.head_dim_qk,
        local_max=MAX_STEPS * softmax_on_array,
        exps=(SUBTRACT_STEPS + (arch.mac.exp_steps or 0)) * softmax_on_array,
        local_sum=SUM_STEPS * softmax_on_array,
        weighted=f,
        running_max=op.max,
        correction=op.subtract + lane_exp,
        rescale_sum=op.multiply,
        add_sum=op.add,
        rescale_out=op.multiply * f,
        add_out=op.add * f,
        divide_out=Fraction(op.divide * f * arch.mac.cols, workload.n_kv),
    )


def _lane_cycles(design: FuseMaxDesign, arch: Arch, workload: Workload) -> Fraction:
    """Lane-cycles of one block."""
    op, n = arch.vec.op_lane_cycles, arch.mac.cols
    if design == "flat":
        return Fraction(n * (op.max + LANE_EXP_CYCLES + op.add + op.divide))
    per_query = _phases(design, arch, workload).lane_cycles
    if design == "cascade":
        return n * (op.max + op.subtract + LANE_EXP_CYCLES + op.add) + per_query
    return per_query


def _row_blocks(design: str, arch: Arch, workload: Workload) -> int:
    """`p`: blocks of n queries that L1 holds at once, 0 if it cannot hold one."""
    n, dims = arch.mac.cols, workload.head_dim_qk + workload.head_dim_v
    per_row = dims + 2 + (2 * n if design == "cascade" else 0)
    spare_bytes = arch.l1.capacity_bytes - n * dims * workload.bytes_per_element
    most = spare_bytes // (n * per_row * workload.bytes_per_element)
    of = workload.n_q // n
    small = [p for p in range(1, math.isqrt(of) + 1) if of % p == 0]
    return max((p for p in (*small, *(of // p for p in small)) if p <= most), default=0)


def _refuse(design: str, arch: Arch, workload: Workload, *, needs_tile: bool = False) -> None:
    """Raise a `ConfigError` with every reason why no closed form holds."""
    faults = [Fault.of("<python>", None, *fault) for fault in _broken(design, arch, workload)]
    if needs_tile and design == "flat":
        rule = "has no closed form for its query tile and DRAM bytes: they are published as figures only"
        faults.append(Fault.of("<python>", None, "design", rule, design))
    if needs_tile and not faults and not _row_blocks(design, arch, workload):
        rule = f"must hold a tile of K and V and {arch.mac.rows} rows of Q"
        faults.append(Fault.of("<python>", None, "arch.l1.capacity_kib", rule, arch.l1.capacity_kib))
    if faults:
        raise ConfigError(faults)


def _broken(design: str, arch: Arch, workload: Workload) -> Iterator[tuple[str, str, object, str | None]]:
    """Yield field path, rule, value and nearest legal name of all that the closed forms do not cover."""
    n = arch.mac.rows
    if design not in FUSEMAX_DESIGNS:
        likely = nearest(design, FUSEMAX_DESIGNS) if isinstance(design, str) else None
        yield "design", f"must be one of {', '.join(FUSEMAX_DESIGNS)}", design, likely
    equal = (
        ("arch.cores", arch.cores, "1", 1),
        ("arch.mac.cols", arch.mac.cols, f"arch.mac.rows ({n})", n),
        ("arch.mac.depth", arch.mac.depth, "1", 1),
        ("arch.vec.lanes", arch.vec.lanes, f"arch.mac.rows ({n})", n),
        ("workload.kv_heads", workload.kv_heads, f"workload.heads ({workload.heads})", workload.heads),
        ("workload.mask", workload.mask, "none", "none"),
    )
    for path, value, what, legal in equal:
        if value != legal:
            yield path, f"must equal {what}: FuseMax's closed forms hold for nothing else", value, None
    if arch.mac.exp_steps is None and design in ("architecture", "binding"):
        yield "arch.mac.exp_steps", f"is required: {design} computes exponentials on the array", None, None
    for path, value in (("workload.n_q", workload.n_q), ("workload.n_kv", workload.n_kv)):
        if value % n:
            rule = f"must be a multiple of arch.mac.rows ({n}): FuseMax's closed forms count whole tiles"
            yield path, rule, value, None
