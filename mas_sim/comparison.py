"""Comparing dataflows: each at its proven best tiling, over many workloads; and `auto`, which picks one."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mas_sim.arch import Arch
from mas_sim.bounds import bounds
from mas_sim.dataflows import DATAFLOWS
from mas_sim.energy_table import Level
from mas_sim.errors import MasSimError, nearest
from mas_sim.report import Report, make_report
from mas_sim.search.base import NothingFitsError, Progress, SearchResult, Trial
from mas_sim.search.exhaustive import ExhaustiveSearch
from mas_sim.search.objective import Objective, objective_value
from mas_sim.search.space import SearchSpace
from mas_sim.tiling import GRANULARITIES
from mas_sim.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

AUTO = "auto"
"""The name that stands for whichever dataflow is best for a workload."""

MAIN_DATAFLOWS = ("layer_wise", "flat", "mas")
MAIN_WORKLOADS = (
    "bert_base", "bert_large", "bert_small", "llama3_8b", "t5_mini", "vit_b_14",
    "vit_l_14", "vit_h_14", "vit_b_16", "vit_l_16", "vit_h_16", "xlm",
)  # fmt: skip
"""The twelve networks of the MAS-Attention comparison."""

StepProgress = Callable[[str, int, int], None]
"""Called with what is being searched, how many tilings of it are settled, and how many there are; 0 while it is not
yet known how many."""


def require_name(kind: str, name: str, legal: Sequence[str]) -> None:
    """Refuse a name that is not among the legal ones.

    Raises
    ------
    MasSimError
        With the legal names, and the nearest.
    """
    if name not in legal:
        near = nearest(name, legal)
        hint = f"; did you mean {near!r}?" if near else ""
        raise MasSimError(f"no {kind} is called {name!r} (there are {', '.join(legal)}){hint}")


def search_facts(result: SearchResult) -> dict[str, Any]:
    """What a search looked at, for results."""
    names = ("objective", "space", "space_size", "legal", "simulated", "pruned", "too_long")
    return {name: getattr(result, name) for name in names}


class _Searches:
    """The searches of one workload on one arch: of each dataflow at most one, whoever asks for it."""

    def __init__(
        self, arch: Arch, workload: Workload, objective: str, energy_level: Level, granularity: str | None
    ) -> None:
        Objective.parse(objective)
        if granularity is not None:
            require_name("granularity", granularity, GRANULARITIES)
        self.arch, self.workload, self.objective, self.energy_level = arch, workload, objective, energy_level
        self.granularity = granularity
        self._done: dict[str, SearchResult | NothingFitsError] = {}

    def outcome(self, dataflow: str, progress: Progress | None) -> SearchResult | NothingFitsError:
        """Return what the search of a dataflow found, or why it found nothing."""
        if dataflow not in self._done:
            if progress is not None:
                progress(0, 0)
            space = SearchSpace(dataflow, self.arch, self.workload, granularity=self.granularity)
            try:
                found = ExhaustiveSearch().search(space, self.objective, progress, energy_level=self.energy_level)
                self._done[dataflow] = found
            except NothingFitsError as error:
                self._done[dataflow] = error
        return self._done[dataflow]

    def report(self, dataflow: str, *, check: bool, seed: int, progress: Progress | None) -> Report:
        """Return the report of a dataflow's best tiling, or of the best dataflow's for `auto`."""
        notes: tuple[str, ...] = ()
        if dataflow == AUTO:
            dataflow, why = self._choose(progress)
            notes = (why,)
        found = self.outcome(dataflow, progress)
        if isinstance(found, NothingFitsError):
            raise found
        return make_report(
            dataflow, self.arch, self.workload, found.best.tiling, energy_level=self.energy_level, check=check,
            seed=seed, proven_optimal=found.proven_optimal, search=search_facts(found), notes=notes,
        )  # fmt: skip

    def _choose(self, progress: Progress | None) -> tuple[str, str]:
        """Return the best dataflow by the objective, ties broken as in a search, and why it is."""
        outcomes = {name: self.outcome(name, progress) for name in DATAFLOWS}
        found = {name: result.best for name, result in outcomes.items() if not isinstance(result, NothingFitsError)}
        misfits = [(name, error) for name, error in outcomes.items() if isinstance(error, NothingFitsError)]
        if not found:
            reasons = "\n".join(f"  {error}" for _, error in misfits)
            least = min(error.over_bytes for _, error in misfits)
            raise NothingFitsError(f"auto: no dataflow can run {self.workload.name}:\n{reasons}", least)
        order = sorted(found, key=lambda name: found[name].rank[:-1])
        unit = {"latency": " cycles", "energy": " uJ", "edp": " pJ cycles"}[self.objective]
        others = [f"{name} {self._amount(name, found[name])}" for name in order[1:]]
        others += [f"{name} {misfit_words(error.over_bytes)}" for name, error in misfits]
        why = f"auto chose {order[0]}: {self._amount(order[0], found[order[0]], unit)}"
        return order[0], f"{why}; {', '.join(others)}" if others else why

    def _amount(self, name: str, trial: Trial, unit: str = "") -> str:
        """Write a dataflow's best value of the objective, and, of its cycles, what bounds them."""
        if self.objective == "latency":
            return f"{trial.cycles:,}{unit} (limited by {bounds(self.arch, self.workload, name).limited_by})"
        return (f"{trial.energy_pj / 1e6:,.1f}" if self.objective == "energy" else f"{trial.value:.4g}") + unit


