"""How soon searches come to the optimum, and whether a weak one would have changed the ranking."""

import math
import statistics

import numpy as np

from mas_sim import plots
from mas_sim.reproduce.book import Cell, Page
from mas_sim.reproduce.claims import beside
from mas_sim.reproduce.data import (
    BASELINE,
    SUBJECT,
    TIES,
    Data,
    Row,
    best_of,
    geomean,
    grouped,
    means_over_flat,
    percent,
    ratios,
    times,
    values_of,
)
from mas_sim.reproduce.networks import main_rows
from mas_sim.search import SEARCHERS, Budget, SearchSpace
from mas_sim.search.base import History

EVALUATIONS, SEEDS = 2000, 5
CONVERGING = ("bert_base", "vit_b_16", "t5_mini")
"""Networks whose searches are drawn: one for each length and head dimension of the smaller networks."""
NEAR = 0.01
"""A search has come to the optimum when it is this near to it."""

Histories = dict[str, list[History]]
"""The runs of each method, a seed each."""


# --- convergence ---


def convergence(page: Page, data: Data) -> None:
    """Write figure 7: how the methods of search come to the optimum."""
    points = {row["workload"]: row for row in main_rows(data, "latency") if row["dataflow"] == SUBJECT}
    page.text(
        f"""Each method searches the tilings of {SUBJECT} for the fewest cycles, {EVALUATIONS:,} evaluations (tilings
        simulated) from {SEEDS} seeds. The optimum is proven by exhaustive search, which looks at every tiling of the
        grid; that is what the paper's grid method does, so grid has no line of its own here."""
    )
    rows: list[list[Cell]] = []
    for name in CONVERGING:
        if name in points:
            rows += _network(page, data, points[name])
    head = ["network", "method", "seed", "optimum_cycles", "evaluations_to_within_1_percent", "gap_after_all"]
    page.rows(head, rows, "runs", "Every run", cases=True)
    _spread(page, rows)
    _beside_published(page, data, rows)


def _network(page: Page, data: Data, point: Row) -> list[list[Cell]]:
    """Search one network with every method, draw it, and return a row a run."""
    sweep, name, optimum = data.sweeps["paper_networks"], point["workload"], float(point["cycles"])
    space = SearchSpace(SUBJECT, sweep.arch, next(one for one in sweep.workloads if one.name == name))
    histories: Histories = {}
    for method, searcher in SEARCHERS.items():
        runs = [searcher().search(space, "latency", budget=Budget(EVALUATIONS), seed=seed) for seed in range(SEEDS)]
        histories[method] = [run.history for run in runs if run.history is not None]
    title = f"{SUBJECT} on {sweep.arch.name}, {name}: proven optimum {optimum:,.0f} cycles"
    figure = plots.convergence_figure(histories, optimum=optimum, title=title)
    page.heading(name)
    told = data.result(point["key"])["search"]
    page.figure(
        figure,
        f"figure7_{name}",
        f"{name}: fewest cycles so far over the evaluations, both axes logarithmic (the form of the paper's figure 7); "
        f"the optimum of {told['legal']:,} legal tilings was proven by simulating {told['simulated']:,} of them",
    )
    return [
        [name, method, seed, int(optimum), run.evaluations_to((1 + NEAR) * optimum), float(run.best[-1]) / optimum - 1]
        for method, found in histories.items()
        for seed, run in enumerate(found)
    ]


def _counts(rows: list[list[Cell]]) -> dict[tuple[str, str], list[float]]:
    """Return the evaluations that each run of a method took on a network, in rising order; infinite if it never did."""
    found: dict[tuple[str, str], list[float]] = {}
    for name, method, _, _, count, _ in rows:
        found.setdefault((str(name), str(method)), []).append(count if isinstance(count, int) else math.inf)
    return {key: sorted(counts) for key, counts in found.items()}


def _evaluations(count: float) -> str:
    """Write after how many evaluations a run was near the optimum."""
    return f"{count:,.0f}" if math.isfinite(count) else f"not in {EVALUATIONS:,}"


def _spread(page: Page, rows: list[list[Cell]]) -> None:
    """Write the table and the findings: median and worst seed of every method on every network."""
    counts = _counts(rows)
    last = {(str(name), str(method)): 0.0 for name, method, *_ in rows}
    for name, method, *_, gap in rows:
        last[str(name), str(method)] = max(last[str(name), str(method)], float(gap or 0.0))
    table: list[list[Cell]] = [
        [name, method, _evaluations(found[0]), _evaluations(_median(found)), _evaluations(found[-1]),
         f"{100 * last[name, method]:.2f} %"]
        for (name, method), found in counts.items()
    ]  # fmt: skip
    near = f"evaluations to within {percent(NEAR)} of the proven optimum"
    page.heading("Median and worst seed")
    page.table(["network", "method", "best seed", "median", "worst seed", "worst gap at the end"], table, near)
    for method in dict.fromkeys(method for _, method in counts):
        told = ", ".join(
            f"{name} {_evaluations(_median(found))} (worst seed {_evaluations(found[-1])})"
            for (name, own), found in counts.items()
            if own == method
        )
        page.finding(f"Evaluations until {method} is within {percent(NEAR)} of the proven optimum, median: {told}.")


def _median(counts: list[float]) -> float:
    """Return the median; of an even number the higher of the two in the middle, so that it is one of them."""
    return statistics.median_high(counts)


def _beside_published(page: Page, data: Data, rows: list[list[Cell]]) -> None:
    """Put the evaluations of MCTS beside the published count."""
    found = {name: _median(counts) for (name, method), counts in _counts(rows).items() if method == "mcts"}
    slowest = max(found, key=lambda name: found[name])
    why = (
        f"what an iteration is, and of which space, is not stated; ours: MCTS to within {percent(NEAR)} of the proven "
        f"optimum, the median seed on {slowest}, the slowest of {', '.join(found)}"
    )
    page.compare(beside(data.claims["convergence"], found[slowest] if math.isfinite(found[slowest]) else None, why))


