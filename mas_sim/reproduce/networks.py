"""Tables 2 and 3 and figures 5 and 6 of the MAS-Attention paper: its twelve networks, on its machine and a phone's."""

from collections.abc import Mapping, Sequence

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
COMPONENTS = ("dram", "l1", "l0", "mac", "vec", "leakage")
PASSES = "vec.softmax_passes"
KEPT = (
    "workload", "dataflow", "cycles", "time_us", "total_pj", "dram_pj", "l1_pj", "l0_pj", "mac_pj", "vec_pj",
    "leakage_pj", "dram_read_bytes", "dram_write_bytes", "l1_peak_bytes", "lower_cycles", "limited_by", "gap_to_bound",
    "proven_optimal",
)  # fmt: skip


def every_figure(page: Page, rows: list[Row], name: str, what: str, *axes: str) -> None:
    """Write what a reader compares of results to a CSV file: figures, and the tiling behind them."""
    page.data(rows, [*axes, *KEPT, *(column for column in rows[0] if column.startswith("tiling."))], name, what)


def flows_in(values: Values) -> list[str]:
    """Return the dataflows that there are figures of, in the usual order."""
    there = {flow for one in values.values() for flow in one}
    return [flow for flow in DATAFLOWS if flow in there]


def without_exp_on_mac(data: Data, goal: str, column: str) -> dict[str, float]:
    """Return a figure of `fusemax` on the paper's networks where the MAC array cannot do exp."""
    rows = data.done("fusemax_without_exp", search__objective=goal)
    return {row["workload"]: float(row[column]) for row in rows}


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


def main_rows(data: Data, goal: str) -> list[Row]:
    """Return the paper's twelve networks at the optima of an objective."""
    rows = data.done("paper_networks", search__objective=goal)
    return [row for row in rows if row["workload"] in MAIN_WORKLOADS]


def _distribution(
    series: Mapping[str, dict[str, float]], marks: Mapping[str, Mapping[str, float]], saving: bool = False
) -> plots.Figure:
    """Draw the speedups over every dataflow (or savings against it), with the published figures where they belong."""
    quantity = "energy saved by mas" if saving else "speedup of mas"
    shown = {name: {net: 1 - one for net, one in found.items()} if saving else found for name, found in series.items()}
    return plots.distribution_figure(shown, quantity=quantity, percent=saving, marks=marks)


def _cycles(page: Page, data: Data, rows: list[Row]) -> None:
    """Write table 2 and figure 5."""
    cycles = values_of(rows, "cycles")
    page.heading("Cycles (the paper's table 2 and figure 5)")
    figures_table(page, cycles, 1, "Cycles on mas_edge, each dataflow at its proven best tiling (latency)")
    series = {f"mas over {flow}": ratios(cycles, flow, SUBJECT) for flow in flows_in(cycles) if flow != SUBJECT}
    spread_table(page, series, False, "Speedup of mas over each of the others")
    over_flat = series[f"mas over {BASELINE}"]
    marks = {f"mas over {BASELINE}": {"published maximum": data.claims["cycles_max"].low}}
    page.figure(
        _distribution(series, marks), "speedups", "Speedup of mas over each dataflow: every network and geometric mean"
    )
    figure = plots.time_figure(rows, baseline=BASELINE)
    page.figure(figure, "figure5", "Execution time over FLAT's (the paper's figure 5); dashes are lower bounds")
    page.finding(
        f"Over FLAT, MAS is {times(geomean(list(over_flat.values())))} as fast (geometric mean of {len(over_flat)} "
        f"networks), {named(over_flat, min, times)} to {named(over_flat, max, times)}, both at proven optima."
    )
    overlapping = [flow for flow in ("tileflow", "flash", "fusemax") if f"mas over {flow}" in series]
    means = {flow: geomean(list(series[f"mas over {flow}"].values())) for flow in overlapping}
    told = ", ".join(f"{flow} {times(mean)}" for flow, mean in means.items())
    hardly = "hardly faster" if max(means.values()) < 1 + 4 * TIES else "as fast as this"
    page.finding(f"Over the other dataflows that overlap MAC and VEC it is {hardly}: {told} (geometric means).")
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
        claims = {"published maximum": "energy_max", "published geometric mean": "energy_geomean"}
        marks = {f"mas against {BASELINE}": {name: data.claims[claim].low for name, claim in claims.items()}}
        figure = _distribution(series, marks, saving=True)
        page.figure(figure, f"savings_{goal}", f"Energy that mas saves against each dataflow, at the optima of {goal}")
        if goal == "energy":
            every_figure(page, rows, "energy", "Every figure at the optima of energy, with the tiling behind it")
        saved = series[f"mas against {BASELINE}"]
        shares = {name: 1 - one for name, one in saved.items()}
        page.finding(
            f"At the optima of {goal}, MAS takes {percent(1 - geomean(list(saved.values())))} less energy than FLAT "
            f"(geometric mean of {len(saved)} networks), {named(shares, min, percent)} to "
            f"{named(shares, max, percent)}.",
            answers="distribution",
        )
    page.finding(_where_it_goes(rows_of["latency"]))
    _ties_in_energy(page, rows_of)
    figure = plots.energy_figure(rows_of["latency"], baseline=BASELINE)
    page.figure(figure, "figure6", "Energy by component, over FLAT's, at the optima of latency (the paper's figure 6)")


