"""What the commands `mas-sim plot KIND` share: their options, and how a figure is prepared and saved."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mas_sim.errors import ConfigError, Fault, MasSimError

if TYPE_CHECKING:
    from mas_sim.plots import Figure

OPTION_NAMES = ("baseline", "workload", "ratio", "x", "y", "value", "by")
"""Arguments of the figures that have an option of their name."""

OutOption = Annotated[
    str | None,
    typer.Option("--out", "-o", help="File: .svg, .pdf or .png; both .svg and .png without. Default: the kind's name."),
]
TitleOption = Annotated[str | None, typer.Option(help="Written above the figure.")]
BaselineOption = Annotated[str | None, typer.Option(help="Dataflow that is 1. Default: the first one.")]
ComparedFile = Annotated[
    str | None, typer.Argument(metavar="[FILE]", help="What `compare --json` printed. Without it, it is run.")
]
WorkloadsOption = Annotated[
    list[str] | None,
    typer.Option("--workload", help="Name or file; may be repeated. Default: the twelve networks."),
]
FlowsOption = Annotated[
    list[str] | None, typer.Option("--dataflow", help="May be repeated; `all` stands for every one.")
]
FolderArgument = Annotated[str, typer.Argument(metavar="DIR", help="Folder of `mas-sim sweep --out`.")]
RatioOption = Annotated[
    str | None, typer.Option(help="Two dataflows, A/B: draw the value of A over that of B (the speedup of B).")
]
WhereOption = Annotated[
    list[str] | None, typer.Option("--where", help="COLUMN=VALUE: only these points; may be repeated.")
]
SweepOption = Annotated[str | None, typer.Option("--sweep", help="Which one, where DIR holds several.")]
OneWorkload = Annotated[str | None, typer.Option("--workload", help="Which one, where there are several.")]

FREE = ("file", "pick", "out", "title", "core", "from_cycle", "to_cycle", "no_occupancy", "baseline", "absolute")


def prepare(context: typer.Context, out: str | None, file: str | None = None, also: Sequence[str] = ()) -> str:
    """Return where the figure goes, having refused early what could not be written, or has no effect beside a file.

    Raises
    ------
    ConfigError
        If the suffix is unknown or there is no such folder.
    MasSimError
        If options are given that the file answers.
    """
    from mas_sim.plots import check_figure_path  # matplotlib is slow to import

    out = str(context.info_name) if out is None else out
    check_figure_path(out)
    if not Path(out).resolve().parent.is_dir():
        raise ConfigError([Fault("--out", None, "", "must be in a folder that exists", repr(out))])
    given = [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name not in (*FREE, *also) and is_given(context, str(parameter.name))
    ]
    if file is not None and given:
        raise MasSimError(f"{file}: the file says what is drawn, so these cannot be given: {', '.join(given)}")
    return out


def is_given(context: typer.Context, name: str) -> bool:
    """Whether a parameter stands on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def save(make: Callable[[], "Figure"], out: str) -> None:
    """Make a figure, save it, and say which files were written."""
    from mas_sim.plots import save_figure  # matplotlib is slow to import

    try:
        figure = make()
    except ConfigError as error:
        raise ConfigError(map(_by_option, error.faults)) from None
    for file in save_figure(figure, out):
        typer.echo(f"wrote {file}", err=True)


def _by_option(fault: Fault) -> Fault:
    """Let a fault of a figure's argument name the option that gave it."""
    if fault.file != "<python>":
        return fault
    if fault.path in OPTION_NAMES:
        return replace(fault, file=f"--{fault.path}", path="")
    return replace(fault, file="plot")
