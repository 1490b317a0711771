"""What every searcher promises, and the slow and obvious ways to check it.

A searcher joins by one subclass of `BudgetedContract`, in `tests/contracts`; exhaustive search, which has no
budget and no seed, has questions of its own there. The oracle of both evaluates
tilings the long way: schedule, simulation, meter.
"""

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from builders import small_arch, small_workload

from mas_sim.arch import Arch
from mas_sim.dataflows import build_schedule, footprint
from mas_sim.energy import energy_coefficients
from mas_sim.errors import MasSimError, TilingError
from mas_sim.meter import meter
from mas_sim.search.base import Budget, NothingFitsError, SearchResult, Trial
from mas_sim.search.evaluator import AnySpace, Evaluator
from mas_sim.search.joint import JointSpace
from mas_sim.search.objective import OBJECTIVES, Objective
from mas_sim.search.searcher import Searcher
from mas_sim.search.space import SearchSpace
from mas_sim.simulator import simulate
from mas_sim.tiling import Tiling
from mas_sim.workload import Workload


def cramped_arch(l1_kib: float, **changes: object) -> Arch:
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


@functools.cache
def joint_space(problem: str = "grouped") -> JointSpace:
    return JointSpace(*PROBLEMS[problem], ("flash", "layer_wise", "mas"), **CHOICES["residency"])


def fits(space: AnySpace, index: int) -> bool:
    """Whether a tiling is possible and fits L1."""
    try:
        need = footprint(space.dataflow_of(index), space.arch, space.workload, space.tiling(index))
    except TilingError:
        return False
    return not need.over_bytes


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
    amounts, alike = {}, {}
    for index in legal:
        t = space.tiling(index)
        tiles = t.kv_tiles(space.workload)
        kv = [
            (resident, depth if resident or tiles > 1 else 1)
            for resident, depth in ((t.k_resident_tiles, t.k_buffers), (t.v_resident_tiles, t.v_buffers))
        ]
        ring = t.score_buffers if space.dataflow == "layer_wise" else 0
        amounts[index] = (*kv[0], *kv[1], t.q_buffers, t.o_buffers, ring)
        alike[index] = (*same_choices(t), 0 if ring else t.score_buffers)
        more.setdefault(alike[index], set()).add(amounts[index])
    kept = []
    for index in legal:
        mine = amounts[index]
        others = more[alike[index]]
        if not any(other != mine and all(o >= m for o, m in zip(other, mine, strict=True)) for other in others):
            kept.append(index)
    return kept


@functools.cache
def _measured(dataflow: str, arch: Arch, workload: Workload, tiling: Tiling) -> tuple[int, float, int, int]:
    """Cycles, pJ, DRAM and L1 bytes of a tiling, the long way: build its schedule, simulate and meter it."""
    schedule = build_schedule(dataflow, arch, workload, tiling)
    timeline = simulate(schedule)
    counts = meter(schedule, timeline)
    prices = energy_coefficients(arch, workload.dtype)
    energy_pj = float(counts @ prices.pj_per_action) + prices.leakage_pj_per_cycle * timeline.cycles
    return timeline.cycles, energy_pj, int(counts[0] + counts[1]), schedule.l1_peak_bytes


def value_of(objective: str | Objective, cycles: int, energy_pj: float) -> float:
    """Return an objective's value as its documentation states it, not by the code that searches."""
    goal = Objective.parse(objective)
    if cycles > goal.max_cycles or energy_pj > goal.max_energy_pj:
        return float("inf")
    return float(cycles) ** goal.latency_power * energy_pj**goal.energy_power


@functools.cache
def legal_of(dataflow: str, problem: str, choices: str) -> list[int]:
    """Return the legal indices of one of the spaces here."""
    return legal_indices(space_of(dataflow, problem, choices))


def trial_of(space: AnySpace, index: int, objective: str | Objective) -> Trial:
    """Evaluate one tiling the long way."""
    dataflow, tiling = space.dataflow_of(index), space.tiling(index)
    cycles, energy_pj, dram_bytes, l1_bytes = _measured(dataflow, space.arch, space.workload, tiling)
    value = value_of(objective, cycles, energy_pj)
    return Trial(index, tiling, value, cycles, energy_pj, dram_bytes, l1_bytes, dataflow)


@functools.cache
def every_trial(dataflow: str, problem: str, objective: str, choices: str = "residency") -> tuple[Trial, ...]:
    """All legal tilings of a space, the best first."""
    space = space_of(dataflow, problem, choices)
    legal = legal_of(dataflow, problem, choices)
    return tuple(sorted((trial_of(space, i, objective) for i in legal), key=lambda t: t.rank))


def facts(trial: Trial) -> dict[str, object]:
    """Return what a trial says but for its index, floats to twelve digits: sums may be added up in another order.

    The space has some schedules under two indices, and a searcher may name either.
    """
    exact = {name: getattr(trial, name) for name in ("cycles", "dram_bytes", "l1_bytes", "dataflow")}
    return exact | {name: pytest.approx(getattr(trial, name), rel=1e-12) for name in ("value", "energy_pj")}


