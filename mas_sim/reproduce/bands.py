"""Whether the ranking in energy survives what is not known of energies: every row of the table at the ends of its band.

The energy of a schedule is linear in the rows of the table: what it counts, times what one of each costs. So schedules
are built once, and priced anew for every row that is changed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from mas_sim import plots
from mas_sim.energy import EnergyCoefficients, energy_breakdown, energy_coefficients
from mas_sim.energy_table import Level
from mas_sim.plots import TornadoBar
from mas_sim.report import make_report
from mas_sim.reproduce.book import Cell, Page
from mas_sim.reproduce.data import (
    BASELINE,
    SUBJECT,
    TIES,
    Data,
    Values,
    best_of,
    count_best,
    geomean,
    percent,
    ratios,
)
from mas_sim.reproduce.networks import main_rows, without_exp_on_mac
from mas_sim.tiling import Tiling

TABLE_ROWS: dict[str, tuple[int, ...]] = {
    "DRAM": (0, 1), "L1": (2, 3), "L0": (4, 5), "mac_fp16_acc32": (6,), "vec_max_fp16": (7,), "vec_add_fp16": (8,),
    "vec_mul_fp16": (9,), "vec_exp_fp16": (10,), "vec_div_fp16": (11,), "leakage": (),
}  # fmt: skip
"""Rows of the energy table that a workload of fp16 uses, and the columns of a meter that each prices."""

WORDS = {
    "DRAM": "byte of DRAM", "L1": "byte of L1", "L0": "byte of L0", "mac_fp16_acc32": "multiply-accumulate",
    "vec_max_fp16": "max on VEC", "vec_add_fp16": "add on VEC", "vec_mul_fp16": "multiply on VEC",
    "vec_exp_fp16": "exp on VEC", "vec_div_fp16": "divide on VEC", "leakage": "leakage, a cycle",
}  # fmt: skip
"""What each of these rows prices."""

ENDS: tuple[Level, ...] = ("low", "high")
ALL = "all rows together"


@dataclass(frozen=True)
class Counted:
    """What a schedule does: its counts in the order of a meter, its cycles, and what one of each costs."""

    counts: npt.NDArray[np.int64]
    cycles: int
    prices: dict[Level, EnergyCoefficients]

    def energy_pj(self, row: str = ALL, level: Level = "nominal") -> float:
        """Return the energy with one row of the table, or all, at an end of its band, and the others nominal."""
        return energy_breakdown(self.counts, self.cycles, priced(self.prices, row, level)).total


def priced(prices: dict[Level, EnergyCoefficients], row: str, level: Level) -> EnergyCoefficients:
    """Return what actions cost with one row of the table, or all, at an end of its band, and the others nominal."""
    if row == ALL:
        return prices[level]
    nominal, end = prices["nominal"], prices[level]
    actions, columns = nominal.pj_per_action.copy(), list(TABLE_ROWS[row])
    actions[columns] = end.pj_per_action[columns]
    leakage = end.leakage_pj_per_cycle if row == "leakage" else nominal.leakage_pj_per_cycle
    return replace(nominal, pj_per_action=actions, leakage_pj_per_cycle=leakage)


Counts = dict[str, dict[str, Counted]]
"""By network and dataflow."""


def counted(data: Data) -> Counts:
    """Build the schedules of the paper's networks at their optima of energy, and count what they do."""
    found: Counts = {}
    prices: dict[tuple[str, str], dict[Level, EnergyCoefficients]] = {}
    for row in main_rows(data, "energy"):
        job = data.sweeps["paper_networks"].point(row["position"]).job
        key = (job.arch.hash, job.workload.dtype)
        if key not in prices:
            levels: tuple[Level, ...] = ("nominal", *ENDS)
            prices[key] = {level: energy_coefficients(job.arch, job.workload.dtype, level) for level in levels}
        tiling = Tiling(**data.result(row["key"])["tiling"])
        report = make_report(job.dataflow, job.arch, job.workload, tiling, check=False)
        one = Counted(report.meter_counts, report.cycles, prices[key])
        found.setdefault(job.workload.name, {})[job.dataflow] = one
    return found


