"""The roofline of a machine for attention, and how near to it each dataflow comes."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from mas_sim.arch import Arch
from mas_sim.errors import ConfigError, Fault
from mas_sim.plots._style import (
    BLACK,
    BLUE,
    DARK_GREY,
    GREY,
    LABEL_POINTS,
    VERMILLION,
    Floats,
    check_numbers,
    columns_that_fit,
    finite_or_nan,
    flow_lines,
    in_paper_style,
    refuse,
    rows_of,
    short_number,
    text_points,
)
from mas_sim.report import ExpBalance, Report
from mas_sim.workload import Workload

AXES_POINTS = 165
"""Height of the axes, about."""
MAX_CEILINGS = 3
"""So many ceilings of the vector units are drawn one by one."""
MARK: dict[str, Any] = {"ls": "none", "ms": 4.5, "mew": 1.1, "mfc": "none"}


@dataclass(frozen=True)
class RooflinePoint:
    """What one dataflow makes of one workload on one machine.

    Attributes
    ----------
    workload, dataflow
        Names.
    macs
        Multiply-accumulates of both products that the mask keeps (`Workload.macs`): what is useful, however often some
        of it was done again.
    dram_bytes, cycles
        DRAM bytes read and written, and cycles of the run.
    peak_macs_per_cycle
        Of the arrays of all cores.
    dram_bytes_per_cycle
        Bandwidth of the DRAM channel.
    vec_macs_per_cycle
        MACs per cycle that the vector units let through: scores per cycle that they can turn into probabilities, of all
        cores, times `E + F`, the MACs that a score stands for. Infinite where the vector unit sees no score.
    limited_by
        What the closed-form bounds say limits it (`Bounds.limited_by`); empty if that is not known.
    """

    workload: str
    dataflow: str
    macs: float
    dram_bytes: float
    cycles: float
    peak_macs_per_cycle: float
    dram_bytes_per_cycle: float
    vec_macs_per_cycle: float = float("inf")
    limited_by: str = ""

    @staticmethod
    def of(report: Report) -> "RooflinePoint":
        """Return the point of a report."""
        return RooflinePoint.make(
            report.arch, report.workload, report.schedule.dataflow, report.dram_bytes, report.cycles,
            report.exp_balance, report.bounds.limited_by,
        )  # fmt: skip

    @staticmethod
    def make(
        arch: Arch, workload: Workload, dataflow: str, dram_bytes: int, cycles: int, balance: ExpBalance,
        limited_by: str = "",
    ) -> "RooflinePoint":  # fmt: skip
        """Return the point of a result on a machine.

        Parameters
        ----------
        balance
            Of the schedule's form of softmax (`report.exp_balance`).
        """
        per_score = workload.head_dim_qk + workload.head_dim_v
        return RooflinePoint(
            workload.name, dataflow, workload.macs, dram_bytes, cycles, arch.cores * arch.macs_per_cycle_per_core,
            float(arch.dram_bytes_per_cycle), arch.cores * balance.available_per_cycle * per_score, limited_by,
        )  # fmt: skip


@in_paper_style
def roofline_figure(points: Sequence[Any], *, title: str | None = None) -> Figure:
    """Draw MACs per cycle over MACs per DRAM byte, both logarithmic: the machine's roofs, and each dataflow beneath.

    The sloping roof is DRAM bandwidth, the flat ones the peak of the MAC arrays, and of the vector units for each form
    of softmax that is shown (it depends on the workload's head dimension, too). The form is that of Williams, Waterman
    and Patterson, "Roofline", CACM 52(4), 2009, with the vector unit as one more ceiling.

    Parameters
    ----------
    points : sequence of Report, RooflinePoint or mapping
        Mappings have the fields of `RooflinePoint`; the last two may be missing.

    Raises
    ------
    ConfigError
        If there are no points, they lack fields or hold what is no positive number, or are of different machines.
    """
    found = _points(points)
    first = found[0]
    if any(p.peak_macs_per_cycle != first.peak_macs_per_cycle for p in found) or any(
        p.dram_bytes_per_cycle != first.dram_bytes_per_cycle for p in found
    ):
        refuse("points", "must be of one machine: MAC peak and DRAM bandwidth differ", len(found))
    figure = Figure(figsize=(4.8, 3.4), layout="constrained")
    axes = figure.subplots()
    axes.set_xscale("log")
    axes.set_yscale("log")
    intensity = np.array([p.macs / p.dram_bytes for p in found])
    speed = np.array([p.macs / p.cycles for p in found])
    peak, slope = first.peak_macs_per_cycle, first.dram_bytes_per_cycle
    ridge = peak / slope
    low, high = min(intensity.min(), ridge) / 2.5, max(intensity.max(), ridge) * 6
    vec = {p.vec_macs_per_cycle for p in found if np.isfinite(p.vec_macs_per_cycle)}
    bottom = min(speed.min(), *vec, peak) / 2.5
    axes.set_xlim(low, high)
    axes.set_ylim(bottom, max(peak, *vec) * 1.9)
    at = np.array([low, ridge, high])
    axes.plot(at, np.minimum(peak, at * slope), color=BLACK, lw=1.3, label="_roof", zorder=2)
    _label_roofs(axes, found, peak, slope)
    names = list(dict.fromkeys(p.workload for p in found))
    _draw_points(axes, found, intensity, speed, labelled=len(names) == 1)
    axes.set_xlabel("operational intensity (MACs per DRAM byte)")
    axes.set_ylabel("MACs per cycle, all cores")
    _round_axes(axes)
    axes.grid(color=GREY, linewidth=0.3)
    axes.set_axisbelow(True)
    handles = [
        Line2D([], [], label=_name(flow, [p for p in found if p.dataflow == flow]), **{**look, **MARK})
        for flow, look in flow_lines(list(dict.fromkeys(p.dataflow for p in found))).items()
    ]
    if len(names) > 1:
        handles.append(Line2D([], [], ls="none", label=f"({len(names)} workloads: a mark for each)"))
    columns = columns_that_fit([str(handle.get_label()) for handle in handles], 4.8)
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, handlelength=1.2)
    figure.set_size_inches(4.8, 2.95 + 0.16 * -(-len(handles) // columns) + (0.2 if title else 0.0))
    if title is not None:
        figure.suptitle(title)
    return figure


def _round_axes(axes: Axes) -> None:
    """Put ticks at 1, 2, 5, 10, ..., or at powers of ten only where an axis spans many."""
    for axis, (least, most) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        if most / least < 300:
            axis.set_major_locator(FixedLocator(_ticks(least, most)))
            axis.set_minor_locator(NullLocator())
        else:
            axis.set_major_locator(LogLocator())
            axis.set_minor_formatter(NullFormatter())
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def _points(points: Sequence[Any]) -> list[RooflinePoint]:
    """Return the points, whatever they were given as."""
    rows = []
    for point in points:
        point = RooflinePoint.of(point) if isinstance(point, Report) else point
        rows.append(asdict(point) if isinstance(point, RooflinePoint) else point)
    needed = [spec.name for spec in fields(RooflinePoint)][:-2]
    checked = rows_of(rows, needed, "points")
    check_numbers(checked, needed[2:], what="points")
    faults = []
    for k, row in enumerate(checked):
        ceiling = row.get("vec_macs_per_cycle", np.inf)
        if not (ceiling == np.inf or finite_or_nan(ceiling) > 0):
            name = f"points[{k}].vec_macs_per_cycle"
            faults.append(Fault.of("<python>", None, name, "must be a number, more than 0, or infinite", ceiling))
    if faults:
        raise ConfigError(faults[:10])
    known = {spec.name for spec in fields(RooflinePoint)}
    return [RooflinePoint(**{name: value for name, value in row.items() if name in known}) for row in checked]


def _draw_points(axes: Axes, points: list[RooflinePoint], intensity: Floats, speed: Floats, *, labelled: bool) -> None:
    """Draw a mark for each point, those that coincide around each other, and name them beside it if that is wanted."""
    flows = list(dict.fromkeys(point.dataflow for point in points))
    clusters = _clusters(intensity, speed)
    for flow, own in flow_lines(flows).items():
        mine = [i for i, point in enumerate(points) if point.dataflow == flow]
        for i in mine:
            around = next(cluster for cluster in clusters if i in cluster)
            size = 4.5 + 2.4 * (len(around) - 1 - around.index(i)) if labelled else 4.5
            look = {**own, **MARK, "ms": size, "zorder": 4}
            axes.plot(intensity[i], speed[i], label=f"_{flow}", **look)
    free = np.inf  # how low the next name must stand, in points above the lower edge
    for cluster in sorted(clusters if labelled else [], key=lambda one: -speed[one[0]]):
        i, (bottom, top) = cluster[0], axes.get_ylim()
        height = float(np.log(speed[i] / bottom) / np.log(top / bottom)) * AXES_POINTS
        place = min(height - 5, free)
        free = place - LABEL_POINTS - 1.5
        text = ", ".join(points[k].dataflow for k in cluster)
        axes.annotate(
            text, (intensity[i], speed[i]), (7 + 1.2 * len(cluster), place - height), textcoords="offset points",
            va="center", fontsize=LABEL_POINTS, gid="point", in_layout=False,
        )  # fmt: skip


def _clusters(intensity: Floats, speed: Floats) -> list[list[int]]:
    """Group points that would lie on each other: within 3 % of the first one on both axes."""
    clusters: list[list[int]] = []
    for i in range(len(speed)):
        for cluster in clusters:
            k = cluster[0]
            if abs(np.log(intensity[i] / intensity[k])) < 0.03 and abs(np.log(speed[i] / speed[k])) < 0.03:
                cluster.append(i)
                break
        else:
            clusters.append([i])
    return clusters


def _name(flow: str, points: list[RooflinePoint]) -> str:
    """Name a dataflow, and what limits it."""
    limits = list(dict.fromkeys(point.limited_by for point in points if point.limited_by))
    return f"{flow} (limit: {', '.join(limits)})" if limits else flow


def _label_roofs(axes: Axes, points: list[RooflinePoint], peak: float, slope: float) -> None:
    """Draw the ceilings of the vector units, and write on every roof what it is."""
    low, high = axes.get_xlim()
    text: dict[str, Any] = {"fontsize": LABEL_POINTS, "textcoords": "offset points"}
    axes.annotate(
        f"MAC: {short_number(peak)}", (high, peak), (-3, 2), ha="right", va="bottom", gid="roof", **text
    )  # fmt: skip
    ridge = peak / slope
    at = (low * ridge) ** 0.5
    axes.text(
        at, at * slope * 1.12, f"DRAM: {short_number(slope)} bytes/cycle", ha="center", va="bottom", color=BLUE,
        rotation=np.degrees(np.arctan(slope * 1.12)), rotation_mode="anchor", transform_rotates_text=True,
        fontsize=LABEL_POINTS, gid="roof",
    )  # fmt: skip
    ceilings: dict[float, list[str]] = {}
    for point in points:
        if np.isfinite(point.vec_macs_per_cycle):
            ceilings.setdefault(float(f"{point.vec_macs_per_cycle:.4g}"), []).append(point.dataflow)
    look: dict[str, Any] = {"color": VERMILLION, "lw": 0.9, "zorder": 2, "label": "_vec"}
    bottom, top = axes.get_ylim()
    before, across = peak, 3.0  # a label that would lie on the one below it stands to the left of that one
    shown = sorted(ceilings)
    if len(shown) > MAX_CEILINGS:  # only the lowest and the highest, with what is between them tinted
        lowest, highest = shown[0], shown[-1]
        axes.fill_between(
            [min(lowest / slope, ridge), high], lowest, highest, color=VERMILLION, alpha=0.12, lw=0, zorder=1
        )
        shown = [lowest, highest]
    for k, height in enumerate(shown):
        axes.plot([min(height / slope, ridge), high], [height] * 2, ls=(0, (5, 1.5 + k % 3)), **look)
        label = f"VEC{_whose(ceilings, height)}: {short_number(height)}"
        near = abs(np.log(height / before) / np.log(top / bottom)) * AXES_POINTS < LABEL_POINTS + 2
        across = across + (text_points(label) + 8 if k else 60) if near else 3.0
        before = height
        axes.annotate(
            label, (high, height), (-across, 2), ha="right", va="bottom", color=DARK_GREY, gid="roof", **text
        )  # fmt: skip
    for label_of in axes.texts:  # they lie in the axes: the layout need make no room for them
        label_of.set_in_layout(False)


def _whose(ceilings: dict[float, list[str]], height: float) -> str:
    """Say to whom a ceiling of the vector units applies, if not to all."""
    if len(ceilings) == 1:
        return ""
    if len(ceilings) > MAX_CEILINGS:
        return ", lowest" if height == min(ceilings) else ", highest (by workload and softmax)"
    names = list(dict.fromkeys(ceilings[height]))
    others = {name for other, flows in ceilings.items() if other != height for name in flows}
    return f" ({', '.join(names)})" if len(names) <= 2 or others & set(names) else " (others)"


def _ticks(low: float, high: float) -> list[float]:
    """Return 1, 2, 5, 10, ... between two."""
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    return [step * 10.0**decade for decade in decades for step in (1, 2, 5) if low <= step * 10.0**decade <= high]