# --- quality ---


def _excess(part: list[Row], proven: list[Row], column: str) -> dict[tuple[str, str], float]:
    """Return by what share a search's finds are above the proven optima, by network and dataflow."""
    optimum = values_of(proven, column)
    return {
        (net, flow): value / optimum[net][flow] - 1
        for net, one in values_of(part, column).items()
        for flow, value in one.items()
    }


def _other_winners(part: list[Row], proven: list[Row], column: str) -> list[str]:
    """Return the networks on which a search found a winner that is none of those within a tie of the best."""
    found, optimum = values_of(part, column), values_of(proven, column)
    return [
        net
        for net, one in found.items()
        if not set(best_of(one)) <= set(best_of({flow: optimum[net][flow] for flow in one}, TIES))
    ]


def quality(page: Page, data: Data) -> None:
    """Write whether a weak search would have changed the ranking."""
    points = data.done("search_quality")
    rows: list[list[Cell]] = []
    gaps: list[list[Cell]] = []
    lanes: dict[str, dict[str, float]] = {}
    wrong: dict[str, dict[int, list[str]]] = {}
    for (goal, budget), part in grouped(points, "search.objective", "search.evaluations").items():
        column = "cycles" if goal == "latency" else "total_pj"
        proven = data.done("paper_networks", search__objective=goal)
        excess = _excess(part, proven, column)
        gaps += [[goal, budget, net, flow, gap] for (net, flow), gap in excess.items()]
        others = _other_winners(part, proven, column)
        wrong.setdefault(goal, {})[budget] = others
        worst = max(excess, key=lambda pair: excess[pair])
        told = f"{100 * excess[worst]:.2f} %" + (f" ({', '.join(worst)})" if excess[worst] > 0 else "")
        mean = geomean([1 + gap for gap in excess.values()]) - 1
        found, optimum = values_of(part, column), values_of(proven, column)
        there = {net: one for net, one in optimum.items() if net in found}
        leads = [geomean(list(ratios(of, BASELINE, SUBJECT).values())) for of in (found, there)]
        rows.append(
            [goal, budget, f"{100 * mean:.2f} %", told,
             *map(times, leads), ", ".join(others) or "none"]
        )  # fmt: skip
        lanes[f"{goal}, {budget:,} evaluations"] = {"/".join(pair): gap for pair, gap in excess.items()}
    _quality_page(page, data, points, rows, lanes)
    page.rows(["objective", "evaluations", "network", "dataflow", "gap"], gaps, "gaps", "Every gap", cases=True)
    for goal, by_budget in wrong.items():
        page.finding(_told_wrong(points, goal, by_budget))


def _told_wrong(points: list[Row], goal: str, wrong: dict[int, list[str]]) -> str:
    """Say on which networks searches of some evaluations find another winner."""
    told = "; ".join(
        f"{budget:,} evaluations {len(names)}" + (f" ({', '.join(names)})" if names else "")
        for budget, names in wrong.items()
    )
    changed = [budget for budget, names in wrong.items() if names]
    verdict = f"Yes, with {max(changed):,} evaluations still" if changed else "No"
    networks = len({row["workload"] for row in points})
    return (
        f"Would a weak search (MCTS, one seed) have changed who wins by {goal}? {verdict}: of {networks} networks, "
        f"those whose winner is not within {percent(TIES)} of the proven best: {told}."
    )


def _coverage(points: list[Row]) -> str:
    """Say how many networks and dataflows there are."""
    networks, flows = ({row[column] for row in points} for column in ("workload", "dataflow"))
    return f"{len(networks)} networks and {len(flows)} dataflows"


def _quality_page(
    page: Page, data: Data, points: list[Row], rows: list[list[Cell]], lanes: dict[str, dict[str, float]]
) -> None:
    """Write what was searched, the table and the figure."""
    networks, flows = (list(dict.fromkeys(row[column] for row in points)) for column in ("workload", "dataflow"))
    every = main_rows(data, "latency")
    page.text(
        f"""Searched once more with MCTS, one seed: {", ".join(networks)}; dataflows {", ".join(flows)}. The lead of
        {SUBJECT} over {BASELINE} is of these {len(networks)} networks; that of the tables is of
        {len(values_of(every, "cycles"))} ({times(means_over_flat(every, "cycles"))} in cycles)."""
    )
    head = [
        "objective",
        "evaluations",
        "geometric mean of gaps",
        "worst gap",
        "flat / mas (cycles or energy), found",
        "proven",
        "another winner in",
    ]
    told = f"{_coverage(points)}, one seed, against the proven optimum; winners within {percent(TIES)} count as such"
    page.table(head, rows, f"MCTS, {told}")
    over = {lane: {name: 1 + gap for name, gap in found.items()} for lane, found in lanes.items()}
    figure = plots.distribution_figure(over, quantity="found by MCTS, over the proven optimum")
    page.figure(figure, "gaps", f"What MCTS found, over the proven optimum: {_coverage(points)}, one seed")
    least = min(np.unique([row["search.evaluations"] for row in points]).tolist())
    worst = max((gap, name, lane) for lane, found in lanes.items() for name, gap in found.items())
    page.finding(
        f"Over {_coverage(points)} ({', '.join(networks)}; {', '.join(flows)}), MCTS from one seed stays at most "
        f"{percent(worst[0])} above the proven optimum ({worst[1]}, {worst[2]}; the fewest tried are {least:,})."
    )


__all__ = ["convergence", "quality"]
