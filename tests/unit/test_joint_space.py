"""Is a joint space its dataflows' own spaces, one behind the other?"""

import numpy as np
import pytest
from builders import small_workload
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_spaces import spaces
from searcher_contract import CHOICES, PROBLEMS, cramped_arch, joint_space

from mas_sim.dataflows import DATAFLOWS
from mas_sim.errors import MasSimError
from mas_sim.search import make_space
from mas_sim.search.base import NothingFitsError
from mas_sim.search.joint import JointSpace
from mas_sim.search.space import SearchSpace


def test_has_every_index_the_tiling_and_dataflow_of_its_part() -> None:
    space = joint_space()
    parts = [
        (part.dataflow, part.tiling(index)) for _, part in space.parts() for index in (0, len(part) // 2, len(part) - 1)
    ]
    firsts = [(first, part) for first, part in space.parts()]
    indices = [first + index for first, part in firsts for index in (0, len(part) // 2, len(part) - 1)]
    assert [(space.dataflow_of(index), space.tiling(index)) for index in indices] == parts
    assert len(space) == sum(len(part) for _, part in space.parts())


@given(space=spaces())
@settings(derandomize=True, deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
def test_are_its_legal_tilings_those_of_its_parts(space: JointSpace | SearchSpace) -> None:
    legal = []
    for first, part in space.parts():
        try:
            legal += (part.legal + first).tolist()
        except NothingFitsError:
            continue
    assert space.legal.tolist() == legal
    assert space.legal_count == len(legal)


@given(space=spaces(), seed=st.integers(0, 10**6))
@settings(derandomize=True, deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
def test_are_choices_sorted_and_different_and_repaired_to_themselves(
    space: JointSpace | SearchSpace, seed: int
) -> None:
    choices = space.choices
    assert choices.shape[0] == space.legal_count
    listed = choices.tolist()
    assert listed == sorted(listed)
    assert len(set(map(tuple, listed))) == len(listed)
    rows = np.random.default_rng(seed).integers(0, len(listed), 20)
    np.testing.assert_array_equal(space.nearest(choices[rows].astype(np.int64)), rows)


def test_does_a_choice_of_dataflow_keep_to_it_if_it_has_any_tiling() -> None:
    space = joint_space()
    wanted = np.zeros((3, space.choices.shape[1]), np.int64)
    wanted[:, 0] = range(3)
    wanted[:, 1:] = 99
    indices = space.legal[space.nearest(wanted)]
    assert [space.dataflow_of(int(index)) for index in indices] == ["flash", "layer_wise", "mas"]


def test_is_a_dataflow_that_does_not_fit_in_it_without_a_tiling() -> None:
    """Long rows of scores: those that keep whole rows in L1 do not fit, the online ones do."""
    arch, workload = cramped_arch(4), small_workload(n_q=16, n_kv=9000)
    space = JointSpace(arch, workload, ("flat", "flash", "mas"), limit=4, residency=(0,))
    assert {space.dataflow_of(int(index)) for index in space.legal} == {"flash"}
    with pytest.raises(NothingFitsError):
        SearchSpace("flat", arch, workload, limit=4, residency=(0,)).legal  # noqa: B018


def test_does_it_say_of_each_dataflow_why_nothing_fits() -> None:
    arch = cramped_arch(0.25)
    space = JointSpace(arch, PROBLEMS["ragged"][1], ("flat", "mas"), limit=2)
    with pytest.raises(NothingFitsError) as caught:
        space.legal  # noqa: B018
    lines = str(caught.value).split("\n")
    assert [line.partition(":")[0] for line in lines] == ["flat", "mas"]
    assert caught.value.over_bytes == min(part.misfit().over_bytes for _, part in space.parts()) > 0


@pytest.mark.parametrize("names", [(), ("mas", "mas")])
def test_is_a_list_refused_that_names_none_or_one_twice(names: tuple[str, ...]) -> None:
    with pytest.raises(MasSimError, match="each dataflow must be given once"):
        JointSpace(*PROBLEMS["ragged"], names)


def test_is_an_unknown_dataflow_refused_with_the_nearest_name() -> None:
    with pytest.raises(MasSimError, match="flash"):
        JointSpace(*PROBLEMS["ragged"], ("flat", "flahs"))
    with pytest.raises(MasSimError, match="flash"):
        make_space(*PROBLEMS["ragged"], "flahs")


def test_does_all_stand_for_every_dataflow() -> None:
    space = make_space(*PROBLEMS["ragged"], "all", limit=3)
    assert [part.dataflow for _, part in space.parts()] == list(DATAFLOWS)
    assert all(part.limit == 3 for _, part in space.parts())


def test_does_it_say_once_what_its_dataflows_have_in_common() -> None:
    words = joint_space().describe()
    assert words.count("q_tile") == 1
    assert "mas: " in words
    alone = JointSpace(*PROBLEMS["grouped"], ("mas",), **CHOICES["residency"])
    assert alone.describe() == SearchSpace("mas", *PROBLEMS["grouped"], **CHOICES["residency"]).describe()
