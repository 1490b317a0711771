"""Is a space what it says: its legal tilings all and only those, each with an index, choices, neighbours?"""

from typing import Any

import numpy as np
import pytest
from builders import small_arch, small_workload
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_spaces import spaces
from searcher_contract import PROBLEMS, fits, space_of, trial_of

from mas_sim.dataflows import DATAFLOWS
from mas_sim.errors import MasSimError, TilingError
from mas_sim.schedule import IntArray
from mas_sim.search.base import NothingFitsError
from mas_sim.search.candidates import thin, tile_candidates
from mas_sim.search.space import LEVELS, SearchSpace
from mas_sim.tiling import Tiling


def random(examples: int) -> settings:
    return settings(derandomize=True, deadline=None, max_examples=examples, suppress_health_check=list(HealthCheck))


@given(data=st.data())
@random(15)
def test_are_exactly_the_tilings_that_fit_legal_but_for_second_names(data: st.DataObject) -> None:
    """What is legal fits; what fits and is not listed takes what one that is takes, and no fewer bytes of L1."""
    small: dict[str, Any] = {"limit": 2, "residency": (0, 8), "use_all_l1": False}
    drawn = data.draw(spaces(joint=False))
    assert isinstance(drawn, SearchSpace)
    buffers = data.draw(st.sampled_from([(1,), (2,)]))
    space = SearchSpace(drawn.dataflow, drawn.arch, drawn.workload, buffers=buffers, **small)
    fitting = [index for index in range(len(space)) if fits(space, index)]
    if not fitting:
        with pytest.raises(NothingFitsError):
            space.legal  # noqa: B018
        return
    legal = space.legal.tolist()
    assert set(legal) <= set(fitting)
    others = [index for index in fitting if index not in set(legal)][:12]
    if others:
        listed = [trial_of(space, index, "latency") for index in legal]
        for other in (trial_of(space, index, "latency") for index in others):
            same = [t for t in listed if (t.cycles, t.dram_bytes) == (other.cycles, other.dram_bytes)]
            assert any(t.energy_pj == other.energy_pj and t.l1_bytes <= other.l1_bytes for t in same)


@given(space=spaces(joint=False), seed=st.integers(0, 10**6))
@random(60)
def test_does_encoding_a_tiling_give_its_index(space: SearchSpace, seed: int) -> None:
    """Or another one of the very same tiling: few tiles make two shares of residency the same."""
    for index in np.random.default_rng(seed).choice(space.legal, 5).tolist():
        again = space.encode(space.tiling(index))
        assert again in space.legal
        assert again <= index
        assert space.tiling(again) == space.tiling(index)


def test_is_a_tiling_refused_that_the_space_has_not() -> None:
    space = space_of("mas", "ragged")
    tiling = space.tiling(int(space.legal[0]))
    with pytest.raises(TilingError, match="this tiling is not in the space of mas"):
        space.encode(Tiling(**{**tiling.as_dict(), "q_tile": 5}))
    with pytest.raises(TilingError):
        space.encode(Tiling(**{**tiling.as_dict(), "q_tile": 0}))


@given(space=spaces(joint=False), seed=st.integers(0, 10**6))
@random(40)
def test_do_neighbours_differ_in_one_choice_by_the_next_value_either_way(space: SearchSpace, seed: int) -> None:
    """All else equal, so that each is its neighbours' neighbour. Against a look at every other row."""
    choices = space.choices.astype(int)
    for row in np.random.default_rng(seed).integers(0, len(choices), 3).tolist():
        expected = set()
        for level in range(len(LEVELS)):
            rest = np.delete(choices, level, axis=1)
            alike = np.flatnonzero((rest == rest[row]).all(axis=1))
            above = [r for r in alike.tolist() if choices[r, level] > choices[row, level]]
            below = [r for r in alike.tolist() if choices[r, level] < choices[row, level]]
            expected |= set(above[:1]) | set(below[-1:])  # rows of one level only are sorted by it
        neighbours = space.neighbours(row).tolist()
        assert neighbours == sorted(expected)
        assert all(row in space.neighbours(other) for other in neighbours[:4])


def test_has_a_tiling_with_choices_neighbours() -> None:
    assert len(space_of("mas", "ragged").neighbours(0)) > 2


def slow_nearest(choices: IntArray, wanted: IntArray) -> int:
    """Return the row that repair must give: level by level, the nearest value left; of two the lower."""
    rows = np.arange(len(choices))
    for level in range(choices.shape[1]):
        values = choices[rows, level].astype(int)
        best = min(set(values.tolist()), key=lambda value: (abs(value - int(wanted[level])), value))
        rows = rows[values == best]
    assert len(rows) == 1
    return int(rows[0])


