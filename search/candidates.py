"""Candidate values of a choice, thinned where there are many; and what a look at every tiling of a space gives."""

from dataclasses import dataclass

import numpy as np

from mas_sim.schedule import IntArray
from mas_sim.search.base import FloatArray

MAX_CANDIDATES = 32
"""Candidates of a factor before they are thinned."""


def thin(values: list[int], limit: int) -> list[int]:
    """Thin sorted values geometrically to about `limit`, keeping the first and the last."""
    if len(values) <= limit:
        return values
    picks = np.geomspace(1, len(values), limit)
    return [values[i] for i in sorted({round(float(pick)) - 1 for pick in picks})]


def tile_candidates(dimension: int, side: int, limit: int = MAX_CANDIDATES, *, small: bool = False) -> list[int]:
    """Candidate tile sizes of a dimension: multiples of the array's side up to it, and the dimension itself.

    `small` adds the powers of two below the side: a long row block may only fit L1 with fewer rows than the array has.
    """
    values = thin([*range(side, dimension, side), dimension], limit)
    powers = [1 << bit for bit in range(side.bit_length()) if 1 << bit < min(side, dimension)]
    return [*powers, *values] if small else values


@dataclass(frozen=True)
class Scan:
    """What a look at every tiling of a space gave.

    Attributes
    ----------
    index : int64[legal]
        The legal tilings, rising.
    cycles, energy_pj : float64[legal]
        Lower bounds of each; empty if energy was not priced.
    counts : int64[COUNT_FIELDS]
        How many fell out where (`_legal.N_*`).
    """

    index: IntArray
    cycles: FloatArray
    energy_pj: FloatArray
    counts: IntArray

    @staticmethod
    def together(parts: "list[Scan]") -> "Scan":
        """Put the scans of a space's parts together, in their order."""
        counts: IntArray = np.sum([part.counts for part in parts], axis=0)
        return Scan(
            np.concatenate([part.index for part in parts]), np.concatenate([part.cycles for part in parts]),
            np.concatenate([part.energy_pj for part in parts]), counts,
        )  # fmt: skip
