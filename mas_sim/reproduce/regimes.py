"""Which dataflow wins at which sequence length and cost of exp, and from where on FLAT is faster than MAS."""

import math
from collections.abc import Sequence

from mas_sim import plots
from mas_sim.dataflows import DATAFLOWS
from mas_sim.plots import axis_name
from mas_sim.reproduce.book import Cell, Page
from mas_sim.reproduce.data import (
    BASELINE,
    SUBJECT,
    TIES,
    Data,
    best_of,
    count_best,
    exp_on_mac,
    grouped,
    percent,
    times,
    values_of,
)
from mas_sim.reproduce.networks import main_rows

SWEEP, WITHOUT, FUSEMAX = "regime_map", "regime_without_exp", "fusemax"
LENGTH, COST = "workload.seq", "vec.op_lane_cycles.exp"

Place = tuple[int, int]
"""A cell: sequence length, and lane-cycles of an exp."""


def regimes(page: Page, data: Data) -> None:
    """Write which dataflow wins at which length and cost of exp."""
    sweep, points = data.sweeps[SWEEP], data.done(SWEEP)
    shape = sweep.point(points[0]["position"]).job.workload
    what = f"{shape.name}, {shape.heads} heads of E = {shape.head_dim_qk}, on {sweep.arch.name}"
    page.text(f"The workload is {what}; its length N and the cost of one exp on a vector lane are changed together.")
    figure = plots.heatmap_figure(data.rows[SWEEP], LENGTH, COST, tie_tolerance=TIES, title=what)
    page.figure(figure, "map", f"The dataflow with the fewest cycles, and its lead over the second: {what}")
    cells = {place: values_of(part, "cycles")[shape.name] for place, part in grouped(points, LENGTH, COST).items()}
    bests = {place: best_of(values, TIES) for place, values in cells.items()}
    rows: list[list[Cell]] = []
    raw: list[list[Cell]] = []
    for place, values in cells.items():
        least, best = min(values.values()), bests[place]
        lead = min((value for flow, value in values.items() if flow not in best), default=math.nan) / least
        mas, flat = (values.get(flow, math.nan) / least for flow in (SUBJECT, BASELINE))
        rows.append([*place, ", ".join(best), *map(times, (lead, mas, flat, flat / mas))])
        raw.append([*place, " = ".join(best), lead, mas, flat, flat / mas])
    told = [f"fewest cycles (all within {percent(TIES)})", "lead over the next"]
    page.table(
        ["N", axis_name(COST), *told, "cycles of mas / of the best", "of flat / of the best", "of flat / of mas"], rows
    )
    head = [
        LENGTH,
        COST,
        "fastest",
        "lead_over_next",
        "cycles_of_mas_over_best",
        "cycles_of_flat_over_best",
        "cycles_of_flat_over_mas",
    ]
    page.rows(head, raw, "cells", "The table", cases=True)
    page.data(points, (LENGTH, COST, "dataflow", "cycles", "total_pj"), "points", "Every figure")
    _left_out(page, data)
    page.finding(
        f"Of {len(rows)} cells of length and cost of exp ({what}), the fewest cycles (ties within {percent(TIES)}): "
        f"{count_best(list(bests.values()))}."
    )
    _exp_on_mac(page, data, cells, bests)
    _fallback(page, cells, bests)


def _exp_on_mac(page: Page, data: Data, cells: dict[Place, dict[str, float]], bests: dict[Place, list[str]]) -> None:
    """Say in which cells FuseMax wins by running exp on the MAC array, and what it takes where that cannot."""
    alone = [place for place, best in bests.items() if best == [FUSEMAX]]
    if not alone:
        return
    places = grouped(data.done(SWEEP), LENGTH, COST)
    count = sum(exp_on_mac(places[place]) for place in alone)
    steps = data.sweeps[SWEEP].arch.mac.exp_steps
    told = (
        f"In {count} of the {len(alone)} cells where fusemax wins alone it runs exp on the MAC array, at {steps} array "
        "steps whatever exp costs on VEC. Only fusemax can, and that the array can is assumed (`mac.exp_steps`; a "
        "plain array has no maximum)."
    )
    without = {place: float(part[0]["cycles"]) for place, part in grouped(data.done(WITHOUT), LENGTH, COST).items()}
    tried = [place for place in alone if place in without]
    if tried:
        changed = {place: cells[place] | {FUSEMAX: without[place]} for place in tried}
        over = [changed[place][FUSEMAX] / changed[place][SUBJECT] for place in tried]
        still = sum(best_of(values, TIES) == [FUSEMAX] for values in changed.values())
        now = count_best([best_of(values, TIES) for values in changed.values()])
        told += (
            f" Where the array cannot, of {len(tried)} such cells up to N = {max(place[0] for place in tried):,} "
            f"fusemax wins {still} alone (fewest cycles: {now}), and takes {times(min(over))} to {times(max(over))} "
            "the cycles of mas."
        )
    page.finding(told)
    rows: list[list[Cell]] = [[*place, cycles] for place, cycles in without.items()]
    page.rows([LENGTH, COST, "fusemax_cycles"], rows, "without_exp_on_mac", "Without exp on the MAC array", cases=True)


