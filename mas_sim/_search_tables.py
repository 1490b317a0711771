"""Tables of a search for the terminal, at most 100 columns wide: one run, several runs, and a Pareto front."""

import math
from collections.abc import Callable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mas_sim._search_outcome import NEAR, Outcome, outside
from mas_sim._table_parts import percent, plain_table
from mas_sim.arch import Arch
from mas_sim.dataflows import get_dataflow
from mas_sim.search.base import SearchResult, Trial
from mas_sim.search.pareto import ParetoFront
from mas_sim.tables import shape_of
from mas_sim.tiling import Tiling
from mas_sim.workload import Workload


def tiling_words(dataflow: str, tiling: Tiling, arch: Arch, workload: Workload) -> list[tuple[str, str]]:
    """Say what a tiling chooses, with the name of each choice; those that a dataflow does not have are left out."""
    flow, tiles = get_dataflow(dataflow), tiling.kv_tiles(workload)
    words = [
        ("tiling", f"{tiling.batch_tile} x {tiling.head_tile} heads, q {tiling.q_tile}, kv {tiling.kv_tile}"),
        ("kept in L1", f"K {tiling.k_resident_tiles}, V {tiling.v_resident_tiles} of {tiles}"),
        (
            "buffers",
            f"Q {tiling.q_buffers} K {tiling.k_buffers} V {tiling.v_buffers} C/P {tiling.score_buffers} "
            f"O {tiling.o_buffers}",
        ),
    ]
    if arch.cores > 1:
        words.append(("cores split by", tiling.core_split))
    if not tiling.softmax_in_place:
        words.append(("P", f"apart, overwrite {tiling.overwrite}"))
    if flow.name == "flat":
        words.append(("granularity", tiling.granularity(workload)))
    if len(flow.overlaps) > 1:
        words.append(("overlap", tiling.overlap))
    if len(flow.exp_on) > 1:
        words.append(("exp on", tiling.exp_on.upper()))
    return words


def run_search_table(outcome: Outcome, arch: Arch, workload: Workload) -> Table:
    """Table of a single run: what it found, how far that is from the optimum, and how it came to it."""
    run, result = outcome.runs[0], outcome.chosen
    best = result.best
    title = f"{run.method} search of {shape_words(workload)} on {arch.name}"
    table = plain_table(title, f"Space: {result.space}.")
    table.add_column("quantity")
    table.add_column("value", justify="right")
    table.add_column("", justify="left")
    sizes = f"{result.legal:,} legal tilings, of {result.space_size:,}"
    if result.too_long:
        sizes += f"; {result.too_long:,} too long to simulate"
    _row(table, "dataflow", best.dataflow, sizes)
    for name, words in tiling_words(best.dataflow, best.tiling, arch, workload):
        _row(table, name, words)
    _row(table, "cycles", f"{best.cycles:,}", f"{best.cycles / arch.clock_ghz / 1e3:,.2f} us at {arch.clock_ghz:g} GHz")
    _row(table, "energy uJ", f"{best.energy_pj / 1e6:,.2f}", f"DRAM bytes {best.dram_bytes:,}")
    _row(table, "objective", value_words(outcome, best.value), outcome.objective.describe())
    _row(table, "gap to optimum", *_gap_words(outcome, result))
    pruned = f"; {result.pruned:,} pruned by bounds" if result.pruned else ""
    _row(table, "evaluations", f"{result.simulated:,}", _near_words(outcome, result) + pruned)
    _row(table, "seconds", f"{result.seconds:,.2f}", f"{percent(outside(result))} outside simulation")
    _row(table, "stopped", "interrupted" if outcome.interrupted else result.stopped)
    if run.seed is not None:
        _row(table, "seed", str(run.seed))
    _row(table, "settings", "", result.settings)
    return table


def shape_words(workload: Workload) -> str:
    """Name a workload, with its shape."""
    return f"{workload.name} ({shape_of(workload)})"


def value_words(outcome: Outcome, value: float) -> str:
    """Write a value of the objective."""
    number = f"{value:,.0f}" if outcome.objective.name == "latency" else f"{value:.6g}"
    return f"{number} {outcome.unit}".strip()


def _row(table: Table, *cells: str) -> None:
    """Add a row of plain text."""
    table.add_row(*map(Text, cells))


def _gap_words(outcome: Outcome, result: SearchResult) -> tuple[str, str]:
    """Say how far a result is from the optimum, and how that is known."""
    gap = outcome.gap(result)
    if math.isnan(gap):
        return "unknown", "the optimum was not proven"
    if result.proven_optimal:
        return percent(gap), "proven optimal"
    if outcome.proven is not None:
        return _share(gap), f"the proven optimum is {value_words(outcome, outcome.proven.best.value)}"
    return f"<= {_share(gap)}", f"no tiling is below {value_words(outcome, result.lower_bound or 0.0)}"


