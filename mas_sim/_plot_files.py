"""Read back what the commands print, for `mas-sim plot`: `compare`, `crossover` and `search` as JSON, histories as CSV.

Only what the figures need is read and checked; that a file may be wrong in many ways, and is then reported with all of
them, is as everywhere.
"""

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr

from mas_sim._json_source import MAX_JSON_BYTES, read_json
from mas_sim.arch import Arch
from mas_sim.config import NameText, validate
from mas_sim.errors import ConfigError, Fault, nearest
from mas_sim.search.base import History
from mas_sim.workload import Workload
from mas_sim.yaml_source import LineMap, cap_faults

HISTORY_COLUMNS = ("method", "seed", "value")
"""Columns that a history needs; `index` and `seconds` are read if they are there."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


PartT = TypeVar("PartT", bound=_Part)


class _Energy(_Part):
    dram: StrictFloat = Field(ge=0)
    l1: StrictFloat = Field(ge=0)
    l0: StrictFloat = Field(ge=0)
    mac: StrictFloat = Field(ge=0)
    vec: StrictFloat = Field(ge=0)
    leakage: StrictFloat = Field(ge=0)


class _Bounds(_Part):
    lower_cycles: StrictInt = Field(ge=0)
    limited_by: NameText


class _Compared(_Part):
    workload: NameText
    dataflow: NameText
    chosen_by: StrictStr | None = None
    cycles: StrictInt = Field(ge=1)
    energy_pj: _Energy
    bounds: _Bounds


class _Inputs(_Part):
    arch: Arch
    workload: Workload


class _Balance(_Part):
    needed_per_cycle: StrictFloat = Field(gt=0)
    available_per_cycle: StrictFloat | None = Field(gt=0)


class _Measured(_Compared):
    dram_read_bytes: StrictInt = Field(ge=0)
    dram_write_bytes: StrictInt = Field(ge=0)
    exp_balance: _Balance
    inputs: _Inputs


class _Total(_Part):
    total: StrictFloat = Field(ge=0)


class _OnFront(_Part):
    dataflow: NameText
    cycles: StrictInt = Field(ge=1)
    energy_pj: _Total


class _AllHeads(_Part):
    cycles: StrictInt = Field(ge=1)
    energy_pj: StrictFloat = Field(ge=0)


class _Series(_Part):
    fits: StrictBool
    all_heads: _AllHeads | None = None


class _Point(_Part):
    seq: StrictInt = Field(ge=1)
    winner: NameText | None
    series: dict[StrictStr, _Series]


def comparison_rows(path: str | Path) -> list[dict[str, Any]]:
    """Return the rows of energy and time figures from a file of `compare --json` (or of `run --json`, as one row).

    Raises
    ------
    ConfigError
        With every fault of the file.
    """
    return [bar_row(result.model_dump()) for result in _results(path, _Compared, "compare --json")]


def bar_row(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a result as `compare --json` has it: names, cycles, their bound, energy by component."""
    chosen = {"chosen_by": result["chosen_by"]} if result.get("chosen_by") else {}
    return {
        "workload": result["workload"],
        "dataflow": result["dataflow"],
        **chosen,
        "cycles": result["cycles"],
        "lower_cycles": result["bounds"]["lower_cycles"],
        **{f"{part}_pj": result["energy_pj"][part] for part in _Energy.model_fields},
    }


def roofline_results(path: str | Path) -> list[tuple[Arch, _Measured]]:
    """Return the results of a file of `compare --json` (or `run --json`), each with its machine.

    Raises
    ------
    ConfigError
        With every fault of the file.
    """
    return [(result.inputs.arch, result) for result in _results(path, _Measured, "compare --json")]


def front_points(path: str | Path) -> list[tuple[int, float, str]]:
    """Return cycles, energy in pJ and dataflow of the points of a file of `search --objective pareto --json`.

    Raises
    ------
    ConfigError
        With every fault of the file.
    """
    found = _results(path, _OnFront, "search --objective pareto --json", objective="pareto")
    return [(point.cycles, point.energy_pj.total, point.dataflow) for point in found]


def crossover_rows(path: str | Path) -> tuple[list[dict[str, Any]], str | None]:
    """Return the rows of a crossover's figure from a file of `crossover --json`, and what the file is of.

    Raises
    ------
    ConfigError
        With every fault of the file.
    """
    data, lines, faults = read_json(path)
    points = _checked_list(data, "points", _Point, lines, faults, str(path), "crossover --json")
    rows = []
    for point in points:
        results = {
            name: None if series.all_heads is None else series.all_heads.model_dump()
            for name, series in point.series.items()
        }
        rows.append({"n": point.seq, "results": results, "winner": point.winner})
    names = [data.get(key) for key in ("workload", "arch")]
    return rows, " on ".join(map(str, names)) if all(isinstance(name, str) for name in names) else None


def _results(path: str | Path, model: type[PartT], command: str, objective: str | None = None) -> list[PartT]:
    """Read the results of a file, or its only one; those that do not fit are left out."""
    file = str(path)
    data, lines, faults = read_json(path)
    if objective is not None and data.get("objective") != objective:
        rule = f"must be {objective!r}: give a file of `mas-sim {command}`"
        near = nearest(str(data.get("objective")), [objective])
        where = lines.get(("objective",))
        raise ConfigError([*faults, Fault.of(file, where, "objective", rule, data.get("objective"), near)])
    if "results" not in data and "cycles" in data and objective is None:
        return [_checked(data, model, lines, file, faults)]
    return _checked_list(data, "results", model, lines, faults, file, command)


