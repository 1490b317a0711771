"""The command `mas-sim search`: one method or all of them, for one objective or for the front of two."""

import importlib.util
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from mas_sim import _search_tables as shown
from mas_sim._cli_options import (
    INTERRUPTED,
    ArchOption,
    EnergyLevel,
    JsonOption,
    LevelOption,
    WorkloadOption,
    arch_of,
    plain_console,
    print_json,
    search_progress,
    workload_of,
)
from mas_sim._search_outcome import MethodRun, Outcome
from mas_sim.arch import Arch
from mas_sim.comparison import StepProgress, require_name
from mas_sim.dataflows import DATAFLOWS
from mas_sim.energy_table import Level
from mas_sim.errors import MasSimError
from mas_sim.report import make_report
from mas_sim.search import ALL, OBJECTIVES, SEARCHERS, make_space
from mas_sim.search.base import Budget, NothingFitsError, SearchResult
from mas_sim.search.evaluator import AnySpace
from mas_sim.search.exhaustive import ExhaustiveSearch
from mas_sim.search.objective import Objective
from mas_sim.search.pareto import ParetoFront, pareto_front
from mas_sim.search.searcher import Searcher
from mas_sim.workload import Workload

EXHAUSTIVE, TPE, PARETO, WEIGHTED = "exhaustive", "tpe", "pareto", "weighted"
METHODS = (EXHAUSTIVE, *SEARCHERS, TPE, ALL)
DEFAULT_BUDGET = 2000


@dataclass(frozen=True)
class _Job:
    """What is searched, and for what."""

    arch: Arch
    workload: Workload
    dataflow: str
    space: AnySpace
    level: Level
    step: StepProgress

    def progress(self, method: str) -> Any:
        """Return the progress of a search, under its name."""
        what = f"{self.workload.name} {self.dataflow} {method}"
        self.step(what, 0, 0)
        return lambda done, total: self.step(what, done, total)


def search_command(
    arch: ArchOption = "mas_edge",
    workload: WorkloadOption = "bert_base",
    dataflow: Annotated[str, typer.Option("--dataflow", help="Its name; all: which one, too, is searched.")] = "mas",
    method: Annotated[
        str | None, typer.Option(help=f"{', '.join(METHODS)}. Default: exhaustive, which proves.")
    ] = None,
    objective: Annotated[
        str, typer.Option(help="latency, energy, edp, weighted[:W] (W: weight of latency), or pareto.")
    ] = "latency",
    energy: LevelOption = EnergyLevel.nominal,
    max_cycles: Annotated[float | None, typer.Option(help="Only tilings of so many cycles at most.")] = None,
    max_energy_uj: Annotated[float | None, typer.Option(help="Only tilings of so many uJ at most.")] = None,
    budget: Annotated[
        int | None, typer.Option(help=f"Evaluations. Default: {DEFAULT_BUDGET:,}, or no limit with --seconds.")
    ] = None,
    seconds: Annotated[float | None, typer.Option(help="Seconds that each search may take.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of the methods' chance. Default: 0.")] = None,
    repeats: Annotated[int | None, typer.Option(min=1, help="Runs of each method: seeds seed, seed + 1, ...")] = None,
    gap: Annotated[float | None, typer.Option(help="exhaustive: stop within this share of the optimum.")] = None,
    limit: Annotated[int, typer.Option(min=2, max=1024, help="Candidates of each tile size, about.")] = 32,
    no_proof: Annotated[bool, typer.Option("--no-proof", help="Do not prove the optimum beside.")] = False,
    as_json: JsonOption = False,
    plot: Annotated[str | None, typer.Option(help="Draw convergence, or the front: .svg, .pdf or .png.")] = None,
    history: Annotated[str | None, typer.Option(help="Write every evaluation to a CSV file.")] = None,
) -> None:
    """Search the best tiling of a dataflow, or of all of them, and say how far it is from the proven optimum."""
    options = locals()
    machine, shape = arch_of(arch), workload_of(workload)
    require_name("dataflow", dataflow, (*DATAFLOWS, ALL))
    require_name("objective", objective.partition(":")[0], (*OBJECTIVES, WEIGHTED, PARETO))
    require_name("method", method or EXHAUSTIVE, METHODS)
    _check_options(method or EXHAUSTIVE, objective, options)
    if plot is not None:
        from mas_sim.plots import check_figure_path  # matplotlib is slow to import

        check_figure_path(plot)
    with search_progress() as step:
        space = make_space(machine, shape, dataflow, limit=limit)
        job = _Job(machine, shape, dataflow, space, energy.value, step)
        if objective == PARETO:
            front = pareto_front(space, energy_level=job.level, progress=job.progress(PARETO))
        else:
            limits = {"cycles": max_cycles, "energy_uj": max_energy_uj}
            goal = Objective.parse(objective, {name: most for name, most in limits.items() if most is not None})
            outcome = _search(job, goal, method or EXHAUSTIVE, options)
    if objective == PARETO:
        _show_front(job, front, as_json, plot)
    else:
        _show_outcome(job, outcome, as_json, plot, history)


