"""From counted actions to energy: ``E = sum(actions * pJ per action) + leakage * time``, by component.

A schedule's actions are metered as 12 integers, in the order of :data:`METER_COLUMNS`; :func:`energy_coefficients`
gives what one of each costs on a machine, and :func:`energy_breakdown` multiplies. All energies are in pJ.

========================  ==============  ======================================================================
columns                   component       pJ per action, from the machine's energy table
========================  ==============  ======================================================================
dram read, write bytes    dram            row of the machine's DRAM kind; never scaled with the node
l1 read, write bytes      l1              L1 capacity law at the capacity of one L1
l0 read, write bytes      l0              L0 capacity law at operand plus accumulator capacity of one core
mac ops                   mac             one multiply-accumulate of the workload's dtype
vec max ... div ops       vec             one fp16 operation on one element; a subtraction is an addition and a
                                          reciprocal a division; exp costs ``vec.exp_pj`` where the machine has it
cycles                    leakage         leakage of all L1 and L0, per cycle
========================  ==============  ======================================================================

The low and high levels take every figure at that end of its band at once: they bracket the truth, they are not a
confidence interval. Logic leakage, clock trees and the interconnect are not modelled. Figures hold for the table's
node; they are not scaled to the machine's, and a note says so where the two differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mas_sim.arch import Arch
from mas_sim.energy_table import Access, Level, SramLaw
from mas_sim.errors import ConfigError, Fault, nearest
from mas_sim.workload import Dtype

METER_COLUMNS: tuple[str, ...] = (
    "dram_read_bytes",
    "dram_write_bytes",
    "l1_read_bytes",
    "l1_write_bytes",
    "l0_read_bytes",
    "l0_write_bytes",
    "mac_ops",
    "vec_max_ops",
    "vec_add_ops",
    "vec_mul_ops",
    "vec_exp_ops",
    "vec_div_ops",
)
"""What a schedule's meter counts, in this order."""

COMPONENTS: tuple[str, ...] = ("dram", "l1", "l0", "mac", "vec")
"""The components that actions belong to; leakage, which belongs to time, comes beside them."""

COMPONENT_OF_COLUMN: tuple[int, ...] = (0, 0, 1, 1, 2, 2, 3, 4, 4, 4, 4, 4)
"""Index into :data:`COMPONENTS` of each column of :data:`METER_COLUMNS`."""

_KIB_PER_MIB = 1024


@dataclass(frozen=True, eq=False)
class EnergyCoefficients:
    """What one action of each kind, and one cycle, costs on a machine.

    Attributes
    ----------
    pj_per_action : ndarray of float64, shape (12,)
        pJ per byte or operation, in the order of :data:`METER_COLUMNS`; read-only.
    leakage_pj_per_cycle : float
        pJ per cycle of the whole machine.
    level : {"nominal", "low", "high"}
        The end of the bands that all figures were taken at.
    component_of_column : tuple of int
        Index into :data:`COMPONENTS` of each column.
    notes : tuple of str
        Where the figures are weaker than usual: extrapolated, of another node, from low-confidence rows, or
        without a band because the machine sets the energy of exp itself.
    """

    pj_per_action: npt.NDArray[np.float64]
    leakage_pj_per_cycle: float
    level: Level = "nominal"
    component_of_column: tuple[int, ...] = COMPONENT_OF_COLUMN
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class EnergyBreakdown:
    """Energy of a run by component, in pJ.

    Attributes
    ----------
    dram, l1, l0 : float
        Moving bytes at each memory level.
    mac, vec : float
        Computing.
    leakage : float
        Time.
    """

    dram: float
    l1: float
    l0: float
    mac: float
    vec: float
    leakage: float

    @property
    def total(self) -> float:
        """The sum of all components, in pJ."""
        return self.dram + self.l1 + self.l0 + self.mac + self.vec + self.leakage

    def as_dict(self) -> dict[str, float]:
        """Return the total and every component by name, in pJ."""
        return {
            "total": self.total,
            "dram": self.dram,
            "l1": self.l1,
            "l0": self.l0,
            "mac": self.mac,
            "vec": self.vec,
            "leakage": self.leakage,
        }


def sram_pj_per_byte(law: SramLaw, capacity_kib: float, access: Access, level: Level = "nominal") -> float:
    """Energy of moving one byte into or out of an SRAM.

    ``e_ref * (capacity / ref) ** exponent``, times the law's low or high factor. The source of the law is in the table;
    outside ``law.valid_kib`` it extrapolates, which :func:`energy_coefficients` notes.

    Parameters
    ----------
    law : SramLaw
        The law of this kind of memory.
    capacity_kib : float
        Capacity of one memory, in KiB.
    access : {"read", "write"}
        Direction.
    level : {"nominal", "low", "high"}
        End of the band.

    Returns
    -------
    float
        pJ per byte.
    """
    side = law.read if access == "read" else law.write
    factor = {"nominal": 1.0, "low": law.low_factor, "high": law.high_factor}[level]
    growth: float = (capacity_kib / law.ref_kib) ** side.exponent
    return side.e_ref_pj_per_byte * growth * factor


