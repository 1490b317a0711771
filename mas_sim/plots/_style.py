"""What all figures share: the palette, the style of a paper, the looks of series, and how a figure is saved.

Figures are made with matplotlib's objects, never with `pyplot`: no display, no global state, and nothing of the
user's own style. The same numbers give the same bytes: no date is written, and names inside a file are hashed with a
fixed salt. Colours are Okabe and Ito's, which colour-blind readers can tell apart; no meaning rests on colour alone.
"""

import functools
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, NoReturn, ParamSpec

import numpy as np
import numpy.typing as npt
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.textpath import TextPath
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from mas_sim.errors import ConfigError, Fault, nearest
from mas_sim.trace import unwritable

PNG_DPI = 200
WIDTH_INCHES = 7.2  # two columns of a paper
SUFFIXES = (".svg", ".pdf", ".png")
LABEL_POINTS = 6.5

# Okabe and Ito, "Color Universal Design", 2008; and grey.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE, GREY = "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#BBBBBB"
WHITE, DARK_GREY, LIGHT_GREY = "#FFFFFF", "#777777", "#E6E6E6"
WINE = "#882255"  # Tol, "Colour Schemes", 2021

COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BLACK, DARK_GREY)
MARKERS = "osD^vP*X"
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (5, 1.2, 1, 1.2)), (0, (3, 1, 1, 1, 1, 1)))

STYLE: dict[str, Any] = {
    "font.size": 8,
    "axes.linewidth": 0.6,
    "axes.titlesize": 9,
    "figure.titlesize": 9,
    "hatch.linewidth": 0.8,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "svg.hashsalt": "mas_sim",
    "pdf.fonttype": 42,
}
NO_DATE: dict[str, dict[str, Any]] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": {}}

Row = Mapping[str, Any]
Floats = npt.NDArray[np.float64]
Arguments = ParamSpec("Arguments")


def paper_style() -> AbstractContextManager[None]:
    """Return a context in which matplotlib has its own defaults and ours, whatever the user has set."""
    return style.context(["default", STYLE])


