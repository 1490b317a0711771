"""Candidate values of a choice, thinned where there are many; and what a look at every tiling of a space gives."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mas_sim._legal import SHARES
from mas_sim.schedule import IntArray
from mas_sim.search.base import FloatArray
from mas_sim.tiling import EXP_ON, GRANULARITIES, MAX_BUFFERS, OVERWRITES

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


_KNOWN: dict[str, Sequence[object]] = {
    "residency": range(SHARES + 1), "buffers": range(1, MAX_BUFFERS + 1), "in_place": (True, False),
    "overwrites": OVERWRITES, "exp_on": EXP_ON,
}  # fmt: skip


def choice_faults(limit: int, granularity: str | None, choices: Mapping[str, Sequence[object]]) -> list[str]:
    """Return what is wrong with the choices of a `SearchSpace`: for each faulty one its rule and its value."""
    faults = [] if limit >= 2 else [f"limit must be at least 2 (got {limit})"]
    for name, chosen in choices.items():
        known = _KNOWN[name]
        if not chosen or len(set(chosen)) < len(chosen) or not set(chosen) <= set(known):
            faults.append(f"{name} must be some of {', '.join(map(str, known))}, each once (got {chosen})")
        elif isinstance(known, range) and list(chosen) != [value for value in known if value in chosen]:
            faults.append(f"{name} must rise (got {chosen})")
    if granularity not in (None, *GRANULARITIES):
        faults.append(f"granularity must be one of {', '.join(GRANULARITIES)} (got {granularity!r})")
    return faults


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
