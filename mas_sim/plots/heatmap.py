"""Two swept axes as a heat map: which dataflow wins where, and by how much."""

import math
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from mas_sim.errors import ConfigError, Fault
from mas_sim.plots._frames import (
    QUANTITIES,
    Key,
    Point,
    by_place,
    check_pair,
    in_order,
    labels_of,
    only_workload,
    sweep_rows,
    unfinished,
    unsure,
)
from mas_sim.plots._labels import axis_name
from mas_sim.plots._style import (
    BLACK,
    DARK_GREY,
    LIGHT_GREY,
    STYLE,
    WHITE,
    WIDTH_INCHES,
    Floats,
    columns_that_fit,
    flow_fills,
    in_paper_style,
    refuse,
    text_points,
)

SHORT_NAMES = {
    "layer_wise": "LW", "soft_pipe": "SP", "flat": "FLAT", "tileflow": "TF", "flash": "FA", "fusemax": "FM",
    "mas": "MAS", "mas_overwrite": "MAS+O",
}  # fmt: skip
"""What stands in a cell for a dataflow; the legend says which."""

TIE, NOTHING, NOTHING_AT_ALL = "tie", "nothing fits", "nothing fits, or no result"
NEITHER, NOT_RUN, NO_RATIO = "neither has a result", "not all run yet", "/ 0"
NOT_SWEPT, OUTSIDE = "not in the sweep", "...."
CROSSES = "ratio crosses 1"
TIE_TOLERANCE = 1e-9
"""Two values that differ by no more than this share are equal: sums of energies differ in their last digits."""

Painter = Callable[[int, int, Point], tuple[str, str, str]]
"""Of a cell and its values: colour, hatch and text."""
CELL_POINTS = 6.0
TICK_POINTS = 7.0
MOST_VALUES = 60
"""More columns or rows cannot be told apart on a page."""
TALLEST_INCHES = 8.4
"""All rows of cells together are no taller."""

MORE_IS_BETTER = ("*_busy_share", "exp_available_per_cycle", "speedup*")
"""Columns whose least value is the worst."""


@in_paper_style
def heatmap_figure(
    frame: Any,
    x: str,
    y: str,
    *,
    value: str = "cycles",
    winner_over: str = "dataflow",
    ratio: tuple[str, str] | None = None,
    workload: str | None = None,
    title: str | None = None,
    tie_tolerance: float = TIE_TOLERANCE,
    x_label: str | None = None,
    y_label: str | None = None,
    words: Mapping[str, str] | None = None,
) -> Figure:
    """Draw a sweep over two axes: in each cell the dataflow with the least value, and its margin over the second.

    Cells are coloured by winner; its short name and margin (second over first, `1.12x`) stand in them, and thick lines
    part the regions of different winners. Where nothing fits the cell is hatched; where some dataflow was not run (yet)
    it is empty; where the sweep has no point it is dotted. A question mark: one without a result might still be better.

    Parameters
    ----------
    frame : DataFrame or sequence of mappings
        A row a point, as `store.load_results` returns; done where there is no column `status`.
    x, y
        Columns that were swept, at most 60 values each: no value (`none`), numbers rising, all else as it comes.
    value
        Column of numbers, 0 or more, of which less is better (with a `ratio`, any).
    ratio
        Two dataflows: draw the value of the first over the second's instead, with a thick line where it crosses 1.
    workload
        Which one, where the frame holds several.
    tie_tolerance
        Those above the least value by no more than this share of it tie with it: grey, with their names.
    x_label, y_label
        What stands on the axes, in place of the fields in words.
    words
        What the legend of a ratio says in place of `neither has a result` and `ratio crosses 1`.

    Raises
    ------
    ConfigError
        If rows, columns or the workload are missing, a cell has two rows of a dataflow, an axis more than 60 values,
        or the value is no number or one of which more is better.
    """
    rows = _rows_of_map(frame, x, y, winner_over, value, workload)
    if ratio is None:
        _check_less_is_better(value)
    grid = _grid_of(rows, (x, y), winner_over, value, (x_label or axis_name(x), y_label or axis_name(y)))
    quantity = QUANTITIES.get(value, (value, 1.0))[0].partition(" (")[0]
    if ratio is None:
        _draw_winners(grid, list(dict.fromkeys(str(row[winner_over]) for row in rows)), quantity, tie_tolerance)
    else:
        check_pair(ratio, rows, winner_over)
        _draw_ratio(grid, ratio, quantity, words or {})
    if title is not None:
        grid.figure.suptitle(title)
    return grid.figure


