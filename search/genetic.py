"""Genetic search: a population of tilings, whose factors are crossed and mutated, and repaired to legal ones.

A tiling's genome is what it chooses at each level of the space, as places in the lists of values. Children that no
legal tiling goes on with are repaired level by level (`SearchSpace.nearest`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mas_sim.schedule import IntArray
from mas_sim.search.base import FloatArray
from mas_sim.search.evaluator import AnySpace
from mas_sim.search.searcher import Searcher, Study

LITTER, MAX_BOOST = 3, 8
"""Children made for one that is wanted, and by how much mutation may grow where most of them are known."""


class _GeneticStudy(Study):
    """A population (rows and values, the best first), and what has ever been asked for."""

    def __init__(self, space: AnySpace, seed: int, settings: "GeneticSearch") -> None:
        self._space, self._settings = space, settings
        self._rng = np.random.default_rng(seed)
        self._known = np.zeros(space.legal_count, np.bool_)
        self._rows, self._values = np.zeros(0, np.int64), np.zeros(0)
        self._boost = 1
        self._most = space.choices.max(axis=0).astype(np.int64)
        self._levels = np.flatnonzero(self._most)  # those with a choice

    def ask(self, most: int) -> IntArray:
        """Return the first population, then children of the current one; fresh blood where all of them are known."""
        size = min(most, self._settings.population)
        if not len(self._rows):
            rows = self._rng.choice(len(self._known), size=min(size, len(self._known)), replace=False)
        else:
            rows = np.unique(self._space.nearest(self._children(LITTER * size)))
            rows = self._rng.permutation(rows[~self._known[rows]])[:size]
            few = len(rows) < max(1, size // 2)
            # A population that has converged has mostly children that are known: they then mutate more.
            self._boost = min(MAX_BOOST, 2 * self._boost) if few else 1
            if few:
                rows = np.concatenate([rows, self._fresh(min(max(1, size // 8), size - len(rows)), rows)])
        self._known[rows] = True
        return rows

    def _fresh(self, count: int, besides: IntArray) -> IntArray:
        """Draw up to `count` rows never asked for; few may come where few are left, but one if there is any."""
        drawn = np.setdiff1d(self._rng.integers(0, len(self._known), 8 * count), besides)
        drawn = drawn[~self._known[drawn]]
        if not len(drawn) and not len(besides):
            drawn = np.flatnonzero(~self._known)
        return self._rng.permutation(drawn)[:count]

    def _children(self, count: int) -> IntArray:
        """Return genomes of children, int64[count, levels]: two parents crossed level by level, then mutated."""
        choices, rng, settings = self._space.choices, self._rng, self._settings
        children, fathers = (choices[self._rows[self._parents(count)]].astype(np.int64) for _ in range(2))
        levels = children.shape[1]
        from_father = rng.random(children.shape, np.float32) < 0.5
        from_father &= rng.random((count, 1), np.float32) < settings.crossover
        np.copyto(children, fathers, where=from_father)
        changes = rng.poisson(settings.mutation * self._boost * count)
        child, level = rng.integers(0, count, changes), rng.choice(self._levels, changes) if len(self._levels) else 0
        place = child * levels + level if len(self._levels) else np.zeros(0, np.int64)
        most = np.tile(self._most, count)[place]
        steps = rng.integers(1, settings.step + 1, len(place)) * (2 * rng.integers(0, 2, len(place)) - 1)
        jumps = (rng.random(len(place)) * (most + 1)).astype(np.int64)
        flat = children.reshape(-1)
        flat[place] = np.where(rng.random(len(place)) < settings.jump, jumps, np.clip(flat[place] + steps, 0, most))
        return children

    def _parents(self, count: int) -> IntArray:
        """Choose parents, each the best of a few drawn at random; the population is sorted, so the lowest place."""
        drawn = self._rng.integers(0, len(self._rows), (count, self._settings.tournament))
        best: IntArray = drawn.min(axis=1)
        return best

    def tell(self, rows: IntArray, values: FloatArray) -> None:
        """Let the children in; the elite of the old population stays, and the best of all others."""
        elite = min(self._settings.elite, self._settings.population, len(self._rows))
        kept = slice(0, elite)
        rest = np.concatenate([self._rows[elite:], rows]), np.concatenate([self._values[elite:], values])
        order = np.lexsort(rest)[: self._settings.population - elite]
        all_rows = np.concatenate([self._rows[kept], rest[0][order]])
        all_values = np.concatenate([self._values[kept], rest[1][order]])
        order = np.lexsort((all_rows, all_values))
        self._rows, self._values = all_rows[order], all_values[order]


@dataclass(frozen=True)
class GeneticSearch(Searcher):
    """Evolve a population of tilings.

    Parameters
    ----------
    population
        Tilings alive at once, and children asked for in each generation.
    tournament
        Parents are the best of so many drawn at random.
    elite
        The best of a generation that certainly live on.
    crossover
        Share of children with two parents; of each factor, either's with equal chance.
    mutation
        Factors of a child that are mutated, on average.
    step
        A mutation goes up or down by 1 to so many places in a factor's list of values;
    jump
        but this share of them goes anywhere.
    """

    method: ClassVar[str] = "genetic"
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {
        "population": (1, 10**6), "tournament": (1, 10**6), "elite": (0, 10**6), "crossover": (0, 1),
        "mutation": (0, 100), "step": (1, 10**6), "jump": (0, 1),
    }  # fmt: skip
    population: int = 48
    tournament: int = 3
    elite: int = 4
    crossover: float = 0.8
    mutation: float = 1.5
    step: int = 3
    jump: float = 0.25

    def begin(self, space: AnySpace, seed: int) -> Study:
        """Start a study with a random population."""
        return _GeneticStudy(space, seed, self)
