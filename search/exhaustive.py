"""Exhaustive search with pruning by bounds: the optimum of a space, with proof.

First every tiling is looked at: does it fit, and what is the least it can take? Then the legal ones are simulated
in the order of that bound, in waves, until the next bound is above the best value found: all that are left cannot
be better, nor tie. The waves do not depend on the number of threads, so neither do the counts.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from mas_sim._batch import E_CYCLES, E_L1_BYTES, E_METER, EVALUATION_FIELDS, evaluate, scan
from mas_sim.costs import pack_problem, pack_softmax
from mas_sim.dataflows import MAX_INSTRUCTIONS, footprint, get_dataflow
from mas_sim.energy import energy_coefficients
from mas_sim.schedule import IntArray
from mas_sim.search.base import NothingFitsError, Progress, SearchResult, Trial
from mas_sim.search.objective import FloatArray, objective_value
from mas_sim.search.space import SearchSpace
from mas_sim.tiling import Tiling

FIRST_WAVE, WAVE = 64, 512
SCAN_CHUNK = 128
EVALUATE_CHUNK = 64


@dataclass(frozen=True)
class _Bounded:
    """The legal tilings of a space, with lower bounds of their cycles and energy."""

    index: IntArray
    cycles: IntArray
    energy_pj: FloatArray
    too_long: int


class ExhaustiveSearch:
    """Find the best tiling of a space, and prove it.

    Parameters
    ----------
    threads
        Threads for the compiled evaluation, which releases the GIL.
    """

    def __init__(self, threads: int = 2) -> None:
        self.threads = threads

    def search(self, space: SearchSpace, objective: str = "latency", progress: Progress | None = None) -> SearchResult:
        """Return the optimum of `space`.

        Ties go to lower energy, then fewer DRAM bytes, the smaller L1 footprint, the lower index.

        Raises
        ------
        NothingFitsError
            If no tiling fits; says by how many bytes the smallest one does not.
        """
        coefficients = energy_coefficients(space.arch, space.workload.dtype)
        bounded = self._scan(space, coefficients.pj_per_action, coefficients.leakage_pj_per_cycle)
        legal = len(bounded.index)
        if legal == 0:
            raise _nothing_fits(space)
        bound = objective_value(objective, bounded.cycles.astype(np.float64), bounded.energy_pj)
        order = np.lexsort((bounded.index, bound))
        best: Trial | None = None
        done = 0
        with ThreadPoolExecutor(self.threads) as pool:
            while done < legal and (best is None or bound[order[done]] <= best.value * (1 + 1e-12)):
                size = FIRST_WAVE if best is None else WAVE
                wave = order[done : done + size]
                if best is not None:
                    wave = wave[bound[wave] <= best.value * (1 + 1e-12)]
                indices = bounded.index[wave]
                results = self._evaluate(pool, space, indices)
                energy = results[:, E_METER:] @ coefficients.pj_per_action
                energy = energy + coefficients.leakage_pj_per_cycle * results[:, E_CYCLES]
                trial = _best_of(space, objective, indices, results, energy)
                best = trial if best is None or trial.rank < best.rank else best
                done += len(wave)
                if progress is not None:
                    progress(done, legal)
        if progress is not None:
            progress(legal, legal)
        assert best is not None
        return SearchResult(
            best, objective, len(space), legal, done, legal - done, bounded.too_long, True, space.describe()
        )

    def _scan(self, space: SearchSpace, pj: FloatArray, leakage_pj: float) -> _Bounded:
        p, passes = pack_problem(space.arch, space.workload), pack_softmax(space.arch)
        flow, inner = get_dataflow(space.dataflow).number, space.inner

        def scan_chunk(start: int) -> tuple[IntArray, IntArray, FloatArray, IntArray]:
            outer = np.ascontiguousarray(space.outer[start : start + SCAN_CHUNK])
            room = outer.shape[0] * inner.shape[0]
            index, cycles = np.empty(room, np.int64), np.empty(room, np.int64)
            energy, fell_out = np.empty(room, np.float64), np.zeros(3, np.int64)
            n = scan(
                flow, p, passes, outer, inner, MAX_INSTRUCTIONS, pj, leakage_pj, start * inner.shape[0],
                index, cycles, energy, fell_out,
            )  # fmt: skip
            return index[:n], cycles[:n], energy[:n], fell_out

        starts = range(0, space.outer.shape[0], SCAN_CHUNK)
        with ThreadPoolExecutor(self.threads) as pool:
            index, cycles, energy, fell_out = (
                np.array(x) if i == 3 else np.concatenate(x)
                for i, x in enumerate(zip(*pool.map(scan_chunk, starts), strict=True))
            )
        return _Bounded(index, cycles, energy, int(fell_out[:, 1].sum()))

    def _evaluate(self, pool: ThreadPoolExecutor, space: SearchSpace, indices: IntArray) -> IntArray:
        p, passes = pack_problem(space.arch, space.workload), pack_softmax(space.arch)
        flow = get_dataflow(space.dataflow).number
        tilings = space.packed(indices)
        results = np.empty((len(indices), EVALUATION_FIELDS), np.int64)

        def evaluate_chunk(start: int) -> None:
            end = start + EVALUATE_CHUNK
            evaluate(flow, p, passes, tilings[start:end], results[start:end])

        list(pool.map(evaluate_chunk, range(0, len(indices), EVALUATE_CHUNK)))
        return results


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
    ring = get_dataflow(space.dataflow).score_buffers[0]
    smallest = Tiling(
        values["batch_tile"][0], values["head_tile"][0], values["q_tile"][0], values["kv_tile"][0],
        0, 0, 1, 1, 1, ring, 1, "groups",
    )  # fmt: skip
    need = footprint(space.dataflow, space.arch, space.workload, smallest)
    return NothingFitsError(
        f"{space.dataflow}: no tiling of {space.workload.name} fits L1 of {space.arch.name}: the smallest is over by "
        f"{need.over_bytes:,} bytes (needs {need.total_bytes:,} of {need.capacity_bytes:,})",
        need.over_bytes,
    )
