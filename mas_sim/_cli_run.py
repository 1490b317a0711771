"""What `mas-sim run` and `mas-sim trace` share: the options that say what is run, and the report of it."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from mas_sim._cli_options import (
    ArchOption,
    BuffersOption,
    EnergyLevel,
    ExpOnOption,
    FromOption,
    GranularityOption,
    InPlaceOption,
    LevelOption,
    NormalizeOption,
    Objective,
    OverlapOption,
    OverwriteOption,
    PickOption,
    ResidentOption,
    SizeOption,
    SplitOption,
    WorkloadOption,
    arch_of,
    given_tiling,
    search_progress,
    with_normalize,
    workload_of,
)
from mas_sim._cli_rerun import rerun, seed_of, stored_result
from mas_sim.comparison import best_report
from mas_sim.report import Report, make_report
from mas_sim.results import StoredResult


def _what_to_run(
    context: typer.Context,
    arch: ArchOption = "mas_edge",
    workload: WorkloadOption = "bert_base",
    dataflow: Annotated[str, typer.Option("--dataflow", help="See `mas-sim list`; auto picks the best.")] = "mas",
    objective: Annotated[
        Objective | None, typer.Option("--objective", help="What the search minimises. Default: latency.")
    ] = None,
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
    core_split: SplitOption = None,
    softmax_in_place: InPlaceOption = None,
    overwrite: OverwriteOption = None,
    exp_on: ExpOnOption = None,
    overlap: OverlapOption = None,
    granularity: GranularityOption = None,
    normalize: NormalizeOption = None,
    from_file: FromOption = None,
    pick: PickOption = None,
) -> None:
    """Hold the options that say what is run: only its signature is used."""


def asks_what_to_run(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say what is run, before its own; it gets them as a dict, its first argument."""
    shared = inspect.signature(_what_to_run).parameters
    own = list(inspect.signature(command).parameters.values())[1:]

    @functools.wraps(command)
    def wrapper(**given: Any) -> None:
        options = {name: given.pop(name) for name in shared}
        command(options, **given)

    parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*shared.values(), *own)
    ]  # so that those without a default may stand behind those with one
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapper


def report_of(options: dict[str, Any], *, check: bool, seed: int = 0) -> tuple[Report, StoredResult | None, int]:
    """Run what the options ask for.

    Parameters
    ----------
    options
        Those of `asks_what_to_run`, by name.
    check, seed
        Whether to audit and execute it too, and the seed of the inputs.

    Returns
    -------
    (Report, StoredResult or None, int)
        The report; the result that was run again, if there was one; and the seed, which that may have set.

    Raises
    ------
    MasSimError
        If the options make no sense, or nothing fits.
    """
    stored = stored_result(options["context"], options["from_file"], options["pick"])
    seed = seed_of(options["context"], stored, seed)
    if stored is not None:
        return rerun(stored, seed, check=check), stored, seed
    machine, shape = with_normalize(arch_of(options["arch"]), options["normalize"]), workload_of(options["workload"])
    dataflow, level = options["dataflow"], options["energy"].value
    tiling = given_tiling(dataflow, options["objective"], options, shape)
    goal = (options["objective"] or Objective.latency).value
    with search_progress() as step:
        if tiling is not None:
            report = make_report(dataflow, machine, shape, tiling, energy_level=level, seed=seed, check=check)
        else:
            report = best_report(
                dataflow, machine, shape, goal, energy_level=level, check=check, seed=seed,
                granularity=options["granularity"],
                progress=lambda done, total: step(f"{shape.name} {dataflow}", done, total),
            )  # fmt: skip
    return report, None, seed
