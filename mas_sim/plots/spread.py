"""How far results spread: over networks, in a lane for each comparison; and over what an assumption may be.

The second is a tornado chart: a bar for each assumption, from the result at one end of its range to that at the other,
the widest on top. It shows which of them decide, and whether any of them changes the winner.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
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
    name_ask,
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
    SKY,
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
BAR_INCHES, BAR_HEIGHT = 0.24, 0.62
LOG_FROM = 4
"""Ratios whose ends are further apart than this factor stand on a logarithmic axis."""
DOES_NOT_FIT = "does not fit"


@dataclass(frozen=True)
class TornadoBar:
    """An assumption, and the results at both ends of its range.

    Attributes
    ----------
    name : str
        The assumption.
    low, high : float
        The results at the two ends, in either order; NaN where nothing fits.
    low_label, high_label : str
        What the assumption was there: `4 GB/s`.
    """

    name: str
    low: float
    high: float
    low_label: str
    high_label: str


# --- lanes --------------------------------------------------------------------------------------------------------


def distribution_figure(
    values: Mapping[str, Mapping[str, float]],
    *,
    quantity: str,
    reference: float | None = None,
    reference_name: str = "",
    percent: bool = False,
    title: str | None = None,
) -> Figure:
    """Draw how ratios spread over items: a lane for each series, in it a mark for each item.

    A thick tick is the geometric mean of a lane, or its median with `percent`. The least and the greatest value are
    named. Marks that would coincide stand above each other. The axis is logarithmic where the ends of ratios are more
    than a factor of 4 apart.

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
        What that value is: `published maximum`; the value is written behind it.
    percent
        Values and reference are shares of 1, of any sign, and are written in percent (0.54 as 54%).

    Returns
    -------
    Figure
        7.2 inches wide.

    Raises
    ------
    ConfigError
        If there are no series or no values at all, or a value (or the reference) is not finite, or is not a positive
        number without `percent`.
    """
    lanes = _lanes(values, percent)
    if reference is not None and (faults := faults_of("reference", reference, signed=percent)):
        raise ConfigError(faults)
    return _distribution(lanes, quantity, reference, reference_name, percent, title)


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
        """Geometric mean, or the median of percents."""
        found = [value for value, _ in self.values]
        return median(found) if percent else geomean(found)

    def label(self, percent: bool) -> str:
        """Return what is written beside the lane."""
        name = shorten(self.name, 40)
        if not self.values:
            return f"{name}\nno result"
        count = f"{len(self.values)}" + (f" of {self.items}" if len(self.values) < self.items else "")
        return f"{name}\n{_middle_name(percent)} {_write(self.middle(percent), percent)}, n = {count}"


def _middle_name(percent: bool) -> str:
    return "median" if percent else "geomean"


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
        pairs = [(finite_or_nan(value), item) for item, value in there.items()]
        lanes.append(_Lane(name, sorted(pairs, key=lambda pair: pair[0]), len(found)))
    if faults:
        raise ConfigError(faults[:10])
    if not any(lane.values for lane in lanes):
        refuse("values", "must hold at least one number", {name: dict(found) for name, found in values.items()})
    return lanes


@in_paper_style
def _distribution(
    lanes: list[_Lane], quantity: str, reference: float | None, reference_name: str, percent: bool, title: str | None
) -> Figure:
    """Draw what `distribution_figure` has checked."""
    figure, axes, points = panel([lane.label(percent) for lane in lanes], LANE_INCHES)
    lines = [0.0 if percent else 1.0] + ([] if reference is None else [reference])
    seen = [value for lane in lanes for value, _ in lane.values] + lines
    logs = not percent and max(seen) > LOG_FROM * min(seen)
    name = "" if reference is None else _reference_name(reference_name, reference, percent, 0.6 * points)
    ends = [lane.ends(percent, 0.28 * points) for lane in lanes]
    asks: list[Ask] = [(lines[0], 0.0, 0.0)]
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
        Line2D([], [], label=_middle_name(percent), ls="none", marker="|", color=BLACK, ms=9, mew=2.2),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, handlelength=1.6)
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


def _write(value: float, percent: bool) -> str:
    """Write a value of a lane."""
    if not percent:
        return short_number(value)
    digits = 2 if abs(value) < 0.01 else 1
    return f"{round(100 * value, digits) + 0.0:.{digits}f}%"


def _reference_name(name: str, value: float, percent: bool, room: float) -> str:
    """Return what is written over the reference: its name and value, which is given as it was published."""
    return fitting(name, f" {100 * value:.4g}%" if percent else f" {value:.4g}", room)


# --- tornado ------------------------------------------------------------------------------------------------------


def tornado_figure(
    bars: Sequence[TornadoBar],
    *,
    nominal: float,
    quantity: str,
    flip: float | None = 1.0,
    flip_name: str = "",
    title: str | None = None,
) -> Figure:
    """Draw how much each assumption moves a result: a bar for each, the widest on top.

    What lies beyond `flip`, seen from the nominal result, is shaded, and the parts of bars there are hatched. A bar of
    which both ends lie on one side of the nominal result is joined to it by a thin line, which counts as width. Where
    nothing fits at an end, the bar ends at the nominal result with a cross and a note.

    Parameters
    ----------
    bars
        The assumptions, in any order; equally wide ones keep theirs.
    nominal
        The result with every assumption at its nominal value.
    quantity
        What the results are: `speedup of mas over flat`.
    flip
        The result at which the winner changes, drawn as a dashed line; None if there is none.
    flip_name
        What is written there; `the winner changes` unless given.

    Returns
    -------
    Figure
        7.2 inches wide.

    Raises
    ------
    ConfigError
        If there are no bars, no end is a number, an end is neither finite nor NaN, or `nominal` or `flip` is not
        finite.
    """
    if not bars:
        refuse("bars", "must hold at least one assumption", list(bars))
    faults = faults_of("nominal", nominal, signed=True)
    faults += [] if flip is None else faults_of("flip", flip, signed=True)
    for k, bar in enumerate(bars):
        for end in ("low", "high"):
            value = getattr(bar, end)
            faults += [] if is_nothing(value) else faults_of(f"bars[{k}].{end}", value, signed=True)
    if faults:
        raise ConfigError(faults[:10])
    spans = [_Span.of(bar, float(nominal)) for bar in bars]
    if not any(end.fits for span in spans for end in (span.left, span.right)):
        refuse("bars", "must hold at least one number", list(bars))
    spans.sort(key=lambda span: -span.width(nominal))
    return _tornado(spans, float(nominal), quantity, flip, flip_name or "the winner changes", title)


@dataclass(frozen=True)
class _End:
    """One end of a bar; at the nominal result if nothing fits there."""

    value: float
    label: str
    fits: bool

    def text(self, room: float) -> str:
        """Return what is written there, at most that many points wide."""
        tail = short_number(self.value) if self.fits else DOES_NOT_FIT
        return fitting(self.label, f": {tail}" if self.label else tail, room)


@dataclass(frozen=True)
class _Span:
    """A bar by its ends, the lesser result at the left."""

    name: str
    left: _End
    right: _End

    @classmethod
    def of(cls, bar: TornadoBar, nominal: float) -> "_Span":
        """Sort the ends of a bar."""
        ends = [
            _End(nominal if is_nothing(value) else float(value), label, not is_nothing(value))
            for value, label in ((bar.low, bar.low_label), (bar.high, bar.high_label))
        ]
        left, right = sorted(ends, key=lambda end: end.value)
        return cls(bar.name, left, right)

    def width(self, nominal: float) -> float:
        """How far the assumption moves the result, from one end to the other or to the nominal one."""
        return max(self.right.value, nominal) - min(self.left.value, nominal)


@in_paper_style
def _tornado(
    spans: list[_Span], nominal: float, quantity: str, flip: float | None, flip_name: str, title: str | None
) -> Figure:
    """Draw what `tornado_figure` has checked."""
    figure, axes, points = panel([shorten(span.name, 44) for span in spans], BAR_INCHES)
    room = 0.28 * points
    texts = [(span.left.text(room), span.right.text(room)) for span in spans]
    nominal_name, flip_name = f"nominal {short_number(nominal)}", fitting(flip_name, "", 0.4 * points)
    # The two names stand side by side, each on its side of the other's line.
    sides = ("center", "center") if flip is None else ("left", "right") if flip <= nominal else ("right", "left")
    asks: list[Ask] = [name_ask(nominal, nominal_name, sides[0])]
    asks += [] if flip is None else [name_ask(flip, flip_name, sides[1])]
    for span, (left, right) in zip(spans, texts, strict=True):
        asks.append((span.left.value, end_width(left), 0.0))
        asks.append((span.right.value, 0.0, end_width(right)))
    scale(axes, asks, points, logs=False)
    named_line(axes, nominal, nominal_name, sides[0], lw=0.9, label="_nominal", gid="nominal")
    if flip is not None:
        if flip != nominal:
            edge = axes.get_xlim()[flip > nominal]
            axes.axvspan(min(flip, edge), max(flip, edge), color=LIGHT_GREY, lw=0, zorder=0, label="_beyond")
        named_line(axes, flip, flip_name, sides[1], ls=(0, (5, 2)), lw=1.0, label="_flip", gid="flip")
    for k, (span, (left, right)) in enumerate(zip(spans, texts, strict=True)):
        _draw_bar(axes, k, span, nominal, flip)
        end_label(axes, span.left.value, k, left, "right")
        end_label(axes, span.right.value, k, right, "left")
    value_ticks(axes)
    axes.set_xlabel(quantity)
    return finish(figure, len(spans) * BAR_INCHES + 0.75, True, title)


def _draw_bar(axes: Axes, k: int, span: _Span, nominal: float, flip: float | None) -> None:
    """Draw a bar, hatched where it lies beyond the flip, and what joins it to the nominal result."""
    low, high = span.left.value, span.right.value
    kept, beyond = [(low, high)], []
    if flip is not None and flip < nominal:
        kept, beyond = [(max(low, flip), high)], [(low, min(high, flip))]
    elif flip is not None and flip > nominal:
        kept, beyond = [(low, min(high, flip))], [(max(low, flip), high)]
    for parts, colour, hatch, name in ((kept, SKY, None, "_kept"), (beyond, VERMILLION, "//////", "_flipped")):
        for start, stop in parts:
            if stop > start:
                axes.barh(k, stop - start, BAR_HEIGHT, left=start, color=colour, edgecolor=BLACK, linewidth=0.4,
                          hatch=hatch, zorder=2, label=name)  # fmt: skip
    joined = (nominal, low) if low > nominal else (high, nominal) if high < nominal else None
    if joined is not None:
        axes.plot(joined, [k, k], color=DARK_GREY, lw=0.7, zorder=1, label="_joined")
    for end in (span.left, span.right):
        if not end.fits:
            axes.plot([end.value], [k], ls="none", marker="x", color=BLACK, ms=4, mew=1.0, zorder=4, label="_misfit")