def differences(rows: Sequence[Row], name: str, above: str = BASELINE, below: str = SUBJECT) -> dict[str, float]:
    """Return by how many pJ one dataflow is above another on a network, by component, the greatest share first."""
    flows = {row["dataflow"]: row for row in rows if row["workload"] == name}
    parts = {part: flows[above][f"{part}_pj"] - flows[below][f"{part}_pj"] for part in COMPONENTS}
    return dict(sorted(parts.items(), key=lambda pair: -abs(pair[1])))


def _where_it_goes(rows: list[Row]) -> str:
    """Say what makes the difference in energy between FLAT and MAS."""
    names = list(ratios(values_of(rows, "total_pj"), SUBJECT, BASELINE))
    only = {name: differences(rows, name) for name in names}
    leaks = [name for name, parts in only.items() if parts["leakage"] >= 0.99 * sum(map(abs, parts.values()))]
    others = "; ".join(f"{name}: {_parts_text(parts)}" for name, parts in only.items() if name not in leaks)
    return (
        "What FLAT takes more at the optima of latency is leakage over its longer time and nothing else in "
        f"{len(leaks)} of {len(names)} networks" + (f"; in the others, tilings differ ({others})." if others else ".")
    )


def _parts_text(parts: Mapping[str, float]) -> str:
    """Write the two greatest of the differences by component, with their shares of all."""
    whole = sum(parts.values())
    if not whole:
        return "nothing"
    shown = [(part, value) for part, value in parts.items() if value][:2]
    return " and ".join(
        f"{part.upper() if part != 'leakage' else part} {percent(value / whole)}" for part, value in shown
    )


def _ties_in_energy(page: Page, rows_of: dict[str, list[Row]]) -> None:
    """Say how far the energy at the optima of latency hangs on which of equally fast tilings is the fastest."""
    found = {goal: (values_of(rows, "cycles"), values_of(rows, "total_pj")) for goal, rows in rows_of.items()}
    table: list[list[Cell]] = []
    for flow in flows_in(found["latency"][0]):
        slower, less = [], []
        for name, one in found["latency"][0].items():
            if flow in one and flow in found["energy"][0].get(name, {}):
                slower.append(found["energy"][0][name][flow] / one[flow])
                less.append(found["energy"][1][name][flow] / found["latency"][1][name][flow])
        table.append([flow, times(geomean(slower)), percent(1 - geomean(less)), percent(1 - min(less))])
    head = ["dataflow", "time at the optimum of energy", "energy saved by it", "at most"]
    page.table(head, table, "What the optimum of energy costs and saves, over the optimum of latency")
    page.text(
        "A saving at the optima of latency is also one of chance: among tilings that are nearly equally fast, the "
        "fastest may take more energy. So savings stand here at the optima of either objective, and a comparison in "
        "energy should be read at those of energy."
    )


