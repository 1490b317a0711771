"""What every searcher must keep to, whatever it does inside; each has a subclass of the contract."""

import functools
from collections.abc import Iterator

import pytest
from builders import small_arch, small_workload

from mas_sim.arch import Arch
from mas_sim.dataflows import DATAFLOWS, build_schedule, footprint
from mas_sim.energy import energy_coefficients
from mas_sim.errors import MasSimError
from mas_sim.search.base import NothingFitsError, SearchResult, Trial
from mas_sim.search.exhaustive import ExhaustiveSearch
from mas_sim.search.objective import OBJECTIVES
from mas_sim.search.space import SearchSpace
from mas_sim.simulator import simulate
from mas_sim.workload import Workload


def cramped_arch(l1_kib: int, **changes: object) -> Arch:
    """Two cores with delays, and an L1 that many tilings do not fit."""
    delays = {"sync_cycles": 8, "issue_cycles": 2, "dram.latency_cycles": 40, "dram.setup_cycles": 4}
    return small_arch(**({"cores": 2, "l1.capacity_kib": l1_kib, **delays} | changes))


# Machine and workload of each space. Where memory costs no time, many tilings are equally fast, but not equally good.
PROBLEMS: dict[str, tuple[Arch, Workload]] = {
    "ragged": (cramped_arch(32), small_workload(heads=3, n_q=40, n_kv=56, dtype="fp16")),
    "grouped": (cramped_arch(12), small_workload(batch=2, heads=4, kv_heads=2, n_q=32, n_kv=48)),
    "free memory": (
        small_arch(**{"l1.capacity_kib": 6, "dram.bandwidth_gb_per_s": 10000}),
        small_workload(heads=2, n_q=96, n_kv=48),
    ),
}


@functools.cache
def space_of(dataflow: str, problem: str) -> SearchSpace:
    return SearchSpace(dataflow, *PROBLEMS[problem], limit=3)


def legal_indices(space: SearchSpace) -> Iterator[int]:
    """Yield the indices of the tilings that fit L1."""
    for index in range(len(space)):
        if not footprint(space.dataflow, space.arch, space.workload, space.tiling(index)).over_bytes:
            yield index


def trial_of(space: SearchSpace, index: int, objective: str) -> Trial:
    """Evaluate one tiling the long way: build its schedule, simulate and meter it."""
    schedule = build_schedule(space.dataflow, space.arch, space.workload, space.tiling(index))
    cycles, counts = simulate(schedule).cycles, schedule.meter_counts()
    prices = energy_coefficients(space.arch, space.workload.dtype)
    energy_pj = float(counts @ prices.pj_per_action) + prices.leakage_pj_per_cycle * cycles
    value = {"latency": float(cycles), "energy": energy_pj, "edp": energy_pj * cycles}[objective]
    dram_bytes, l1_bytes = int(counts[0] + counts[1]), schedule.l1_peak_bytes
    return Trial(index, space.tiling(index), value, cycles, energy_pj, dram_bytes, l1_bytes)


@functools.cache
def every_trial(dataflow: str, problem: str, objective: str) -> tuple[Trial, ...]:
    """All legal tilings of a space, the best first."""
    space = space_of(dataflow, problem)
    return tuple(sorted((trial_of(space, i, objective) for i in legal_indices(space)), key=lambda t: t.rank))


def facts(trial: Trial) -> dict[str, object]:
    """Return what a trial says, floats to twelve digits: sums may be added up in another order."""
    exact = {name: getattr(trial, name) for name in ("index", "tiling", "cycles", "dram_bytes", "l1_bytes")}
    return exact | {name: pytest.approx(getattr(trial, name), rel=1e-12) for name in ("value", "energy_pj")}


class SearcherContract:
    """The questions. A subclass says how its searcher is made, and whether it claims to find the optimum."""

    proves = False

    def search(
        self, space: SearchSpace, objective: str, threads: int = 1, calls: list[tuple[int, int]] | None = None
    ) -> SearchResult:
        raise NotImplementedError

    @pytest.mark.parametrize("problem", sorted(PROBLEMS))
    @pytest.mark.parametrize("objective", OBJECTIVES)
    @pytest.mark.parametrize("dataflow", sorted(DATAFLOWS))
    def test_is_the_best_tiling_legal_and_the_optimum_if_proven(
        self, dataflow: str, objective: str, problem: str
    ) -> None:
        trials = every_trial(dataflow, problem, objective)
        space = space_of(dataflow, problem)
        result = self.search(space, objective)
        assert result.proven_optimal >= self.proves
        assert result.objective == objective
        by_index = {trial.index: trial for trial in trials}
        expected = trials[0] if result.proven_optimal else by_index[result.best.index]
        for name, value in facts(expected).items():
            assert getattr(result.best, name) == value, name

    @pytest.mark.parametrize("objective", OBJECTIVES)
    @pytest.mark.parametrize("dataflow", sorted(DATAFLOWS))
    def test_do_the_counts_add_up(self, dataflow: str, objective: str) -> None:
        space = space_of(dataflow, "ragged")
        result = self.search(space, objective)
        assert result.space_size == len(space)
        assert 0 < result.legal < result.space_size
        assert result.legal == len(every_trial(dataflow, "ragged", objective))
        assert result.too_long == 0
        assert 0 < result.simulated <= result.legal
        if result.proven_optimal:
            assert result.simulated + result.pruned == result.legal

    @pytest.mark.parametrize("dataflow", sorted(DATAFLOWS))
    def test_is_the_result_the_same_with_any_number_of_threads(self, dataflow: str) -> None:
        for objective in OBJECTIVES:
            one, again, two = (self.search(space_of(dataflow, "grouped"), objective, n) for n in (1, 1, 2))
            assert one == again == two

    def test_does_progress_only_grow_and_end_complete(self) -> None:
        calls: list[tuple[int, int]] = []
        result = self.search(space_of("mas", "ragged"), "latency", calls=calls)
        settled = [done for done, _ in calls]
        assert settled == sorted(settled)
        assert {total for _, total in calls} == {result.legal}
        assert settled[-1] == result.legal

    @pytest.mark.parametrize("cores", [1, 2])
    @pytest.mark.parametrize("dataflow", sorted(DATAFLOWS))
    def test_does_it_say_by_how_many_bytes_nothing_fits(self, dataflow: str, cores: int) -> None:
        arch = cramped_arch(1, cores=cores)
        space = SearchSpace(dataflow, arch, PROBLEMS["ragged"][1], limit=3)
        needs = [footprint(dataflow, arch, space.workload, space.tiling(i)).over_bytes for i in range(len(space))]
        with pytest.raises(NothingFitsError, match=f"{min(needs):,} bytes") as caught:
            self.search(space, "latency")
        assert caught.value.over_bytes == min(needs) > 0

    def test_is_an_unknown_objective_refused_with_the_nearest_name(self) -> None:
        with pytest.raises(MasSimError, match="did you mean 'latency'"):
            self.search(space_of("flat", "ragged"), "latenci")


class TestExhaustiveSearch(SearcherContract):
    proves = True

    def search(
        self, space: SearchSpace, objective: str, threads: int = 1, calls: list[tuple[int, int]] | None = None
    ) -> SearchResult:
        progress = None if calls is None else lambda done, total: calls.append((done, total))
        return ExhaustiveSearch(threads).search(space, objective, progress)

    def test_does_pruning_spare_it_something(self) -> None:
        assert self.search(space_of("mas", "grouped"), "latency").pruned > 0
