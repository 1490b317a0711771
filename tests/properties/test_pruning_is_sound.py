"""Does pruning by bounds never prune what it must find? Against brute force, on small random spaces.

Waves are as short as they can be, so that as much as possible is pruned.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_spaces import everything, spaces

from mas_sim.dataflows import DATAFLOWS
from mas_sim.energy import energy_coefficients
from mas_sim.errors import MasSimError
from mas_sim.search import exhaustive, pareto
from mas_sim.search.base import FloatArray
from mas_sim.search.evaluator import AnySpace
from mas_sim.search.exhaustive import ExhaustiveSearch
from mas_sim.search.objective import Objective
from mas_sim.search.pareto import pareto_front

SLACK = 1e-12
GOALS = ("latency", "energy", "edp", "weighted", "weighted:0.9")


def random(examples: int) -> settings:
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture]
    return settings(derandomize=True, deadline=None, max_examples=examples, suppress_health_check=checks)


@pytest.fixture(autouse=True)
def _short_waves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exhaustive, "FIRST_WAVE", 1)
    monkeypatch.setattr(exhaustive, "WAVE", 2)
    monkeypatch.setattr(pareto, "WAVE", 2)


def draw_goal(data: st.DataObject, cycles: FloatArray, energy_pj: FloatArray) -> Objective:
    """Draw an objective; at times with limits that some tilings keep to, and that at times cut off the optimum.

    Limits of energy are a few units in the last place above a tiling's own: sums may be added up in another order.
    """
    goal = Objective.parse(data.draw(st.sampled_from(GOALS)))
    if data.draw(st.booleans(), label="limits"):
        share = st.floats(0, 1)
        goal = replace(goal, max_cycles=float(np.quantile(cycles, data.draw(share))))
        goal = replace(goal, max_energy_pj=float(np.quantile(energy_pj, data.draw(share)) * (1 + 1e-15)))
    return goal


def brute_force(goal: Objective, cycles: FloatArray, energy_pj: FloatArray) -> float:
    """Return the least value of all tilings within the limits; infinite if there is none."""
    value = cycles**goal.latency_power * energy_pj**goal.energy_power
    allowed = (cycles <= goal.max_cycles) & (energy_pj <= goal.max_energy_pj)
    return float(value[allowed].min()) if allowed.any() else float("inf")


@pytest.mark.parametrize("dataflow", [*sorted(DATAFLOWS), None])
@given(data=st.data())
@random(60)
def test_is_the_optimum_that_of_brute_force(dataflow: str | None, data: st.DataObject) -> None:
    space = data.draw(spaces(dataflow))
    cycles, energy_pj = everything(space)
    goal = draw_goal(data, cycles, energy_pj)
    least = brute_force(goal, cycles, energy_pj)
    if least == float("inf"):
        with pytest.raises(MasSimError, match="no tiling of the space keeps to the limits"):
            ExhaustiveSearch(threads=1).search(space, goal)
        return
    result = ExhaustiveSearch(threads=1).search(space, goal)
    assert result.best.value == pytest.approx(least, rel=SLACK)
    assert result.proven_optimal
    assert result.gap == 0
    assert result.legal == len(cycles) == result.simulated + result.pruned
    row = int(np.searchsorted(space.legal, result.best.index))
    assert (result.best.cycles, result.best.energy_pj) == (cycles[row], pytest.approx(energy_pj[row], rel=SLACK))
    if goal.name == "latency":  # whole numbers, so ties are exact: of all that are as fast, the thriftiest is found
        assert result.best.energy_pj == pytest.approx(energy_pj[cycles == least].min(), rel=SLACK)


@given(data=st.data())
@random(200)
def test_is_what_is_found_within_the_gap(data: st.DataObject) -> None:
    space = data.draw(spaces())
    cycles, energy_pj = everything(space)
    goal = Objective.parse(data.draw(st.sampled_from(GOALS)))
    least = brute_force(goal, cycles, energy_pj)
    allowed = data.draw(st.sampled_from([0.001, 0.02, 0.3, 2.0]))
    result = ExhaustiveSearch(threads=1, gap=allowed).search(space, goal)
    assert result.lower_bound is not None
    assert result.gap is not None
    assert least * (1 - SLACK) <= result.best.value <= least * (1 + allowed) * (1 + SLACK)
    assert result.lower_bound <= least * (1 + SLACK)
    assert result.gap == pytest.approx(result.best.value / result.lower_bound - 1)
    assert 0 <= result.gap <= allowed * (1 + SLACK) + SLACK
    assert result.simulated + result.pruned == result.legal


@given(data=st.data())
@random(200)
def test_is_no_tiling_below_its_own_bounds(data: st.DataObject) -> None:
    space = data.draw(spaces())
    cycles, energy_pj = everything(space)
    found = space.scan(energy_coefficients(space.arch, space.workload.dtype), workers=1)
    np.testing.assert_array_equal(found.index, space.legal)
    assert (found.cycles <= cycles).all()
    assert (found.energy_pj <= energy_pj * (1 + SLACK)).all()


def front_of(cycles: FloatArray, energy_pj: FloatArray) -> list[tuple[float, float]]:
    """Return the points that no other one beats, the fastest first: each compared with all others.

    Energies are told apart to eleven digits: sums of the same actions may be added up in another order.
    """
    energy_pj = np.array([float(f"{value:.11e}") for value in energy_pj])
    points = sorted(set(zip(cycles.tolist(), energy_pj.tolist(), strict=True)))
    return [
        (c, e)
        for c, e in points
        if not ((cycles <= c) & (energy_pj <= e) & ((cycles < c) | (energy_pj < e))).any()
    ]  # fmt: skip


@given(data=st.data())
@random(200)
def test_is_the_pareto_front_that_of_brute_force(data: st.DataObject) -> None:
    space: AnySpace = data.draw(spaces())
    front = pareto_front(space, threads=1)
    found = [(float(trial.cycles), float(f"{trial.energy_pj:.11e}")) for trial in front.trials]
    assert found == front_of(*everything(space))
    assert front.proven
    assert front.legal == space.legal_count
    assert len(front.trials) <= front.simulated <= front.legal
    for trial in front.trials:
        assert space.tiling(trial.index) == trial.tiling
        assert space.dataflow_of(trial.index) == trial.dataflow


def test_does_this_find_a_bound_that_is_too_high(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof of the tests: prune a tenth too early, and brute force disagrees somewhere."""
    monkeypatch.setattr(exhaustive, "ROUNDING", -0.1)
    disagreements = []

    @given(space=spaces())
    @random(60)
    def compare(space: AnySpace) -> None:
        cycles, energy_pj = everything(space)
        found = ExhaustiveSearch(threads=1).search(space).best.value
        disagreements.append(found > brute_force(Objective(), cycles, energy_pj))

    compare()
    assert any(disagreements)
