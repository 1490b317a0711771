"""Whether the speedup carries over to masks; and what of layer norm, GeLU and sparse masks is not modelled."""

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
    count_best,
    geomean,
    percent,
    ratios,
    times,
    values_of,
)
from mas_sim.reproduce.networks import figures_table, flows_in

MOST = 0.5
"""A speedup of which at least this share is left has carried over."""
KINDS = {"none": "no mask", "causal": "causal", "sliding_window": "window"}


def points_of(data: Data) -> dict[str, list[Row]]:
    """Return the points of each mask by its name; those without a mask are the same networks' of the tables."""
    masked = data.done("masks")
    networks, flows = ({row[column] for row in masked} for column in ("workload", "dataflow"))
    found: dict[str, list[Row]] = {KINDS["none"]: []}
    for row in data.done("paper_networks", search__objective="latency"):
        if row["workload"] in networks and row["dataflow"] in flows:
            found[KINDS["none"]].append(row)
    for row in masked:
        kind, back = KINDS[row["workload.mask"]], row["workload.window_back"]
        found.setdefault(kind if back is None else f"{kind} of {back + 1}", []).append(row)
    return found


def masks(page: Page, data: Data) -> None:
    """Write whether the speedup over FLAT is there under masks, too."""
    points = points_of(data)
    cycles = {mask: values_of(rows, "cycles") for mask, rows in points.items()}
    page.text(
        """A window of W holds a row's own key and the W - 1 before it. Every dataflow skips the kv tiles that a mask
        leaves empty for a whole row block; of the others the MAC array does all, and VEC masks what is not kept. So a
        mask takes away MAC and VEC work, but each key and value is still read at least once: the less work is left,
        the sooner DRAM is the limit, and the less an overlap of MAC and VEC gains."""
    )
    for mask, values in cycles.items():
        figures_table(page, values, 1, f"Cycles on mas_edge, {mask}, each dataflow at its proven best tiling (latency)")
    speedups = {mask: ratios(values, BASELINE, SUBJECT) for mask, values in cycles.items()}
    figure = plots.distribution_figure(speedups, quantity="speedup of mas over flat")
    page.figure(figure, "speedups", "Speedup of mas over flat by mask: every network, geometric mean, and ends")
    rows = [row for mask in points for row in _rows(data, mask, points[mask])]
    _table(page, rows)
    page.data(rows, list(rows[0]), "points", "Every point")
    _carried_over(page, cycles, speedups, rows)
    _not_modelled(page, data)


def _rows(data: Data, mask: str, points: list[Row]) -> list[Row]:
    """Return cycles and bounds of every point of a mask."""
    found = []
    for row in points:
        bounds = data.result(row["key"])["bounds"]
        own = {name: bounds[name] for name in ("mac_cycles", "vec_cycles", "dram_cycles", "lower_cycles", "limited_by")}
        facts = {"mask": mask, "network": row["workload"], "dataflow": row["dataflow"], "cycles": row["cycles"]}
        found.append({**facts, "total_pj": row["total_pj"], **own})
    return found


def _table(page: Page, rows: list[Row]) -> None:
    """Write what limits either dataflow under each mask, and the speedup beside the ideal."""
    table: list[list[Cell]] = []
    for row in (row for row in rows if row["dataflow"] == SUBJECT):
        flat = _flat_of(rows, row)
        table.append(
            [row["mask"], row["network"], f"{row['vec_cycles'] / row['mac_cycles']:.3f}", row["limited_by"].upper(),
             times(flat["cycles"] / row["cycles"]), times(flat["lower_cycles"] / row["lower_cycles"])]
        )  # fmt: skip
    head = ["mask", "network", "r", "limit of mas", "mas over flat", "ideal"]
    page.table(
        head,
        table,
        "r is VEC time over MAC time; the ideal is the bound of flat over that of mas; under a mask both bounds are of "
        "the kept scores alone, and schedules do whole tiles, so a speedup may be above it",
    )


def _flat_of(rows: list[Row], row: Row) -> Row:
    """Return FLAT's row of the same mask and network."""
    same = (one for one in rows if (one["mask"], one["network"]) == (row["mask"], row["network"]))
    return next(one for one in same if one["dataflow"] == BASELINE)


def _carried_over(
    page: Page,
    cycles: dict[str, dict[str, dict[str, float]]],
    speedups: dict[str, dict[str, float]],
    rows: list[Row],
) -> None:
    """Say whether the speedup is there under each mask, and who is the fastest."""
    before = geomean(list(speedups[KINDS["none"]].values()))
    for mask in (mask for mask in speedups if mask != KINDS["none"]):
        found, mean = speedups[mask], geomean(list(speedups[mask].values()))
        own = [row for row in rows if row["mask"] == mask and row["dataflow"] == SUBJECT]
        by_dram = sum(row["limited_by"] == "dram" for row in own)
        left = (mean - 1) / (before - 1)
        kept = "carries over" if left >= MOST else "hardly carries over" if mean > 1 + TIES else "is gone"
        page.finding(
            f"Mask {mask}: the speedup over FLAT {kept}, {times(mean)} (geometric mean of {len(found)} networks, "
            f"{times(min(found.values()))} to {times(max(found.values()))}), against {times(before)} without a mask; "
            f"DRAM is the limit of MAS on {by_dram} of {len(own)}.",
            answers="carry_over",
        )
        others = [flow for flow in flows_in(cycles[mask]) if flow not in (SUBJECT, BASELINE)]
        means = ", ".join(
            f"{times(geomean(list(ratios(cycles[mask], flow, SUBJECT).values())))} as fast as {flow}" for flow in others
        )
        best = count_best([best_of(one, TIES) for one in cycles[mask].values()])
        page.finding(
            f"Mask {mask}: MAS is {means} (geometric means); fewest cycles (ties within {percent(TIES)}): {best}."
        )


def _not_modelled(page: Page, data: Data) -> None:
    """Say what is not modelled, and put the two figures of STOF beside ours."""
    page.heading("Layer norm and GeLU")
    page.text(
        """mas_sim models attention, two products with a softmax between them, and nothing else of a layer. For layer
        norm and GeLU it would need a workload with other operators between two products, their costs on the vector
        unit, and a dataflow whose second stream does them. The bound says what to expect: whatever VEC does beside an
        independent product, a perfect overlap gains (1 + r) / max(1, r), r being VEC time over MAC time. GeLU works on
        each element by itself, so it needs no whole row in L1; layer norm needs a row's mean and variance first, as
        softmax needs a row's maximum and sum."""
    )
    page.finding(
        "Layer norm and GeLU are not modelled, so whether the two streams carry over to them is not answered here.",
        answers="carry_over",
    )
    page.heading("Beside STOF")
    gpu = "measured on GPUs, and our sources do not say against what"
    sparse = "mas_sim has causal and sliding-window masks, but not dilated, longformer or bigbird"
    whole = "needs the layers around attention, which mas_sim does not model"
    page.compare(
        beside(data.claims["stof_attention"], None, f"{gpu}; {sparse}"),
        beside(data.claims["stof_end_to_end"], None, f"{gpu}; {whole}"),
    )


__all__ = ["masks", "points_of"]
