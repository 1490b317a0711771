"""The exact Pareto front of a space in cycles and energy: every tiling that no other one beats in both, with proof.

Tilings are simulated in waves, the least bounds of cycles, of energy and of their product in turn, until each one left
has a tiling on the front that is no worse than its bounds in either.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mas_sim._batch import E_CYCLES
from mas_sim.energy_table import Level
from mas_sim.schedule import IntArray
from mas_sim.search.base import FloatArray, Progress, Trial
from mas_sim.search.evaluator import AnySpace, Simulator

WAVE = 256


@dataclass(frozen=True)
class ParetoFront:
    """The front of a space.

    Attributes
    ----------
    trials
        Its tilings, from the fastest to the thriftiest; of equal ones that of the lowest index. Their value is 0.
    legal, simulated
        Tilings that fit; those simulated: the others cannot be on the front.
    proven
        False if it was interrupted: the front is then of those simulated.
    """

    trials: tuple[Trial, ...]
    legal: int
    simulated: int
    proven: bool
    space: str


def pareto_front(
    space: AnySpace, *, energy_level: Level = "nominal", threads: int = 2, progress: Progress | None = None
) -> ParetoFront:
    """Find the exact front of cycles and energy of a space.

    Raises
    ------
    NothingFitsError
        If no tiling fits.
    """
    with Simulator(space, energy_level, threads) as simulator:
        found = space.scan(simulator.coefficients, threads)
        if not len(found.index):
            space.legal  # noqa: B018 - raises, and says by how many bytes
        cycles, energy = found.cycles, found.energy_pj
        left, proven = np.arange(len(cycles)), True
        front = _Front()
        try:
            for turn in range(len(cycles)):
                left = left[~front.beats(cycles[left], energy[left])]
                if not len(left):
                    break
                key = (cycles[left], energy[left], cycles[left] * energy[left])[turn % 3]
                wave = left[np.lexsort((left, key))[:WAVE]]
                results = simulator.results(found.index[wave])
                front.add(found.index[wave], results, simulator.energies(results))
                left = np.setdiff1d(left, wave, assume_unique=True)
                if progress is not None:
                    progress(len(cycles) - len(left), len(cycles))
        except KeyboardInterrupt:
            if not len(front.index):
                raise
            proven = False
        trials = tuple(
            simulator.trial(int(i), r, float(e), 0.0)
            for i, r, e in zip(front.index, front.results, front.energy, strict=True)
        )
    return ParetoFront(trials, len(cycles), front.simulated, proven, space.describe())


class _Front:
    """The tilings simulated so far that no other one beats, rising by cycles and so falling by energy."""

    def __init__(self) -> None:
        self.index, self.energy = np.zeros(0, np.int64), np.zeros(0)
        self.results: IntArray = np.zeros((0, 0), np.int64)
        self.simulated = 0

    def beats(self, cycles: FloatArray, energy: FloatArray) -> npt.NDArray[np.bool_]:
        """Whether something on the front is no worse than bounds in either, but for rounding; bool[n]."""
        if not len(self.index):
            return np.zeros(len(cycles), np.bool_)
        at = np.searchsorted(self.results[:, E_CYCLES], cycles, side="right") - 1
        beaten: npt.NDArray[np.bool_] = (at >= 0) & (self.energy[np.maximum(at, 0)] <= energy * (1 - 1e-12))
        return beaten

    def add(self, index: IntArray, results: IntArray, energy: FloatArray) -> None:
        """Let tilings in, and those out that they beat."""
        self.simulated += len(index)
        index, energy = np.concatenate([self.index, index]), np.concatenate([self.energy, energy])
        results = np.concatenate([self.results, results]) if len(self.results) else results
        order = np.lexsort((index, energy, results[:, E_CYCLES]))
        least = np.minimum.accumulate(np.concatenate([[np.inf], energy[order][:-1]]))
        order = order[energy[order] < least]
        self.index, self.energy, self.results = index[order], energy[order], results[order]
