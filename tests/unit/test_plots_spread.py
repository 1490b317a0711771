"""Do lanes and tornado charts show each number where it belongs, and can each be read?"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from figure_facts import assert_legible, legend_of, saved_bytes, texts_of
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from mas_sim.errors import ConfigError
from mas_sim.plots import TornadoBar, distribution_figure, tornado_figure
from mas_sim.plots._lanes import apart, fitting
from mas_sim.plots._style import text_points

NAN = math.nan
NETWORKS = [
    "bert_base", "bert_large", "bert_small", "llama3_8b", "t5_mini", "vit_b_14", "vit_l_14", "vit_h_14", "vit_b_16",
    "vit_l_16", "vit_h_16", "xlm",
]  # fmt: skip
TWO = {"over flat": {"bert": 1.0, "xlm": 4.0, "vit": 2.0}, "over flash": {"bert": 1.5, "xlm": NAN, "vit": 1.5}}
SAVED = {"over flat": {"bert": 0.54, "xlm": -0.1, "vit": 0.002}}


def lanes(count: int, ends: tuple[float, float] = (1.0, 8.2), ties: int = 4) -> dict[str, dict[str, float]]:
    """Make lanes of twelve networks, some of them equal."""
    found = {}
    for k in range(count):
        values = np.geomspace(ends[0], ends[1] / (k + 1) ** 0.5, 12)
        values[:ties] = values[0]
        found[f"over the dataflow {k}"] = dict(zip(NETWORKS, np.roll(values, k).tolist(), strict=True))
    return found


def lines_of(figure: Figure, label: str) -> list[Line2D]:
    """Return the lines of one kind."""
    return [line for line in figure.axes[0].lines if line.get_label() == label]


def xs(figure: Figure, label: str) -> list[list[float]]:
    """Return where the points of each line of one kind stand along the axis of values."""
    return [np.asarray(line.get_xdata(), np.float64).tolist() for line in lines_of(figure, label)]


def row_names(figure: Figure) -> list[str]:
    """Return what is written beside the rows, from the top."""
    return [tick.get_text() for tick in figure.axes[0].get_yticklabels()]


# --- lanes ---


def test_has_each_item_a_mark_in_the_lane_of_its_series() -> None:
    figure = distribution_figure(TWO, quantity="speedup")
    assert xs(figure, "_lane") == [[1.0, 2.0, 4.0], [1.5, 1.5]]
    for k, line in enumerate(lines_of(figure, "_lane")):
        heights = np.asarray(line.get_ydata(), np.float64)
        assert (np.abs(heights - k) < 0.5).all()
    assert figure.axes[0].yaxis_inverted()  # so the first lane is on top
    assert figure.axes[0].get_xlabel() == "speedup"


def test_is_the_thick_tick_the_geometric_mean_and_of_shares_that_of_what_is_left() -> None:
    assert np.unique(xs(distribution_figure(TWO, quantity="speedup"), "_middle")) == pytest.approx([1.5, 2.0])
    shares = distribution_figure(SAVED, quantity="saved", percent=True)
    left = [1 - value for value in SAVED["over flat"].values()]
    assert np.unique(xs(shares, "_middle")) == pytest.approx([1 - np.prod(left) ** (1 / 3)])
    assert legend_of(distribution_figure(TWO, quantity="speedup")) == ["one result", "geomean"]
    assert legend_of(shares) == ["one result", "geomean"]


def test_are_lanes_named_with_their_mean_and_how_many_have_a_result() -> None:
    figure = distribution_figure({**TWO, "over none": {"bert": NAN}}, quantity="speedup")
    assert row_names(figure) == [
        "over flat\ngeomean 2.00, n = 3", "over flash\ngeomean 1.50, n = 2 of 3", "over none\nno result",
    ]  # fmt: skip
    assert row_names(distribution_figure(SAVED, quantity="saved", percent=True)) == ["over flat\ngeomean 20.4%, n = 3"]


def test_are_the_least_and_the_greatest_named_and_equal_ones_once() -> None:
    assert texts_of(distribution_figure(TWO, quantity="speedup"), "end") == ["bert 1.00", "xlm 4.00", "all 2: 1.50"]
    assert texts_of(distribution_figure(SAVED, quantity="saved", percent=True), "end") == ["xlm -10.0%", "bert 54.0%"]
    assert texts_of(distribution_figure({"a": {"b": 3.0}}, quantity="speedup"), "end") == ["b 3.00"]


def test_stand_thin_and_dashed_lines_where_nothing_changes_and_at_the_reference() -> None:
    figure = distribution_figure(TWO, quantity="speedup", reference=2.75, reference_name="published maximum")
    assert (xs(figure, "_equal"), xs(figure, "_reference")) == ([[1.0, 1.0]], [[2.75, 2.75]])
    assert texts_of(figure, "line") == ["published maximum 2.75"]
    shares = distribution_figure(SAVED, quantity="saved", reference=0.1855, reference_name="published", percent=True)
    assert (xs(shares, "_equal"), xs(shares, "_reference")) == ([[0.0, 0.0]], [[0.1855, 0.1855]])
    assert texts_of(shares, "line") == ["published 18.55%"]
    assert shares.axes[0].get_xlabel() == "saved (%)"
    assert not lines_of(distribution_figure(TWO, quantity="speedup"), "_reference")


def test_stands_a_published_value_in_the_lane_of_its_series_only() -> None:
    published = {
        "over flash": {"published maximum": 2.75, "published minimum": 0.5},
        "over flat": {"published minimum": 0.5},
    }
    figure = distribution_figure(TWO, quantity="speedup", marks=published)
    assert xs(figure, "_mark") == [[2.75], [0.5], [0.5]]
    assert [round(*line.get_ydata()) for line in lines_of(figure, "_mark")] == [1, 1, 0]
    assert len({line.get_marker() for line in lines_of(figure, "_mark")}) == 2
    told = ["published maximum 2.75", "published minimum 0.5"]
    assert legend_of(figure) == ["one result", "geomean", *told]
    low, high = figure.axes[0].get_xlim()
    assert low < 0.5
    assert high > 2.75
    shares = distribution_figure(SAVED, quantity="q", percent=True, marks={"over flat": {"published": 0.1855}})
    assert legend_of(shares)[-1] == "published 18.55%"
    assert_legible(figure)
    assert_legible(shares)


@pytest.mark.parametrize(
    ("values", "percent", "scale"),
    [
        ([1.0, 8.2], False, "log"),
        ([1.0, 4.0], False, "linear"),
        ([0.2, 0.3], False, "log"),
        ([0.1, 0.9], True, "linear"),
    ],
)
def test_is_the_axis_logarithmic_only_for_ratios_that_are_far_apart(
    values: list[float], percent: bool, scale: str
) -> None:
    figure = distribution_figure({"a": dict(zip("bc", values, strict=True))}, quantity="q", percent=percent)
    assert figure.axes[0].get_xscale() == scale
    low, high = figure.axes[0].get_xlim()
    assert low < min(*values, 1.0 - percent)
    assert high > max(*values, 1.0 - percent)


@settings(derandomize=True, deadline=None)
@given(st.lists(st.integers(0, 400).map(lambda x: x / 10), max_size=14).map(sorted))
def test_does_no_mark_lie_over_another_while_the_lane_is_high_enough(places: list[float]) -> None:
    offsets = apart(places, 4.0, 1e9)
    for i, (x, y) in enumerate(zip(places, offsets, strict=True)):
        assert all(math.hypot(x - places[j], y - offsets[j]) >= 4.0 - 1e-6 for j in range(i))
    shrunk = apart(places, 4.0, 9.0)
    assert all(abs(y) <= 9.0 + 1e-9 for y in shrunk)
    assert np.argsort(shrunk, kind="stable").tolist() == np.argsort(offsets, kind="stable").tolist()


def test_stand_equal_marks_above_each_other_around_the_middle() -> None:
    assert apart([7.0] * 5, 4.0, 10.0) == [0.0, 4.0, -4.0, 8.0, -8.0]
    assert apart([], 4.0, 10.0) == []


@pytest.mark.parametrize(
    ("values", "percent", "reference"),
    [
        (lanes(6), False, 2.75), (lanes(6, ties=12), False, None), (lanes(2, (1.0, 1.02)), False, 2.75),
        (lanes(1, (0.3, 40.0)), False, None), (lanes(6, (0.01, 0.9)), True, 0.54), (SAVED, True, None),
        (TWO, False, 2.75), ({"a": {"b": 1.0}}, False, None), ({"a": {"b": 0}}, True, 0.54),
        ({"a series with quite a long name, too long for print": {"n" * 70: 2.0, "m" * 70: 2.1}}, False, 0.5),
    ],
)  # fmt: skip
def test_are_all_lanes_legible(values: dict[str, dict[str, float]], percent: bool, reference: float | None) -> None:
    figure = distribution_figure(
        values, quantity="q", percent=percent, reference=reference, reference_name="published maximum", title="title"
    )
    assert figure.get_figwidth() == 7.2
    assert figure.get_suptitle() == "title"
    assert_legible(figure)


# --- tornado ---

BARS = [
    TornadoBar("exp cost", 1.25, 1.5, "16 cycles", "1 cycle"),
    TornadoBar("DRAM", 2.0, 0.75, "8 GB/s", "128 GB/s"),
    TornadoBar("L1", NAN, 1.75, "64 KiB", "10 MiB"),
    TornadoBar("lanes", 1.0, 0.5, "256", "512"),
    TornadoBar("path", 1.5, 1.6, "direct", "dram"),
]


def parts_of(figure: Figure, label: str) -> list[tuple[float, float, float]]:
    """Return row, start and end of the parts of bars of one kind."""
    found = []
    for container in figure.axes[0].containers:
        for bar in container if container.get_label() == label else ():
            assert isinstance(bar, Rectangle)
            row = bar.get_y() + bar.get_height() / 2
            found.append((round(row, 9), bar.get_x(), round(bar.get_x() + bar.get_width(), 9)))
    return found


def test_is_the_widest_bar_on_top_and_each_from_its_low_to_its_high_value() -> None:
    figure = tornado_figure(BARS, nominal=1.5, quantity="speedup", flip=None)
    assert row_names(figure) == ["DRAM", "lanes", "exp cost", "L1", "path"]
    assert parts_of(figure, "_kept") == [(0, 0.75, 2), (1, 0.5, 1), (2, 1.25, 1.5), (3, 1.5, 1.75), (4, 1.5, 1.6)]
    assert figure.axes[0].yaxis_inverted()
    assert (figure.axes[0].get_xlabel(), xs(figure, "_nominal")) == ("speedup", [[1.5, 1.5]])


def test_is_what_lies_beyond_the_flip_hatched_and_shaded() -> None:
    figure = tornado_figure(BARS, nominal=1.5, quantity="speedup", flip_name="flat wins")
    assert parts_of(figure, "_flipped") == [(0, 0.75, 1), (1, 0.5, 1)]
    assert parts_of(figure, "_kept")[0] == (0, 1, 2)
    (shade,) = [patch for patch in figure.axes[0].patches if patch.get_label() == "_beyond"]
    assert isinstance(shade, Rectangle)
    assert (shade.get_x(), shade.get_x() + shade.get_width()) == pytest.approx((figure.axes[0].get_xlim()[0], 1.0))
    assert texts_of(figure, "line") == ["nominal 1.50", "flat wins"]
    assert xs(figure, "_flip") == [[1.0, 1.0]]
    above = tornado_figure(BARS, nominal=0.875, quantity="speedup")
    assert parts_of(above, "_flipped")[0] == (0, 1, 2)  # the other side, if the nominal result lies there
    assert texts_of(above, "line") == ["nominal 0.875", "the winner changes"]
    even = tornado_figure(BARS, nominal=1.0, quantity="speedup")
    assert not parts_of(even, "_flipped")


def test_are_both_ends_labelled_with_the_assumption_and_its_result() -> None:
    figure = tornado_figure(BARS, nominal=1.5, quantity="speedup")
    assert texts_of(figure, "end") == [
        "128 GB/s: 0.750", "8 GB/s: 2.00", "512: 0.500", "256: 1.00", "16 cycles: 1.25", "1 cycle: 1.50",
        "64 KiB: does not fit", "10 MiB: 1.75", "direct: 1.50", "dram: 1.60",
    ]  # fmt: skip


def test_has_a_bar_a_cross_where_nothing_fits_and_a_line_to_the_nominal_result() -> None:
    figure = tornado_figure(BARS, nominal=1.5, quantity="speedup")
    assert xs(figure, "_misfit") == [[1.5]]
    assert xs(figure, "_joined") == [[1.0, 1.5]]  # of lanes, whose ends are both worse
    above = tornado_figure([TornadoBar("a", 3.0, 2.0, "", "")], nominal=1.5, quantity="speedup")
    assert xs(above, "_joined") == [[1.5, 2.0]]
    assert texts_of(above, "end") == ["2.00", "3.00"]


@pytest.mark.parametrize(("nominal", "flip"), [(1.5, 1.0), (1.0, 1.0), (0.98, 1.0), (1.5, None)])
@pytest.mark.parametrize(
    "bars",
    [
        BARS, BARS[2:3], BARS * 3, [TornadoBar("a", 1.0, 1.0, "l", "h")],
        [TornadoBar("n" * 90, 1.1, NAN, "l" * 90, "h" * 90), TornadoBar("b", 7.0, 8.0, "", "h")],
    ],
    ids=len,
)  # fmt: skip
def test_is_every_tornado_legible(bars: list[TornadoBar], flip: float | None, nominal: float) -> None:
    figure = tornado_figure(
        bars, nominal=nominal, quantity="speedup", flip=flip, flip_name="flat is faster than mas", title="title"
    )
    assert figure.get_figwidth() == 7.2
    assert_legible(figure)


# --- both ---


def test_is_a_name_cut_only_as_far_as_it_must_be() -> None:
    assert fitting("bert_base", " 1.00", 100.0) == "bert_base 1.00"
    cut = fitting("n" * 70, " 1.00", 100.0)
    assert cut.endswith("n... 1.00")
    longer = "n" + cut
    assert text_points(cut, 6.0) <= 100.0 < text_points(longer, 6.0)
    assert fitting("", " 1.00", 1.0) == "1.00"


def test_do_the_same_numbers_give_the_same_bytes(tmp_path: Path) -> None:
    def both() -> list[Figure]:
        return [
            distribution_figure(lanes(3), quantity="q", reference=2.75, reference_name="published"),
            tornado_figure(BARS, nominal=1.5, quantity="q"),
        ]

    for k, (first, second) in enumerate(zip(both(), both(), strict=True)):
        assert saved_bytes(first, tmp_path, f"one{k}") == saved_bytes(second, tmp_path, f"two{k}")


@pytest.mark.parametrize(
    ("values", "more", "message"),
    [
        ({}, {}, "values: must hold at least one series"),
        ({"a": {}}, {}, "values: must hold at least one number"),
        ({"a": {"b": NAN, "c": None}}, {}, "values: must hold at least one number"),
        ({"a": {"b": 0.0}, "c": {"d": math.inf}}, {}, r"\['b'\]: must be a number, m(.|\n)*\['d'\]: must be a f"),
        ({"a": {"b": "2"}}, {}, r"values\['a'\]\['b'\]: must be a finite number \(got '2'\)"),
        ({"a": {"b": True}}, {}, r"must be a finite number \(got True\)"),
        ({"a": {"b": pd.NA}}, {}, "must be a finite number"),
        ({"a": {"b": math.inf}}, {"percent": True}, "must be a finite number"),
        ({"a": {"b": 1.0}}, {"percent": True}, "must be a share below 1"),
        (TWO, {"marks": {"over fIat": {"x": 1.0}}}, "marks: must be of series that there are"),
        (TWO, {"marks": {"over flat": {"x": NAN, "y": 0.0}}}, r"\['x'\]: must(.|\n)*marks\['over flat'\]\['y'\]: must"),
        (TWO, {"reference": NAN}, "reference: must be a finite number"),
        (TWO, {"reference": -1.0}, "reference: must be a number, more than 0"),
    ],
)  # fmt: skip
def test_is_what_cannot_be_in_a_lane_an_error_that_says_why(values: Any, more: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        distribution_figure(values, quantity="q", **more)


@pytest.mark.parametrize(
    ("bars", "more", "message"),
    [
        ([], {}, "bars: must hold at least one assumption"),
        ([TornadoBar("a", NAN, NAN, "", "")], {}, "bars: must hold at least one number"),
        ([BARS[0], TornadoBar("a", math.inf, "1", "", "")], {}, r"bars\[1\]\.low: m(.|\n)*bars\[1\]\.high: m"),  # type: ignore[arg-type]
        (BARS, {"nominal": NAN, "flip": math.inf}, r"nominal: must be a finite(.|\n)*flip: must be a finite"),
    ],
)  # fmt: skip
def test_is_what_cannot_be_a_bar_an_error_that_says_why(
    bars: list[TornadoBar], more: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        tornado_figure(bars, **{"nominal": 1.5, "quantity": "q", **more})
