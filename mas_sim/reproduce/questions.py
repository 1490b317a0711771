"""Whether the speedup follows the MAC:VEC ratio, and what the published speedup would take."""

import math
import shlex
from dataclasses import asdict, dataclass, field
from typing import Any

from mas_sim import plots
from mas_sim.arch import Arch
from mas_sim.report import make_report
from mas_sim.reproduce.book import Cell, Page
from mas_sim.reproduce.claims import Claim, beside
from mas_sim.reproduce.data import (
    BASELINE,
    SUBJECT,
    TIES,
    Data,
    Row,
    grouped,
    percent,
    times,
)
from mas_sim.reproduce.networks import main_rows
from mas_sim.search import ExhaustiveSearch, NothingFitsError, SearchSpace
from mas_sim.tiling import Tiling
from mas_sim.workload import Workload

SWEPT = ("mac_vec_ratio", "exp_cost")
LIMITS = {"mac": "MAC", "vec": "VEC", "dram": "DRAM"}
FOLLOWS = 0.95
"""Speedups of more than this share of the ideal follow it."""
COARSE = 16
"""Candidates of a tile size in the searches of FLAT with single buffers, so that twelve networks take seconds."""


def ideal(r: float) -> float:
    """Return the speedup of a perfect overlap of MAC and VEC over none, VEC taking `r` times as long as MAC.

    Two units in turn take 1 + r, side by side the longer of 1 and r (in units of MAC time); our own derivation.
    """
    return (1 + r) / max(1.0, r)


@dataclass(frozen=True)
class Times:
    """What the units must take at least for a point, in cycles: FLAT's own bounds, padding of ragged tiles included."""

    mac: int
    vec: int
    dram: int

    @staticmethod
    def of(data: Data, row: Row) -> "Times":
        """Return those of a point."""
        bounds = data.result(row["key"])["bounds"]
        return Times(bounds["mac_cycles"], bounds["vec_cycles"], bounds["dram_cycles"])

    @property
    def longest(self) -> int:
        """Where all overlap, the bound: that of MAS."""
        return max(self.mac, self.vec, self.dram)

    @property
    def limited_by(self) -> str:
        """Which of the three that is; of equals MAC first."""
        return max(asdict(self), key=lambda name: asdict(self)[name])

    @property
    def r(self) -> float:
        """VEC time over MAC time."""
        return self.vec / self.mac

    @property
    def ideal(self) -> float:
        """FLAT's bound over that of MAS: MAC and VEC in turn beside transfers, over everything side by side."""
        return max(self.dram, self.mac + self.vec) / self.longest

    @property
    def nothing_overlapped(self) -> float:
        """What all three in turn take, over that of MAS."""
        return (self.dram + self.mac + self.vec) / self.longest

    def vec_to_reach(self, target: float) -> float | None:
        """Return the least VEC time at which all three in turn take `target` times as long as side by side.

        The ratio rises until VEC is the longest of the three, and falls from there; None if it never comes so far.
        """
        longest = max(self.mac, self.dram)
        needed = target * longest - self.mac - self.dram
        return max(0.0, needed) if needed <= longest else None


# --- the ratio ---


def _ratio_rows(data: Data) -> list[Row]:
    """Return r, the ideal and the speedup of MAS over FLAT, by network and width or cost of exp."""
    found: list[Row] = []
    for name in SWEPT:
        axis = next(axis for axis in data.sweeps[name].axes if axis in ("vec.lanes", "vec.op_lane_cycles.exp"))
        for (workload, value), part in grouped(data.done(name), "workload", axis).items():
            flows = {row["dataflow"]: row for row in part}
            if not {BASELINE, SUBJECT} <= flows.keys():
                continue
            own = Times.of(data, flows[BASELINE])
            speedup = flows[BASELINE]["cycles"] / flows[SUBJECT]["cycles"]
            bounds = {f"{unit}_cycles": cycles for unit, cycles in asdict(own).items()}
            facts = {"sweep": name, "axis": axis, "value": value, "workload": workload, **bounds, "r": own.r}
            facts |= {f"{flow}_gap": flows[flow]["gap_to_bound"] for flow in (BASELINE, SUBJECT)}
            found.append({**facts, "limited_by": own.limited_by, "speedup": speedup, "ideal": own.ideal})
    return found


