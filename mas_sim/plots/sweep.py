"""One swept axis as lines: cycles or energy of each dataflow, or how much better one is than another."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from mas_sim.errors import nearest
from mas_sim.plots._frames import (
    QUANTITIES,
    Key,
    Point,
    by_place,
    check_pair,
    in_order,
    key_of,
    labels_of,
    mean_of,
    sweep_rows,
)
from mas_sim.plots._labels import axis_name
from mas_sim.plots._style import (
    BLACK,
    COLOURS,
    DARK_GREY,
    GREY,
    Floats,
    columns_that_fit,
    finite_or_nan,
    flow_lines,
    in_paper_style,
    plain_number,
    refuse,
    series,
    text_points,
    value_axis,
)

GEOMEAN = "geometric mean"
TICK_POINTS = 7.0
AXIS_POINTS = 3.7 * 72
"""Width of the axes, a little less than it is; the figure's is 4.6 inches."""
Ideal = str | Callable[[float], float]


@in_paper_style
def sweep_figure(
    frame: Any,
    x: str,
    *,
    y: str = "cycles",
    by: str = "dataflow",
    ratio: tuple[str, str] | None = None,
    ideal: Ideal | None = None,
    ideal_name: str = "ideal",
    workload: str | None = None,
    title: str | None = None,
    x_label: str | None = None,
    y_label: str | None = None,
) -> Figure:
    """Draw a sweep over one axis, a line for each dataflow; where a point is not done, the line is broken.

    With several workloads, a line is the geometric mean over them (where all are done), and each of them is a thin line
    behind it. Of a ratio, up to seven workloads have looks and names of their own.

    Parameters
    ----------
    frame : DataFrame or sequence of mappings
        A row a point, as `store.load_results` returns.
    x
        The column that was swept. A point without a value there stands at `none`, before the others.
    y
        The column of numbers, 0 or more, to draw (`cycles`, `total_pj`); on a logarithmic axis if spread so, without 0.
    ratio
        Two of the dataflows: draw `y` of the first over `y` of the second instead, which is the speedup of the second
        where `y` is cycles.
    ideal
        One more curve, to compare with: a function of the swept value, or a column of the frame (its geometric mean
        where rows differ).
    workload
        Draw this one only.
    x_label, y_label
        What stands on the axes, in place of the fields in words.

    Raises
    ------
    ConfigError
        If rows or columns are missing or hold no numbers, or a place has two rows of a dataflow and workload.
    """
    swept = _Swept(frame, x, y, by, ratio, workload)
    curve = None if ideal is None else _ideal(ideal, swept.rows, x, swept.keys)
    figure = Figure(figsize=(4.6, 3.0), layout="constrained")
    axes = figure.subplots()
    drawn = [_draw(axes, swept, k) for k in range(len(swept.names))]
    if curve is not None:
        axes.plot(swept.places, curve, color=BLACK, lw=0.9, ls=(0, (6, 2)), label=ideal_name)
        drawn.append(curve)
    under = _axes_of(axes, swept, y, np.concatenate(drawn))
    axes.set_xlabel(axis_name(x) if x_label is None else x_label)
    if y_label is not None:
        axes.set_ylabel(y_label)
    _legend(figure, axes, swept, under + (0.2 if title else 0.0))
    if title is not None:
        figure.suptitle(title)
    return figure


def _axes_of(axes: Axes, swept: "_Swept", y: str, drawn: Floats) -> float:
    """Scale both axes, and name that of values; return by how many inches upright labels are taller than a line."""
    under = _swept_axis(axes, swept.keys, swept.places)
    value_axis(axes, drawn, below=0.1)
    if (drawn == 0).any():  # no logarithmic axis has a place for it
        top = float(np.nanmax(drawn)) or 1.0
        axes.set_yscale("linear")
        axes.set_ylim(-0.04 * top, 1.1 * top)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: plain_number(value)))
    quantity = QUANTITIES.get(y, (y, 1.0))[0]
    axes.set_ylabel(quantity if swept.ratio is None else f"{quantity.partition(' (')[0]} of {swept.names[0]}")
    if swept.ratio is not None:
        low, high = axes.get_ylim()
        axes.set_ylim(min(low, 0.97), max(high, 1.03))
        axes.axhline(1.0, color=BLACK, lw=0.6, label="_one", zorder=1)
    axes.grid(color=GREY, linewidth=0.3)
    axes.set_axisbelow(True)
    return under


