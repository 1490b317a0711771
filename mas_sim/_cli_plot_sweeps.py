"""The commands `mas-sim plot` of searches, sequence lengths and sweeps."""

import math
from typing import TYPE_CHECKING, Annotated

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
from mas_sim._cli_plot_frames import (
    chosen,
    leaders,
    pair_of,
    partners,
    refuse_one_value,
    refuse_open_axes,
    varying,
    with_objective,
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
from mas_sim.errors import MasSimError
from mas_sim.search import ALL, SEARCHERS, make_space
from mas_sim.search.base import Budget, History
from mas_sim.search.exhaustive import ExhaustiveSearch
from mas_sim.search.objective import Objective as Goal
from mas_sim.search.pareto import pareto_front
from mas_sim.store import load_results

if TYPE_CHECKING:
    pass

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
    value: Annotated[
        str | None, typer.Option(help="Column that decides: cycles, total_pj, ... Default: what was minimised.")
    ] = None,
    ratio: RatioOption = None,
    workload: OneWorkload = None,
    where: WhereOption = None,
    sweep: SweepOption = None,
    title: TitleOption = None,
) -> None:
    """Draw two swept axes as a heat map: which dataflow wins where, and by how much."""
    out = prepare(context, out)
    from mas_sim.plots import heatmap_figure, label_with  # matplotlib is slow to import

    frame = chosen(load_results(folder, sweep), where)
    pair = pair_of(ratio)
    with_others = {other for axis in (x, y) if axis for other in (axis, *partners(frame, axis))}
    axes = [group for group in leaders(frame) if group not in with_others]
    missing = (x is None) + (y is None)
    if missing != len(axes) and missing:
        found = ", ".join(varying(frame)) or "none"
        raise MasSimError(f"{folder}: give --x and --y, two of the fields that vary ({found}), and --where for others")
    y = axes.pop(0) if y is None else y
    x = axes.pop(0) if x is None else x
    across, up = x, y
    if up in partners(frame, across):
        raise MasSimError(f"{across} and {up} always change together (they are zipped): draw them with `plot sweep`")
    refuse_open_axes(frame, (across, up), "dataflow")
    frame, drawn, note = with_objective(frame, value)
    labels = {"x_label": label_with(across, partners(frame, across)), "y_label": label_with(up, partners(frame, up))}
    shown = title if title is not None else note
    save(
        lambda: heatmap_figure(
            frame, across, up, value=drawn, ratio=pair, workload=workload, title=shown, x_label=labels["x_label"],
            y_label=labels["y_label"],
        ),
        out,
    )  # fmt: skip


def sweep_command(
    context: typer.Context,
    folder: FolderArgument,
    out: OutOption = None,
    x: Annotated[str | None, typer.Option("--x", help="Swept field. Default: the one that varies.")] = None,
    y: Annotated[
        str | None, typer.Option("--y", help="Column to draw: cycles, total_pj, ... Default: what was minimised.")
    ] = None,
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
    from mas_sim.plots import label_with, sweep_figure  # matplotlib is slow to import

    whole = load_results(folder, sweep)
    frame, pair = chosen(whole, where), pair_of(ratio)
    if x is None:
        axes = [axis for axis in leaders(frame) if axis != by]
        if len(axes) != 1:
            found = ", ".join(axes) or "none"
            raise MasSimError(f"{folder}: give --x, one of the fields that vary ({found}), and --where for others")
        x = axes[0]
    across, beside = x, partners(frame, x)
    if across in frame.columns:
        refuse_one_value(frame, across, partners(whole, across))
        refuse_open_axes(frame, (across,), by)
    frame, drawn, note = with_objective(frame, y)
    shown = title if title is not None else note
    save(
        lambda: sweep_figure(
            frame, across, y=drawn, by=by, ratio=pair, ideal=ideal, ideal_name=ideal or "", workload=workload,
            title=shown, x_label=label_with(across, beside),
        ),
        out,
    )  # fmt: skip
