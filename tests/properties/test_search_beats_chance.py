"""Are MCTS and genetic search better than drawing at random? Against brute force, on spaces of some thousand tilings.

Medians over ten seeds, at a budget of a few per cent of the space.
"""

import functools

import numpy as np
import pytest
from builders import edge
from random_spaces import everything

from mas_sim.search import make_space
from mas_sim.search.evaluator import AnySpace
from mas_sim.search.genetic import GeneticSearch
from mas_sim.search.mcts import MctsSearch
from mas_sim.search.random_search import RandomSearch
from mas_sim.search.searcher import Searcher
from mas_sim.workload import load_workload

SEEDS, BUDGET = 10, 300
SEARCHERS: dict[str, Searcher] = {
    "mcts": MctsSearch(),
    "genetic": GeneticSearch(population=24),
    "random": RandomSearch(),
}


@functools.cache
def space_of(dataflow: str) -> AnySpace:
    """ViT-B on a machine with so little L1 that much of it is a matter of tiling."""
    arch = edge().with_(**{"l1.capacity_kib": 384})
    return make_space(arch, load_workload("vit_b_16"), dataflow, limit=8 if dataflow != "all" else 4)


@functools.cache
def optimum(dataflow: str) -> float:
    """The least cycles of all tilings: none is left out."""
    return float(everything(space_of(dataflow))[0].min())


@functools.cache
def gaps(method: str, dataflow: str) -> tuple[float, ...]:
    space, least = space_of(dataflow), optimum(dataflow)
    found = [SEARCHERS[method].search(space, budget=BUDGET, seed=seed).best.value for seed in range(SEEDS)]
    return tuple(value / least - 1 for value in found)


@pytest.mark.parametrize("dataflow", ["flash", "mas"])
@pytest.mark.parametrize("method", ["mcts", "genetic"])
def test_does_a_method_come_within_one_per_cent_where_chance_is_worse(method: str, dataflow: str) -> None:
    assert space_of(dataflow).legal_count > 10 * BUDGET
    assert all(gap >= 0 for gap in gaps(method, dataflow))
    assert np.median(gaps(method, dataflow)) < 0.01
    assert np.median(gaps(method, dataflow)) < np.median(gaps("random", dataflow))


@pytest.mark.parametrize("method", ["mcts", "genetic"])
def test_is_no_dataflow_overlooked_in_a_joint_space(method: str) -> None:
    """The first dataflow of the space is several times slower than the best: a method that stays there is found out."""
    assert np.median(gaps(method, "all")) < np.median(gaps("random", "all"))


def test_is_chance_not_good_enough_for_these_questions_to_be_easy() -> None:
    assert np.median(gaps("random", "mas")) > 0.01
