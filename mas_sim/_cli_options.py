"""What the commands share: their options, consoles, progress, printing of JSON, and how faults name an option."""

import json
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from typer.core import TyperGroup

from mas_sim.arch import Arch, load_arch
from mas_sim.dataflows import DATAFLOWS
from mas_sim.errors import ConfigError, MasSimError
from mas_sim.sweep import AUTO, StepProgress
from mas_sim.tiling import Tiling
from mas_sim.workload import Workload, load_workload

INTERRUPTED = 130
"""Exit code of a command that was stopped by Ctrl-C: 128 and the signal's number."""


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


class DtypeChoice(StrEnum):
    """Type of the tensors' elements."""

    fp16 = "fp16"
    bf16 = "bf16"
    int8 = "int8"


ArchOption = Annotated[str, typer.Option("--arch", help="Machine: a preset's name or a YAML file.")]
WorkloadOption = Annotated[str, typer.Option("--workload", help="A preset's name or a YAML file.")]
ObjectiveOption = Annotated[Objective, typer.Option("--objective", help="What the search minimises.")]
LevelOption = Annotated[EnergyLevel, typer.Option("--energy", help="Value of each energy band.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
SizeOption = Annotated[int | None, typer.Option(help="Tile size; giving any choice turns the search off.")]
ResidentOption = Annotated[int | None, typer.Option(help="Tiles that stay in L1 over the row blocks of a head.")]
BuffersOption = Annotated[int | None, typer.Option(help="Buffers of the tensor (2 is double buffering).")]
SplitOption = Annotated[str | None, typer.Option(help="How cores share the work: groups or items.")]
InPlaceOption = Annotated[
    bool | None,
    typer.Option("--softmax-in-place/--no-softmax-in-place", help="Whether P takes the bytes of C. Default: it does."),
]
OverwriteOption = Annotated[
    str | None,
    typer.Option(help="What softmax may write P over (mas): none, v, k, or auto, the first of these that fits."),
]


class CommandGroup(TyperGroup):
    """The group of all commands: ends one that Ctrl-C stopped with the exit code that shells expect."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from None


def plain_console(stderr: bool = False) -> Console:
    """Make a console of at most 100 columns (100 where it is not a terminal) that takes no text for markup."""
    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    console.width = min(100, console.width) if console.is_terminal else 100
    return console


@contextmanager
def search_progress() -> Iterator[StepProgress]:
    """Show progress on standard error, if that is a terminal."""
    console = plain_console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[state]}"))
    with Progress(
        *columns, TimeElapsedColumn(), console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("working", total=None, state="")

        def step(what: str, done: int, total: int) -> None:
            nonlocal task
            if total:
                bar.update(task, description=what, completed=done, total=total, state=f"{done:,}/{total:,} tilings")
                return
            # A new task, since a total that was known cannot be forgotten: the bar pulses while it is not.
            bar.remove_task(task)
            state = "compiling (about half a minute, once)" if nothing_compiled() else "bounding tilings"
            task = bar.add_task(what, total=None, state=state)

        yield step


def nothing_compiled() -> bool:
    """Whether the search still has to be compiled; False where that cannot be told from the package's own folder."""
    cache = Path(__file__).parent / "__pycache__"
    elsewhere = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("NUMBA_DISABLE_JIT")
    return not elsewhere and os.access(cache, os.W_OK) and not any(cache.glob("_batch.*.nbi"))


@contextmanager
def naming(option: str) -> Iterator[None]:
    """Let faults of a value that no file holds name the option that gave it."""
    try:
        yield
    except ConfigError as error:
        faults = [replace(fault, file=option) if fault.file == "<python>" else fault for fault in error.faults]
        raise ConfigError(faults) from None


def arch_of(name: str) -> Arch:
    """Load what `--arch` names."""
    with naming("--arch"):
        return load_arch(name)


def workload_of(name: str) -> Workload:
    """Load what `--workload` names."""
    with naming("--workload"):
        return load_workload(name)


def names_of(option: str, values: Sequence[str] | None, default: Sequence[str]) -> list[str]:
    """Names given by repeating an option, or by commas; the default if it is not given at all.

    Raises
    ------
    MasSimError
        If a name is empty.
    """
    if values is None:
        return list(default)
    names = [name.strip() for value in values for name in value.split(",")]
    if not all(names):
        raise MasSimError(f"{option}: a name is empty (got {', '.join(map(repr, values))})")
    return names


def given_tiling(dataflow: str, objective: Objective | None, options: dict[str, Any]) -> Tiling | None:
    """Return the tiling that the options give, or None if they leave it to the search.

    Parameters
    ----------
    objective
        The one asked for, None if none is.
    options
        Options by name; those that are no choice of a tiling are ignored.

    Raises
    ------
    MasSimError
        If an option would have no effect.
    """
    choices = {spec.name: options[spec.name] for spec in fields(Tiling) if options[spec.name] is not None}
    flow = DATAFLOWS.get(dataflow)
    if "score_buffers" in choices and flow is not None and len(flow.score_buffers) == 1:
        raise MasSimError(f"--score-buffers: {dataflow} has no choice, it always has {flow.score_buffers[0]}")
    if not choices:
        return None
    given = ", ".join("--" + name.replace("_", "-") for name in choices)
    if dataflow == AUTO:
        raise MasSimError(f"--dataflow auto searches every dataflow, so a tiling cannot be given ({given})")
    if objective is not None:
        raise MasSimError(f"--objective is for the search, which is off when a tiling is given ({given})")
    if choices.get("overwrite") in ("v", "k"):
        choices.setdefault("softmax_in_place", False)
    return Tiling(**choices)


def print_json(data: Any) -> None:
    """Print strict JSON: a number that JSON has no word for becomes null."""

    def strict(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: strict(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [strict(item) for item in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    typer.echo(json.dumps(strict(data), indent=2, allow_nan=False))
