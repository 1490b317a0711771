"""Dataflows over the sequence length: who is fastest where, what it costs, and where nothing fits."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from mas_sim.plots._style import (
    BLACK,
    GREY,
    WIDTH_INCHES,
    Floats,
    Row,
    check_numbers,
    figure_files,
    flow_lines,
    in_paper_style,
    power_of_two_axis,
    refuse,
    rows_of,
    save_figure,
    value_axis,
)

_RING: dict[str, Any] = {"ls": "none", "marker": "o", "ms": 8.5, "mfc": "none", "mec": BLACK, "mew": 0.7}
_CROSS: dict[str, Any] = {"ls": "none", "marker": "x", "ms": 4, "mew": 1.0}


def plot_crossover(rows: Sequence[Row], path: str | Path, *, title: str | None = None) -> tuple[Path, ...]:
    """Draw cycles and energy of several dataflows over the sequence length, and save the figure.

    On the left, cycles as a multiple of the fewest at that length, the winner's point ringed; on the right, energy
    divided by N squared, which is flat where energy grows with the number of scores. Where nothing of a dataflow fits,
    its line is broken, and a cross of its colour stands at the bottom.

    Parameters
    ----------
    rows : sequence of mappings
        `{"n": sequence length, "results": {name: {"cycles": ..., "energy_pj": ...} or None}, "winner": name}`; a name
        that is missing counts as None.
    path
        As in `plot_timeline`.

    Returns
    -------
    tuple of Path
        The files written.

    Raises
    ------
    ConfigError
        If there are no rows, or the file has an unknown suffix or cannot be written.
    """
    figure_files(path)  # before the figure is made
    return save_figure(crossover_figure(rows, title=title), path)


@in_paper_style
def crossover_figure(rows: Sequence[Row], *, title: str | None = None) -> Figure:
    """Return the figure that `plot_crossover` saves."""
    if not rows:
        refuse("rows", "must hold at least one sequence length", rows)
    rows = rows_of(rows, ("n", "results", "winner"))
    check_numbers(rows, ("n",))
    rows = sorted(rows, key=lambda row: int(row["n"]))
    lengths = np.array([row["n"] for row in rows], np.float64)
    names = list(dict.fromkeys(name for row in rows for name in row["results"]))
    cycles, energy = _table(rows, names, "cycles"), _table(rows, names, "energy_pj")
    fewest = np.where(np.isnan(cycles), np.inf, cycles).min(axis=0, initial=np.inf)
    looks = flow_lines(names)
    figure = Figure(figsize=(WIDTH_INCHES, 2.9), layout="constrained")
    panels = figure.subplots(1, 2)
    for axes, values in zip(panels, (cycles / np.maximum(fewest, 1), energy / lengths**2), strict=True):
        for k in range(len(names)):
            axes.plot(lengths, values[k], **looks[names[k]])
            nothing = lengths[np.isnan(values[k])]
            height = np.full(len(nothing), 0.02 + 0.02 * k)  # in parts of the panel's height
            axes.plot(nothing, height, transform=axes.get_xaxis_transform(), color=looks[names[k]]["color"], **_CROSS)
        _length_axis(axes, lengths, values)
    for i, row in enumerate(rows):
        if row["winner"] in names and np.isfinite(cycles[names.index(row["winner"]), i]):
            panels[0].plot(lengths[i], cycles[names.index(row["winner"]), i] / max(1, fewest[i]), **_RING)
    panels[0].set_ylabel("cycles / fewest cycles (1 = fastest)")
    panels[1].set_ylabel("energy / $N^{2}$ (pJ)")
    entries = [Line2D([], [], label=name, **looks[name]) for name in names]
    entries.append(Line2D([], [], label="winner", **_RING))
    if np.isnan(cycles).any():
        entries.append(Line2D([], [], label="does not fit, or is too long to simulate", color=BLACK, **_CROSS))
    figure.legend(handles=entries, loc="outside lower center", ncols=min(7, len(entries)), handlelength=3.2)
    if title is not None:
        figure.suptitle(title)
    return figure


def _table(rows: Sequence[Row], names: list[str], key: str) -> Floats:
    """Collect one result of every name at every length; NaN where nothing fits."""
    found = [[(row["results"].get(name) or {}).get(key, math.nan) for row in rows] for name in names]
    return np.array(found, np.float64).reshape(len(names), len(rows))


def _length_axis(axes: Axes, lengths: Floats, values: Floats) -> None:
    """Scale and label the axis of sequence lengths, by powers of two; and the other by powers of ten if need be."""
    power_of_two_axis(axes, lengths)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda n, _: f"{n / 1024:.0f}K" if n % 1024 == 0 else f"{n:.0f}"))
    axes.set_xlabel("sequence length $N$ (tokens; K = 1,024)")
    value_axis(axes, values)  # below is room for the crosses
    axes.grid(color=GREY, linewidth=0.3)
