"""The commands `mas-sim plot KIND`: every figure, from a file that a command wrote or from a run of its own."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mas_sim import _plot_files as files
from mas_sim._cli_options import (
    ArchOption,
    EnergyLevel,
    LevelOption,
    NormalizeOption,
    Objective,
    ObjectiveOption,
    arch_of,
    flows_of,
    names_of,
    search_progress,
    with_normalize,
    workload_of,
)
from mas_sim._cli_plot_parts import (
    BaselineOption,
    ComparedFile,
    FlowsOption,
    OutOption,
    TitleOption,
    WorkloadsOption,
    prepare,
    save,
)
from mas_sim._cli_plot_sweeps import (
    convergence_command,
    crossover_command,
    heatmap_command,
    pareto_command,
    sweep_command,
)
from mas_sim._cli_rerun import exit_unless_reproduced, rerun
from mas_sim._cli_run import asks_what_to_run, report_of
from mas_sim.comparison import MAIN_DATAFLOWS, MAIN_WORKLOADS, Comparison, compare
from mas_sim.dataflows import DATAFLOWS
from mas_sim.errors import ConfigError, Fault, MasSimError
from mas_sim.report import ExpBalance, Report
from mas_sim.results import load_result
from mas_sim.schedule import MAC

if TYPE_CHECKING:
    from mas_sim.plots import Figure

SHOWN_PRODUCTS = 40
"""A timeline shows so many instructions of the MAC unit unless a window is given; more could not be read."""

plot_app = typer.Typer(no_args_is_help=True, help="Draw a figure, from a file of results or from a run of its own.")


@plot_app.command("timeline")
@asks_what_to_run
def timeline_command(
    options: dict[str, Any],
    file: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="A result (run, search, compare --json), run again.")
    ] = None,
    out: OutOption = None,
    core: Annotated[int | None, typer.Option(help="Draw this core only, from 0 on.")] = None,
    from_cycle: Annotated[int, typer.Option(help="First cycle that is shown.")] = 0,
    to_cycle: Annotated[int | None, typer.Option(help="Show up to this cycle. Default: some rounds.")] = None,
    no_occupancy: Annotated[bool, typer.Option("--no-occupancy", help="Without the panel of L1.")] = False,
    title: TitleOption = None,
) -> None:
    """Draw a run as a Gantt chart: what each unit did, what it waited for, and how full L1 was."""
    context: typer.Context = options["context"]
    file = file or options["from_file"]
    out = prepare(context, out, file, ("from_file",))
    if file is not None:
        stored = load_result(file, options["pick"])
        report = rerun(stored, stored.seed, check=False)
    else:
        stored, (report, *_) = None, report_of(options, check=False)
    window = _window(report, core, from_cycle, to_cycle)
    save(lambda: _timeline(report, window, core, title, not no_occupancy), out)
    if stored is not None:
        exit_unless_reproduced(report, stored)


def _timeline(
    report: Report, window: tuple[int, int], core: int | None, title: str | None, occupancy: bool
) -> "Figure":
    from mas_sim.plots import timeline_figure  # matplotlib is slow to import

    return timeline_figure(report.schedule, report.timeline, window, core, title, occupancy=occupancy)


def _window(report: Report, core: int | None, from_cycle: int, to_cycle: int | None) -> tuple[int, int]:
    """Return the cycles to show, and say so where they were not given.

    Raises
    ------
    ConfigError
        If the run has no such core or cycles.
    """
    cycles, faults = report.cycles, []
    if core is not None and not 0 <= core < report.arch.cores:
        faults.append(Fault.of("--core", None, "", f"must be 0 to {report.arch.cores - 1}", core))
    if not 0 <= from_cycle < cycles:
        faults.append(
            Fault.of("--from-cycle", None, "", f"must be 0 to {cycles - 1:,}, a cycle of the run", from_cycle)
        )
    elif to_cycle is not None and to_cycle <= from_cycle:
        faults.append(Fault.of("--to-cycle", None, "", f"must be more than --from-cycle, {from_cycle:,}", to_cycle))
    if faults:
        raise ConfigError(faults)
    if to_cycle is not None:
        return from_cycle, to_cycle
    products = report.timeline.end[report.schedule.unit_of == MAC]
    products = products[products > from_cycle]
    products.sort()
    last = min(cycles, int(products[SHOWN_PRODUCTS - 1])) if len(products) > SHOWN_PRODUCTS else cycles
    if last < cycles:
        typer.echo(f"showing cycles {from_cycle:,} to {last:,} of {cycles:,} (--to-cycle {cycles}: all)", err=True)
    return from_cycle, last


def _compared(
    arch: str, workload: list[str] | None, flows: list[str], objective: Objective, energy: EnergyLevel,
    normalize: str | None = None, default: Sequence[str] = MAIN_WORKLOADS,
) -> Comparison:  # fmt: skip
    """Run a comparison."""
    machine = with_normalize(arch_of(arch), normalize)
    shapes = [workload_of(name) for name in names_of("--workload", workload, default)]
    with search_progress() as step:
        return compare(machine, shapes, flows, objective.value, energy_level=energy.value, progress=step)


def _rows(result: Comparison) -> list[dict[str, Any]]:
    """Return the rows of bars from a comparison."""
    return [files.bar_row(entry) for entry in result.as_dict()["results"] if entry["fits"]]


@plot_app.command("energy")
def energy_command(
    context: typer.Context,
    file: ComparedFile = None,
    out: OutOption = None,
    arch: ArchOption = "mas_edge",
    workload: WorkloadsOption = None,
    dataflow: FlowsOption = None,
    objective: ObjectiveOption = Objective.latency,
    energy: LevelOption = EnergyLevel.nominal,
    normalize: NormalizeOption = None,
    baseline: BaselineOption = None,
    absolute: Annotated[bool, typer.Option("--absolute", help="In uJ, not over a baseline.")] = False,
    title: TitleOption = None,
) -> None:
    """Draw energy by component, dataflow and workload."""
    if absolute and baseline is not None:
        raise MasSimError("--absolute and --baseline exclude each other")
    out = prepare(context, out, file)
    flows = flows_of(dataflow, MAIN_DATAFLOWS)
    rows = (
        files.comparison_rows(file)
        if file is not None
        else _rows(_compared(arch, workload, flows, objective, energy, normalize))
    )
    base = None if absolute else (baseline or _first_flow(rows))
    save(lambda: _bars("energy_figure", rows, base, title), out)


@plot_app.command("time")
def time_command(
    context: typer.Context,
    file: ComparedFile = None,
    out: OutOption = None,
    arch: ArchOption = "mas_edge",
    workload: WorkloadsOption = None,
    dataflow: FlowsOption = None,
    objective: ObjectiveOption = Objective.latency,
    energy: LevelOption = EnergyLevel.nominal,
    normalize: NormalizeOption = None,
    baseline: BaselineOption = None,
    title: TitleOption = None,
) -> None:
    """Draw execution time over a baseline's, by dataflow and workload."""
    out = prepare(context, out, file)
    flows = flows_of(dataflow, MAIN_DATAFLOWS)
    rows = (
        files.comparison_rows(file)
        if file is not None
        else _rows(_compared(arch, workload, flows, objective, energy, normalize))
    )
    save(lambda: _bars("time_figure", rows, baseline or _first_flow(rows), title), out)


