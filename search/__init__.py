"""Searching tilings: spaces, objectives and searchers over one dataflow on one arch and workload.

`search` is the short way in. The package itself can be called like it, so that `mas_sim.search` is both the
function that users expect beside `simulate` and `compare`, and the folder its parts are imported from.
"""

import sys
from types import ModuleType
from typing import Any

from mas_sim.arch import Arch
from mas_sim.search.base import NothingFitsError, Progress, SearchResult, Trial
from mas_sim.search.exhaustive import ExhaustiveSearch
from mas_sim.search.objective import OBJECTIVES
from mas_sim.search.space import SearchSpace
from mas_sim.workload import Workload


def search(
    arch: Arch,
    workload: Workload,
    dataflow: str,
    objective: str = "latency",
    *,
    limit: int = 32,
    progress: Progress | None = None,
) -> SearchResult:
    """Find a dataflow's best tiling, and prove it.

    Parameters
    ----------
    objective
        `latency` (cycles), `energy` (pJ) or `edp` (their product).
    limit
        About how many candidates each tile size has; the proof is over the space so stated.

    Raises
    ------
    NothingFitsError
        If no tiling fits L1; says by how many bytes.
    MasSimError
        If the dataflow or the objective is unknown.
    """
    return ExhaustiveSearch().search(SearchSpace(dataflow, arch, workload, limit=limit), objective, progress)


class _CallablePackage(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> SearchResult:
        return search(*args, **kwargs)


sys.modules[__name__].__class__ = _CallablePackage

__all__ = [
    "OBJECTIVES",
    "ExhaustiveSearch",
    "NothingFitsError",
    "Progress",
    "SearchResult",
    "SearchSpace",
    "Trial",
    "search",
]
