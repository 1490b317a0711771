"""Figures: a run as a Gantt chart, and dataflows over the sequence length; the only module that imports matplotlib.

Figures are made with matplotlib's objects, never with `pyplot`: no display, no global state, and nothing of the
user's own style. The same numbers give the same bytes: no date is written, and names inside a file are hashed with a
fixed salt. Colours are Okabe and Ito's, which colour-blind readers can tell apart; no meaning rests on colour alone.
"""

import functools
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.textpath import TextPath
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from mas_sim.errors import ConfigError, Fault, nearest
from mas_sim.schedule import F_OVER, F_QUEUE, LOAD, MAC, UNIT_NAMES, UNITS, Schedule
from mas_sim.timeline import Timeline
from mas_sim.trace import Span, items, kind_of, part_names, spans, unwritable

PNG_DPI = 200
WIDTH_INCHES = 7.2  # two columns of a paper
SUFFIXES = (".svg", ".pdf", ".png")

# Okabe and Ito, "Color Universal Design", 2008; and grey.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE, GREY = "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#BBBBBB"
WHITE, DARK_GREY = "#FFFFFF", "#777777"

_STYLE: dict[str, Any] = {
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
_NO_DATE: dict[str, dict[str, Any]] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": {}}


def _paper_style() -> AbstractContextManager[None]:
    """Return a context in which matplotlib has its own defaults and ours, whatever the user has set."""
    return style.context(["default", _STYLE])


def _files(path: str | Path) -> tuple[Path, ...]:
    """Return the files that a path stands for: itself, or without a suffix one SVG and one PNG file."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix and suffix not in SUFFIXES:
        rule = f"must end in {', '.join(SUFFIXES)}, or have no suffix"
        raise ConfigError([Fault.of(str(path), None, "", rule, path.suffix, nearest(suffix, SUFFIXES))])
    return (path,) if suffix else (path.with_suffix(".svg"), path.with_suffix(".png"))


def _save(figure: Figure, files: tuple[Path, ...]) -> tuple[Path, ...]:
    """Write a figure to each of the files."""
    for file in files:
        suffix = file.suffix.lower()
        try:
            figure.savefig(file, format=suffix[1:], dpi=PNG_DPI, metadata=_NO_DATE[suffix])
        except OSError as error:
            raise unwritable(file, error) from error
    return files


# --- a run as a Gantt chart ---------------------------------------------------------------------------------------

BAR_TOP, BAR_BOTTOM = 0.34, 0.92
"""Where bars are in a lane of height 1, downwards; the names of what they work on stand above them."""
BAR_MIDDLE, LANE_INCHES = (BAR_TOP + BAR_BOTTOM) / 2, 0.44
BAR_POINTS = (BAR_BOTTOM - BAR_TOP) * LANE_INCHES * 72
LABEL_POINTS = 6.5


class _Look(NamedTuple):
    """How a kind of bar is drawn, and what the legend says of it."""

    legend: str
    face: str
    edge: str = WHITE
    hatch: str = ""
    text: str = BLACK


_LOOKS = {
    "qk": _Look(r"$C = QK^{T}$", SKY),
    "mask": _Look("mask", BLACK, text=WHITE),
    "softmax": _Look(r"$P = \mathrm{softmax}(C)$", YELLOW),
    "online": _Look("online softmax", YELLOW),
    "exp": _Look(r"$P = \exp(C - m)$ on MAC", ORANGE),
    "pv": _Look(r"$O = PV$", GREEN, text=WHITE),
    "correct": _Look("$O$ scaled, added", BLUE, text=WHITE),
    "normalize": _Look("$O$ / row sum", WHITE, BLUE, "....."),
    "load": _Look("load", PURPLE),
    "store": _Look("store", GREY),
    "stopped": _Look("stopped, work lost", WHITE, VERMILLION, "//////"),
    "redone": _Look("lost work done again", VERMILLION, text=WHITE),
    "reloaded": _Look("tiles loaded again", BLUE, text=WHITE),
}
"""By `trace.kind_of`, in the order of the legend. What shares a colour never shares a chart."""


def plot_timeline(
    schedule: Schedule,
    timeline: Timeline,
    path: str | Path,
    *,
    first_cycle: int = 0,
    last_cycle: int | None = None,
    core: int | None = None,
    title: str | None = None,
) -> tuple[Path, ...]:
    """Draw a run as a Gantt chart, one lane for each unit, and save it.

    A bar is one instruction, coloured by its operation. Above the bars stands what they work on (`C_3`: row block 3;
    `C_{1,3}`: of group 1, where there are several), in them the kv tile or the steps of the softmax pass. Work that was
    stopped, and so lost, is hatched; work done again and tiles loaded again have colours of their own, and dashed lines
    say when tiles were overwritten and when they are back. The thin line behind a load is the DRAM latency.

    Parameters
    ----------
    path
        `.svg`, `.pdf` or `.png` (at 200 dpi); without a suffix, an SVG and a PNG file are written.
    first_cycle, last_cycle
        The window `[first_cycle, last_cycle)`; up to the end of the run unless given. Some six rounds stay readable.
    core
        Draw this core only.

    Returns
    -------
    tuple of Path
        The files written.

    Raises
    ------
    ConfigError
        If the window is empty, no such core has work, or the file has an unknown suffix or cannot be written.
    """
    files = _files(path)
    last_cycle = max(timeline.cycles, first_cycle + 1) if last_cycle is None else last_cycle
    with _paper_style():
        return _save(timeline_figure(schedule, timeline, (first_cycle, last_cycle), core, title), files)


def timeline_figure(
    schedule: Schedule, timeline: Timeline, window: tuple[int, int], core: int | None = None, title: str | None = None
) -> Figure:
    """Return the figure that `plot_timeline` saves."""
    cores = sorted(set((schedule.instructions[:, F_QUEUE] // UNITS).tolist()))
    if window[1] <= window[0]:
        rule = f"must be more than first_cycle, {window[0]}"
        raise ConfigError([Fault.of("<python>", None, "last_cycle", rule, window[1])])
    if core is not None and core not in cores:
        raise ConfigError([Fault.of("<python>", None, "core", f"must be a core that has work, of {cores}", core)])
    chart = _Chart(schedule, timeline, cores if core is None else [core], window, title)
    drawn = spans(schedule, timeline, first_cycle=window[0], last_cycle=window[1], core=core)
    for y, lane in enumerate(chart.lanes):
        chart.draw_lane(y, sorted((s for s in drawn if (s.core, s.unit) == lane), key=lambda s: (s.begin, s.row)))
    looks = {kind_of(schedule, span) for span in drawn}
    entries: list[Patch | Line2D] = [
        Patch(facecolor=look.face, edgecolor=look.edge, hatch=look.hatch, label=look.legend)
        for key, look in _LOOKS.items()
        if key in looks
    ]
    entries += chart.draw_overwrites()
    if entries:
        chart.figure.legend(handles=entries, loc="lower center", ncols=min(5, len(entries)), handlelength=1.8)
    return chart.figure


class _Chart:
    """A Gantt chart while it is drawn: lanes of the same height in every figure, and one window of cycles."""

    def __init__(
        self, schedule: Schedule, timeline: Timeline, cores: list[int], window: tuple[int, int], title: str | None
    ) -> None:
        self.schedule, self.timeline, self.window = schedule, timeline, window
        self.lanes = [(core, unit) for core in cores for unit in range(UNITS)]
        several = schedule.arch.cores > 1
        left, right, below, above = 0.95 if several else 0.55, 0.27, 0.92, 0.1 if title is None else 0.3
        width, height = WIDTH_INCHES - left - right, LANE_INCHES * max(1, len(self.lanes))
        whole = below + height + above
        self.figure = Figure(figsize=(WIDTH_INCHES, whole))
        self.axes = self.figure.add_axes((left / WIDTH_INCHES, below / whole, width / WIDTH_INCHES, height / whole))
        self.points_per_cycle = width * 72 / (window[1] - window[0])
        names = [f"core {core} {UNIT_NAMES[unit]}" if several else UNIT_NAMES[unit] for core, unit in self.lanes]
        self.axes.set_ylim(max(1, len(self.lanes)), 0)
        self.axes.set_yticks([y + BAR_MIDDLE for y in range(len(names))], names)
        self.axes.tick_params(axis="y", length=0)
        for y in range(1, len(names)):
            self.axes.axhline(y, color=GREY if y % UNITS else BLACK, linewidth=0.4 if y % UNITS else 0.6, zorder=0)
        self.axes.set_xlim(*window)
        self.axes.set_xlabel(f"time (cycles at {schedule.arch.clock_ghz:g} GHz)")
        self.axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))
        self.axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        if title is not None:
            self.axes.set_title(title)

    def draw_lane(self, y: int, lane: list[Span]) -> None:
        """Draw the spans of one unit, in order of time, with their labels."""
        for key, look in _LOOKS.items():
            bars = [(s.begin, s.end - s.begin) for s in lane if kind_of(self.schedule, s) == key]
            # A white edge parts neighbours, but would hide a bar that is hardly wider than it.
            edges = [0.5 if look.hatch or length * self.points_per_cycle > 2 else 0.0 for _, length in bars]
            if bars:
                self.axes.broken_barh(
                    bars, (y + BAR_TOP, BAR_BOTTOM - BAR_TOP), facecolor=look.face, edgecolor=look.edge,
                    hatch=look.hatch or None, linewidth=edges, gid=f"{key} {y}", zorder=3,
                )  # fmt: skip
        for span in lane:
            look = _LOOKS[kind_of(self.schedule, span)]
            self._label_inside(y, span, look)
            arrival = int(self.timeline.end[span.row])
            if span.unit == LOAD and arrival > span.end:
                above = 2.1 if span.state == "reloaded" else 2
                self.axes.plot([span.end, arrival], [y + BAR_MIDDLE] * 2, color=look.face, linewidth=0.8, zorder=above)
        self._label_above(y, lane)

    def _visible(self, begin: int, end: int) -> tuple[float, float]:
        """Return the middle of what the window shows of some cycles, and its width in points."""
        begin, end = max(begin, self.window[0]), min(end, self.window[1])
        return (begin + end) / 2, (end - begin) * self.points_per_cycle

    def _label_inside(self, y: int, span: Span, look: _Look) -> None:
        """Write the longest name that fits into a bar; upright, if none does but the shortest fits so."""
        middle, width = self._visible(span.begin, span.end)
        names = part_names(self.schedule, span)
        text, rotation = next((name for name in names if text_points(name) + 2 <= width), None), 0
        if text is None and names and width > LABEL_POINTS + 1 and text_points(names[-1]) + 2 <= BAR_POINTS:
            text, rotation = names[-1], 90
        if text is not None:
            box = {"facecolor": WHITE, "edgecolor": "none", "pad": 0.8} if look.hatch else None
            self.axes.text(
                middle, y + BAR_MIDDLE, text, ha="center", va="center" if rotation else "center_baseline",
                rotation=rotation, color=look.text, fontsize=LABEL_POINTS, bbox=box, zorder=4,
            )  # fmt: skip

    def _label_above(self, y: int, lane: list[Span]) -> None:
        """Name what neighbouring bars work on, above them, wherever the names do not touch."""
        free = float(self.window[0])
        for name, begin, end in items(self.schedule, lane, gap_cycles=int(4 / self.points_per_cycle)):
            middle, _ = self._visible(begin, end)
            half = (text_points(name) / 2 + 1) / self.points_per_cycle
            if free <= middle - half and middle + half <= self.window[1]:
                free = middle + half
                self.axes.text(middle, y + BAR_TOP - 0.07, name, ha="center", fontsize=LABEL_POINTS, zorder=4)

    def draw_overwrites(self) -> list[Line2D]:
        """Mark when softmax began to write over tiles, and when they were back; return entries for the legend."""
        code, cores = self.schedule.instructions, [core for core, _ in self.lanes[::UNITS]]
        again = np.flatnonzero((self.schedule.unit_of == LOAD) & (code[:, F_OVER] >= 0))
        queues = code[again, F_QUEUE] // UNITS
        entries = []
        for legend, dashes, cycles in (
            ("tiles overwritten", (4, 2), self.timeline.start[code[again, F_OVER]]),
            ("tiles back in L1", (1, 1.5), self.timeline.end[again]),
        ):
            line: dict[str, Any] = {"color": BLACK, "linewidth": 0.9, "linestyle": (0, dashes)}
            shown = np.isin(queues, cores) & (cycles >= self.window[0]) & (cycles < self.window[1])
            for cycle, core in zip(cycles[shown].tolist(), queues[shown].tolist(), strict=True):
                top = cores.index(core) * UNITS + MAC
                self.axes.plot([cycle, cycle], [top, top + LOAD + 1], zorder=5, **line)
            if shown.any():
                entries.append(Line2D([], [], label=legend, **line))
        return entries


@functools.lru_cache(maxsize=4096)
def text_points(text: str) -> float:
    """Width of a label in points, any digit taken for a wide one, so that all tiles of a product get labels or none."""
    # Measured on the outlines: the same for every kind of file.
    return float(TextPath((0, 0), re.sub(r"\d", "0", text), size=LABEL_POINTS).get_extents().width)


# --- dataflows over the sequence length ---------------------------------------------------------------------------

_COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BLACK, DARK_GREY)
_MARKERS = "osD^vP*X"
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (5, 1.2, 1, 1.2)), (0, (3, 1, 1, 1, 1, 1)))
_RING: dict[str, Any] = {"ls": "none", "marker": "o", "ms": 8.5, "mfc": "none", "mec": BLACK, "mew": 0.7}
_CROSS: dict[str, Any] = {"ls": "none", "marker": "x", "ms": 4, "mew": 1.0}

Row = Mapping[str, Any]


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
    files = _files(path)
    with _paper_style():
        return _save(crossover_figure(rows, title=title), files)


def crossover_figure(rows: Sequence[Row], *, title: str | None = None) -> Figure:
    """Return the figure that `plot_crossover` saves."""
    if not rows:
        raise ConfigError([Fault.of("<python>", None, "rows", "must hold at least one sequence length", rows)])
    rows = sorted(rows, key=lambda row: int(row["n"]))
    lengths = np.array([row["n"] for row in rows], np.float64)
    names = list(dict.fromkeys(name for row in rows for name in row["results"]))
    cycles, energy = _table(rows, names, "cycles"), _table(rows, names, "energy_pj")
    fewest = np.where(np.isnan(cycles), np.inf, cycles).min(axis=0, initial=np.inf)
    figure = Figure(figsize=(WIDTH_INCHES, 2.9), layout="constrained")
    panels = figure.subplots(1, 2)
    for axes, values in zip(panels, (cycles / np.maximum(fewest, 1), energy / lengths**2), strict=True):
        for k in range(len(names)):
            axes.plot(lengths, values[k], **_series(k))
            nothing = lengths[np.isnan(values[k])]
            height = np.full(len(nothing), 0.02 + 0.02 * k)  # in parts of the panel's height
            axes.plot(nothing, height, transform=axes.get_xaxis_transform(), color=_series(k)["color"], **_CROSS)
        _length_axis(axes, lengths, values)
    for i, row in enumerate(rows):
        if row["winner"] in names and np.isfinite(cycles[names.index(row["winner"]), i]):
            panels[0].plot(lengths[i], cycles[names.index(row["winner"]), i] / max(1, fewest[i]), **_RING)
    panels[0].set_ylabel("cycles / fewest cycles (1 = fastest)")
    panels[1].set_ylabel("energy / $N^{2}$ (pJ)")
    entries = [Line2D([], [], label=name, **_series(k)) for k, name in enumerate(names)]
    entries.append(Line2D([], [], label="winner", **_RING))
    if np.isnan(cycles).any():
        entries.append(Line2D([], [], label="does not fit, or is too long to simulate", color=BLACK, **_CROSS))
    figure.legend(handles=entries, loc="outside lower center", ncols=min(7, len(entries)), handlelength=3.2)
    if title is not None:
        figure.suptitle(title)
    return figure


def _table(rows: Sequence[Row], names: list[str], key: str) -> npt.NDArray[np.float64]:
    """Collect one result of every name at every length; NaN where nothing fits."""
    found = [[(row["results"].get(name) or {}).get(key, math.nan) for row in rows] for name in names]
    return np.array(found, np.float64).reshape(len(names), len(rows))


def _series(k: int) -> dict[str, Any]:
    """Return how the k-th series is drawn; the counts of colours and of dashes have no common factor."""
    colour, marker, dashes = (looks[k % len(looks)] for looks in (_COLOURS, _MARKERS, _DASHES))
    return {"color": colour, "marker": marker, "ls": dashes, "lw": 1.1, "ms": 4}


def _length_axis(axes: Axes, lengths: npt.NDArray[np.float64], values: npt.NDArray[np.float64]) -> None:
    """Scale and label the axis of sequence lengths, by powers of two; and the other by powers of ten if need be."""
    axes.set_xscale("log", base=2)
    axes.set_xlim(lengths[0] / math.sqrt(2), lengths[-1] * math.sqrt(2))
    ticks = lengths[:: -(-len(lengths) // 9)]
    axes.xaxis.set_major_locator(FixedLocator(ticks.tolist()))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda n, _: f"{n / 1024:.0f}K" if n % 1024 == 0 else f"{n:.0f}"))
    axes.set_xlabel("sequence length $N$ (tokens; K = 1,024)")
    seen = values[np.isfinite(values) & (values > 0)]
    if seen.size:
        logs = seen.max() > 20 * seen.min()
        low, high = (np.log10 if logs else np.asarray)([seen.min(), seen.max()])
        room = max(high - low, 0.05 * abs(high))
        low, high = low - 0.3 * room, high + 0.1 * room  # below is room for the crosses
        low = low if logs else max(0.0, low)
        axes.set_yscale("log" if logs else "linear")
        axes.set_ylim(*((10**low, 10**high) if logs else (low, high)))
    axes.grid(color=GREY, linewidth=0.3)
