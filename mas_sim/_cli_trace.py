"""The command `mas-sim trace`: one run as a file for a trace viewer."""

from pathlib import Path
from typing import Annotated, Any

import typer

from mas_sim._cli_rerun import exit_unless_reproduced
from mas_sim._cli_run import asks_what_to_run, report_of
from mas_sim.errors import ConfigError, Fault, MasSimError
from mas_sim.perfetto import WrittenTrace, write_trace
from mas_sim.report import Report

MANY_EVENTS = 1_000_000
"""More than viewers open in comfort."""


@asks_what_to_run
def trace_command(
    options: dict[str, Any],
    out: Annotated[str, typer.Option("--out", "-o", help="The file to write: .json, or .json.gz to compress it.")],
    core: Annotated[int | None, typer.Option(help="Show this core only, from 0 on.")] = None,
    from_cycle: Annotated[int, typer.Option(help="Show what touches this cycle, and what is behind it.")] = 0,
    to_cycle: Annotated[int | None, typer.Option(help="Show what begins before this cycle. Default: all.")] = None,
    no_flows: Annotated[bool, typer.Option("--no-flows", help="Leave out the arrows of dependencies.")] = False,
) -> None:
    """Write one run as a trace for Perfetto: when every unit did what, and why it waited."""
    _check_name(out)
    report, stored, _ = report_of(options, check=False)
    _check_window(report, core, from_cycle, to_cycle)
    written = write_trace(
        report.schedule, report.timeline, out,
        core=core, first_cycle=from_cycle, last_cycle=to_cycle, flows=not no_flows,
    )  # fmt: skip
    tell_written(written)
    if stored is not None:
        exit_unless_reproduced(report, stored)


def tell_written(written: WrittenTrace) -> None:
    """Say on standard error what a trace file holds, and how to open it."""
    counts = f"{written.events:,} events, {written.slices:,} slices, {written.flows:,} flows"
    typer.echo(f"wrote {written.path}: {counts}", err=True)
    typer.echo('open it at https://ui.perfetto.dev ("Open trace file"), or in chrome://tracing', err=True)
    if written.events > MANY_EVENTS:
        typer.echo(
            "note: so many events open slowly; --from-cycle, --to-cycle, --core and --no-flows of `mas-sim trace` "
            "leave some out",
            err=True,
        )


def _check_name(out: str) -> None:
    """Refuse a file that could not be written or would not be known for what it is, before anything is run.

    Raises
    ------
    MasSimError
        If its name does not end as a trace's does.
    ConfigError
        If there is no such folder.
    """
    if not out.endswith((".json", ".json.gz")):
        raise MasSimError(f"--out: must end in .json or .json.gz (got {out!r})")
    if not Path(out).resolve().parent.is_dir():
        raise ConfigError([Fault("--out", None, "", "must be in a folder that exists", repr(out))])


def _check_window(report: Report, core: int | None, from_cycle: int, to_cycle: int | None) -> None:
    """Refuse a core or cycles that the run does not have.

    Raises
    ------
    ConfigError
        With every fault.
    """
    cores, cycles = report.arch.cores, report.cycles
    faults = []
    if core is not None and not 0 <= core < cores:
        rule = f"must be 0 to {cores - 1}, a core of {report.arch.name}" if cores > 1 else "must be 0, the only core"
        faults.append(Fault.of("--core", None, "", rule, core))
    if not 0 <= from_cycle < cycles:
        faults.append(
            Fault.of("--from-cycle", None, "", f"must be 0 to {cycles - 1:,}, a cycle of the run", from_cycle)
        )
    if to_cycle is not None and to_cycle <= from_cycle:
        faults.append(Fault.of("--to-cycle", None, "", f"must be more than --from-cycle, {from_cycle:,}", to_cycle))
    if faults:
        raise ConfigError(faults)
