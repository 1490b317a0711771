"""Does a history tell how a search came to its best?"""

import numpy as np
import pytest
from searcher_contract import space_of

from mas_sim.search.base import Budget, History
from mas_sim.search.random_search import RandomSearch


def history(*values: float) -> History:
    return History(np.arange(len(values)) * 10, np.array(values), np.arange(len(values)) / 2)


def test_is_the_best_so_far_never_rising() -> None:
    assert history(5, 7, 3, 3, 4, 1).best.tolist() == [5, 5, 3, 3, 3, 1]
    assert history(np.inf, 2, np.inf).best.tolist() == [np.inf, 2, 2]
    assert history().best.tolist() == []


@pytest.mark.parametrize(("value", "expected"), [(9, 1), (5, 1), (4.9, 3), (3, 3), (1, 6), (0.5, None)])
def test_is_the_number_of_evaluations_to_a_value_that_of_the_first_to_reach_it(
    value: float, expected: int | None
) -> None:
    assert history(5, 7, 3, 3, 4, 1).evaluations_to(value) == expected
    assert history().evaluations_to(value) is None


def test_has_the_table_a_row_for_every_evaluation() -> None:
    frame = history(5, 7, 3).to_frame()
    assert frame.columns.tolist() == ["evaluation", "index", "value", "best", "seconds"]
    assert frame.to_numpy().tolist() == [[1, 0, 5, 5, 0], [2, 10, 7, 5, 0.5], [3, 20, 3, 3, 1]]


def test_is_the_history_of_a_search_in_the_order_of_its_evaluations() -> None:
    space, seen = space_of("flat", "grouped"), []
    result = RandomSearch(batch=5).search(space, budget=12, seed=4, progress=lambda done, total: seen.append(done))
    assert seen == [5, 10, 12]
    assert result.history is not None
    study = RandomSearch(batch=12).begin(space, 4)
    assert result.history.index.tolist() == space.legal[study.ask(12)].tolist()
    assert result.history.seconds[-1] <= result.seconds
    assert 0 < result.simulation_seconds <= result.seconds


def test_is_a_budget_of_both_ended_by_the_first() -> None:
    space = space_of("flat", "grouped")
    result = RandomSearch(batch=4).search(space, budget=Budget(evaluations=6, seconds=3600))
    assert (result.simulated, result.stopped) == (6, "budget")
    result = RandomSearch(batch=4).search(space, budget=Budget(evaluations=6, seconds=1e-9))
    assert (result.simulated, result.stopped) == (4, "seconds")
