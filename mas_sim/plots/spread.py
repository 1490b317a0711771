"""How far results spread over networks, in a lane for each comparison."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from mas_sim.errors import ConfigError, Fault, shorten
from mas_sim.plots._lanes import (
    Ask,
    apart,
    end_label,
    end_width,
    faults_of,
    finish,
    fitting,
    is_nothing,
    named_line,
    panel,
    scale,
    value_ticks,
)
from mas_sim.plots._style import (
    BLACK,
    BLUE,
    DARK_GREY,
    LIGHT_GREY,
    VERMILLION,
    WHITE,
    finite_or_nan,
    geomean,
    in_paper_style,
    refuse,
    short_number,
    text_points,
)

MARK_POINTS = 3.8
LANE_INCHES, LANE_ROOM_POINTS = 0.42, 9.0
"""Height of a lane, and how far from its middle a mark may stand."""
LOG_FROM = 4
"""Ratios whose ends are further apart than this factor stand on a logarithmic axis."""
MIDDLE = "geomean"
MARKERS = "Ds^v"
"""Shapes of marks, by their place among all names of marks."""


def distribution_figure(
    values: Mapping[str, Mapping[str, float]],
    *,
    quantity: str,
    reference: float | None = None,
    reference_name: str = "",
    marks: Mapping[str, Mapping[str, float]] | None = None,
    percent: bool = False,
    title: str | None = None,
) -> Figure:
    """Draw how ratios spread over items: a lane for each series, in it a mark for each item.

    A thick tick is the geometric mean of a lane (of shares: one less that of what is left). The least and the greatest
    value are named. Marks that would coincide stand above each other. The axis is logarithmic where the ends of ratios
    are more than a factor of 4 apart.

    Parameters
    ----------
    values
        The values of each series, by item: `{"over flat": {"bert_base": 1.42, ...}, ...}`; None or NaN where there is
        none.
    quantity
        What the values are: `speedup of mas`.
    reference
        A value to compare with, drawn as a dashed line; None for no such line.
    reference_name
        What that value is: `the winner changes`; the value is written behind it.
    marks
        Values of some series to compare with, by what they are: `{"over flat": {"published maximum": 2.75}}`; hollow,
        low in the lane of their series, and named in the legend.
    percent
        Values, marks and reference are shares below 1, of any sign, and are written in percent (0.54 as 54%).

    Returns
    -------
    Figure
        7.2 inches wide.

    Raises
    ------
    ConfigError
        If there are no series or no values at all, or a value (or a mark, or the reference) is not finite, or is not a
        positive number without `percent`, or not below 1 with it; or if marks are of no series that there is.
    """
    lanes = _lanes(values, percent)
    faults = [] if reference is None else faults_of("reference", reference, signed=percent)
    for series, found in (marks or {}).items():
        if series not in values:
            refuse("marks", f"must be of series that there are ({', '.join(values)})", series)
        for name, value in found.items():
            faults += faults_of(f"marks[{series!r}][{name!r}]", value, signed=percent)
    if faults:
        raise ConfigError(faults)
    return _distribution(lanes, quantity, reference, reference_name, marks or {}, percent, title)


@dataclass(frozen=True)
class _Lane:
    """A series: its values in rising order, each with its item, and how many items there are."""

    name: str
    values: list[tuple[float, str]]
    items: int

    def ends(self, percent: bool, room: float) -> tuple[str, str]:
        """Return what is written at the left and at the right, each at most that many points wide."""
        if not self.values:
            return "", ""
        (low, first), (high, last) = self.values[0], self.values[-1]
        if low < high:
            texts = [
                fitting(name, f" {_write(value, percent)}", room) for value, name in (self.values[0], (high, last))
            ]
            return texts[0], texts[1]
        name = first if len(self.values) == 1 else f"all {len(self.values)}:"
        return "", fitting(name, f" {_write(low, percent)}", room)

    def middle(self, percent: bool) -> float:
        """Geometric mean; of shares, one less the geometric mean of what is left."""
        found = [value for value, _ in self.values]
        return 1 - geomean([1 - value for value in found]) if percent else geomean(found)

    def label(self, percent: bool) -> str:
        """Return what is written beside the lane."""
        name = shorten(self.name, 40)
        if not self.values:
            return f"{name}\nno result"
        count = f"{len(self.values)}" + (f" of {self.items}" if len(self.values) < self.items else "")
        return f"{name}\n{MIDDLE} {_write(self.middle(percent), percent)}, n = {count}"


def _lanes(values: Mapping[str, Mapping[str, float]], percent: bool) -> list[_Lane]:
    """Check all values, and sort them; equal ones keep the order in which they come."""
    if not values:
        refuse("values", "must hold at least one series", dict(values))
    faults: list[Fault] = []
    lanes = []
    for name, found in values.items():
        there = {item: value for item, value in found.items() if not is_nothing(value)}
        for item, value in there.items():
            faults += faults_of(f"values[{name!r}][{item!r}]", value, signed=percent)
            if percent and not faults and float(value) >= 1:
                refuse(f"values[{name!r}][{item!r}]", "must be a share below 1", value)
        pairs = [(finite_or_nan(value), item) for item, value in there.items()]
        lanes.append(_Lane(name, sorted(pairs, key=lambda pair: pair[0]), len(found)))
    if faults:
        raise ConfigError(faults[:10])
    if not any(lane.values for lane in lanes):
        refuse("values", "must hold at least one number", {name: dict(found) for name, found in values.items()})
    return lanes


@in_paper_style
def _distribution(
    lanes: list[_Lane],
    quantity: str,
    reference: float | None,
    reference_name: str,
    marks: Mapping[str, Mapping[str, float]],
    percent: bool,
    title: str | None,
) -> Figure:
    """Draw what `distribution_figure` has checked."""
    figure, axes, points = panel([lane.label(percent) for lane in lanes], LANE_INCHES)
    lines = [0.0 if percent else 1.0] + ([] if reference is None else [reference])
    marked = [value for found in marks.values() for value in found.values()]
    seen = [value for lane in lanes for value, _ in lane.values] + lines + marked
    logs = not percent and max(seen) > LOG_FROM * min(seen)
    name = "" if reference is None else _reference_name(reference_name, reference, percent, 0.6 * points)
    ends = [lane.ends(percent, 0.28 * points) for lane in lanes]
    asks: list[Ask] = [(value, MARK_POINTS, MARK_POINTS) for value in (lines[0], *marked)]
    for lane, (left, right) in zip(lanes, ends, strict=True):
        if lane.values:
            asks += [(lane.values[0][0], end_width(left), 0.0), (lane.values[-1][0], 0.0, end_width(right))]
    if reference is not None:
        half = text_points(name) / 2
        asks.append((reference, half, half))
    unit_points = scale(axes, asks, points, logs)
    axes.axvline(lines[0], color=DARK_GREY, lw=0.6, zorder=1, label="_equal")
    if reference is not None:
        named_line(axes, reference, name, "center", ls=(0, (5, 2)), lw=1.0, label="_reference", gid="reference")
    for k, (lane, (left, right)) in enumerate(zip(lanes, ends, strict=True)):
        if lane.values:
            _draw_lane(axes, k, lane, percent, unit_points)
            end_label(axes, lane.values[0][0], k, left, "right")
            end_label(axes, lane.values[-1][0], k, right, "left")
        if k:
            axes.axhline(k - 0.5, color=LIGHT_GREY, lw=0.5, zorder=0)
    value_ticks(axes, percent)
    axes.set_xlabel(f"{quantity} (%)" if percent and "%" not in quantity else quantity)
    mark: dict[str, Any] = {"ls": "none", "marker": "o", "color": BLUE, "ms": MARK_POINTS, "mew": 0.3, "mec": WHITE}
    handles = [
        Line2D([], [], label="one result", **mark),
        Line2D([], [], label=MIDDLE, ls="none", marker="|", color=BLACK, ms=9, mew=2.2),
        *_draw_marks(axes, [lane.name for lane in lanes], marks, percent),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, handlelength=1.6)
    return finish(figure, len(lanes) * LANE_INCHES + 0.85, reference is not None, title)


def _draw_lane(axes: Axes, k: int, lane: _Lane, percent: bool, unit_points: float) -> None:
    """Draw the marks of a lane, those that coincide above each other, and its mean behind them."""
    place = math.log10 if axes.get_xscale() == "log" else float
    offsets = apart([place(value) * unit_points for value, _ in lane.values], MARK_POINTS + 0.1, LANE_ROOM_POINTS)
    heights = [k + offset / (72 * LANE_INCHES) for offset in offsets]
    axes.plot([lane.middle(percent)] * 2, [k - 0.45, k + 0.45], color=BLACK, lw=2.2, solid_capstyle="butt",
              zorder=2, label="_middle", gid="middle")  # fmt: skip
    axes.plot([value for value, _ in lane.values], heights, ls="none", marker="o", color=BLUE, ms=MARK_POINTS,
              mew=0.3, mec=WHITE, zorder=3, label="_lane", gid="lane")  # fmt: skip


def _draw_marks(axes: Axes, lanes: list[str], marks: Mapping[str, Mapping[str, float]], percent: bool) -> list[Line2D]:
    """Draw values to compare with low in their lanes, clear of what is written, and return the legend's entries."""
    handles = []
    for at, name in enumerate(dict.fromkeys(name for found in marks.values() for name in found)):
        look: dict[str, Any] = {"ls": "none", "marker": MARKERS[at % len(MARKERS)], "color": VERMILLION, "mfc": "none"}
        there = {series: found[name] for series, found in marks.items() if name in found}
        for series, value in there.items():
            height = lanes.index(series) + 0.3
            axes.plot([value], [height], ms=5, mew=1.2, zorder=4, label="_mark", gid="mark", **look)
        # As they were published: not rounded.
        told = dict.fromkeys(f"{100 * value:.4g}%" if percent else f"{value:.4g}" for value in there.values())
        handles.append(Line2D([], [], label=f"{name} {', '.join(told)}", ms=5, mew=1.2, **look))
    return handles


def _write(value: float, percent: bool) -> str:
    """Write a value of a lane."""
    if not percent:
        return short_number(value)
    digits = 2 if abs(value) < 0.01 else 1
    return f"{round(100 * value, digits) + 0.0:.{digits}f}%"


def _reference_name(name: str, value: float, percent: bool, room: float) -> str:
    """Return what is written over the reference: its name and value, which is given as it was published."""
    return fitting(name, f" {100 * value:.4g}%" if percent else f" {value:.4g}", room)
