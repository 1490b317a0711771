"""Result files: what makes a result reproducible, and reading it back.

A result (`run --json`, each one of `compare --json`, `search --json`) holds its inputs themselves: the machine with its
energy table, and the workload. So it can be run again without the presets or files that it came from, years later.
Hashes of the inputs and of what was found (`made_by`) tell a file that was changed by hand.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt, StrictStr, field_validator

from mas_sim._json_source import read_json
from mas_sim.arch import Arch
from mas_sim.config import FrozenModel, NameText, broken_rule, validate
from mas_sim.dataflows import DATAFLOWS
from mas_sim.energy_table import EnergyTable, Level
from mas_sim.errors import ConfigError, Fault, TilingError, nearest
from mas_sim.tiling import Tiling
from mas_sim.workload import Workload
from mas_sim.yaml_source import LineMap, cap_faults

MAX_LISTED = 24
"""Results that are listed where none, or none of that name, is picked."""

_SEALED = ("arch", "workload", "dataflow", "tiling", "proven_optimal", "cycles", "energy_level", "objective")


@cache
def package_version() -> str:
    """Version of the installed package, or `unknown` when it runs from a bare source tree."""
    try:
        return version("mas_sim")
    except PackageNotFoundError:
        return "unknown"


def inputs_of(arch: Arch, workload: Workload) -> dict[str, Any]:
    """Return the inputs of a result as plain data: `arch`, `energy_table` and `workload`, every field of each."""
    models = {"arch": arch, "energy_table": arch.energy_table, "workload": workload}
    return {name: model.model_dump(mode="json") for name, model in models.items()}


def sealed(data: dict[str, Any], arch: Arch, workload: Workload) -> dict[str, Any]:
    """Return a result with `made_by`: the version, the hashes of its inputs, and one of what it says of them.

    Parameters
    ----------
    data
        The result, as plain data.
    """
    made_by = {"mas_sim": package_version(), "arch_hash": arch.hash, "workload_hash": workload.hash}
    data = {**data, "made_by": made_by}
    return {**data, "made_by": {**made_by, "result_hash": _result_hash(data)}}


def _result_hash(data: Mapping[str, Any]) -> str:
    """Hash what a result says: twelve hexadecimal digits of the SHA-256 of its canonical JSON."""
    said = {name: data.get(name) for name in _SEALED}
    said["energy_pj"] = data["energy_pj"]["total"]
    said["made_by"] = {name: value for name, value in data["made_by"].items() if name != "result_hash"}
    canonical = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class StoredResult:
    """A result read back from a file.

    Attributes
    ----------
    objective
        What its search minimised, in words; None if its tiling was given.
    energy_level
        Which value of each energy band `energy_pj` was made with.
    cycles, energy_pj
        What the file says came out.
    seed
        Of the inputs of its numerical check.
    made_by_version
        Version of mas_sim that wrote the file.
    """

    arch: Arch
    workload: Workload
    dataflow: str
    tiling: Tiling
    objective: str | None
    energy_level: Level
    cycles: int
    energy_pj: float
    seed: int
    made_by_version: str


class _Part(BaseModel):
    """Part of a result of which more is written than is read."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


class _Inputs(FrozenModel):
    arch: Arch
    energy_table: EnergyTable
    workload: Workload


class _EnergyPart(_Part):
    total: StrictFloat = Field(ge=0)


class _MadeBy(_Part):
    mas_sim: NameText = Field(max_length=100)
    arch_hash: StrictStr
    workload_hash: StrictStr
    result_hash: StrictStr


