"""Speedups over the ratio of VEC to MAC time, beside what a perfect overlap of the two would give."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from mas_sim.plots._style import (
    BLACK,
    COLOURS,
    GREY,
    MARKERS,
    WHITE,
    check_numbers,
    columns_that_fit,
    in_paper_style,
    rows_of,
)

HOLLOW = "dram"
"""What limits points that are drawn hollow: there, the ratio of VEC to MAC is not what counts."""
EVERY_POWERS = 2
"""An axis of more powers of two than six has a tick at every second one."""


@in_paper_style
def ratio_figure(
    rows: Any, *, ideal: Callable[[float], float], ideal_name: str = "ideal", title: str | None = None
) -> Figure:
    """Draw speedups over r, VEC time over MAC time, a mark for each point; those that DRAM limits are hollow.

    Parameters
    ----------
    rows : DataFrame or sequence of mappings
        A row a point: `network`, `r`, `speedup`, `limited_by` (`mac`, `vec` or `dram`).
    ideal
        The curve to compare with, a function of r.
    ideal_name
        What it is called in the legend.

    Raises
    ------
    ConfigError
        If there are no rows, or `r` or `speedup` is not positive.
    """
    points = rows_of(rows, ("network", "r", "speedup", "limited_by"))
    check_numbers(points, ("r", "speedup"))
    figure = Figure(figsize=(4.6, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.set_xscale("log", base=2)
    low = math.log2(min(row["r"] for row in points)) - 0.5
    high = math.log2(max(row["r"] for row in points)) + 0.5
    axes.set_xlim(2.0**low, 2.0**high)
    curve = 2.0 ** np.linspace(low, high, 601)
    axes.plot(curve, [ideal(float(r)) for r in curve], color=BLACK, lw=0.9, ls=(0, (6, 2)), label=ideal_name, zorder=2)
    for k, name in enumerate(dict.fromkeys(str(row["network"]) for row in points)):
        look: dict[str, Any] = {"color": COLOURS[k % len(COLOURS)], "marker": MARKERS[k % len(MARKERS)], "ls": "none"}
        for hollow in (False, True):
            own = [row for row in points if row["network"] == name and (row["limited_by"] == HOLLOW) == hollow]
            face: dict[str, Any] = {"mfc": WHITE} if hollow else {}
            label = f"_{name} hollow" if hollow else f"_{name}"
            axes.plot([r["r"] for r in own], [r["speedup"] for r in own], label=label, ms=4, zorder=3, **look, **face)
        axes.plot([], [], label=name, ms=4, **look)
    powers = np.arange(math.ceil(low), math.floor(high) + 1)
    powers = powers[powers % EVERY_POWERS == 0] if len(powers) > 6 else powers
    axes.xaxis.set_major_locator(FixedLocator([2.0**power for power in powers.tolist()]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda r, _: f"{r:g}" if r >= 1 else f"1/{1 / r:g}"))
    axes.set_xlabel("r = VEC time / MAC time")
    axes.set_ylabel("speedup of mas over flat")
    axes.grid(color=GREY, linewidth=0.3)
    axes.set_axisbelow(True)
    handles: list[Any] = list(axes.get_legend_handles_labels()[0])
    if any(row["limited_by"] == HOLLOW for row in points):
        hollow_mark: dict[str, Any] = {"ls": "none", "marker": "o", "color": BLACK, "mfc": WHITE, "ms": 4}
        handles.append(Line2D([], [], label="hollow: DRAM is the limit", **hollow_mark))
    columns = columns_that_fit([str(handle.get_label()) for handle in handles], 4.6, 40)
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, handlelength=2.4)
    if title is not None:
        figure.suptitle(title)
    return figure
