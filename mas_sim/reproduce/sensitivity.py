"""Which assumption the conclusions hang on: sweeps of one each, energy bands, and the regime map."""

import math
from collections.abc import Mapping
from typing import Any

from mas_sim import plots
from mas_sim.energy_table import Level
from mas_sim.plots import TornadoBar
from mas_sim.report import make_report
from mas_sim.reproduce.book import Cell, Page
from mas_sim.reproduce.data import (
    BASELINE,
    SUBJECT,
    TIES,
    Data,
    Row,
    Values,
    best_of,
    count_best,
    geomean,
    grouped,
    means_over_flat,
    percent,
    times,
    values_of,
)
from mas_sim.reproduce.networks import main_rows
from mas_sim.tiling import Tiling

SWEPT = {
    "dram_bandwidth": ("dram.bandwidth_gb_per_s", "DRAM bandwidth", "GB/s"),
    "l1_size": ("l1.capacity_kib", "L1 size", "KiB"),
    "mac_vec_ratio": ("vec.lanes", "vector lanes, with their port", "lanes"),
    "exp_cost": ("vec.op_lane_cycles.exp", "cost of exp", "lane-cycles"),
    "port_width": ("mac.l1_port_bytes_per_cycle", "L1 ports", "bytes/cycle"),
    "sync_cost": ("sync_cycles", "synchronisation", "cycles"),
}
"""Of each sweep: the field on its axis, its name, and its unit."""


def _by_value(data: Data, name: str) -> dict[float, list[Row]]:
    """Return the points of each value on a sweep's axis, rising."""
    return {float(value): part for (value,), part in grouped(data.done(name), SWEPT[name][0]).items()}


def _winners(rows: list[Row]) -> tuple[list[str], float]:
    """Return the dataflows with the fewest cycles (geometric means of all networks), and the lead over the others."""
    values = values_of(rows, "cycles")
    flows = set.intersection(*(set(one) for one in values.values()))
    order = [flow for flow in dict.fromkeys(row["dataflow"] for row in rows) if flow in flows]
    means = {flow: geomean([one[flow] for one in values.values()]) for flow in order}
    best = best_of(means, TIES)
    behind = [value for flow, value in means.items() if flow not in best]
    return best, min(behind, default=math.nan) / min(means.values())


def tornado(page: Page, data: Data) -> None:
    """Write the sensitivity of the speedup over FLAT, and of the winner, to each assumption."""
    bars: list[TornadoBar] = []
    flips: list[str] = []
    nominal = math.nan
    for name, (_, what, unit) in SWEPT.items():
        by_value = _by_value(data, name)
        speedups = {value: means_over_flat(part, "cycles") for value, part in by_value.items()}
        there = {value: one for value, one in speedups.items() if not math.isnan(one)}
        low, high = min(there, key=lambda value: there[value]), max(there, key=lambda value: there[value])
        nominal = there.get(_nominal(data, name), nominal)
        bars.append(TornadoBar(what, there[low], there[high], f"{low:g} {unit}", f"{high:g} {unit}"))
        lost = {value: one for value, one in there.items() if one < 1 - TIES}
        flips += [f"{what} {value:g} {unit} ({times(1 / one)})" for value, one in lost.items()]
        _one_sweep(page, data, name, by_value, speedups)
    figure = plots.tornado_figure(
        bars, nominal=nominal, quantity="speedup of mas over flat (geometric mean)", flip_name="flat is faster"
    )
    page.heading("All of them together")
    page.figure(figure, "tornado", "Speedup of mas over flat where one assumption at a time is changed")
    ends = [(bar.name, bar.low, bar.low_label, bar.high, bar.high_label) for bar in bars]
    head = ["assumption", "least speedup", "at", "greatest speedup", "at"]
    page.table(head, [[name, times(low), at, times(high), there] for name, low, at, high, there in ends])
    page.rows(head, ends, "tornado", "The table")
    widest = max(bars, key=lambda bar: bar.high / bar.low)
    page.finding(
        f"The speedup of MAS over FLAT hangs most on {widest.name}: {times(widest.low)} at {widest.low_label}, "
        f"{times(widest.high)} at {widest.high_label}."
    )
    page.finding(f"FLAT wins over MAS (by) at: {'; '.join(flips) or 'no value that was tried'}.")


def _nominal(data: Data, name: str) -> float:
    """Return what the field of a sweep is on the machine as it is."""
    value: Any = data.sweeps[name].arch
    for part in SWEPT[name][0].split("."):
        value = getattr(value, part)
    return float(value)


