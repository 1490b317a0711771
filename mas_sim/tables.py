"""Tables for the terminal, at most 100 columns wide.

Whatever a file may have named is printed as `Text`, never as markup.
"""

from collections.abc import Callable, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mas_sim.arch import Arch
from mas_sim.crossover import OVERWRITING, CrossoverPoint, SeriesResult, findings, too_long
from mas_sim.limits import MAX_SEQUENCE, SequenceLimit
from mas_sim.report import Report, exp_balance
from mas_sim.sweep import AUTO, Comparison, Misfit, Spread, misfit_words
from mas_sim.workload import Workload


def shape_of(workload: Workload) -> str:
    """A workload's shape in one line: `B 1, H 12, N 512, E 64, fp16`."""
    heads = f"{workload.heads}" if workload.kv_heads == workload.heads else f"{workload.heads}/{workload.kv_heads}"
    length = f"{workload.n_q}" if workload.n_q == workload.n_kv else f"{workload.n_q}x{workload.n_kv}"
    dims = (workload.head_dim_qk, workload.head_dim_v)
    head_dim = f"{dims[0]}" if dims[0] == dims[1] else f"{dims[0]}/{dims[1]}"
    return f"B {workload.batch}, H {heads}, N {length}, E {head_dim}, {workload.dtype}"


def plain_table(title: str, caption: str = "") -> Table:
    """Make an empty table; its title and caption are plain text."""
    return Table(
        title=Text(title, style="table.title"), caption=Text(caption, style="table.caption") if caption else None,
        box=box.SIMPLE_HEAD, title_justify="left", caption_justify="left",
    )  # fmt: skip


def _percent(share: float) -> str:
    return f"{round(100 * share, 1) + 0.0:.1f} %"  # the sum makes -0.0 a 0.0


def _by_network(title: str, columns: Sequence[str], caption: str = "") -> Table:
    """Make a table of one row a network; long names are folded, numbers never."""
    table = plain_table(title, caption)
    table.add_column("network", overflow="fold")
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def compare_tables(result: Comparison) -> list[RenderableType]:
    """Tables of a comparison: cycles and speedups; energies and savings; gaps to the bounds; and what is proven."""
    return [Group(_cycle_table(result), _energies_table(result), _gap_table(result), *_compare_notes(result))]


def _cell(result: Report | Misfit, text: str, asked: str) -> str:
    """A result's cell: where a dataflow was chosen, with its name."""
    if isinstance(result, Misfit):
        return "does not fit" if result.over_bytes else "too long"
    return f"{text} {result.schedule.dataflow}" if asked == AUTO else text


def _cycle_table(result: Comparison) -> Table:
    subject, names, baselines = result.subject, result.dataflows, result.baselines
    title = f"Cycles on {result.reports[0].arch.name}, each dataflow at its proven best tiling ({result.objective})"
    table = _by_network(title, [*names, *(f"over {name}" for name in baselines)], f"Over: speedup of {subject}.")
    for workload in result.workloads:
        cells = []
        for name in names:
            one = result.result(workload, name)
            cells.append(_cell(one, "" if isinstance(one, Misfit) else f"{one.cycles:,}", name))
        for name in baselines:
            out = workload in result.left_out(name)
            cells.append("-" if out else f"{result.speedup(workload, name):.3f}x")
        table.add_row(Text(workload), *cells)
    _add_spreads(table, len(names), [result.speedup_spread(name) for name in baselines], lambda v: f"{v:.3f}x")
    return table


def _energies_table(result: Comparison) -> Table:
    subject, names, baselines = result.subject, result.dataflows, result.baselines
    title = f"Energy in uJ ({result.reports[0].energy_level} values)"
    table = _by_network(title, [*names, *(f"vs {name}" for name in baselines)], f"Vs: what {subject} saves.")
    for workload in result.workloads:
        cells = []
        for name in names:
            one = result.result(workload, name)
            cells.append(_cell(one, "" if isinstance(one, Misfit) else f"{one.energy.total / 1e6:,.1f}", name))
        for name in baselines:
            out = workload in result.left_out(name)
            cells.append("-" if out else _percent(1 - result.energy_ratio(workload, name)))
        table.add_row(Text(workload), *cells)
    _add_spreads(table, len(names), [result.saving_spread(name) for name in baselines], _percent)
    return table


