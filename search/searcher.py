"""What a method of search is: the loop that all share, and the two calls that each answers in its own way.

Order of calls: a space is made for one dataflow (or several, `JointSpace`) on one arch and workload. `Searcher.search`
makes an `Evaluator` for it, which owns the evaluated tilings, and has the searcher `begin` a `Study`, which owns what
the method knows. Then, in turn: `Study.ask` names tilings, the evaluator simulates those that are new, `Study.tell`
hears what they are worth; until the budget is spent, nothing is left, or the user stops it.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from mas_sim.energy_table import Level
from mas_sim.errors import MasSimError
from mas_sim.schedule import IntArray
from mas_sim.search.base import Budget, FloatArray, Progress, SearchResult
from mas_sim.search.evaluator import AnySpace, Evaluator
from mas_sim.search.objective import Objective


class Study(ABC):
    """One search in progress: what a method knows. Made by `Searcher.begin`; `ask` and `tell` then come in turn.

    A study only sees the space's legal tilings, by their *row* in it, and values; it never simulates. It must ask for
    the same rows whenever it is told the same, whoever evaluates them and how fast.
    """

    @abstractmethod
    def ask(self, most: int) -> IntArray:
        """Return rows to evaluate, at most `most`; int64[n]. None are left to ask for if it is empty."""

    @abstractmethod
    def tell(self, rows: IntArray, values: FloatArray) -> None:
        """Hear the values of the rows that were asked for, in the same order."""


class Searcher(ABC):
    """A method of search, with its settings; it keeps no state, so one may search many spaces.

    To write one: a frozen dataclass of its settings with `begin`, which returns a `Study`. `search` is the loop around
    that: it owns budget, clock and memory, and calls `ask` and `tell` in turn.
    """

    method: ClassVar[str]
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {}
    """Least and greatest value of each setting that is a number."""

    def __post_init__(self) -> None:
        """Refuse settings that make no sense.

        Raises
        ------
        MasSimError
            Naming every faulty setting, its range and its value.
        """
        faults = [
            f"{name} must be in {low:g}..{high:g} (got {getattr(self, name)!r})"
            for name, (low, high) in self.ranges.items()
            if not low <= getattr(self, name) <= high
        ]
        if faults:
            raise MasSimError(f"{self.method} search: {'; '.join(faults)}")

    @abstractmethod
    def begin(self, space: AnySpace, seed: int) -> Study:
        """Start a study of the legal tilings of a space; all its chance comes from `seed`."""

    def search(
        self,
        space: AnySpace,
        objective: str | Objective = "latency",
        *,
        budget: Budget | int = 2000,
        seed: int = 0,
        workers: int = 2,
        energy_level: Level = "nominal",
        progress: Progress | None = None,
    ) -> SearchResult:
        """Search until the budget is spent, and return the best found; so too when interrupted (Ctrl-C).

        Parameters
        ----------
        budget
            A number means evaluations.
        workers
            Threads that simulate. They do not change what is found, only when.

        Raises
        ------
        NothingFitsError
            If no tiling fits; says by how many bytes the smallest one does not.
        MasSimError
            If the objective or the budget makes no sense, or no tiling that was found keeps to the limits.
        """
        limit = Budget(evaluations=budget) if isinstance(budget, int) else budget
        limit.check()
        with Evaluator(space, objective, energy_level=energy_level, workers=workers) as evaluator:
            stopped = run_study(self, evaluator, limit, seed, progress)
            return evaluator.result(self.method, seed, repr(self), stopped)


def run_study(searcher: Searcher, evaluator: Evaluator, budget: Budget, seed: int, progress: Progress | None) -> str:
    """Ask, evaluate and tell in turn; return why it ended."""
    study = searcher.begin(evaluator.space, seed)
    most = budget.evaluations if budget.evaluations is not None else evaluator.space.legal_count
    most = min(most, evaluator.space.legal_count)
    try:
        while evaluator.count < most:
            late = budget.seconds is not None and evaluator.elapsed_seconds >= budget.seconds
            if late and evaluator.count:  # one batch at least, so that there is a result
                return "seconds"
            rows = study.ask(most - evaluator.count)
            if not len(rows):
                return "done"
            study.tell(rows, evaluator.values(rows))
            if progress is not None:
                progress(evaluator.count, most)
    except KeyboardInterrupt:
        if not evaluator.count:
            raise
        return "interrupted"
    return "done" if evaluator.count == evaluator.space.legal_count else "budget"
