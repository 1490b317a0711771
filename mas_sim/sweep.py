"""Comparing dataflows: each at its proven best tiling, over many workloads."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mas_sim.arch import Arch
from mas_sim.dataflows import get_dataflow
from mas_sim.energy_table import Level
from mas_sim.errors import MasSimError
from mas_sim.report import Report, make_report
from mas_sim.search.base import Progress, SearchResult
from mas_sim.search.exhaustive import ExhaustiveSearch
from mas_sim.search.space import SearchSpace
from mas_sim.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

MAIN_DATAFLOWS = ("layer_wise", "flat", "mas")
MAIN_WORKLOADS = (
    "bert_base", "bert_large", "bert_small", "llama3_8b", "t5_mini", "vit_b_14",
    "vit_l_14", "vit_h_14", "vit_b_16", "vit_l_16", "vit_h_16", "xlm",
)  # fmt: skip
"""The twelve networks of the MAS-Attention comparison."""

StepProgress = Callable[[str, int, int], None]
"""Called with what is being searched, how many tilings of it are settled, and how many there are."""


def search_facts(result: SearchResult) -> dict[str, Any]:
    """What a search looked at, for results."""
    return {
        "objective": result.objective,
        "space": result.space,
        "space_size": result.space_size,
        "legal": result.legal,
        "simulated": result.simulated,
        "pruned": result.pruned,
        "too_long": result.too_long,
    }


def best_report(
    dataflow: str,
    arch: Arch,
    workload: Workload,
    objective: str = "latency",
    *,
    energy_level: Level = "nominal",
    check: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Return the report of a dataflow's proven best tiling.

    Raises
    ------
    NothingFitsError
        If no tiling fits L1.
    MasSimError
        If the dataflow or objective is unknown.
    """
    get_dataflow(dataflow)
    found = ExhaustiveSearch().search(SearchSpace(dataflow, arch, workload), objective, progress)
    return make_report(
        dataflow, arch, workload, found.best.tiling, energy_level=energy_level, check=check,
        proven_optimal=found.proven_optimal, search=search_facts(found),
    )  # fmt: skip


@dataclass(frozen=True)
class Spread:
    """Geometric mean, minimum and maximum of a ratio over workloads."""

    geomean: float
    min: float
    max: float

    @staticmethod
    def of(values: Sequence[float]) -> "Spread":
        """Return the spread of positive values."""
        mean = math.exp(sum(math.log(v) for v in values) / len(values))
        return Spread(mean, min(values), max(values))

    def as_dict(self) -> dict[str, float]:
        """Return the fields by name."""
        return {"geomean": self.geomean, "min": self.min, "max": self.max}


@dataclass(frozen=True)
class Comparison:
    """Dataflows over workloads on one arch, each at its proven best tiling.

    Attributes
    ----------
    reports
        One for each workload and dataflow, workloads outermost.
    subject
        The dataflow the others are compared with: `mas` if it is among them, else the last.
    """

    reports: tuple[Report, ...]
    dataflows: tuple[str, ...]
    workloads: tuple[str, ...]
    subject: str
    objective: str

    def report(self, workload: str, dataflow: str) -> Report:
        """Return one report."""
        place = self.workloads.index(workload) * len(self.dataflows) + self.dataflows.index(dataflow)
        return self.reports[place]

    @property
    def baselines(self) -> tuple[str, ...]:
        """The dataflows other than the subject."""
        return tuple(name for name in self.dataflows if name != self.subject)

    def speedup(self, workload: str, baseline: str) -> float:
        """Cycles of a baseline over the subject's."""
        return self.report(workload, baseline).cycles / self.report(workload, self.subject).cycles

    def energy_ratio(self, workload: str, baseline: str) -> float:
        """Energy of the subject over a baseline's; the saving is one minus this."""
        return self.report(workload, self.subject).energy.total / self.report(workload, baseline).energy.total

    def speedup_spread(self, baseline: str) -> Spread:
        """Speedup over a baseline: geometric mean, minimum, maximum over the workloads."""
        return Spread.of([self.speedup(name, baseline) for name in self.workloads])

    def saving_spread(self, baseline: str) -> Spread:
        """Energy saving over a baseline; its mean is one minus the geometric mean of the energy ratios."""
        ratios = Spread.of([self.energy_ratio(name, baseline) for name in self.workloads])
        return Spread(1 - ratios.geomean, 1 - ratios.max, 1 - ratios.min)

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison as plain data, the `--json` of `compare`."""
        return {
            "results": [report.as_dict() for report in self.reports],
            "geomean": {
                "subject": self.subject,
                "speedup_over": {name: self.speedup_spread(name).as_dict() for name in self.baselines},
                "energy_saving_over": {name: self.saving_spread(name).as_dict() for name in self.baselines},
            },
        }

    def to_frame(self) -> "pd.DataFrame":
        """Return one row a report: cycles, time, energy by component, bytes, bounds and gap; for notebooks."""
        import pandas as pd

        rows = []
        for report in self.reports:
            energy = {f"{name}_pj": value for name, value in report.energy.as_dict().items()}
            rows.append(
                {
                    "workload": report.workload.name,
                    "dataflow": report.schedule.dataflow,
                    "cycles": report.cycles,
                    "time_us": report.time_us,
                    **energy,
                    "dram_bytes": report.dram_bytes,
                    "l1_peak_bytes": report.schedule.l1_peak_bytes,
                    "lower_cycles": report.bounds.lower_cycles,
                    "gap_to_bound": report.gap_to_bound,
                }
            )
        return pd.DataFrame(rows)


def compare(
    arch: Arch,
    workloads: Sequence[Workload],
    dataflows: Sequence[str] = MAIN_DATAFLOWS,
    objective: str = "latency",
    *,
    energy_level: Level = "nominal",
    check: bool = False,
    progress: StepProgress | None = None,
) -> Comparison:
    """Compare dataflows over workloads, each at its proven best tiling.

    Parameters
    ----------
    check
        Also audit and execute every winner.

    Raises
    ------
    NothingFitsError
        If a dataflow has no legal tiling for a workload.
    MasSimError
        If a name is unknown or given twice.
    """
    for name in dataflows:
        get_dataflow(name)
    for kind, given in (("workload", [w.name for w in workloads]), ("dataflow", list(dataflows))):
        twice = sorted({name for name in given if given.count(name) > 1})
        if twice:
            raise MasSimError(f"{kind} given twice: {', '.join(twice)}; each needs a name of its own")
    reports = []
    for workload in workloads:
        for name in dataflows:

            def step(done: int, total: int, what: str = f"{workload.name} {name}") -> None:
                if progress is not None:
                    progress(what, done, total)

            reports.append(
                best_report(name, arch, workload, objective, energy_level=energy_level, check=check, progress=step)
            )
    subject = "mas" if "mas" in dataflows else dataflows[-1]
    names = tuple(workload.name for workload in workloads)
    return Comparison(tuple(reports), tuple(dataflows), names, subject, objective)