class _Result(_Part):
    dataflow: StrictStr
    tiling: dict[StrictStr, Any]
    objective: NameText | None
    energy_level: Level
    cycles: StrictInt = Field(ge=1)
    energy_pj: _EnergyPart
    inputs: _Inputs
    made_by: _MadeBy
    seed: StrictInt = Field(default=0, ge=0)

    @field_validator("dataflow")
    @classmethod
    def _check_dataflow(cls, value: str) -> str:
        """Refuse a dataflow that there is not."""
        if value not in DATAFLOWS:
            rule = f"must be one of {', '.join(DATAFLOWS)}"
            raise broken_rule(rule, value, nearest(value, DATAFLOWS))
        return value

    @field_validator("tiling")
    @classmethod
    def _check_tiling(cls, value: dict[str, Any]) -> dict[str, Any]:
        """Refuse a tiling without some of its fields, with others, or with values that no workload allows."""
        legal = [spec.name for spec in fields(Tiling)]
        rules = [f"{name} is missing" for name in legal if name not in value]
        rules += [f"{name!r:.60} is no field of a tiling" for name in value if name not in legal]
        try:
            Tiling(**{name: item for name, item in value.items() if name in legal}).check()
        except TilingError as error:
            rules.append(str(error))
        if rules:
            raise broken_rule("; ".join(rules), value)
        return value


def load_result(path: str | Path, pick: str | None = None) -> StoredResult:
    """Read a result back: of `run --json`, `search --json` or, one of several, `compare --json`.

    Parameters
    ----------
    path
        The JSON file.
    pick
        Which one, where there are several: `WORKLOAD/DATAFLOW`, as `result_names` says.

    Raises
    ------
    ConfigError
        With every fault of the file: if it cannot be read, is no result, misses anything, or was changed since it was
        written; or if it is not clear which of several results is meant (lists them).

    Notes
    -----
    A file of several results may hold their inputs once, as `share_inputs` writes them.
    """
    file = str(path)
    data, line_of, faults = read_json(path)
    if "results" in data:
        place = _picked(data["results"], pick, file)
        lines: LineMap = {at[2:]: line for at, line in line_of.items() if at[:2] == ("results", place)}
        data = _with_inputs(data["results"][place], data.get("shared_inputs"))
    else:
        lines = line_of
        if pick is not None:
            raise ConfigError([Fault(file, None, "", "holds one result only, so there is nothing to pick", repr(pick))])
    if not isinstance(data.get("inputs"), dict) or not isinstance(data.get("made_by"), dict):
        missing = [name for name in ("inputs", "made_by") if not isinstance(data.get(name), dict)]
        rule = f"is no result that can be run again: it has no {' and no '.join(missing)}"
        raise ConfigError([*faults, Fault(file, None, "", rule)])
    try:
        result = validate(_Result, data, lines, file)
    except ConfigError as error:
        raise ConfigError(cap_faults([*faults, *error.faults, *_version_fault(data, file)])) from None
    arch = result.inputs.arch.with_energy_table(result.inputs.energy_table)  # the file's own, not a shipped one
    faults += _unlike(result, arch, data, lines, file)
    if faults:
        raise ConfigError(cap_faults([*faults, *_version_fault(data, file)]))
    return StoredResult(
        arch, result.inputs.workload, result.dataflow, Tiling(**result.tiling), result.objective, result.energy_level,
        result.cycles, result.energy_pj.total, result.seed, result.made_by.mas_sim,
    )  # fmt: skip


