"""Tables of a comparison of dataflows: as one of cycles and one of energies, or, of many dataflows, as several."""

from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from mas_sim._table_parts import balance_words, number_tables, percent, spaces_in_words
from mas_sim.comparison import AUTO, Comparison, Misfit, Spread, misfit_words
from mas_sim.report import Report

MAX_TOGETHER = 3
"""Dataflows whose figures and ratios stand in one table; of more they stand in tables of their own."""


def compare_tables(result: Comparison) -> Group:
    """Tables of a comparison: cycles and speedups; energies and savings; gaps to the bounds; and what is proven."""
    tables = [*_cycle_tables(result), *_energy_tables(result), *_gap_tables(result)]
    if len(result.dataflows) > MAX_TOGETHER:
        tables += _best_tables(result)
    runs = [(r.workload, r.schedule.dataflow, r.schedule.tiling.exp_on) for r in result.reports]
    balance = Text(balance_words(result.reports[0].arch, runs))
    return Group(*tables, *_summary(result), balance, *_notes(result))


def checks_words(reports: Sequence[Report]) -> str:
    """Say in one line what the audits and the numerical checks of reports came to."""
    legal = sum(one.audit is not None and one.audit.ok for one in reports)
    errors = [one.execution.max_abs_error for one in reports if one.execution is not None]
    every = len(reports)
    worst = f", largest error {max(errors):.1e}" if errors else ""
    if len(errors) == every:
        return f"audited and executed: {legal} of {every} legal{worst}"
    return f"audited: {legal} of {every} legal; executed: {len(errors)} of {every}{worst}"


def _result_cells(result: Comparison, workload: str, write: Callable[[Report], str], *, chosen: bool) -> list[str]:
    """Write one cell for each dataflow; where a dataflow was chosen (`auto`), with its name."""
    cells = []
    for name in result.dataflows:
        one = result.result(workload, name)
        if isinstance(one, Misfit):
            cells.append("does not fit" if one.over_bytes else "too long")
        else:
            cells.append(f"{write(one)} {one.schedule.dataflow}" if chosen and name == AUTO else write(one))
    return cells


def _ratio_cells(
    result: Comparison, workload: str, ratio: Callable[[str, str], float], write: Callable[[float], str]
) -> list[str]:
    """Write one cell for each baseline; a dash where there is nothing to compare."""
    return ["-" if workload in result.left_out(name) else write(ratio(workload, name)) for name in result.baselines]


def _with_ratios(
    result: Comparison,
    titles: tuple[str, str],
    heads: tuple[str, str],
    cells: dict[str, list[str]],
    ratios: dict[str, list[str]],
    spreads: list[list[str]],
) -> list[Table]:
    """Make the tables of a figure and of the subject's ratio to each baseline.

    Parameters
    ----------
    titles, heads
        Titles of the figure's and of the ratio's table; what stands before a baseline's name in one table of both, and
        what that means.
    cells, ratios
        Cells by workload.
    spreads
        Rows of geometric mean, minimum and maximum of the ratios, their label in front; none if there are none.
    """
    names, over = list(result.dataflows), [f"{heads[0]} {name}" for name in result.baselines]
    together = len(names) <= MAX_TOGETHER
    sections = {len(cells) - 1} if spreads else set()
    if together:
        rows = [([name], [*cells[name], *ratios[name]]) for name in cells]
        rows += [([label], [*[""] * len(names), *values]) for label, *values in spreads]
        return number_tables(titles[0], ["network"], [*names, *over], rows, caption=heads[1], sections=sections)
    plain = number_tables(titles[0], ["network"], names, [([name], cells[name]) for name in cells])
    rows = [([name], ratios[name]) for name in ratios]
    rows += [([label], values) for label, *values in spreads]
    return plain + number_tables(titles[1], ["network"], list(result.baselines), rows, sections=sections)


