"""Tables for the terminal, at most 100 columns wide."""

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mas_sim.report import Report, exp_balance
from mas_sim.sweep import Comparison
from mas_sim.workload import Workload


def shape_of(workload: Workload) -> str:
    """A workload's shape in one line: `B 1, H 12, N 512, E 64, fp16`."""
    heads = f"{workload.heads}" if workload.kv_heads == workload.heads else f"{workload.heads}/{workload.kv_heads}"
    length = f"{workload.n_q}" if workload.n_q == workload.n_kv else f"{workload.n_q}x{workload.n_kv}"
    dims = (workload.head_dim_qk, workload.head_dim_v)
    head_dim = f"{dims[0]}" if dims[0] == dims[1] else f"{dims[0]}/{dims[1]}"
    return f"B {workload.batch}, H {heads}, N {length}, E {head_dim}, {workload.dtype}"


def _table(title: str, caption: str | None = None) -> Table:
    return Table(title=title, caption=caption, box=box.SIMPLE_HEAD, title_justify="left", caption_justify="left")


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def compare_tables(result: Comparison) -> list[RenderableType]:
    """Tables of a comparison: cycles and speedups; energies and savings; both with mean and spread."""
    arch = result.reports[0].arch
    subject = result.subject
    cycles = _table(
        f"Cycles on {arch.name}, each dataflow at its proven best tiling ({result.objective})",
        f"Speedup of {subject} over each. Gap: {subject}'s cycles above its lower bound.",
    )
    cycles.add_column("network")
    for name in result.dataflows:
        cycles.add_column(name, justify="right")
    for name in result.baselines:
        cycles.add_column(f"over {name}", justify="right")
    cycles.add_column("gap", justify="right")
    for workload in result.workloads:
        counts = [f"{result.report(workload, name).cycles:,}" for name in result.dataflows]
        speedups = [f"{result.speedup(workload, name):.3f}x" for name in result.baselines]
        cycles.add_row(workload, *counts, *speedups, _percent(result.report(workload, subject).gap_to_bound))
    level = result.reports[0].energy_level
    energy = _table(
        f"Energy in uJ ({level} values), and what {subject} saves",
        "Bound: what limits the subject's lower bound.",
    )
    energy.add_column("network")
    for name in result.dataflows:
        energy.add_column(name, justify="right")
    for name in result.baselines:
        energy.add_column(f"vs {name}", justify="right")
    energy.add_column("bound", justify="right")
    for workload in result.workloads:
        values = [f"{result.report(workload, name).energy.total / 1e6:,.1f}" for name in result.dataflows]
        savings = [_percent(1 - result.energy_ratio(workload, name)) for name in result.baselines]
        energy.add_row(workload, *values, *savings, result.report(workload, subject).bounds.limited_by)
    _add_spreads(result, cycles, energy)
    notes = sorted({note for report in result.reports for note in report.notes})
    return [Group(cycles, energy, *(Text(f"note: {note}") for note in notes))]


def _add_spreads(result: Comparison, cycles: Table, energy: Table) -> None:
    """Add geometric mean, minimum and maximum rows to both tables."""
    blank = [""] * len(result.dataflows)
    speedups = [result.speedup_spread(name) for name in result.baselines]
    savings = [result.saving_spread(name) for name in result.baselines]
    for table in (cycles, energy):
        table.add_section()
    for label, pick in (("geometric mean", "geomean"), ("minimum", "min"), ("maximum", "max")):
        cycles.add_row(label, *blank, *(f"{getattr(s, pick):.3f}x" for s in speedups), "")
        energy.add_row(label, *blank, *(_percent(getattr(s, pick)) for s in savings), "")


def run_tables(report: Report) -> list[RenderableType]:
    """Tables of one report: result and bounds, energy by component, stalls by unit and cause."""
    return [Group(_result_table(report), _energy_table(report), _stall_table(report), *_notes(report))]


