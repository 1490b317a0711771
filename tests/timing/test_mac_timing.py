"""Whether the cycles of the MAC array agree with SCALE-Sim, and with what an array of multiply-accumulators must do."""

import csv
from pathlib import Path
from typing import TypedDict, Unpack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mas_sim.costs import STATIONARIES, TIMINGS, ceil_div, mac_array_cycles

GOLDEN = Path(__file__).parents[1] / "golden" / "scalesim_gemm.csv"
GOLDEN_COLUMN = {"output": "os_cycles", "weight": "ws_cycles", "input": "is_cycles"}


def golden_rows() -> list[dict[str, int]]:
    """Read SCALE-Sim's figures."""
    with GOLDEN.open() as file:
        lines = csv.DictReader(line for line in file if not line.startswith("#"))
        return [{name: int(value) for name, value in row.items()} for row in lines]


class Sides(TypedDict, total=False):
    """How many products, and the sides of the array."""

    count: int
    rows: int
    cols: int
    depth: int


def array_cycles(
    m: int, k: int, n: int, timing: str = "ideal", stationary: str = "output", **changes: Unpack[Sides]
) -> int:
    """Call `mac_array_cycles` by names, for one product on an array of 16 x 16 x 1 except for `changes`."""
    sides = Sides(count=1, rows=16, cols=16, depth=1) | changes
    codes = TIMINGS.index(timing), STATIONARIES.index(stationary)
    return int(mac_array_cycles(m, k, n, sides["count"], sides["rows"], sides["cols"], sides["depth"], *codes))


# --- Does it agree with SCALE-Sim? ---


def test_are_all_of_scalesims_figures_here() -> None:
    assert len(golden_rows()) == 15


@pytest.mark.parametrize("stationary", STATIONARIES)
@pytest.mark.parametrize("row", golden_rows(), ids=lambda row: "{rows}x{cols} m{m} n{n} k{k}".format(**row))
def test_does_a_systolic_array_take_as_many_cycles_as_in_scalesim(row: dict[str, int], stationary: str) -> None:
    cycles = array_cycles(
        *(row["m"], row["k"], row["n"]),
        rows=row["rows"],
        cols=row["cols"],
        timing="systolic",
        stationary=stationary,
    )
    assert cycles == row[GOLDEN_COLUMN[stationary]] + 1  # it reports the last cycle's index


@pytest.mark.parametrize(("rows", "cols", "k"), [(1, 1, 1), (4, 4, 1), (4, 7, 10), (3, 2, 30)])
def test_is_a_fold_over_when_the_wavefront_leaves_the_last_position(rows: int, cols: int, k: int) -> None:
    # Output-stationary: operands move one position a cycle, so position (r, c) works on element e in cycle r + c + e.
    last = max(r + c + e for r in range(rows) for c in range(cols) for e in range(k))
    assert array_cycles(rows, k, cols, rows=rows, cols=cols, timing="systolic") == last + 1


# --- Do the other timings mean what they say? ---


@pytest.mark.parametrize(
    ("shape", "count", "depth", "ideal"),
    [
        ((16, 16, 16), 1, 1, 16),  # one fold of 16 steps
        ((16, 64, 16), 1, 1, 64),
        ((17, 16, 16), 1, 1, 32),  # one row too many is a fold more
        ((33, 50, 40), 1, 1, 3 * 3 * 50),
        ((33, 50, 40), 1, 16, 3 * 3 * 4),  # ceil(50 / 16) = 4
        ((33, 50, 40), 5, 16, 5 * 3 * 3 * 4),
        ((16, 16, 16), 1, 64, 1),  # a cube deeper than the product
        ((1, 1, 1), 1, 1, 1),
    ],
)
def test_are_ideal_and_pipelined_cycles_as_worked_out(
    shape: tuple[int, int, int], count: int, depth: int, ideal: int
) -> None:
    assert array_cycles(*shape, count=count, depth=depth) == ideal
    # Fill and drain, 16 + 16 - 2 cycles, once an instruction, however many products it is.
    assert array_cycles(*shape, count=count, depth=depth, timing="pipelined") == ideal + 30


def test_is_fill_and_drain_the_sum_of_the_sides_less_two_on_an_oblong_array() -> None:
    # ceil(20 / 8) * ceil(40 / 32) * 10 = 60, and 8 + 32 - 2 = 38.
    assert array_cycles(20, 10, 40, rows=8, cols=32, timing="pipelined") == 60 + 38


SIZES = st.integers(1, 100)
SIDES = st.integers(1, 20)


@given(m=SIZES, k=SIZES, n=SIZES, count=st.integers(1, 4), rows=SIDES, cols=SIDES, depth=SIDES)
@settings(derandomize=True, deadline=None, max_examples=200)
def test_does_every_timing_obey_its_identities(
    m: int, k: int, n: int, count: int, rows: int, cols: int, depth: int
) -> None:
    sides = Sides(count=count, rows=rows, cols=cols, depth=depth)
    ideal = array_cycles(m, k, n, **sides)
    pipelined = array_cycles(m, k, n, timing="pipelined", **sides)
    assert pipelined == ideal + rows + cols - 2
    # No array does more than rows * cols * depth products a cycle; it does so if the shape is a multiple of its sides.
    assert ideal * rows * cols * depth >= count * m * k * n
    assert array_cycles(m * rows, k * depth, n * cols, **sides) == count * m * k * n
    # Filling once a fold costs at least as much as once an instruction, and the same if there is one fold.
    systolic = array_cycles(m, k, n, timing="systolic", **sides)
    folds = count * ceil_div(m, rows) * ceil_div(n, cols)
    assert systolic == ideal + folds * (rows + cols - 2)


@given(m=SIZES, k=SIZES, n=SIZES, count=st.integers(1, 4), rows=SIDES, cols=SIDES, depth=SIDES)
@settings(derandomize=True, deadline=None, max_examples=100)
def test_does_a_deeper_array_take_its_k_in_slices(
    m: int, k: int, n: int, count: int, rows: int, cols: int, depth: int
) -> None:
    for timing in TIMINGS:
        for stationary in STATIONARIES:
            flat = Sides(count=count, rows=rows, cols=cols, depth=1)
            deep = Sides(count=count, rows=rows, cols=cols, depth=depth)
            slices = array_cycles(m, ceil_div(k, depth), n, timing, stationary, **flat)
            assert array_cycles(m, k, n, timing, stationary, **deep) == slices


@pytest.mark.parametrize("stationary", STATIONARIES)
def test_are_several_products_folds_one_after_another_in_a_systolic_array(stationary: str) -> None:
    one = array_cycles(33, 50, 40, timing="systolic", stationary=stationary)
    assert array_cycles(33, 50, 40, count=7, timing="systolic", stationary=stationary) == 7 * one
