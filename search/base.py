"""Records of a search: what was tried, what was found, how it came to that, and how long it may go on."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mas_sim.errors import MasSimError
from mas_sim.schedule import IntArray
from mas_sim.tiling import Tiling

if TYPE_CHECKING:
    import pandas as pd

FloatArray = npt.NDArray[np.float64]

Progress = Callable[[int, int], None]
"""Called with how many tilings are settled (simulated or pruned) and how many there are (or may be simulated)."""


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


class NothingKeepsError(MasSimError):
    """No tiling that was simulated keeps to the limits of the objective."""


@dataclass(frozen=True)
class Trial:
    """One tiling, evaluated.

    Attributes
    ----------
    index
        Its place in the space; the last tie-break.
    value
        The objective: cycles, pJ, or what it makes of both.
    """

    index: int
    tiling: Tiling
    value: float
    cycles: int
    energy_pj: float
    dram_bytes: int
    l1_bytes: int
    dataflow: str = ""

    @property
    def rank(self) -> tuple[float, float, int, int, int]:
        """Sort key: the objective, then energy, DRAM bytes, L1 footprint and index."""
        return (self.value, self.energy_pj, self.dram_bytes, self.l1_bytes, self.index)


@dataclass(frozen=True)
class History:
    """How a search came to its best: every evaluation in order.

    Attributes
    ----------
    index : int64[n], value : float64[n], seconds : float64[n]
        The tiling, its objective, and the time since the search began.
    """

    index: IntArray
    value: FloatArray
    seconds: FloatArray

    @property
    def best(self) -> FloatArray:
        """Best value so far after each evaluation, float64[n]."""
        best: FloatArray = np.minimum.accumulate(self.value) if len(self.value) else self.value
        return best

    def evaluations_to(self, value: float) -> int | None:
        """How many evaluations it took to come to a value or below; None if it never did."""
        there = np.flatnonzero(self.best <= value)
        return int(there[0]) + 1 if there.size else None

    def to_frame(self) -> "pd.DataFrame":
        """Return a row an evaluation: `evaluation`, `index`, `value`, `best`, `seconds`."""
        import pandas as pd

        columns = {"index": self.index, "value": self.value, "best": self.best, "seconds": self.seconds}
        return pd.DataFrame({"evaluation": np.arange(1, len(self.value) + 1), **columns})


@dataclass(frozen=True)
class SearchResult:
    """What a search found.

    Attributes
    ----------
    objective
        In words, with its limits.
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
    lower_bound, gap
        Value that no tiling of the space is below, and by what share the best is above it; 0 if proven. None of a
        method that proves nothing.
    method, seed, settings
        How it was searched.
    stopped
        Why it ended: `done`, `budget`, `seconds` or `interrupted`.
    seconds, simulation_seconds
        Wall time of the search, and what of it went into simulation.
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
    lower_bound: float | None = None
    gap: float | None = None
    method: str = "exhaustive"
    seed: int | None = None
    settings: str = field(default="", compare=False)
    stopped: str = "done"
    seconds: float = field(default=0.0, compare=False)
    simulation_seconds: float = field(default=0.0, compare=False)
    history: History | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Budget:
    """When a search ends: after so many evaluations, or so many seconds, whichever comes first.

    Attributes
    ----------
    evaluations
        Tilings simulated; asking again for one that is known is free.
    """

    evaluations: int | None = None
    seconds: float | None = None

    def check(self) -> None:
        """Refuse a budget that ends nothing, or begins nothing.

        Raises
        ------
        MasSimError
            If neither is given, or one is not positive.
        """
        if self.evaluations is None and self.seconds is None:
            raise MasSimError("a search needs a budget: evaluations, seconds or both")
        for name, value in (("evaluations", self.evaluations), ("seconds", self.seconds)):
            if value is not None and not value > 0:
                raise MasSimError(f"the budget of {name} must be positive (got {value})")


def clock() -> float:
    """Seconds of a clock that never goes back."""
    return time.perf_counter()
