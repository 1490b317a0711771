"""One point of a sweep: a machine, a workload and a dataflow, searched and reported; in any process.

`run_point` is what workers run. It takes and returns plain, picklable records, and never raises for what is wrong with
a point: why there is no result is a result, too.
"""

import hashlib
import json
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from pydantic import Field, StrictFloat, StrictInt, StrictStr, ValidationInfo, field_validator

from mas_sim._model_version import model_version
from mas_sim.arch import Arch, load_arch
from mas_sim.comparison import search_facts
from mas_sim.config import FrozenModel, broken_rule
from mas_sim.crossover import swept_space
from mas_sim.energy_table import Level
from mas_sim.errors import MasSimError, nearest
from mas_sim.report import make_report
from mas_sim.search import OBJECTIVES, SEARCHERS
from mas_sim.search.base import Budget, NothingFitsError, NothingKeepsError, SearchResult
from mas_sim.search.exhaustive import ExhaustiveSearch
from mas_sim.search.objective import Objective
from mas_sim.workload import Workload

Status = Literal["done", "does_not_fit", "too_long", "over_limits", "failed"]
"""What became of a point: a result; nothing fits L1; what fits is too long to simulate; no tiling keeps to the limits;
or it failed by itself."""

DEFAULT_EVALUATIONS = 2000
METHODS = ("exhaustive", *SEARCHERS)


class SearchSettings(FrozenModel):
    """How the tiling of each point is searched.

    Attributes
    ----------
    method : str
        `exhaustive`, which proves its optimum, or `mcts`, `genetic` or `random`.
    objective : str
        `latency`, `energy`, `edp` or `weighted:W`.
    energy_level : {"nominal", "low", "high"}
        Which value of each energy band.
    limit : int
        About how many candidates each tile size has.
    evaluations : int or None
        Tilings that a method other than exhaustive may simulate; 2,000 unless given.
    seed : int
        Of the method's chance; 0 for exhaustive search, which has none.
    max_cycles, max_energy_uj : float or None
        Only tilings of so many cycles, so much energy at most.
    """

    method: StrictStr = "exhaustive"
    objective: StrictStr = "latency"
    energy_level: Level = "nominal"
    limit: StrictInt = Field(default=32, ge=2, le=1024)
    evaluations: StrictInt | None = Field(default=None, ge=1, le=10**9)
    seed: StrictInt = Field(default=0, ge=0, le=2**63 - 1)
    max_cycles: StrictFloat | None = Field(default=None, gt=0)
    max_energy_uj: StrictFloat | None = Field(default=None, gt=0)

    @field_validator("method")
    @classmethod
    def _check_method(cls, value: str) -> str:
        """Refuse a method that there is not."""
        if value not in METHODS:
            raise broken_rule(f"must be one of {', '.join(METHODS)}", value, nearest(value, METHODS))
        return value

    @field_validator("objective")
    @classmethod
    def _check_objective(cls, value: str) -> str:
        """Refuse an objective that there is not."""
        try:
            Objective.parse(value)
        except MasSimError as error:
            rule = str(error).partition("; did you mean")[0]  # which the fault adds itself
            raise broken_rule(rule, value, nearest(value, OBJECTIVES)) from None
        return value

    @field_validator("evaluations")
    @classmethod
    def _check_evaluations(cls, value: int | None, info: ValidationInfo) -> int | None:
        """Refuse a budget where nothing spends it, and fill in the default where something does."""
        if info.data.get("method", "exhaustive") == "exhaustive":
            if value is not None:
                raise broken_rule("has no effect on exhaustive search, which proves the optimum", value)
            return None
        return DEFAULT_EVALUATIONS if value is None else value

    @field_validator("seed")
    @classmethod
    def _check_seed(cls, value: int, info: ValidationInfo) -> int:
        """Refuse a seed where there is no chance: every result would be the same."""
        if value and info.data.get("method", "exhaustive") == "exhaustive":
            raise broken_rule("has no effect on exhaustive search, which proves the optimum", value)
        return value

    @property
    def goal(self) -> Objective:
        """The objective with its limits."""
        limits = {"cycles": self.max_cycles, "energy_uj": self.max_energy_uj}
        return Objective.parse(self.objective, {name: most for name, most in limits.items() if most is not None})


