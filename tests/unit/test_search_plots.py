"""Do the figures of searches show the runs, the bands, the optimum and the front that they were given?"""

from pathlib import Path

import numpy as np
import pytest
from figure_facts import assert_legible
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from mas_sim.errors import ConfigError
from mas_sim.plots import (
    FrontPoint,
    best_so_far,
    check_figure_path,
    convergence_figure,
    pareto_figure,
    plot_convergence,
    plot_pareto,
)
from mas_sim.search.base import History

POINTS = [FrontPoint(300, 1e6, "flash"), FrontPoint(100, 3e6, "mas"), FrontPoint(200, 2e6, "mas")]


def run_of(*values: float) -> History:
    """A run that found these values, in this order."""
    return History(np.arange(len(values)), np.array(values), np.linspace(0, 1, len(values)))


RUNS = {
    "mcts": [run_of(400, 200, 300, 100), run_of(300, 300, 100), run_of(500, 400, 200, 150)],
    "random": [run_of(9e2)],
}


def line(figure: Figure, label: str) -> tuple[list[float], list[float]]:
    """Points of the line of that name."""
    found = next(one for one in figure.axes[0].lines if one.get_label() == label)
    return np.asarray(found.get_xdata()).tolist(), np.asarray(found.get_ydata()).tolist()


def test_does_the_line_show_the_median_of_the_best_so_far() -> None:
    figure = convergence_figure(RUNS, optimum=100.0)
    assert line(figure, "mcts") == ([1, 2, 3, 4], [400, 300, 200, 100])
    assert line(figure, "random") == ([1], [900])
    assert line(figure, "proven optimum")[1] == [100, 100]


def test_does_the_band_go_from_the_best_run_to_the_worst() -> None:
    bands = [one for one in convergence_figure(RUNS).axes[0].collections if isinstance(one, PolyCollection)]
    assert len(bands) == 1  # a single run has none
    corners = bands[0].get_paths()[0].vertices
    heights = {x: {y for at, y in np.asarray(corners).tolist() if at == x} for x in (1, 4)}
    assert heights[1] >= {300, 500}
    assert heights[4] >= {100, 150}


def test_does_a_run_that_ended_early_keep_its_best() -> None:
    assert best_so_far([run_of(5, 3), run_of(4, 6, 2)]).tolist() == [[5, 3, 3], [4, 4, 2]]


def test_does_a_line_begin_where_every_run_keeps_to_the_limits() -> None:
    figure = convergence_figure({"mcts": [run_of(np.inf, np.inf, 7), run_of(np.inf, 9, 8)]})
    assert line(figure, "mcts") == ([3], [7.5])


def test_are_both_axes_logarithmic_and_named() -> None:
    axes = convergence_figure(RUNS, quantity="energy (pJ)", title="mas").axes[0]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert axes.get_ylabel() == "best energy (pJ) so far (logarithmic)"
    assert "evaluations" in axes.get_xlabel()
    assert "min..max of 1/3 seeds" in axes.get_xlabel()


def test_does_no_line_stand_for_an_optimum_that_is_not_known() -> None:
    assert "proven optimum" not in [one.get_label() for one in convergence_figure(RUNS).axes[0].lines]


def test_does_the_front_show_each_point_under_its_dataflow() -> None:
    figure = pareto_figure(POINTS)
    assert line(figure, "mas") == ([100, 200], [3, 2])
    assert line(figure, "flash") == ([300], [1])
    markers = {one.get_marker() for one in figure.axes[0].lines if one.get_label() in ("mas", "flash")}
    assert len(markers) == 2  # told apart without colour
    assert figure.axes[0].get_xlabel() == "cycles"
    assert figure.axes[0].get_ylabel() == "energy (uJ)"


def test_are_a_vector_and_a_png_file_written_and_always_the_same(tmp_path: Path) -> None:
    for draw in (lambda path: plot_convergence(RUNS, path, optimum=100.0), lambda path: plot_pareto(POINTS, path)):
        first, again = draw(tmp_path / "one"), draw(tmp_path / "two")
        assert [path.name for path in first] == ["one.svg", "one.png"]
        assert [a.read_bytes() == b.read_bytes() for a, b in zip(first, again, strict=True)] == [True, True]
    assert plot_pareto(POINTS, tmp_path / "front.pdf") == (tmp_path / "front.pdf",)


def test_is_nothing_to_draw_or_an_unknown_file_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least one run"):
        convergence_figure({"mcts": []})
    with pytest.raises(ConfigError, match="at least one point"):
        pareto_figure([])
    with pytest.raises(ConfigError, match=r"did you mean '.svg'"):
        check_figure_path(tmp_path / "figure.svgz")


def test_are_the_figures_of_searches_legible() -> None:
    assert_legible(convergence_figure(RUNS, optimum=100.0, title="mas"))
    assert_legible(convergence_figure({"random": [run_of(9.0)]}))
    assert_legible(pareto_figure(POINTS, title="front"))
    assert_legible(pareto_figure(POINTS[:1]))