def share_inputs(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a file of results whose inputs stand in it once, however many results they are the inputs of.

    Returns
    -------
    dict
        `shared_inputs`: machines, energy tables and workloads, each by a digest. `results`: as they are, with that
        digest for each of their inputs.
    """
    shared: dict[str, dict[str, Any]] = {}
    told = []
    for result in results:
        digests = {}
        for name, value in result["inputs"].items():
            canonical = json.dumps(value, sort_keys=True, separators=(",", ":"))
            digests[name] = hashlib.sha256(canonical.encode()).hexdigest()[:12]
            shared.setdefault(name, {})[digests[name]] = value
        told.append({**result, "inputs": digests})
    return {"shared_inputs": shared, "results": told}


def _with_inputs(result: dict[str, Any], shared: object) -> dict[str, Any]:
    """Return a result with the inputs that its digests stand for; what stands for nothing is left, a fault."""
    digests = result.get("inputs")
    if not isinstance(digests, dict) or not isinstance(shared, dict):
        return result
    kinds = {name: shared.get(name) for name in digests}
    found = {
        name: kind[digests[name]]
        for name, kind in kinds.items()
        if isinstance(kind, dict) and isinstance(digests[name], str) and digests[name] in kind
    }
    return {**result, "inputs": {**digests, **found}}


def result_names(results: list[Any]) -> list[str]:
    """Name the results of a file: `WORKLOAD/DATAFLOW` (`WORKLOAD/auto` where that chose it), with `#2`, ... if alike.

    A point of a sweep has its place in it behind that: `bert_base/mas@l1.capacity_kib=512,sync_cycles=8`. What cannot
    run has an empty name.
    """
    names: list[str] = []
    seen: dict[str, int] = {}
    for result in results:
        if not isinstance(result, dict) or result.get("fits") is False:
            names.append("")
            continue
        name = f"{result.get('workload')}/{result.get('chosen_by', result.get('dataflow'))}"
        if isinstance(place := result.get("place"), dict):
            name += "@" + ",".join(f"{axis}={value}" for axis, value in place.items())
        seen[name] = seen.get(name, 0) + 1
        names.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return names


def _picked(results: object, pick: str | None, file: str) -> int:
    """Return the place of the result that is meant."""
    names = result_names(results) if isinstance(results, list) else []
    there = [name for name in names if name]
    if not there:
        raise ConfigError([Fault(file, None, "results", "must be a list with at least one result that fits")])
    if pick is None and len(there) == 1:
        return names.index(there[0])
    if pick in there:
        return names.index(str(pick))
    more = f", ... ({len(there)})" if len(there) > MAX_LISTED else ""
    listed = ", ".join(name if name.isprintable() else repr(name) for name in there[:MAX_LISTED]) + more
    if pick is None:
        rule = f"holds {len(there)} results: pick one (--pick) of {listed}"
        raise ConfigError([Fault(file, None, "results", rule)])
    raise ConfigError(
        [Fault.of(file, None, "results", f"has none of that name, but {listed}", pick, nearest(pick, there))]
    )


def _unlike(result: _Result, arch: Arch, data: Mapping[str, Any], lines: LineMap, file: str) -> list[Fault]:
    """Find what does not agree with what the file says of itself: hashes, and the kind of DRAM."""
    made_by = result.made_by
    faults = []
    if arch.dram.kind not in arch.energy_table.dram:
        rule = f"must be a kind of DRAM in the energy table: {', '.join(arch.energy_table.dram)}"
        path = ("inputs", "arch", "dram", "kind")
        near = nearest(arch.dram.kind, arch.energy_table.dram)
        faults.append(Fault.of(file, lines.get(path), ".".join(path), rule, arch.dram.kind, near))
    hashes = {
        "arch_hash": (arch.hash, "the machine and its energy table"),
        "workload_hash": (result.inputs.workload.hash, "the workload"),
        "result_hash": (_result_hash(data), "the result (dataflow, tiling, cycles, energy, ...)"),
    }
    for name, (found, what) in hashes.items():
        said = getattr(made_by, name)
        if said != found:
            rule = f"is not the hash of what stands in the file, {found}: {what} was changed since it was written"
            faults.append(Fault.of(file, lines.get(("made_by", name)), f"made_by.{name}", rule, said))
    return faults


def _version_fault(data: Mapping[str, Any], file: str) -> list[Fault]:
    """Say so, beside other faults, if the file was made by another version: that may be why."""
    wrote, here = data["made_by"].get("mas_sim"), package_version()
    if wrote == here or not isinstance(wrote, str):
        return []
    return [Fault.of(file, None, "made_by.mas_sim", f"was made by another version than this, {here}", wrote)]