def _value(report: Report, objective: str) -> float:
    """Objective of a report."""
    return float(objective_value(objective, np.array([float(report.cycles)]), np.array([report.energy.total]))[0])


def misfit_words(over_bytes: int) -> str:
    """Say by how many bytes nothing fits, or, where these are 0, that what fits is too long to simulate."""
    return f"does not fit (by {over_bytes:,} bytes)" if over_bytes else "is too long to simulate"


def best_report(
    dataflow: str,
    arch: Arch,
    workload: Workload,
    objective: str = "latency",
    *,
    energy_level: Level = "nominal",
    check: bool = False,
    seed: int = 0,
    granularity: str | None = None,
    progress: Progress | None = None,
) -> Report:
    """Return the report of a dataflow's proven best tiling; of the best dataflow's, with a note why, for `auto`.

    Parameters
    ----------
    check, seed
        Whether to audit and execute it too, and the seed of the inputs.
    granularity
        Only tilings that fuse this much at once: `M`, `B`, `H` or `R` (as in `SearchSpace`); None for all.
    progress
        Also called with `(0, 0)` when the search of a dataflow begins.

    Raises
    ------
    NothingFitsError
        If no tiling fits L1 (for `auto`: of any dataflow).
    MasSimError
        If the dataflow, objective or granularity is unknown.
    """
    require_name("dataflow", dataflow, (*DATAFLOWS, AUTO))
    searches = _Searches(arch, workload, objective, energy_level, granularity)
    return searches.report(dataflow, check=check, seed=seed, progress=progress)