def ratio(page: Page, data: Data) -> None:
    """Write whether the speedup follows the ratio of VEC to MAC time."""
    rows = _ratio_rows(data)
    page.text(
        """r is VEC time over MAC time: the least cycles that either unit needs (bounds of FLAT at that point, ragged
        tiles padded as the array pads them). FLAT takes at least max(DRAM, MAC + VEC), and MAS at least max(DRAM, MAC,
        VEC). So the ideal speedup is (1 + r) / max(1, r) where MAC or VEC is the limit, and less where DRAM is."""
    )
    shown = [{**row, "network": row["workload"]} for row in rows]
    figure = plots.ratio_figure(shown, ideal=ideal, ideal_name="(1 + r) / max(1, r)")
    page.figure(figure, "ideal", "Speedup of mas over flat against r, as the vector unit gets wider and exp dearer")
    table: list[list[Cell]] = [
        [row["workload"], row["value"], f"{row['r']:.4g}", LIMITS[row["limited_by"]], times(row["speedup"]),
         times(row["ideal"]), percent(row["speedup"] / row["ideal"])]
        for row in rows if row["sweep"] == SWEPT[0]
    ]  # fmt: skip
    head = ["network", "lanes", "r", "limit", "mas over flat", "ideal", "share"]
    page.table(head, table, f"Vector units of several widths (`mas-sim sweep {SWEPT[0]}`)")
    columns = ("sweep", "axis", "value", "workload", "mac_cycles", "vec_cycles", "dram_cycles", "r", "limited_by",
               "speedup", "ideal", f"{BASELINE}_gap", f"{SUBJECT}_gap")  # fmt: skip
    page.data(rows, columns, "points", "Every point, with those of the sweep of exp")
    for limit, name in LIMITS.items():
        _share_of_ideal(page, name, [row for row in rows if row["limited_by"] == limit])
    peak = max(rows, key=lambda row: float(row["speedup"]))
    worst = min((row["speedup"] / row["ideal"] for row in rows if row["limited_by"] != "dram"), default=math.nan)
    page.finding(
        f"The ceiling of the speedup {'follows' if worst > FOLLOWS else 'does not follow'} the ratio r where DRAM is "
        f"not the limit: the least share of (1 + r) / max(1, r) is {percent(worst)}.",
        answers="ratio",
    )
    page.finding(
        f"The greatest speedup of {len(rows)} points is {times(peak['speedup'])} ({peak['workload']}, r = "
        f"{peak['r']:.4g}), {percent(peak['speedup'] / peak['ideal'])} of its ideal.",
        answers="ratio",
    )
    _what_it_takes(page, data, peak["speedup"])


def _share_of_ideal(page: Page, limit: str, part: list[Row]) -> None:
    """Say what share of the ideal came out where one unit is the limit."""
    if not part:
        return
    shares = [row["speedup"] / row["ideal"] for row in part]
    least, most = min(row["r"] for row in part), max(row["r"] for row in part)
    whose = "max(DRAM, MAC + VEC) / DRAM" if limit == "DRAM" else "(1 + r) / max(1, r)"
    above = [row for row in part if row["speedup"] > row["ideal"] * (1 + TIES)]
    ends = [percent(max(row[f"{flow}_gap"] for row in above)) for flow in (BASELINE, SUBJECT)] if above else []
    beyond = (
        f"; {len(above)} are above it by more than {percent(TIES)}, as FLAT stays further above its own bound (up to "
        f"{ends[0]}) than MAS (up to {ends[1]})"
        if above
        else ""
    )
    page.finding(
        f"Where {limit} is the limit ({len(part)} points, r {least:.3g} to {most:.3g}), the speedup over FLAT is "
        f"{percent(min(shares))} to {percent(max(shares))} of the ideal {whose}{beyond}.",
        answers="ratio",
    )


# --- what 2.75x would take ---


@dataclass(frozen=True)
class Otherwise:
    """FLAT as it is not at its best, in cycles; None where nothing fits.

    Attributes
    ----------
    single
        Best with one buffer of each tensor.
    heads, batch
        Best with whole heads, and with all heads of all batches, fused at once (FLAT's granularities H and M).
    cores
        Cores that have work with all heads at once; 0 if that does not fit.
    tilings
        Of those that fit, by the names above.
    """

    single: int | None
    heads: int | None
    batch: int | None
    cores: int
    tilings: dict[str, Tiling] = field(default_factory=dict)


