"""Do the searchers with a budget keep the contract?"""

import pytest
from searcher_contract import BudgetedContract

from mas_sim.errors import MasSimError
from mas_sim.search.genetic import GeneticSearch
from mas_sim.search.mcts import MctsSearch
from mas_sim.search.random_search import RandomSearch


class TestMctsSearch(BudgetedContract):
    @pytest.fixture
    def searcher(self) -> MctsSearch:
        return MctsSearch()


class TestMctsSearchOfOneAtATimeAndLateExpansion(BudgetedContract):
    @pytest.fixture
    def searcher(self) -> MctsSearch:
        return MctsSearch(exploration=0.5, best_weight=0, greedy_rollouts=0, expand_after=5, batch=1)


class TestGeneticSearch(BudgetedContract):
    few = 120

    @pytest.fixture
    def searcher(self) -> GeneticSearch:
        return GeneticSearch()


class TestGeneticSearchOfAFew(BudgetedContract):
    @pytest.fixture
    def searcher(self) -> GeneticSearch:
        return GeneticSearch(population=6, tournament=2, elite=9, crossover=0.2, mutation=0.3, step=1, jump=0)


class TestRandomSearch(BudgetedContract):
    few = 120

    @pytest.fixture
    def searcher(self) -> RandomSearch:
        return RandomSearch()


def test_are_all_settings_refused_at_once_that_make_no_sense() -> None:
    with pytest.raises(MasSimError) as caught:
        GeneticSearch(population=0, crossover=1.5, jump=-0.1, step=2)
    message = str(caught.value)
    assert message.startswith("genetic search: population must be in 1..1e+06 (got 0)")
    assert "crossover must be in 0..1 (got 1.5)" in message
    assert "jump must be in 0..1 (got -0.1)" in message
    assert "step" not in message
    with pytest.raises(MasSimError, match="mcts search: best_weight"):
        MctsSearch(best_weight=float("nan"))
    with pytest.raises(MasSimError, match="random search: batch"):
        RandomSearch(batch=0)