def nothing_fits(dataflow: str, cores: int = 2) -> SearchSpace:
    """Return a space on a machine whose L1 is too small for all of it."""
    workload = PROBLEMS["ragged"][1]
    few: dict[str, Any] = {"limit": 2, "buffers": (1,), "residency": (0,), "overwrites": ("none",)}
    return SearchSpace(dataflow, cramped_arch(0.25, cores=cores), workload, **few)


class Interrupter:
    """A progress that behaves like Ctrl-C at its n-th call."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, done: int, total: int) -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


class BudgetedContract:
    """The questions to a searcher with a budget. A subclass gives the searcher, as a fixture.

    Attributes
    ----------
    few
        A budget that costs this searcher little, and no space here is covered by.
    many
        One that it is stopped within.
    draws
        How many seeds are tried where chance could hide a fault.
    """

    few = 40
    many = 200
    draws = 5

    @pytest.fixture
    def searcher(self) -> Searcher:
        raise NotImplementedError

    def assert_true(self, space: AnySpace, result: SearchResult, objective: str | Objective) -> None:
        """Check all that a result says of its history and its best, the long way."""
        history = result.history
        assert history is not None
        assert len(history.index) == len(history.value) == len(history.seconds) == result.simulated
        assert len(set(history.index.tolist())) == result.simulated, "a tiling was evaluated twice"
        assert (np.diff(history.seconds) >= 0).all()
        trials = [trial_of(space, index, objective) for index in history.index.tolist()]
        assert all(fits(space, trial.index) for trial in trials)
        assert history.value.tolist() == pytest.approx([trial.value for trial in trials], rel=1e-12)
        best = min(trials, key=lambda trial: trial.rank)
        assert (result.best.tiling, facts(result.best)) == (best.tiling, facts(best))
        assert history.best[-1] == result.best.value

    @pytest.mark.parametrize("objective", [*OBJECTIVES, "weighted", "weighted:0.8"])
    @pytest.mark.parametrize("dataflow", ["flash", "layer_wise", "mas"])
    def test_is_every_trial_legal_and_worth_what_the_long_way_says(
        self, searcher: Searcher, dataflow: str, objective: str
    ) -> None:
        space = space_of(dataflow, "grouped", "depths")
        result = searcher.search(space, objective, budget=self.few, seed=1)
        assert result.objective == (objective if objective != "weighted" else "weighted:0.5")
        assert (result.method, result.seed, result.settings) == (searcher.method, 1, repr(searcher))
        assert result.space == space.describe()
        assert (result.space_size, result.legal) == (len(space), space.legal_count)
        self.assert_true(space, result, objective)

    @pytest.mark.parametrize("budget", [1, 2, 7, 33])
    def test_does_it_keep_to_the_evaluations_exactly(self, searcher: Searcher, budget: int) -> None:
        for seed in range(self.draws):
            result = searcher.search(space_of("mas", "grouped"), budget=budget, seed=seed)
            assert (result.simulated, result.stopped) == (budget, "budget")
            assert not result.proven_optimal
            assert result.gap is None
            assert result.lower_bound is None

    def test_does_a_budget_of_all_but_one_come_to_its_end(self, searcher: Searcher) -> None:
        space = space_of("flat", "free memory", "room left")
        for seed in range(self.draws):
            result = searcher.search(space, budget=space.legal_count - 1, seed=seed)
            assert (result.simulated, result.stopped) == (space.legal_count - 1, "budget")

    @pytest.mark.parametrize("objective", OBJECTIVES)
    def test_does_it_find_and_prove_the_optimum_where_the_budget_covers_the_space(
        self, searcher: Searcher, objective: str
    ) -> None:
        space = space_of("flat", "free memory", "room left")
        for seed in range(self.draws):
            result = searcher.search(space, objective, budget=10**6, seed=seed)
            assert result.simulated == result.legal == space.legal_count
            assert facts(result.best) == facts(every_trial("flat", "free memory", objective, "room left")[0])
            assert (result.proven_optimal, result.gap, result.stopped) == (True, 0.0, "done")
            assert result.lower_bound == result.best.value

    def test_do_seconds_end_it(self, searcher: Searcher) -> None:
        result = searcher.search(space_of("mas", "grouped"), budget=Budget(seconds=1e-9))
        assert result.stopped == "seconds"
        assert 0 < result.simulated < result.legal
        self.assert_true(space_of("mas", "grouped"), result, "latency")

    def test_do_the_threads_change_nothing(self, searcher: Searcher) -> None:
        space = space_of("mas", "grouped")
        one, two, four = (searcher.search(space, "edp", budget=self.few, seed=3, workers=n) for n in (1, 2, 4))
        assert one == two == four
        for other in (two, four):
            assert one.history is not None
            assert other.history is not None
            np.testing.assert_array_equal(one.history.index, other.history.index)
            np.testing.assert_array_equal(one.history.value, other.history.value)

    def test_do_other_seeds_try_other_tilings(self, searcher: Searcher) -> None:
        results = [searcher.search(space_of("mas", "grouped"), budget=self.few, seed=seed) for seed in range(3)]
        tried = {tuple(r.history.index.tolist()) for r in results if r.history is not None}
        assert len(tried) == 3

    def test_is_the_best_so_far_returned_when_the_user_stops_it(self, searcher: Searcher) -> None:
        space = space_of("mas", "grouped")
        whole = searcher.search(space, budget=self.many, seed=2)
        result = searcher.search(space, budget=self.many, seed=2, progress=Interrupter(2))
        assert result.stopped == "interrupted"
        assert 0 < result.simulated < self.many
        assert whole.history is not None
        assert result.history is not None
        assert result.history.index.tolist() == whole.history.index[: result.simulated].tolist()
        self.assert_true(space, result, "latency")

    def test_is_a_stop_within_an_evaluation_survived(self, searcher: Searcher, monkeypatch: pytest.MonkeyPatch) -> None:
        space, values, calls = space_of("mas", "grouped"), Evaluator.values, []

        def stopping(self: Evaluator, rows: Any) -> Any:
            calls.append(len(rows))
            if len(calls) == 3:
                raise KeyboardInterrupt
            return values(self, rows)

        monkeypatch.setattr(Evaluator, "values", stopping)
        result = searcher.search(space, budget=self.many, seed=2)
        assert (result.stopped, result.simulated) == ("interrupted", sum(calls[:2]))
        self.assert_true(space, result, "latency")

    def test_does_it_say_by_how_many_bytes_nothing_fits(self, searcher: Searcher) -> None:
        space = nothing_fits("mas")
        needs = [footprint("mas", space.arch, space.workload, space.tiling(i)).over_bytes for i in range(len(space))]
        with pytest.raises(NothingFitsError, match=f"{min(needs):,} bytes") as caught:
            searcher.search(space)
        assert caught.value.over_bytes == min(needs) > 0

    def test_does_it_keep_to_limits(self, searcher: Searcher) -> None:
        """The limit lets a third of the tilings through, and the fastest of them is not the fastest of all."""
        trials = every_trial("mas", "grouped", "energy")
        limit = trials[len(trials) // 3].energy_pj
        goal = replace(Objective.parse("latency"), max_energy_pj=limit)
        result = searcher.search(space_of("mas", "grouped"), goal, budget=self.few, seed=1)
        assert result.best.energy_pj <= limit
        assert result.history is not None
        assert np.isinf(result.history.value).any()
        self.assert_true(space_of("mas", "grouped"), result, goal)

    def test_does_it_say_so_if_nothing_keeps_to_a_limit(self, searcher: Searcher) -> None:
        goal = Objective.parse("latency", {"cycles": 1})
        with pytest.raises(MasSimError, match=r"none of 20 tilings simulated keeps to the limits .*cycles <= 1"):
            searcher.search(space_of("mas", "grouped"), goal, budget=20)

    def test_does_progress_only_grow_and_end_complete(self, searcher: Searcher) -> None:
        calls: list[tuple[int, int]] = []
        searcher.search(
            space_of("mas", "grouped"), budget=self.few, progress=lambda done, total: calls.append((done, total))
        )
        settled = [done for done, _ in calls]
        assert settled == sorted(set(settled))
        assert {total for _, total in calls} == {self.few}
        assert settled[-1] == self.few

    def test_does_a_space_of_one_tiling_give_that_one(self, searcher: Searcher) -> None:
        space = SearchSpace(
            "flat", small_arch(), small_workload(n_q=1), limit=2, residency=(0,), buffers=(1,), in_place=(True,)
        )
        assert space.legal_count == 1
        result = searcher.search(space, budget=5)
        assert (result.simulated, result.proven_optimal, result.stopped) == (1, True, "done")
        assert result.best.index == space.legal[0]

    @pytest.mark.parametrize("objective", ["latency", "edp"])
    def test_does_it_search_several_dataflows_at_once(self, searcher: Searcher, objective: str) -> None:
        result = searcher.search(joint_space(), objective, budget=self.few, seed=1)
        assert result.history is not None
        tried = {joint_space().dataflow_of(index) for index in result.history.index.tolist()}
        assert len(tried) > 1
        assert result.best.dataflow in tried
        self.assert_true(joint_space(), result, objective)

    def test_is_an_unknown_objective_refused_with_the_nearest_name(self, searcher: Searcher) -> None:
        with pytest.raises(MasSimError, match="did you mean 'latency'"):
            searcher.search(space_of("flat", "ragged"), "latenci")

    @pytest.mark.parametrize(
        "budget", [0, -1, Budget(), Budget(seconds=0), Budget(seconds=float("nan")), Budget(evaluations=0, seconds=1)]
    )
    def test_is_a_budget_refused_that_begins_or_ends_nothing(self, searcher: Searcher, budget: Budget | int) -> None:
        with pytest.raises(MasSimError, match="budget"):
            searcher.search(space_of("flat", "ragged"), budget=budget)
