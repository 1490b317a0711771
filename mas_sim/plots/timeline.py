"""A run as a Gantt chart: what each unit did and what it waited for, and beneath it how full L1 was."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from mas_sim.occupancy import Steps, l1_occupancy
from mas_sim.plots._style import (
    BLACK,
    BLUE,
    DARK_GREY,
    GREEN,
    GREY,
    LABEL_POINTS,
    LIGHT_GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    WHITE,
    WIDTH_INCHES,
    YELLOW,
    figure_files,
    in_paper_style,
    refuse,
    save_figure,
    text_points,
)
from mas_sim.schedule import F_OVER, F_QUEUE, LOAD, MAC, UNIT_NAMES, UNITS, Schedule
from mas_sim.timeline import CAUSE_NAMES, Timeline
from mas_sim.trace import Span, items, kind_of, part_names, spans
from mas_sim.waits import waits

BAR_TOP, BAR_BOTTOM = 0.34, 0.92
"""Where bars are in a lane of height 1, downwards; the names of what they work on stand above them."""
BAR_MIDDLE, LANE_INCHES = (BAR_TOP + BAR_BOTTOM) / 2, 0.44
BAR_POINTS = (BAR_BOTTOM - BAR_TOP) * LANE_INCHES * 72


class Look(NamedTuple):
    """How a kind of bar is drawn, and what the legend says of it."""

    legend: str
    face: str
    edge: str = WHITE
    hatch: str = ""
    text: str = BLACK


LOOKS = {
    "qk": Look(r"$C = QK^{T}$", SKY),
    "mask": Look("mask", BLACK, text=WHITE),
    "softmax": Look(r"$P = \mathrm{softmax}(C)$", YELLOW),
    "online": Look("online softmax", YELLOW),
    "exp": Look(r"$P = \exp(C - m)$ on MAC", ORANGE),
    "pv": Look(r"$O = PV$", GREEN, text=WHITE),
    "correct": Look("$O$ scaled, added", BLUE, text=WHITE),
    "normalize": Look("$O$ / row sum", WHITE, BLUE, "....."),
    "load": Look("load", PURPLE),
    "store": Look("store", GREY),
    "stopped": Look("stopped, work lost", WHITE, VERMILLION, "//////"),
    "redone": Look("lost work done again", VERMILLION, text=WHITE),
    "reloaded": Look("tiles loaded again", BLUE, text=WHITE),
}
"""By `trace.kind_of`, in the order of the legend. What shares a colour never shares a chart."""

WAIT_TOP, WAIT_POINTS = 0.67, 5.5
"""A wait is a flat bar from here to the bottom of the lane's bars; its label is small."""
_DATA = Look("waits for a unit", LIGHT_GREY, text=DARK_GREY)
WAIT_LOOKS = {
    **dict.fromkeys(("mac", "vec", "load", "store"), _DATA),
    "channel": Look("waits for DRAM channel", LIGHT_GREY, DARK_GREY, "\\" * 6, DARK_GREY),
    "buffer": Look("waits for a free buffer", WHITE, DARK_GREY, "-----", DARK_GREY),
    "sync": Look("synchronises", DARK_GREY, text=WHITE),
}
"""By cause of the wait (`CAUSE_NAMES`). In the bar stands the unit that is waited for, where there is room."""
PANEL_INCHES, PANEL_GAP_INCHES = 0.75, 0.12


def plot_timeline(
    schedule: Schedule,
    timeline: Timeline,
    path: str | Path,
    *,
    first_cycle: int = 0,
    last_cycle: int | None = None,
    core: int | None = None,
    title: str | None = None,
    occupancy: bool = True,
) -> tuple[Path, ...]:
    """Draw a run as a Gantt chart, one lane for each unit, and save it.

    A bar is one instruction, coloured by its operation. Above the bars stands what they work on (`C_3`: row block 3;
    `C_{1,3}`: of group 1, where there are several), in them the kv tile or the steps of the softmax pass. Work that was
    stopped, and so lost, is hatched; work done again and tiles loaded again have colours of their own, and dashed lines
    say when tiles were overwritten and when they are back. The thin line behind a load is the DRAM latency. A flat
    grey bar is a wait, with its cause. Beneath the lanes stands how much of L1 holds live data, under its capacity.

    Parameters
    ----------
    path
        `.svg`, `.pdf` or `.png` (at 200 dpi); without a suffix, an SVG and a PNG file are written.
    first_cycle, last_cycle
        The window `[first_cycle, last_cycle)`; up to the end of the run unless given. Some six rounds stay readable.
    core
        Draw this core only.
    occupancy
        Whether to draw the panel of L1. A schedule without L1 buffers has none.

    Returns
    -------
    tuple of Path
        The files written.

    Raises
    ------
    ConfigError
        If the window is empty, no such core has work, or the file has an unknown suffix or cannot be written.
    """
    figure_files(path)  # before the figure is made
    last_cycle = max(timeline.cycles, first_cycle + 1) if last_cycle is None else last_cycle
    window = (first_cycle, last_cycle)
    return save_figure(timeline_figure(schedule, timeline, window, core, title, occupancy=occupancy), path)