def _legend(figure: Figure, axes: Axes, swept: "_Swept", more: float) -> None:
    """Put the legend beneath the axes, and give the figure its height, some inches more."""
    handles: list[Any] = list(axes.get_legend_handles_labels()[0])
    count = len(swept.found)
    if count > 1 and not swept.named:
        # Of one series in its colour; of several, each has its own.
        colour = _look(swept, 0)["color"] if len(swept.names) == 1 else DARK_GREY
        thin = DARK_GREY if swept.ratio else colour
        handles.append(Line2D([], [], color=colour, lw=1.8, label=f"thick: {GEOMEAN} of {count} workloads"))
        handles.append(Line2D([], [], color=thin, lw=0.5, label="thin: one workload"))
    columns = columns_that_fit([str(handle.get_label()) for handle in handles], 4.6, 44)
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, handlelength=3.0)
    figure.set_size_inches(4.6, 2.7 + 0.16 * -(-len(handles) // columns) + more)


class _Swept:
    """What a sweep found at each place of one axis, by workload and dataflow."""

    def __init__(
        self, frame: Any, x: str, y: str, by: str, ratio: tuple[str, str] | None, workload: str | None
    ) -> None:
        self.rows = sweep_rows(frame, (x,), by, y, workload, "y")
        if ratio is not None:
            check_pair(ratio, self.rows, by)
        of: dict[str, list[dict[str, Any]]] = {}
        for row in self.rows:
            of.setdefault(str(row.get("workload", "")), []).append(row)
        self.found = {name: by_place(rows, (x,), by, y) for name, rows in of.items()}
        self.keys = in_order([place[0] for points in self.found.values() for place in points])
        numbers = all(isinstance(key, float) for key in self.keys)
        self.places: Floats = np.array(self.keys, np.float64) if numbers else np.arange(1.0, len(self.keys) + 1)
        names = list(dict.fromkeys(str(row[by]) for row in self.rows))
        self.ratio, self.unit = ratio, QUANTITIES.get(y, (y, 1.0))[1]
        self.names = names if ratio is None else [f"{ratio[0]} / {ratio[1]}"]
        self.named = ratio is not None and 1 < len(self.found) < len(COLOURS)


def _look(swept: _Swept, k: int) -> dict[str, Any]:
    """Return how a line is drawn: that of a dataflow as everywhere, a ratio's as the first of any."""
    return series(k) if swept.ratio is not None else flow_lines(swept.names)[swept.names[k]]


def _draw(axes: Axes, swept: _Swept, k: int) -> Floats:
    """Draw the line of one dataflow, or of the ratio; return all heights that were drawn."""
    name, look = swept.names[k], _look(swept, k)
    lines = [_line(points, swept.keys, name, swept.ratio, swept.unit) for points in swept.found.values()]
    if len(lines) == 1:
        axes.plot(swept.places, lines[0], label=name, **look)
        return lines[0]
    for i, (workload, line) in enumerate(zip(swept.found, lines, strict=True)):
        own = series(i + 1) | {"lw": 0.8, "ms": 3}  # thinner than the mean, which has the first look
        grey = {"color": DARK_GREY if swept.ratio else look["color"], "lw": 0.5, "alpha": 0.6}
        axes.plot(swept.places, line, label=workload if swept.named else "_workload", **(own if swept.named else grey))
    name = f"{GEOMEAN} of {len(lines)}" if swept.named else name
    mean = np.array([mean_of([float(line[i]) for line in lines]) for i in range(len(swept.keys))])
    axes.plot(swept.places, mean, label=name, **{**look, "lw": 1.8})
    return np.concatenate([*lines, mean])


def _line(
    points: dict[tuple[Key, ...], Point], keys: list[Key], name: str, ratio: tuple[str, str] | None, unit: float
) -> Floats:
    """Return the value at each place, or the ratio of two; NaN where it is not known."""
    at = [points.get((key,), {}) for key in keys]
    if ratio is None:
        return np.array([point.get(name, math.nan) / unit for point in at])
    return np.array([point.get(ratio[0], math.nan) / (point.get(ratio[1]) or math.nan) for point in at])


def _ideal(ideal: Ideal, rows: list[dict[str, Any]], x: str, keys: list[Key]) -> Floats:
    """Return the curve to compare with, at each place."""
    if isinstance(ideal, str):
        there = list(dict.fromkeys(str(name) for row in rows for name in row))
        if ideal not in there:
            refuse("ideal", "must be a column", ideal, nearest(ideal, there))
        at: dict[Key, list[float]] = {}
        for row in rows:
            number = finite_or_nan(row.get(ideal))
            at.setdefault(key_of(row[x]), []).extend([number] if number >= 0 else [])
        return np.array([mean_of(at[key]) for key in keys])
    if not all(isinstance(key, float) for key in keys):
        refuse("ideal", f"must be a column, since {x} holds what are no numbers", ideal)
    return np.array([ideal(float(key)) for key in keys])


def _swept_axis(axes: Axes, keys: list[Key], places: Floats) -> float:
    """Put ticks at (some of) the swept values; logarithmic where they are spread so.

    Labels that are not all numbers are turned upright where they are too long; by so many inches they are taller then.
    """
    numbers = all(isinstance(key, float) for key in keys)
    logs = numbers and len(keys) > 2 and bool(places[0] > 0) and bool(places[-1] >= 8 * places[0])
    if logs:
        axes.set_xscale("log")
        room = (places[-1] / places[0]) ** 0.04
        axes.set_xlim(places[0] / room, places[-1] * room)
    labels = labels_of(keys)
    widths = [text_points(label, TICK_POINTS) for label in labels]
    upright = not numbers and max(widths) + 6 > AXIS_POINTS / len(keys)
    shown = list(range(len(keys)))
    if numbers:
        shown = shown[:: -(-len(keys) // 9)]
        spread = np.log(places) if logs else places
        at = (spread - spread[0]) / max(float(spread[-1] - spread[0]), 1e-300) * AXIS_POINTS / 1.1
        shown = _apart(shown, at, widths)
    elif upright:
        shown = shown[:: math.ceil(len(keys) * (TICK_POINTS + 2) / AXIS_POINTS)]
        axes.tick_params(axis="x", rotation=90)
    names = {float(places[k]): labels[k] for k in shown}
    axes.xaxis.set_major_locator(FixedLocator(list(names)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda at, _: names.get(at, "")))
    return max(widths) / 72 if upright else 0.0


def _apart(shown: list[int], at: Floats, widths: list[float]) -> list[int]:
    """Return those of some ticks, at rising places in points, whose labels do not touch the one before."""
    kept = shown[:1]
    for k in shown[1:]:
        if at[k] - at[kept[-1]] >= (widths[k] + widths[kept[-1]]) / 2 + 4:
            kept.append(k)
    return kept
