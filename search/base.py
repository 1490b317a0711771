"""What a searcher is and gives.

Order of calls: a `SearchSpace` is made for one dataflow on one arch and workload; a searcher's `search(space,
objective, ...)` asks the space for tilings and has them evaluated; it returns a `SearchResult`, whose best `Trial`
is frozen.
"""

from collections.abc import Callable
from dataclasses import dataclass

from mas_sim.errors import MasSimError
from mas_sim.tiling import Tiling

Progress = Callable[[int, int], None]
"""Called with how many tilings are settled (simulated or pruned) and how many there are."""


class NothingFitsError(MasSimError):
    """No tiling of a space is legal: nothing fits L1, or what fits would be too long to simulate.

    Attributes
    ----------
    over_bytes
        Bytes by which the smallest tiling does not fit; 0 if it fits, and the schedules are too long.
    """

    def __init__(self, message: str, over_bytes: int) -> None:
        super().__init__(message)
        self.over_bytes = over_bytes


@dataclass(frozen=True)
class Trial:
    """One tiling, evaluated.

    Attributes
    ----------
    index
        Its place in the space; the last tie-break.
    value
        The objective: cycles, pJ, or pJ times cycles.
    """

    index: int
    tiling: Tiling
    value: float
    cycles: int
    energy_pj: float
    dram_bytes: int
    l1_bytes: int

    @property
    def rank(self) -> tuple[float, float, int, int, int]:
        """Sort key: the objective, then energy, DRAM bytes, L1 footprint and index."""
        return (self.value, self.energy_pj, self.dram_bytes, self.l1_bytes, self.index)


@dataclass(frozen=True)
class SearchResult:
    """What a search found.

    Attributes
    ----------
    space_size
        Tilings in the space, legal or not.
    legal, simulated, pruned
        Tilings that fit; those simulated; those whose lower bound is above the optimum, so that they need not be.
    too_long
        Tilings left out because their schedule would be longer than the limit; the space is stated without them.
    proven_optimal
        True if every legal tiling was simulated or pruned.
    space
        The space in words: what the proof is about.
    """

    best: Trial
    objective: str
    space_size: int
    legal: int
    simulated: int
    pruned: int
    too_long: int
    proven_optimal: bool
    space: str
