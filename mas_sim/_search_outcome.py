"""What one `mas-sim search` did: runs of methods, each from a seed, and beside them the proof of the optimum."""

import math
from dataclasses import dataclass
from statistics import median
from typing import Any

from mas_sim.comparison import search_facts
from mas_sim.search.base import SearchResult, Trial
from mas_sim.search.objective import Objective

NEAR = 0.01
"""Within this share of the optimum counts as found: how many evaluations did it take?"""

UNITS = {"latency": "cycles", "energy": "pJ", "edp": "pJ cycles"}
"""What values of an objective are in; a weighted one has no unit of its own."""


@dataclass(frozen=True)
class MethodRun:
    """One run of a method; of `exhaustive` too, which has no seed.

    Attributes
    ----------
    result
        None if no tiling that it simulated keeps to the limits.
    """

    method: str
    seed: int | None
    result: SearchResult | None


@dataclass(frozen=True)
class Outcome:
    """All runs of one command, on one space.

    Attributes
    ----------
    proof
        What exhaustive search found beside budgeted methods; None if it was not asked.
    interrupted
        Whether the user stopped it before all was done.
    """

    objective: Objective
    runs: tuple[MethodRun, ...]
    proof: SearchResult | None = None
    interrupted: bool = False

    @property
    def unit(self) -> str:
        """Unit of the objective's values."""
        return UNITS.get(self.objective.name, "")

    @property
    def found(self) -> tuple[SearchResult, ...]:
        """Every result there is, that of the proof first."""
        runs = [run.result for run in self.runs if run.result is not None]
        return (*([] if self.proof is None else [self.proof]), *runs)

    @property
    def proven(self) -> SearchResult | None:
        """A result that is proven to be the optimum, if there is one."""
        return next((result for result in self.found if result.proven_optimal), None)

    @property
    def chosen(self) -> SearchResult:
        """The result to show: that of the only run; of several runs the optimum, or the best that is known."""
        if len(self.runs) == 1 and self.runs[0].result is not None:
            return self.runs[0].result
        return self.proven or min(self.found, key=lambda result: result.best.rank)

    @property
    def methods(self) -> tuple[str, ...]:
        """Methods that ran."""
        return tuple(dict.fromkeys(run.method for run in self.runs))

    def runs_of(self, method: str) -> tuple[MethodRun, ...]:
        """Return the runs of a method."""
        return tuple(run for run in self.runs if run.method == method)

    def gap(self, result: SearchResult | None) -> float:
        """By what share a result is above the optimum (at most, if it is only bounded); NaN if that is not known."""
        if result is None:
            return math.inf
        if self.proven is not None:
            return result.best.value / self.proven.best.value - 1
        return math.nan if result.gap is None else result.gap

    def evaluations_to_near(self, result: SearchResult | None) -> float:
        """Evaluations that it took to come near the optimum; infinite if it never did, NaN if that is not known."""
        if result is None:
            return math.inf
        if self.proven is None or result.history is None:
            return math.nan
        count = result.history.evaluations_to(self.proven.best.value * (1 + NEAR))
        return math.inf if count is None else count

    def summary(self, method: str) -> dict[str, Any]:
        """Return what a method's runs have in common, numbers only: medians over its seeds, and the worst gap."""
        runs = self.runs_of(method)
        results = [run.result for run in runs]
        there = [result for result in results if result is not None]
        gaps, near = [self.gap(r) for r in results], [self.evaluations_to_near(r) for r in results]
        return {
            "runs": len(runs),
            "median_gap": _median(gaps),
            "worst_gap": math.nan if any(map(math.isnan, gaps)) else max(gaps),
            "median_evaluations_to_1_percent": _median(near),
            "runs_within_1_percent": sum(map(math.isfinite, near)),
            "median_evaluations": _median([float(result.simulated) for result in there]),
            "median_seconds": _median([result.seconds for result in there]),
            "median_share_outside_simulation": _median([outside(result) for result in there]),
        }

    def facts(self, result: SearchResult, seed: int | None) -> dict[str, Any]:
        """Return what there is to say of a run, as plain data."""
        value = self.proven.best.value if self.proven is not None else None
        return {
            **search_facts(result),
            "method": result.method,
            "seed": seed,
            "settings": result.settings,
            "value": result.best.value,
            "lower_bound": result.lower_bound,
            "gap": self.gap(result),
            "optimum": value,
            "optimum_trial": None if self.proven is None else trial_facts(self.proven.best),
            "evaluations": result.simulated,
            "evaluations_to_1_percent": self.evaluations_to_near(result),
            "seconds": result.seconds,
            "share_outside_simulation": outside(result),
            "stopped": "interrupted" if self.interrupted else result.stopped,
        }

    def method_facts(self) -> list[dict[str, Any]]:
        """Return every method with its summary and its runs, as plain data."""
        keys = (
            "seed", "value", "gap", "evaluations", "evaluations_to_1_percent", "seconds", "share_outside_simulation",
            "stopped",
        )  # fmt: skip
        methods = []
        for method in self.methods:
            runs = []
            for run in self.runs_of(method):
                if run.result is None:
                    runs.append({"seed": run.seed, "value": None})
                    continue
                facts = self.facts(run.result, run.seed) | {"stopped": run.result.stopped}
                runs.append({key: facts[key] for key in keys} | trial_facts(run.result.best))
            methods.append({"method": method, **self.summary(method), "results": runs})
        return methods


def trial_facts(trial: Trial) -> dict[str, Any]:
    """Return one evaluated tiling as plain data."""
    cost = {"cycles": trial.cycles, "energy_pj": trial.energy_pj, "dram_bytes": trial.dram_bytes}
    return {"dataflow": trial.dataflow, "tiling": trial.tiling.as_dict(), **cost, "l1_bytes": trial.l1_bytes}


def outside(result: SearchResult) -> float:
    """Share of a search's time that did not go into simulation."""
    return max(0.0, 1 - result.simulation_seconds / result.seconds) if result.seconds > 0 else 0.0


def _median(values: list[float]) -> float:
    """Median; NaN of none, and if any is not known."""
    return math.nan if not values or any(map(math.isnan, values)) else float(median(values))