def _left_out(page: Page, data: Data) -> None:
    """Say which dataflows the map has not, and why: how far they are behind at the lengths of the tables."""
    there = {row["dataflow"] for row in data.rows[SWEEP]}
    left = [flow for flow in DATAFLOWS if flow not in there]
    networks = values_of(main_rows(data, "latency"), "cycles")
    behind = [one[flow] / min(one.values()) for one in networks.values() for flow in left if flow in one]
    if not behind:
        return
    ahead = sum(value <= 1 + TIES for value in behind)
    why = (
        f"they take {times(min(behind))} to {times(max(behind))} the cycles of the best"
        if not ahead
        else f"they are the fastest in {ahead} of {len(behind)} cases, and take up to {times(max(behind))}"
    )
    page.text(
        f"Left out are {' and '.join(left)}, whose schedules take long to search at these lengths: on the "
        f"{len(networks)} networks of [the tables](tables.md) {why}."
    )


def _fallback(page: Page, cells: dict[Place, dict[str, float]], bests: dict[Place, list[str]]) -> None:
    """Say where FLAT is faster than MAS, and where MAS is not among the fastest."""
    both = {place: one[SUBJECT] / one[BASELINE] for place, one in cells.items() if {SUBJECT, BASELINE} <= one.keys()}
    slower = {place: value for place, value in both.items() if value > 1 + TIES}
    tied = sum(abs(value - 1) <= TIES for value in both.values())
    also = f" and as fast in {tied}" if tied else ""
    longest = max((place[0] for place in both), default=0)
    told = f"FLAT is faster than MAS in none of {len(both)} cells{also}, up to N = {longest:,}."
    if slower:
        firsts = sum(BASELINE in bests[place] for place in slower)
        best = dict.fromkeys(flow for place in slower for flow in bests[place])
        told = (
            f"FLAT is faster than MAS in {len(slower)} of {len(both)} cells{also}: {_where(list(slower))}, where MAS "
            f"takes {times(min(slower.values()))} to {times(max(slower.values()))} the cycles of FLAT. FLAT is among "
            f"the fastest in {firsts} of these; the fastest are {' and '.join(best)}."
        )
    page.finding(told, answers="fallback")
    lost = [place for place in both if SUBJECT not in bests[place]]
    kept = [place for place in both if SUBJECT in bests[place]]
    if lost:
        most = max(lost, key=lambda place: cells[place][SUBJECT] / min(cells[place].values()))
        page.finding(
            f"MAS is among the fastest in {len(kept)} of {len(both)} cells"
            f"{': ' + _where(kept) if kept else ''}. The furthest behind it is at N = {most[0]:,}, exp {most[1]}: "
            f"{times(cells[most][SUBJECT] / min(cells[most].values()))} the cycles of {bests[most][0]}.",
            answers="fallback",
        )


def _where(places: Sequence[Place]) -> str:
    """Write cells by cost of exp: the lengths at each."""
    by_cost: dict[int, list[int]] = {}
    for length, cost in places:
        by_cost.setdefault(cost, []).append(length)
    same: dict[str, list[str]] = {}
    for cost, lengths in sorted(by_cost.items()):
        same.setdefault(", ".join(f"{length:,}" for length in lengths), []).append(str(cost))
    return "; ".join(f"N = {lengths} at exp {', '.join(costs)}" for lengths, costs in same.items())
