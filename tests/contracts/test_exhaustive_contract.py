"""Does exhaustive search keep what it promises: the optimum, with a proof, the same each time?"""

from dataclasses import replace
from typing import Any

import pytest
from searcher_contract import (
    PROBLEMS,
    Interrupter,
    every_trial,
    facts,
    fits,
    joint_space,
    nothing_fits,
    space_of,
    trial_of,
)

from mas_sim.dataflows import DATAFLOWS, footprint
from mas_sim.errors import MasSimError
from mas_sim.search.base import NothingFitsError
from mas_sim.search.evaluator import Simulator
from mas_sim.search.exhaustive import ExhaustiveSearch
from mas_sim.search.objective import OBJECTIVES, Objective
from mas_sim.search.space import SearchSpace

# Every dataflow in two spaces, those with most choices in all.
CASES = [
    *((flow, "ragged", "residency") for flow in DATAFLOWS),
    *((flow, "grouped", "room left") for flow in DATAFLOWS),
    *((flow, problem, "residency") for flow in ("flash", "mas") for problem in ("grouped", "free memory")),
    ("mas", "ragged", "depths"),
]


@pytest.mark.parametrize("objective", [*OBJECTIVES, "weighted:0.3"])
@pytest.mark.parametrize(("dataflow", "problem", "choices"), CASES)
def test_is_the_optimum_found_and_proven_and_do_the_counts_add_up(
    dataflow: str, problem: str, choices: str, objective: str
) -> None:
    trials, space = every_trial(dataflow, problem, objective, choices), space_of(dataflow, problem, choices)
    result = ExhaustiveSearch().search(space, objective)
    assert (result.proven_optimal, result.gap, result.stopped) == (True, 0, "done")
    assert result.objective == objective
    assert space.tiling(result.best.index) == result.best.tiling
    assert fits(space, result.best.index)
    assert facts(result.best) == facts(trials[0])
    assert result.lower_bound == result.best.value
    assert result.space_size == len(space)
    # The space has some schedules under two names; they are counted once.
    assert 0 < result.legal <= len(trials)
    assert 0 < result.simulated <= result.legal
    assert result.simulated + result.pruned == result.legal
    assert result.too_long == 0


def test_does_pruning_spare_it_something() -> None:
    assert ExhaustiveSearch().search(space_of("mas", "grouped")).pruned > 0


@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_is_the_result_the_same_with_any_number_of_threads(dataflow: str) -> None:
    space = space_of(dataflow, "grouped")
    results = [replace(ExhaustiveSearch(n).search(space, "latency"), settings="") for n in (1, 1, 2, 4)]
    assert all(result == results[0] for result in results)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_is_the_best_of_several_dataflows_that_of_the_best_one(objective: str) -> None:
    result = ExhaustiveSearch().search(joint_space(), objective)
    alone = [ExhaustiveSearch().search(space, objective) for _, space in joint_space().parts()]
    best = min((single.best for single in alone), key=lambda trial: trial.rank[:-1])
    assert facts(result.best) == facts(best)
    assert result.legal == sum(single.legal for single in alone)
    assert result.proven_optimal
    assert facts(trial_of(joint_space(), result.best.index, objective)) == facts(result.best)


@pytest.mark.parametrize("gap", [0.01, 0.2, 1.0])
def test_is_what_it_finds_within_the_gap_that_it_may_leave(gap: float) -> None:
    for dataflow in ("flash", "mas"):
        optimum = every_trial(dataflow, "grouped", "edp")[0].value
        exact = ExhaustiveSearch().search(space_of(dataflow, "grouped"), "edp")
        result = ExhaustiveSearch(gap=gap).search(space_of(dataflow, "grouped"), "edp")
        assert result.gap is not None
        assert result.lower_bound is not None
        assert -1e-12 <= result.best.value / optimum - 1 <= result.gap + 1e-12
        assert result.gap <= gap + 1e-12
        assert result.lower_bound <= optimum * (1 + 1e-12)
        assert result.simulated <= exact.simulated
        assert not result.proven_optimal


