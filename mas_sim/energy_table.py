"""The energy table: what one action costs, how surely, and by what source, as read from ``arch_configs/energy_*.yaml``.

Every figure is a nominal value with a band (low, high). DRAM kinds are rows of their own and are never scaled with the
node; SRAM energies follow a capacity law, so that a sweep over a buffer's size changes its energy too. How the table is
applied to a machine is up to :mod:`mas_sim.energy`.
"""

from pathlib import Path
from typing import Literal

from pydantic import Field, StrictFloat, StrictInt, StrictStr, ValidationInfo, field_validator

from mas_sim.config import FrozenModel, broken_rule, content_hash, find_preset, load_model

Level = Literal["nominal", "low", "high"]
"""Which end of the bands to use; ``nominal`` is the table's own value."""

Access = Literal["read", "write"]

Confidence = Literal["high", "medium", "low"]
"""High: read in a primary source. Medium: derived from one by a stated rule. Low: disputed, or general knowledge."""


class EnergyBand(FrozenModel):
    """A figure with its uncertainty: base of the rows of the table.

    Attributes
    ----------
    low, high : float
        The band; it must contain the nominal value.
    source : str
        Where the figure comes from.
    confidence : {"high", "medium", "low"}
        How far to trust it.
    """

    low: StrictFloat = Field(ge=0, le=1e6)
    high: StrictFloat = Field(ge=0, le=1e6)
    source: StrictStr = Field(min_length=1)
    confidence: Confidence

    @property
    def nominal(self) -> float:
        """The row's own value."""
        raise NotImplementedError

    def at(self, level: Level) -> float:
        """Return the value at an end of the band."""
        return {"nominal": self.nominal, "low": self.low, "high": self.high}[level]


def _check_band(value: float, info: ValidationInfo) -> float:
    """Refuse a nominal value outside its own band."""
    low, high = info.data.get("low", value), info.data.get("high", value)
    if not low <= value <= high:
        raise broken_rule(f"must lie in its own band, {low} to {high}", value)
    return value


class ComputeRow(EnergyBand):
    """Energy of one arithmetic operation.

    Attributes
    ----------
    pj : float
        pJ per operation, at the table's node.
    node_nm : tuple of int
        Nodes of the source's figures, before scaling.
    """

    pj: StrictFloat = Field(ge=0, le=1e6)
    node_nm: tuple[StrictInt, ...] = Field(min_length=1)

    _band = field_validator("pj")(_check_band)

    @property
    def nominal(self) -> float:
        """The value, in pJ per operation."""
        return self.pj


class DramRow(EnergyBand):
    """Energy of moving one byte to or from a kind of DRAM, the interface included.

    Attributes
    ----------
    pj_per_byte : float
        pJ per byte, read or written; never scaled with the node.
    """

    pj_per_byte: StrictFloat = Field(ge=0, le=1e6)

    _band = field_validator("pj_per_byte")(_check_band)

    @property
    def nominal(self) -> float:
        """The value, in pJ per byte."""
        return self.pj_per_byte


class LeakageRow(EnergyBand):
    """Leakage power of SRAM.

    Attributes
    ----------
    mw_per_mib : float
        mW per MiB of capacity, at the table's node.
    """

    mw_per_mib: StrictFloat = Field(ge=0, le=1e6)

    _band = field_validator("mw_per_mib")(_check_band)

    @property
    def nominal(self) -> float:
        """The value, in mW per MiB."""
        return self.mw_per_mib


class ComputeRows(FrozenModel):
    """Energy of each arithmetic operation.

    Attributes
    ----------
    mac_fp16_acc32, mac_int8_acc32 : ComputeRow
        One multiply-accumulate of the MAC unit into a 32-bit sum.
    vec_add_fp16, vec_add_fp32, vec_mul_fp16, vec_fma_fp16, vec_max_fp16, vec_exp_fp16, vec_div_fp16 : ComputeRow
        One operation on one element in the VEC unit; a subtraction costs an addition.
    """

    mac_fp16_acc32: ComputeRow
    mac_int8_acc32: ComputeRow
    vec_add_fp16: ComputeRow
    vec_add_fp32: ComputeRow
    vec_mul_fp16: ComputeRow
    vec_fma_fp16: ComputeRow
    vec_max_fp16: ComputeRow
    vec_exp_fp16: ComputeRow
    vec_div_fp16: ComputeRow


