"""Does FLAT's granularity say what is fused at once, and does a search space keep to it?"""

import pytest
from builders import small_arch, small_workload

from mas_sim.dataflows import build_schedule, footprint
from mas_sim.energy import METER_COLUMNS
from mas_sim.search import SearchSpace
from mas_sim.tiling import GRANULARITIES, Tiling

WORKLOAD = small_workload(batch=2, heads=2, n_q=32, n_kv=32)
"""Q, K, V and O are 2 * 2 * 32 * 16 = 2,048 bytes each."""

TILINGS = {
    "M": Tiling(batch_tile=2, head_tile=2, q_tile=32),
    "B": Tiling(batch_tile=1, head_tile=2, q_tile=32),
    "H": Tiling(batch_tile=1, head_tile=1, q_tile=32),
    "R": Tiling(batch_tile=1, head_tile=1, q_tile=16),
}


@pytest.mark.parametrize("letter", GRANULARITIES)
def test_does_each_letter_name_its_tiling(letter: str) -> None:
    assert TILINGS[letter].granularity(WORKLOAD) == letter


@pytest.mark.parametrize(
    ("batch_tile", "head_tile", "q_tile", "letter"),
    [(2, 2, 31, "R"), (2, 1, 32, "H"), (1, 2, 33, "B"), (3, 3, 40, "M"), (2, 1, 16, "R")],
)
def test_is_the_finest_cut_what_counts(batch_tile: int, head_tile: int, q_tile: int, letter: str) -> None:
    assert Tiling(batch_tile=batch_tile, head_tile=head_tile, q_tile=q_tile).granularity(WORKLOAD) == letter


@pytest.mark.parametrize("letter", GRANULARITIES)
def test_has_a_space_of_a_granularity_only_such_tilings(letter: str) -> None:
    space = SearchSpace("flat", small_arch(), WORKLOAD, granularity=letter)
    assert len(space) > 0
    assert {space.tiling(index).granularity(WORKLOAD) for index in range(len(space))} == {letter}


@pytest.mark.parametrize("letter", GRANULARITIES)
def test_is_there_a_tiling_of_every_granularity_where_nothing_can_be_cut(letter: str) -> None:
    # One batch of one head: multi-batch, batch and head granularity are the same.
    one = small_workload(n_q=1)
    assert len(SearchSpace("flat", small_arch(), one, granularity=letter)) > 0


def test_do_the_four_spaces_share_the_whole_one_out() -> None:
    def tilings(letter: str | None) -> set[Tiling]:
        space = SearchSpace("flat", small_arch(), WORKLOAD, granularity=letter, buffers=(1,), residency=(0, 8))
        return {space.tiling(index) for index in range(len(space))}

    parts = [tilings(letter) for letter in GRANULARITIES]
    assert set().union(*parts) == tilings(None)
    assert sum(map(len, parts)) == len(tilings(None))


@pytest.mark.parametrize(
    ("letter", "dram_bytes"),
    [
        ("M", 4 * 2048),  # all of it once
        ("B", 4 * 2048),
        ("H", 4 * 2048),
        ("R", 6 * 2048),  # two row blocks: K and V pass by twice
    ],
)
def test_how_many_bytes_does_flat_move_if_k_and_v_are_streamed(letter: str, dram_bytes: int) -> None:
    schedule = build_schedule("flat", small_arch(), WORKLOAD, TILINGS[letter])
    counts = dict(zip(METER_COLUMNS, schedule.meter_counts().tolist(), strict=True))
    assert counts["dram_read_bytes"] + counts["dram_write_bytes"] == dram_bytes


def test_does_a_finer_granularity_need_less_of_l1() -> None:
    sizes = [footprint("flat", small_arch(), WORKLOAD, TILINGS[letter]).total_bytes for letter in GRANULARITIES]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 4