def _result_table(report: Report) -> Table:
    schedule, bounds = report.schedule, report.bounds
    title = f"{schedule.dataflow} of {report.workload.name} ({shape_of(report.workload)}) on {report.arch.name}"
    table = _table(title)
    table.add_column("quantity")
    table.add_column("value", justify="right")
    table.add_column("", justify="left")
    proof = "given"
    if report.proven_optimal and report.search is not None:
        proof = f"proven best for {report.search['objective']}: {report.search['legal']:,} legal, "
        proof += f"{report.search['simulated']:,} simulated, {report.search['pruned']:,} pruned by bounds"
    tiling = schedule.tiling
    sizes = f"{tiling.batch_tile} x {tiling.head_tile} heads, q {tiling.q_tile}, kv {tiling.kv_tile}"
    table.add_row("tiling", sizes, proof)
    tiles = tiling.kv_tiles(report.workload)
    kept = f"K {tiling.k_resident_tiles}, V {tiling.v_resident_tiles} of {tiles}"
    depths = f"Q {tiling.q_buffers} K {tiling.k_buffers} V {tiling.v_buffers}"
    depths += f" C/P {tiling.score_buffers} O {tiling.o_buffers}"
    table.add_row("kept in L1", kept, f"buffers {depths}; cores split by {tiling.core_split}")
    table.add_row("cycles", f"{report.cycles:,}", f"{report.time_us:,.2f} us at {report.arch.clock_ghz:g} GHz")
    limits = f"MAC {bounds.mac_cycles:,}, VEC {bounds.vec_cycles:,}, DRAM {bounds.dram_cycles:,}"
    table.add_row("lower bound", f"{bounds.lower_cycles:,}", f"{bounds.limited_by}; {limits}")
    table.add_row("gap to bound", _percent(report.gap_to_bound), "")
    shares = ", ".join(f"{name.upper()} {_percent(value)}" for name, value in report.utilization.items())
    table.add_row("utilization", _percent(report.utilization["mac"]), shares)
    read, write = int(report.meter_counts[0]), int(report.meter_counts[1])
    table.add_row("DRAM bytes", f"{report.dram_bytes:,}", f"{read:,} read, {write:,} written")
    capacity = report.arch.l1.capacity_bytes
    table.add_row("L1 peak bytes", f"{schedule.l1_peak_bytes:,}", f"of {capacity:,}")
    balance = exp_balance(report.arch, report.workload)
    table.add_row(
        "softmax rate needed",
        f"{balance.needed_per_cycle:.3g}/cycle",
        f"VEC gives {balance.available_per_cycle:.3g}/cycle",
    )
    if report.audit is not None:
        table.add_row("audit", "ok" if report.audit.ok else "ILLEGAL", f"{len(schedule):,} instructions")
    if report.execution is not None:
        table.add_row("numerical error", f"{report.execution.max_abs_error:.2e}", "float32 against float64")
    return table


def _energy_table(report: Report) -> Table:
    table = _table(f"Energy ({report.energy_level} values)")
    parts = report.energy.as_dict()
    for name in parts:
        table.add_column(name if name != "total" else "total uJ", justify="right")
    table.add_row(*(f"{value / 1e6:,.2f}" for value in parts.values()))
    table.add_row(*(_percent(value / parts["total"]) for value in parts.values()))
    return table


def _stall_table(report: Report) -> Table:
    table = _table("Stall cycles of each unit by what it waited for, summed over the cores")
    stalls = report.stalls()
    causes = [
        name
        for name in ("mac", "vec", "load", "store", "channel", "buffer", "sync")
        if any(name in s for s in stalls.values())
    ]
    table.add_column("unit")
    for name in causes:
        table.add_column(name, justify="right")
    for unit, by_cause in stalls.items():
        table.add_row(unit.upper(), *(f"{by_cause.get(name, 0):,}" for name in causes))
    return table


def _notes(report: Report) -> list[Text]:
    return [Text(f"note: {note}") for note in report.notes]
