"""The assumptions that are varied one at a time: their sweeps, values, winners, and how runs of values are written."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mas_sim.reproduce.data import (
    TIES,
    Data,
    Row,
    best_of,
    geomean,
    grouped,
    means_over_flat,
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
    return [*found, normalisation(data, NORMALIZE, NORMALISATION)]


def _own(data: Data, name: str) -> float:
    """Return what the field of a sweep is on the machine as it is."""
    value: Any = data.sweeps[name].arch
    for part in SWEPT[name][0].split("."):
        value = getattr(value, part)
    return float(value)


def normalisation(data: Data, sweep: str, name: str) -> Assumption:
    """Return both ways of normalising, which are no numbers."""
    rows: dict[str, list[Row]] = {"division": [], "reciprocal": []}
    for row in data.done(sweep):
        rows["reciprocal" if "reciprocal" in str(row[PASSES]) else "division"].append(row)
    own = "division" if data.sweeps[sweep].arch.vec.normalize == "divide" else "reciprocal"
    return Assumption(sweep, name, "", [Value(way, way == own, part) for way, part in rows.items()])
