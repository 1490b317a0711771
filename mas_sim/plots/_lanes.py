"""Rows across a figure, each with labels at both of its ends: what distributions and tornado charts share."""

import bisect
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from mas_sim.errors import Fault, shorten
from mas_sim.plots._style import (
    BLACK,
    GREY,
    LABEL_POINTS,
    STYLE,
    WHITE,
    WIDTH_INCHES,
    finite_or_nan,
    plain_number,
    text_points,
)

END_POINTS, GAP_POINTS, EDGE_POINTS = 6.0, 5.0, 7.0
"""Size of the labels at both ends; room between an end and its label, and between anything and the panel's edge."""

NAME_SHIFT_POINTS = 2.5
"""How far the name of a line stands from it, if not above it, so that two names back to back do not touch."""

Ask = tuple[float, float, float]
"""A place on an axis, and the room in points that is needed to its left and to its right."""


def is_nothing(value: object) -> bool:
    """Whether there is no result: None or NaN."""
    return value is None or (isinstance(value, float | np.floating) and math.isnan(value))


def faults_of(name: str, value: object, *, signed: bool) -> list[Fault]:
    """Return what is wrong with a number: it must be finite, and positive unless `signed`."""
    number = finite_or_nan(value)
    if math.isnan(number) or isinstance(value, str):
        return [Fault.of("<python>", None, name, "must be a finite number", value)]
    if number <= 0 and not signed:
        return [Fault.of("<python>", None, name, "must be a number, more than 0", value)]
    return []


def fitting(name: str, tail: str, room: float) -> str:
    """Cut a name until it is, with what stands behind it, at most that many points wide."""
    lengths = range(4, len(name))
    cut = bisect.bisect_right(lengths, room, key=lambda n: text_points(f"{shorten(name, n)}{tail}", END_POINTS))
    fits = text_points(f"{name}{tail}", END_POINTS) <= room
    return f"{name if fits else shorten(name, max(4, 3 + cut))}{tail}".strip()


def end_width(text: str) -> float:
    """Room that a label at an end needs, in points."""
    return text_points(text, END_POINTS) + GAP_POINTS if text else 0.0


def name_ask(place: float, name: str, side: str) -> Ask:
    """Return the room that the name of a line needs, which stands to that side as text is aligned."""
    before = {"left": 0.0, "center": 0.5, "right": 1.0}[side]
    width = text_points(name) + NAME_SHIFT_POINTS
    return place, width * before, width * (1 - before)


def panel(labels: Sequence[str], inches: float) -> tuple[Figure, Axes, float]:
    """Make a figure with a row for each label, the first on top; return how many points wide its panel will be."""
    figure = Figure(figsize=(WIDTH_INCHES, len(labels) * inches + 0.8), layout="constrained")
    axes = figure.subplots()
    axes.set_yticks(range(len(labels)), labels)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    widest = max(text_points(line, STYLE["ytick.labelsize"]) for label in labels for line in label.split("\n"))
    return figure, axes, WIDTH_INCHES * 72 - widest - 14


def scale(axes: Axes, asks: Sequence[Ask], points: float, logs: bool) -> float:
    """Scale the axis so that there is room for all that was asked; return how many points one unit of it takes.

    A unit of a logarithmic axis is a decade. The width `points` of the panel is divided between what lies between the
    outermost places and the labels beyond them: the fixed point of `1 / scale = (span + room / scale) / points`.
    """
    places = np.array([ask[0] for ask in asks], np.float64)
    places = np.log10(places) if logs else places
    left, right = (np.array([ask[side] for ask in asks]) + EDGE_POINTS for side in (1, 2))
    # Where all stands at one place, a few percent about it are shown.
    least = 0.05 * float(np.abs(places).max() or 1.0)
    low, high = float(places.min()), float(places.max())
    spare = max(0.0, least - (high - low)) / 2
    unit = max(high - low, least) / points
    for _ in range(60):
        start = min(float((places - left * unit).min()), low - spare)
        end = max(float((places + right * unit).max()), high + spare)
        unit = (end - start) / points
    axes.set_xscale("log" if logs else "linear")
    axes.set_xlim(*((10**start, 10**end) if logs else (start, end)))
    return 1 / unit


def apart(places: Sequence[float], size: float, room: float) -> list[float]:
    """Return how far from the middle each mark stands, so that none lies over another; all in points.

    The `places` rise; a mark is `size` wide, and may stand `room` above or beneath the middle. Each takes the place
    nearest to the middle that is free. Where a lane is too low for them all, they move together until it holds them.
    """
    offsets: list[float] = []
    for i, place in enumerate(places):
        near = [(places[j], offsets[j]) for j in range(i) if place - places[j] < size]
        rank = 0
        while True:
            offset = size * ((rank + 1) // 2) * (1 if rank % 2 else -1)
            if all(math.hypot(place - x, offset - y) >= size - 1e-9 for x, y in near):
                break
            rank += 1
        offsets.append(offset)
    furthest = max((abs(offset) for offset in offsets), default=0.0)
    shrink = min(1.0, room / furthest) if furthest else 1.0
    return [offset * shrink for offset in offsets]


def end_label(axes: Axes, place: float, row: int, text: str, align: str) -> None:
    """Write a label beside the end of a row, legible over any line."""
    if text:
        shift = -GAP_POINTS if align == "right" else GAP_POINTS
        axes.annotate(
            text, (place, row), (shift, 0), textcoords="offset points", ha=align, va="center", fontsize=END_POINTS,
            gid="end", zorder=5, path_effects=[withStroke(linewidth=3.0, foreground=WHITE)],
        )  # fmt: skip


def named_line(axes: Axes, place: float, name: str, side: str, **look: Any) -> None:
    """Draw an upright line with its name above the panel, aligned to that side."""
    axes.axvline(place, **{"color": BLACK, "zorder": 1.5, **look})
    if name:
        shift = {"left": 1.0, "right": -1.0}.get(side, 0.0) * NAME_SHIFT_POINTS
        axes.annotate(
            name, (place, 1), (shift, 2), xycoords=("data", "axes fraction"), textcoords="offset points", ha=side,
            va="bottom", fontsize=LABEL_POINTS, gid="line",
        )  # fmt: skip


def value_ticks(axes: Axes, percent: bool = False) -> None:
    """Put ticks at round numbers, also on a logarithmic axis of one or two decades."""
    low, high = axes.get_xlim()
    if axes.get_xscale() == "log":
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for steps in ((1, 1.5, 2, 3, 4, 5, 6, 8), (1, 2, 5), (1,)):
            ticks = [t for t in (step * 10.0**d for d in decades for step in steps) if low <= t <= high]
            if len(ticks) <= 12:
                break
        axes.xaxis.set_major_locator(FixedLocator(ticks))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(9, steps=[1, 2, 2.5, 5, 10]))
    factor = 100 if percent else 1
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: plain_number(round(factor * value, 10) + 0.0)))
    axes.grid(axis="x", color=GREY, linewidth=0.3)
    axes.set_axisbelow(True)


def finish(figure: Figure, inches: float, names: bool, title: str | None) -> Figure:
    """Give a figure its height, with room for the names of lines and for the title, and return it."""
    figure.set_size_inches(WIDTH_INCHES, inches + 0.15 * names + (0.2 if title else 0.0))
    if title is not None:
        figure.suptitle(title)
    return figure
