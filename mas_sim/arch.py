"""The machine: an edge NPU as read from ``arch_configs/*.yaml``.

Each core has a MAC array, a vector unit, an L0 beside the array and a load and a store queue; the cores share L1 (or
own one each) and one DRAM channel. Units stand in the names of the fields. ``arch_configs/README.md`` lists every key
with its unit, default and source.
"""

from collections.abc import Mapping
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    PrivateAttr,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationInfo,
    field_validator,
)

from mas_sim.config import FrozenModel, NameText, ProseText, broken_rule, content_hash, find_preset, load_model
from mas_sim.energy_table import EnergyTable, load_energy_table
from mas_sim.errors import ConfigError, Fault, nearest
from mas_sim.yaml_source import Document

SoftmaxStep = Literal["scale", "max", "subtract", "exp", "sum", "divide"]
"""A step of softmax, over every element of a row block."""

SOFTMAX_STEPS: tuple[SoftmaxStep, ...] = ("scale", "max", "subtract", "exp", "sum", "divide")
"""The steps in the only order that computes softmax; ``scale`` may be left out (folded into Q beforehand)."""

_RATIO_LIMIT = 2**31
"""Numerator and denominator of :attr:`Arch.dram_bytes_per_cycle` stay below this."""


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
    """

    rows: StrictInt = Field(ge=1, le=4096)
    cols: StrictInt = Field(ge=1, le=4096)
    depth: StrictInt = Field(default=1, ge=1, le=4096)
    timing: Literal["ideal", "pipelined", "systolic"] = "pipelined"
    stationary: Literal["output", "weight", "input"] = "output"
    l1_port_bytes_per_cycle: PortWidth


class OpLaneCycles(FrozenModel):
    """Cycles that one vector lane spends on one element, by operation; 0 means free. The defaults are assumed.

    Attributes
    ----------
    max, add, subtract, multiply : int
        Single-cycle operations of any vector unit.
    exp : int
        6 as a polynomial of fifth order on a multiply-add lane.
    divide : int
        4 as a short iteration.
    """

    max: LaneCycles = 1
    add: LaneCycles = 1
    subtract: LaneCycles = 1
    multiply: LaneCycles = 1
    exp: LaneCycles = 6
    divide: LaneCycles = 4


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
        The steps of softmax, grouped into passes through L1: each pass reads its input there and writes its output
        there. Together they are ``scale`` (optional), ``max``, ``subtract``, ``exp``, ``sum``, ``divide``, in order.
    """

    lanes: StrictInt = Field(ge=1, le=2**16)
    l1_port_bytes_per_cycle: PortWidth
    row_reduction_cycles: Cycles = 0
    op_lane_cycles: OpLaneCycles = OpLaneCycles()
    softmax_passes: tuple[tuple[SoftmaxStep, ...], ...]

    @field_validator("softmax_passes")
    @classmethod
    def _check_steps(cls, value: tuple[tuple[SoftmaxStep, ...], ...]) -> tuple[tuple[SoftmaxStep, ...], ...]:
        """Refuse passes that leave out, repeat or reorder a step."""
        flat = tuple(chain.from_iterable(value))
        if flat not in (SOFTMAX_STEPS, SOFTMAX_STEPS[1:]) or not all(value):
            steps = ", ".join(SOFTMAX_STEPS)
            rule = f"must hold {steps} once each in this order (scale may be absent), with no pass empty"
            raise broken_rule(rule, [list(one_pass) for one_pass in value])
        return value


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


