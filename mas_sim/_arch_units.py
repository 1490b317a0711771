"""The parts of a machine: what each unit and memory of :class:`mas_sim.arch.Arch` is described by.

Units stand in the names of the fields. ``arch_configs/README.md`` lists every key with its unit, default and
source. Everything public here is imported from :mod:`mas_sim.arch`.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationInfo,
    field_validator,
)

from mas_sim.config import FrozenModel, broken_rule
from mas_sim.errors import nearest

SoftmaxStep = Literal["scale", "max", "subtract", "exp", "sum", "divide", "reciprocal", "multiply"]
"""A step of softmax: over every element of a row block, except ``reciprocal``, which is one value a row."""

Normalize = Literal["divide", "reciprocal"]
"""How a row is divided by its sum: by a division an element, or a reciprocal a row and a multiply an element."""

SoftmaxPasses = tuple[tuple[SoftmaxStep, ...], ...]
"""The steps of softmax, grouped into passes through L1."""

SOFTMAX_STEPS: tuple[SoftmaxStep, ...] = ("scale", "max", "subtract", "exp", "sum", "divide")
"""The order that computes softmax by division; ``scale`` may be left out (folded into Q beforehand)."""

SOFTMAX_SEQUENCES: dict[Normalize, tuple[SoftmaxStep, ...]] = {
    "divide": SOFTMAX_STEPS,
    "reciprocal": (*SOFTMAX_STEPS[:-1], "reciprocal", "multiply"),
}
"""The only orders of steps that compute softmax, by way of normalising; ``scale`` may be left out of each."""

_REWRITES: dict[Normalize, dict[SoftmaxStep, tuple[SoftmaxStep, ...]]] = {
    "divide": {"reciprocal": (), "multiply": ("divide",)},
    "reciprocal": {"divide": ("reciprocal", "multiply")},
}
"""What to write in place of each step, to normalise the other way."""


def renormalized(passes: Sequence[Sequence[SoftmaxStep]], normalize: Normalize) -> SoftmaxPasses:
    """Rewrite softmax passes so that they normalise in a given way; passes that already do stay as they are.

    Parameters
    ----------
    passes : sequence of sequence of str
        Legal passes of softmax.
    normalize : {"divide", "reciprocal"}
        ``reciprocal`` writes the steps reciprocal and multiply where divide stood, in the same pass; ``divide``
        writes divide where multiply stood, drops reciprocal, and a pass that this empties.

    Returns
    -------
    tuple of tuple of str
        Legal passes.
    """
    rewrite = _REWRITES[normalize]
    rewritten = (tuple(chain.from_iterable(rewrite.get(step, (step,)) for step in steps)) for steps in passes)
    return tuple(steps for steps in rewritten if steps)


def _whole_bytes(kib: float) -> float:
    """Refuse a capacity in KiB that is not a whole number of bytes."""
    if not (kib * 1024).is_integer():
        raise broken_rule("must be a whole number of bytes (1 KiB is 1024 bytes)", kib)
    return kib


Kib = Annotated[StrictFloat, Field(gt=0, le=2**24), AfterValidator(_whole_bytes)]
"""A capacity in KiB: positive, at most 16 GiB, a whole number of bytes."""

PortWidth = Annotated[StrictInt, Field(ge=1, le=2**20)]
"""A bandwidth in bytes per cycle."""

Cycles = Annotated[StrictInt, Field(ge=0, le=2**24)]
"""A duration in cycles."""

LaneCycles = Annotated[StrictInt, Field(ge=0, le=4096)]
"""Cycles that one operation occupies one vector lane."""

ExpSteps = Annotated[StrictInt, Field(ge=1, le=64)]
"""Array steps of one exp in every position of a MAC array."""

ExpPj = Annotated[StrictFloat, Field(gt=0, le=1e6)]
"""Energy of one exp in pJ."""


class MacUnit(FrozenModel):
    """The array of multiply-accumulators of one core.

    Attributes
    ----------
    rows, cols : int
        Size of the array.
    depth : int
        Elements of the reduction that each position takes in a cycle: 1 unless the unit is a cube.
    timing : {"pipelined", "ideal", "systolic"}
        Fill and drain: never, once per instruction, or once per fold of the array.
    stationary : {"output", "weight", "input"}
        What a systolic array holds still; ignored by the other timings.
    l1_port_bytes_per_cycle : int
        Bandwidth between L1 and L0.
    exp_steps : int or None
        Array steps of one exp for a tile of scores held in the array, one score a position: a polynomial of
        multiply-adds, as in FuseMax (arXiv 2406.10491). The subtraction before it, and the local maximum and local
        sum around it, are one step each and not counted here. None: the array cannot (it has no maximum, or no
        local store), so exp may not run on it.
    """

    rows: StrictInt = Field(ge=1, le=4096)
    cols: StrictInt = Field(ge=1, le=4096)
    depth: StrictInt = Field(default=1, ge=1, le=4096)
    timing: Literal["ideal", "pipelined", "systolic"] = "pipelined"
    stationary: Literal["output", "weight", "input"] = "output"
    l1_port_bytes_per_cycle: PortWidth
    exp_steps: ExpSteps | None = None


class OpLaneCycles(FrozenModel):
    """Cycles that one vector lane spends on one element, by operation; 0 means free. The defaults are assumed.

    Attributes
    ----------
    max, add, subtract, multiply : int
        Single-cycle operations of any vector unit.
    exp : int
        6 as a polynomial of fifth order on a multiply-add lane.
    divide : int
        4 as a short iteration; the reciprocal of a row's sum costs as much, once a row.
    mask : int
        Per element of a tile that a mask covers in part: one select or add.
    """

    max: LaneCycles = 1
    add: LaneCycles = 1
    subtract: LaneCycles = 1
    multiply: LaneCycles = 1
    exp: LaneCycles = 6
    divide: LaneCycles = 4
    mask: LaneCycles = 1


class VecUnit(FrozenModel):
    """The vector unit of one core.

    Attributes
    ----------
    lanes : int
        Elements handled in parallel.
    l1_port_bytes_per_cycle : int
        Bandwidth between L1 and the lanes.
    row_reduction_cycles : int
        Latency of combining the lanes at the end of each reduction over a row.
    op_lane_cycles : OpLaneCycles
        Cost of each operation.
    softmax_passes : tuple of tuple of str
        The steps of softmax, grouped into passes through L1: each pass reads its input there and writes its
        output there. Together they are ``scale`` (optional), ``max``, ``subtract``, ``exp``, ``sum``, and then
        ``divide`` or ``reciprocal``, ``multiply``, in order.
    exp_pj : float or None
        Energy of one exp in pJ, at every level of the energy table; None: the table's own row.
    """

    lanes: StrictInt = Field(ge=1, le=2**16)
    l1_port_bytes_per_cycle: PortWidth
    row_reduction_cycles: Cycles = 0
    op_lane_cycles: OpLaneCycles = OpLaneCycles()
    softmax_passes: SoftmaxPasses
    exp_pj: ExpPj | None = None

    @property
    def normalize(self) -> Normalize:
        """How softmax divides a row by its sum, as ``softmax_passes`` spells it."""
        return "reciprocal" if "reciprocal" in chain.from_iterable(self.softmax_passes) else "divide"

    @field_validator("softmax_passes")
    @classmethod
    def _check_steps(cls, value: SoftmaxPasses) -> SoftmaxPasses:
        """Refuse passes that leave out, repeat or reorder a step; name the nearest sequence that does not."""
        flat = tuple(chain.from_iterable(value))
        legal = [steps[first:] for steps in SOFTMAX_SEQUENCES.values() for first in (0, 1)]
        if flat in legal and all(value):
            return value
        rule = (
            f"must hold {', '.join(SOFTMAX_STEPS)} once each in this order (scale may be absent; "
            "reciprocal, multiply may stand for divide), with no pass empty"
        )
        suggestion = None if flat in legal else nearest(", ".join(flat), map(", ".join, legal))
        raise broken_rule(rule, [list(one_pass) for one_pass in value], suggestion)


class L0(FrozenModel):
    """The buffers beside the MAC array of one core.

    Attributes
    ----------
    operand_kib : float
        For the tiles of both operands together, in KiB.
    accumulator_kib : float
        For partial sums, in KiB.
    """

    operand_kib: Kib
    accumulator_kib: Kib

    @property
    def operand_bytes(self) -> int:
        """Operand capacity in bytes."""
        return int(self.operand_kib * 1024)

    @property
    def accumulator_bytes(self) -> int:
        """Accumulator capacity in bytes."""
        return int(self.accumulator_kib * 1024)


class L1(FrozenModel):
    """The on-chip memory that tiles live in.

    Attributes
    ----------
    capacity_kib : float
        Capacity in KiB: of the one memory if shared, of each core's own if not.
    shared : bool
        Whether all cores share one memory.
    """

    capacity_kib: Kib
    shared: StrictBool = True

    @property
    def capacity_bytes(self) -> int:
        """Capacity in bytes."""
        return int(self.capacity_kib * 1024)


class Dram(FrozenModel):
    """The half-duplex DRAM channel that all cores share.

    Attributes
    ----------
    kind : str
        A row of the energy table's ``dram`` section, such as ``LPDDR4``.
    bandwidth_gb_per_s : float
        In units of 1e9 bytes per second.
    latency_cycles : int
        From the end of a transfer to the arrival of its data; it does not occupy the channel.
    setup_cycles : int
        Channel time of each transfer before its first byte.
    """

    kind: StrictStr = Field(min_length=1)
    bandwidth_gb_per_s: StrictFloat = Field(ge=1e-3, le=1e5)
    latency_cycles: Cycles
    setup_cycles: Cycles


class MacVecPath(FrozenModel):
    """The way scores and probabilities take between the MAC array and the vector unit.

    Attributes
    ----------
    kind : {"l1", "direct", "dram"}
        Through L1, over wires of their own, or through DRAM.
    bytes_per_cycle : int or None
        Bandwidth; required unless the kind is ``l1``, whose bandwidth is that of the ports.
    """

    kind: Literal["l1", "direct", "dram"] = "l1"
    bytes_per_cycle: PortWidth | None = None

    @field_validator("bytes_per_cycle")
    @classmethod
    def _check_bandwidth(cls, value: int | None, info: ValidationInfo) -> int | None:
        """Require a bandwidth exactly where the path is not L1."""
        kind = info.data.get("kind")
        if kind == "l1" and value is not None:
            raise broken_rule("must be absent when kind is l1: the L1 ports set the bandwidth", value)
        if kind in ("direct", "dram") and value is None:
            raise broken_rule(f"is required when kind is {kind}", value)
        return value


class Preemption(FrozenModel):
    """Whether a matmul in flight can be stopped, and what that costs.

    Attributes
    ----------
    supported : bool
        Whether it can.
    drain_cycles : int
        Cycles until the array is free again.
    lost_granularity : {"tile", "matmul"}
        What must be redone: the L0 tile in flight, or the whole instruction.
    """

    supported: StrictBool = False
    drain_cycles: Cycles = 0
    lost_granularity: Literal["tile", "matmul"] = "tile"