def _first_flow(rows: list[dict[str, Any]]) -> str:
    """Return the dataflow of the first row, as the figure calls it."""
    return "auto" if rows[0].get("chosen_by") == "auto" else str(rows[0]["dataflow"])


def _bars(name: str, rows: list[dict[str, Any]], baseline: str | None, title: str | None) -> "Figure":
    from mas_sim import plots  # matplotlib is slow to import

    figure: Figure = getattr(plots, name)(rows, baseline=baseline, title=title)
    return figure


@plot_app.command("roofline")
def roofline_command(
    context: typer.Context,
    file: ComparedFile = None,
    out: OutOption = None,
    arch: ArchOption = "mas_edge",
    workload: Annotated[
        list[str] | None, typer.Option("--workload", help="May be repeated. Default: bert_base.")
    ] = None,
    dataflow: Annotated[list[str] | None, typer.Option("--dataflow", help="May be repeated. Default: all.")] = None,
    objective: ObjectiveOption = Objective.latency,
    energy: LevelOption = EnergyLevel.nominal,
    title: TitleOption = None,
) -> None:
    """Draw the machine's roofline, and how near to it the dataflows come."""
    out = prepare(context, out, file)
    from mas_sim.plots import RooflinePoint, roofline_figure  # matplotlib is slow to import

    if file is None:
        flows = flows_of(dataflow, tuple(DATAFLOWS))
        result = _compared(arch, workload, flows, objective, energy, default=("bert_base",))
        points = [RooflinePoint.of(report) for report in result.reports]
    else:
        points = []
        for machine, one in files.roofline_results(file):
            balance = ExpBalance(one.exp_balance.needed_per_cycle, one.exp_balance.available_per_cycle or float("inf"))
            moved = one.dram_read_bytes + one.dram_write_bytes
            limit = one.bounds.limited_by
            shape = one.inputs.workload
            points.append(RooflinePoint.make(machine, shape, one.dataflow, moved, one.cycles, balance, limit))
    save(lambda: roofline_figure(points, title=title), out)


plot_app.command("convergence")(convergence_command)
plot_app.command("crossover")(crossover_command)
plot_app.command("pareto")(pareto_command)
plot_app.command("heatmap")(heatmap_command)
plot_app.command("sweep")(sweep_command)
