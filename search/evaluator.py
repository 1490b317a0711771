"""Evaluating tilings: each at most once, in parallel, with the objective and the history kept beside.

A `Simulator` turns indices into results, an `Evaluator` rows into values; both work on any space.
"""

from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

import numpy as np

from mas_sim._batch import E_CYCLES, E_L1_BYTES, E_METER, EVALUATION_FIELDS, evaluate
from mas_sim._legal import N_TOO_LONG
from mas_sim.costs import pack_problem
from mas_sim.dataflows import get_dataflow
from mas_sim.energy import energy_coefficients
from mas_sim.energy_table import Level
from mas_sim.schedule import IntArray
from mas_sim.search.base import FloatArray, History, NothingKeepsError, SearchResult, Trial, clock
from mas_sim.search.joint import JointSpace
from mas_sim.search.objective import Objective
from mas_sim.search.space import SearchSpace

EVALUATE_CHUNK = 8
"""Tilings that a thread simulates in one go."""


AnySpace = SearchSpace | JointSpace
"""What is searched: the tilings of one dataflow, or of several."""


class Simulator:
    """Simulates tilings of a space by index, in threads; a context that owns them.

    Attributes
    ----------
    simulation_seconds
        Wall time spent in it so far.
    """

    def __init__(self, space: AnySpace, energy_level: Level = "nominal", workers: int = 2) -> None:
        self.space = space
        self.coefficients = energy_coefficients(space.arch, space.workload.dtype, energy_level)
        self._p = pack_problem(space.arch, space.workload)
        self._pool = ThreadPoolExecutor(workers)
        self._parts = [
            (first, part, get_dataflow(part.dataflow).number, get_dataflow(part.dataflow).softmax(space.arch))
            for first, part in space.parts()
        ]
        self._firsts = np.array([first for first, *_ in self._parts])
        self.simulation_seconds = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._pool.shutdown(cancel_futures=True)

    def results(self, indices: IntArray) -> IntArray:
        """Return what each of the tilings at `indices` takes; int64[n, EVALUATION_FIELDS]."""
        results = np.empty((len(indices), EVALUATION_FIELDS), np.int64)
        of_part = np.searchsorted(self._firsts, indices, side="right") - 1
        jobs = []
        for number in np.unique(of_part).tolist():
            first, part, flow, passes = self._parts[number]
            rows = np.flatnonzero(of_part == number)
            tilings = part.packed(indices[rows] - first)
            for start in range(0, len(rows), EVALUATE_CHUNK):
                chunk = slice(start, start + EVALUATE_CHUNK)
                jobs.append((flow, passes, tilings[chunk], rows[chunk]))
        began = clock()
        if len(jobs) == 1:
            self._run(jobs[0], results)
        else:
            list(self._pool.map(lambda job: self._run(job, results), jobs))
        self.simulation_seconds += clock() - began
        return results

    def _run(self, job: tuple[int, IntArray, IntArray, IntArray], results: IntArray) -> None:
        flow, passes, tilings, rows = job
        mine = np.empty((len(rows), EVALUATION_FIELDS), np.int64)
        evaluate(flow, self._p, passes, tilings, mine)
        results[rows] = mine

    def energies(self, results: IntArray) -> FloatArray:
        """Return the energy of each of some results, in pJ."""
        energy: FloatArray = results[:, E_METER:] @ self.coefficients.pj_per_action
        return energy + self.coefficients.leakage_pj_per_cycle * results[:, E_CYCLES]

    def trial(self, index: int, result: IntArray, energy_pj: float, value: float) -> Trial:
        """Return the record of one tiling."""
        return Trial(
            index, self.space.tiling(index), value, int(result[E_CYCLES]), energy_pj,
            int(result[E_METER] + result[E_METER + 1]), int(result[E_L1_BYTES]), self.space.dataflow_of(index),
        )  # fmt: skip

    def best(self, indices: IntArray, results: IntArray, values: FloatArray) -> Trial:
        """Return the best of some results, ties broken as `Trial.rank` says."""
        energy = self.energies(results)
        dram = results[:, E_METER] + results[:, E_METER + 1]
        at = int(np.lexsort((indices, results[:, E_L1_BYTES], dram, energy, values))[0])
        return self.trial(int(indices[at]), results[at], float(energy[at]), float(values[at]))


class Evaluator:
    """Evaluates rows of a space for a study: each once, its value remembered; keeps the history and the best.

    Attributes
    ----------
    count
        Tilings simulated so far.
    """

    def __init__(
        self, space: AnySpace, objective: str | Objective, *, energy_level: Level = "nominal", workers: int = 2
    ) -> None:
        self.space, self.objective = space, Objective.parse(objective)
        self._simulator = Simulator(space, energy_level, workers)
        self._value = np.full(space.legal_count, np.nan)
        self._rows: list[IntArray] = []
        self._seconds: list[FloatArray] = []
        self._began = clock()
        self.count = 0
        self._best: Trial | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._simulator.__exit__(kind, error, at)

    @property
    def elapsed_seconds(self) -> float:
        """Seconds since the search began."""
        return clock() - self._began

    def values(self, rows: IntArray) -> FloatArray:
        """Return the objective of rows, float64[n]; those not yet known are simulated, once each."""
        new = rows[np.isnan(self._value[rows])]
        if len(new):
            new = new[np.sort(np.unique(new, return_index=True)[1])]
            indices = self.space.legal[new]
            results = self._simulator.results(indices)
            values = self.objective.values(results[:, E_CYCLES].astype(np.float64), self._simulator.energies(results))
            self._value[new] = values
            best = self._simulator.best(indices, results, values)
            self._best = best if self._best is None or best.rank < self._best.rank else self._best
            self._rows.append(new)
            self._seconds.append(np.full(len(new), self.elapsed_seconds))
            self.count += len(new)
        found: FloatArray = self._value[rows]
        return found

    def history(self) -> History:
        """Return every evaluation so far, in order."""
        rows = np.concatenate(self._rows)
        return History(self.space.legal[rows], self._value[rows], np.concatenate(self._seconds))

    def result(self, method: str, seed: int, settings: str, stopped: str) -> SearchResult:
        """Return what was found.

        Raises
        ------
        NothingKeepsError
            If no tiling that was simulated keeps to the objective's limits.
        """
        assert self._best is not None
        if not np.isfinite(self._best.value):
            raise NothingKeepsError(
                f"none of {self.count:,} tilings simulated keeps to the limits ({self.objective.describe()}): "
                f"the best has {self._best.cycles:,} cycles and {self._best.energy_pj / 1e6:,.3f} uJ"
            )
        legal, every = self.space.legal_count, self.count == self.space.legal_count
        return SearchResult(
            self._best, self.objective.describe(), len(self.space), legal, self.count, 0, self.space.too_long, every,
            self.space.describe(), self._best.value if every else None, 0.0 if every else None, method, seed,
            settings, stopped, self.elapsed_seconds, self._simulator.simulation_seconds, self.history(),
        )  # fmt: skip


def too_long(counts: IntArray) -> int:
    """Tilings that a scan left out because their schedule would be too long."""
    return int(counts[N_TOO_LONG])