def _claims(page: Page, data: Data, rows_of: dict[str, list[Row]]) -> None:
    """Put the published figures of both tables beside ours."""
    page.heading("Beside the published figures")
    rows = rows_of["latency"]
    claims, cycles, energy = data.claims, values_of(rows, "cycles"), values_of(rows, "total_pj")
    speedups, saved = ratios(cycles, BASELINE, SUBJECT), ratios(energy, SUBJECT, BASELINE)
    at_energy = ratios(values_of(rows_of["energy"], "total_pj"), SUBJECT, BASELINE)

    def why(name: str) -> str:
        """Say what the difference in energy is made of on one network."""
        parts, same = differences(rows, name), percent(1 - at_energy[name])
        return f"the difference is {_parts_text(parts)}; there, at the optima of energy, it is {same}"

    most = min(saved, key=lambda name: saved[name])
    mean = percent(1 - geomean(list(at_energy.values())))
    least = named({name: 1 - one for name, one in at_energy.items()}, max, percent)
    found: list[Verdict] = [
        judge(claims["cycles_max"], max(speedups.values()), "overlap hides at most the smaller of MAC and VEC time"),
        judge(claims["energy_max"], 1 - saved[most], f"on {most} {why(most)}; the maximum of those is {least}"),
        judge(claims["energy_geomean"], 1 - geomean(list(saved.values())),
              f"both do the same operations, and hardly other DRAM bytes; at the optima of energy it is {mean}"),
    ]  # fmt: skip
    stated = [name for name in ("llama3_8b", "bert_base", "vit_b_16") if name in saved]
    found += [judge(claims[f"energy_{name}"], 1 - saved[name], why(name), why(name)) for name in stated]
    page.compare(*found, _against_fusemax(data, rows_of), *_unet(data))
    _peers(page, data, rows)


def _against_fusemax(data: Data, rows_of: dict[str, list[Row]]) -> Verdict:
    """Judge on how many networks MAS takes more energy than FuseMax: the paper does not say at which optima."""
    claim = data.claims["energy_fusemax"]
    worse = {
        goal: sum(one < 1 for one in ratios(values_of(rows, "total_pj"), "fusemax", SUBJECT).values())
        for goal, rows in rows_of.items()
    }
    on_mac = sum(row["dataflow"] == "fusemax" and row["tiling.exp_on"] == "mac" for row in rows_of["energy"])
    ours = ", ".join(f"{count} at the optima of {goal}" for goal, count in worse.items())
    agree = {goal: claim.agrees(count) for goal, count in worse.items()}
    exp = f"fusemax runs exp on the MAC array in {on_mac} networks at the optima of energy (assumed to be possible)"
    if len(set(agree.values())) == 1:
        return Verdict(claim, ours, "agrees" if agree["energy"] else "differs", exp)
    there = next(goal for goal, yes in agree.items() if yes)
    return Verdict(
        claim, ours, "not comparable", f"so it is at the optima of {there}; which are meant is not said; {exp}"
    )


PEER = "bert_base"


def _peers(page: Page, data: Data, rows: list[Row]) -> None:
    """Put what other simulators say of one network on this machine beside ours."""
    one = {row["dataflow"]: row for row in rows if row["workload"] == PEER}
    if not one:
        return
    page.heading("Beside other simulators")
    mas, alone = one[SUBJECT], one["layer_wise"]
    bounds = data.result(mas["key"])["bounds"]
    page.text(
        "Each models a machine like this one in its own way (AccelForge with the same units, memory and bandwidth; "
        "TileFlow with L1 in two halves; of Stream our sources do not say), with one network. TileFlow has no vector "
        "unit: its bound is the MAC array's steps. AccelForge takes softmax as one operation a score, adds MAC and VEC "
        "time, and has no fill and no ports. Stream overlaps both units, with four operations of softmax, at a tiling "
        "that it is given."
    )
    claims, fill = data.claims, mas["cycles"] / bounds["mac_cycles"] - 1
    alone_us = bounds["mac_cycles"] / mas["cycles"] * mas["time_us"]
    theirs = percent(claims["peer_accelforge"].low / alone_us - 1)
    close = (
        f"both are the {alone_us:.1f} us of the MAC array and little more: there an operation a score is added "
        f"({theirs}), here softmax is hidden, and fill, ports and hand-overs add {percent(fill)}"
    )
    limits = f"layer_wise, which {alone['limited_by'].upper()} limits"
    page.compare(
        judge(claims["peer_tileflow"], float(bounds["mac_cycles"]), "the array takes other steps",
              f"our bound of MAC, too; the schedule of mas takes {percent(fill)} more"),
        judge(claims["peer_accelforge"], mas["time_us"], "mas", close),
        judge(claims["peer_accelforge_unfused"], alone["time_us"], "layer_wise", limits),
        judge(claims["peer_stream"], mas["time_us"], "Stream's tiling is given, ours is proven to be the best", "mas"),
    )  # fmt: skip


