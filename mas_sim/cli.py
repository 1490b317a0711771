"""The command line, `mas-sim`: list, validate, run, trace, compare, search, limits, crossover, workload.

Results go to standard output, everything else to standard error. A fault in what the user gave is one clear
message and exit code 2, never a traceback; a schedule that fails its audit or its numerical check, or an output that
cannot be written, is exit code 1; Ctrl-C is 130.
"""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from mas_sim import tables
from mas_sim._cli_options import (
    INTERRUPTED,
    ArchOption,
    CommandGroup,
    DtypeChoice,
    EnergyLevel,
    JsonOption,
    LevelOption,
    NormalizeOption,
    Objective,
    ObjectiveOption,
    WorkloadOption,
    arch_of,
    flows_of,
    names_of,
    naming,
    plain_console,
    print_json,
    search_progress,
    with_normalize,
    workload_of,
)
from mas_sim._cli_plot import plot_app
from mas_sim._cli_reproduce import reproduce_command
from mas_sim._cli_rerun import exit_unless_reproduced
from mas_sim._cli_run import asks_what_to_run, report_of
from mas_sim._cli_search import search_command
from mas_sim._cli_sweep import results_command, sweep_command
from mas_sim._cli_trace import tell_written, trace_command
from mas_sim._cli_workload import workload_command
from mas_sim._compare_tables import checks_words, compare_tables
from mas_sim.arch import Arch, load_arch
from mas_sim.comparison import AUTO, MAIN_DATAFLOWS, MAIN_WORKLOADS, compare
from mas_sim.config import list_presets
from mas_sim.crossover import SERIES, CrossoverPoint, crossover, findings, parse_lengths, too_long
from mas_sim.dataflows import DATAFLOWS
from mas_sim.errors import MasSimError
from mas_sim.limits import sequence_limits
from mas_sim.perfetto import write_trace
from mas_sim.presets import validate_file
from mas_sim.report import Report
from mas_sim.sweep_file import is_sweep_file, load_sweep
from mas_sim.workload import Workload, load_workload

MAX_ERROR = 1e-4
"""Largest error of a float32 execution against the float64 reference that passes."""

app = typer.Typer(
    cls=CommandGroup,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Simulate and explore attention dataflows on edge NPUs.",
)


@app.command("list")
def list_command() -> None:
    """List the presets: machines, workloads, dataflows, sweeps."""
    console = plain_console()
    console.print(Text("machines", style="bold"), "(--arch)")
    for name in list_presets("arch_configs"):
        about = load_arch(name).description.splitlines()
        console.print(Text(f"  {name:<16} {about[0] if about else ''}"))
    console.print(Text("workloads", style="bold"), "(--workload)")
    names = list_presets("workloads")
    width = max(map(len, names), default=0)
    for name in names:
        console.print(Text(f"  {name:<{width}} {tables.shape_of(load_workload(name))}"))
    console.print(Text("dataflows", style="bold"), "(--dataflow)")
    for flow in DATAFLOWS.values():
        console.print(Text(f"  {flow.name:<16} {flow.summary}"))
    console.print(Text(f"  {AUTO:<16} the best of these for a workload, and why"))
    console.print(Text("sweeps", style="bold"), "(mas-sim sweep)")
    for name in list_presets("sweeps"):
        console.print(Text(f"  {name:<16} {load_sweep(name).question}"))


@app.command("validate")
def validate_command(file: Annotated[str, typer.Argument(help="An arch, workload or sweep YAML file.")]) -> None:
    """Check a YAML file, and say what it holds or everything that is wrong with it."""
    if is_sweep_file(file):
        sweep = load_sweep(Path(file))
        typer.echo(f"{file}: ok, a sweep ({sweep.name}) of {len(sweep):,} points")
        return
    model = validate_file(Path(file))
    kind = {Arch: "machine", Workload: "workload"}.get(type(model), "energy table")
    name = getattr(model, "name", None) or getattr(model, "id", "")
    shape = f" of {tables.shape_of(model)}" if isinstance(model, Workload) else ""
    typer.echo(f"{file}: ok, a {kind} ({name}){shape}, hash {model.hash}")


