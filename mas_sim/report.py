"""The report of one schedule: all its readers' answers, its bounds beside them, and where it all comes from."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from mas_sim.arch import Arch
from mas_sim.audit import AuditResult, audit
from mas_sim.bounds import Bounds, bounds
from mas_sim.costs import S_LANE_CYCLES, S_ROWS_ONLY, S_WRITES
from mas_sim.dataflows import build_schedule, get_dataflow
from mas_sim.energy import METER_COLUMNS, EnergyBreakdown, EnergyCoefficients, energy_breakdown, energy_coefficients
from mas_sim.energy_table import Level
from mas_sim.errors import TilingError
from mas_sim.execute import MAX_EXECUTED_SCORES, ExecutionResult, execute
from mas_sim.meter import OverwriteCost, meter, overwrite_cost
from mas_sim.results import inputs_of, sealed
from mas_sim.results import package_version as package_version
from mas_sim.schedule import (
    F_ALT,
    F_DST,
    F_SRC0,
    F_SRC1,
    MAC,
    SLOT_BYTES,
    SLOT_OFFSET,
    SLOT_TENSOR,
    STORE,
    TENSOR_NAMES,
    UNIT_NAMES,
    UNITS,
    VEC,
    IntArray,
    Schedule,
)
from mas_sim.simulator import CAUSE_NAMES, Timeline, simulate
from mas_sim.tiling import Tiling
from mas_sim.workload import Workload


@dataclass(frozen=True)
class ExpBalance:
    """Whether the vector unit keeps up with the MAC unit, per core.

    Attributes
    ----------
    needed_per_cycle
        Scores per cycle that keep the MAC unit busy: `MACs per cycle / (E + F)`, one softmax element per E + F MACs.
    available_per_cycle
        Scores per cycle that the vector unit can turn into probabilities, in the passes of the dataflow's softmax: one
        over the sum, over the passes, of the longer of lane-cycles of an element over lanes, and its bytes over the VEC
        port's bandwidth. Infinite where exp runs on the MAC array: the vector unit then sees no score at all.
    """

    needed_per_cycle: float
    available_per_cycle: float

    def as_dict(self) -> dict[str, float]:
        """Return the fields by name."""
        return {"needed_per_cycle": self.needed_per_cycle, "available_per_cycle": self.available_per_cycle}


def exp_balance(arch: Arch, workload: Workload, dataflow: str = "flat", exp_on: str = "vec") -> ExpBalance:
    """Return the MAC/VEC balance of a workload on an arch (the ratio that decides what overlap can give).

    Parameters
    ----------
    dataflow
        Whose form of softmax: over whole rows, cut at its row reductions, or online.
    exp_on
        Unit that computes exp, as in a tiling.

    Raises
    ------
    ScheduleError
        If there is no such dataflow.
    TilingError
        If its exp cannot run there.
    """
    flow = get_dataflow(dataflow)
    if exp_on not in flow.exp_on:
        raise TilingError(f"exp_on of {dataflow} must be {' or '.join(flow.exp_on)} (got {exp_on})")
    needed = arch.macs_per_cycle_per_core / (workload.head_dim_qk + workload.head_dim_v)
    cycles = 0.0
    for row in flow.softmax(arch) if exp_on == "vec" else ():
        if row[S_ROWS_ONLY]:
            continue
        port = (1 + int(row[S_WRITES])) * workload.bytes_per_element / arch.vec.l1_port_bytes_per_cycle
        lanes = int(row[S_LANE_CYCLES]) / arch.vec.lanes
        cycles += max(lanes, port if arch.mac_vec_path.kind == "l1" else 0.0)
    return ExpBalance(needed, 1.0 / cycles if cycles else float("inf"))


@dataclass(frozen=True)
class Report:
    """Everything there is to say of one schedule.

    Attributes
    ----------
    proven_optimal
        True if a search proved this tiling best over its space, False if the tiling was given.
    energy
        Energy by component at `energy_level`.
    audit, execution
        None where the check was not asked for.
    search
        What was searched, if the tiling comes from a search.
    overwrite, overwrite_energy_pj
        What proactive overwrite cost, and the dynamic energy of its reloads and of the work done again; None if the
        tiling overwrites nothing.
    """

    schedule: Schedule = field(repr=False)
    timeline: Timeline = field(repr=False)
    bounds: Bounds
    meter_counts: IntArray
    energy: EnergyBreakdown
    energy_level: Level
    proven_optimal: bool = False
    audit: AuditResult | None = None
    execution: ExecutionResult | None = None
    notes: tuple[str, ...] = ()
    search: dict[str, Any] | None = None
    overwrite: OverwriteCost | None = None
    overwrite_energy_pj: float = 0.0

    @property
    def arch(self) -> Arch:
        """The machine."""
        return self.schedule.arch

    @property
    def workload(self) -> Workload:
        """The attention that was run."""
        return self.schedule.workload

    @property
    def cycles(self) -> int:
        """Cycles from the first instruction to the last one's end."""
        return self.timeline.cycles

    @property
    def time_us(self) -> float:
        """The same in microseconds."""
        return self.cycles / self.arch.clock_ghz / 1e3

    @property
    def dram_bytes(self) -> int:
        """DRAM bytes read and written."""
        return int(self.meter_counts[0] + self.meter_counts[1])

    @property
    def exp_balance(self) -> ExpBalance:
        """Whether the vector unit keeps up with the MAC unit, in this schedule's form of softmax."""
        return exp_balance(self.arch, self.workload, self.schedule.dataflow, self.schedule.tiling.exp_on)

    @property
    def gap_to_bound(self) -> float:
        """By what share the cycles are above the lower bound."""
        return self.cycles / self.bounds.lower_cycles - 1.0

    @cached_property
    def utilization(self) -> dict[str, float]:
        """Busy share of the MAC units, the vector units (mean over the cores) and the DRAM channel."""
        capacity = self.cycles * self.arch.cores
        dma = self.schedule.unit_of > VEC
        channel = int(self.schedule.cycles[dma].sum())
        return {
            "mac": self.timeline.unit_busy_cycles(MAC) / capacity,
            "vec": self.timeline.unit_busy_cycles(VEC) / capacity,
            "dram": channel / self.cycles,
        }

    def stalls(self) -> dict[str, dict[str, int]]:
        """Stall cycles by unit and cause, summed over the cores; causes without any are left out."""
        result: dict[str, dict[str, int]] = {}
        for unit in range(STORE + 1):
            total = self.timeline.stall_cycles[unit::UNITS].sum(axis=0)
            causes = zip(CAUSE_NAMES, total.tolist(), strict=True)
            result[UNIT_NAMES[unit].lower()] = {name: cycles for name, cycles in causes if cycles}
        return result

    def l1_plan(self) -> list[dict[str, Any]]:
        """Place and lifetime of every L1 buffer, of all active cores.

        Returns
        -------
        list of dict
            `core`, `tensor`, `offset_bytes` (in the core's share of L1), `size_bytes`, and the cycles between which it
            is in use: the start of its first write, and the end of its last use. Buffers never used are left out.
        """
        schedule, per_core = self.schedule, len(self.schedule.slots)
        used = schedule.instructions[:, [F_DST, F_SRC0, F_SRC1, F_ALT]]
        plan = []
        for slot in np.unique(used[used >= 0]).tolist():
            mine = (used == slot).any(axis=1)
            core, place = divmod(slot, per_core)
            row = schedule.slots[place]
            plan.append(
                {
                    "core": core,
                    "tensor": TENSOR_NAMES[int(row[SLOT_TENSOR])],
                    "offset_bytes": int(row[SLOT_OFFSET]),
                    "size_bytes": int(row[SLOT_BYTES]),
                    "first_cycle": int(self.timeline.start[mine].min()),
                    "last_cycle": int(self.timeline.end[mine].max()),
                }
            )
        return plan

    def _overwrite_facts(self) -> dict[str, Any] | None:
        if self.overwrite is None:
            return None
        return {
            "overwrites": self.overwrite.overwrites,
            "reloaded_bytes": self.overwrite.reloaded_bytes,
            "stops": self.overwrite.stops,
            "lost_mac_cycles": self.overwrite.lost_mac_cycles,
            "redone_mac_cycles": self.overwrite.redone_mac_cycles,
            "energy_pj": self.overwrite_energy_pj,
        }

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain data, the `--json` of one result; `results.load_result` reads it back."""
        meter = self.meter_counts.tolist()
        facts = {
            "arch": self.arch.name,
            "workload": self.workload.name,
            "dataflow": self.schedule.dataflow,
            "tiling": self.schedule.tiling.as_dict(),
            "proven_optimal": self.proven_optimal,
            "cycles": self.cycles,
            "time_us": self.time_us,
            "energy_pj": self.energy.as_dict(),
            "energy_level": self.energy_level,
            "objective": None if self.search is None else self.search["objective"],
            "dram_read_bytes": meter[0],
            "dram_write_bytes": meter[1],
            "l1_peak_bytes": self.schedule.l1_peak_bytes,
            "utilization": self.utilization,
            "bounds": self.bounds.as_dict(),
            "gap_to_bound": self.gap_to_bound,
            "audit": None if self.audit is None else self.audit.summary(),
            "execute_max_abs_error": None if self.execution is None else self.execution.max_abs_error,
            "instructions": len(self.schedule),
            "stall_cycles": self.stalls(),
            "exp_balance": self.exp_balance.as_dict(),
            "search": self.search,
            "overwrite": self._overwrite_facts(),
            "notes": list(self.notes),
            "inputs": inputs_of(self.arch, self.workload),
        }
        return sealed(facts, self.arch, self.workload)


def _overwrite_energy(cost: OverwriteCost, coefficients: EnergyCoefficients) -> float:
    """Dynamic energy of loading tiles again (read from DRAM, written to L1) and of doing lost work again, in pJ."""
    counts = cost.redone_counts.copy()
    for column in ("dram_read_bytes", "l1_write_bytes"):
        counts[METER_COLUMNS.index(column)] += cost.reloaded_bytes
    return float(counts @ coefficients.pj_per_action)


def make_report(
    dataflow: str,
    arch: Arch,
    workload: Workload,
    tiling: Tiling,
    *,
    energy_level: Level = "nominal",
    check: bool = True,
    seed: int = 0,
    proven_optimal: bool = False,
    search: dict[str, Any] | None = None,
    notes: tuple[str, ...] = (),
) -> Report:
    """Build one schedule and let its readers read it.

    Parameters
    ----------
    check
        Also audit the schedule, and execute it on seeded random inputs (unless it has more than
        `MAX_EXECUTED_SCORES` scores; a note then says so).
    seed
        Of those inputs.

    Raises
    ------
    TilingError, ScheduleError
        As `build_schedule`.
    """
    schedule = build_schedule(dataflow, arch, workload, tiling)
    timeline = simulate(schedule)
    coefficients: EnergyCoefficients = energy_coefficients(arch, workload.dtype, energy_level)
    counts = meter(schedule, timeline)
    executes = workload.scores <= MAX_EXECUTED_SCORES
    skipped: tuple[str, ...] = ()
    if check and not executes:
        skipped = (f"too large to execute: {workload.scores:,} scores, more than {MAX_EXECUTED_SCORES:,}",)
    cost = overwrite_cost(schedule, timeline) if schedule.tiling.overwrite != "none" else None
    return Report(
        schedule=schedule,
        timeline=timeline,
        bounds=bounds(arch, workload, dataflow),
        meter_counts=counts,
        energy=energy_breakdown(counts, timeline.cycles, coefficients),
        energy_level=energy_level,
        proven_optimal=proven_optimal,
        audit=audit(schedule, timeline) if check else None,
        execution=execute(schedule, timeline, seed=seed) if check and executes else None,
        notes=coefficients.notes + notes + skipped,
        search=search,
        overwrite=cost,
        overwrite_energy_pj=0.0 if cost is None else _overwrite_energy(cost, coefficients),
    )
