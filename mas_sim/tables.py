"""Tables for the terminal, at most 100 columns wide: of a run, of limits and of a crossover."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mas_sim._table_parts import balance_words, number_tables, percent, plain_table, spaces_in_words
from mas_sim.arch import Arch
from mas_sim.comparison import Misfit
from mas_sim.crossover import OVERWRITING, CrossoverPoint, SeriesResult, findings, too_long
from mas_sim.dataflows import get_dataflow
from mas_sim.limits import MAX_SEQUENCE, SequenceLimit
from mas_sim.report import Report
from mas_sim.workload import Workload


def shape_of(workload: Workload) -> str:
    """A workload's shape in one line: `B 1, H 12, N 512, E 64, fp16`, then its mask: `causal` or `window 4095+0`."""
    heads = f"{workload.heads}" if workload.kv_heads == workload.heads else f"{workload.heads}/{workload.kv_heads}"
    length = f"{workload.n_q}" if workload.n_q == workload.n_kv else f"{workload.n_q}x{workload.n_kv}"
    dims = (workload.head_dim_qk, workload.head_dim_v)
    head_dim = f"{dims[0]}" if dims[0] == dims[1] else f"{dims[0]}/{dims[1]}"
    masks = {"none": "", "causal": ", causal"}
    mask = masks.get(workload.mask, f", window {workload.window_back}+{workload.window_ahead}")
    default = workload.accumulator == ("int32" if workload.dtype == "int8" else "fp32")
    dtype = workload.dtype if default else f"{workload.dtype} into {workload.accumulator}"
    return f"B {workload.batch}, H {heads}, N {length}, E {head_dim}, {dtype}{mask}"


_FUSED = {
    "M": "all batches, heads and rows",
    "B": "one or more batches with all their heads and rows",
    "H": "heads with all their rows",
    "R": "some rows",
}
_OVERLAPS = {
    "none": "MAC and VEC in turn",
    "ping_pong": "two row blocks in turn",
    "pipelined": "over kv tiles",
}
_NORMALIZE = {"divide": "one division an element", "reciprocal": "one reciprocal a row, one multiply an element"}


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
    _add_choices(table, report)
    table.add_row("cycles", f"{report.cycles:,}", f"{report.time_us:,.2f} us at {report.arch.clock_ghz:g} GHz")
    limits = f"MAC {bounds.mac_cycles:,}, VEC {bounds.vec_cycles:,}, DRAM {bounds.dram_cycles:,}"
    table.add_row("lower bound", f"{bounds.lower_cycles:,}", f"{bounds.limited_by}; {limits}")
    table.add_row("gap to bound", percent(report.gap_to_bound), "")
    shares = ", ".join(f"{name.upper()} {percent(value)}" for name, value in report.utilization.items())
    table.add_row("utilization", percent(report.utilization["mac"]), shares)
    read, write = int(report.meter_counts[0]), int(report.meter_counts[1])
    table.add_row("DRAM bytes", f"{report.dram_bytes:,}", f"{read:,} read, {write:,} written")
    capacity = report.arch.l1.capacity_bytes
    table.add_row("L1 peak bytes", f"{schedule.l1_peak_bytes:,}", f"of {capacity:,}")
    balance = report.exp_balance
    given = "exp on the MAC array" if tiling.exp_on == "mac" else f"VEC gives {balance.available_per_cycle:.3g}/cycle"
    words = f"exp rate that keeps MAC busy; {given}"
    table.add_row("softmax rate needed", f"{balance.needed_per_cycle:.3g}/cycle", words)
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


def _add_choices(table: Table, report: Report) -> None:
    """Add the choices that only some dataflows have, how softmax divides, and the mask."""
    workload, tiling, flow = report.workload, report.schedule.tiling, get_dataflow(report.schedule.dataflow)
    if flow.name == "flat":
        letter = tiling.granularity(workload)
        table.add_row("granularity", letter, f"fused at once: {_FUSED[letter]}")
    if len(flow.overlaps) > 1:
        table.add_row("overlap", tiling.overlap, _OVERLAPS[tiling.overlap])
    unit = tiling.exp_on.upper()
    if len(flow.exp_on) > 1:
        table.add_row("exp on", unit, "with local maximum and sum" if tiling.exp_on == "mac" else "")
    table.add_row("normalize", report.arch.vec.normalize, _NORMALIZE[report.arch.vec.normalize])
    if workload.mask != "none":
        kept = f"{workload.kept_scores:,} of {workload.scores:,} scores count"
        table.add_row("mask", workload.mask, f"{kept}, {percent(workload.kept_scores / workload.scores)}")


def _energy_table(report: Report) -> Table:
    table = plain_table(f"Energy ({report.energy_level} values)")
    parts = report.energy.as_dict()
    for name in parts:
        table.add_column(name if name != "total" else "total uJ", justify="right")
    table.add_row(*(f"{value / 1e6:,.2f}" for value in parts.values()))
    table.add_row(*(percent(value / parts["total"]) for value in parts.values()))
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
    cycles, moved = [], []
    for point in points:
        results, tokens = point.results.values(), f"{point.tokens:,}"
        cells = [_lines(one) if isinstance(one, Misfit) else _short(one.cycles, 0) for one in results]
        cycles.append(([tokens], [*cells, point.winner or "none"]))
        energies = ["-" if isinstance(one, Misfit) else _short(one.energy_pj / 1e6, 1) for one in results]
        traffic = ["-" if isinstance(one, Misfit) else _short(one.dram_bytes / 1e6, 1) for one in results]
        moved += [([tokens, "energy"], energies), (["", "DRAM"], traffic)]
    title, words = f"Cycles by sequence length: {where}", _series_words(names)
    sections = range(1, len(moved) - 1, 2)
    tables = number_tables(title, ["N"], [*names, "winner"], cycles, caption=words, lead_right=True)
    title = "Energy in uJ and DRAM traffic in MB (10^6 bytes)"
    tables += number_tables(title, ["N", ""], names, moved, sections=sections, lead_right=True)
    return Group(*tables, *_finding_lines(points), *_balance_lines(points, arch, workload), *_crossover_notes(points))


def _balance_lines(points: Sequence[CrossoverPoint], arch: Arch, workload: Workload) -> list[Text]:
    """The MAC/VEC balance, which no length changes; none if nothing was run."""
    results = [one for point in points for one in point.results.values() if isinstance(one, SeriesResult)]
    runs = [(workload, one.facts["dataflow"], one.facts["tiling"]["exp_on"]) for one in results]
    return [Text(balance_words(arch, runs))] if runs else []


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
        lines.append(Text(f"proven over, at N = {first:,}: {spaces_in_words(spaces)}", style="table.caption"))
    left_out: dict[int, int] = {}
    for tokens, _, facts in found:
        left_out[tokens] = left_out.get(tokens, 0) + facts["search"]["too_long"]
    counts = ", ".join(f"{count:,} at N = {tokens:,}" for tokens, count in left_out.items() if count)
    if counts:
        text = f"not in these spaces, as too long to simulate: tilings, {counts}"
        lines.append(Text(text, style="table.caption"))
    return lines
