"""What every searcher must keep to, whatever it does inside; each has a subclass of the contract."""

import functools
from typing import Any

import pytest
from builders import small_arch, small_workload

from mas_sim.arch import Arch
from mas_sim.dataflows import DATAFLOWS, build_schedule, footprint
from mas_sim.energy import energy_coefficients
from mas_sim.errors import MasSimError, TilingError
from mas_sim.meter import meter
from mas_sim.search.base import NothingFitsError, SearchResult, Trial
from mas_sim.search.exhaustive import ExhaustiveSearch
from mas_sim.search.objective import OBJECTIVES
from mas_sim.search.space import SearchSpace
from mas_sim.simulator import simulate
from mas_sim.tiling import Tiling
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


# Small spaces that between them have every choice: residency and overwrite, depths, and with room left in L1 or not.
CHOICES: dict[str, dict[str, Any]] = {
    "residency": {"limit": 2, "residency": (0, 4, 8), "buffers": (2,)},
    "depths": {"limit": 2, "residency": (0, 8), "in_place": (True,), "overwrites": ("none",)},
    "room left": {"limit": 2, "residency": (0, 8), "buffers": (1,), "use_all_l1": False},
}


@functools.cache
def space_of(dataflow: str, problem: str, choices: str = "residency") -> SearchSpace:
    return SearchSpace(dataflow, *PROBLEMS[problem], **CHOICES[choices])


def fits(space: SearchSpace, index: int) -> bool:
    """Whether a tiling is possible and fits L1."""
    try:
        return not footprint(space.dataflow, space.arch, space.workload, space.tiling(index)).over_bytes
    except TilingError:
        return False


def same_choices(t: Tiling) -> tuple[object, ...]:
    """Return what tilings must have in common for one of them to leave more room than the other."""
    ways = (t.core_split, t.overwrite, t.softmax_in_place, t.exp_on, t.overlap)
    return (t.batch_tile, t.head_tile, t.q_tile, t.kv_tile, *ways)


def legal_indices(space: SearchSpace) -> list[int]:
    """Return the indices of the tilings that fit L1, and leave no room in it if the space wants that."""
    legal = [index for index in range(len(space)) if fits(space, index)]
    if not space.use_all_l1:
        return legal
    # A tiling leaves room if another one of the same sizes, split, overwrite and place of P fits that has more.
    # A share that already is the whole, or a second buffer for a single streamed tile, is not more.
    more: dict[tuple[object, ...], set[tuple[int, ...]]] = {}
    amounts = {}
    for index in legal:
        t = space.tiling(index)
        tiles = t.kv_tiles(space.workload)
        kv = [
            (resident, depth if resident or tiles > 1 else 1)
            for resident, depth in ((t.k_resident_tiles, t.k_buffers), (t.v_resident_tiles, t.v_buffers))
        ]
        ring = t.score_buffers if space.dataflow == "layer_wise" else 0
        amounts[index] = (*kv[0], *kv[1], t.q_buffers, t.o_buffers, ring)
        same = same_choices(t)
        more.setdefault((*same, 0 if ring else t.score_buffers), set()).add(amounts[index])
    kept = []
    for index in legal:
        t = space.tiling(index)
        same = same_choices(t)
        ring = space.dataflow == "layer_wise"
        others = more[(*same, 0 if ring else t.score_buffers)]
        mine = amounts[index]
        if not any(other != mine and all(o >= m for o, m in zip(other, mine, strict=True)) for other in others):
            kept.append(index)
    return kept


def trial_of(space: SearchSpace, index: int, objective: str) -> Trial:
    """Evaluate one tiling the long way: build its schedule, simulate and meter it."""
    schedule = build_schedule(space.dataflow, space.arch, space.workload, space.tiling(index))
    timeline = simulate(schedule)
    cycles, counts = timeline.cycles, meter(schedule, timeline)
    prices = energy_coefficients(space.arch, space.workload.dtype)
    energy_pj = float(counts @ prices.pj_per_action) + prices.leakage_pj_per_cycle * cycles
    value = {"latency": float(cycles), "energy": energy_pj, "edp": energy_pj * cycles}[objective]
    dram_bytes, l1_bytes = int(counts[0] + counts[1]), schedule.l1_peak_bytes
    return Trial(index, space.tiling(index), value, cycles, energy_pj, dram_bytes, l1_bytes)


@functools.cache
def every_trial(dataflow: str, problem: str, objective: str, choices: str = "residency") -> tuple[Trial, ...]:
    """All legal tilings of a space, the best first."""
    space = space_of(dataflow, problem, choices)
    return tuple(sorted((trial_of(space, i, objective) for i in legal_indices(space)), key=lambda t: t.rank))


def facts(trial: Trial) -> dict[str, object]:
    """Return what a trial says but for its index, floats to twelve digits: sums may be added up in another order.

    The space has some schedules under two indices, and a searcher may name either.
    """
    exact = {name: getattr(trial, name) for name in ("cycles", "dram_bytes", "l1_bytes")}
    return exact | {name: pytest.approx(getattr(trial, name), rel=1e-12) for name in ("value", "energy_pj")}


class SearcherContract:
    """The questions. A subclass says how its searcher is made, and whether it claims to find the optimum."""

    proves = False

    def search(
        self, space: SearchSpace, objective: str, threads: int = 1, calls: list[tuple[int, int]] | None = None
    ) -> SearchResult:
        raise NotImplementedError

    @pytest.mark.parametrize(
        ("problem", "choices"),
        [*((problem, "residency") for problem in sorted(PROBLEMS)), ("ragged", "depths"), ("grouped", "room left")],
    )
    @pytest.mark.parametrize("objective", OBJECTIVES)
    @pytest.mark.parametrize("dataflow", sorted(DATAFLOWS))
    def test_is_the_best_tiling_legal_and_the_optimum_if_proven(
        self, dataflow: str, objective: str, problem: str, choices: str
    ) -> None:
        trials = every_trial(dataflow, problem, objective, choices)
        space = space_of(dataflow, problem, choices)
        result = self.search(space, objective)
        assert result.proven_optimal >= self.proves
        assert result.objective == objective
        assert space.tiling(result.best.index) == result.best.tiling
        assert fits(space, result.best.index)
        expected = trials[0] if result.proven_optimal else trial_of(space, result.best.index, objective)
        for name, value in facts(expected).items():
            assert getattr(result.best, name) == value, name

    @pytest.mark.parametrize("objective", OBJECTIVES)
    @pytest.mark.parametrize("dataflow", sorted(DATAFLOWS))
    def test_do_the_counts_add_up(self, dataflow: str, objective: str) -> None:
        space = space_of(dataflow, "ragged")
        result = self.search(space, objective)
        assert result.space_size == len(space)
        # The space has some schedules under two names; they are counted once.
        assert 0 < result.legal <= len(every_trial(dataflow, "ragged", objective))
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
        arch = cramped_arch(0.25, cores=cores)
        space = SearchSpace(
            dataflow, arch, PROBLEMS["ragged"][1], limit=2, buffers=(1,), residency=(0,), overwrites=("none",)
        )
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
