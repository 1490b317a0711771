"""The open questions: the MAC:VEC ratio, what VEC cost 2.75x would take, the objective, and the quality of search."""

import math

from mas_sim import plots
from mas_sim.reproduce.book import Cell, Page
from mas_sim.reproduce.claims import beside
from mas_sim.reproduce.data import (
    BASELINE,
    SUBJECT,
    Data,
    Row,
    best_of,
    geomean,
    grouped,
    percent,
    ratios,
    times,
    values_of,
)
from mas_sim.reproduce.networks import main_rows
from mas_sim.search import SEARCHERS, Budget, SearchSpace

SAME = 1e-3
"""A search that found another winner, this near to the best, has found a best one."""
EVALUATIONS, SEEDS = 2000, 5


def ideal(r: float) -> float:
    """Return the speedup of a perfect overlap of MAC and VEC over none, VEC taking `r` times as long as MAC.

    Two units in turn take 1 + r, side by side the longer of 1 and r (in units of MAC time); our own derivation.
    """
    return (1 + r) / max(1.0, r)


def _ratio_rows(data: Data) -> list[Row]:
    """Return r and the speedup of MAS over FLAT, by network, from the sweeps of lanes and of the cost of exp."""
    found: list[Row] = []
    for name in ("mac_vec_ratio", "exp_cost"):
        axis = data.sweeps[name].axes[0]
        for (workload, value), part in grouped(data.done(name), "workload", axis).items():
            flows = {row["dataflow"]: row for row in part}
            if not {BASELINE, SUBJECT} <= flows.keys():
                continue
            flat = flows[BASELINE]
            r = flat["exp_needed_per_cycle"] / flat["exp_available_per_cycle"]
            speedup = flat["cycles"] / flows[SUBJECT]["cycles"]
            facts = {"sweep": name, "axis": axis, "value": value, "workload": workload}
            found.append({**facts, "r": float(f"{r:.4g}"), "speedup": speedup, "ideal": ideal(r)})
    return found


def ratio(page: Page, data: Data) -> None:
    """Write whether the speedup follows the ratio of VEC to MAC time."""
    rows = _ratio_rows(data)
    lanes = [row for row in rows if row["sweep"] == "mac_vec_ratio"]
    page.text(
        "r is the time that the vector unit needs for the scores of a head over the time that the MAC array needs for "
        "its products, both with nothing else in the way. FLAT runs them in turn, 1 + r; a perfect overlap takes "
        "max(1, r)."
    )
    shown = [{"r": row["r"], "speedup of mas over flat": row["speedup"], "network": row["workload"]} for row in lanes]
    figure = plots.sweep_figure(
        shown, "r", y="speedup of mas over flat", by="network", ideal=ideal, ideal_name="(1 + r) / max(1, r)"
    )
    page.figure(figure, "ideal", "Speedup of mas over flat against the ideal, as the vector unit gets wider")
    table = [
        [row["workload"], row["r"], times(row["speedup"]), times(row["ideal"]), percent(row["speedup"] / row["ideal"])]
        for row in lanes
    ]
    page.table(["network", "r", "mas over flat", "ideal", "share"], table, "`mas-sim sweep mac_vec_ratio`")
    columns = ("sweep", "axis", "value", "workload", "r", "speedup", "ideal")
    page.data(rows, columns, "points", "Every figure, with those of the sweep of exp")
    for words, part in (
        ("As long as MAC is the limit (r up to 1)", [row for row in lanes if row["r"] <= 1]),
        ("Where VEC is the limit (r above 1)", [row for row in lanes if row["r"] > 1]),
    ):
        shares = [row["speedup"] / row["ideal"] for row in part]
        if shares:
            ends = f"{percent(min(shares))} to {percent(max(shares))}"
            page.finding(f"{words}, the speedup over FLAT is {ends} of the ideal (1 + r) / max(1, r).")
    peak = max(rows, key=lambda row: float(row["speedup"]))
    page.finding(
        f"The greatest speedup in both sweeps is {times(peak['speedup'])} ({peak['workload']}, r = {peak['r']:g})."
    )
    _what_it_takes(page, data, peak["speedup"])


def _what_it_takes(page: Page, data: Data, greatest: float) -> None:
    """Solve for the cost of VEC at which the published speedup would come out."""
    published = data.claims["cycles_max"].low
    page.heading(f"What VEC cost would it take to reach {published:g}x?")
    slack = max(
        row["gap_to_bound"] for name in ("mac_vec_ratio", "exp_cost") for row in data.done(name, dataflow=BASELINE)
    )
    most = max(ideal(k / 1000) for k in range(1, 100_000))
    page.text(
        f"""MAS takes at least max(MAC, VEC). FLAT's own bound is max(DRAM, MAC + VEC), and in these sweeps its optima
        are at most {percent(slack)} above it. So where DRAM is not the limit, the speedup is at most
        (1 + r) / max(1, r) times one plus that share. The first factor is {most:.2f} at r = 1 and less elsewhere:
        (1 + r) / max(1, r) = {published:g} has no solution. At r = 1, FLAT's best tiling would have to be
        {percent(published / most - 1)} above its bound."""
    )
    page.finding(
        f"No VEC cost reaches the published {published:g}x: a perfect overlap gains {most:.2f}x at most, at r = 1, and "
        f"the most that was simulated is {times(greatest)}. It takes a FLAT that is {percent(published / most - 1)} "
        "above its own bound, and so is not at its best tiling."
    )