@app.command("run")
@asks_what_to_run
def run_command(
    options: dict[str, Any],
    seed: Annotated[int, typer.Option(min=0, help="Seed of the inputs of the numerical check.")] = 0,
    trace: Annotated[str | None, typer.Option(help="Write a Chrome/Perfetto JSON file.")] = None,
    figure: Annotated[str | None, typer.Option(help="Draw the timeline: .svg, .pdf or .png.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Run one dataflow: at the given tiling, or at its proven best one."""
    report, stored, seed = report_of(options, check=True, seed=seed)
    if as_json:
        more = {"l1_plan": report.l1_plan(), "seed": seed}
        print_json(report.as_dict() | more | ({"chosen_by": AUTO} if options["dataflow"] == AUTO else {}))
    else:
        plain_console().print(*tables.run_tables(report))
    _write_files(report, trace, figure)
    _exit_by_checks([report])
    if stored is not None:
        exit_unless_reproduced(report, stored)


def _write_files(report: Report, trace: str | None, figure: str | None) -> None:
    """Write the trace and the figure that were asked for."""
    if trace is not None:
        tell_written(write_trace(report.schedule, report.timeline, trace))
    if figure is not None:
        from mas_sim import plots  # matplotlib is slow to import

        for path in plots.plot_timeline(report.schedule, report.timeline, figure):
            typer.echo(f"wrote {path}", err=True)


@app.command("compare")
def compare_command(
    arch: ArchOption = "mas_edge",
    workload: Annotated[
        list[str] | None,
        typer.Option("--workload", help="Name or file; may be repeated. Default: the twelve networks."),
    ] = None,
    dataflow: Annotated[
        list[str] | None,
        typer.Option(
            "--dataflow", help="May be repeated; `all`, or `auto` among them. Default: layer_wise, flat, mas."
        ),
    ] = None,
    objective: ObjectiveOption = Objective.latency,
    energy: LevelOption = EnergyLevel.nominal,
    normalize: NormalizeOption = None,
    check: Annotated[bool, typer.Option("--check", help="Audit and execute every winner.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Compare dataflows over workloads, each at its proven best tiling."""
    machine = with_normalize(arch_of(arch), normalize)
    shapes = [workload_of(name) for name in names_of("--workload", workload, MAIN_WORKLOADS)]
    flows = flows_of(dataflow, MAIN_DATAFLOWS)
    with search_progress() as step:
        result = compare(machine, shapes, flows, objective.value, energy_level=energy.value, check=check, progress=step)
    if as_json:
        print_json(result.as_dict())
    else:
        plain_console().print(compare_tables(result))
    if check:
        _exit_by_checks(list(result.reports))
        if not as_json:  # there each result has its own
            typer.echo(checks_words(result.reports))


@app.command("limits")
def limits_command(
    arch: ArchOption = "mas_edge",
    head_dim: Annotated[int, typer.Option(min=1, max=4096, help="Head dimension E.")] = 64,
    dtype: Annotated[DtypeChoice, typer.Option(help="Type of the elements.")] = DtypeChoice.fp16,
    as_json: JsonOption = False,
) -> None:
    """Show the longest sequence that each dataflow can run at all, on one core and on all."""
    machine = arch_of(arch)
    limits = sequence_limits(machine, head_dim=head_dim, dtype=dtype.value)
    if as_json:
        facts = {"arch": machine.name, "head_dim": head_dim, "dtype": dtype.value}
        print_json({**facts, "limits": [limit.as_dict() for limit in limits]})
    else:
        plain_console().print(tables.limits_table(limits, machine, head_dim, dtype.value))


@app.command("crossover")
def crossover_command(
    arch: ArchOption = "mas_edge",
    workload: WorkloadOption = "bert_base",
    over: Annotated[
        str, typer.Option(help="Lengths: seq=FIRST:LAST:xFACTOR, seq=FIRST:LAST:STEP or seq=N,N,...")
    ] = "seq=512:131072:x2",
    dataflow: Annotated[
        list[str] | None, typer.Option("--dataflow", help=f"May be repeated; `all`. Default: {', '.join(SERIES)}.")
    ] = None,
    objective: ObjectiveOption = Objective.latency,
    energy: LevelOption = EnergyLevel.nominal,
    figure: Annotated[str | None, typer.Option(help="Draw cycles and energy: .svg, .pdf or .png.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Find which dataflow wins at which sequence length, where overwrite pays, and where nothing fits."""
    machine, shape, lengths = arch_of(arch), workload_of(workload), parse_lengths(over)
    series = flows_of(dataflow, SERIES)
    points: list[CrossoverPoint] = []
    stopped = False
    with search_progress() as step, naming("--over"):
        found = crossover(machine, shape, lengths, series, objective.value, energy_level=energy.value, progress=step)
        try:
            points.extend(found)
        except KeyboardInterrupt:
            stopped = True
    if as_json:
        facts = {"arch": machine.name, "workload": shape.name, "objective": objective.value, "complete": not stopped}
        shown = {**findings(points), "too_long_to_simulate": too_long(points)}
        print_json({**facts, "points": [point.as_dict() for point in points], **shown})
    elif points:
        plain_console().print(tables.crossover_tables(points, machine, shape, objective.value))
    if figure is not None and points:
        _draw_crossover(points, figure, f"{shape.name} on {machine.name}")
    if stopped:
        typer.echo(f"interrupted: {len(points)} of {len(lengths)} lengths are done", err=True)
        raise typer.Exit(INTERRUPTED)


app.command("trace")(trace_command)
app.command("search")(search_command)
app.add_typer(plot_app, name="plot")
app.command("sweep")(sweep_command)
app.command("reproduce")(reproduce_command)
app.command("results")(results_command)
app.command("workload")(workload_command)


def _draw_crossover(points: list[CrossoverPoint], path: str, title: str) -> None:
    """Draw the figure of a crossover."""
    from mas_sim import plots  # matplotlib is slow to import

    for file in plots.plot_crossover([point.row() for point in points], path, title=title):
        typer.echo(f"wrote {file}", err=True)


def _exit_by_checks(reports: list[Report]) -> None:
    """Exit with 1 if a schedule failed its audit or computed something else than attention."""
    for report in reports:
        where = f"{report.workload.name} {report.schedule.dataflow}"
        if report.audit is not None and not report.audit.ok:
            typer.echo(f"error: {where}: the schedule is not legal:\n{report.audit.summary()}", err=True)
            raise typer.Exit(1)
        if report.execution is not None and not report.execution.max_abs_error <= MAX_ERROR:
            error = report.execution.max_abs_error
            typer.echo(f"error: {where}: the output is off by {error:g}, more than {MAX_ERROR:g}", err=True)
            raise typer.Exit(1)


def main(command: Callable[[], Any] = app) -> None:
    """Run the command line (the entry point), and turn faults of the input into a message and exit code 2."""
    try:
        command()
    except MasSimError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except OSError as error:
        _forget_output()
        if isinstance(error, BrokenPipeError):  # the reader of a pipe (`| head`) has gone: not a fault
            sys.exit(141)
        with suppress(OSError):
            about = f"{error.filename}: " if error.filename else "the output cannot be written: "
            typer.echo(f"error: {about}{error.strerror or error}", err=True)
        sys.exit(1)


def _forget_output() -> None:
    """Keep Python from complaining again, at exit, of what could not be written."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