def flat_otherwise(arch: Arch, workload: Workload) -> Otherwise:
    """Search FLAT with single buffers, and at coarse granularities."""
    tilings: dict[str, Tiling] = {}

    def best(kind: str, **options: object) -> tuple[int | None, int]:
        try:
            space = SearchSpace(BASELINE, arch, workload, use_all_l1=False, **options)  # type: ignore[arg-type]
            found = ExhaustiveSearch().search(space, "latency").best
        except NothingFitsError:
            return None, 0
        tilings[kind] = found.tiling
        items = found.tiling.groups(workload) * found.tiling.row_blocks(workload)
        return found.cycles, min(arch.cores, items)

    single, _ = best("single", buffers=(1,), limit=COARSE)
    heads, _ = best("heads", granularity="H")
    return Otherwise(single, heads, *best("batch", granularity="M"), tilings)


def _takes(page: Page, data: Data) -> list[Row]:
    """Return what 2.75x would take on each network of the tables; write the results of every other FLAT."""
    sweep, target = data.sweeps["paper_networks"], data.claims["cycles_max"].low
    workloads = {workload.name: workload for workload in sweep.workloads}
    found: list[Row] = []
    results: list[dict[str, Any]] = []
    for (name,), part in grouped(main_rows(data, "latency"), "workload").items():
        flows = {row["dataflow"]: row for row in part}
        own, mas = Times.of(data, flows[BASELINE]), flows[SUBJECT]["cycles"]
        other = flat_otherwise(sweep.arch, workloads[name])
        vec = own.vec_to_reach(target)
        row: Row = {"workload": name, "limited_by": own.limited_by, "r": own.r, "dram_over_mac": own.dram / own.mac}
        row |= {"ideal": own.ideal, "speedup": flows[BASELINE]["cycles"] / mas, "flat_above": target / own.ideal - 1}
        for kind in ("single", "heads", "batch"):
            cycles = getattr(other, kind)
            row[f"{kind}_speedup"] = None if cycles is None else cycles / mas
        row |= {"batch_cores": other.cores, "nothing_overlapped": own.nothing_overlapped}
        found.append(row | {"vec_factor": None if vec is None else vec / own.vec})
        for kind, tiling in other.tilings.items():
            report = make_report(BASELINE, sweep.arch, workloads[name], tiling, check=False)
            results.append({**report.as_dict(), "place": {"flat": kind}})
    if results:
        page.book.write_results(f"results/{page.name}_flat.json", results)
    return found


def _what_it_takes(page: Page, data: Data, greatest: float) -> None:
    """Solve for the cost of VEC at which the published speedup would come out, and look for what else would give it."""
    target = data.claims["cycles_max"].low
    page.heading(f"What VEC cost would it take to reach {target:g}x?")
    rows, most = _takes(page, data), max(ideal(k / 1000) for k in range(1, 100_000))
    page.text(
        f"""(1 + r) / max(1, r) is {most:.2f} at r = 1 and less elsewhere, so it is {target:g} at no r. FLAT would have
        to be above its own bound, max(DRAM, MAC + VEC), by {percent(target / most - 1)} at r = 1, and by more at any
        other: at each network's own r by what the table says."""
    )
    table: list[list[Cell]] = [
        [row["workload"], LIMITS[row["limited_by"]], f"{row['r']:.3f}", f"{row['dram_over_mac']:.3f}",
         times(row["ideal"]), times(row["speedup"]), percent(row["flat_above"])] for row in rows
    ]  # fmt: skip
    head = ["network", "limit", "r", "DRAM / MAC time", "ideal", "found", f"FLAT above its bound for {target:g}x"]
    page.table(head, table, "On the machine as it is: mas over flat, both at their proven optima of latency")
    page.rows(list(rows[0]), [list(row.values()) for row in rows], "takes", "Both tables", cases=True)
    above, own = [row["flat_above"] for row in rows], [row["r"] for row in rows]
    page.finding(
        f"No VEC cost reaches the published {target:g}x between proven optima: a perfect overlap gains at most "
        f"{most:.2f}x, at r = 1, and the most that was simulated is {times(greatest)}. FLAT would have to be "
        f"{percent(target / most - 1)} above its own bound at r = 1, and {percent(min(above))} to "
        f"{percent(max(above))} at the networks' own r ({min(own):.3g} to {max(own):.3g}).",
        answers="ratio",
    )
    _another_flat(page, rows, target, data.claims["peer_tileflow_search"])


