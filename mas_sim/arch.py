"""The machine: an edge NPU as read from ``arch_configs/*.yaml``.

Each core has a MAC array, a vector unit, an L0 beside the array and a load and a store queue; the cores share L1
(or own one each) and one DRAM channel. Units stand in the names of the fields. ``arch_configs/README.md`` lists
every key with its unit, default and source. The parts are in :mod:`mas_sim._arch_units`, and imported from here.
"""

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, Self, get_args

from pydantic import Field, PrivateAttr, StrictFloat, StrictInt, StrictStr

from mas_sim._arch_units import (
    L0,
    L1,
    SOFTMAX_SEQUENCES,
    SOFTMAX_STEPS,
    Cycles,
    Dram,
    MacUnit,
    MacVecPath,
    Normalize,
    OpLaneCycles,
    Preemption,
    SoftmaxStep,
    VecUnit,
    renormalized,
)
from mas_sim.config import FrozenModel, NameText, ProseText, content_hash, find_preset, load_model
from mas_sim.energy_table import EnergyTable, load_energy_table
from mas_sim.errors import ConfigError, Fault, nearest
from mas_sim.yaml_source import Document

__all__ = [
    "L0",
    "L1",
    "SOFTMAX_SEQUENCES",
    "SOFTMAX_STEPS",
    "Arch",
    "Dram",
    "MacUnit",
    "MacVecPath",
    "Normalize",
    "OpLaneCycles",
    "Preemption",
    "SoftmaxStep",
    "VecUnit",
    "load_arch",
]

_RATIO_LIMIT = 2**31
"""Numerator and denominator of :attr:`Arch.dram_bytes_per_cycle` stay below this."""


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

    def with_energy_table(self, table: EnergyTable) -> Self:
        """Make a variant with an energy table of its own, whatever ``energy`` names."""
        variant = self.model_copy()
        variant._energy_table = table
        return variant

    def with_softmax(self, normalize: Normalize) -> Self:
        """Make a variant whose softmax divides each row by its sum in a given way.

        Parameters
        ----------
        normalize : {"divide", "reciprocal"}
            ``divide``: one division an element. ``reciprocal``: one reciprocal a row, then one multiply an element.
            The steps that change stay in their pass; a pass that held nothing but the reciprocal goes.

        Returns
        -------
        Arch
            The variant; this machine stays as it is.

        Raises
        ------
        ConfigError
            If ``normalize`` is neither.
        """
        legal = get_args(Normalize)
        if normalize not in legal:
            rule = f"must be one of {' or '.join(map(repr, legal))}"
            suggestion = nearest(normalize, legal) if isinstance(normalize, str) else None
            raise ConfigError([Fault.of("<python>", None, "normalize", rule, normalize, suggestion)])
        return self.with_(**{"vec.softmax_passes": renormalized(self.vec.softmax_passes, normalize)})


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
