"""`--from` of `mas-sim run` and `trace`: a result's file, run again from what it holds alone."""

import typer

from mas_sim.errors import MasSimError
from mas_sim.report import Report, make_report
from mas_sim.results import StoredResult, load_result, package_version

_FREE = (
    *("from_file", "pick", "seed", "trace", "figure", "as_json"),
    *("out", "core", "from_cycle", "to_cycle", "no_flows"),
)
"""Parameters of `run` and `trace` that may stand beside `--from`; the file has all others."""


def stored_result(context: typer.Context, path: str | None, pick: str | None) -> StoredResult | None:
    """Load what `--from` names; None if it is not given.

    Raises
    ------
    ConfigError
        With every fault of the file.
    MasSimError
        If an option is given that the file answers, or `--pick` without `--from`.
    """
    if path is None:
        if pick is not None:
            raise MasSimError("--pick: is for --from only")
        return None
    given = [p for p in context.command.params if p.name not in _FREE and _is_given(context, str(p.name))]
    if given:
        names = ", ".join(parameter.opts[0] for parameter in given)
        raise MasSimError(f"--from: the file says what is run, so these cannot be given: {names}")
    return load_result(path, pick)


def _is_given(context: typer.Context, name: str) -> bool:
    """Whether a parameter stands on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def seed_of(context: typer.Context, stored: StoredResult | None, seed: int) -> int:
    """Return the seed of the numerical check: the file's, unless one is given."""
    return seed if stored is None or _is_given(context, "seed") else stored.seed


def rerun(stored: StoredResult, seed: int, *, check: bool = True) -> Report:
    """Run a result again; also audit and execute it, if it is to be checked.

    Raises
    ------
    TilingError, ScheduleError
        As `build_schedule`.
    """
    here = package_version()
    if stored.made_by_version != here:
        typer.echo(f"note: made by version {stored.made_by_version}; this is {here}", err=True)
    return make_report(
        stored.dataflow, stored.arch, stored.workload, stored.tiling, energy_level=stored.energy_level,
        seed=seed, check=check,
    )  # fmt: skip


def exit_unless_reproduced(report: Report, stored: StoredResult) -> None:
    """Exit with 1 if a result came out otherwise than its file says, to the digit."""
    if (report.cycles, report.energy.total) == (stored.cycles, stored.energy_pj):
        return
    version = stored.made_by_version
    said = f"{stored.cycles:,} cycles and {stored.energy_pj!r} pJ"
    typer.echo(
        f"error: not reproduced: {report.cycles:,} cycles and {report.energy.total!r} pJ, where the file says {said} "
        f"(made by version {version}, this is {package_version()})",
        err=True,
    )
    raise typer.Exit(1)
