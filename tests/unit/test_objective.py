"""Is an objective what its name and its limits say, and is everything else refused?"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mas_sim.errors import MasSimError
from mas_sim.search.objective import Objective, objective_value

CYCLES, ENERGY = np.array([100.0, 400.0, 900.0]), np.array([9.0, 4.0, 1.0])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("latency", [100, 400, 900]),
        ("energy", [9, 4, 1]),
        ("edp", [900, 1600, 900]),
        ("weighted", [30, 40, 30]),  # square roots of the products
        ("weighted:0.5", [30, 40, 30]),
        ("weighted:1", [100, 400, 900]),
        ("weighted:0", [9, 4, 1]),
        ("weighted:.25", [100**0.25 * 9**0.75, 400**0.25 * 4**0.75, 900**0.25]),
    ],
)
def test_is_the_value_what_its_name_says(text: str, expected: list[float]) -> None:
    assert Objective.parse(text).values(CYCLES, ENERGY).tolist() == pytest.approx(expected)
    assert objective_value(text, CYCLES, ENERGY).tolist() == pytest.approx(expected)


def test_are_the_arguments_left_alone() -> None:
    goal = Objective.parse("latency", {"cycles": 500})
    assert goal.values(CYCLES, ENERGY).tolist() == [100, 400, np.inf]
    assert CYCLES.tolist() == [100, 400, 900]
    assert Objective.parse("energy", {"cycles": 500}).values(CYCLES, ENERGY).tolist() == [9, 4, np.inf]
    assert ENERGY.tolist() == [9, 4, 1]


def test_does_a_tiling_count_that_just_keeps_to_a_limit() -> None:
    goal = Objective.parse("edp", {"cycles": 400, "energy_uj": 4e-6})  # 4 pJ
    assert goal.values(CYCLES, ENERGY).tolist() == [np.inf, 1600, np.inf]
    assert goal.constrained
    assert not Objective.parse("edp").constrained


def test_does_an_objective_say_itself_with_its_limits() -> None:
    assert Objective.parse("weighted").describe() == "weighted:0.5"
    assert Objective.parse("edp", {"cycles": 1e6}).describe() == "edp, cycles <= 1,000,000"
    assert Objective.parse("latency", {"energy_uj": 12.5}).describe() == "latency, energy <= 12.5 uJ"


def test_is_an_objective_parsed_already_left_as_it_is() -> None:
    goal = Objective.parse("edp", {"cycles": 10})
    assert Objective.parse(goal) is goal


@pytest.mark.parametrize(
    ("text", "limits", "message"),
    [
        ("latenci", {}, "no objective is called 'latenci' .*did you mean 'latency'"),
        ("weigthed", {}, "did you mean 'weighted'"),
        ("weighted:1.5", {}, r"the weight of latency in 'weighted:1.5' must be in 0\.\.1"),
        ("weighted:-1", {}, "no objective is called 'weighted:-1'"),
        ("weighted:", {}, "no objective"),
        ("weighted:x", {}, "no objective"),
        ("", {}, "no objective is called ''"),
        ("edp", {"cycle": 5}, "no limit is called 'cycle' .*did you mean 'cycles'"),
        ("edp", {"cycles": 0}, "the limit of cycles must be a positive number"),
        ("edp", {"energy_uj": float("nan")}, "the limit of energy_uj must be a positive number"),
        ("edp", {"energy_uj": float("inf")}, "the limit of energy_uj must be a positive number"),
    ],
)
def test_is_what_makes_no_sense_refused(text: str, limits: dict[str, float], message: str) -> None:
    with pytest.raises(MasSimError, match=message):
        Objective.parse(text, limits)


@given(
    st.sampled_from(["latency", "energy", "edp", "weighted", "weighted:0.9"]),
    st.integers(1, 10**12), st.floats(1e-3, 1e15), st.integers(0, 10**12), st.floats(0, 1e15),
    st.floats(1, 1e12), st.floats(1e-9, 1e9),
)  # fmt: skip
@settings(derandomize=True, deadline=None, max_examples=300)
def test_does_every_objective_rise_with_cycles_and_energy(
    text: str, cycles: int, energy: float, more_cycles: int, more_energy: float, max_cycles: float, max_uj: float
) -> None:
    """What makes the value of lower bounds a lower bound of the value."""
    goal = Objective.parse(text, {"cycles": max_cycles, "energy_uj": max_uj})
    low, high = goal.values(np.array([cycles, cycles + more_cycles], float), np.array([energy, energy + more_energy]))
    assert low <= high