def _near_words(outcome: Outcome, result: SearchResult) -> str:
    """Say after how many evaluations a search was near the optimum."""
    count = outcome.evaluations_to_near(result)
    if math.isnan(count):
        return "simulated" if result.history is None else ""
    if math.isinf(count):
        return f"never within {NEAR:.0%} of the optimum"
    return f"within {NEAR:.0%} of the optimum after {count:,.0f}"


def _share(share: float) -> str:
    """Write a gap in per cent; two decimals, as gaps of good methods are small."""
    return f"{100 * share:.2f} %"


def methods_tables(outcome: Outcome, arch: Arch, workload: Workload) -> list[RenderableType]:
    """Table of several runs, one row a method; then the best tiling, and the settings."""
    best = outcome.chosen
    title = f"search of {shape_words(workload)} on {arch.name}: {outcome.objective.describe()}"
    table = plain_table(title)
    table.add_column("method", no_wrap=True)
    for name in ("seeds", "median gap", "worst gap", "to 1 %", "reached", "evaluations", "seconds", "outside"):
        table.add_column(name, justify="right", no_wrap=True)
    for method in outcome.methods:
        row = outcome.summary(method)
        near = row["median_evaluations_to_1_percent"]
        cells = [
            _known(row["median_gap"], _share), _known(row["worst_gap"], _share),
            _known(near, lambda count: f"{count:,.0f}", "never"), f"{row['runs_within_1_percent']} of {row['runs']}",
            _known(row["median_evaluations"], lambda count: f"{count:,.0f}"),
            _known(row["median_seconds"], lambda seconds: f"{seconds:,.2f}"),
            _known(row["median_share_outside_simulation"], percent),
        ]  # fmt: skip
        _row(table, method, str(row["runs"]), *cells)
    if outcome.proof is not None and outcome.proof.proven_optimal:
        proof = outcome.proof
        cells = ["-", percent(0.0), percent(0.0), "-", "-", f"{proof.simulated:,}", f"{proof.seconds:,.2f}"]
        _row(table, "exhaustive", *cells, percent(outside(proof)))
    proven = "proven optimum" if best.proven_optimal else "best found, not proven"
    words = ", ".join(
        f"{name} {text}" for name, text in tiling_words(best.best.dataflow, best.best.tiling, arch, workload)
    )
    lines = [
        f"{proven}: {value_words(outcome, best.best.value)}, {best.best.dataflow}: {words.removeprefix('tiling ')}",
        f"medians over the seeds; to 1 %: evaluations to within {NEAR:.0%} of the proven optimum, reached by so many "
        "seeds; outside: share of the time outside simulation",
        *_settings(outcome),
        f"space: {best.space}",
    ]
    return [Group(table, *map(Text, lines))]


def _settings(outcome: Outcome) -> list[str]:
    """Say with which settings each method ran."""
    results = [(method, [run.result for run in outcome.runs_of(method)]) for method in outcome.methods]
    first = [(method, next((result for result in of if result is not None), None)) for method, of in results]
    return [f"{method}: {result.settings}" for method, result in first if result is not None]


def _known(value: float, words: Callable[[float], str], infinite: str = "none found") -> str:
    """Write a number that may not be known, or may be infinite."""
    if math.isnan(value):
        return "-"
    return infinite if math.isinf(value) else words(value)


def front_tables(front: ParetoFront, arch: Arch, workload: Workload) -> list[RenderableType]:
    """Table of a Pareto front, from the fastest tiling to the thriftiest."""
    title = f"Pareto front of cycles and energy of {shape_words(workload)} on {arch.name}"
    proof = "Proven" if front.proven else "Interrupted: the front of the tilings simulated only"
    counts = f"{front.legal:,} legal tilings, {front.simulated:,} simulated, the others beaten by bounds"
    table = plain_table(title, f"{proof}: {counts}. Space: {front.space}.")
    for name in ("cycles", "energy uJ"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("dataflow", "tiling"):
        table.add_column(name)
    for trial in front.trials:
        cells = (f"{trial.cycles:,}", f"{trial.energy_pj / 1e6:,.3f}", trial.dataflow)
        _row(table, *cells, _one_line(trial, arch, workload))
    return [table]


def _one_line(trial: Trial, arch: Arch, workload: Workload) -> str:
    """Say what a tiling chooses in a line."""
    (_, sizes), *rest = tiling_words(trial.dataflow, trial.tiling, arch, workload)
    return "; ".join([sizes, *(f"{name} {words}" for name, words in rest)])