@dataclass(frozen=True)
class Job:
    """What a worker is given.

    Attributes
    ----------
    position
        Place of the point in its sweep.
    key
        Content hash of all that decides its result (`key_of`).
    threads
        Threads that the search may use.
    """

    position: int
    key: str
    arch: Arch
    workload: Workload
    dataflow: str
    search: SearchSettings
    threads: int = 1


@dataclass(frozen=True)
class Outcome:
    """What a worker gives back.

    Attributes
    ----------
    reason
        Why there is no result; empty if there is one.
    over_bytes
        By how many bytes nothing fits L1; 0 otherwise.
    result
        The report as plain data (`Report.as_dict`) without its inputs, which the store keeps once; None if none.
    seconds
        Wall time that the point took, without the loading of what is compiled.
    model_version
        Of the process that computed it.
    """

    key: str
    status: Status
    reason: str = ""
    over_bytes: int = 0
    result: dict[str, Any] | None = field(default=None, repr=False)
    seconds: float = 0.0
    model_version: str = ""


def digest_of(*parts: Any) -> str:
    """Return the SHA-256 of plain data, as canonical JSON (sorted keys, no spaces), in hexadecimal digits."""
    canonical = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def arch_data(arch: Arch) -> dict[str, Any]:
    """Return a machine and its energy table as plain data."""
    return {"arch": arch.model_dump(mode="json"), "energy_table": arch.energy_table.model_dump(mode="json")}


def key_of(arch_digest: str, workload_digest: str, dataflow: str, search: SearchSettings, model: str) -> str:
    """Return the key of a point: 24 hexadecimal digits that identify the inputs of its result, and the model."""
    return digest_of(arch_digest, workload_digest, dataflow, search.model_dump(mode="json"), model)[:24]


@cache
def _warm_up() -> None:
    """Load what is compiled, or compile it, once a process: no time of a point should hold that."""
    tiny = Workload(name="tiny", heads=1, n_q=16, n_kv=16, head_dim_qk=16, head_dim_v=16)
    _report(Job(0, "", load_arch("mas_edge"), tiny, "mas", SearchSettings(limit=2)))


def run_point(job: Job) -> Outcome:
    """Search the tiling of one point, and report it.

    Raises
    ------
    KeyboardInterrupt
        If the user stops it; a result that is only the best so far is never returned.
    """
    with suppress(Exception):  # what is wrong with it is wrong with the point, too
        _warm_up()
    began = time.perf_counter()
    result: dict[str, Any] | None = None
    status: Status = "failed"
    reason, over_bytes = "", 0
    try:
        result = _report(job)
        status = "done"
    except NothingFitsError as error:
        status, reason, over_bytes = "does_not_fit" if error.over_bytes else "too_long", str(error), error.over_bytes
    except NothingKeepsError as error:
        status, reason = "over_limits", str(error)
    except MasSimError as error:
        reason = str(error)
    except MemoryError:
        reason = "out of memory"
    except Exception as error:  # a fault of ours must not cost the user all other points
        reason = f"{type(error).__name__}: {error}"
    return Outcome(job.key, status, reason, over_bytes, result, time.perf_counter() - began, model_version())


def _report(job: Job) -> dict[str, Any]:
    """Return the report of the best tiling of a point, without its inputs."""
    space = swept_space(job.dataflow, job.arch, job.workload, limit=job.search.limit)
    level = job.search.energy_level
    found: SearchResult
    if job.search.method == "exhaustive":
        found = ExhaustiveSearch(job.threads).search(space, job.search.goal, energy_level=level)
    else:
        found = SEARCHERS[job.search.method]().search(
            space, job.search.goal, budget=Budget(job.search.evaluations), seed=job.search.seed, workers=job.threads,
            energy_level=level,
        )  # fmt: skip
    if found.stopped == "interrupted":
        raise KeyboardInterrupt
    report = make_report(
        space.dataflow, job.arch, job.workload, found.best.tiling, energy_level=level, check=False,
        proven_optimal=found.proven_optimal, search=search_facts(found),
    )  # fmt: skip
    data = report.as_dict()
    del data["inputs"]
    return data
