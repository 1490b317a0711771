"""What the commands `sweep` and `results` print: what a sweep is, how far it is, and who wins where."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from rich.console import Group
from rich.table import Table
from rich.text import Text

from mas_sim._sweep_axes import moving_together
from mas_sim.comparison import Spread
from mas_sim.results_frame import objective_kinds
from mas_sim.sweep import Estimate
from mas_sim.sweep_file import Sweep

MAX_ROWS = 40
MAX_HEAD = 24
"""Longer names of columns are broken at their dots."""
STATUS_WORDS = {
    "done": "done",
    "does_not_fit": "nothing fits L1",
    "too_long": "too long to simulate",
    "over_limits": "without a tiling that keeps to the limits",
    "failed": "failed",
    "missing": "not yet computed",
}


def plan_lines(sweep: Sweep) -> list[str]:
    """Say what a sweep consists of."""
    count = len(sweep)
    lines = [f"{sweep.name}: {count:,} points on {sweep.arch.name}"]
    lines += [f"  {sweep.question.strip()}"] if sweep.question.strip() else []
    for group in moving_together(sweep.axes, [values for values, _ in sweep.places]):
        seen = list(dict.fromkeys(" with ".join(_shown(values[path]) for path in group) for values, _ in sweep.places))
        lines.append(f"  {' with '.join(group)}: {_listed(seen)}")
    lines.append(f"  workloads: {_listed([workload.name for workload in sweep.workloads])}")
    lines.append(f"  dataflows: {', '.join(sweep.dataflows)}")
    lines.append(f"  search: {sweep.search.method}, {sweep.search.goal.describe()}")
    return lines


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _listed(values: Sequence[str]) -> str:
    """List values; of many, the first and last."""
    shown = [*values[:5], "...", values[-1]] if len(values) > 8 else list(values)
    return ", ".join(shown) + (f" ({len(values)})" if len(values) > 8 else "")


def estimate_words(found: Estimate) -> str:
    """Say how long the rest of a sweep will take."""
    if not found.missing:
        return "nothing is missing: every point is there"
    timed = f"{found.timed} points" if found.timed > 1 else "1 point"
    how = f"from {timed} timed now" if found.timed else "from the times of its finished points"
    processes = "1 process" if found.jobs == 1 else f"{found.jobs} processes"
    return f"{found.missing:,} points to do, about {duration(found.seconds)} on {processes} ({how})"


def duration(seconds: float) -> str:
    """Write a time as people do: `45 s`, `12 min`, `3 h 20 min`."""
    if seconds < 1:
        return "1 s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def status_words(frame: pd.DataFrame) -> str:
    """Count what became of the points."""
    counts = frame["status"].value_counts()
    return ", ".join(f"{counts[status]:,} {words}" for status, words in STATUS_WORDS.items() if status in counts)


def results_table(frame: pd.DataFrame, axes: Sequence[str]) -> Group:
    """Show the objective of every dataflow against one of them, for all values of the axes, over the workloads."""
    flows = list(dict.fromkeys(frame["dataflow"]))
    subject = "mas" if "mas" in flows else flows[-1]
    values = frame.assign(value=objective_of(frame))
    objectives, kinds = objective_kinds(frame)
    what = {"energy": "energy", "edp": "EDP"}.get(kinds[0], "cycles") if len(kinds) == 1 else "cost"
    if what == "cycles" and kinds[:1] not in ([], ["latency"]):
        what = f"cycles, of tilings that are best in {objectives[0]},"
    over = frame["workload"].nunique()
    title = f"{what} as a multiple of {subject}'s" + (f", geometric mean of {over} workloads" if over > 1 else "")
    table = Table()
    for path in axes:
        table.add_column(path if len(path) <= MAX_HEAD else path.replace(".", ".\n"), justify="right")
    for flow in flows:
        table.add_column(flow, justify="right")
    groups = list(values.groupby(list(axes), sort=False, dropna=False)) if axes else [((), values)]
    for at, group in groups[:MAX_ROWS]:
        by_flow = {str(flow): part.set_index("workload")["value"] for flow, part in group.groupby("dataflow")}
        cells = [_relative(by_flow, flow, subject) for flow in flows]
        table.add_row(*[_shown(one) for one in (at if isinstance(at, tuple) else (at,))], *cells)
    if len(groups) > MAX_ROWS:
        title += f" (the first {MAX_ROWS} of {len(groups):,} rows; --csv FILE has all)"
    return Group(Text(title), table)


def objective_of(frame: pd.DataFrame) -> "pd.Series[float]":
    """Return what each point's search minimised: cycles (also of a weighted objective), pJ, or their product."""
    cycles, energy = frame["cycles"].astype("float64"), frame["total_pj"].astype("float64")
    kind = frame["objective"].astype("string").fillna("").str.partition(",")[0]
    found = cycles.mask(kind == "energy", energy).mask(kind == "edp", cycles * energy)
    return found.astype("float64")


def _relative(by_flow: Mapping[str, "pd.Series[float]"], flow: str, subject: str) -> str:
    """Write the geometric mean of a dataflow over the subject, over the workloads that both can run."""
    if flow not in by_flow or subject not in by_flow:
        return "-"
    ratio = (by_flow[flow] / by_flow[subject]).dropna()
    if ratio.empty:
        return "-"
    mean = Spread.of([float(one) for one in ratio]).geomean
    all_there = len(ratio) == len(by_flow[subject])
    return f"{mean:.3f}" + ("" if all_there else f" ({len(ratio)} of {len(by_flow[subject])})")
