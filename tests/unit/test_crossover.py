"""Does a crossover search every series at every length, and say what follows from it?"""

from dataclasses import replace
from typing import Any

import pytest
from builders import small_arch, small_workload

from mas_sim.comparison import Misfit
from mas_sim.crossover import (
    OVERWRITING,
    SERIES,
    CrossoverPoint,
    SeriesResult,
    crossover,
    findings,
    parse_lengths,
    series_space,
    too_long,
)
from mas_sim.errors import MasSimError
from mas_sim.search.exhaustive import ExhaustiveSearch

ARCH = small_arch(**{"l1.capacity_kib": 8})
WORKLOAD = small_workload(heads=2)

LENGTHS = {
    "seq=512:131072:x2": [512 << i for i in range(9)],
    "seq=512:2000:512": [512, 1024, 1536],
    "seq=10:100:x3": [10, 30, 90],
    "seq=768": [768],
    "seq=512,768,100": [512, 768, 100],
}


@pytest.mark.parametrize("text", LENGTHS)
def test_are_lengths_parsed_as_documented(text: str) -> None:
    assert parse_lengths(text) == LENGTHS[text]


@pytest.mark.parametrize(
    "text",
    [
        "", "512", "seq=", "seq=a", "seq=0", "seq=0:8:x2", "seq=8:4:x2", "seq=1:8", "seq=1:8:x1", "seq=1:8:0",
        "seq=1:8:-1", "seq=16777217", "seq=1:2000:1", "seq=1:999999999:1", "seq=512,", "seq=9999999999", "n=512",
    ],
)  # fmt: skip
def test_is_anything_else_refused_with_the_form_there_is(text: str) -> None:
    with pytest.raises(MasSimError, match="--over"):
        parse_lengths(text)


def test_has_every_point_the_best_of_each_series_and_the_winner() -> None:
    points = list(crossover(ARCH, WORKLOAD, [16, 24]))
    assert [point.tokens for point in points] == [16, 24]
    for point in points:
        assert tuple(point.results) == SERIES
        workload = WORKLOAD.with_(n_q=point.tokens, n_kv=point.tokens)
        for name, result in point.results.items():
            assert isinstance(result, SeriesResult)
            best = ExhaustiveSearch().search(series_space(name, ARCH, workload), "latency").best
            assert (result.cycles, result.facts["tiling"]) == (best.cycles, best.tiling.as_dict())
            assert (result.energy_pj, result.dram_bytes) == (pytest.approx(best.energy_pj), best.dram_bytes)
            assert point.values[name] == result.cycles
        assert point.winner is not None
        assert point.values[point.winner] == min(point.values.values())


def test_does_overwrite_tell_the_two_series_of_mas_apart() -> None:
    (point,) = crossover(ARCH, WORKLOAD, [24], ["mas", OVERWRITING])
    series = point.as_dict()["series"]
    assert series["mas"]["tiling"]["overwrite"] == "none"
    assert series[OVERWRITING]["tiling"]["overwrite"] in ("v", "k")
    assert series[OVERWRITING]["dataflow"] == "mas"
    assert series[OVERWRITING]["fits"] is True


def test_is_a_series_that_does_not_fit_a_misfit_with_its_bytes() -> None:
    (point,) = crossover(ARCH.with_(**{"l1.capacity_kib": 0.5}), WORKLOAD, [256], ["flat", "mas"])
    assert point.winner is None
    for name, result in point.results.items():
        assert isinstance(result, Misfit)
        assert result.over_bytes > 0
        assert f"{result.over_bytes:,} bytes" in result.reason
        assert point.as_dict()["series"][name]["fits"] is False
    assert point.row() == {"n": 256, "results": {"flat": None, "mas": None}, "winner": None}
    assert findings([point])["nothing_fits"] == [256]