class Arch(FrozenModel):
    """A whole machine. Two are equal when all their fields and their energy tables are.

    Attributes
    ----------
    name : str
        Short name, such as ``mas_edge``.
    description, source : str
        What it is, and where its numbers come from.
    node_nm : int
        Technology node in nm; energies are not scaled to it (see :mod:`mas_sim.energy`).
    clock_ghz : float
        Clock of every unit.
    cores : int
        Number of cores.
    mac, vec, l0 : MacUnit, VecUnit, L0
        Units of each core.
    l1, dram : L1, Dram
        Memories.
    issue_cycles : int
        Added to every instruction.
    sync_cycles : int
        Added to a dependency that crosses units.
    mac_vec_path : MacVecPath
        How scores reach the vector unit.
    preemption : Preemption
        Whether a matmul can be stopped.
    energy : str
        Energy table: a shipped one's name, or a path relative to the architecture's file.
    """

    name: NameText = Field(min_length=1, max_length=100)
    description: ProseText = ""
    source: ProseText = ""
    node_nm: StrictInt = Field(ge=1, le=1000)
    clock_ghz: StrictFloat = Field(ge=1e-3, le=100)
    cores: StrictInt = Field(ge=1, le=64)
    mac: MacUnit
    vec: VecUnit
    l0: L0
    l1: L1
    dram: Dram
    issue_cycles: Cycles = 0
    sync_cycles: Cycles = 0
    mac_vec_path: MacVecPath = MacVecPath()
    preemption: Preemption = Preemption()
    energy: StrictStr = Field(default="energy_16nm", min_length=1)

    _energy_table: EnergyTable | None = PrivateAttr(default=None)

    @property
    def energy_table(self) -> EnergyTable:
        """The table that ``energy`` names; read on first use unless :func:`load_arch` has read it already."""
        if self._energy_table is None:
            self._energy_table = load_energy_table(self.energy)
        return self._energy_table

    @property
    def dram_bytes_per_cycle(self) -> Fraction:
        """Bytes that the DRAM channel moves in a cycle, exactly, from the decimal digits of bandwidth and clock.

        Numerator and denominator are below 2**31; only a ratio that needs more digits than that is rounded.
        """
        exact = Fraction(str(self.dram.bandwidth_gb_per_s)) / Fraction(str(self.clock_ghz))
        if max(exact.numerator, exact.denominator) < _RATIO_LIMIT:
            return exact
        return exact.limit_denominator((_RATIO_LIMIT - 1) // (int(exact) + 1))

    @property
    def macs_per_cycle_per_core(self) -> int:
        """Multiply-accumulates that one core does in a cycle at best."""
        return self.mac.rows * self.mac.cols * self.mac.depth

    @property
    def hash(self) -> str:
        """Twelve hexadecimal digits that identify the content, energy table included."""
        return content_hash(self, self.energy_table)

    def __eq__(self, other: object) -> bool:
        """Compare all fields and the energy tables."""
        return isinstance(other, Arch) and self.hash == other.hash

    def __hash__(self) -> int:
        """Hash consistently with equality."""
        return hash(self.hash)

    def l1_share_bytes(self, active_cores: int) -> int:
        """Bytes of L1 that each core may use while ``active_cores`` of them work."""
        if not 1 <= active_cores <= self.cores:
            raise ValueError(f"active_cores must be 1 to {self.cores}, got {active_cores}")
        return self.l1.capacity_bytes // active_cores if self.l1.shared else self.l1.capacity_bytes

    def with_(self, **changes: Any) -> Self:
        """Make a variant of this machine, as :meth:`mas_sim.config.FrozenModel.with_` does, keeping its energy table.

        If ``energy`` itself changes, the new table is read on first use, a relative path from the working directory.
        """
        variant = super().with_(**changes)
        if variant.energy == self.energy:
            variant._energy_table = self._energy_table
        return variant


def load_arch(name_or_path: str | Path) -> Arch:
    """Load a shipped architecture by name, or any by path, together with its energy table.

    Parameters
    ----------
    name_or_path : str or Path
        Such as ``mas_edge``, or the path of a YAML file.

    Returns
    -------
    Arch
        The validated architecture.

    Raises
    ------
    ConfigError
        With every fault of the file and of its energy table, or if the name is unknown.
    """
    path = find_preset("arch_configs", name_or_path)
    arch = load_model(Arch, path, lambda document: _energy_faults(document, path.parent))
    arch._energy_table = load_energy_table(arch.energy, path.parent)
    return arch


def _energy_faults(document: Document, folder: Path) -> list[Fault]:
    """Find what is wrong with a file's energy table, or with the kind of DRAM that it should list."""
    name = document.data.get("energy", Arch.model_fields["energy"].default)
    if not isinstance(name, str) or not name:
        return []
    try:
        table = load_energy_table(name, folder)
    except ConfigError as error:
        if len(error.faults) == 1 and error.faults[0].file == "<python>":
            fault = error.faults[0]
            line = document.line_of.get(("energy",))
            return [Fault(document.file, line, "energy", fault.rule, fault.value, fault.suggestion)]
        return list(error.faults)
    dram = document.data.get("dram")
    kind = dram.get("kind") if isinstance(dram, Mapping) else None
    if not isinstance(kind, str) or not kind or kind in table.dram:
        return []
    rule = f"must be a kind of DRAM in energy table {table.name}: {', '.join(table.dram)}"
    line = document.line_of.get(("dram", "kind"))
    return [Fault.of(document.file, line, "dram.kind", rule, kind, nearest(kind, table.dram))]
