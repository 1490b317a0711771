"""Which assumption the conclusions hang on: a sweep of each, what it moves, and who wins at each of its values."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mas_sim import plots
from mas_sim.plots import TornadoBar, WinnerCell
from mas_sim.reproduce.book import Cell, Page
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

SWEPT = {
    "dram_bandwidth": ("dram.bandwidth_gb_per_s", "DRAM bandwidth", "GB/s"),
    "l1_size": ("l1.capacity_kib", "L1 size", "KiB"),
    "mac_vec_ratio": ("vec.lanes", "VEC with its port", "lanes"),
    "exp_cost": ("vec.op_lane_cycles.exp", "cost of exp", "lane-cycles"),
    "port_width": ("mac.l1_port_bytes_per_cycle", "ports to L1", "bytes/cycle"),
    "sync_cost": ("sync_cycles", "synchronisation", "cycles"),
}
"""Of each sweep over numbers: the field on its axis, its name, and its unit."""

NORMALIZE, HARDWARE = "normalize", "normalize_hardware"
PASSES, NORMALISATION = "vec.softmax_passes", "normalisation of softmax"
SWEEPS = (*SWEPT, NORMALIZE, HARDWARE)
RIVAL = "flash"
"""The dataflow that the way of normalising decides about."""


@dataclass(frozen=True)
class Value:
    """A value of an assumption, and the points there; `own` if it is that of the machine as it is."""

    value: float | str
    own: bool
    rows: list[Row]

    @property
    def text(self) -> str:
        """The value as it is written."""
        return self.value if isinstance(self.value, str) else f"{self.value:,.6g}"

    @property
    def speedup(self) -> float:
        """Of MAS over FLAT, the geometric mean of all networks."""
        return means_over_flat(self.rows, "cycles")

    def winners(self) -> tuple[list[str], float]:
        """Return the dataflows with the fewest cycles (geometric means), and their lead over the others."""
        means = self._means()
        best = best_of(means, TIES)
        behind = [value for flow, value in means.items() if flow not in best]
        return best, min(behind, default=math.nan) / min(means.values())

    def behind(self, flow: str) -> float:
        """Return by what factor a dataflow takes more cycles than the best; NaN if some network has none of it."""
        means = self._means()
        return means.get(flow, math.nan) / min(means.values())

    def _means(self) -> dict[str, float]:
        values = values_of(self.rows, "cycles")
        flows = set.intersection(*(set(one) for one in values.values()))
        order = [flow for flow in dict.fromkeys(row["dataflow"] for row in self.rows) if flow in flows]
        return {flow: geomean([one[flow] for one in values.values()]) for flow in order}


@dataclass(frozen=True)
class Assumption:
    """An assumption, and what was tried of it."""

    sweep: str
    name: str
    unit: str
    values: list[Value]

    @property
    def label(self) -> str:
        """The name with its unit."""
        return f"{self.name} ({self.unit})" if self.unit else self.name

    def run(self, first: int, last: int) -> str:
        """Write the values from one to another, as far as they were tried."""
        tail, ends = f" {self.unit}" if self.unit else "", (self.values[first].text, self.values[last].text)
        if first == last:
            return ends[0] + tail
        if first == 0 and last == len(self.values) - 1:
            return f"any value from {ends[0]} to {ends[1]}{tail}" if self.unit else "either"
        if first == 0:
            return f"{ends[1]}{tail} and less"
        return f"{ends[0]}{tail} and more" if last == len(self.values) - 1 else f"{ends[0]} to {ends[1]}{tail}"

    def runs(self, wanted: Sequence[bool]) -> list[tuple[int, int]]:
        """Return the first and last place of each run of values that are wanted."""
        starts = [k for k, want in enumerate(wanted) if want and not (k and wanted[k - 1])]
        ends = [k for k, want in enumerate(wanted) if want and not (k + 1 < len(wanted) and wanted[k + 1])]
        return list(zip(starts, ends, strict=True))

    def plateau(self, place: int) -> str:
        """Write the values about one at which the speedup is the same, as far as the model is that fine."""
        of = self.values[place].speedup
        same = [abs(value.speedup / of - 1) <= TIES for value in self.values]
        return next(self.run(*run) for run in self.runs(same) if run[0] <= place <= run[1])

    @property
    def tried(self) -> str:
        """The range."""
        first, last = self.values[0].text, self.values[-1].text
        return f"{first} to {last} {self.unit}" if self.unit else f"{first} or {last}"


def assumptions(data: Data) -> list[Assumption]:
    """Return every assumption with the points of each value, the way of normalising last."""
    found = []
    for name, (column, what, unit) in SWEPT.items():
        own = _own(data, name)
        by_value = grouped(data.done(name), column)
        values = [Value(float(value), float(value) == own, rows) for (value,), rows in by_value.items()]
        found.append(Assumption(name, what, unit, values))
    return [*found, _normalisation(data, NORMALIZE, NORMALISATION)]


def _own(data: Data, name: str) -> float:
    """Return what the field of a sweep is on the machine as it is."""
    value: Any = data.sweeps[name].arch
    for part in SWEPT[name][0].split("."):
        value = getattr(value, part)
    return float(value)


def _normalisation(data: Data, sweep: str, name: str) -> Assumption:
    """Return both ways of normalising, which are no numbers."""
    rows: dict[str, list[Row]] = {"division": [], "reciprocal": []}
    for row in data.done(sweep):
        rows["reciprocal" if "reciprocal" in str(row[PASSES]) else "division"].append(row)
    own = "division" if data.sweeps[sweep].arch.vec.normalize == "divide" else "reciprocal"
    return Assumption(sweep, name, "", [Value(way, way == own, part) for way, part in rows.items()])


def tornado(page: Page, data: Data) -> None:
    """Write the sensitivity of the speedup over FLAT, and of the winner, to each assumption."""
    found = assumptions(data)
    networks = len({row["workload"] for one in found for value in one.values for row in value.rows})
    page.text(
        f"One assumption at a time is changed; every other is that of {data.sweeps['l1_size'].arch.name}. Figures are "
        f"geometric means of {networks} networks, at proven optima of latency; dataflows within {percent(TIES)} of the "
        "best count as equal to it."
    )
    _speedups(page, found)
    _who_wins(page, found, _normalisation(data, HARDWARE, f"{NORMALISATION} ({data.sweeps[HARDWARE].arch.name})"))
    for one in found[:-1]:
        _one_sweep(page, data, one)
    _normalising(page, data, found[-1])


def _speedups(page: Page, found: list[Assumption]) -> None:
    """Write what each assumption makes of the speedup over FLAT: the tornado."""
    page.heading("Speedup of MAS over FLAT")
    bars: list[TornadoBar] = []
    rows: list[list[Cell]] = []
    lost: list[str] = []
    tied: list[str] = []
    for one in found:
        speedups = [value.speedup for value in one.values]
        there = [k for k, speedup in enumerate(speedups) if not math.isnan(speedup)]
        low, high = min(there, key=lambda k: speedups[k]), max(reversed(there), key=lambda k: speedups[k])
        at = [one.plateau(k) if one.unit else one.values[k].text for k in (low, high)]
        bars.append(TornadoBar(one.name, speedups[low], speedups[high], *at))
        rows.append([one.name, one.tried, times(speedups[low]), at[0], times(speedups[high]), at[1]])
        for run in one.runs([speedup < 1 - TIES for speedup in speedups]):
            most = max(1 / speedup for speedup in speedups[run[0] : run[1] + 1])
            lost.append(f"{one.name} ({one.run(*run)}; by up to {times(most)})")
        tied += [
            f"{one.name} ({one.run(*run)})" for run in one.runs([abs(speedup - 1) <= TIES for speedup in speedups])
        ]
    nominal = next(value.speedup for one in found for value in one.values if value.own)
    figure = plots.tornado_figure(
        bars, nominal=nominal, quantity="speedup of mas over flat (geometric mean)", flip_name="flat is faster"
    )
    page.figure(figure, "tornado", "Speedup of mas over flat where one assumption at a time is changed")
    page.table(["assumption", "tried", "least speedup", "at", "greatest speedup", "at"], rows)
    means: list[list[Cell]] = []
    for one in found:
        for value in one.values:
            best, lead = value.winners()
            means.append([one.sweep, one.name, value.value, one.unit, value.speedup, " = ".join(best), lead])
    head = ["sweep", "assumption", "value", "unit", "mas_over_flat", "fewest_cycles", "lead_over_next"]
    page.rows(head, means, "tornado", "Every value that was tried, geometric means")
    widest = max(bars, key=lambda bar: max(bar.high, nominal) / min(bar.low, nominal))
    ranges = "; ".join(f"{one.name} {one.tried}" for one in found)
    page.finding(
        f"Over the ranges that were tried ({ranges}), the speedup of MAS over FLAT hangs most on {widest.name}: "
        f"{times(widest.low)} at {widest.low_label}, {times(widest.high)} at {widest.high_label}, "
        f"{times(nominal)} as the machine is. Other ranges may put another assumption first.",
        answers="sensitivity",
    )
    page.finding(
        f"FLAT is faster than MAS at: {'; '.join(lost) or 'no value that was tried'}. It is as fast, within "
        f"{percent(TIES)}, at: {'; '.join(tied) or 'no value that was tried'}.",
        answers="sensitivity",
    )


def _who_wins(page: Page, found: list[Assumption], beside: Assumption) -> None:
    """Write which dataflow wins at each value, and which assumptions would flip that."""
    page.heading("Which assumption would flip the winner?")
    cells = {
        one.label: [WinnerCell(value.text, tuple(value.winners()[0]), value.own) for value in one.values]
        for one in [*found, beside]
    }
    figure = plots.winners_figure(cells, caption=f"fewest cycles; those within {percent(TIES)} share a cell")
    page.figure(figure, "winners", "The dataflows with the fewest cycles at each value of each assumption")
    rows: list[list[Cell]] = []
    alone: dict[str, list[str]] = {}
    for one in found:
        winners = [value.winners() for value in one.values]
        told = []
        for flow in dict.fromkeys(best[0] for best, _ in winners if len(best) == 1):
            for run in one.runs([best == [flow] for best, _ in winners]):
                most = max(lead for _, lead in winners[run[0] : run[1] + 1])
                told.append(f"{flow}: {one.run(*run)} (up to {times(most)})")
                alone.setdefault(flow, []).append(f"{one.name} ({one.run(*run)}; by up to {times(most)})")
        behind = one.runs([SUBJECT not in best for best, _ in winners])
        worst = max((value.behind(SUBJECT) for value in one.values), default=math.nan)
        own = next((value.text for value in one.values if value.own), None)
        without = "; ".join(one.run(*run) for run in behind) or None
        rows.append([one.name, one.tried, own, "; ".join(told) or None, without, times(worst)])
    page.table(
        ["assumption", "tried", "the machine's", "one wins alone (its lead)", "mas not among the best", "most behind"],
        rows,
    )
    _winners_of_networks(page, found)
    as_it_is = next(value.winners()[0] for one in found for value in one.values if value.own)
    told_alone = "; ".join(f"{flow} by {', '.join(at)}" for flow, at in alone.items())
    mas = "" if SUBJECT in alone else " MAS wins alone at no value that was tried."
    page.finding(
        f"On the machine as it is, the fewest cycles are those of {', '.join(as_it_is)} (within {percent(TIES)}). "
        f"Assumptions by which one dataflow wins alone: {told_alone or 'none, at no value'}.{mas}",
        answers="sensitivity",
    )


def _winners_of_networks(page: Page, found: list[Assumption]) -> None:
    """Write the winners of each network to a file: the means may hide that networks differ."""
    rows: list[list[Cell]] = []
    for one in found:
        for value in one.values:
            values = values_of(value.rows, "cycles")
            over_flat = ratios(values, BASELINE, SUBJECT)
            for network in values:
                part = [row for row in value.rows if row["workload"] == network]
                best, lead = Value(value.value, value.own, part).winners()
                at = over_flat.get(network, math.nan)
                rows.append([one.sweep, value.value, network, at, " = ".join(best), lead])
    head = ["sweep", "value", "network", "mas_over_flat", "fewest_cycles", "lead_over_next"]
    page.rows(head, rows, "winners", "Every network at every value", cases=True)


def _one_sweep(page: Page, data: Data, one: Assumption) -> None:
    """Write one sweep: who wins at each value, and the lines."""
    page.heading(one.name[0].upper() + one.name[1:])
    rows: list[list[Cell]] = []
    for value in one.values:
        best, lead = value.winners()
        own = " (the machine's)" if value.own else ""
        rows.append([f"{value.text}{own}", times(value.speedup), ", ".join(best), times(lead)])
    points = data.done(one.sweep)
    head = [one.label, "mas over flat", f"fewest cycles (all within {percent(TIES)})", "lead over the next"]
    page.table(head, rows, f"`mas-sim sweep {one.sweep}`: geometric means")
    figure = plots.sweep_figure(
        points, SWEPT[one.sweep][0], ratio=(BASELINE, SUBJECT), x_label=one.label, y_label="speedup of mas over flat"
    )
    page.figure(figure, one.sweep, f"Speedup of mas over flat: {one.name}")
    columns = ("workload", "dataflow", "cycles", "total_pj", "dram_bytes", "lower_cycles", "limited_by")
    page.data(points, [*data.sweeps[one.sweep].axes, *columns], one.sweep, "Every figure")


def _normalising(page: Page, data: Data, edge: Assumption) -> None:
    """Write what a reciprocal a row makes of it, also on the machine where VEC is the limit."""
    page.heading(NORMALISATION[0].upper() + NORMALISATION[1:])
    page.text(
        "Softmax divides each score by the sum of its row, as the machines' sources do; or it takes one reciprocal a "
        "row, and multiplies. It is no number, so it has two values and no range."
    )
    both = {data.sweeps[name].arch.name: _normalisation(data, name, "") for name in (NORMALIZE, HARDWARE)}
    rows: list[list[Cell]] = []
    figures: list[list[Cell]] = []
    for machine, one in both.items():
        for value in one.values:
            cycles = values_of(value.rows, "cycles")
            for network, flows in cycles.items():
                over = [times(ratios({network: flows}, flow, SUBJECT)[network]) for flow in (BASELINE, RIVAL)]
                rows.append([machine, network, value.text, *over, ", ".join(best_of(flows, TIES))])
            columns = ("workload", "dataflow", "cycles", "total_pj", "lower_cycles", "limited_by")
            figures += [[machine, value.value, *(row[column] for column in columns)] for row in value.rows]
    head = ["machine", "network", NORMALISATION, f"mas over {BASELINE}", f"mas over {RIVAL}", "fewest cycles"]
    page.table(head, sorted(rows, key=lambda row: (list(both).index(str(row[0])), str(row[1]))))
    head = ["machine", "normalisation", "workload", "dataflow", "cycles", "total_pj", "lower_cycles", "limited_by"]
    page.rows(head, figures, "normalize", "Every figure", cases=True)
    page.finding(" ".join(_told(machine, one) for machine, one in both.items()), answers="sensitivity")
    rates = [
        {row["exp_available_per_cycle"] for row in value.rows if row["dataflow"] == SUBJECT} for value in edge.values
    ]
    if rates[0] == rates[1]:
        page.text(
            f"On {next(iter(both))} VEC makes as many probabilities a cycle either way: each step is a pass through "
            "L1, and the port to it takes longer than the lanes, whichever they compute."
        )


def _told(machine: str, one: Assumption) -> str:
    """Say what the way of normalising does on a machine."""
    divided, taken = (values_of(value.rows, "cycles") for value in one.values)
    changes = [abs(taken[name][flow] / cycles - 1) for name, of in divided.items() for flow, cycles in of.items()]
    if max(changes) <= TIES:
        most = (
            f"no cycles change by more than {100 * max(changes):.2g} %" if max(changes) else "all cycles stay the same"
        )
        return (
            f"On {machine} it does not matter whether softmax divides each score or takes a reciprocal a row: {most}."
        )
    over = [list(ratios(values, RIVAL, SUBJECT).values()) for values in (divided, taken)]
    means = [times(geomean(found)) for found in over]
    ahead = [sum(value > 1 + TIES for value in found) for found in over]
    behind = [sum(value < 1 - TIES for value in found) for found in over]
    return (
        f"On {machine} a reciprocal a row in place of a division a score takes MAS from {means[0]} to {means[1]} of "
        f"the speed of {RIVAL} (geometric mean of {len(over[0])} networks): MAS is faster on {ahead[0]} before and "
        f"{ahead[1]} after, slower on {behind[0]} before and {behind[1]} after."
    )