def _check_options(method: str, objective: str, options: dict[str, Any]) -> None:
    """Refuse options without effect, or with no sense; all at once.

    Raises
    ------
    MasSimError
        With a line for each.
    """
    given = {name for name, value in options.items() if value is not None and value is not False}
    budgeted = ("budget", "seconds", "seed", "repeats", "no_proof", "history")
    rules: list[str] = []

    def refuse(names: Sequence[str], why: str) -> None:
        rules.extend(f"--{name.replace('_', '-')}: {why}" for name in names if name in given)

    if objective == PARETO:
        refuse(("method", "max_cycles", "max_energy_uj", "gap", *budgeted), "has no effect on the front (pareto)")
    elif method == EXHAUSTIVE:
        refuse(budgeted, "has no effect on exhaustive search, which proves the optimum of all legal tilings")
        refuse(("plot",), "exhaustive search has no convergence to draw: give another --method (or all)")
    else:
        refuse(("gap",), f"is for exhaustive search only, not for {method}")
    share = options["gap"]
    if share is not None and not 0 <= share < math.inf:
        rules.append(f"--gap: must be a share, 0 or more (got {share:g})")
    ends = {name: options[name] for name in ("budget", "seconds") if options[name] is not None}
    rules += [f"--{name}: must be positive (got {value:g})" for name, value in ends.items() if not value > 0]
    if rules:
        raise MasSimError("\n".join(rules))


def _searchers(method: str) -> dict[str, Searcher]:
    """Return the budgeted methods that a name stands for; `all` are our own: Optuna's takes a hundred times as long.

    Raises
    ------
    MasSimError
        If Optuna is needed, and is not there.
    """
    found: dict[str, Searcher] = {name: cls() for name, cls in SEARCHERS.items() if method in (name, ALL)}
    there = importlib.util.find_spec("optuna") is not None
    if method == TPE and not there:
        raise MasSimError('--method tpe needs Optuna, which is not installed: pip install "mas_sim[optuna]"')
    if method == TPE:
        from mas_sim.search.optuna_adapter import OptunaSearch  # Optuna is slow to import, and may not be there

        found[TPE] = OptunaSearch()
    return found


def _search(job: _Job, goal: Objective, method: str, options: dict[str, Any]) -> Outcome:
    """Run what was asked for; what is done so far when interrupted."""
    if method == EXHAUSTIVE:
        search = ExhaustiveSearch(gap=options["gap"] or 0.0)
        found = search.search(job.space, goal, job.progress(method), energy_level=job.level)
        return Outcome(goal, (MethodRun(method, None, found),), None, found.stopped == "interrupted")
    first, seconds = options["seed"] or 0, options["seconds"]
    seeds = range(first, first + (options["repeats"] or 1))
    budget = Budget(options["budget"] or (None if seconds else DEFAULT_BUDGET), seconds)
    runs, interrupted = _runs(job, goal, _searchers(method), seeds, budget)
    proof: SearchResult | None = None
    if not interrupted and not options["no_proof"] and Outcome(goal, tuple(runs)).proven is None:
        try:
            proof = ExhaustiveSearch().search(job.space, goal, job.progress("proof"), energy_level=job.level)
            interrupted = proof.stopped == "interrupted"
        except KeyboardInterrupt:
            interrupted = True
    outcome = Outcome(goal, tuple(runs), proof, interrupted)
    if not outcome.found:
        raise MasSimError(f"no tiling that was simulated keeps to the limits ({goal.describe()})")
    return outcome


