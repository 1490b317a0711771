"""What an energy objective changes, and what is left of FuseMax's energy where the MAC array cannot do exp."""

from mas_sim import plots
from mas_sim.reproduce.book import Cell, Page
from mas_sim.reproduce.data import (
    BASELINE,
    SUBJECT,
    TIES,
    Data,
    best_of,
    count_best,
    exp_on_mac,
    geomean,
    percent,
    ratios,
    times,
    values_of,
)
from mas_sim.reproduce.networks import flows_in, main_rows, without_exp_on_mac


def objectives(page: Page, data: Data) -> None:
    """Write what an energy objective changes."""
    means: list[list[Cell]] = []
    every: list[list[Cell]] = []
    saved: dict[str, dict[str, dict[str, float]]] = {}
    for goal in ("latency", "energy"):
        points = main_rows(data, goal)
        cycles, energy = values_of(points, "cycles"), values_of(points, "total_pj")
        for flow in (flow for flow in flows_in(energy) if flow != SUBJECT):
            speedups, shares = ratios(cycles, flow, SUBJECT), ratios(energy, SUBJECT, flow)
            means.append([goal, flow, geomean(list(speedups.values())), 1 - geomean(list(shares.values()))])
            every += [[net, flow, goal, speedups[net], 1 - shares[net]] for net in shares]
            saved.setdefault(flow, {})[goal] = {net: 1 - share for net, share in shares.items()}
    page.table(
        ["objective", "against", "speedup of mas", "energy that mas saves"],
        [[goal, flow, times(float(speedup or 0)), percent(float(share or 0))] for goal, flow, speedup, share in means],
        "Geometric means over the networks, each dataflow at its proven optimum of that objective",
    )
    lanes = {f"{flow}, {goal}": found for flow, goals in saved.items() for goal, found in goals.items()}
    figure = plots.distribution_figure(lanes, quantity="energy saved by mas", percent=True)
    page.figure(
        figure, "savings", "Energy that mas saves against each dataflow, at the optima of latency and of energy"
    )
    flows = list(saved)
    table: list[list[Cell]] = [
        [net, *(" / ".join(percent(saved[flow][goal][net]) for goal in ("latency", "energy")) for flow in flows)]
        for net in saved[BASELINE]["latency"]
    ]
    page.table(["network", *flows], table, "Energy that mas saves, at the optima of latency / at those of energy")
    head = ["objective", "against", "speedup", "energy_saved"]
    page.rows(head, means, "objectives", "The means")
    page.rows(["network", "against", "objective", *head[2:]], every, "networks", "Every network", cases=True)
    _objective_findings(page, saved, {(str(goal), str(flow)): float(mean or 0) for goal, flow, _, mean in means})
    _without_exp_on_mac(page, data)


def _without_exp_on_mac(page: Page, data: Data) -> None:
    """Say what is left of FuseMax's energy where the MAC array cannot do exp: that it can is assumed."""
    points = main_rows(data, "energy")
    energy, without = values_of(points, "total_pj"), without_exp_on_mac(data, "energy", "total_pj")
    both = {net: one[SUBJECT] / without[net] for net, one in energy.items() if net in without}
    if not both:
        return
    mean = geomean(list(both.values())) - 1
    more = f"{percent(abs(mean))} {'more' if mean > 0 else 'less'}"
    bests = [best_of(energy[net] | {"fusemax": without[net]}, TIES) for net in both]
    page.finding(
        f"fusemax runs exp on the MAC array in {exp_on_mac(points)} of {len(energy)} networks at these optima. Only it "
        f"can, and that the array can is assumed (`mac.exp_steps`). Where it cannot, MAS takes {more} energy than "
        f"fusemax (geometric mean; less on {sum(one < 1 - TIES for one in both.values())} of {len(both)} networks), "
        f"and the least is taken by: {count_best(bests)}."
    )
    rows: list[list[Cell]] = [[net, without[net], energy[net][SUBJECT]] for net in both]
    page.rows(["network", "fusemax_total_pj", "mas_total_pj"], rows, "without_exp_on_mac",
              "Without exp on the MAC array", cases=True)  # fmt: skip


def _objective_findings(
    page: Page, saved: dict[str, dict[str, dict[str, float]]], means: dict[tuple[str, str], float]
) -> None:
    """Say whether the lead in energy widens, over FLAT and over the others."""
    latency, energy = means["latency", BASELINE], means["energy", BASELINE]
    changes = {net: energy - saved[BASELINE]["latency"][net] for net, energy in saved[BASELINE]["energy"].items()}
    large = {net: change for net, change in changes.items() if abs(change) > TIES}
    rest = max((abs(change) for net, change in changes.items() if net not in large), default=0.0)
    told = ", ".join(f"{net} by {100 * change:+.1f}" for net, change in large.items())
    page.finding(
        f"An energy objective {'widens' if energy > latency else 'does not widen'} the lead in energy over FLAT: it is "
        f"{percent(latency)} at the optima of latency and {percent(energy)} at those of energy (geometric means). It "
        f"changes on {told or 'no network'}{' points' if told else ''}, and elsewhere by at most {100 * rest:.2f} "
        "points.",
        answers="objective",
    )
    ahead = {flow: mean for (goal, flow), mean in means.items() if goal == "energy" and mean < -TIES}
    told = ", ".join(f"{flow} (MAS takes {percent(-mean)} more)" for flow, mean in ahead.items())
    page.finding(f"At the optima of energy these take less energy than MAS, geometric mean: {told or 'none'}.")
    for flow in ahead:
        own = saved[flow]["energy"]
        page.finding(
            f"Against {flow}, MAS takes less energy on {sum(one > TIES for one in own.values())} and more on "
            f"{sum(one < -TIES for one in own.values())} of {len(own)} networks at the optima of energy."
        )
