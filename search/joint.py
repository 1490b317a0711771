"""Several dataflows in one space: which dataflow, and how it is tiled, in one search with one proof."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from mas_sim._legal import N_TOO_LONG, ChoiceArray, nearest_rows
from mas_sim.arch import Arch
from mas_sim.dataflows import DATAFLOWS
from mas_sim.energy import EnergyCoefficients
from mas_sim.errors import MasSimError
from mas_sim.schedule import IntArray
from mas_sim.search.base import NothingFitsError
from mas_sim.search.candidates import Scan
from mas_sim.search.space import LEVELS, SearchSpace
from mas_sim.tiling import Tiling
from mas_sim.workload import Workload

JOINT_LEVELS = ("dataflow", *LEVELS)


class JointSpace:
    """The spaces of several dataflows on one arch and workload, one behind the other.

    An index is that in a dataflow's own space plus where that begins; the dataflow is the first choice.
    Dataflows that do not fit at all are in it with no legal tiling.

    Parameters
    ----------
    dataflows
        Names; all by default.
    options
        Of every space (`SearchSpace`).

    Raises
    ------
    MasSimError
        If a dataflow is given twice, or none is.
    """

    def __init__(
        self, arch: Arch, workload: Workload, dataflows: Sequence[str] = tuple(DATAFLOWS), **options: object
    ) -> None:
        if not dataflows or len(set(dataflows)) < len(dataflows):
            raise MasSimError(f"each dataflow must be given once (got {', '.join(dataflows) or 'none'})")
        self.arch, self.workload = arch, workload
        spaces = [SearchSpace(name, arch, workload, **options) for name in dataflows]  # type: ignore[arg-type]
        firsts = np.cumsum([0, *(len(space) for space in spaces)])
        self._parts: tuple[tuple[int, SearchSpace], ...] = tuple(zip(firsts[:-1].tolist(), spaces, strict=True))
        self._size = int(firsts[-1])

    def __len__(self) -> int:
        return self._size

    def parts(self) -> tuple[tuple[int, SearchSpace], ...]:
        """Return the spaces of single dataflows, each with its first index."""
        return self._parts

    def _part_of(self, index: int) -> tuple[int, SearchSpace]:
        return next(part for part in reversed(self._parts) if part[0] <= index)

    def dataflow_of(self, index: int) -> str:
        """Return the dataflow of the tiling at an index."""
        return self._part_of(index)[1].dataflow

    def tiling(self, index: int) -> Tiling:
        """Return the tiling at an index."""
        first, space = self._part_of(index)
        return space.tiling(index - first)

    def scan(self, coefficients: EnergyCoefficients | None = None, workers: int = 2) -> Scan:
        """Look at every tiling of every dataflow; see `SearchSpace.scan`."""
        found = []
        for first, space in self._parts:
            part = space.scan(coefficients, workers)
            found.append(Scan(part.index + first, part.cycles, part.energy_pj, part.counts))
        return Scan.together(found)

    @cached_property
    def legal(self) -> IntArray:
        """Indices of all legal tilings, rising; int64[legal].

        Raises
        ------
        NothingFitsError
            If no dataflow has any.
        """
        if not len(self._scanned.index):
            errors = [space.misfit() for _, space in self._parts]
            raise NothingFitsError("\n".join(map(str, errors)), min(error.over_bytes for error in errors))
        return self._scanned.index

    @cached_property
    def _scanned(self) -> Scan:
        return self.scan()

    @property
    def too_long(self) -> int:
        """Number of tilings left out because their schedule would be too long."""
        return int(self._scanned.counts[N_TOO_LONG])

    @property
    def legal_count(self) -> int:
        """Number of legal tilings."""
        return len(self.legal)

    @cached_property
    def choices(self) -> ChoiceArray:
        """What each legal tiling chooses; int16[legal, 1 + levels], the dataflow first."""
        parts = []
        bounds = np.searchsorted(self.legal, [*(first for first, _ in self._parts), self._size])
        for number, (first, space) in enumerate(self._parts):
            mine = space.choices_of(self.legal[bounds[number] : bounds[number + 1]] - first)
            parts.append(np.concatenate([np.full((len(mine), 1), number, np.int16), mine], axis=1))
        return np.concatenate(parts)

    def nearest(self, wanted: IntArray) -> IntArray:
        """Repair choices, int64[n, 1 + levels], to legal ones: rows, int64[n]."""
        rows: IntArray = nearest_rows(self.choices, wanted)
        return rows

    def describe(self) -> str:
        """Return the space in words: what its dataflows have in common, then what each has beside it."""
        clauses = {space.dataflow: space.describe().split("; ") for _, space in self._parts}
        common = [c for c in next(iter(clauses.values())) if all(c in own for own in clauses.values())]
        rest = {name: [c for c in own if c not in common] for name, own in clauses.items()}
        return "; ".join([*common, *(f"{name}: {', '.join(own)}" for name, own in rest.items() if own)])
