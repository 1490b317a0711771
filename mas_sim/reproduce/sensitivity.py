"""Which assumption the conclusions hang on: a sweep of each, what it moves, and who wins at each of its values."""

import math

from mas_sim import plots
from mas_sim.plots import TornadoBar, WinnerCell
from mas_sim.reproduce.assumptions import (
    HARDWARE,
    NORMALISATION,
    NORMALIZE,
    RIVAL,
    SWEPT,
    Assumption,
    Value,
    assumptions,
    normalisation,
)
from mas_sim.reproduce.book import Cell, Page
from mas_sim.reproduce.data import (
    BASELINE,
    SUBJECT,
    TIES,
    Data,
    best_of,
    exp_on_mac,
    geomean,
    percent,
    ratios,
    times,
    values_of,
)


def tornado(page: Page, data: Data) -> None:
    """Write the sensitivity of the speedup over FLAT, and of the winner, to each assumption."""
    found = assumptions(data)
    networks = len({row["workload"] for one in found for value in one.values for row in value.rows})
    page.text(
        f"One assumption at a time is changed; every other is that of {data.sweeps['l1_size'].arch.name}. Figures are "
        f"geometric means of {networks} networks, at proven optima of latency; dataflows within {percent(TIES)} of the "
        "best count as equal to it. The sweeps leave out layer_wise and soft_pipe, which are far behind."
    )
    _speedups(page, found)
    _who_wins(page, found, normalisation(data, HARDWARE, f"{NORMALISATION} ({data.sweeps[HARDWARE].arch.name})"))
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
    head = ["sweep", "assumption", "value", "unit", "mas_over_flat", "fastest", "lead_over_next"]
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
        f"By these means of {_networks(found)} networks, FLAT is faster than MAS at: "
        f"{'; '.join(lost) or 'no value that was tried'}. It is as fast, within "
        f"{percent(TIES)}, at: {'; '.join(tied) or 'no value that was tried'}. {_flat_by_network(found)}",
        answers="sensitivity",
    )


def _networks(found: list[Assumption]) -> int:
    """Count the networks that the means are of."""
    return len({row["workload"] for one in found for value in one.values for row in value.rows})


def _flat_by_network(found: list[Assumption]) -> str:
    """Say on which network FLAT is the furthest ahead of MAS, and where."""
    leads = [
        (lead, network, f"{one.name} {value.text} {one.unit}".strip())
        for one in found
        for value in one.values
        for network, lead in ratios(values_of(value.rows, "cycles"), SUBJECT, BASELINE).items()
        if lead > 1 + TIES
    ]
    if not leads:
        return "It is so on no network alone, either."
    most = max(leads)
    whose = ", ".join(dict.fromkeys(network for _, network, _ in leads))
    return (
        f"On networks by themselves it is so in {len(leads)} cases ({whose}); the most on {most[1]} at {most[2]}, by "
        f"{times(most[0])}."
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
    mas = "" if SUBJECT in alone else f" By these means MAS wins alone at no value that was tried. {_alone(found)}"
    page.finding(
        f"By geometric means of {_networks(found)} networks and the dataflows of these sweeps, the fewest cycles on "
        f"the machine as it is are those of {', '.join(as_it_is)} (within {percent(TIES)}). Assumptions by which one "
        f"dataflow wins alone: {told_alone or 'none, at no value'}.{mas}",
        answers="sensitivity",
    )
    page.finding(_exp(found), answers="sensitivity")


def _alone(found: list[Assumption]) -> str:
    """Say where MAS wins alone on a network by itself."""
    cases = []
    for one in found:
        for value in one.values:
            for network in dict.fromkeys(row["workload"] for row in value.rows):
                part = [row for row in value.rows if row["workload"] == network]
                best, lead = Value(value.value, value.own, part).winners()
                cases += [(lead, network)] if best == [SUBJECT] else []
    if not cases:
        return "It does so on no network by itself, either."
    whose = ", ".join(dict.fromkeys(network for _, network in cases))
    return f"On networks by themselves it does in {len(cases)} cases ({whose}), by up to {times(max(cases)[0])}."


def _exp(found: list[Assumption]) -> str:
    """Say whether FuseMax's wins rest on exp on the MAC array."""
    won = [value for one in found for value in one.values if value.winners()[0] == ["fusemax"]]
    points = [row for value in won for row in value.rows if row["dataflow"] == "fusemax"]
    if not points:
        return "fusemax wins alone at no value that was tried."
    return (
        f"Where fusemax wins alone, it runs exp on the MAC array in {exp_on_mac(points)} of {len(points)} points. Only "
        "it can, its cost there does not rise with that on VEC, and that the array can at all is assumed "
        "(`mac.exp_steps`; [regimes](regimes.md) has what is left without it)."
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
    head = ["sweep", "value", "network", "mas_over_flat", "fastest", "lead_over_next"]
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
    both = {data.sweeps[name].arch.name: normalisation(data, name, "") for name in (NORMALIZE, HARDWARE)}
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
