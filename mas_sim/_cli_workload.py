"""The command `mas-sim workload`: a workload file from a model's Hugging Face configuration."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mas_sim._cli_options import DtypeChoice
from mas_sim.config import dump_yaml
from mas_sim.errors import ConfigError, Fault, MasSimError
from mas_sim.hf_config import ATTENTIONS, load_config, read_config


class Phase(StrEnum):
    """Which rows of Q there are."""

    prefill = "prefill"
    decode = "decode"


def workload_command(
    config: Annotated[str, typer.Argument(help="A model's config.json, as Hugging Face publishes it.")],
    seq: Annotated[
        int, typer.Option(min=1, max=2**24, help="Keys: the prompt, the cache with its new tokens, or the encoder's.")
    ],
    phase: Annotated[Phase, typer.Option(help="All tokens at once, or the newest against a cache.")] = Phase.prefill,
    batch: Annotated[int, typer.Option(min=1, max=65536, help="Sequences in the batch.")] = 1,
    dtype: Annotated[DtypeChoice | None, typer.Option(help="Type of the elements. Default: the model's.")] = None,
    attention: Annotated[str | None, typer.Option(help=f"Where a model has several: {', '.join(ATTENTIONS)}.")] = None,
    new_tokens: Annotated[
        int | None, typer.Option(min=1, max=2**24, help="Rows of Q. Default: all in prefill, 1 in decode.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the workload.")] = None,
    out: Annotated[str | None, typer.Option(help="Write this .yaml file instead of printing.")] = None,
) -> None:
    """Make a workload file of a model's attention from its Hugging Face config.json."""
    if out is not None and not out.endswith((".yaml", ".yml")):
        raise MasSimError(f"--out: must end in .yaml, or no command would take it for a file (got {out!r})")
    data, line_of = load_config(config)
    try:
        reading = read_config(
            data, seq=seq, phase=phase.value, name=name, batch=batch, dtype=dtype and dtype.value,
            attention=attention, new_tokens=new_tokens, file=config, line_of=line_of,
        )  # fmt: skip
    except ConfigError as error:
        raise ConfigError(_as_option(fault) for fault in error.faults) from None
    for note in reading.notes:
        typer.echo(f"note: {note}", err=True)
    text = dump_yaml(reading.workload)
    if out is None:
        typer.echo(text, nl=False)
    else:
        Path(out).write_text(text, encoding="utf-8")
        typer.echo(f"wrote {out}", err=True)


def _as_option(fault: Fault) -> Fault:
    """Name the option that gave the value of a fault that stands in no file."""
    if fault.file != "<python>":
        return fault
    option = "--" + fault.path.replace("_", "-")
    return Fault(option, None, "", fault.rule, fault.value, fault.suggestion)
