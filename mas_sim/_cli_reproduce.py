"""The command `mas-sim reproduce`: the report of published figures beside ours."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from mas_sim._cli_options import INTERRUPTED, names_of, plain_console
from mas_sim._engines import processors
from mas_sim.sweep import SweepState

if TYPE_CHECKING:
    from mas_sim.reproduce.book import Book

LINE_SECONDS = 10.0
MOST_SHOWN = 20


def reproduce_command(
    out: Annotated[str, typer.Option("--out", help="Folder of the report.")] = "reports",
    quick: Annotated[bool, typer.Option("--quick", help="Only a part: fewer cases, each as in the whole.")] = False,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes. Default: one for each processor.")] = None,
    against: Annotated[
        str | None, typer.Option(help="A report to compare with: exit code 1 if it lacks a case of this one.")
    ] = None,
    page: Annotated[list[str] | None, typer.Option("--page", help="Only this page; may be repeated.")] = None,
) -> None:
    """Reproduce the published tables and figures, and write them beside ours as a report; goes on where it was."""
    from mas_sim.reproduce import reproduce  # matplotlib and pandas are slow to import

    console = plain_console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[state]}"))
    last = time.monotonic()
    with Progress(
        *columns, TimeElapsedColumn(), console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("reproduce", total=None, state="")

        def step(what: str, state: SweepState | None) -> None:
            nonlocal last
            done = "" if state is None else f"{state.points - state.left:,}/{state.points:,} points"
            if state is None:
                bar.update(task, description=what, state=done)
            else:
                bar.update(task, description=what, completed=state.points - state.left, total=state.points, state=done)
            if not console.is_terminal and time.monotonic() - last >= LINE_SECONDS:
                last = time.monotonic()
                typer.echo(f"{what} {done}", err=True)

        try:
            book = reproduce(
                out, quick=quick, jobs=jobs or processors(), only=names_of("--page", page, ()), progress=step
            )
        except KeyboardInterrupt:
            typer.echo(f"interrupted: what is finished is kept in {out}; the same command goes on", err=True)
            raise typer.Exit(INTERRUPTED) from None
    for one in book.pages:
        typer.echo(f"{one.title}\n" + "\n".join(f"  - {finding}" for finding in one.findings))
    verdicts = [verdict for one in book.pages for verdict in one.verdicts]
    for verdict in verdicts:
        typer.echo(f"{verdict.judgement:<14} {verdict.claim.what}: {verdict.claim.text} published, {verdict.ours} here")
    typer.echo(f"wrote {len(book.files)} files in {out}", err=True)
    if against is not None:
        _exit_if_different(book, Path(against))


def _exit_if_different(book: "Book", whole: Path) -> None:
    """Exit with 1 if a report does not hold the same figures as this one, with the first that are missing."""
    found = book.differences(whole)
    if found:
        typer.echo("\n".join(["error: other figures than in the report:", *found[:MOST_SHOWN]]), err=True)
        raise typer.Exit(1)
    typer.echo(f"every case of {len(book.points)} tables is in {whole}, too, with the same figures", err=True)