def _one_sweep(
    page: Page, data: Data, name: str, by_value: dict[float, list[Row]], speedups: dict[float, float]
) -> None:
    """Write one sweep: who wins at each value, and the lines."""
    column, what, unit = SWEPT[name]
    page.heading(what[0].upper() + what[1:])
    rows: list[list[Cell]] = []
    for value, part in by_value.items():
        best, lead = _winners(part)
        own = " (the machine's)" if value == _nominal(data, name) else ""
        rows.append([f"{value:g}{own}", times(speedups[value]), ", ".join(best), times(lead)])
    points = data.done(name)
    networks = len({row["workload"] for row in points})
    head = [f"{column} ({unit})", "mas over flat", f"fewest cycles (all within {percent(TIES)})", "lead over the next"]
    page.table(head, rows, f"`mas-sim sweep {name}`: geometric means of {networks} networks")
    figure = plots.sweep_figure(points, column, ratio=(BASELINE, SUBJECT))
    page.figure(figure, name, f"Speedup of mas over flat: {what}")
    columns = ("workload", "dataflow", "cycles", "total_pj", "dram_bytes", "lower_cycles", "limited_by")
    page.data(points, [*data.sweeps[name].axes, *columns], name, "Every figure")


def bands(page: Page, data: Data) -> None:
    """Write whether the ranking in energy survives the bands of the energy table."""
    levels: dict[Level, Values] = {"low": {}, "nominal": {}, "high": {}}
    for row in main_rows(data, "energy"):
        job = data.sweeps["paper_networks"].point(row["position"]).job
        tiling = Tiling(**data.result(row["key"])["tiling"])
        for level, found in levels.items():  # the same schedule, priced anew
            report = make_report(job.dataflow, job.arch, job.workload, tiling, energy_level=level, check=False)
            found.setdefault(job.workload.name, {})[job.dataflow] = report.energy.total
    rows: list[list[Cell]] = []
    changed = []
    for workload in levels["nominal"]:
        orders = {level: _order(of[workload]) for level, of in levels.items()}
        firsts = {level: order[0] for level, order in orders.items()}
        savings = [1 - of[workload][SUBJECT] / of[workload][BASELINE] for of in levels.values()]
        same = orders["low"] == orders["nominal"] == orders["high"]
        changed += [] if len(set(firsts.values())) == 1 else [workload]
        rows.append([workload, *firsts.values(), *map(percent, savings), "yes" if same else "no"])
    head = [
        "network",
        "least: low",
        "nominal",
        "high",
        "mas saves over flat: low",
        "nominal",
        "high",
        "same order of all",
    ]
    page.table(head, rows, "The dataflow with the least energy at each end of the bands (tilings: optima of energy)")
    page.rows(head, rows, "bands", "The table")
    page.finding(
        f"The dataflow with the least energy is the same at the low, nominal and high ends of all bands in "
        f"{len(rows) - len(changed)} of {len(rows)} networks."
    )


def _order(values: Mapping[str, float]) -> list[str]:
    """Return dataflows by a figure, the least first."""
    return sorted(values, key=lambda flow: values[flow])


def regimes(page: Page, data: Data) -> None:
    """Write which dataflow wins at which length and cost of exp."""
    points = data.done("regime_map")
    figure = plots.heatmap_figure(data.rows["regime_map"], "workload.seq", "vec.op_lane_cycles.exp")
    page.figure(figure, "map", "The dataflow with the fewest cycles, and its lead over the second")
    bests: list[list[str]] = []
    rows: list[list[Cell]] = []
    lost: list[str] = []
    for (tokens, cost), part in grouped(points, "workload.seq", "vec.op_lane_cycles.exp").items():
        values = values_of(part, "cycles")[part[0]["workload"]]
        order = _order(values)
        lead = values[order[1]] / values[order[0]] if len(order) > 1 else math.nan
        over = values[BASELINE] / values[SUBJECT] if {BASELINE, SUBJECT} <= values.keys() else math.nan
        rows.append([tokens, cost, order[0], order[1] if len(order) > 1 else None, times(lead), times(over)])
        bests.append(best_of(values, TIES))
        lost += [f"N = {tokens:,}, exp {cost}"] if over < 1 else []
    head = ["N", "exp, lane-cycles", "fewest cycles", "second", "lead", "mas over flat"]
    page.table(head, rows)
    page.rows(head, rows, "cells", "The table")
    columns = ("workload.seq", "vec.op_lane_cycles.exp", "dataflow", "cycles", "total_pj")
    page.data(points, columns, "points", "Every figure")
    told = f"(ties within {percent(TIES)}): {count_best(bests)}"
    page.finding(f"Of {len(rows)} cells of length and cost of exp, the fewest cycles {told}.")
    page.finding(
        f"FLAT is faster than MAS in {len(lost)} of them{': ' + '; '.join(lost) if 0 < len(lost) <= 8 else ''}."
    )
