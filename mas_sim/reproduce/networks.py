"""Tables 2 and 3 and figures 5 and 6 of the MAS-Attention paper: its twelve networks, on its machine and a phone's."""

from mas_sim import plots
from mas_sim.comparison import MAIN_WORKLOADS
from mas_sim.dataflows import DATAFLOWS
from mas_sim.reproduce.book import Cell, Page
from mas_sim.reproduce.claims import NEAR, Verdict, beside, judge
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
    named,
    percent,
    ratios,
    times,
    values_of,
)

UNET = "sd15_self_64"
PUBLISHED = "published maximum"
KEPT = (
    "workload", "dataflow", "cycles", "time_us", "total_pj", "dram_pj", "l1_pj", "l0_pj", "mac_pj", "vec_pj",
    "leakage_pj", "dram_read_bytes", "dram_write_bytes", "l1_peak_bytes", "lower_cycles", "limited_by", "gap_to_bound",
    "proven_optimal",
)  # fmt: skip


def every_figure(page: Page, rows: list[Row], name: str, what: str) -> None:
    """Write what a reader compares of results to a CSV file: figures, and the tiling behind them."""
    page.data(rows, [*KEPT, *(column for column in rows[0] if column.startswith("tiling."))], name, what)


def flows_in(values: Values) -> list[str]:
    """Return the dataflows that there are figures of, in the usual order."""
    there = {flow for one in values.values() for flow in one}
    return [flow for flow in DATAFLOWS if flow in there]


def figures_table(page: Page, values: Values, scale: float, caption: str) -> None:
    """Add a table of a figure of every dataflow, a row a network; the least of each row is bold."""
    flows, rows = flows_in(values), []
    for name, one in values.items():
        least = min(one.values())
        cells = [f"{one[f] / scale:,.0f}" if f in one else None for f in flows]
        bold = [f in one and one[f] == least for f in flows]
        rows.append([name, *(f"**{cell}**" if best else cell for cell, best in zip(cells, bold, strict=True))])
    page.table(["network", *flows], rows, caption)


def spread_table(page: Page, series: dict[str, dict[str, float]], saving: bool, caption: str) -> None:
    """Add a table of geometric mean, least and greatest of ratios (of savings: one minus them) by baseline."""
    rows: list[list[Cell]] = []
    for name, found in series.items():
        write = percent if saving else times
        shown = {item: 1 - value for item, value in found.items()} if saving else found
        mean = geomean(list(found.values()))
        middle = 1 - mean if saving else mean
        rows.append([name, write(middle), named(shown, min, write), named(shown, max, write), len(found)])
    page.table(["", "geometric mean", "minimum", "maximum", "networks"], rows, caption)


def tables(page: Page, data: Data) -> None:
    """Write tables 2 and 3."""
    goals = ("latency", "energy")
    rows = {goal: main_rows(data, goal) for goal in goals}
    _cycles(page, data, rows["latency"])
    _energies(page, data, rows)
    _claims(page, data, rows)
    _behind(page, data, rows)


def main_rows(data: Data, goal: str) -> list[Row]:
    """Return the paper's twelve networks at the optima of an objective."""
    rows = data.done("paper_networks", search__objective=goal)
    return [row for row in rows if row["workload"] in MAIN_WORKLOADS]


def _distribution(series: dict[str, dict[str, float]], published: float) -> plots.Figure:
    """Draw the speedups over every dataflow, with the published maximum."""
    return plots.distribution_figure(series, quantity="speedup of mas", reference=published, reference_name=PUBLISHED)


