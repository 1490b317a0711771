"""What the pages are made of: the sweeps of the report, their results as tables, and a few ways to look at those."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mas_sim.comparison import Spread
from mas_sim.reproduce.claims import Claim, load_claims
from mas_sim.store import Store
from mas_sim.sweep_file import Sweep

TIES = 0.005
"""Dataflows this near to the best count as equal to it: the model is not finer than that."""

SUBJECT, BASELINE = "mas", "flat"

Row = dict[str, Any]
"""A point of a sweep: a row of `results_frame`, as plain data."""

Values = dict[str, dict[str, float]]
"""A figure of each dataflow, by network."""


@dataclass
class Data:
    """The results that the pages are made of.

    Attributes
    ----------
    quick
        Whether only a part of the report's points were computed.
    rows
        Results of each sweep, by its name.
    """

    store: Store
    quick: bool
    sweeps: dict[str, Sweep]
    rows: dict[str, list[Row]]
    claims: Mapping[str, Claim] = field(default_factory=load_claims)

    def done(self, name: str, **where: Any) -> list[Row]:
        """Return the finished points of a sweep where fields have these values; `__` in a name stands for a dot."""
        wanted = {column.replace("__", "."): value for column, value in where.items()}
        done = (row for row in self.rows[name] if row["status"] == "done")
        return [row for row in done if all(row[column] == value for column, value in wanted.items())]

    def result(self, key: str) -> dict[str, Any]:
        """Return the whole result of a point."""
        return self.store.result(key)


def values_of(rows: Sequence[Row], column: str) -> Values:
    """Return a column as figures by network and dataflow."""
    found: Values = {}
    for row in rows:
        found.setdefault(row["workload"], {})[row["dataflow"]] = float(row[column])
    return found


def grouped(rows: Sequence[Row], *columns: str) -> dict[tuple[Any, ...], list[Row]]:
    """Return rows by what some columns say, in rising order of that."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[column] for column in columns), []).append(row)
    return dict(sorted(found.items()))


def means_over_flat(rows: Sequence[Row], column: str) -> float:
    """Return the geometric mean of FLAT's figure over that of MAS, over the networks that have both."""
    return geomean(list(ratios(values_of(rows, column), BASELINE, SUBJECT).values()))


def ratios(values: Values, above: str, below: str) -> dict[str, float]:
    """Return one dataflow's figure over another's, of each network that has both."""
    return {name: one[above] / one[below] for name, one in values.items() if above in one and below in one}


def geomean(values: Sequence[float]) -> float:
    """Return the geometric mean of positive figures; NaN of none."""
    return Spread.of(values).geomean if values else math.nan


def extreme(values: Mapping[str, float], pick: Callable[..., str]) -> tuple[str, float]:
    """Return the item with the least (`min`) or greatest (`max`) figure; of equals the first."""
    name = pick(values, key=lambda one: values[one])
    return name, values[name]


def named(values: Mapping[str, float], pick: Callable[..., str], write: Callable[[float], str]) -> str:
    """Write the least or greatest figure with its item."""
    name, value = extreme(values, pick)
    return f"{write(value)} ({name})"


def times(value: float) -> str:
    """Write a ratio."""
    return "-" if math.isnan(value) else f"{value:.3f}x"


def percent(share: float) -> str:
    """Write a share of 1."""
    return "-" if math.isnan(share) else f"{100 * share:.1f} %"


ON_MAC = "tiling.exp_on"
"""Where exp runs; only `fusemax` can have it on the MAC array, on a machine that has `mac.exp_steps`."""


def exp_on_mac(rows: Sequence[Row], flow: str = "fusemax") -> int:
    """Count the points of a dataflow that run exp on the MAC array."""
    return sum(row["dataflow"] == flow and row[ON_MAC] == "mac" for row in rows)


def best_of(by_flow: Mapping[str, float], tolerance: float = 0.0) -> list[str]:
    """Return the dataflows with the least figure; with a tolerance, also those above it by no more than that share."""
    least = min(by_flow.values())
    return [name for name, value in by_flow.items() if value <= least * (1 + tolerance)]


def count_best(bests: Sequence[Sequence[str]]) -> str:
    """Say how often each dataflow, or each group of equals, is the best."""
    groups = [" = ".join(best) for best in bests]
    counts = {group: groups.count(group) for group in dict.fromkeys(groups)}
    return ", ".join(f"{group} {count}" for group, count in sorted(counts.items(), key=lambda pair: -pair[1]))