def objectives(page: Page, data: Data) -> None:
    """Write what an energy objective changes."""
    rows: list[list[Cell]] = []
    means: dict[str, dict[str, float]] = {}
    for goal in ("latency", "energy"):
        points = main_rows(data, goal)
        cycles, energy = values_of(points, "cycles"), values_of(points, "total_pj")
        for flow in dict.fromkeys(row["dataflow"] for row in points):
            if flow == SUBJECT:
                continue
            speedup = geomean(list(ratios(cycles, flow, SUBJECT).values()))
            saved = 1 - geomean(list(ratios(energy, SUBJECT, flow).values()))
            rows.append([goal, flow, times(speedup), percent(saved)])
            means.setdefault(flow, {})[goal] = saved
    head = ["objective", "against", "speedup of mas", "energy that mas saves"]
    page.table(head, rows, "Geometric means over the networks, each dataflow at its proven optimum of that objective")
    page.rows(head, rows, "objectives", "The table")
    flat = means[BASELINE]
    wider = "widens" if flat["energy"] > flat["latency"] else "does not widen"
    page.finding(
        f"An energy objective {wider} the lead in energy over FLAT: {percent(flat['latency'])} at the optima of "
        f"latency, {percent(flat['energy'])} at those of energy."
    )
    ahead = [flow for flow, one in means.items() if one["energy"] < 0]
    page.finding(f"At the optima of energy these take less than MAS (geometric mean): {', '.join(ahead) or 'none'}.")


def quality(page: Page, data: Data) -> None:
    """Write whether a weak search would have changed the ranking."""
    rows: list[list[Cell]] = []
    gaps: list[list[Cell]] = []
    wrong: dict[int, int] = {}
    for (goal, budget), part in grouped(data.done("search_quality"), "search.objective", "search.evaluations").items():
        column = "cycles" if goal == "latency" else "total_pj"
        found, proven = values_of(part, column), values_of(data.done("paper_networks", search__objective=goal), column)
        optimum = {net: {flow: proven[net][flow] for flow in one} for net, one in found.items()}
        excess = [
            (value / optimum[net][flow] - 1, net, flow) for net, one in found.items() for flow, value in one.items()
        ]
        gaps += [[goal, budget, net, flow, gap] for gap, net, flow in excess]
        others = [net for net, one in found.items() if not set(best_of(one)) <= set(best_of(optimum[net], SAME))]
        wrong[budget] = wrong.get(budget, 0) + len(others)
        mean, worst = geomean([1 + gap for gap, _, _ in excess]) - 1, max(excess)
        leads = [geomean(list(ratios(of, BASELINE, SUBJECT).values())) for of in (found, optimum)]
        rows.append(
            [goal, budget, f"{100 * mean:.2f} %", f"{100 * worst[0]:.2f} % ({worst[1]}, {worst[2]})",
             *map(times, leads), ", ".join(others) or "none"]
        )  # fmt: skip
    head = ["objective", "evaluations", "mean gap", "worst gap", "flat over mas, found", "proven", "another winner in"]
    same = f"winners within {percent(SAME)} of the best count as such"
    page.table(head, rows, f"MCTS, one seed, against the proven optimum; {same}")
    page.rows(["objective", "evaluations", "network", "dataflow", "gap"], gaps, "gaps", "Every gap")
    told = ", ".join(f"{count} at {budget:,} evaluations" for budget, count in sorted(wrong.items()))
    page.finding(
        f"Networks whose winner a search of so few evaluations would have got wrong, in both tables together: {told}."
    )


def convergence(page: Page, data: Data) -> None:
    """Write figure 7: how the methods of search come to the optimum."""
    sweep = data.sweeps["paper_networks"]
    workload = next(one for one in sweep.workloads if one.name == ("vit_b_16" if data.quick else "bert_base"))
    space = SearchSpace(SUBJECT, sweep.arch, workload)
    runs = {
        name: [cls().search(space, "latency", budget=Budget(EVALUATIONS), seed=seed) for seed in range(SEEDS)]
        for name, cls in SEARCHERS.items()
    }
    proven = data.done("paper_networks", search__objective="latency", workload=workload.name, dataflow=SUBJECT)
    optimum = float(proven[0]["cycles"])
    histories = {name: [run.history for run in found if run.history is not None] for name, found in runs.items()}
    figure = plots.convergence_figure(histories, optimum=optimum, title=f"mas on {sweep.arch.name}, {workload.name}")
    page.figure(figure, "figure7", "Best cycles so far over the evaluations (the form of the paper's figure 7)")
    head = ["method", "seed", "evaluations to within 1 % of the optimum", "gap after all"]
    rows: list[list[Cell]] = []
    for name, found in histories.items():
        for seed, history in enumerate(found):
            rows.append(
                [name, seed, history.evaluations_to(1.01 * optimum), percent(float(history.best[-1]) / optimum - 1)]
            )
    page.table(head, rows, f"{EVALUATIONS:,} evaluations of {space.legal_count:,} legal tilings, {SEEDS} seeds")
    page.rows(head, rows, "runs", "The table")
    counts = [row[2] if isinstance(row[2], int) else math.inf for row in rows if row[0] == "mcts"]
    middle = sorted(counts)[len(counts) // 2]
    why = "what an iteration is, and of which space, is not stated; ours: MCTS to within 1 % of the optimum, median"
    page.compare(beside(data.claims["convergence"], float(middle), why))
    told = f"after {middle:,.0f} evaluations (median of {SEEDS} seeds)"
    page.finding(f"MCTS is within 1 % of the proven optimum {told}.")
