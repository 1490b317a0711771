"""Searching tilings: spaces, objectives and searchers over one dataflow on one arch and workload.

`search` is the short way in. The package itself can be called like it, so that `mas_sim.search` is both the
function that users expect beside `simulate` and `compare`, and the folder its parts are imported from.
"""

import sys
from types import ModuleType
from typing import Any

from mas_sim.arch import Arch
from mas_sim.dataflows import get_dataflow
from mas_sim.search.base import Budget, History, NothingFitsError, Progress, SearchResult, Trial
from mas_sim.search.evaluator import AnySpace, Evaluator
from mas_sim.search.exhaustive import ExhaustiveSearch
from mas_sim.search.genetic import GeneticSearch
from mas_sim.search.joint import JointSpace
from mas_sim.search.mcts import MctsSearch
from mas_sim.search.objective import OBJECTIVES, Objective
from mas_sim.search.pareto import ParetoFront, pareto_front
from mas_sim.search.random_search import RandomSearch
from mas_sim.search.searcher import Searcher, Study
from mas_sim.search.space import SearchSpace
from mas_sim.workload import Workload

SEARCHERS: dict[str, type[Searcher]] = {cls.method: cls for cls in (MctsSearch, GeneticSearch, RandomSearch)}
"""Methods that search within a budget; `exhaustive` is the one that needs none, and proves."""

ALL = "all"
"""The name that stands for every dataflow, in one joint space."""


def make_space(arch: Arch, workload: Workload, dataflow: str, *, limit: int = 32) -> AnySpace:
    """Return the space of a dataflow; of all of them, joined, for `all`.

    Raises
    ------
    ScheduleError
        If there is no such dataflow.
    """
    if dataflow == ALL:
        return JointSpace(arch, workload, limit=limit)
    get_dataflow(dataflow)
    return SearchSpace(dataflow, arch, workload, limit=limit)


def search(
    arch: Arch,
    workload: Workload,
    dataflow: str,
    objective: str | Objective = "latency",
    *,
    limit: int = 32,
    progress: Progress | None = None,
) -> SearchResult:
    """Find a dataflow's best tiling, and prove it.

    Parameters
    ----------
    dataflow
        Its name, or `all` for the best of all dataflows and their tilings.
    objective
        `latency` (cycles), `energy` (pJ), `edp` (their product), `weighted:0.7`, or an `Objective` with limits.
    limit
        About how many candidates each tile size has; the proof is over the space so stated.

    Raises
    ------
    NothingFitsError
        If no tiling fits L1; says by how many bytes.
    MasSimError
        If the dataflow or the objective is unknown.
    """
    return ExhaustiveSearch().search(make_space(arch, workload, dataflow, limit=limit), objective, progress)


class _CallablePackage(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> SearchResult:
        return search(*args, **kwargs)


sys.modules[__name__].__class__ = _CallablePackage

__all__ = [
    "ALL",
    "OBJECTIVES",
    "SEARCHERS",
    "Budget",
    "Evaluator",
    "ExhaustiveSearch",
    "GeneticSearch",
    "History",
    "JointSpace",
    "MctsSearch",
    "NothingFitsError",
    "Objective",
    "ParetoFront",
    "Progress",
    "RandomSearch",
    "SearchResult",
    "SearchSpace",
    "Searcher",
    "Study",
    "Trial",
    "make_space",
    "pareto_front",
    "search",
]