def test_do_objective_and_energy_level_reach_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    search = ExhaustiveSearch.search

    def spy(self: ExhaustiveSearch, *args: Any, **kwargs: Any) -> Any:
        seen.append((args[1], kwargs["energy_level"]))
        return search(self, *args, **kwargs)

    monkeypatch.setattr(ExhaustiveSearch, "search", spy)
    (point,) = crossover(ARCH, WORKLOAD, [16], ["flat"], "energy", energy_level="high")
    assert seen == [("energy", "high")]
    result = point.results["flat"]
    assert isinstance(result, SeriesResult)
    assert result.facts["energy_level"] == "high"
    assert point.values["flat"] == result.energy_pj
    assert point.row()["results"]["flat"] == {
        "cycles": result.cycles, "energy_pj": result.energy_pj, "dram_bytes": result.dram_bytes,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("series", "lengths", "objective", "message"),
    [
        (["flta"], [16], "latency", "did you mean 'flat'"),
        (["mas_overwrit"], [16], "latency", "did you mean 'mas_overwrite'"),
        (["flat", "flat"], [16], "latency", "once"),
        ([], [16], "latency", "once"),
        (["flat"], [16], "speed", "objective"),
        (["flat"], [16, 2**24], "latency", r"2\*\*56"),
    ],
)
def test_is_what_is_wrong_said_before_anything_is_searched(
    series: list[str], lengths: list[int], objective: str, message: str
) -> None:
    with pytest.raises(MasSimError, match=message):
        crossover(ARCH, WORKLOAD.with_(head_dim_qk=512), lengths, series, objective)


def point_of(tokens: int, **values: float) -> CrossoverPoint:
    """Make a point of which only the values count; a series without one does not fit."""
    results = {name: SeriesResult({}) if name in values else Misfit("w", name, 1, "") for name in SERIES}
    return CrossoverPoint(tokens, results, values, min(values, key=lambda name: values[name]) if values else None, 12)


def too_long_at(tokens: int, series: str, **values: float) -> CrossoverPoint:
    """Make a point of which one series fits, but cannot be simulated."""
    point = point_of(tokens, **values)
    return replace(point, results={**point.results, series: Misfit("w", series, 0, "")})


def test_is_it_said_where_overwrite_pays_and_where_mas_loses() -> None:
    points = [
        point_of(1, layer_wise=9, flat=5, mas=3, mas_overwrite=4),
        point_of(2, layer_wise=9, flat=5, mas=3, mas_overwrite=3),  # a tie pays nothing
        point_of(3, layer_wise=9, flat=3, mas=5, mas_overwrite=4),
        point_of(4, layer_wise=9, flat=5, mas=6, mas_overwrite=4),  # with overwrite, mas wins
        point_of(5, layer_wise=9, flat=5, mas_overwrite=4),
        point_of(6, layer_wise=9, flat=5),
        point_of(7, layer_wise=9, flat=5, mas=5, mas_overwrite=6),  # a tie loses nothing
        point_of(8),
        too_long_at(9, "flat", layer_wise=9, mas=3, mas_overwrite=4),
        too_long_at(10, "mas", flat=5, mas_overwrite=6),  # whether mas would be better, nobody knows
        too_long_at(11, "layer_wise"),
    ]
    assert findings(points) == {"overwrite_pays": [3, 4, 5], "mas_loses_to_flat": [3, 6], "nothing_fits": [8]}
    assert too_long(points) == {"flat": [9], "mas": [10], "layer_wise": [11]}


def test_is_nothing_said_of_series_that_were_not_asked_for() -> None:
    assert findings(list(crossover(ARCH, WORKLOAD, [16], ["flat"]))) == {"nothing_fits": []}
    assert findings([]) == {"nothing_fits": []}


def test_are_fewer_heads_simulated_and_scaled_where_all_are_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a limit that 2 heads keep and 8 do not, every series runs 2, and its figures count four times."""
    workload = WORKLOAD.with_(heads=8, kv_heads=8)
    whole = next(iter(crossover(ARCH, workload, [64], ["flat", "mas"])))
    assert whole.simulated_heads == 8
    lengths = dict.fromkeys(("flat", "mas"), 0)
    for name, result in whole.results.items():
        assert isinstance(result, SeriesResult)
        assert result.scale == 1.0
        lengths[name] = result.facts["instructions"]
    monkeypatch.setattr("mas_sim.search.space.MAX_INSTRUCTIONS", 50)
    few = next(iter(crossover(ARCH, workload, [64], ["flat", "mas"])))
    assert few.simulated_heads < 8
    for name, result in few.results.items():
        assert isinstance(result, SeriesResult)
        assert result.scale == 8 / few.simulated_heads
        assert result.cycles == round(result.facts["cycles"] * result.scale)
        assert result.facts["instructions"] <= 50 < lengths[name]
        # Heads repeat: only the pipeline's fill and drain is counted once a head instead of once.
        reference = whole.results[name]
        assert isinstance(reference, SeriesResult)
        assert result.dram_bytes == reference.dram_bytes
        assert reference.cycles <= result.cycles
