"""Who wins where one assumption at a time is changed: a row for each assumption, a cell for each of its values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from mas_sim.plots._style import (
    BLACK,
    DARK_GREY,
    STYLE,
    WHITE,
    WIDTH_INCHES,
    columns_that_fit,
    in_paper_style,
    refuse,
    text_points,
)
from mas_sim.plots.heatmap import fills_of, short_name, text_colour

ROW_INCHES, CELL_SHARE = 0.68, 0.68
"""Height of a row, and the share of it that its cells take; the values stand under them."""
NAME_POINTS, VALUE_POINTS = 5.5, 6.5
OWN = "framed: the machine as it is"


@dataclass(frozen=True)
class WinnerCell:
    """A value of an assumption, and who is the best there.

    Attributes
    ----------
    label : str
        The value, as it is written under the cell.
    best : tuple of str
        The dataflows that are best there; several where they are tied.
    own : bool
        Whether it is the value of the machine as it is.
    """

    label: str
    best: tuple[str, ...]
    own: bool = False


@in_paper_style
def winners_figure(
    rows: Mapping[str, Sequence[WinnerCell]], *, caption: str | None = None, title: str | None = None
) -> Figure:
    """Draw who is the best at each value of each assumption; a cell is parted among those that are tied.

    Parameters
    ----------
    rows
        The cells of each assumption by its name (with a unit, if it has one), in the order of their values.
    caption
        Stands over the legend: `fewest cycles; tied within 0.5 %`.

    Returns
    -------
    Figure
        7.2 inches wide.

    Raises
    ------
    ConfigError
        If there are no assumptions, one has no cells, or a cell has no winner.
    """
    if not rows:
        refuse("rows", "must hold at least one assumption", dict(rows))
    for name, cells in rows.items():
        if not cells or not all(cell.best for cell in cells):
            refuse(f"rows[{name!r}]", "must hold cells, each with at least one winner", list(cells))
    names = list(dict.fromkeys(flow for cells in rows.values() for cell in cells for flow in cell.best))
    fills = fills_of(names)
    entries = [Patch(facecolor=fills[n], edgecolor=DARK_GREY, lw=0.4, label=f"{short_name(n)}: {n}") for n in names]
    if any(cell.own for cells in rows.values() for cell in cells):
        entries.append(Patch(facecolor=WHITE, edgecolor=BLACK, lw=1.8, label=OWN))
    columns = columns_that_fit([str(entry.get_label()) for entry in entries], WIDTH_INCHES)
    more = 0.17 * (-(-len(entries) // columns) + (caption is not None)) + (0.2 if title else 0.0)
    figure = Figure(figsize=(WIDTH_INCHES, len(rows) * ROW_INCHES + 0.15 + more), layout="constrained")
    axes = figure.subplots()
    axes.set_xlim(0, 1)
    axes.set_ylim(len(rows), 0)
    axes.set_yticks([k + CELL_SHARE / 2 for k in range(len(rows))], [_in_lines(name) for name in rows])
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    widest = max(text_points(part, STYLE["ytick.labelsize"]) for name in rows for part in _in_lines(name).split("\n"))
    points = WIDTH_INCHES * 72 - widest - 20
    for k, cells in enumerate(rows.values()):
        _draw_row(axes, k, cells, fills, points)
    figure.legend(
        handles=entries, loc="outside lower center", ncols=columns, handlelength=1.4, title=caption,
        title_fontsize=STYLE["legend.fontsize"],
    )  # fmt: skip
    if title is not None:
        figure.suptitle(title)
    return figure


def _in_lines(name: str) -> str:
    """Write a unit in brackets on a line of its own."""
    return name.replace(" (", "\n(")


def _draw_row(axes: Axes, k: int, cells: Sequence[WinnerCell], fills: Mapping[str, str], points: float) -> None:
    """Draw the cells of an assumption, on `points` of width."""
    width = 1 / len(cells)
    for i, cell in enumerate(cells):
        height = CELL_SHARE / len(cell.best)
        for j, flow in enumerate(cell.best):
            top = k + j * height
            axes.add_patch(
                Rectangle((i * width, top), width, height, facecolor=fills[flow], edgecolor=WHITE, linewidth=0.3,
                          gid=f"best {k} {i} {flow}")
            )  # fmt: skip
            if text_points(short_name(flow), NAME_POINTS) < width * points - 2:
                axes.text(
                    (i + 0.5) * width, top + height / 2, short_name(flow), ha="center", va="center_baseline",
                    fontsize=NAME_POINTS, color=text_colour(fills[flow]), gid="name",
                )  # fmt: skip
        if cell.own:
            axes.add_patch(
                Rectangle((i * width, k), width, CELL_SHARE, fill=False, edgecolor=BLACK, linewidth=1.8, zorder=4,
                          clip_on=False, gid=f"own {k} {i}")
            )  # fmt: skip
        axes.text(
            (i + 0.5) * width, k + CELL_SHARE + 0.04, cell.label, ha="center", va="top", fontsize=VALUE_POINTS,
            gid="value",
        )  # fmt: skip