def _gap_table(result: Comparison) -> Table:
    table = _by_network("Gap: cycles above the lower bound, and what sets it", result.dataflows)
    for workload in result.workloads:
        cells = []
        for name in result.dataflows:
            one = result.result(workload, name)
            text = "" if isinstance(one, Misfit) else f"{_percent(one.gap_to_bound)} {one.bounds.limited_by:<7}"
            cells.append(_cell(one, text, ""))
        table.add_row(Text(workload), *cells)
    return table


def _add_spreads(table: Table, blanks: int, spreads: Sequence[Spread | None], write: Callable[[float], str]) -> None:
    """Add geometric mean, minimum and maximum rows, if there is anything to compare."""
    if not any(spreads):
        return
    table.add_section()
    for label, pick in (("geometric mean", "geomean"), ("minimum", "min"), ("maximum", "max")):
        table.add_row(label, *[""] * blanks, *("-" if s is None else write(getattr(s, pick)) for s in spreads))


def _compare_notes(result: Comparison) -> list[Text]:
    """What does not fit, what the means leave out, why `auto` chose what it did, and what the proofs are over."""
    misfits = [one for one in result.results if isinstance(one, Misfit)]
    lines = [f"{one.workload}: {one.dataflow} {misfit_words(one.over_bytes)}" for one in misfits]
    for name in result.baselines:
        left_out = result.left_out(name)
        if left_out:
            lines.append(f"means against {name} leave out {', '.join(left_out)}")
    common: dict[str, None] = {}
    for place, one in enumerate(result.results):
        if isinstance(one, Misfit):
            continue
        asked = result.dataflows[place % len(result.dataflows)]
        for note in one.notes:
            if asked == AUTO and note.startswith(AUTO):
                lines.append(f"{one.workload.name}: {note}")
            else:
                common[note] = None
    return [Text(f"note: {line}") for line in (*lines, *common)] + _proof_lines(result)


def _search(report: Report) -> dict[str, Any]:
    """The facts of the search that a report comes from: those of a comparison or a crossover all do."""
    assert report.search is not None
    return report.search


def _spaces_in_words(spaces: dict[str, str]) -> str:
    """Describe several spaces: what they have in common, then what each has beside it."""
    clauses = {name: space.split("; ") for name, space in spaces.items()}
    common = [clause for clause in next(iter(clauses.values())) if all(clause in own for own in clauses.values())]
    rest = {name: [clause for clause in own if clause not in common] for name, own in clauses.items()}
    return "; ".join([*common, *(f"{name}: {', '.join(own)}" for name, own in rest.items() if own)])


def _proof_lines(result: Comparison) -> list[Text]:
    """The spaces that the proofs are over, as they are for the first network; and how many tilings were left out."""
    first = result.reports[0].workload.name
    spaces = {r.schedule.dataflow: _search(r)["space"] for r in result.reports if r.workload.name == first}
    lines = [f"proven over, for {first}: {_spaces_in_words(spaces)}"]
    counts = {f"{r.workload.name} {r.schedule.dataflow}": _search(r)["too_long"] for r in result.reports}
    left_out = ", ".join(f"{count:,} of {name}" for name, count in counts.items() if count)
    if left_out:
        lines.append(f"not in these spaces, as too long to simulate: tilings, {left_out}")
    return [Text(line, style="table.caption") for line in lines]


def run_tables(report: Report) -> list[RenderableType]:
    """Tables of one report: result and bounds, energy by component, stalls by unit and cause."""
    return [Group(_result_table(report), _energy_table(report), _stall_table(report), *_notes(report))]