@dataclass(frozen=True)
class Change:
    """A change of the table, and every energy with it; `flips` are networks whose least energy is of another dataflow.

    Attributes
    ----------
    flips
        By network: the dataflow with the least energy now, and by what factor the nominal one takes more.
    """

    row: str
    level: Level
    energies: Values
    flips: dict[str, tuple[str, float]]

    @classmethod
    def of(cls, counts: Counts, row: str, level: Level) -> "Change":
        """Price every schedule with the change."""
        values = {net: {flow: one.energy_pj(row, level) for flow, one in of.items()} for net, of in counts.items()}
        flips = {}
        for net, of in counts.items():
            before = _least({flow: one.energy_pj() for flow, one in of.items()})
            after = _least(values[net])
            if after != before:
                flips[net] = (after, values[net][before] / values[net][after])
        return cls(row, level, values, flips)

    def beyond(self, wanted: Callable[[float], bool] = lambda factor: factor > 1 + TIES) -> dict[str, str]:
        """Return the networks that flip by more than a tie, and to which dataflow."""
        return {net: flow for net, (flow, factor) in self.flips.items() if wanted(factor)}


def _least(values: dict[str, float]) -> str:
    return best_of(values)[0]


def bands(page: Page, data: Data) -> None:
    """Write whether the ranking in energy survives the bands of the energy table."""
    counts = counted(data)
    nominal = Change.of(counts, ALL, "nominal")
    changes = [Change.of(counts, row, level) for row in (*TABLE_ROWS, ALL) for level in ENDS]
    page.text(
        "Tilings are those with the least energy by the nominal table, and stay the same: a search with another table "
        "could find others (`search.energy_level` in a sweep file). Each row of the table alone is taken to the low "
        "and the high end of its band, the others nominal; and all of them at once, as `--energy low` and "
        "`--energy high` do, which is the weaker test: all rows then move the same way."
    )
    _ends(page, nominal, changes)
    _rows_alone(page, counts, changes)
    _figures(page, counts, nominal, changes)
    _files(page, counts)
    _findings(page, nominal, changes)
    _structural(page, data, nominal)


def _structural(page: Page, data: Data, nominal: Change) -> None:
    """Say what the bands do not vary: whether the MAC array can do exp at all."""
    without = without_exp_on_mac(data, "energy", "total_pj")
    both = [net for net in nominal.energies if net in without]
    if not both:
        return
    before = [best_of(nominal.energies[net], TIES) for net in both]
    after = [best_of(nominal.energies[net] | {"fusemax": without[net]}, TIES) for net in both]
    others = sum(old != new for old, new in zip(before, after, strict=True))
    page.finding(
        "Bands vary energies only. That the MAC array can do exp, which only fusemax uses, is an assumption, too "
        f"(`mac.exp_steps`): without it the least energy is another dataflow's in {others} of {len(both)} networks "
        f"({count_best(after)})."
    )


def _ends(page: Page, nominal: Change, changes: list[Change]) -> None:
    """Write the least energy and the saving of each network with all rows at either end."""
    low, high = (next(one for one in changes if (one.row, one.level) == (ALL, level)) for level in ENDS)
    page.heading("All rows together")
    rows: list[list[Cell]] = []
    for network in nominal.energies:
        three = [one.energies[network] for one in (low, nominal, high)]
        saved = [1 - values[SUBJECT] / values[BASELINE] for values in three]
        rows.append([network, *(", ".join(best_of(values, TIES)) for values in three), *map(percent, saved)])
    head = ["network", "least: low", "nominal", "high", "mas saves over flat: low", "nominal", "high"]
    page.table(head, rows, f"The dataflows with the least energy (all within {percent(TIES)})")


def _rows_alone(page: Page, counts: Counts, changes: list[Change]) -> None:
    """Write how many networks have another winner with each row of the table alone at an end of its band."""
    page.heading("One row at a time")
    prices = next(iter(next(iter(counts.values())).values())).prices
    rows: list[list[Cell]] = []
    for low, high in zip(changes[::2], changes[1::2], strict=True):
        told: list[Cell] = [low.row, WORDS.get(low.row), *_band(prices, low.row)]
        for one in (low, high):
            beyond = one.beyond()
            flips = f"{len(beyond)}" + (f" ({_to(beyond)}; by up to {_most(one)})" if beyond else "")
            told += [flips, len(one.flips) - len(beyond)]
        rows.append(told)
    page.table(
        [
            "row of the table", "what", "pJ: low", "nominal", "high",
            "other winner at low", f"within {percent(TIES)}", "other winner at high", f"within {percent(TIES)}",
        ],
        rows,
        f"Networks, of {len(counts)}, in which another dataflow than by the nominal table takes the least energy",
    )  # fmt: skip