def _runs(
    job: _Job, goal: Objective, searchers: dict[str, Searcher], seeds: range, budget: Budget
) -> tuple[list[MethodRun], bool]:
    """Run every method from every seed; return the runs, and whether the user stopped them."""
    runs: list[MethodRun] = []
    alone = len(searchers) * len(seeds) == 1
    for method, searcher in searchers.items():
        for seed in seeds:
            progress = job.progress(method if len(seeds) == 1 else f"{method}, seed {seed}")
            try:
                found: SearchResult | None = searcher.search(
                    job.space, goal, budget=budget, seed=seed, energy_level=job.level, progress=progress
                )
            except KeyboardInterrupt:
                if not runs:
                    raise
                return runs, True
            except NothingFitsError:
                raise
            except MasSimError:  # nothing that it simulated keeps to the limits
                if alone:
                    raise
                found = None
            runs.append(MethodRun(method, seed, found))
            if found is not None and found.stopped == "interrupted":
                return runs, True
    return runs, False


def _show_outcome(job: _Job, outcome: Outcome, as_json: bool, plot: str | None, history: str | None) -> None:
    """Print the outcome, write its files, and exit as interrupted if it was."""
    single = len(outcome.runs) == 1 and outcome.runs[0].result is not None
    best = outcome.chosen
    if as_json:
        facts = outcome.facts(best, outcome.runs[0].seed if single else None)
        report = make_report(
            best.best.dataflow, job.arch, job.workload, best.best.tiling, energy_level=job.level, check=False,
            proven_optimal=best.proven_optimal, search=facts,
        )  # fmt: skip
        print_json(report.as_dict() | ({} if single else {"methods": outcome.method_facts()}))
    elif single:
        plain_console().print(shown.run_search_table(outcome, job.arch, job.workload))
    else:
        plain_console().print(*shown.methods_tables(outcome, job.arch, job.workload))
    if history is not None:
        _write_history(outcome, history)
    if plot is not None:
        from mas_sim.plots import plot_convergence  # matplotlib is slow to import

        runs = {m: [r.result.history for r in outcome.runs_of(m) if r.result is not None] for m in outcome.methods}
        lines = {method: [one for one in of if one is not None] for method, of in runs.items()}
        quantity = {"latency": "cycles", "energy": "energy (pJ)", "edp": "EDP (pJ cycles)"}
        name = quantity.get(outcome.objective.name, outcome.objective.name)
        optimum = None if outcome.proven is None else outcome.proven.best.value
        title = f"{job.dataflow} on {job.arch.name}, {job.workload.name}"
        _wrote(plot_convergence(lines, plot, quantity=name, optimum=optimum, title=title))
    _exit_if(outcome.interrupted)


def _write_history(outcome: Outcome, path: str) -> None:
    """Write every evaluation of every run as CSV."""
    import pandas as pd  # slow to import

    frames = []
    for run in outcome.runs:
        if run.result is not None and run.result.history is not None:
            frame = run.result.history.to_frame()
            frame.insert(0, "seed", run.seed)
            frame.insert(0, "method", run.method)
            frames.append(frame)
    columns = ["method", "seed", "evaluation", "index", "value", "best", "seconds"]
    table = pd.concat(frames) if frames else pd.DataFrame(columns=columns)
    table[columns].to_csv(path, index=False, lineterminator="\n")
    _wrote([path])


def _show_front(job: _Job, front: ParetoFront, as_json: bool, plot: str | None) -> None:
    """Print the front, draw it, and exit as interrupted if it was."""
    facts = {"objective": PARETO, "space": front.space, "legal": front.legal, "simulated": front.simulated}
    if as_json:
        results = [
            make_report(
                trial.dataflow, job.arch, job.workload, trial.tiling, energy_level=job.level, check=False,
                proven_optimal=front.proven, search=facts,
            ).as_dict()
            for trial in front.trials
        ]  # fmt: skip
        about = {"arch": job.arch.name, "workload": job.workload.name, "dataflow": job.dataflow}
        stopped = "done" if front.proven else "interrupted"
        print_json({**about, **facts, "proven": front.proven, "stopped": stopped, "results": results})
    else:
        plain_console().print(*shown.front_tables(front, job.arch, job.workload))
    if plot is not None:
        from mas_sim.plots import FrontPoint, plot_pareto  # matplotlib is slow to import

        points = [FrontPoint(trial.cycles, trial.energy_pj, trial.dataflow) for trial in front.trials]
        _wrote(plot_pareto(points, plot, title=f"Pareto front of {job.workload.name} on {job.arch.name}"))
    _exit_if(not front.proven)


def _wrote(files: Sequence[object]) -> None:
    """Say which files were written."""
    for file in files:
        typer.echo(f"wrote {file}", err=True)


def _exit_if(interrupted: bool) -> None:
    """Exit as shells expect of a command that Ctrl-C stopped."""
    if interrupted:
        typer.echo("interrupted: this is the best so far", err=True)
        raise typer.Exit(INTERRUPTED)