@dataclass(frozen=True)
class Misfit:
    """A dataflow that cannot run a workload, in place of its report.

    Attributes
    ----------
    over_bytes
        Bytes by which its smallest tiling does not fit L1; 0 if it fits, and every schedule is too long to simulate.
    reason
        The same in words, with the bytes needed and those there are.
    """

    workload: str
    dataflow: str
    over_bytes: int
    reason: str

    def as_dict(self) -> dict[str, Any]:
        """Return the misfit as plain data, in place of a report's."""
        facts = {"workload": self.workload, "dataflow": self.dataflow, "fits": False}
        return {**facts, "over_bytes": self.over_bytes, "reason": self.reason}


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
    results
        One for each workload and dataflow, workloads outermost: a report, or a misfit where nothing fits.
    subject
        The dataflow the others are compared with: `mas` if it is among them, else the last.
    """

    results: tuple[Report | Misfit, ...]
    dataflows: tuple[str, ...]
    workloads: tuple[str, ...]
    subject: str
    objective: str

    @property
    def reports(self) -> tuple[Report, ...]:
        """The reports there are, in the order of the results."""
        return tuple(result for result in self.results if isinstance(result, Report))

    def result(self, workload: str, dataflow: str) -> Report | Misfit:
        """Return one result."""
        place = self.workloads.index(workload) * len(self.dataflows) + self.dataflows.index(dataflow)
        return self.results[place]

    def report(self, workload: str, dataflow: str) -> Report:
        """Return one report.

        Raises
        ------
        NothingFitsError
            If there is none, because nothing fits.
        """
        result = self.result(workload, dataflow)
        if isinstance(result, Misfit):
            raise NothingFitsError(result.reason, result.over_bytes)
        return result

    @property
    def baselines(self) -> tuple[str, ...]:
        """The dataflows other than the subject."""
        return tuple(name for name in self.dataflows if name != self.subject)

    def values(self, workload: str) -> dict[str, float]:
        """Return the objective of each dataflow that can run a workload; without `auto`, which is one of them."""
        found = {name: self.result(workload, name) for name in self.dataflows if name != AUTO}
        return {name: _value(one, self.objective) for name, one in found.items() if isinstance(one, Report)}

    def best(self, workload: str) -> tuple[str, ...]:
        """Return the dataflows with the best objective: of several that tie all, of none that can run it none."""
        values = self.values(workload)
        return tuple(name for name, value in values.items() if value == min(values.values()))

    def left_out(self, baseline: str) -> tuple[str, ...]:
        """Workloads that the subject or a baseline cannot run, so that there is nothing to compare."""
        pair = (self.subject, baseline)
        return tuple(w for w in self.workloads if any(isinstance(self.result(w, name), Misfit) for name in pair))

    def speedup(self, workload: str, baseline: str) -> float:
        """Cycles of a baseline over the subject's."""
        return self.report(workload, baseline).cycles / self.report(workload, self.subject).cycles

    def energy_ratio(self, workload: str, baseline: str) -> float:
        """Energy of the subject over a baseline's; the saving is one minus this."""
        return self.report(workload, self.subject).energy.total / self.report(workload, baseline).energy.total

    def speedup_spread(self, baseline: str) -> Spread | None:
        """Speedup over a baseline, over the workloads that both can run; None if there are none."""
        return self._spread(baseline, self.speedup)

    def saving_spread(self, baseline: str) -> Spread | None:
        """The same of energy savings; their mean is one minus the geometric mean of the energy ratios."""
        ratios = self._spread(baseline, self.energy_ratio)
        return None if ratios is None else Spread(1 - ratios.geomean, 1 - ratios.max, 1 - ratios.min)

    def _spread(self, baseline: str, ratio: Callable[[str, str], float]) -> Spread | None:
        left_out = self.left_out(baseline)
        values = [ratio(name, baseline) for name in self.workloads if name not in left_out]
        return Spread.of(values) if values else None

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison as plain data, the `--json` of `compare`."""
        results = []
        for place, result in enumerate(self.results):
            entry = result.as_dict() if isinstance(result, Misfit) else {**result.as_dict(), "fits": True}
            asked = self.dataflows[place % len(self.dataflows)]
            results.append({**entry, "chosen_by": AUTO} if asked == AUTO else entry)
        speedups = {name: self.speedup_spread(name) for name in self.baselines}
        savings = {name: self.saving_spread(name) for name in self.baselines}
        return {
            "results": results,
            "best": {name: list(self.best(name)) for name in self.workloads},
            "geomean": {
                "subject": self.subject,
                "speedup_over": {name: s.as_dict() if s else None for name, s in speedups.items()},
                "energy_saving_over": {name: s.as_dict() if s else None for name, s in savings.items()},
                "left_out": {name: list(self.left_out(name)) for name in self.baselines},
            },
        }

    def to_frame(self) -> "pd.DataFrame":
        """Return one row a report: cycles, time, energy by component, bytes, bounds and gap; for notebooks.

        What cannot run has no row. Where `auto` was asked for, `chosen_by` tells its rows from the chosen one's own.
        """
        import pandas as pd

        rows = []
        for place, report in enumerate(self.results):
            if isinstance(report, Misfit):
                continue
            asked = self.dataflows[place % len(self.dataflows)]
            energy = {f"{name}_pj": value for name, value in report.energy.as_dict().items()}
            rows.append(
                {
                    "workload": report.workload.name,
                    "dataflow": report.schedule.dataflow,
                    **({"chosen_by": asked} if AUTO in self.dataflows else {}),
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
    granularity: str | None = None,
    progress: StepProgress | None = None,
) -> Comparison:
    """Compare dataflows over workloads, each at its proven best tiling.

    Parameters
    ----------
    dataflows
        Names; `auto` among them is the best of all there are, workload by workload.
    check
        Also audit and execute every winner.
    granularity
        As in `best_report`, for every dataflow.

    Raises
    ------
    NothingFitsError
        If no dataflow can run any of the workloads. Where only some cannot, the result says so.
    MasSimError
        If a name is unknown or given twice, or there is nothing to compare.
    """
    for name in dataflows:
        require_name("dataflow", name, (*DATAFLOWS, AUTO))
    for kind, given in (("workload", [w.name for w in workloads]), ("dataflow", list(dataflows))):
        if not given:
            raise MasSimError(f"nothing to compare: no {kind} is given")
        twice = sorted({name for name in given if given.count(name) > 1})
        if twice:
            raise MasSimError(f"{kind} given twice: {', '.join(twice)}; each needs a name of its own")
    results: list[Report | Misfit] = []
    for workload in workloads:
        searches = _Searches(arch, workload, objective, energy_level, granularity)
        for name in dataflows:

            def step(done: int, total: int, what: str = f"{workload.name} {name}") -> None:
                if progress is not None:
                    progress(what, done, total)

            try:
                results.append(searches.report(name, check=check, seed=0, progress=step))
            except NothingFitsError as error:
                results.append(Misfit(workload.name, name, error.over_bytes, str(error)))
    misfits = [result for result in results if isinstance(result, Misfit)]
    if len(misfits) == len(results):
        raise NothingFitsError("\n".join(m.reason for m in misfits), min(m.over_bytes for m in misfits))
    subject = "mas" if "mas" in dataflows else dataflows[-1]
    names = tuple(workload.name for workload in workloads)
    return Comparison(tuple(results), tuple(dataflows), names, subject, objective)