def _band(prices: dict[Level, EnergyCoefficients], row: str) -> list[Cell]:
    """Return what one action (of SRAM: one byte read; of leakage: one cycle) costs at low, nominal and high, in pJ."""
    levels: tuple[Level, ...] = ("low", "nominal", "high")
    if row == ALL:
        return [None] * len(levels)
    columns = TABLE_ROWS[row]
    return [
        float(prices[level].pj_per_action[columns[0]]) if columns else prices[level].leakage_pj_per_cycle
        for level in levels
    ]


def _to(flips: dict[str, str]) -> str:
    """Say which dataflows win instead."""
    flows = list(flips.values())
    return ", ".join(f"{flow} {flows.count(flow)}" for flow in dict.fromkeys(flows))


def _most(change: Change) -> str:
    """Write by how much the new winner is ahead of the nominal one, at most."""
    return percent(max(factor for _, factor in change.flips.values()) - 1)


def _figures(page: Page, counts: Counts, nominal: Change, changes: list[Change]) -> None:
    """Draw what each row does to the dataflow that most often wins: against its most frequent successor, and MAS."""
    firsts = [_least(values) for values in nominal.energies.values()]
    first = max(dict.fromkeys(firsts), key=firsts.count)
    rest = [flow for one in changes for flow, _ in one.flips.values() if flow != first]
    others = [flow for values in nominal.energies.values() for flow in sorted(values, key=values.__getitem__)[:2]]
    rival = max(dict.fromkeys(rest or [flow for flow in others if flow != first]), key=(rest or others).count)
    for flow in dict.fromkeys((rival, SUBJECT)):
        if flow == first:
            continue
        over = {(one.row, one.level): _mean(one.energies, flow, first) for one in (*changes, nominal)}
        bars = [
            TornadoBar(WORDS.get(row, row), over[row, "low"], over[row, "high"], *ENDS) for row in (*TABLE_ROWS, ALL)
        ]
        quantity = f"energy of {flow} over {first} (geometric mean of {len(counts)} networks)"
        figure = plots.tornado_figure(
            bars, nominal=over[ALL, "nominal"], quantity=quantity, flip_name=f"{flow} takes less"
        )
        page.figure(figure, flow, f"Energy of {flow} over {first} with one row of the table at an end of its band")


def _mean(values: Values, above: str, below: str) -> float:
    return geomean(list(ratios(values, above, below).values()))


def _files(page: Page, counts: Counts) -> None:
    """Write every energy to files."""
    together: list[list[Cell]] = []
    alone: list[list[Cell]] = []
    for network, of in counts.items():
        for flow, one in of.items():
            together.append([network, flow, one.energy_pj(ALL, "low"), one.energy_pj(), one.energy_pj(ALL, "high")])
            alone += [[network, flow, row, *(one.energy_pj(row, level) for level in ENDS)] for row in TABLE_ROWS]
    head = ["network", "dataflow", "low_pj", "nominal_pj", "high_pj"]
    page.rows(head, together, "bands", "Every energy, all rows together", cases=True)
    head = ["network", "dataflow", "row", "low_pj", "high_pj"]
    page.rows(head, alone, "rows", "Every energy, one row at a time", cases=True)


def _findings(page: Page, nominal: Change, changes: list[Change]) -> None:
    """Say what survives, and what does not."""
    count = len(nominal.energies)
    together = {net for one in changes if one.row == ALL for net in one.beyond()}
    alone = [one for one in changes if one.row != ALL]
    flipping = [one for one in alone if one.beyond()]
    flipped = {net for one in flipping for net in one.beyond()}
    page.finding(
        f"With all rows of the energy table at the low or at the high end, the dataflow with the least energy stays "
        f"the same in {count - len(together)} of {count} networks (a difference of at most {percent(TIES)} is none); "
        f"with each row alone at either end, in {count - len(flipped)} of {count}."
    )
    told = "; ".join(
        f"{one.row} at its {one.level} end, in {', '.join(one.beyond())} ({_to(one.beyond())}; by up to {_most(one)})"
        for one in flipping
    )
    within = sum(len(one.flips) - len(one.beyond()) for one in alone)
    page.finding(
        f"Rows of the energy table that alone give another winner (how often which, and its lead): {told or 'none'}. "
        f"Changes of winner within {percent(TIES)}, which are ties: {within}."
    )
    saved = [1 - value for one in (*changes, nominal) for value in ratios(one.energies, SUBJECT, BASELINE).values()]
    page.finding(
        f"Whatever row is changed, MAS saves {percent(min(saved))} to {percent(max(saved))} of the energy of FLAT."
    )