def _proof(report: Report) -> str:
    """Say what a proof is over."""
    if not report.proven_optimal or report.search is None:
        return ""
    count = report.search["too_long"]
    left_out = f"; {count:,} tilings left out, as too long to simulate" if count else ""
    return f"Proven over: {report.search['space']}{left_out}."


def _result_table(report: Report) -> Table:
    schedule, bounds = report.schedule, report.bounds
    title = f"{schedule.dataflow} of {report.workload.name} ({shape_of(report.workload)}) on {report.arch.name}"
    table = plain_table(title, _proof(report))
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
    depths += "" if tiling.softmax_in_place else f"; P apart, overwrite {tiling.overwrite}"
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
    if report.overwrite is not None:
        cost = report.overwrite
        what = f"of {tiling.overwrite.upper()}; {cost.reloaded_bytes:,} bytes loaded again; "
        what += f"{cost.stops:,} products stopped"
        table.add_row("overwrites", f"{cost.overwrites:,}", what)
        lost = f"MAC cycles lost and done again; {report.overwrite_energy_pj / 1e6:,.2f} uJ for both"
        table.add_row("redone", f"{cost.redone_mac_cycles:,}", lost)
    if report.audit is not None:
        table.add_row("audit", "ok" if report.audit.ok else "ILLEGAL", f"{len(schedule):,} instructions")
    if report.execution is not None:
        table.add_row("numerical error", f"{report.execution.max_abs_error:.2e}", "float32 against float64")
    return table


def _energy_table(report: Report) -> Table:
    table = plain_table(f"Energy ({report.energy_level} values)")
    parts = report.energy.as_dict()
    for name in parts:
        table.add_column(name if name != "total" else "total uJ", justify="right")
    table.add_row(*(f"{value / 1e6:,.2f}" for value in parts.values()))
    table.add_row(*(_percent(value / parts["total"]) for value in parts.values()))
    return table


def _stall_table(report: Report) -> Table:
    table = plain_table("Stall cycles of each unit, summed over the cores, by cause")
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


