"""Figures of searches: convergence over evaluations, and the Pareto front of cycles and energy."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from mas_sim.plots._style import (
    BLACK,
    GREY,
    Floats,
    figure_files,
    flow_lines,
    in_paper_style,
    refuse,
    save_figure,
    series,
)
from mas_sim.search.base import History

FEW_DECADES = 50
"""An axis whose ends are less than this factor apart has ticks at round numbers, not at powers of ten."""

BAND_ALPHA = 0.22


@dataclass(frozen=True)
class FrontPoint:
    """A tiling on a front, as drawn."""

    cycles: int
    energy_pj: float
    dataflow: str


def best_so_far(histories: Sequence[History]) -> Floats:
    """Return the best value after each evaluation of several runs, float64[runs, evaluations].

    A run that ended early keeps its best. Where nothing yet keeps to the limits, it is NaN.
    """
    longest = max(len(history.value) for history in histories)
    rows = np.stack([np.pad(h.best, (0, longest - len(h.value)), mode="edge") for h in histories])
    return np.where(np.isfinite(rows), rows, np.nan)


def plot_convergence(
    histories: Mapping[str, Sequence[History]],
    path: str | Path,
    *,
    quantity: str = "cycles",
    optimum: float | None = None,
    title: str | None = None,
) -> tuple[Path, ...]:
    """Draw how each method's best value falls with the evaluations, both axes logarithmic, and save the figure.

    For each method the median over its runs, with a band from the best run to the worst one; the proven optimum as a
    dashed line. The form is that of figure 7 of the MAS-Attention paper (MLSys 2025).

    Parameters
    ----------
    histories
        The runs of each method, by its name; a method without any is left out.
    path
        A file that ends in `.svg`, `.pdf` or `.png`; without a suffix an SVG and a PNG file are written.
    quantity
        What the values are, with their unit.
    optimum
        Value of the proven optimum; None if it is not known.

    Returns
    -------
    tuple of Path
        The files written.

    Raises
    ------
    ConfigError
        If there is no run, or the file has an unknown suffix or cannot be written.
    """
    figure_files(path)  # before the figure is made
    return save_figure(convergence_figure(histories, quantity=quantity, optimum=optimum, title=title), path)


@in_paper_style
def convergence_figure(
    histories: Mapping[str, Sequence[History]],
    *,
    quantity: str = "cycles",
    optimum: float | None = None,
    title: str | None = None,
) -> Figure:
    """Return the figure that `plot_convergence` saves."""
    if not isinstance(histories, Mapping):
        refuse("histories", "must be a mapping of methods to their runs", histories)
    shown = {method: [run for run in runs if len(run.value)] for method, runs in histories.items()}
    shown = {method: runs for method, runs in shown.items() if runs}
    if not shown:
        refuse("histories", "must hold at least one run", dict(histories))
    figure = Figure(figsize=(4.6, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.set_xscale("log")
    axes.set_yscale("log")
    seen: list[float] = [] if optimum is None else [optimum]
    for k, (method, runs) in enumerate(shown.items()):
        best = best_so_far(runs)
        there = np.flatnonzero(~np.isnan(best).any(axis=0))  # each run has a value
        evaluations, best = there + 1, best[:, there]
        look = {**series(k), "marker": "", "drawstyle": "steps-post"}
        axes.plot(evaluations, np.median(best, axis=0), label=method, **look)
        if len(runs) > 1:
            color = look["color"]
            low, high = best.min(axis=0), best.max(axis=0)
            axes.fill_between(evaluations, low, high, step="post", color=color, alpha=BAND_ALPHA, lw=0)
        seen += [*best[:, :1].ravel().tolist(), *best[:, -1:].ravel().tolist()]
    if optimum is not None:
        axes.axhline(optimum, color=BLACK, lw=0.9, ls=(0, (6, 2)), label="proven optimum")
    counts = {len(runs) for runs in shown.values()}
    seeds = "/".join(map(str, sorted(counts)))
    band = f"median and min..max of {seeds} seeds" if max(counts) > 1 else "one seed each"
    axes.set_xlabel(f"evaluations (tilings simulated); {band}")
    axes.set_ylabel(f"best {quantity} so far (logarithmic)")
    longest = max(len(run.value) for runs in shown.values() for run in runs)
    axes.set_xlim(1, max(2, longest))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda count, _: f"{count:,.0f}"))
    if seen:
        _round_ticks(axes, axes.yaxis, min(seen), max(seen))
    axes.grid(color=GREY, linewidth=0.3)
    axes.legend(loc="upper right", handlelength=3.2)
    if title is not None:
        figure.suptitle(title)
    return figure


def _round_ticks(axes: Axes, axis: Axis, low: float, high: float) -> None:
    """Give a logarithmic axis its ends, and ticks at round numbers where it spans few decades."""
    ratio = max(high / low, 1.02)
    axes.set_ylim(low / ratio**0.06, low * ratio**1.06)
    if ratio < FEW_DECADES:
        axis.set_major_locator(FixedLocator(_ticks(low, low * ratio)))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value < 1e9 else f"{value:.4g}"))


def _ticks(low: float, high: float) -> list[float]:
    """Return a few round numbers between two: evenly spaced if they are near each other, else 1, 2, 5, 10, ..."""
    if high < 3 * low:
        even = MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
        return [float(tick) for tick in even if tick > 0]
    decade = 10.0 ** math.floor(math.log10(low))
    return [decade * step * scale for scale in (1, 10, 100) for step in (1, 2, 5)]


def plot_pareto(points: Sequence[FrontPoint], path: str | Path, *, title: str | None = None) -> tuple[Path, ...]:
    """Draw the Pareto front of cycles and energy, a mark for each dataflow, and save the figure.

    Parameters
    ----------
    points
        The front, in any order.
    path
        As in `plot_convergence`.

    Returns
    -------
    tuple of Path
        The files written.

    Raises
    ------
    ConfigError
        If there are no points, or the file has an unknown suffix or cannot be written.
    """
    figure_files(path)  # before the figure is made
    return save_figure(pareto_figure(points, title=title), path)


@in_paper_style
def pareto_figure(points: Sequence[FrontPoint], *, title: str | None = None) -> Figure:
    """Return the figure that `plot_pareto` saves."""
    if not points:
        refuse("points", "must hold at least one point", points)
    points = sorted(points, key=lambda point: (point.cycles, point.energy_pj))
    cycles, energy = [point.cycles for point in points], [point.energy_pj / 1e6 for point in points]
    figure = Figure(figsize=(4.6, 3.2), layout="constrained")
    axes = figure.subplots()
    # All that lies above and to the right of this line is beaten by a point on it.
    axes.step(cycles, energy, where="post", color=GREY, lw=0.9, zorder=1)
    names = list(dict.fromkeys(point.dataflow for point in points))
    for name, look in flow_lines(names).items():
        mine = [i for i, point in enumerate(points) if point.dataflow == name]
        axes.plot([cycles[i] for i in mine], [energy[i] for i in mine], label=name, **{**look, "ls": "none"})
    axes.set_xlabel("cycles")
    axes.set_ylabel("energy (uJ)")
    axes.margins(0.08)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.grid(color=GREY, linewidth=0.3)
    front = Line2D([], [], color=GREY, lw=0.9, label="front")
    marks = [*axes.get_legend_handles_labels()[0], front]
    axes.legend(handles=marks, loc="best")
    if title is not None:
        figure.suptitle(title)
    return figure