def energy_coefficients(arch: Arch, dtype: Dtype, level: Level = "nominal") -> EnergyCoefficients:
    """Work out what each action costs on a machine.

    Parameters
    ----------
    arch : Arch
        The machine, with its energy table.
    dtype : {"fp16", "bf16", "int8"}
        The workload's element type. It decides the MAC row (bf16 is priced as fp16); softmax is done in fp16 whatever
        the dtype.
    level : {"nominal", "low", "high"}
        End of the bands.

    Returns
    -------
    EnergyCoefficients
        pJ per action and per cycle, with notes.

    Raises
    ------
    ConfigError
        If the energy table does not list the machine's kind of DRAM.
    """
    table = arch.energy_table
    if arch.dram.kind not in table.dram:
        rule = f"must be a kind of DRAM in energy table {table.name}: {', '.join(table.dram)}"
        suggestion = nearest(arch.dram.kind, table.dram)
        raise ConfigError([Fault.of("<python>", None, "dram.kind", rule, arch.dram.kind, suggestion)])
    dram = table.dram[arch.dram.kind].at(level)
    l1_kib, l0_kib = arch.l1.capacity_kib, _l0_kib(arch)
    compute = table.compute
    mac = compute.mac_int8_acc32 if dtype == "int8" else compute.mac_fp16_acc32
    exp_pj = compute.vec_exp_fp16.at(level) if arch.vec.exp_pj is None else arch.vec.exp_pj
    per_action = np.array(
        [
            dram,
            dram,
            sram_pj_per_byte(table.l1_law, l1_kib, "read", level),
            sram_pj_per_byte(table.l1_law, l1_kib, "write", level),
            sram_pj_per_byte(table.l0_law, l0_kib, "read", level),
            sram_pj_per_byte(table.l0_law, l0_kib, "write", level),
            mac.at(level),
            compute.vec_max_fp16.at(level),
            compute.vec_add_fp16.at(level),
            compute.vec_mul_fp16.at(level),
            exp_pj,
            compute.vec_div_fp16.at(level),
        ],
        dtype=np.float64,
    )
    per_action.flags.writeable = False
    return EnergyCoefficients(per_action, _leakage_pj_per_cycle(arch, level), level, notes=_notes(arch))


def energy_breakdown(
    meter_counts: npt.NDArray[np.int64] | Sequence[int], cycles: int, coefficients: EnergyCoefficients
) -> EnergyBreakdown:
    """Turn a schedule's counts and its cycles into energy.

    Parameters
    ----------
    meter_counts : array_like of int64, shape (12,)
        Bytes and operations, in the order of :data:`METER_COLUMNS`.
    cycles : int
        Length of the run.
    coefficients : EnergyCoefficients
        What each action costs.

    Returns
    -------
    EnergyBreakdown
        Energy by component, in pJ.
    """
    counts = np.asarray(meter_counts)
    if counts.shape != (len(METER_COLUMNS),):
        raise ValueError(f"meter_counts must have shape ({len(METER_COLUMNS)},), got {counts.shape}")
    by_component = np.bincount(
        coefficients.component_of_column, weights=counts * coefficients.pj_per_action, minlength=len(COMPONENTS)
    )
    dram, l1, l0, mac, vec = by_component.tolist()
    return EnergyBreakdown(dram, l1, l0, mac, vec, coefficients.leakage_pj_per_cycle * cycles)


def _l0_kib(arch: Arch) -> float:
    """Capacity of one core's L0, operands and accumulators together, in KiB."""
    return arch.l0.operand_kib + arch.l0.accumulator_kib


def _leakage_pj_per_cycle(arch: Arch, level: Level) -> float:
    """Leakage of all SRAM per cycle: mW/MiB times MiB is mW, and mW divided by GHz is pJ per cycle."""
    l1_count = 1 if arch.l1.shared else arch.cores
    mib = (arch.l1.capacity_kib * l1_count + _l0_kib(arch) * arch.cores) / _KIB_PER_MIB
    return arch.energy_table.leakage.at(level) * mib / arch.clock_ghz


def _notes(arch: Arch) -> tuple[str, ...]:
    """Say where the figures are weaker than usual."""
    table = arch.energy_table
    notes = []
    for label, law, kib in (("L1", table.l1_law, arch.l1.capacity_kib), ("L0", table.l0_law, _l0_kib(arch))):
        low, high = law.valid_kib
        if not low <= kib <= high:
            notes.append(
                f"{label} of {kib:g} KiB is outside the capacity law's valid range {low:g}..{high:g} KiB: extrapolated"
            )
    if arch.node_nm != table.node_nm:
        notes.append(f"energies are for {table.node_nm} nm (table {table.name}), not scaled to {arch.node_nm} nm")
    if table.dram[arch.dram.kind].confidence == "low":
        notes.append(f"the DRAM energy of {arch.dram.kind} is of low confidence")
    if arch.vec.exp_pj is not None:
        table_pj = table.compute.vec_exp_fp16.pj
        notes.append(
            f"vec.exp_pj sets the energy of an exp to {arch.vec.exp_pj:g} pJ at low, nominal and high alike "
            f"(table {table.name}: {table_pj:g} pJ)"
        )
    return tuple(notes)
