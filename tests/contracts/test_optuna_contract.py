"""Does Optuna keep the contract of every searcher, and keep quiet?"""

import builtins
import doctest
from typing import Any

import numpy as np
import optuna
import pytest
from searcher_contract import BudgetedContract, joint_space, space_of

from mas_sim.errors import MasSimError
from mas_sim.search import optuna_adapter
from mas_sim.search.evaluator import Evaluator
from mas_sim.search.optuna_adapter import OptunaSearch


class TestTpe(BudgetedContract):
    few = 25
    many = 40
    draws = 1

    @pytest.fixture
    def searcher(self) -> OptunaSearch:
        return OptunaSearch(candidates=4, patience=2)


class TestRandomSampler(BudgetedContract):
    few = 25
    many = 40
    draws = 1

    @pytest.fixture
    def searcher(self) -> OptunaSearch:
        return OptunaSearch(sampler="random", batch=5, patience=2)


def test_does_tpe_learn() -> None:
    """Medians over seeds: with its model it comes closer to the optimum than without, in as many evaluations."""

    def found(sampler: str, seed: int) -> float:
        return OptunaSearch(sampler=sampler).search(joint_space(), "edp", budget=50, seed=seed).best.value

    tpe, unaided = (np.median([found(sampler, seed) for seed in range(5)]) for sampler in ("tpe", "random"))
    assert tpe < unaided


def test_is_optuna_told_of_known_tilings_without_another_simulation() -> None:
    """More trials than evaluations, each with its tiling's value; a batch that repeats itself gives one evaluation."""
    space = space_of("mas", "grouped")
    study = OptunaSearch(startup=5, candidates=4, batch=4).begin(space, seed=0)
    with Evaluator(space, "latency") as evaluator:
        while evaluator.count < 60:
            rows = study.ask(60 - evaluator.count)
            assert len(set(rows.tolist())) == len(rows)
            study.tell(rows, evaluator.values(rows))
        trials = study._study.trials  # type: ignore[attr-defined]
        assert len(trials) > evaluator.count == 60
        assert {trial.value for trial in trials} == set(evaluator.history().value.tolist())
        assert all(trial.state.is_finished() for trial in trials)


def test_is_optuna_left_as_talkative_as_it_was(capfd: pytest.CaptureFixture[str]) -> None:
    before = optuna.logging.get_verbosity()
    OptunaSearch().search(space_of("flat", "grouped"), budget=3)
    assert optuna.logging.get_verbosity() == before
    assert capfd.readouterr() == ("", "")


def test_does_the_documented_example_of_ask_and_tell_work() -> None:
    results = doctest.testmod(optuna_adapter)
    assert results.attempted >= 7
    assert results.failed == 0


def test_does_it_say_how_to_install_optuna(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "optuna":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MasSimError, match=r"pip install 'mas_sim\[optuna\]'"):
        OptunaSearch().search(space_of("flat", "grouped"), budget=3)


def test_is_a_faulty_setting_refused() -> None:
    with pytest.raises(MasSimError, match=r"no sampler is called 'tpee' .* did you mean 'tpe'"):
        OptunaSearch(sampler="tpee")
    with pytest.raises(MasSimError, match="tpe search: candidates must be in 1"):
        OptunaSearch(candidates=0)