def _grid_of(
    rows: list[dict[str, Any]], axes: tuple[str, str], by: str, value: str, labels: tuple[str, str]
) -> "_Grid":
    """Return the cells, not yet painted."""
    cells = by_place(rows, axes, by, value)
    _check_size(cells, *axes)
    return _Grid(cells, *labels, unfinished(rows, axes), unsure(rows, axes))


def _rows_of_map(
    frame: Any, x: str, y: str, winner_over: str, value: str, workload: str | None
) -> list[dict[str, Any]]:
    """Return the rows of one workload, over two axes."""
    if x == y:
        refuse("y", "must be another axis than x", y)
    rows = sweep_rows(frame, (x, y), winner_over, value, workload)
    only_workload(rows)
    return rows


def _check_less_is_better(value: str) -> None:
    """Refuse a column whose least value does not win."""
    if any(fnmatchcase(value, pattern) for pattern in MORE_IS_BETTER):
        rule = "must be a column of which less is better, such as cycles, since the least wins; or draw it as a ratio"
        refuse("value", rule, value)


def _check_size(cells: dict[tuple[Key, ...], Point], x: str, y: str) -> None:
    """Refuse axes with more values than a page has room for."""
    faults = []
    for k, (name, column) in enumerate((("x", x), ("y", y))):
        count = len({place[k] for place in cells})
        if count > MOST_VALUES:
            rule = f"must have at most {MOST_VALUES} values, but has {count}; draw some of them only"
            faults.append(Fault.of("<python>", None, name, rule, column))
    if faults:
        raise ConfigError(faults)


def short_name(name: str) -> str:
    """Return what stands in a cell for a dataflow."""
    return SHORT_NAMES.get(name, name[:5].upper())


def winners(point: Point, tolerance: float = TIE_TOLERANCE) -> tuple[tuple[str, ...], float]:
    """Return the names with the least value, and the factor to the next one; NaN if there is none or the least is 0."""
    least = min(point.values())
    best = tuple(name for name, value in point.items() if value <= least * (1 + tolerance))
    others = [value for name, value in point.items() if name not in best]
    return best, min(others) / least if others and least > 0 else float("nan")