def _checked(data: Mapping[str, Any], model: type[PartT], lines: LineMap, file: str, faults: list[Fault]) -> PartT:
    """Check one result that is a whole file."""
    try:
        found = validate(model, data, lines, file)
    except ConfigError as error:
        raise ConfigError(cap_faults([*faults, *_with_nearest(error.faults, data)])) from None
    if faults:
        raise ConfigError(faults)
    return found


def _checked_list(
    data: Mapping[str, Any], key: str, model: type[PartT], lines: LineMap, faults: list[Fault], file: str, command: str
) -> list[PartT]:
    """Check a list of results, each by itself, so that all faults are found; those with `fits: false` are left out."""
    items = data.get(key)
    if not isinstance(items, list):
        near = nearest(key, data)
        rule = "must be a list" if key in data else "is missing"
        where = Fault(file, lines.get((key,)), key, f"{rule}: give a file of `mas-sim {command}`", "", near)
        raise ConfigError([*faults, where])
    within: dict[int, LineMap] = {}
    for at, line in lines.items():
        if len(at) > 1 and at[0] == key and isinstance(at[1], int):
            within.setdefault(at[1], {})[at[2:]] = line
    found: list[PartT] = []
    for k, item in enumerate(items):
        mine: LineMap = within.get(k, {})
        if not isinstance(item, dict):
            faults.append(Fault.of(file, mine.get(()), f"{key}[{k}]", "must be an object", item))
        elif item.get("fits") is not False:
            try:
                found.append(validate(model, item, mine, file))
            except ConfigError as error:
                hints = _with_nearest(error.faults, item)
                faults += [replace(fault, path=f"{key}[{k}].{fault.path}") for fault in hints]
    if not found and not faults:
        faults.append(Fault(file, lines.get((key,)), key, "must hold at least one result that fits"))
    if faults:
        raise ConfigError(cap_faults(faults))
    return found


def _with_nearest(faults: tuple[Fault, ...], data: Mapping[str, Any]) -> list[Fault]:
    """Add to a fault of a field that is missing the nearest key that stands beside it."""
    hinted = []
    for fault in faults:
        *parents, name = fault.path.split(".")
        beside: Any = data
        for part in parents:
            beside = beside.get(part) if isinstance(beside, dict) else None
        absent = isinstance(beside, dict) and name not in beside
        hint = nearest(name, map(str, beside)) if absent and fault.suggestion is None else fault.suggestion
        hinted.append(replace(fault, suggestion=hint))
    return hinted


# --- histories ----------------------------------------------------------------------------------------------------


def histories_of(path: str | Path) -> dict[str, list[History]]:
    """Read a file of `search --history`: the runs of each method, a run for each seed.

    Raises
    ------
    ConfigError
        With every fault of the file: it is no CSV of that kind, or a value is no positive number.
    """
    file = str(path)
    reader = csv.DictReader(io.StringIO(_csv_text(path), newline=""))
    columns = list(reader.fieldnames or [])
    lacking = [name for name in HISTORY_COLUMNS if name not in columns]
    if lacking:
        rule = "is missing: give a file of `mas-sim search --history`"
        raise ConfigError([Fault(file, 1, name, rule, "", nearest(name, columns)) for name in lacking])
    faults: list[Fault] = []
    runs: dict[tuple[str, str], list[tuple[int, float, float]]] = {}
    try:
        for row in reader:
            value = _number(row["value"])
            if not value > 0:
                rule = "must be a number, more than 0 (inf where a limit is not kept)"
                faults.append(Fault.of(file, reader.line_num, "value", rule, row["value"]))
            run = runs.setdefault((row["method"] or "", row["seed"] or ""), [])
            place, seconds = _number(row.get("index")), _number(row.get("seconds"))
            run.append((int(place) if math.isfinite(place) else len(run), value, seconds))
    except csv.Error as error:
        faults.append(Fault(file, reader.line_num, "", f"is not valid CSV: {error}"))
    if not runs and not faults:
        faults.append(Fault(file, None, "", "must hold at least one evaluation"))
    if faults:
        raise ConfigError(cap_faults(faults))
    found: dict[str, list[History]] = {}
    for (method, _), run in runs.items():
        index, values, times = (list(column) for column in zip(*run, strict=True))
        history = History(np.array(index, np.int64), np.array(values, np.float64), np.array(times, np.float64))
        found.setdefault(method, []).append(history)
    return found


def _number(text: str | None) -> float:
    """Read a number; NaN for what is none."""
    try:
        return float(text or "nan")
    except ValueError:
        return math.nan


def _csv_text(path: str | Path) -> str:
    """Read a UTF-8 file of bounded size."""
    place = Path(path)
    try:
        if place.stat().st_size > MAX_JSON_BYTES:
            rule = f"is too large: {place.stat().st_size} bytes, the limit is {MAX_JSON_BYTES}"
        else:
            return place.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        rule = f"is not UTF-8 text (byte {error.start})"
    except (OSError, ValueError) as error:
        rule = f"cannot be read: {getattr(error, 'strerror', None) or error}"
    raise ConfigError([Fault(str(path), None, "", rule)])