def _another_flat(page: Page, rows: list[Row], target: float, searched: Claim) -> None:
    """Look for a FLAT, not at its best, over which MAS would be as fast as was published."""
    page.heading(f"Which FLAT would give {target:g}x?")
    page.text(
        """Over a FLAT that is not at its best, MAS at its best is faster. With single buffers (the best of a coarse
        grid); with whole heads fused at once, and with all heads of all batches (FLAT's granularities H and M; the
        latter is one work item, so other cores have none; our sources do not say which the paper gave FLAT); and the
        bound of a FLAT that overlaps nothing at all, (DRAM + MAC + VEC) / max(DRAM, MAC, VEC), with the VEC cost, in
        multiples of the machine's, at which that would be as fast as was published."""
    )
    table: list[list[Cell]] = [
        [row["workload"], *(_times(row[f"{kind}_speedup"]) for kind in ("single", "heads", "batch")),
         row["batch_cores"] or None, times(row["nothing_overlapped"]), _times(row["vec_factor"])] for row in rows
    ]  # fmt: skip
    head = ["network", "single buffers", "whole heads", "all heads at once", "cores at work then",
            "nothing overlapped (bound)", f"VEC cost for {target:g}x then"]  # fmt: skip
    page.table(head, table, "Speedup of mas over such a flat; a dash where that does not fit, or no VEC cost does it")
    page.text(
        "Each of these schedules but the last, which is a bound, can be built again (`single`, `heads` or `batch` "
        "behind `flat=`):"
    )
    pick = shlex.quote(f"{rows[0]['workload']}/{BASELINE}@flat=single")
    page.code(f"mas-sim run --from reports/results/{page.name}_flat.json --pick {pick} --figure t.svg --trace t.json")
    names = {"single": "single buffers", "heads": "whole heads", "batch": "all heads of a batch at once"}
    for kind, name in names.items():
        found = [row[f"{kind}_speedup"] for row in rows if row[f"{kind}_speedup"] is not None]
        if found:
            fits = f" on the {len(found)} of {len(rows)} networks where that fits" if len(found) < len(rows) else ""
            cores = max(row["batch_cores"] for row in rows) if kind == "batch" else 0
            idle = f" (one work item, so {cores} of the cores at work)" if cores else ""
            page.finding(
                f"Over a FLAT with {name}{idle}, MAS is {times(min(found))} to {times(max(found))} as fast{fits}: that "
                f"{_explains(found, target)}."
            )
    bound = [row["nothing_overlapped"] for row in rows]
    solved = [row["vec_factor"] for row in rows if row["vec_factor"] is not None]
    cost = (
        f"; with {min(solved):.2f} to {max(solved):.2f} times the VEC cost it is {target:g}x on {len(solved)} of "
        f"{len(rows)} networks"
        if solved
        else ""
    )
    page.finding(
        f"A FLAT that overlaps nothing, transfers neither, takes by its bound {times(min(bound))} to "
        f"{times(max(bound))} the bound of MAS (fill and ports, which come on top, left out): that bound alone "
        f"{_explains(bound, target)}{cost}."
    )
    off = [searched.low * row["speedup"] for row in rows]
    size = "of that size" if min(off) <= target <= max(off) else "not of that size"
    page.finding(
        f"TileFlow's own search, on a machine like this one, left FLAT {searched.low:g}x off the mapping found by "
        f"hand. Such a FLAT would show MAS {times(min(off))} to {times(max(off))} ahead, which is {size}: a "
        "possible explanation, not proven."
    )
    page.compare(beside(searched, None, "that mapping is not known to us, so it cannot be run here"))


def _times(value: float | None) -> str | None:
    """Write a ratio, if there is one."""
    return None if value is None else times(value)


def _explains(found: list[float], target: float) -> str:
    """Say whether a range reaches the published speedup."""
    if max(found) < target:
        return f"does not explain {target:g}x"
    return f"is {target:g}x and more" if min(found) > target else f"could explain {target:g}x, but is not proven"