@pytest.mark.parametrize("gap", [-0.1, float("nan"), float("inf")])
def test_is_a_gap_refused_that_is_none(gap: float) -> None:
    with pytest.raises(MasSimError, match="gap"):
        ExhaustiveSearch(gap=gap)


def test_is_the_best_so_far_returned_when_the_user_stops_it() -> None:
    space = space_of("layer_wise", "ragged", "room left")
    whole = ExhaustiveSearch().search(space, "latency")
    result = ExhaustiveSearch().search(space, "latency", Interrupter(1))
    assert result.stopped == "interrupted"
    assert not result.proven_optimal
    assert 0 < result.simulated < whole.simulated
    assert result.lower_bound is not None
    assert result.lower_bound <= whole.best.value <= result.best.value
    assert facts(trial_of(space, result.best.index, "latency")) == facts(result.best)


def test_is_a_stop_within_a_simulation_survived(monkeypatch: pytest.MonkeyPatch) -> None:
    results, calls = Simulator.results, []

    def stopping(self: Simulator, indices: Any) -> Any:
        calls.append(len(indices))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return results(self, indices)

    monkeypatch.setattr(Simulator, "results", stopping)
    result = ExhaustiveSearch().search(space_of("layer_wise", "ragged", "room left"), "latency")
    assert (result.stopped, result.simulated) == ("interrupted", calls[0])


def test_does_a_stop_before_anything_is_known_stay_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopping(self: Simulator, indices: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Simulator, "results", stopping)
    with pytest.raises(KeyboardInterrupt):
        ExhaustiveSearch().search(space_of("flash", "ragged"))


@pytest.mark.parametrize("dataflow", ["flash", "mas"])
def test_is_the_best_within_limits_found(dataflow: str) -> None:
    trials = every_trial(dataflow, "grouped", "energy")
    limit = trials[len(trials) // 3].energy_pj
    goal = replace(Objective.parse("latency"), max_energy_pj=limit)
    best = min((t for t in trials if t.energy_pj <= limit), key=lambda t: (t.cycles, *t.rank[1:]))
    result = ExhaustiveSearch().search(space_of(dataflow, "grouped"), goal)
    assert (result.best.cycles, result.best.energy_pj) == (best.cycles, pytest.approx(best.energy_pj, rel=1e-12))
    assert result.proven_optimal
    assert result.simulated + result.pruned == result.legal


@pytest.mark.parametrize("cycles", [1, 1.01])
def test_does_it_say_so_if_nothing_keeps_to_a_limit(cycles: float) -> None:
    """A limit below every bound; and one between the optimum's bound and the optimum, so that all must be simulated."""
    least = every_trial("mas", "grouped", "latency")[0].cycles
    limit = 1 if cycles == 1 else least - 1
    with pytest.raises(MasSimError, match="no tiling of the space keeps to the limits"):
        ExhaustiveSearch().search(space_of("mas", "grouped"), Objective.parse("latency", {"cycles": limit}))


def test_does_progress_only_grow_and_end_complete() -> None:
    calls: list[tuple[int, int]] = []
    result = ExhaustiveSearch().search(
        space_of("mas", "ragged"), progress=lambda done, total: calls.append((done, total))
    )
    settled = [done for done, _ in calls]
    assert settled == sorted(settled)
    assert {total for _, total in calls} == {result.legal}
    assert settled[-1] == result.legal


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_does_it_say_by_how_many_bytes_nothing_fits(dataflow: str, cores: int) -> None:
    space = nothing_fits(dataflow, cores)
    needs = [footprint(dataflow, space.arch, space.workload, space.tiling(i)).over_bytes for i in range(len(space))]
    with pytest.raises(NothingFitsError, match=f"{min(needs):,} bytes") as caught:
        ExhaustiveSearch().search(space)
    assert caught.value.over_bytes == min(needs) > 0


def test_is_an_unknown_objective_refused_with_the_nearest_name() -> None:
    with pytest.raises(MasSimError, match="did you mean 'latency'"):
        ExhaustiveSearch().search(SearchSpace("flat", *PROBLEMS["ragged"]), "latenci")
