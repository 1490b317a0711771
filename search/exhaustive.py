"""Exhaustive search with pruning by bounds: the optimum of a space, with proof.

First every tiling is looked at: does it fit, and what is the least it can take? Then those that fit are simulated
in the order of that bound, in waves, until the next bound is above the best value found: all that are left cannot
be better, nor tie. The waves do not depend on the number of threads, so neither do the counts.
"""

from dataclasses import dataclass

import numpy as np

from mas_sim._batch import E_CYCLES
from mas_sim.energy_table import Level
from mas_sim.errors import MasSimError
from mas_sim.schedule import IntArray
from mas_sim.search.base import FloatArray, NothingKeepsError, Progress, SearchResult, Trial, clock
from mas_sim.search.evaluator import AnySpace, Simulator, too_long
from mas_sim.search.objective import Objective

FIRST_WAVE, WAVE = 16, 256

ROUNDING = 1e-12
"""Bounds of energies may be this much above what a simulation gives, by rounding alone."""


@dataclass
class _Waves:
    """Simulation in the order of the bounds, as far as it has come.

    Attributes
    ----------
    order : int64[n]
        Places of the legal tilings, rising by bound; those whose bound breaks a limit are left out.
    done
        How many of them have been simulated.
    """

    index: IntArray
    bound: FloatArray
    order: IntArray
    gap: float
    done: int = 0
    best: Trial | None = None

    @property
    def next_bound(self) -> float:
        """Least bound of what is left, infinite if nothing is."""
        return float(self.bound[self.order[self.done]]) if self.done < len(self.order) else float("inf")

    @property
    def limit(self) -> float:
        """Bounds above this need not be looked into."""
        return np.inf if self.best is None else self.best.value * (1 + ROUNDING) / (1 + self.gap)

    def wave(self) -> IntArray:
        """Return the places of the next tilings to simulate."""
        size = WAVE if self.done else FIRST_WAVE
        wave = self.order[self.done : self.done + size]
        return wave[self.bound[wave] <= self.limit]


@dataclass(frozen=True)
class ExhaustiveSearch:
    """Find the best tiling of a space, and prove it.

    Parameters
    ----------
    threads
        Threads for the compiled evaluation, which releases the GIL.
    gap
        Stop as soon as the best found is proven to be within this share of the optimum; 0 for the optimum itself.
    """

    threads: int = 2
    gap: float = 0.0

    def __post_init__(self) -> None:
        """Refuse a gap that is no share, and a search without threads."""
        if not 0 <= self.gap < float("inf"):
            raise MasSimError(f"the gap of an exhaustive search must be a share, 0 or more (got {self.gap})")
        if self.threads < 1:
            raise MasSimError(f"an exhaustive search needs a thread (got {self.threads})")

    def search(
        self,
        space: AnySpace,
        objective: str | Objective = "latency",
        progress: Progress | None = None,
        energy_level: Level = "nominal",
    ) -> SearchResult:
        """Return the optimum of `space`, its energies at `energy_level`; what is best so far when interrupted.

        Ties go to lower energy, then fewer DRAM bytes, the smaller L1 footprint, the lower index.

        Raises
        ------
        NothingFitsError
            If no tiling fits; says by how many bytes the smallest one does not.
        NothingKeepsError
            If no tiling keeps to the objective's limits.
        """
        goal, began = Objective.parse(objective), clock()
        with Simulator(space, energy_level, self.threads) as simulator:
            found = space.scan(simulator.coefficients, self.threads)
            if not len(found.index):
                space.legal  # noqa: B018 - raises, and says by how many bytes
            bound = goal.values(found.cycles, found.energy_pj * (1 - ROUNDING))
            order = np.lexsort((found.index, bound))
            waves = _Waves(found.index, bound, order[np.isfinite(bound[order])], self.gap)
            stopped = _simulate(simulator, goal, waves, len(found.index), progress)
        if waves.best is None or not np.isfinite(waves.best.value):
            raise NothingKeepsError(f"no tiling of the space keeps to the limits ({goal.describe()})")
        least = min(waves.best.value, waves.next_bound)
        if waves.next_bound > waves.limit and self.gap == 0:
            least = waves.best.value
        legal = len(found.index)
        return SearchResult(
            waves.best, goal.describe(), len(space), legal, waves.done, legal - waves.done, too_long(found.counts),
            stopped == "done" and self.gap == 0, space.describe(), least, waves.best.value / least - 1, "exhaustive",
            None, repr(self), stopped, clock() - began, simulator.simulation_seconds,
        )  # fmt: skip


def _simulate(simulator: Simulator, goal: Objective, waves: _Waves, legal: int, progress: Progress | None) -> str:
    """Simulate wave by wave until the proof is there; return why it ended."""
    try:
        while waves.next_bound <= waves.limit and waves.done < len(waves.order):
            wave = waves.wave()
            results = simulator.results(waves.index[wave])
            values = goal.values(results[:, E_CYCLES].astype(np.float64), simulator.energies(results))
            best = simulator.best(waves.index[wave], results, values)
            waves.best = best if waves.best is None or best.rank < waves.best.rank else waves.best
            waves.done += len(wave)
            if progress is not None:
                progress(legal - len(waves.order) + waves.done, legal)
    except KeyboardInterrupt:
        if waves.best is None:
            raise
        return "interrupted"
    if progress is not None:
        progress(legal, legal)
    return "done"
