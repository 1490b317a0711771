"""The commands `mas-sim sweep` and `mas-sim results`: many points from one file, and what came out of them."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn

from mas_sim._cli_options import INTERRUPTED, JsonOption, plain_console, print_json
from mas_sim._engines import find_scheduler, processors
from mas_sim.errors import MasSimError
from mas_sim.store import Store, chosen_sweep, store_path
from mas_sim.sweep import SweepProgress, SweepState, estimate, run_sweep
from mas_sim.sweep_file import Sweep, load_sweep

if TYPE_CHECKING:
    import pandas as pd

LINE_SECONDS = 10.0
"""Where standard error is no terminal, progress is a line at most so often."""

SweepOption = Annotated[
    str | None, typer.Option("--sweep", help="Name or id, where DIR holds several. Default: the last.")
]


def sweep_command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A shipped sweep's name (`list`), or a YAML file.")],
    out: Annotated[str | None, typer.Option("--out", help="Folder of the results; a store in it is added to.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes. Default: one for each processor.")] = None,
    dask: Annotated[str | None, typer.Option(help="Address of a Dask scheduler, to use its workers instead.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Only go on with what DIR holds; points that failed are tried again.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the file, estimate the time, and stop.")] = False,
) -> None:
    """Run a sweep: every missing point is computed, and stored as it finishes; run again, it goes on."""
    from mas_sim import _sweep_tables as shown  # pandas is slow to import

    if dask is not None and jobs is not None:
        raise MasSimError("--jobs is for processes on this machine; with --dask the cluster's workers are used")
    if out is None and not dry_run:
        raise MasSimError("--out is required: the folder of the results (or --dry-run)")
    sweep, workers = load_sweep(file), jobs or processors()
    for line in shown.plan_lines(sweep):
        typer.echo(line, err=True)
    if out is None or dry_run:
        with timing_progress() as timing:
            found = estimate(sweep, jobs=workers, progress=timing)
        typer.echo(shown.estimate_words(found), err=True)
        return
    if dask is not None:
        find_scheduler(dask)  # before there is a folder with nothing in it
    if resume:
        _check_there_is_something(sweep, out)
    with Store.open(out, create_missing=True) as store:
        try:
            if dask is None:
                with timing_progress() as timing:
                    found = estimate(sweep, store, jobs=workers, retry_failed=resume, progress=timing)
                typer.echo(shown.estimate_words(found), err=True)
            with sweep_progress(sweep.name) as progress:
                run_sweep(sweep, store, jobs=workers, dask=dask, retry_failed=resume, progress=progress)
        except KeyboardInterrupt:
            finished = len(store.finished(set(sweep.keys)))
            kept = f"{finished:,} of {len(set(sweep.keys)):,} points are finished and kept in {store.path}"
            typer.echo(f"interrupted: {kept}; the same command goes on", err=True)
            raise typer.Exit(INTERRUPTED) from None
        frame = _frame(store, sweep.id)
    plain_console().print(shown.results_table(frame, sweep.axes))
    typer.echo(f"{len(sweep):,} points: {shown.status_words(frame)}; in {store_path(out)}", err=True)
    _exit_if_failed(frame)


def _check_there_is_something(sweep: Sweep, out: str) -> None:
    """Refuse to resume where there is nothing of this sweep."""
    with Store.open(out, writes=False) as store:
        if any(one["id"] == sweep.id for one in store.sweeps()):
            return
        names = list(dict.fromkeys(one["name"] for one in store.sweeps()))
        held = f"it holds {', '.join(names)}" if names else "it holds no sweep"
        raise MasSimError(
            f"--resume: {store.path} holds nothing of {sweep.name} as it is now ({held}): its file, a file that it "
            "names or mas_sim itself is another. Without --resume, its points are computed beside the others"
        )


def _frame(store: Store, sweep_id: str) -> "pd.DataFrame":
    from mas_sim.results_frame import results_frame  # pandas is slow to import

    return results_frame(store.rows(sweep_id))


def _exit_if_failed(frame: "pd.DataFrame") -> None:
    """Exit with 1 if any point failed by itself, with the reasons."""
    failed = frame[frame["status"] == "failed"]
    if failed.empty:
        return
    for reason, count in failed["reason"].value_counts().head(5).items():
        typer.echo(f"error: {count:,} points failed: {reason}", err=True)
    raise typer.Exit(1)


@contextmanager
def timing_progress() -> Iterator[Callable[[int], None]]:
    """Show that points are timed for the estimate: a line that goes again, on a terminal; else one that stays."""
    console = plain_console(stderr=True)
    words = "timing a few points (the very first use compiles, for about a minute)"
    with console.status(words) if console.is_terminal else nullcontext() as status:

        def step(count: int) -> None:
            if status is not None:
                status.update(f"{words}: {count} timed")
            elif count == 0:
                typer.echo(words, err=True)

        yield step


@contextmanager
def sweep_progress(name: str) -> Iterator[SweepProgress]:
    """Show how far a sweep is, its rate and what remains: a bar on a terminal, else a line now and then."""
    from mas_sim._sweep_tables import duration

    console = plain_console(stderr=True)
    last = time.monotonic()

    def words(state: SweepState) -> str:
        remaining = state.remaining_seconds
        rate = f"{state.points_per_second:.3g} points/s" if remaining is not None else "starting"
        left = "" if remaining is None else f", {duration(remaining)} left"
        failed = f", {state.failed:,} failed" if state.failed else ""
        return f"{state.points - state.left:,}/{state.points:,}  {rate}{left}{failed}"

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[state]}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(name, total=None, state="starting")

        def step(state: SweepState) -> None:
            nonlocal last
            bar.update(task, completed=state.points - state.left, total=state.points, state=words(state))
            now = time.monotonic()
            if not console.is_terminal and now - last >= LINE_SECONDS:
                last = now
                typer.echo(f"{name}: {words(state)}", err=True)

        yield step


def results_command(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="Folder of a sweep, or its store.")],
    sweep: SweepOption = None,
    csv: Annotated[str | None, typer.Option(help="Write every row to a CSV file.")] = None,
    parquet: Annotated[str | None, typer.Option(help="Write every row to a Parquet file.")] = None,
    key: Annotated[
        str | None, typer.Option(help="Print one point's whole result, for `run --from`; the key's first digits do.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the results of a sweep, also while it runs: who wins where; export them; or one point in full."""
    from mas_sim import _sweep_tables as shown  # pandas is slow to import
    from mas_sim.results_frame import export, plain_rows

    with Store.open(folder, writes=False) as store:
        if key is not None:
            print_json(store.result(key))
            return
        chosen = chosen_sweep(store, sweep)
        frame, axes = _frame(store, chosen["id"]), chosen["axes"]
    wanted = [(path, suffix) for path, suffix in ((csv, ".csv"), (parquet, ".parquet")) if path is not None]
    for path, suffix in wanted:
        if not path.endswith(suffix):
            raise MasSimError(f"--{suffix[1:]}: the file's name must end in {suffix} (got {path})")
    for path, _ in wanted:
        typer.echo(f"wrote {export(frame, path)}: {len(frame):,} rows", err=True)
    if as_json:
        print_json({**chosen, "results": plain_rows(frame)})
    elif csv is None and parquet is None:
        plain_console().print(shown.results_table(frame, axes))
        typer.echo(f"{chosen['name']}: {len(frame):,} points: {shown.status_words(frame)}")