@in_paper_style
def timeline_figure(
    schedule: Schedule,
    timeline: Timeline,
    window: tuple[int, int],
    core: int | None = None,
    title: str | None = None,
    *,
    occupancy: bool = True,
) -> Figure:
    """Return the figure that `plot_timeline` saves."""
    cores = sorted(set((schedule.instructions[:, F_QUEUE] // UNITS).tolist()))
    if window[1] <= window[0]:
        refuse("last_cycle", f"must be more than first_cycle, {window[0]}", window[1])
    if core is not None and core not in cores:
        refuse("core", f"must be a core that has work, of {cores}", core)
    chart = _Chart(schedule, timeline, cores if core is None else [core], window, occupancy and len(schedule.slots) > 0)
    drawn = spans(schedule, timeline, first_cycle=window[0], last_cycle=window[1], core=core)
    for y, lane in enumerate(chart.lanes):
        chart.draw_lane(y, sorted((s for s in drawn if (s.core, s.unit) == lane), key=lambda s: (s.begin, s.row)))
    looks = {kind_of(schedule, span) for span in drawn}
    entries: list[Patch | Line2D] = [_patch(look) for key, look in LOOKS.items() if key in looks]
    entries += chart.draw_overwrites()
    entries += chart.draw_waits()
    if chart.panel is not None:
        draw_occupancy(chart.panel, schedule, timeline, window, core)
    chart.arrange(entries, title)
    return chart.figure


def _patch(look: Look) -> Patch:
    """Return the legend's entry for a kind of bar."""
    return Patch(facecolor=look.face, edgecolor=look.edge, hatch=look.hatch, label=look.legend, linewidth=0.5)


def draw_occupancy(
    axes: Axes, schedule: Schedule, timeline: Timeline, window: tuple[int, int], core: int | None = None
) -> None:
    """Draw how many KiB of L1 hold live data, and its capacity; a line for each core where each has its own L1."""
    private, capacity = not schedule.arch.l1.shared, schedule.arch.l1.capacity_bytes / 1024
    cores = sorted(set((schedule.instructions[:, F_QUEUE] // UNITS).tolist()))
    parts = [core] if core is not None else (cores if private and len(cores) > 1 else [None])
    for k, part in enumerate(parts):
        steps: Steps = l1_occupancy(schedule, timeline, part)
        at, kib = np.append(steps.cycles, max(window[1], steps.cycles[-1])), np.append(steps.bytes, 0) / 1024
        name = "L1 in use" if part is None else f"core {part}"
        dashes = "-" if k == 0 else (0, (3, 1 + k % 3))
        if len(parts) == 1:
            axes.fill_between(at, kib, step="post", color=SKY, alpha=0.35, linewidth=0)
        axes.plot(at, kib, drawstyle="steps-post", color=BLUE, linewidth=0.8, linestyle=dashes, label=name)
    axes.axhline(capacity, color=BLACK, linewidth=0.8, linestyle=(0, (6, 2)), label="capacity")
    axes.set_ylim(0, 1.34 * capacity)  # above the line is room for its name
    owner = "each core's L1" if private else "L1"
    shared = f", shared by {schedule.arch.cores} cores" if not private and schedule.arch.cores > 1 else ""
    axes.annotate(
        f"{owner}: {capacity:,.10g} KiB{shared}", (1, capacity), (-2, 1.5), xycoords=("axes fraction", "data"),
        textcoords="offset points", ha="right", va="bottom", fontsize=LABEL_POINTS,
    )  # fmt: skip
    axes.set_ylabel("L1 (KiB)", fontsize=7)
    axes.yaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    if len(parts) > 1:
        axes.legend(loc="upper left", ncols=2 + len(parts), fontsize=6, borderpad=0.1, handlelength=2.4)


class _Chart:
    """A Gantt chart while it is drawn: lanes of the same height in every figure, and one window of cycles."""

    def __init__(
        self, schedule: Schedule, timeline: Timeline, cores: list[int], window: tuple[int, int], has_panel: bool
    ) -> None:
        self.schedule, self.timeline, self.window = schedule, timeline, window
        self.lanes = [(core, unit) for core in cores for unit in range(UNITS)]
        several = schedule.arch.cores > 1
        self.left, self.right = 0.95 if several else 0.62, 0.27
        self.figure = Figure(figsize=(WIDTH_INCHES, WIDTH_INCHES))  # `arrange` gives it its height
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.panel = self.figure.add_axes((0, 0, 1, 1)) if has_panel else None
        self.points_per_cycle = (WIDTH_INCHES - self.left - self.right) * 72 / (window[1] - window[0])
        names = [f"core {core} {UNIT_NAMES[unit]}" if several else UNIT_NAMES[unit] for core, unit in self.lanes]
        self.axes.set_ylim(max(1, len(self.lanes)), 0)
        self.axes.set_yticks([y + BAR_MIDDLE for y in range(len(names))], names)
        self.axes.tick_params(axis="y", length=0)
        for y in range(1, len(names)):
            self.axes.axhline(y, color=GREY if y % UNITS else BLACK, linewidth=0.4 if y % UNITS else 0.6, zorder=0)
        for axes in filter(None, (self.axes, self.panel)):
            axes.set_xlim(*window)
            axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        if has_panel:
            self.axes.tick_params(axis="x", labelbottom=False)
        (self.panel or self.axes).set_xlabel(f"time (cycles at {schedule.arch.clock_ghz:g} GHz)")

    def arrange(self, entries: list[Patch | Line2D], title: str | None) -> None:
        """Set the legend beneath all, and give lanes, panel and legend their heights in inches."""
        columns = 5 if len(entries) > 4 else max(1, len(entries))
        below, above = 0.52 + 0.165 * -(-len(entries) // columns), 0.1 if title is None else 0.3
        height = LANE_INCHES * max(1, len(self.lanes))
        panel = 0.0 if self.panel is None else PANEL_INCHES + PANEL_GAP_INCHES
        whole, width = below + panel + height + above, WIDTH_INCHES - self.left - self.right
        self.figure.set_size_inches(WIDTH_INCHES, whole)
        across = (self.left / WIDTH_INCHES, width / WIDTH_INCHES)
        self.axes.set_position((across[0], (below + panel) / whole, across[1], height / whole))
        if self.panel is not None:
            self.panel.set_position((across[0], below / whole, across[1], PANEL_INCHES / whole))
        if title is not None:
            self.axes.set_title(title)
        if entries:
            self.figure.legend(handles=entries, loc="lower center", ncols=columns, handlelength=1.8, columnspacing=1.4)

    def draw_lane(self, y: int, lane: list[Span]) -> None:
        """Draw the spans of one unit, in order of time, with their labels."""
        for key, look in LOOKS.items():
            bars = [(s.begin, s.end - s.begin) for s in lane if kind_of(self.schedule, s) == key]
            # A white edge parts neighbours, but would hide a bar that is hardly wider than it.
            edges = [0.5 if look.hatch or length * self.points_per_cycle > 2 else 0.0 for _, length in bars]
            if bars:
                self.axes.broken_barh(
                    bars, (y + BAR_TOP, BAR_BOTTOM - BAR_TOP), facecolor=look.face, edgecolor=look.edge,
                    hatch=look.hatch or None, linewidth=edges, gid=f"{key} {y}", zorder=3,
                )  # fmt: skip
        for span in lane:
            look = LOOKS[kind_of(self.schedule, span)]
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

    def _label_inside(self, y: int, span: Span, look: Look) -> None:
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

    def draw_waits(self) -> list[Patch]:
        """Draw what each unit waited for in the window, and name the unit waited for; return the legend's entries."""
        told = waits(self.schedule, self.timeline).within(*self.window)
        lane_of = {core * UNITS + unit: y for y, (core, unit) in enumerate(self.lanes)}
        bars: dict[tuple[int, str], list[tuple[int, int]]] = {}
        columns = (told.queue.tolist(), told.cause.tolist(), told.begin.tolist(), told.end.tolist())
        for queue, cause, begin, end in zip(*columns, strict=True):
            if queue in lane_of:
                bars.setdefault((lane_of[queue], CAUSE_NAMES[cause]), []).append((begin, end))
        for (y, name), at in bars.items():
            look = WAIT_LOOKS[name]
            self.axes.broken_barh(
                [(begin, end - begin) for begin, end in at], (y + WAIT_TOP, BAR_BOTTOM - WAIT_TOP), linewidth=0,
                facecolor=look.face, edgecolor=look.edge, hatch=look.hatch or None, gid=f"wait-{name} {y}", zorder=1.5,
            )  # fmt: skip
            for begin, end in at if look is _DATA else ():
                self._label_wait(y, name.upper(), begin, end)
        seen = {name for _, name in bars}
        shown = dict.fromkeys(look for name, look in WAIT_LOOKS.items() if name in seen)
        return [_patch(look) for look in shown]

    def _label_wait(self, y: int, unit: str, begin: int, end: int) -> None:
        """Write into a wait which unit it is for, if there is room."""
        middle, width = self._visible(begin, end)
        names = (f"waits for {unit}", unit)
        text = next((name for name in names if text_points(name, WAIT_POINTS) + 3 <= width), None)
        if text is not None:
            self.axes.text(
                middle, y + (WAIT_TOP + BAR_BOTTOM) / 2, text, ha="center", va="center_baseline", color="#555555",
                fontsize=WAIT_POINTS, zorder=4, gid="wait",
            )  # fmt: skip

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
