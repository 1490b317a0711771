"""Grouped bars: energy by component, and normalised execution time, of dataflows by workload.

The forms are those of figures 6 and 5 of the MAS-Attention paper (MLSys 2025, arXiv 2411.17720): a group for each
network, in it a bar for each dataflow.
"""

import math
import re
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from mas_sim.errors import nearest
from mas_sim.plots._style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    SKY,
    WHITE,
    WIDTH_INCHES,
    Row,
    check_numbers,
    columns_that_fit,
    flow_fills,
    geomean,
    in_paper_style,
    plain_number,
    refuse,
    rows_of,
    short_number,
    text_points,
)

COMPONENTS = {
    "dram": ("DRAM", BLUE, ""),
    "l1": ("L1", SKY, ""),
    "l0": ("L0", WHITE, "//////"),
    "mac": ("MAC", ORANGE, ""),
    "vec": ("VEC", GREEN, "....."),
    "leakage": ("leakage", GREY, ""),
}
"""Of energy, from the bottom of a bar to its top: name, colour and hatch."""

"""Colour and hatch of each dataflow's bars; the subject of a comparison stands last, and is drawn in `VERMILLION`."""

GEOMEAN = "geomean"
MIN_SLOT_POINTS, MAX_SLOT_POINTS, GAP_SLOTS = 8.4, 26.0, 1.0
"""Width of a bar with its share of the gap beside it; the gap between two groups, in bars."""
VALUE_POINTS, NAME_POINTS, HEADER_POINTS = 5.5, 6.0, 6.5
PANEL_INCHES, MARGIN_INCHES = 1.25, 0.62
BAR_WIDTH = 0.84


def energy_figure(rows: Any, *, baseline: str | None = None, title: str | None = None) -> Figure:
    """Draw the energy of dataflows by component, stacked, grouped by workload (the form of the paper's figure 6).

    Parameters
    ----------
    rows : DataFrame or sequence of mappings
        As `Comparison.to_frame` gives them: `workload`, `dataflow` and `dram_pj`, `l1_pj`, `l0_pj`, `mac_pj`,
        `vec_pj`, `leakage_pj`. Where a workload lacks a dataflow, a cross says that it does not fit.
    baseline
        Dataflow whose total is 1 in each workload; None for uJ.

    Raises
    ------
    ConfigError
        If there are no rows, they lack columns or hold what is no number, a pair comes twice, or there is no such
        baseline.
    """
    names = [f"{part}_pj" for part in COMPONENTS]
    table = _Table(rows_of(rows, ("workload", "dataflow", *names)), baseline)
    check_numbers(table.rows, names, zero=True)
    return _energy_figure(table, baseline, title)


@in_paper_style
def _energy_figure(table: "_Table", baseline: str | None, title: str | None) -> Figure:
    """Draw what `energy_figure` has checked."""

    def scale_of(workload: str) -> float:
        if baseline is None:
            return 1e6
        base = table.cells.get((workload, baseline))
        return math.nan if base is None else (_total(base) or math.nan)

    heights = {(workload, flow): _total(row) / scale_of(workload) for (workload, flow), row in table.cells.items()}
    panels = _Panels(table.workloads, table.flows, heights)
    for x, panel, key in panels.places():
        row, scale, foot = table.cells.get(key), scale_of(key[0]), 0.0
        if row is None or not scale > 0:
            continue
        for part, (_, colour, hatch) in COMPONENTS.items():
            value = float(row[f"{part}_pj"]) / scale
            panel.bar(
                x, value, BAR_WIDTH, bottom=foot, color=colour, edgecolor=BLACK, linewidth=0.3, hatch=hatch or None,
                label=f"_{part}", zorder=2,
            )  # fmt: skip
            foot += value
    panels.lacks_baseline(table, baseline)
    panels.finish("energy (uJ)" if baseline is None else f"energy / {baseline}", show_flows=True)
    entries: list[Any] = [
        Patch(facecolor=colour, edgecolor=BLACK, linewidth=0.3, hatch=hatch, label=name)
        for name, colour, hatch in COMPONENTS.values()
    ]
    return panels.with_legend(entries, title)


def time_figure(rows: Any, *, baseline: str | None = None, title: str | None = None) -> Figure:
    """Draw the cycles of dataflows over a baseline's, grouped by workload (the form of the paper's figure 5).

    On the right is the geometric mean over the workloads that every dataflow can run. A dash on each bar is the lower
    bound of that dataflow on that workload, whatever its tiling, on the same scale.

    Parameters
    ----------
    rows : DataFrame or sequence of mappings
        As `Comparison.to_frame` gives them: `workload`, `dataflow`, `cycles`, and, optionally, `lower_cycles`.
    baseline
        Dataflow whose cycles are 1 in each workload; the first one unless given.

    Raises
    ------
    ConfigError
        As `energy_figure`.
    """
    found = rows_of(rows, ("workload", "dataflow", "cycles"))
    table = _Table(found, baseline)
    check_numbers(table.rows, ["cycles"])
    bounded = all("lower_cycles" in row for row in found)
    if bounded:
        check_numbers(table.rows, ["lower_cycles"], zero=True)
    return _time_figure(table, table.flows[0] if baseline is None else baseline, bounded, title)