def limits_table(limits: Sequence[SequenceLimit], arch: Arch, head_dim: int, dtype: str) -> Table:
    """Table of the longest sequences: exactly, as a power of two, and what takes the bytes."""
    table = plain_table(
        f"Longest self-attention that fits L1 of {arch.name} (E {head_dim}, {dtype})",
        "The smallest tiling of each dataflow fits at this length, and not at one more. Limited by: the tensor with "
        "the most bytes of a core. So small a tiling is not a good one, and may be too long a schedule to simulate.",
    )
    table.add_column("dataflow")
    for name in ("cores active", "tokens", "power of two"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("limited by")
    for limit in limits:
        of = f"{limit.by_tensor[limit.limited_by]:,} of {limit.capacity_bytes:,} bytes"
        of += f", each of {limit.cores} cores" if arch.l1.shared and limit.cores > 1 else ""
        power = limit.tokens_power_of_two
        what = f"{limit.limited_by}: {of}" if limit.tokens < MAX_SEQUENCE else "nothing: the longest that there may be"
        table.add_row(limit.dataflow, f"{limit.cores}", f"{limit.tokens:,}", f"{power:,}{_binary(power)}", what)
    return table


def _binary(number: int) -> str:
    """Write a power of two in units of 1,024: ` = 2 M`."""
    for unit, size in (("M", 2**20), ("K", 2**10)):
        if number >= size:
            return f" = {number // size} {unit}"
    return ""


def crossover_tables(points: Sequence[CrossoverPoint], arch: Arch, workload: Workload, objective: str) -> Group:
    """Tables of a crossover: cycles and winner, then energy and DRAM traffic; and what they show."""
    names = list(points[0].results) if points else []
    where = f"{workload.name} on {arch.name}, each series at its proven best tiling ({objective})"
    cycles = plain_table(f"Cycles by sequence length: {where}", _series_words(names))
    cycles.add_column("N", justify="right", no_wrap=True)
    for name in names:
        cycles.add_column(name, justify="right", no_wrap=True)
    cycles.add_column("winner", no_wrap=True)
    moved = plain_table("Energy in uJ and DRAM traffic in MB (10^6 bytes)")
    moved.add_column("N", justify="right", no_wrap=True)
    moved.add_column("")
    for name in names:
        moved.add_column(name, justify="right", no_wrap=True)
    for point in points:
        results = point.results.values()
        cells = [_lines(one) if isinstance(one, Misfit) else _short(one.cycles, 0) for one in results]
        cycles.add_row(f"{point.tokens:,}", *cells, point.winner or "none")
        energies = ["-" if isinstance(one, Misfit) else _short(one.energy_pj / 1e6, 1) for one in results]
        traffic = ["-" if isinstance(one, Misfit) else _short(one.dram_bytes / 1e6, 1) for one in results]
        moved.add_row(f"{point.tokens:,}", "energy", *energies)
        moved.add_row("", "DRAM", *traffic, end_section=point is not points[-1])
    return Group(cycles, moved, *_finding_lines(points), *_crossover_notes(points))


def _lines(misfit: Misfit) -> str:
    """Say of a misfit what it is, in a column no wider than the numbers."""
    return f"does not fit\n(by {misfit.over_bytes:,}\nbytes)" if misfit.over_bytes else "too long\nto simulate"


def _short(value: float, digits: int) -> str:
    """Write a number, one that would be too wide for its column in millions."""
    text = f"{value:,.{digits}f}"
    return text if len(text) <= 15 else f"{value / 1e6:,.0f} M"


def _series_words(names: Sequence[str]) -> str:
    """Say what the series of `mas` are, and how the largest numbers are written."""
    words = {"mas": "mas: without overwrite. ", OVERWRITING: f"{OVERWRITING}: with overwrite of V or K. "}
    return "".join(text for name, text in words.items() if name in names) + "M: millions."


def _finding_lines(points: Sequence[CrossoverPoint]) -> list[Text]:
    labels = {
        "overwrite_pays": "overwrite pays at N =",
        "mas_loses_to_flat": "mas loses to flat, with overwrite and without, at N =",
        "nothing_fits": "nothing fits at N =",
    }
    lines = []
    for name, lengths in findings(points).items():
        lines.append(Text(f"{labels[name]} {_lengths(lengths) or 'none of these'}"))
    for point in points:
        scale = max((r.scale for r in point.results.values() if isinstance(r, SeriesResult)), default=1.0)
        if scale != 1.0:
            what = f"{point.simulated_heads} head(s) simulated, and scaled by {scale:g}: all would be too long"
            lines.append(Text(f"N = {point.tokens:,}: {what}"))
    for name, lengths in too_long(points).items():
        lines.append(Text(f"{name} fits, but is too long to simulate and so not compared, at N = {_lengths(lengths)}"))
    return lines


def _lengths(lengths: Sequence[int]) -> str:
    return ", ".join(f"{tokens:,}" for tokens in lengths)


def _crossover_notes(points: Sequence[CrossoverPoint]) -> list[Text]:
    """Notes of the reports, the spaces of the proofs at the first length, and tilings left out."""
    results = [(point.tokens, name, one) for point in points for name, one in point.results.items()]
    found = [(tokens, name, one.facts) for tokens, name, one in results if isinstance(one, SeriesResult)]
    notes = dict.fromkeys(note for _, _, facts in found for note in facts["notes"])
    lines = [Text(f"note: {note}") for note in notes]
    if found:
        first = found[0][0]
        spaces = {name: facts["search"]["space"] for tokens, name, facts in found if tokens == first}
        lines.append(Text(f"proven over, at N = {first:,}: {_spaces_in_words(spaces)}", style="table.caption"))
    left_out: dict[int, int] = {}
    for tokens, _, facts in found:
        left_out[tokens] = left_out.get(tokens, 0) + facts["search"]["too_long"]
    counts = ", ".join(f"{count:,} at N = {tokens:,}" for tokens, count in left_out.items() if count)
    if counts:
        text = f"not in these spaces, as too long to simulate: tilings, {counts}"
        lines.append(Text(text, style="table.caption"))
    return lines