def _cycles(page: Page, data: Data, rows: list[Row]) -> None:
    """Write table 2 and figure 5."""
    cycles = values_of(rows, "cycles")
    page.heading("Cycles (the paper's table 2 and figure 5)")
    figures_table(page, cycles, 1, "Cycles on mas_edge, each dataflow at its proven best tiling (latency)")
    series = {f"mas over {flow}": ratios(cycles, flow, SUBJECT) for flow in flows_in(cycles) if flow != SUBJECT}
    spread_table(page, series, False, "Speedup of mas over each of the others")
    figure = _distribution(series, data.claims["cycles_max"].low)
    page.figure(figure, "speedups", "Speedup of mas over each dataflow: every network, geometric mean, and ends")
    figure = plots.time_figure(rows, baseline=BASELINE)
    page.figure(figure, "figure5", "Execution time over FLAT's (the paper's figure 5); dashes are lower bounds")
    over_flat = series[f"mas over {BASELINE}"]
    page.finding(
        f"Over FLAT, MAS is {times(geomean(list(over_flat.values())))} as fast (geometric mean of {len(over_flat)} "
        f"networks), {named(over_flat, min, times)} to {named(over_flat, max, times)}, both at proven optima."
    )
    overlapping = [flow for flow in ("tileflow", "flash", "fusemax") if f"mas over {flow}" in series]
    means = ", ".join(f"{flow} {times(geomean(list(series[f'mas over {flow}'].values())))}" for flow in overlapping)
    page.finding(f"Over the other dataflows that overlap MAC and VEC it is hardly faster: {means} (geometric means).")
    every_figure(page, rows, "latency", "Every figure of this table, with the tiling behind it")


def _energies(page: Page, data: Data, rows_of: dict[str, list[Row]]) -> None:
    """Write table 3 and figure 6, at the optima of either objective."""
    page.heading("Energy (the paper's table 3 and figure 6)")
    for goal, rows in rows_of.items():
        energy = values_of(rows, "total_pj")
        figures_table(page, energy, 1e6, f"Energy in uJ on mas_edge, at the proven optima of {goal}")
        flows = [flow for flow in flows_in(energy) if flow != SUBJECT]
        series = {f"mas against {flow}": ratios(energy, SUBJECT, flow) for flow in flows}
        spread_table(page, series, True, f"Energy that mas saves, at the optima of {goal}")
        savings = {name: {net: 1 - one for net, one in found.items()} for name, found in series.items()}
        figure = plots.distribution_figure(
            savings,
            quantity="energy saved by mas",
            percent=True,
            reference=data.claims["energy_max"].low,
            reference_name=PUBLISHED,
        )
        page.figure(figure, f"savings_{goal}", f"Energy that mas saves against each dataflow, at the optima of {goal}")
        if goal == "energy":
            every_figure(page, rows, "energy", "Every figure at the optima of energy, with the tiling behind it")
        saved = series[f"mas against {BASELINE}"]
        page.finding(
            f"At the optima of {goal}, MAS takes {percent(1 - geomean(list(saved.values())))} less energy than FLAT "
            f"(geometric mean); the most is {percent(1 - min(saved.values()))}."
        )
    figure = plots.energy_figure(rows_of["latency"], baseline=BASELINE)
    page.figure(figure, "figure6", "Energy by component, over FLAT's, at the optima of latency (the paper's figure 6)")


def _claims(page: Page, data: Data, rows_of: dict[str, list[Row]]) -> None:
    """Put the published figures of both tables beside ours."""
    page.heading("Beside the published figures")
    rows = rows_of["latency"]
    claims, cycles, energy = data.claims, values_of(rows, "cycles"), values_of(rows, "total_pj")
    speedups, saved = ratios(cycles, BASELINE, SUBJECT), ratios(energy, SUBJECT, BASELINE)
    same = "at their optima both move the same DRAM bytes and do the same operations; what is left is leakage and L1"
    found: list[Verdict] = [
        judge(claims["cycles_max"], max(speedups.values()), "overlap hides at most the smaller of MAC and VEC time"),
        judge(claims["energy_max"], 1 - min(saved.values()), same),
        judge(claims["energy_geomean"], 1 - geomean(list(saved.values())), same),
    ]
    stated = [name for name in ("llama3_8b", "bert_base", "vit_b_16") if name in saved]
    found += [judge(claims[f"energy_{name}"], 1 - saved[name], same) for name in stated]
    worse = {goal: _behind_fusemax(rows) for goal, rows in rows_of.items()}
    on_mac = sum(row["dataflow"] == "fusemax" and row["tiling.exp_on"] == "mac" for row in rows_of["energy"])
    why = (
        f"at the optima of latency; at those of energy {worse['energy']}, where fusemax runs exp on the MAC array in "
        f"{on_mac} networks"
    )
    found.append(judge(claims["energy_fusemax"], worse["latency"], why, "several, as stated"))
    found += _unet(data)
    page.compare(*found)