@in_paper_style
def _time_figure(table: "_Table", baseline: str, bounded: bool, title: str | None) -> Figure:
    """Draw what `time_figure` has checked."""
    heights: dict[tuple[str, str], float] = {}
    lower: dict[tuple[str, str], float] = {}
    for (workload, flow), row in table.cells.items():
        base = table.cells.get((workload, baseline))
        if base is not None:
            heights[workload, flow] = float(row["cycles"]) / float(base["cycles"])
            lower[workload, flow] = float(row["lower_cycles"]) / float(base["cycles"]) if bounded else 0.0
    shared = [w for w in table.workloads if all((w, flow) in heights for flow in table.flows)]
    groups, header = list(table.workloads), GEOMEAN
    if len(table.workloads) > 1 and shared:
        if len(shared) < len(table.workloads):
            header = f"{GEOMEAN} of {len(shared)}"
        groups.append(header)
        for flow in table.flows:
            heights[header, flow] = geomean([heights[w, flow] for w in shared])
    panels = _Panels(groups, table.flows, heights)
    looks = flow_fills(table.flows)
    for x, panel, key in panels.places():
        if key in heights:
            colour, hatch = looks[key[1]]
            panel.bar(
                x, heights[key], BAR_WIDTH, color=colour, edgecolor=BLACK, linewidth=0.3, hatch=hatch or None,
                label=f"_{key[1]}", zorder=2,
            )  # fmt: skip
        if lower.get(key, 0.0) > 0:
            edges = [x - BAR_WIDTH / 2, x + BAR_WIDTH / 2]
            panel.plot(
                edges, [lower[key]] * 2, color=BLACK, linewidth=1.1, gid="lower bound", solid_capstyle="butt", zorder=3
            )
    panels.lacks_baseline(table, baseline)
    panels.finish(f"cycles / {baseline}", show_flows=False)
    entries: list[Any] = [
        Patch(facecolor=colour, edgecolor=BLACK, linewidth=0.3, hatch=hatch, label=flow)
        for flow, (colour, hatch) in looks.items()
    ]
    if bounded:
        entries.append(Line2D([], [], color=BLACK, linewidth=1.1, label="lower bound"))
    return panels.with_legend(entries, title)


def _total(row: Row) -> float:
    """Energy of all components, in pJ."""
    return sum(float(row[f"{part}_pj"]) for part in COMPONENTS)


class _Table:
    """Rows by workload and dataflow, both in the order in which they come; what `auto` chose is called `auto`."""

    def __init__(self, rows: list[dict[str, Any]], baseline: str | None) -> None:
        self.rows = rows
        self.cells: dict[tuple[str, str], Row] = {}
        for row in rows:
            flow = "auto" if row.get("chosen_by") == "auto" else str(row["dataflow"])
            key = (str(row["workload"]), flow)
            if key in self.cells:
                refuse("rows", "must hold each workload and dataflow once", "/".join(key))
            self.cells[key] = row
        self.workloads = list(dict.fromkeys(workload for workload, _ in self.cells))
        self.flows = list(dict.fromkeys(flow for _, flow in self.cells))
        if baseline is not None and baseline not in self.flows:
            refuse("baseline", f"must be one of {', '.join(self.flows)}", baseline, nearest(baseline, self.flows))