class AccessLaw(FrozenModel):
    """Energy per byte of one kind of access: ``e_ref_pj_per_byte * (capacity / ref_kib) ** exponent``.

    Attributes
    ----------
    e_ref_pj_per_byte : float
        pJ per byte at the law's reference capacity.
    exponent : float
        Of the capacity; dimensionless.
    """

    e_ref_pj_per_byte: StrictFloat = Field(gt=0, le=1e6)
    exponent: StrictFloat = Field(ge=0, le=2)


class SramPoint(FrozenModel):
    """One measured memory that a law was fitted to.

    Attributes
    ----------
    capacity_kib : float
        Its capacity.
    read, write : float
        pJ per byte.
    low, high : float
        Band over both kinds of access, pJ per byte.
    """

    capacity_kib: StrictFloat = Field(gt=0)
    read: StrictFloat = Field(gt=0)
    write: StrictFloat = Field(gt=0)
    low: StrictFloat = Field(gt=0)
    high: StrictFloat = Field(gt=0)


class SramLaw(FrozenModel):
    """How the energy of an SRAM access grows with capacity.

    Attributes
    ----------
    ref_kib : float
        Capacity at which the law gives ``e_ref_pj_per_byte``.
    valid_kib : tuple of float
        Smallest and largest capacity that the law was fitted for; outside, it extrapolates.
    read, write : AccessLaw
        The law of each kind of access.
    low_factor, high_factor : float
        Ends of the band, as factors on the law's value.
    measured : tuple of SramPoint
        What the law was fitted to, kept so that the fit and the band can be checked.
    source : str
        Where the figures come from.
    confidence : {"high", "medium", "low"}
        How far to trust them.
    """

    ref_kib: StrictFloat = Field(gt=0)
    valid_kib: tuple[StrictFloat, StrictFloat]
    read: AccessLaw
    write: AccessLaw
    low_factor: StrictFloat = Field(gt=0, le=1)
    high_factor: StrictFloat = Field(ge=1, le=1000)
    measured: tuple[SramPoint, ...] = ()
    source: StrictStr = Field(min_length=1)
    confidence: Confidence

    @field_validator("valid_kib")
    @classmethod
    def _check_range(cls, value: tuple[float, float]) -> tuple[float, float]:
        """Refuse an empty range."""
        if not 0 < value[0] < value[1]:
            raise broken_rule("must be a smaller and a larger capacity, both positive", list(value))
        return value


class EnergyTable(FrozenModel):
    """Every figure that turns a schedule's actions into energy.

    Attributes
    ----------
    name : str
        Name of the table.
    description : str
        What it is and how it was scaled.
    node_nm : int
        Technology node that compute and SRAM figures hold for.
    vdd_v : float
        Supply voltage that they hold for, in volts.
    compute : ComputeRows
        Arithmetic, pJ per operation.
    dram : dict of str to DramRow
        Each kind of DRAM, pJ per byte.
    l1_law, l0_law : SramLaw
        Large shared SRAM, and small buffers beside the MAC unit.
    leakage : LeakageRow
        Leakage of SRAM, mW per MiB.
    """

    name: StrictStr = Field(min_length=1)
    description: StrictStr = ""
    node_nm: StrictInt = Field(ge=1, le=1000)
    vdd_v: StrictFloat = Field(gt=0, le=10)
    compute: ComputeRows
    dram: dict[StrictStr, DramRow] = Field(min_length=1)
    l1_law: SramLaw
    l0_law: SramLaw
    leakage: LeakageRow

    @property
    def hash(self) -> str:
        """Twelve hexadecimal digits that identify the content."""
        return content_hash(self)


def load_energy_table(name_or_path: str | Path, folder: Path | None = None) -> EnergyTable:
    """Load a shipped energy table by name, or any by path.

    Parameters
    ----------
    name_or_path : str or Path
        Such as ``energy_16nm``, or the path of a YAML file.
    folder : Path, optional
        Folder that a relative path starts from; the working directory unless given.

    Returns
    -------
    EnergyTable
        The validated table.

    Raises
    ------
    ConfigError
        With every fault of the file, or if the name is unknown.
    """
    path = find_preset("energy_tables", name_or_path)
    return load_model(EnergyTable, path if folder is None else folder / path)