@given(space=spaces(), seed=st.integers(0, 10**6))
@random(60)
def test_is_a_repaired_choice_the_nearest_level_by_level(space: SearchSpace, seed: int) -> None:
    rng = np.random.default_rng(seed)
    wanted = rng.integers(-1, space.choices.max() + 3, (10, space.choices.shape[1]))
    assert space.nearest(wanted).tolist() == [slow_nearest(space.choices, row) for row in wanted]


def test_are_draws_legal_different_and_all_equally_likely() -> None:
    space, rng = space_of("flat", "free memory"), np.random.default_rng(5)
    count = space.legal_count
    draws = np.concatenate([space.draw(rng) for _ in range(200 * count)])
    often = np.bincount(draws, minlength=count)
    assert len(often) == count
    # Pearson's statistic of a fair draw has mean count - 1 and variance 2 (count - 1).
    statistic = float(((often - 200) ** 2 / 200).sum())
    assert abs(statistic - (count - 1)) < 4 * (2 * (count - 1)) ** 0.5
    some = space.draw(rng, count // 2)
    assert len(set(some.tolist())) == count // 2
    assert sorted(space.draw(rng, 10 * count).tolist()) == list(range(count))


@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_are_packed_tilings_those_that_indices_stand_for(dataflow: str) -> None:
    space = space_of(dataflow, "ragged")
    indices = space.legal[:: max(1, space.legal_count // 20)]
    for index, packed in zip(indices.tolist(), space.packed(indices), strict=True):
        np.testing.assert_array_equal(space.tiling(index).pack(), packed)


def test_are_candidates_multiples_of_the_side_and_the_dimension() -> None:
    assert tile_candidates(50, 16) == [16, 32, 48, 50]
    assert tile_candidates(48, 16) == [16, 32, 48]
    assert tile_candidates(5, 16) == [5]
    assert tile_candidates(50, 16, small=True) == [1, 2, 4, 8, 16, 32, 48, 50]
    assert tile_candidates(5, 16, small=True) == [1, 2, 4, 5]


@given(st.integers(1, 5000), st.integers(2, 64))
@random(200)
def test_does_thinning_keep_the_ends_and_about_as_many_as_wanted(count: int, limit: int) -> None:
    values = list(range(7, 7 + count))
    thinned = thin(values, limit)
    assert thinned == sorted(set(thinned))
    assert set(thinned) <= set(values)
    assert (thinned[0], thinned[-1]) == (values[0], values[-1])
    assert min(count, limit) / 2 <= len(thinned) <= limit


@pytest.mark.parametrize("granularity", ["M", "B", "H", "R"])
def test_has_a_space_of_one_granularity_only_that(granularity: str) -> None:
    space = SearchSpace("flat", small_arch(), PROBLEMS["grouped"][1], limit=3, granularity=granularity)
    names = {space.tiling(int(index)).granularity(space.workload) for index in space.legal}
    assert names == {granularity}


def test_are_schedules_counted_that_are_too_long() -> None:
    workload = small_workload(heads=64, n_q=8192, n_kv=8192)
    space = SearchSpace("flash", small_arch(), workload, limit=2, residency=(0,), buffers=(1,))
    assert space.too_long > 0
    assert len(space.legal) + space.too_long <= len(space)


def test_are_all_choices_refused_at_once_that_make_no_space() -> None:
    with pytest.raises(MasSimError) as caught:
        SearchSpace(
            "mas", *PROBLEMS["ragged"], limit=1, residency=(0, 9), buffers=(2, 1), in_place=(), granularity="X",
            overwrites=("v", "v"), exp_on=("vec", "dsp"),
        )  # fmt: skip
    message = str(caught.value)
    for part in (
        "a search space of mas: ", "limit must be at least 2 (got 1)", "residency must be some of 0, 1,",
        "buffers must rise (got (2, 1))", "in_place must be some of True, False, each once (got ())",
        "granularity must be one of M, B, H, R (got 'X')", "overwrites must be some of none, v, k, each once",
        "exp_on must be some of vec, mac, each once",
    ):  # fmt: skip
        assert part in message
    with pytest.raises(MasSimError, match="flat"):
        SearchSpace("flatt", *PROBLEMS["ragged"])


def test_does_it_say_so_if_a_dataflow_has_none_of_the_choices() -> None:
    """`flash` has one way to place P only."""
    other = tuple(place for place in (True, False) if place not in DATAFLOWS["flash"].in_place)
    assert other
    with pytest.raises(NothingFitsError, match="the dataflow has none of the choices given"):
        SearchSpace("flash", *PROBLEMS["ragged"], in_place=other).legal  # noqa: B018


def test_does_a_space_state_what_it_is() -> None:
    words = space_of("mas", "ragged").describe()
    for part in (
        "q_tile", "40", "resident share of K and of V 0/0.5/1", "buffers of Q, K, V, O 2", "score buffers 2/3",
        "overwrite none/v/k", "leave no room in L1", "core split", "instructions",
    ):  # fmt: skip
        assert part in words
