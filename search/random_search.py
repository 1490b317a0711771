"""Random search: legal tilings in random order, all equally likely. The baseline that each other method must beat."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mas_sim.schedule import IntArray
from mas_sim.search.base import FloatArray
from mas_sim.search.evaluator import AnySpace
from mas_sim.search.searcher import Searcher, Study


class _RandomStudy(Study):
    def __init__(self, space: AnySpace, seed: int, batch: int) -> None:
        self._order = np.random.default_rng(seed).permutation(space.legal_count)
        self._batch, self._at = batch, 0

    def ask(self, most: int) -> IntArray:
        """Return the next rows of the random order."""
        rows = self._order[self._at : self._at + min(most, self._batch)]
        self._at += len(rows)
        return rows

    def tell(self, rows: IntArray, values: FloatArray) -> None:
        """Learn nothing: that is what makes it the baseline."""


@dataclass(frozen=True)
class RandomSearch(Searcher):
    """Try legal tilings at random, none twice.

    Parameters
    ----------
    batch
        Tilings that are asked for at once.
    """

    method: ClassVar[str] = "random"
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"batch": (1, 10**6)}
    batch: int = 64

    def begin(self, space: AnySpace, seed: int) -> Study:
        """Start a study: a random order of all legal tilings."""
        return _RandomStudy(space, seed, self.batch)