def _behind_fusemax(rows: list[Row]) -> int:
    """Count the networks on which MAS takes more energy than FuseMax."""
    return sum(one < 1 for one in ratios(values_of(rows, "total_pj"), "fusemax", SUBJECT).values())


def _unet(data: Data) -> list[Verdict]:
    """Put the two figures of Stable Diffusion beside ours."""
    unet = values_of(data.done("paper_networks", search__objective="latency", workload=UNET), "cycles").get(UNET)
    saved = None if not unet else 1 - unet[SUBJECT] / unet[BASELINE]
    why = f"not said whether of time or energy, nor against what; ours: cycles saved against FLAT on {UNET}"
    whole = "needs the layers between the attention units, which mas_sim does not model"
    return [beside(data.claims["unet"], saved, why), beside(data.claims["unet_end_to_end"], None, whole)]


def _behind(page: Page, data: Data, rows_of: dict[str, list[Row]]) -> None:
    """Write the results themselves, from which every cell can be run again."""
    page.heading("From a cell to its schedule")
    for goal, rows in rows_of.items():
        results = [data.result(row["key"]) for row in rows]
        page.book.write_results(f"results/{goal}.json", results)
    page.text(
        "Every cell of these tables can be run again from its file: built, timed, metered, audited and executed, "
        "with its timeline drawn and its trace for Perfetto:"
    )
    page.code(
        "mas-sim run --from reports/results/latency.json --pick bert_base/mas --figure t.svg --trace t.json\n"
        "mas-sim run --from reports/results/energy.json --pick t5_mini/flash"
    )


def hardware(page: Page, data: Data) -> None:
    """Write the networks on the preset of a phone NPU, beside the published measurement."""
    rows = data.done("paper_hardware")
    cycles = values_of(rows, "cycles")
    figures_table(page, cycles, 1, "Cycles on davinci_lite, each dataflow at its proven best tiling (latency)")
    series = {f"mas over {flow}": ratios(cycles, flow, SUBJECT) for flow in flows_in(cycles) if flow != SUBJECT}
    spread_table(page, series, False, "Speedup of mas over each of the others")
    figure = _distribution(series, data.claims["hardware"].high)
    page.figure(figure, "speedups", "Speedup of mas over each dataflow on davinci_lite")
    claim, over_flat = data.claims["hardware"], series[f"mas over {BASELINE}"]
    mean, low, high = geomean(list(over_flat.values())), min(over_flat.values()), max(over_flat.values())
    agrees = claim.agrees(low) and claim.agrees(high)
    inside = sum(claim.low <= one <= claim.high for one in over_flat.values())
    why = (
        f"{inside} of {len(over_flat)} networks are inside the published range, all others within {percent(NEAR)} of it"
        if agrees
        else f"{inside} of {len(over_flat)} networks are inside the published range"
    ) + "; the preset's vector unit and port are assumed"
    ours = f"{times(low)} to {times(high)}, mean {times(mean)}"
    page.compare(Verdict(claim, ours, "agrees" if agrees else "differs", why))
    page.finding(
        f"On a phone NPU as far as it is documented, MAS is {times(mean)} as fast as FLAT (geometric mean, "
        f"{times(low)} to {times(high)}); measured on silicon were {claim.text}."
    )
    alone = [best_of(one, TIES) for one in cycles.values()]
    told = count_best(alone)
    page.finding(f"On that machine the fewest cycles of {len(alone)} networks (ties within {percent(TIES)}): {told}.")
    every_figure(page, rows, "latency", "Every figure, with the tiling behind it")