def _unet(data: Data) -> list[Verdict]:
    """Put the two figures of Stable Diffusion beside ours."""
    unet = values_of(data.done("paper_networks", search__objective="latency", workload=UNET), "cycles").get(UNET)
    saved = None if not unet else 1 - unet[SUBJECT] / unet[BASELINE]
    why = f"not said whether of time or energy, nor against what; ours: cycles saved against FLAT on {UNET}"
    whole = "needs the layers between the attention units, which mas_sim does not model"
    return [beside(data.claims["unet"], saved, why), beside(data.claims["unet_end_to_end"], None, whole)]


def hardware(page: Page, data: Data) -> None:
    """Write the networks on the preset of a phone NPU, beside the published measurement."""
    page.text(
        "The measured kernel is not published. How it divides by the sum of a row decides here: by a division of each "
        "score, as the machine's file has it, or by one reciprocal a row and a multiplication of each score."
    )
    ways = {"division": "divide", "reciprocal": "reciprocal"}
    series: dict[str, dict[str, float]] = {}
    over_flat: dict[str, dict[str, float]] = {}
    for way, step in ways.items():
        cycles = values_of([row for row in data.done("paper_hardware") if step in row[PASSES]], "cycles")
        page.heading(f"By {way}")
        figures_table(page, cycles, 1, f"Cycles on davinci_lite by {way}, each dataflow at its proven best tiling")
        found = {f"mas over {flow}": ratios(cycles, flow, SUBJECT) for flow in flows_in(cycles) if flow != SUBJECT}
        spread_table(page, found, False, f"Speedup of mas over each of the others, by {way}")
        series |= {f"{name}, {way}": one for name, one in found.items()}
        over_flat[way] = found[f"mas over {BASELINE}"]
        told = count_best([best_of(one, TIES) for one in cycles.values()])
        page.finding(
            f"By {way}, the fewest cycles of {len(cycles)} networks (ties within {percent(TIES)}): {told}; mas over "
            f"flash is {times(geomean(list(found['mas over flash'].values())))} (geometric mean)."
        )
    page.heading("Beside the measurement")
    claim = data.claims["hardware"]
    ends = {"published minimum": claim.low, "published maximum": claim.high}
    figure = _distribution(series, {f"mas over {BASELINE}, {way}": ends for way in ways})
    page.figure(figure, "speedups", "Speedup of mas over each dataflow on davinci_lite")
    page.compare(_beside_silicon(data, over_flat))
    texts = [f"{_range_text(found)} by {way}" for way, found in over_flat.items()]
    page.finding(
        f"On a phone NPU as far as it is documented, MAS over FLAT is {' and '.join(texts)}; measured on silicon were "
        f"{claim.text}."
    )
    every_figure(page, data.done("paper_hardware"), "latency", "Every figure, with the tiling behind it", PASSES)


def _range_text(found: Mapping[str, float]) -> str:
    """Write the geometric mean, the least and the greatest of ratios."""
    values = list(found.values())
    return f"{times(geomean(values))} ({times(min(values))} to {times(max(values))})"


def _beside_silicon(data: Data, over_flat: Mapping[str, Mapping[str, float]]) -> Verdict:
    """Judge the published range: it agrees only if it does so however the kernel divides."""
    claim = data.claims["hardware"]
    agree = {way: all(map(claim.agrees, found.values())) for way, found in over_flat.items()}
    inside = {way: sum(claim.low <= one <= claim.high for one in found.values()) for way, found in over_flat.items()}
    counts = ", ".join(f"{inside[way]} of {len(over_flat[way])} networks inside by {way}" for way in over_flat)
    ours = "; ".join(f"{way} {_range_text(found)}" for way, found in over_flat.items())
    assumed = "; the preset's vector unit and port are assumed"
    if len(set(agree.values())) == 1:
        return Verdict(claim, ours, "agrees" if all(agree.values()) else "differs", counts + assumed)
    ways = " and ".join(way for way, yes in agree.items() if yes)
    why = f"by {ways} all are within {percent(NEAR)} of the range; how the measured kernel divides is not said"
    return Verdict(claim, ours, "not comparable", f"{why}: {counts}{assumed}")