class _Grid:
    """Cells of a heat map, each a rectangle of its own, and the lines between them."""

    def __init__(
        self, cells: dict[tuple[Key, ...], Point], x_name: str, y_name: str, empty: set[tuple[Key, ...]],
        unsure: set[tuple[Key, ...]],
    ) -> None:  # fmt: skip
        self.columns = in_order([place[0] for place in cells])
        self.rows = in_order([place[1] for place in cells])
        at = {place: (self.columns.index(place[0]), self.rows.index(place[1])) for place in cells}
        self.cells = {at[place]: point for place, point in cells.items() if place not in empty}
        self.waiting = {at[place] for place in cells if place in empty}
        self.unsure = {at[place] for place in unsure if place not in empty}
        width, height = len(self.columns), len(self.rows)
        labels, beside = labels_of(self.columns), labels_of(self.rows)
        margin = 0.9 + _beyond(beside, 30)
        self.cell_inches = min(0.85, (WIDTH_INCHES - margin) / width)
        upright = max(map(text_points, labels)) > self.cell_inches * 72 - 3
        tall = min(0.42, max(0.24, 4.2 / height), TALLEST_INCHES / height)
        high = max(1.7, 0.95 + height * tall, 0.45 + text_points(y_name, STYLE["font.size"]) / 72)
        high += _beyond(labels, TICK_POINTS) if upright else 0.0
        self.figure = Figure(
            figsize=(min(WIDTH_INCHES, max(3.2, margin + width * self.cell_inches)), high),
            layout="constrained",
        )
        self.two_lines = tall * 72 > 2.5 * CELL_POINTS
        self.axes: Axes = self.figure.subplots()
        self.axes.set_xlim(0, width)
        self.axes.set_ylim(0, height)
        step = math.ceil((TICK_POINTS + 1) / (self.cell_inches * 72)) if upright else 1
        self.axes.set_xticks(np.arange(width)[::step] + 0.5, labels[::step], rotation=90 if upright else 0)
        self.axes.set_yticks(np.arange(height) + 0.5, beside)
        self.axes.tick_params(length=0)
        self.axes.set_xlabel(x_name)
        self.axes.set_ylabel(y_name)

    def fill(self, i: int, j: int, colour: str, hatch: str = "", lines: tuple[str, ...] = ()) -> None:
        """Paint one cell, and write into it as many of the lines as fit, on one line or on two."""
        look: dict[str, Any] = {"facecolor": colour, "edgecolor": DARK_GREY if hatch else WHITE, "hatch": hatch or None}
        self.axes.add_patch(Rectangle((i, j), 1, 1, linewidth=0.4, gid=f"cell {i} {j}", **look))
        room = self.cell_inches * 72 - 2
        joined = " ".join(lines)
        fits = [text for text in (joined, "\n".join(lines) if self.two_lines else "", *lines[:1]) if text]
        text = next((t for t in fits if max(text_points(line, CELL_POINTS) for line in t.split("\n")) <= room), None)
        if text is not None:
            self.axes.text(
                i + 0.5, j + 0.5, text, ha="center", va="center", fontsize=CELL_POINTS, linespacing=1.05,
                color=text_colour(colour), gid=f"text {i} {j}",
            )  # fmt: skip

    def part(self, kinds: dict[tuple[int, int], object]) -> None:
        """Draw a thick line between neighbouring cells of different kinds."""
        for (i, j), kind in kinds.items():
            for other, xs, ys in (((i + 1, j), (i + 1, i + 1), (j, j + 1)), ((i, j + 1), (i, i + 1), (j + 1, j + 1))):
                if other in kinds and kinds[other] != kind:
                    self.axes.plot(
                        xs, ys, color=BLACK, linewidth=1.8, solid_capstyle="projecting", gid="boundary", zorder=4
                    )

    def legend(self, entries: list[Any], caption: str | None = None) -> None:
        """Put the legend beneath the map, and over it a line that says what the cells show."""
        everywhere = {(i, j) for i in range(len(self.columns)) for j in range(len(self.rows))}
        outside = everywhere - self.cells.keys() - self.waiting
        for i, j in sorted(outside):
            self.fill(i, j, WHITE, OUTSIDE)
        entries = [*entries, *([_patch(WHITE, NOT_SWEPT, OUTSIDE)] if outside else [])]
        entries += [_patch(WHITE, NOT_RUN)] if self.waiting else []
        if not entries:
            return
        width = self.figure.get_figwidth()
        columns = columns_that_fit([str(entry.get_label()) for entry in entries], width)
        if caption is not None and text_points(caption, TICK_POINTS) > width * 72 - 16:
            caption = caption.replace("; ", "\n")
        self.figure.legend(
            handles=entries, loc="outside lower center", ncols=columns, handlelength=1.4, title=caption,
            title_fontsize=TICK_POINTS,
        )  # fmt: skip
        rows = -(-len(entries) // columns) + (0 if caption is None else 1 + caption.count("\n"))
        self.figure.set_size_inches(width, self.figure.get_figheight() + 0.17 * rows)


def _beyond(labels: list[str], usual_points: float) -> float:
    """Return by how many inches the longest label is longer than usual."""
    return max(0.0, max(text_points(label, TICK_POINTS) for label in labels) - usual_points) / 72


def text_colour(face: str | tuple[float, float, float]) -> str:
    """Return black or white, whichever is easier to read on a colour (relative luminance, WCAG 2.1)."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(face)]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return BLACK if (luminance + 0.05) / 0.05 >= 1.05 / (luminance + 0.05) else WHITE


def _patch(colour: str, label: str, hatch: str = "") -> Patch:
    """Return an entry of the legend for a kind of cell."""
    return Patch(facecolor=colour, edgecolor=DARK_GREY, linewidth=0.4, hatch=hatch, label=label)


def _draw_winners(grid: _Grid, names: list[str], quantity: str, tolerance: float) -> None:
    """Colour each cell by its winner, the one with the least of a quantity."""
    fills = fills_of(names)
    kinds: dict[tuple[int, int], object] = {}
    for (i, j), point in grid.cells.items():
        if not point:
            kinds[i, j] = ()
            grid.fill(i, j, WHITE, "//////")
            continue
        best, margin = winners(point, tolerance)
        kinds[i, j] = best
        by = _factor(margin) if margin == margin else ("alone" if len(point) == 1 else "")
        by += "?" if (i, j) in grid.unsure else ""
        if len(best) == 1:
            grid.fill(i, j, fills[best[0]], lines=(short_name(best[0]), by) if by else (short_name(best[0]),))
        else:
            grid.fill(i, j, LIGHT_GREY, lines=(TIE, "=".join(map(short_name, best))))
    grid.part(kinds)
    won = {best for kind in kinds.values() if isinstance(kind, tuple) and len(kind) == 1 for best in kind}
    entries: list[Any] = [_patch(fills[name], f"{short_name(name)}: {name}") for name in names if name in won]
    tied = {name for kind in kinds.values() if isinstance(kind, tuple) and len(kind) > 1 for name in kind}
    if tied:
        also = [f"{short_name(n)}: {n}" for n in names if n in tied - won]
        tie = TIE if tolerance <= TIE_TOLERANCE else f"{TIE} within {100 * tolerance:g} %"
        label = f"{tie} ({', '.join(also)})" if also else tie
        entries.append(_patch(LIGHT_GREY, label))
    if () in kinds.values():
        entries.append(_patch(WHITE, NOTHING_AT_ALL if grid.unsure & _bare(grid) else NOTHING, "//////"))
    if any(grid.cells[at] for at in grid.unsure):
        entries.append(Line2D([], [], ls="none", marker="$?$", color=BLACK, ms=4, label="one has no result"))
    grid.legend(entries, f"winner: least {quantity}; number: second over winner" if won or tied else None)


def _factor(margin: float) -> str:
    """Write a margin; a very small one with one more digit or as less, so that it does not look like a tie."""
    if margin >= 1.005:
        return f"{margin:.2f}x"
    return "<1.001x" if f"{margin:.3f}" == "1.000" else f"{margin:.3f}x"


def _bare(grid: _Grid) -> set[tuple[int, int]]:
    """Return the cells without any value."""
    return {at for at, point in grid.cells.items() if not point}


def fills_of(names: list[str]) -> dict[str, str]:
    """Return a colour for each name."""
    return {name: colour for name, (colour, _) in flow_fills(names).items()}


def _draw_ratio(grid: _Grid, ratio: tuple[str, str], quantity: str, words: Mapping[str, str]) -> None:
    """Colour each cell by the ratio of two dataflows' values."""
    above, below = ratio
    found = {at: p[above] / p[below] for at, p in grid.cells.items() if above in p and p.get(below, 0.0) > 0}
    values: Floats = np.array(list(found.values()) or [1.0], np.float64)
    scale = Normalize(min(values.min(), 1.0), max(values.max(), 1.0 + 1e-9))
    colours = colormaps["cividis"]
    kinds: dict[tuple[int, int], object] = {}
    lacking: set[str] = set()
    for (i, j), point in grid.cells.items():
        one = [name for name in ratio if name in point]
        if (i, j) in found:
            kinds[i, j] = found[i, j] > 1
            grid.fill(i, j, to_hex(colours(float(scale(found[i, j])))), lines=(f"{found[i, j]:.2f}",))
        elif len(one) == 2:
            lacking |= {NO_RATIO}
            grid.fill(i, j, LIGHT_GREY, lines=(NO_RATIO,))
        elif one:
            lacking |= {*one}
            grid.fill(i, j, LIGHT_GREY, lines=(f"only {short_name(one[0])}",))
        else:
            lacking |= {NEITHER}
            grid.fill(i, j, WHITE, "//////")
    grid.part(kinds)
    entries: list[Any] = []
    if len(set(kinds.values())) == 2:
        entries.append(Line2D([], [], color=BLACK, linewidth=1.8, label=words.get(CROSSES, CROSSES)))
    entries += [
        _patch(LIGHT_GREY, f"{short_name(name)}: only {name} has a result") for name in ratio if name in lacking
    ]
    if NO_RATIO in lacking:
        entries.append(_patch(LIGHT_GREY, f"{NO_RATIO}: no ratio, {below} has 0"))
    if NEITHER in lacking:
        entries.append(_patch(WHITE, words.get(NEITHER, NEITHER), "//////"))
    bar = grid.figure.colorbar(ScalarMappable(scale, colours), ax=grid.axes, pad=0.02, fraction=0.05)
    bar.set_label(f"{quantity} of {above} / {below}")
    bar.outline.set_linewidth(0.6)
    grid.legend(entries)