def _spread_rows(spreads: Sequence[Spread | None], write: Callable[[float], str]) -> list[list[str]]:
    """Rows of geometric mean, minimum and maximum, if there is anything to compare."""
    if not any(spreads):
        return []
    labels = (("geometric mean", "geomean"), ("minimum", "min"), ("maximum", "max"))
    return [[label, *("-" if s is None else write(getattr(s, pick)) for s in spreads)] for label, pick in labels]


def _times(value: float) -> str:
    return f"{value:.3f}x"


def _cycle_tables(result: Comparison) -> list[Table]:
    title = f"Cycles on {result.reports[0].arch.name}, each dataflow at its proven best tiling ({result.objective})"
    return _with_ratios(
        result,
        (title, f"Speedup of {result.subject} over each of the others"),
        ("over", f"Over: speedup of {result.subject}."),
        {w: _result_cells(result, w, lambda one: f"{one.cycles:,}", chosen=True) for w in result.workloads},
        {w: _ratio_cells(result, w, result.speedup, _times) for w in result.workloads},
        _spread_rows([result.speedup_spread(name) for name in result.baselines], _times),
    )


def _energy_tables(result: Comparison) -> list[Table]:
    title = f"Energy in uJ ({result.reports[0].energy_level} values)"

    def saving(workload: str, baseline: str) -> float:
        return 1 - result.energy_ratio(workload, baseline)

    def energy(one: Report) -> str:
        return f"{one.energy.total / 1e6:,.1f}"

    return _with_ratios(
        result,
        (title, f"Energy that {result.subject} saves against each of the others"),
        ("vs", f"Vs: what {result.subject} saves."),
        {w: _result_cells(result, w, energy, chosen=True) for w in result.workloads},
        {w: _ratio_cells(result, w, saving, percent) for w in result.workloads},
        _spread_rows([result.saving_spread(name) for name in result.baselines], percent),
    )


def _gap_tables(result: Comparison) -> list[Table]:
    def gap(one: Report) -> str:
        return f"{percent(one.gap_to_bound)} {one.bounds.limited_by:<7}"

    rows = [([w], _result_cells(result, w, gap, chosen=False)) for w in result.workloads]
    title = "Gap: cycles above the lower bound, and what sets it"
    return number_tables(title, ["network"], result.dataflows, rows)


def _best_tables(result: Comparison) -> list[Table]:
    """Say which dataflow is best for each network, and how far behind the next one is."""
    rows = []
    for workload in result.workloads:
        values = result.values(workload)
        best = result.best(workload)
        others = sorted((name for name in values if name not in best), key=lambda name: values[name])
        behind = f"{others[0]} +{100 * (values[others[0]] / values[best[0]] - 1):.2f} %" if others else "-"
        rows.append(([workload], [", ".join(best) or "none", behind]))
    return number_tables(f"Best dataflow ({result.objective}), and the next", ["network"], ["best", "next"], rows)


def _summary(result: Comparison) -> list[Text]:
    """Geometric means of many dataflows in one line."""
    spreads = {name: result.speedup_spread(name) for name in result.baselines if name != AUTO}
    means = [f"{name} {spread.geomean:.2f}x" for name, spread in spreads.items() if spread is not None]
    if len(result.dataflows) <= MAX_TOGETHER or not means:
        return []
    return [Text(f"speedup of {result.subject}, geometric means: over {', '.join(means)}")]


def _notes(result: Comparison) -> list[Text]:
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


def _proof_lines(result: Comparison) -> list[Text]:
    """The spaces that the proofs are over, as they are for the first network; and how many tilings were left out."""
    first = result.reports[0].workload.name
    spaces = {r.schedule.dataflow: _search(r)["space"] for r in result.reports if r.workload.name == first}
    lines = [f"proven over, for {first}: {spaces_in_words(spaces)}"]
    counts = {f"{r.workload.name} {r.schedule.dataflow}": _search(r)["too_long"] for r in result.reports}
    left_out = ", ".join(f"{count:,} of {name}" for name, count in counts.items() if count)
    if left_out:
        lines.append(f"not in these spaces, as too long to simulate: tilings, {left_out}")
    return [Text(line, style="table.caption") for line in lines]
