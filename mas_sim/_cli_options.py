"""What the commands share: their options, consoles, progress, printing of JSON, and how faults name an option."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from typer.core import TyperGroup

from mas_sim._table_parts import strict_json
from mas_sim.arch import Arch, Normalize, load_arch
from mas_sim.comparison import AUTO, StepProgress, require_name
from mas_sim.dataflows import DATAFLOWS
from mas_sim.errors import ConfigError, MasSimError
from mas_sim.tiling import GRANULARITIES, Tiling
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
ExpOnOption = Annotated[str | None, typer.Option(help="Unit that computes exp (fusemax): vec or mac.")]
OverlapOption = Annotated[
    str | None,
    typer.Option(
        help="How MAC and VEC overlap: none or ping_pong (flash), pipelined or none (fusemax). Default of a given "
        "tiling: none for flash, pipelined for fusemax."
    ),
]
GranularityOption = Annotated[
    str | None,
    typer.Option(
        help="What is fused at once, as FLAT names it: M (all batches), B (a batch), H (a head) or R (rows). Limits "
        "the search to it; with tile sizes, sets those not given."
    ),
]
NormalizeOption = Annotated[
    str | None,
    typer.Option(help="How softmax divides: divide (each element) or reciprocal (one a row). Default: the machine's."),
]

FromOption = Annotated[
    str | None,
    typer.Option("--from", help="Run the result of a JSON file again (run, search, compare), from the file alone."),
]
PickOption = Annotated[
    str | None, typer.Option(help="Which result of that file, where it has several: WORKLOAD/DATAFLOW.")
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
            state = "compiling (about a minute, once)" if nothing_compiled() else "bounding tilings"
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


def with_normalize(arch: Arch, normalize: str | None) -> Arch:
    """Return the machine with the softmax that `--normalize` asks for, if it is given."""
    if normalize is None:
        return arch
    try:
        return arch.with_softmax(cast(Normalize, normalize))
    except ConfigError as error:
        raise ConfigError(replace(fault, file="--normalize", path="") for fault in error.faults) from None


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


def flows_of(values: Sequence[str] | None, default: Sequence[str]) -> list[str]:
    """Names that `--dataflow` gives, as `names_of`; `all` stands for every dataflow."""
    asked = names_of("--dataflow", values, default)
    return [flow for name in asked for flow in (DATAFLOWS if name == "all" else (name,))]


def given_tiling(
    dataflow: str, objective: Objective | None, options: dict[str, Any], workload: Workload
) -> Tiling | None:
    """Return the tiling that the options give, or None if they leave it to the search.

    Parameters
    ----------
    objective
        The one asked for, None if none is.
    options
        Options by name; those that are no choice of a tiling are ignored, but for `granularity`, which sets the tile
        sizes that are not given where any choice is.

    Raises
    ------
    MasSimError
        If an option would have no effect, or the tile sizes are not of the granularity.
    """
    choices = {spec.name: options[spec.name] for spec in fields(Tiling) if options[spec.name] is not None}
    flow, granularity = DATAFLOWS.get(dataflow), options["granularity"]
    if granularity is not None:
        require_name("granularity", granularity, GRANULARITIES)
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
    if granularity is not None:
        choices = _fused_sizes(granularity, workload) | choices
        _check_fused(granularity, workload, choices)
    return Tiling(**choices)


def _fused_sizes(granularity: str, workload: Workload) -> dict[str, int]:
    """Return the tile sizes that a granularity fixes: whole dimensions, the inner ones first; `R` fixes none."""
    whole = {"q_tile": workload.n_q, "head_tile": workload.heads, "batch_tile": workload.batch}
    return dict(list(whole.items())[: len(whole) - GRANULARITIES.index(granularity)])


def _check_fused(granularity: str, workload: Workload, choices: dict[str, Any]) -> None:
    """Refuse tile sizes that fuse less or more than a granularity says; all at once.

    A dimension of 1 has one size only, and so does not tell a granularity from the next one.
    """
    whole, fixed = _fused_sizes("M", workload), _fused_sizes(granularity, workload)
    free = next((name for name in whole if name not in fixed), None)
    sizes = asdict(Tiling()) | choices
    rules = [(name, f"{size} or more") for name, size in fixed.items() if sizes[name] < size]
    if free is not None and sizes[free] >= whole[free] > 1:
        rules.append((free, f"less than {whole[free]}"))
    if rules:
        faults = [f"--{name.replace('_', '-')} must be {rule} (got {sizes[name]})" for name, rule in rules]
        raise MasSimError(f"--granularity {granularity}: {'; '.join(faults)}")


def print_json(data: Any) -> None:
    """Print strict JSON: a number that JSON has no word for becomes null."""
    typer.echo(json.dumps(strict_json(data), indent=2, allow_nan=False))
