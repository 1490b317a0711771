"""The commands `mas-sim plot` of searches, sequence lengths and sweeps."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mas_sim import _plot_files as files
from mas_sim._cli_options import (
    ArchOption,
    EnergyLevel,
    LevelOption,
    Objective,
    ObjectiveOption,
    WorkloadOption,
    arch_of,
    flows_of,
    naming,
    search_progress,
    workload_of,
)
from mas_sim._cli_plot_parts import (
    FlowsOption,
    FolderArgument,
    OneWorkload,
    OutOption,
    RatioOption,
    SweepOption,
    TitleOption,
    WhereOption,
    prepare,
    save,
)
from mas_sim.comparison import require_name
from mas_sim.crossover import SERIES, crossover, parse_lengths
from mas_sim.dataflows import DATAFLOWS
from mas_sim.energy_table import Level
from mas_sim.errors import ConfigError, Fault, MasSimError, nearest
from mas_sim.search import ALL, SEARCHERS, make_space
from mas_sim.search.base import Budget, History
from mas_sim.search.exhaustive import ExhaustiveSearch
from mas_sim.search.objective import Objective as Goal
from mas_sim.search.pareto import pareto_front
from mas_sim.store import load_results

if TYPE_CHECKING:
    import pandas as pd

QUANTITIES = {"latency": "cycles", "energy": "energy (pJ)", "edp": "EDP (pJ cycles)"}
FlowOption = Annotated[str, typer.Option("--dataflow", help="Its name; all: which one, too, is searched.")]


def crossover_command(
    context: typer.Context,
    file: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="What `crossover --json` printed. Without it, it is run.")
    ] = None,
    out: OutOption = None,
    arch: ArchOption = "mas_edge",
    workload: WorkloadOption = "bert_base",
    over: Annotated[str, typer.Option(help="Lengths, as of `mas-sim crossover`.")] = "seq=512:131072:x2",
    dataflow: FlowsOption = None,
    objective: ObjectiveOption = Objective.latency,
    energy: LevelOption = EnergyLevel.nominal,
    title: TitleOption = None,
) -> None:
    """Draw cycles and energy of dataflows over the sequence length."""
    out = prepare(context, out, file)
    from mas_sim.plots import crossover_figure  # matplotlib is slow to import

    if file is not None:
        rows, name = files.crossover_rows(file)
    else:
        machine, shape, lengths = arch_of(arch), workload_of(workload), parse_lengths(over)
        series, name = flows_of(dataflow, SERIES), f"{shape.name} on {machine.name}"
        level: Level = energy.value
        with search_progress() as step, naming("--over"):
            found = crossover(machine, shape, lengths, series, objective.value, energy_level=level, progress=step)
            rows = [point.row() for point in found]
    save(lambda: crossover_figure(rows, title=name if title is None else title), out)


def convergence_command(
    context: typer.Context,
    file: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="What `search --history` wrote. Without it, it is run.")
    ] = None,
    out: OutOption = None,
    arch: ArchOption = "mas_edge",
    workload: WorkloadOption = "bert_base",
    dataflow: FlowOption = "mas",
    objective: ObjectiveOption = Objective.latency,
    energy: LevelOption = EnergyLevel.nominal,
    budget: Annotated[int, typer.Option(min=1, help="Evaluations of each run.")] = 2000,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each method: seeds 0, 1, ...")] = 5,
    quantity: Annotated[str | None, typer.Option(help="Of a file: what its values are, with their unit.")] = None,
    optimum: Annotated[float | None, typer.Option(help="Of a file: value of the proven optimum, if known.")] = None,
    title: TitleOption = None,
) -> None:
    """Draw how each method of search comes to its best, over the evaluations."""
    out = prepare(context, out, file, ("quantity", "optimum"))
    from mas_sim.plots import convergence_figure  # matplotlib is slow to import

    if optimum is not None and not 0 < optimum < math.inf:
        raise MasSimError(f"--optimum: must be more than 0 (got {optimum:g})")
    if file is not None:
        runs, name = files.histories_of(file), None
    else:
        if quantity is not None or optimum is not None:
            raise MasSimError("--quantity and --optimum are for a file only: a search of its own knows them")
        require_name("dataflow", dataflow, (*DATAFLOWS, ALL))
        machine, shape = arch_of(arch), workload_of(workload)
        name, quantity = f"{dataflow} on {machine.name}, {shape.name}", QUANTITIES[objective.value]
        space, goal = make_space(machine, shape, dataflow), Goal.parse(objective.value)
        with search_progress() as step:
            runs = {}
            for method, searcher in SEARCHERS.items():
                for seed in range(repeats):
                    step(f"{method}, seed {seed}", 0, 0)
                    found = searcher().search(
                        space, goal, budget=Budget(budget, None), seed=seed, energy_level=energy.value
                    )
                    _keep(runs, method, found.history)
            step("proof", 0, 0)
            optimum = ExhaustiveSearch().search(space, goal, energy_level=energy.value).best.value
    shown = name if title is None else title
    save(lambda: convergence_figure(runs, quantity=quantity or "value", optimum=optimum, title=shown), out)


def _keep(runs: dict[str, list[History]], method: str, history: History | None) -> None:
    """Keep the history of a run, if it has one."""
    if history is not None:
        runs.setdefault(method, []).append(history)


def pareto_command(
    context: typer.Context,
    file: Annotated[
        str | None,
        typer.Argument(metavar="[FILE]", help="What `search --objective pareto --json` printed. Else it is run."),
    ] = None,
    out: OutOption = None,
    arch: ArchOption = "mas_edge",
    workload: WorkloadOption = "bert_base",
    dataflow: FlowOption = "mas",
    energy: LevelOption = EnergyLevel.nominal,
    title: TitleOption = None,
) -> None:
    """Draw the Pareto front of cycles and energy."""
    out = prepare(context, out, file)
    from mas_sim.plots import FrontPoint, pareto_figure  # matplotlib is slow to import

    if file is not None:
        points, name = files.front_points(file), None
    else:
        require_name("dataflow", dataflow, (*DATAFLOWS, ALL))
        machine, shape = arch_of(arch), workload_of(workload)
        name = f"Pareto front of {shape.name} on {machine.name}"
        with search_progress() as step:
            what = f"{shape.name} {dataflow} pareto"
            step(what, 0, 0)
            front = pareto_front(
                make_space(machine, shape, dataflow), energy_level=energy.value,
                progress=lambda done, total: step(what, done, total),
            )  # fmt: skip
        points = [(trial.cycles, trial.energy_pj, trial.dataflow) for trial in front.trials]
    shown = name if title is None else title
    save(lambda: pareto_figure([FrontPoint(*point) for point in points], title=shown), out)


# --- sweeps -------------------------------------------------------------------------------------------------------


def heatmap_command(
    context: typer.Context,
    folder: FolderArgument,
    out: OutOption = None,
    x: Annotated[str | None, typer.Option("--x", help="Swept field. Default: the last that varies.")] = None,
    y: Annotated[str | None, typer.Option("--y", help="Swept field. Default: the first that varies.")] = None,
    value: Annotated[str, typer.Option(help="Column that decides: cycles, total_pj, dram_bytes, ...")] = "cycles",
    ratio: RatioOption = None,
    workload: OneWorkload = None,
    where: WhereOption = None,
    sweep: SweepOption = None,
    title: TitleOption = None,
) -> None:
    """Draw two swept axes as a heat map: which dataflow wins where, and by how much."""
    out = prepare(context, out)
    from mas_sim.plots import heatmap_figure  # matplotlib is slow to import

    frame = _chosen(load_results(folder, sweep), where)
    pair = _pair(ratio)
    axes = [axis for axis in _varying(frame) if axis not in (x, y)]
    missing = (x is None) + (y is None)
    if missing != len(axes) and missing:
        found = ", ".join(_varying(frame)) or "none"
        raise MasSimError(f"{folder}: give --x and --y, two of the fields that vary ({found}), and --where for others")
    y = axes.pop(0) if y is None else y
    x = axes.pop(0) if x is None else x
    across, up = x, y
    save(lambda: heatmap_figure(frame, across, up, value=value, ratio=pair, workload=workload, title=title), out)


def sweep_command(
    context: typer.Context,
    folder: FolderArgument,
    out: OutOption = None,
    x: Annotated[str | None, typer.Option("--x", help="Swept field. Default: the one that varies.")] = None,
    y: Annotated[str, typer.Option("--y", help="Column to draw: cycles, total_pj, dram_bytes, ...")] = "cycles",
    by: Annotated[str, typer.Option(help="Column that makes the lines.")] = "dataflow",
    ratio: RatioOption = None,
    ideal: Annotated[str | None, typer.Option(help="Column to draw beside, as what would be ideal.")] = None,
    workload: OneWorkload = None,
    where: WhereOption = None,
    sweep: SweepOption = None,
    title: TitleOption = None,
) -> None:
    """Draw one swept axis as lines: a line for each dataflow, or the ratio of two."""
    out = prepare(context, out)
    from mas_sim.plots import sweep_figure  # matplotlib is slow to import

    frame = _chosen(load_results(folder, sweep), where)
    pair = _pair(ratio)
    if x is None:
        axes = [axis for axis in _varying(frame) if axis != by]
        if len(axes) != 1:
            found = ", ".join(axes) or "none"
            raise MasSimError(f"{folder}: give --x, one of the fields that vary ({found}), and --where for others")
        x = axes[0]
    across = x
    save(
        lambda: sweep_figure(
            frame, across, y=y, by=by, ratio=pair, ideal=ideal, ideal_name=ideal or "", workload=workload, title=title
        ),
        out,
    )


def _varying(frame: "pd.DataFrame") -> list[str]:
    """Return the fields on the axes of a sweep that have several values: the columns before `workload`."""
    names = list(frame.columns)
    axes = names[: names.index("workload")] if "workload" in names else []
    return [name for name in axes if name != "position" and frame[name].nunique() + frame[name].isna().any() > 1]


def _pair(ratio: str | None) -> tuple[str, str] | None:
    """Read `A/B`.

    Raises
    ------
    MasSimError
        If it is something else.
    """
    if ratio is None:
        return None
    above, slash, below = ratio.partition("/")
    if not above or not slash or not below or "/" in below or above == below:
        raise MasSimError(f"--ratio: must be two dataflows, A/B (got {ratio!r:.60})")
    return above, below


def _chosen(frame: "pd.DataFrame", where: Sequence[str] | None) -> "pd.DataFrame":
    """Return the points that every `--where COLUMN=VALUE` keeps.

    Raises
    ------
    ConfigError
        If there is no such column or value; names the nearest.
    """
    for text in where or ():
        column, equals, value = text.partition("=")
        if not equals:
            raise ConfigError([Fault.of("--where", None, "", "must be COLUMN=VALUE", text)])
        if column not in frame.columns:
            rule = "must name a column of the results"
            raise ConfigError([Fault.of("--where", None, "", rule, column, nearest(column, map(str, frame.columns)))])
        cells = ["none" if hole else cell for cell, hole in zip(frame[column], frame[column].isna(), strict=True)]
        kept = frame[[_says(cell, value) for cell in cells]]
        if not len(kept):
            there = [str(cell) for cell in dict.fromkeys(cells)]
            rule = f"must be a value of {column}: {', '.join(there[:20])}"
            raise ConfigError([Fault.of("--where", None, "", rule, value, nearest(value, there))])
        frame = kept
    return frame


def _says(cell: Any, text: str) -> bool:
    """Whether a cell holds the value that a text stands for."""
    if str(cell).lower() == text.lower():
        return True
    try:
        return not isinstance(cell, str | bool) and float(cell) == float(text)
    except (TypeError, ValueError):
        return False