def in_paper_style(make: Callable[Arguments, Figure]) -> Callable[Arguments, Figure]:
    """Let a function that returns a figure make it in `paper_style`, whoever calls it."""

    @functools.wraps(make)
    def styled(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Figure:
        with paper_style():
            return make(*args, **kwargs)

    return styled


# --- files --------------------------------------------------------------------------------------------------------


def figure_files(path: str | Path) -> tuple[Path, ...]:
    """Return the files that a path stands for: itself, or without a suffix one SVG and one PNG file.

    Raises
    ------
    ConfigError
        If the suffix is unknown; names the nearest.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix and suffix not in SUFFIXES:
        rule = f"must end in {', '.join(SUFFIXES)}, or have no suffix"
        raise ConfigError([Fault.of(str(path), None, "", rule, path.suffix, nearest(suffix, SUFFIXES))])
    return (path,) if suffix else (path.with_suffix(".svg"), path.with_suffix(".png"))


def check_figure_path(path: str | Path) -> None:
    """Refuse a file that no figure can be written to, before a search that it is meant for.

    Raises
    ------
    ConfigError
        If the suffix is unknown; names the nearest.
    """
    figure_files(path)


def save_figure(figure: Figure, path: str | Path) -> tuple[Path, ...]:
    """Save a figure; a file that is there already is replaced as a whole, or left as it is if writing fails.

    Parameters
    ----------
    figure
        What any `*_figure` function returns.
    path
        A file that ends in `.svg`, `.pdf` or `.png` (at 200 dpi); without a suffix an SVG and a PNG file are written.

    Returns
    -------
    tuple of Path
        The files written.

    Raises
    ------
    ConfigError
        If the suffix is unknown or a file cannot be written.
    """
    files = figure_files(path)
    drafts: dict[Path, Path] = {}
    try:
        with paper_style():
            for file in files:
                place = Path(os.path.realpath(file))  # a link stays one
                drafts[file] = draft = place.with_name(f".{place.name}.{os.getpid()}.part")
                kind = file.suffix.lower()
                try:
                    figure.savefig(draft, format=kind[1:], dpi=PNG_DPI, metadata=NO_DATE[kind])
                except OSError as error:
                    raise unwritable(file, error) from error
        for file, draft in drafts.items():
            try:
                draft.replace(os.path.realpath(file))
            except OSError as error:
                raise unwritable(file, error) from error
    finally:
        for draft in drafts.values():
            with suppress(OSError):
                draft.unlink()
    return files


# --- what is drawn ------------------------------------------------------------------------------------------------


def refuse(name: str, rule: str, value: object, suggestion: str | None = None) -> NoReturn:
    """Raise the error that says which argument of a figure is wrong, and why."""
    raise ConfigError([Fault.of("<python>", None, name, rule, value, suggestion)])


def series(k: int) -> dict[str, Any]:
    """Return how the k-th series is drawn; the counts of colours and of dashes have no common factor."""
    colour, marker, dashes = (looks[k % len(looks)] for looks in (COLOURS, MARKERS, DASHES))
    return {"color": colour, "marker": marker, "ls": dashes, "lw": 1.1, "ms": 4}


FLOW_LOOKS: dict[str, tuple[str, str, str, Any]] = {
    "mas": (VERMILLION, "", "s", "-"),
    "flat": (SKY, "//////", "o", "--"),
    "layer_wise": (GREY, "", "v", ":"),
    "soft_pipe": (PURPLE, ".....", "P", (0, (3, 1, 1, 1))),
    "tileflow": (GREEN, "\\\\\\\\\\\\", "D", "-."),
    "flash": (ORANGE, "-----", "^", (0, (5, 1))),
    "fusemax": (BLUE, "xxxxx", "X", (0, (1, 1))),
    "mas_overwrite": (YELLOW, "", "<", (0, (5, 1, 1, 1, 1, 1))),
    "mas_overwrite_v": (WINE, "|||||", ">", (0, (2, 2))),
    "mas_overwrite_k": (DARK_GREY, "ooooo", "d", (0, (4, 2, 1, 2))),
}
"""Colour, hatch, marker and dashes of every dataflow, the same in every figure."""
PALE = {YELLOW: "#9a8f00", GREY: DARK_GREY}
"""What is drawn for colours that are too pale for a line."""
STRANGERS = (BLUE, GREEN, PURPLE, BLACK, SKY, ORANGE, VERMILLION, DARK_GREY)


def flow_fills(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return the colour and the hatch of each name: a dataflow's own, and for others those that are left."""
    taken = {FLOW_LOOKS[name][0] for name in names if name in FLOW_LOOKS}
    left = [colour for colour in (*STRANGERS, YELLOW, GREY) if colour not in taken]
    hatches = [look[1] for name, look in FLOW_LOOKS.items() if name not in names]
    strangers = [name for name in names if name not in FLOW_LOOKS]
    found = {name: (left[k % len(left)], hatches[k % len(hatches)]) for k, name in enumerate(strangers)}
    return {name: found[name] if name in found else FLOW_LOOKS[name][:2] for name in names}


def flow_lines(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return how the line of each name is drawn: a dataflow's own way, and for others those that are left."""
    taken = {FLOW_LOOKS[name][0] for name in names if name in FLOW_LOOKS}
    left = [colour for colour in STRANGERS if colour not in taken]
    found: dict[str, dict[str, Any]] = {}
    for k, name in enumerate(name for name in names if name not in FLOW_LOOKS):
        found[name] = series(k) | {"color": left[k % len(left)]}
    for name in names:
        if name in FLOW_LOOKS:
            colour, _, marker, dashes = FLOW_LOOKS[name]
            found[name] = series(0) | {"color": PALE.get(colour, colour), "marker": marker, "ls": dashes}
    return {name: found[name] for name in names}


@functools.lru_cache(maxsize=4096)
def text_points(text: str, size: float = LABEL_POINTS) -> float:
    """Width of a label in points, any digit taken for a wide one, so that all tiles of a product get labels or none."""
    # Measured on the outlines: the same for every kind of file.
    return float(TextPath((0, 0), re.sub(r"\d", "0", text), size=size).get_extents().width)


def columns_that_fit(labels: Sequence[str], width_inches: float, handle_points: float = 34.0) -> int:
    """Return in how many columns a legend is no wider than that; each entry's sign and gaps take `handle_points`."""
    widths = [text_points(label, STYLE["legend.fontsize"]) + handle_points for label in labels]
    for columns in range(len(widths), 1, -1):
        rows, longer = divmod(len(widths), columns)
        ends = np.cumsum([rows + (k < longer) for k in range(columns)])  # filled column by column
        if sum(max(part) for part in np.split(np.array(widths), ends[:-1])) <= width_inches * 72:
            return columns
    return 1


def short_number(value: float) -> str:
    """Write a number in three digits or so: `0.850`, `12.3`, `1,250`, `3.2e+07`."""
    if not math.isfinite(value):
        return str(value)
    if value != 0 and not 1e-3 <= abs(value) < 1e7:
        return f"{value:.2g}"
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:#.3g}"


def plain_number(value: float) -> str:
    """Write a number that stands on an axis, in full, with commas."""
    return f"{value:,.10g}"


def geomean(values: Sequence[float]) -> float:
    """Geometric mean of positive values."""
    return math.exp(sum(math.log(value) for value in values) / len(values))


def power_of_two_axis(axes: Axes, values: Floats) -> None:
    """Give an axis of positive values, in rising order, a scale of powers of two, and ticks at (some of) them."""
    axes.set_xscale("log", base=2)
    axes.set_xlim(values[0] / math.sqrt(2), values[-1] * math.sqrt(2))
    axes.xaxis.set_major_locator(FixedLocator(values[:: -(-len(values) // 9)].tolist()))
    axes.xaxis.set_minor_locator(NullLocator())


def value_axis(axes: Axes, values: Floats, below: float = 0.3) -> None:
    """Scale the upright axis, by powers of ten if the values need it, with a share of room `below` them."""
    seen = values[np.isfinite(values) & (values > 0)]
    if seen.size:
        logs = bool(seen.max() > 20 * seen.min())
        low, high = (np.log10 if logs else np.asarray)([seen.min(), seen.max()])
        room = max(high - low, 0.05 * abs(high), 1e-9)
        low, high = low - below * room, high + 0.1 * room
        low = low if logs else max(0.0, low)
        axes.set_yscale("log" if logs else "linear")
        axes.set_ylim(*((10**low, 10**high) if logs else (low, high)))
        if not logs:
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: plain_number(value)))


def finite_or_nan(value: object) -> float:
    """Return a number as float; NaN for whatever is none, or is not finite."""
    if isinstance(value, bool | np.bool_ | str) or value is None:
        return math.nan
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return math.nan
    return number if math.isfinite(number) else math.nan


def rows_of(data: Any, needed: Sequence[str], what: str = "rows") -> list[dict[str, Any]]:
    """Return the rows of a data frame, or of a sequence of mappings, as dictionaries.

    Raises
    ------
    ConfigError
        If there are none, or columns are missing; names all of them, and the nearest there is.
    """
    records = data.to_dict("records") if hasattr(data, "to_dict") and hasattr(data, "columns") else data
    rows = [dict(row) for row in records]
    if not rows:
        refuse(what, "must hold at least one row", [])
    there = {str(name): None for row in rows for name in row}
    faults = []
    for name in needed:
        lacking = [k for k, row in enumerate(rows) if name not in row]
        if lacking:
            rule = f"must have a column {name!r}" if name not in there else f"has no {name!r} in row {lacking[0]}"
            faults.append(Fault.of("<python>", None, what, rule, list(there), nearest(name, there)))
    if faults:
        raise ConfigError(faults)
    return rows


def check_numbers(rows: Sequence[Row], names: Sequence[str], *, zero: bool = False, what: str = "rows") -> None:
    """Refuse rows in which a column holds anything else than positive numbers (or zero, if it may).

    Raises
    ------
    ConfigError
        With every fault, up to ten.
    """
    faults = []
    for k, row in enumerate(rows):
        for name in names:
            number = finite_or_nan(row[name])
            if not (number > 0 or (zero and number == 0)):
                rule = f"must be a number, {'0 or more' if zero else 'more than 0'}"
                faults.append(Fault.of("<python>", None, f"{what}[{k}].{name}", rule, row[name]))
    if faults:
        raise ConfigError(faults[:10])