class _Panels:
    """Rows of groups of bars, as many groups in each as leave the bars wide enough to read."""

    def __init__(self, groups: Sequence[str], flows: Sequence[str], heights: dict[tuple[str, str], float]) -> None:
        self.groups, self.flows = list(groups), list(flows)
        self.heights = {key: height for key, height in heights.items() if math.isfinite(height)}
        slots = len(flows) + GAP_SLOTS
        room = (WIDTH_INCHES - MARGIN_INCHES) * 72
        fitting = max(1, int(room / (slots * MIN_SLOT_POINTS)))
        self.count = -(-len(self.groups) // fitting)
        self.per_panel = -(-len(self.groups) // self.count)
        self.slot_points = min(MAX_SLOT_POINTS, room / (self.per_panel * slots))
        width = max(3.0, MARGIN_INCHES + self.per_panel * slots * self.slot_points / 72)
        self.why_missing = "does not fit, or no result"
        self.figure = Figure(figsize=(width, 1.0), layout="constrained")
        self.panels: list[Axes] = list(self.figure.subplots(self.count, 1, squeeze=False)[:, 0])
        self.slot_points = (width - MARGIN_INCHES) * 72 / (self.per_panel * slots)

    def lacks_baseline(self, table: _Table, baseline: str | None) -> None:
        """Say in the legend if the baseline lacks results that others have, which then cannot be compared."""
        if any(key not in self.heights for key in table.cells):
            self.why_missing = f"no result, or none of {baseline} beside it"

    def places(self) -> list[tuple[float, Axes, tuple[str, str]]]:
        """Return where each bar goes: its middle, its panel, and its group and dataflow."""
        slots = len(self.flows) + GAP_SLOTS
        return [
            (g % self.per_panel * slots + GAP_SLOTS / 2 + k + 0.5, self.panels[g // self.per_panel], (group, flow))
            for g, group in enumerate(self.groups)
            for k, flow in enumerate(self.flows)
        ]

    def finish(self, quantity: str, *, show_flows: bool) -> None:
        """Write the values over the bars, the groups' names above them, and the axes' labels."""
        slots, top = len(self.flows) + GAP_SLOTS, max(self.heights.values(), default=1.0) or 1.0
        ticks: dict[Axes, tuple[list[float], list[str]]] = {panel: ([], []) for panel in self.panels}
        for x, panel, key in self.places():
            ticks[panel][0].append(x)
            ticks[panel][1].append(key[1])
            if key not in self.heights:
                panel.annotate(
                    "×", (x, 0), (0, 1), textcoords="offset points", ha="center", va="bottom", fontsize=7, gid="misfit",
                )  # fmt: skip
                continue
            text = short_number(self.heights[key])
            upright = text_points(text, VALUE_POINTS) + 1 > self.slot_points
            panel.annotate(
                text, (x, self.heights[key]), (0, 2), textcoords="offset points", ha="center", va="bottom",
                rotation=90 if upright else 0, fontsize=VALUE_POINTS, gid="value",
            )  # fmt: skip
        for p, panel in enumerate(self.panels):
            panel.set_xlim(0, self.per_panel * slots)
            panel.set_ylim(0, top * 1.28)
            panel.set_ylabel(quantity)
            panel.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
            panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: plain_number(value)))
            panel.grid(axis="y", color=GREY, linewidth=0.3, zorder=0)
            panel.set_axisbelow(True)
            if show_flows:
                upright = max(text_points(flow, NAME_POINTS) for flow in self.flows) + 3 > self.slot_points
                panel.set_xticks(*ticks[panel], rotation=90 if upright else 0, fontsize=NAME_POINTS)
                panel.tick_params(axis="x", length=0, pad=1.5)
            else:
                panel.set_xticks([])
            for g, group in enumerate(self.groups[p * self.per_panel : (p + 1) * self.per_panel]):
                if g:
                    panel.axvline(g * slots, color=GREY, linewidth=0.4, zorder=0)
                self._header(panel, (g + 0.5) * slots, group)
        named = max(map(len, self.flows)) * 0.052 if show_flows else 0.0
        height = self.count * (PANEL_INCHES + 0.25 + named) + 0.35
        self.figure.set_size_inches(self.figure.get_figwidth(), height)

    def _header(self, panel: Axes, x: float, name: str) -> None:
        """Write a group's name above it, in lines that are no wider than the group."""
        room = (len(self.flows) + GAP_SLOTS) * self.slot_points - 6
        lines = [""]
        for part in _parts(name):
            if lines[-1] and text_points(lines[-1] + part, HEADER_POINTS) > room:
                lines.append("")
            lines[-1] += part
        size = HEADER_POINTS * min(1.0, room / max(text_points(line, HEADER_POINTS) or 1.0 for line in lines))
        panel.annotate(
            "\n".join(lines), (x, 1), (0, 2), xycoords=("data", "axes fraction"), textcoords="offset points",
            ha="center", va="bottom", fontsize=size, linespacing=0.95, gid="group",
        )  # fmt: skip

    def with_legend(self, entries: list[Any], title: str | None) -> Figure:
        """Add the legend beneath all panels, and the title, and return the figure."""
        if len(self.heights) < len(self.groups) * len(self.flows):
            cross: dict[str, Any] = {
                "linestyle": "none",
                "marker": "x",
                "color": BLACK,
                "markersize": 4,
                "markeredgewidth": 0.8,
            }
            entries = [*entries, Line2D([], [], label=self.why_missing, **cross)]
        columns = columns_that_fit([str(entry.get_label()) for entry in entries], self.figure.get_figwidth())
        self.figure.legend(
            handles=entries, loc="outside lower center", ncols=columns, handlelength=1.6, columnspacing=1.2
        )
        height = self.figure.get_figheight() + 0.16 * -(-len(entries) // columns) + (0.2 if title else 0.0)
        self.figure.set_size_inches(self.figure.get_figwidth(), height)
        if title is not None:
            self.figure.suptitle(title)
        return self.figure


def _parts(name: str) -> list[str]:
    """Cut a name behind each underscore, dash and space."""
    return [part for part in re.split(r"(?<=[_\- ])", name) if part]
