"""Is a Pareto front what nothing else beats, and does it say when it is not the whole?"""

from dataclasses import replace
from typing import Any

import pytest
from builders import small_arch, small_workload
from searcher_contract import Interrupter, every_trial, facts, joint_space, nothing_fits, space_of, trial_of

from mas_sim.search import pareto
from mas_sim.search.base import NothingFitsError, Trial
from mas_sim.search.evaluator import Simulator
from mas_sim.search.exhaustive import ExhaustiveSearch
from mas_sim.search.pareto import pareto_front
from mas_sim.search.space import SearchSpace


def beats(one: Trial, other: Trial) -> bool:
    no_worse = one.cycles <= other.cycles and one.energy_pj <= other.energy_pj * (1 - 1e-12)
    return no_worse or (one.cycles < other.cycles and one.energy_pj <= other.energy_pj)


@pytest.mark.parametrize("case", [("mas", "ragged", "depths"), ("flash", "grouped"), ("layer_wise", "ragged")])
def test_is_the_front_what_no_tiling_beats_the_long_way(case: tuple[str, ...]) -> None:
    trials = every_trial(case[0], case[1], "latency", *case[2:])
    front = pareto_front(space_of(*case)).trials
    for on in front:
        assert not any(beats(trial, on) for trial in trials)
        assert facts(trial_of(space_of(*case), on.index, "latency")) == facts(replace(on, value=on.cycles))
    for trial in trials:
        assert any(on.cycles <= trial.cycles and on.energy_pj <= trial.energy_pj * (1 + 1e-12) for on in front)


def test_does_it_go_from_the_fastest_tiling_to_the_thriftiest() -> None:
    space = space_of("fusemax", "free memory")
    front = pareto_front(space)
    assert front.proven
    assert front.space == space.describe()
    assert len(front.trials) > 2
    cycles, energies = ([getattr(t, name) for t in front.trials] for name in ("cycles", "energy_pj"))
    assert cycles == sorted(set(cycles))
    assert energies == sorted(set(energies), reverse=True)
    assert cycles[0] == ExhaustiveSearch().search(space, "latency").best.cycles
    assert energies[-1] == pytest.approx(ExhaustiveSearch().search(space, "energy").best.energy_pj, rel=1e-12)
    for objective in ("edp", "weighted:0.3"):  # the best of every objective that rises with both is on the front
        best = ExhaustiveSearch().search(space, objective).best
        assert (best.cycles, pytest.approx(best.energy_pj, rel=1e-12)) in list(zip(cycles, energies, strict=True))


def test_is_it_the_same_with_any_number_of_threads() -> None:
    one, two, four = (pareto_front(joint_space(), threads=n) for n in (1, 2, 4))
    assert one == two == four


def test_does_the_energy_level_move_it() -> None:
    low, high = (pareto_front(joint_space(), energy_level=level).trials for level in ("low", "high"))  # type: ignore[arg-type]
    assert low[0].cycles == high[0].cycles
    assert low[-1].energy_pj < high[-1].energy_pj


def test_is_it_not_called_proven_when_the_user_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pareto, "WAVE", 8)
    whole = pareto_front(joint_space("ragged"))
    front = pareto_front(joint_space("ragged"), progress=Interrupter(1))
    assert not front.proven
    assert front.simulated == 8 < whole.simulated
    assert front.trials


def test_does_a_stop_before_anything_is_known_stay_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopping(self: Simulator, indices: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Simulator, "results", stopping)
    with pytest.raises(KeyboardInterrupt):
        pareto_front(joint_space())


def test_does_progress_only_grow() -> None:
    calls: list[tuple[int, int]] = []
    front = pareto_front(joint_space(), progress=lambda done, total: calls.append((done, total)))
    settled = [done for done, _ in calls]
    assert settled == sorted(settled)
    assert {total for _, total in calls} == {front.legal}
    assert settled[-1] <= front.legal


def test_is_the_front_of_one_tiling_that_one() -> None:
    space = SearchSpace(
        "flat", small_arch(), small_workload(n_q=1), limit=2, residency=(0,), buffers=(1,), in_place=(True,)
    )
    front = pareto_front(space)
    assert [trial.index for trial in front.trials] == space.legal.tolist()
    assert (front.proven, front.simulated) == (True, 1)


def test_does_it_say_so_if_nothing_fits() -> None:
    with pytest.raises(NothingFitsError, match="does not fit L1, by"):
        pareto_front(nothing_fits("mas"))
