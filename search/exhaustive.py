"""Exhaustive search with pruning by bounds: the optimum of a space, with proof.

First every tiling is looked at: does it fit, and what is the least it can take? Then those that fit are simulated
in the order of that bound, in waves, until the next bound is above the best value found: all that are left cannot
be better, nor tie. The waves do not depend on the number of threads, so neither do the counts.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from mas_sim._batch import (
    COUNT_FIELDS,
    E_CYCLES,
    E_L1_BYTES,
    E_METER,
    EVALUATION_FIELDS,
    N_LEGAL,
    N_TOO_LONG,
    evaluate,
    scan,
)
from mas_sim.costs import pack_problem
from mas_sim.dataflows import MAX_INSTRUCTIONS, footprint, get_dataflow
from mas_sim.energy import energy_coefficients
from mas_sim.energy_table import Level
from mas_sim.schedule import IntArray
from mas_sim.search.base import NothingFitsError, Progress, SearchResult, Trial
from mas_sim.search.objective import FloatArray, objective_code, objective_value
from mas_sim.search.space import SearchSpace
from mas_sim.tiling import Tiling

FIRST_WAVE, WAVE = 16, 256
SCAN_TILINGS = 65_536
EVALUATE_CHUNK = 8


class _Problem:
    """A space and an objective, packed for compiled code."""

    def __init__(self, space: SearchSpace, objective: str, energy_level: Level) -> None:
        self.space, self.objective = space, objective
        self.code = objective_code(objective)
        self.coefficients = energy_coefficients(space.arch, space.workload.dtype, energy_level)
        flow = get_dataflow(space.dataflow)
        self.p, self.passes = pack_problem(space.arch, space.workload), flow.softmax(space.arch)
        self.flow = flow.number
        self.best: Trial | None = None

    @property
    def limit(self) -> float:
        """Bounds above this cannot be those of the optimum; leaves room for rounding of energies."""
        return np.inf if self.best is None else self.best.value * (1 + 1e-12)

    def scan(self, outer: IntArray, index0: int) -> tuple[IntArray, FloatArray, IntArray]:
        """Bound all tilings of some outer choices: those that may be better than the best so far, and the counts."""
        inner, pj = self.space.inner, self.coefficients
        room = outer.shape[0] * inner.shape[0]
        index, value, counts = np.empty(room, np.int64), np.empty(room, np.float64), np.zeros(COUNT_FIELDS, np.int64)
        n = scan(
            self.flow, self.p, self.passes, outer, inner, self.space.blocks, MAX_INSTRUCTIONS, self.space.steps,
            pj.pj_per_action, pj.leakage_pj_per_cycle, self.code, self.limit, index0, index, value, counts,
        )  # fmt: skip
        return index[:n].copy(), value[:n].copy(), counts

    def evaluate(self, pool: ThreadPoolExecutor, indices: IntArray) -> None:
        """Simulate tilings, and keep the best."""
        tilings = self.space.packed(indices)
        results = np.empty((len(indices), EVALUATION_FIELDS), np.int64)

        def evaluate_chunk(start: int) -> None:
            end = start + EVALUATE_CHUNK
            evaluate(self.flow, self.p, self.passes, tilings[start:end], results[start:end])

        list(pool.map(evaluate_chunk, range(0, len(indices), EVALUATE_CHUNK)))
        energy = results[:, E_METER:] @ self.coefficients.pj_per_action
        energy = energy + self.coefficients.leakage_pj_per_cycle * results[:, E_CYCLES]
        trial = _best_of(self.space, self.objective, indices, results, energy)
        self.best = trial if self.best is None or trial.rank < self.best.rank else self.best


class ExhaustiveSearch:
    """Find the best tiling of a space, and prove it.

    Parameters
    ----------
    threads
        Threads for the compiled evaluation, which releases the GIL.
    """

    def __init__(self, threads: int = 2) -> None:
        self.threads = threads

    def search(
        self,
        space: SearchSpace,
        objective: str = "latency",
        progress: Progress | None = None,
        energy_level: Level = "nominal",
    ) -> SearchResult:
        """Return the optimum of `space`, its energies at `energy_level`.

        Ties go to lower energy, then fewer DRAM bytes, the smaller L1 footprint, the lower index.

        Raises
        ------
        NothingFitsError
            If no tiling fits; says by how many bytes the smallest one does not.
        """
        problem = _Problem(space, objective, energy_level)
        with ThreadPoolExecutor(self.threads) as pool:
            index, value, counts = self._bound(problem, pool)
            legal = int(counts[N_LEGAL])
            if legal == 0:
                raise _nothing_fits(space)
            order = np.lexsort((index, value))
            done, first = 0, True
            while done < len(order) and value[order[done]] <= problem.limit:
                wave = order[done : done + (FIRST_WAVE if first else WAVE)]
                wave = wave[value[wave] <= problem.limit]
                problem.evaluate(pool, index[wave])
                done, first = done + len(wave), False
                if progress is not None:
                    progress(legal - len(order) + done, legal)
        if progress is not None:
            progress(legal, legal)
        assert problem.best is not None
        return SearchResult(
            problem.best, objective, len(space), legal, done, legal - done, int(counts[N_TOO_LONG]), True,
            space.describe(),
        )  # fmt: skip

    def _bound(self, problem: _Problem, pool: ThreadPoolExecutor) -> tuple[IntArray, FloatArray, IntArray]:
        """Bound every tiling: those worth simulating, their bounds, and the counts of all."""
        outer, inner = problem.space.outer, problem.space.inner.shape[0]
        chunk = max(1, SCAN_TILINGS // inner)
        starts = range(0, outer.shape[0], chunk)
        parts = list(pool.map(lambda s: problem.scan(outer[s : s + chunk], s * inner), starts))
        index, value = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        counts: IntArray = np.array([part[2] for part in parts]).sum(axis=0)
        return index, value, counts


def _best_of(space: SearchSpace, objective: str, indices: IntArray, results: IntArray, energy: FloatArray) -> Trial:
    """Return the best trial of a wave, ties broken as `Trial.rank` says."""
    values = objective_value(objective, results[:, E_CYCLES].astype(np.float64), energy)
    dram = results[:, E_METER] + results[:, E_METER + 1]
    at = int(np.lexsort((indices, results[:, E_L1_BYTES], dram, energy, values))[0])
    index = int(indices[at])
    return Trial(
        index, space.tiling(index), float(values[at]), int(results[at, E_CYCLES]), float(energy[at]),
        int(dram[at]), int(results[at, E_L1_BYTES]),
    )  # fmt: skip


def _nothing_fits(space: SearchSpace) -> NothingFitsError:
    """Say by how many bytes the smallest tiling of a space does not fit."""
    values = space.candidates
    least = min(space.buffers)
    ring = get_dataflow(space.dataflow).score_buffers[0]
    smallest = Tiling(
        values["batch_tile"][0], values["head_tile"][0], values["q_tile"][0], values["kv_tile"][0],
        0, 0, least, least, least, ring, least, "groups",
    )  # fmt: skip
    need = footprint(space.dataflow, space.arch, space.workload, smallest)
    where = f"{space.dataflow}: no tiling of the space searched can run {space.workload.name} on {space.arch.name}"
    if need.over_bytes == 0:
        reason = f"those that fit L1 need more than {MAX_INSTRUCTIONS:,} instructions, the longest schedule simulated"
    else:
        reason = f"the smallest does not fit L1, by {need.over_bytes:,} bytes "
        reason += f"(needs {need.total_bytes:,} of {need.capacity_bytes:,})"
    return NothingFitsError(f"{where}: {reason}", need.over_bytes)
