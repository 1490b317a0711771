"""The command line, `mas-sim`: list, validate, run, compare.

Results go to standard output, everything else to standard error. A fault in what the user gave is one clear
message and exit code 2, never a traceback; a schedule that fails its audit or its numerical check is exit code 1.
"""

import json
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from mas_sim import tables
from mas_sim.arch import Arch, load_arch
from mas_sim.config import list_presets
from mas_sim.dataflows import DATAFLOWS
from mas_sim.errors import MasSimError
from mas_sim.presets import validate_file
from mas_sim.report import Report, make_report
from mas_sim.sweep import MAIN_DATAFLOWS, MAIN_WORKLOADS, StepProgress, best_report, compare
from mas_sim.tiling import Tiling
from mas_sim.workload import Workload, load_workload

MAX_ERROR = 1e-4
"""Largest error of a float32 execution against the float64 reference that passes."""

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Simulate and explore attention dataflows on edge NPUs.",
)


class Objective(StrEnum):
    """What the search minimises."""

    latency = "latency"
    energy = "energy"
    edp = "edp"


class EnergyLevel(StrEnum):
    """Which value of each energy band."""

    low = "low"
    nominal = "nominal"
    high = "high"


ArchOption = Annotated[str, typer.Option("--arch", help="Machine: a preset's name or a YAML file.")]
ObjectiveOption = Annotated[Objective, typer.Option("--objective", help="What the search minimises.")]
LevelOption = Annotated[EnergyLevel, typer.Option("--energy", help="Value of each energy band.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
SizeOption = Annotated[int | None, typer.Option(help="Tile size; giving any turns the search off.")]
ResidentOption = Annotated[int | None, typer.Option(help="Tiles that stay in L1 over the row blocks of a head.")]
BuffersOption = Annotated[int | None, typer.Option(help="Buffers of the tensor (2 is double buffering).")]


def _console(stderr: bool = False) -> Console:
    """A console of at most 100 columns; 100 where it is not a terminal."""
    console = Console(stderr=stderr, highlight=False)
    console.width = min(100, console.width) if console.is_terminal else 100
    return console


@contextmanager
def _search_progress() -> Iterator[StepProgress]:
    """Show progress on standard error, if that is a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total} tilings"))
    console = _console(stderr=True)
    with Progress(
        *columns, TimeElapsedColumn(), console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("", total=None)

        def step(what: str, done: int, total: int) -> None:
            bar.update(task, description=f"searching {what}", completed=done, total=total)

        yield step


@app.command("list")
def list_command() -> None:
    """List the presets: machines, workloads, dataflows."""
    console = _console()
    console.print("[bold]machines[/bold] (--arch)")
    for name in list_presets("arch_configs"):
        console.print(
            f"  {name:<16} {load_arch(name).description.splitlines()[0] if load_arch(name).description else ''}"
        )
    console.print("[bold]workloads[/bold] (--workload)")
    for name in list_presets("workloads"):
        console.print(f"  {name:<16} {tables.shape_of(load_workload(name))}")
    console.print("[bold]dataflows[/bold] (--dataflow)")
    for flow in DATAFLOWS.values():
        console.print(f"  {flow.name:<16} {flow.summary}")


@app.command("validate")
def validate_command(file: Annotated[str, typer.Argument(help="An arch or workload YAML file.")]) -> None:
    """Check a YAML file, and say what it holds or everything that is wrong with it."""
    model = validate_file(Path(file))
    kind = {Arch: "machine", Workload: "workload"}.get(type(model), "energy table")
    name = getattr(model, "name", None) or getattr(model, "id", "")
    typer.echo(f"{file}: ok, a {kind} ({name}), hash {model.hash}")


@app.command("run")
def run_command(
    arch: ArchOption = "mas_edge",
    workload: Annotated[str, typer.Option("--workload", help="A preset's name or a YAML file.")] = "bert_base",
    dataflow: Annotated[str, typer.Option("--dataflow", help="See `mas-sim list`.")] = "mas",
    objective: ObjectiveOption = Objective.latency,
    energy: LevelOption = EnergyLevel.nominal,
    batch_tile: SizeOption = None,
    head_tile: SizeOption = None,
    q_tile: SizeOption = None,
    kv_tile: SizeOption = None,
    k_resident_tiles: ResidentOption = None,
    v_resident_tiles: ResidentOption = None,
    q_buffers: BuffersOption = None,
    k_buffers: BuffersOption = None,
    v_buffers: BuffersOption = None,
    score_buffers: BuffersOption = None,
    o_buffers: BuffersOption = None,
    core_split: Annotated[str | None, typer.Option(help="How cores share the work: groups or items.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the inputs of the numerical check.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Run one dataflow: at the given tiling, or at its proven best one."""
    given: dict[str, Any] = {
        name: value
        for name, value in {
            "batch_tile": batch_tile, "head_tile": head_tile, "q_tile": q_tile, "kv_tile": kv_tile,
            "k_resident_tiles": k_resident_tiles, "v_resident_tiles": v_resident_tiles,
            "q_buffers": q_buffers, "k_buffers": k_buffers, "v_buffers": v_buffers,
            "score_buffers": score_buffers, "o_buffers": o_buffers, "core_split": core_split,
        }.items()
        if value is not None
    }  # fmt: skip
    machine, shape = load_arch(arch), load_workload(workload)
    with _search_progress() as step:
        if given:
            report = make_report(dataflow, machine, shape, Tiling(**given), energy_level=energy.value, seed=seed)
        else:
            what = f"{shape.name} {dataflow}"
            report = best_report(
                dataflow, machine, shape, objective.value, energy_level=energy.value, check=True,
                progress=lambda done, total: step(what, done, total),
            )  # fmt: skip
    if as_json:
        _print_json(report.as_dict())
    else:
        _console().print(*tables.run_tables(report))
    _exit_by_checks([report])


@app.command("compare")
def compare_command(
    arch: ArchOption = "mas_edge",
    workload: Annotated[
        list[str] | None,
        typer.Option("--workload", help="Name or file; may be repeated. Default: the twelve networks."),
    ] = None,
    dataflow: Annotated[
        list[str] | None, typer.Option("--dataflow", help="May be repeated, or `all`. Default: layer_wise, flat, mas.")
    ] = None,
    objective: ObjectiveOption = Objective.latency,
    energy: LevelOption = EnergyLevel.nominal,
    check: Annotated[bool, typer.Option("--check", help="Audit and execute every winner.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Compare dataflows over workloads, each at its proven best tiling."""
    machine = load_arch(arch)
    shapes = [load_workload(name) for name in _split(workload) or MAIN_WORKLOADS]
    flows = _split(dataflow) or list(MAIN_DATAFLOWS)
    if flows == ["all"]:
        flows = list(DATAFLOWS)
    with _search_progress() as step:
        result = compare(machine, shapes, flows, objective.value, energy_level=energy.value, check=check, progress=step)
    if as_json:
        _print_json(result.as_dict())
    else:
        _console().print(*tables.compare_tables(result))
    if check:
        _exit_by_checks(list(result.reports))


def _split(values: list[str] | None) -> list[str]:
    """Names given by repeating an option, or by commas."""
    return [name for value in values or [] for name in value.split(",") if name]


def _print_json(data: dict[str, Any]) -> None:
    """Print strict JSON: a number that JSON has no word for becomes null."""

    def strict(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: strict(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [strict(item) for item in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    typer.echo(json.dumps(strict(data), indent=2, allow_nan=False))


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


def main() -> None:
    """Entry point: run the command line, and turn faults of the input into a message and exit code 2."""
    try:
        app()
    except MasSimError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
    except BrokenPipeError:
        # The reader of a pipe (`| head`) has gone: not a fault. Keep Python from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


if __name__ == "__main__":
    main()
