"""Results of a sweep as a pandas table, with units in the names of its columns; and as CSV and Parquet files."""

import json
import os
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd

from mas_sim.errors import MasSimError
from mas_sim.tiling import Tiling

_BEFORE = ("position", "workload", "dataflow", "status", "reason", "over_bytes")
_AFTER = ("key", "seconds", "finished_utc", "model_version")

RESULT_COLUMNS = (
    "objective", "cycles", "time_us",
    "total_pj", "dram_pj", "l1_pj", "l0_pj", "mac_pj", "vec_pj", "leakage_pj",
    "dram_read_bytes", "dram_write_bytes", "dram_bytes", "l1_peak_bytes",
    "lower_cycles", "limited_by", "gap_to_bound",
    "mac_busy_share", "vec_busy_share", "dram_busy_share",
    "stall_mac_cycles", "stall_vec_cycles", "stall_load_cycles", "stall_store_cycles",
    "exp_needed_per_cycle", "exp_available_per_cycle", "proven_optimal", "instructions",
    *(f"tiling.{field.name}" for field in fields(Tiling)),
)  # fmt: skip
"""Columns of what a result says, in this order; empty where there is none."""

BESIDES = ("seconds", "finished_utc")
"""Columns that differ from one run of the same sweep to the next; all others are the same to the last digit."""


def results_frame(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Make a table of the rows of a store.

    Returns
    -------
    pandas.DataFrame
        A row a point: `position`, the fields on the axes by path, `workload`, `dataflow`, `status` (`done`,
        `does_not_fit`, `too_long`, `over_limits`, `failed`, `missing`), `reason`, `over_bytes`; what a result says,
        `RESULT_COLUMNS`; last the key, and when and by which model it was made.
    """
    flat = [_flat(row) for row in rows]
    axes = dict.fromkeys(name for row in flat for name in row if name not in {*_BEFORE, *RESULT_COLUMNS, *_AFTER})
    frame = pd.DataFrame(flat, columns=["position", *axes, *_BEFORE[1:], *RESULT_COLUMNS, *_AFTER])
    for name in frame.columns:  # whole numbers stay whole, and truth stays truth, beside rows that have neither
        kinds = {type(row[name]) for row in flat if row.get(name) is not None}
        if kinds in ({int}, {bool}):
            frame[name] = frame[name].astype("Int64" if kinds == {int} else "boolean")
    return frame


def plain_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table as plain data; what is missing is None."""
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in rows]


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return one row of the table."""
    result = row["result"]
    axes = {path: json.dumps(v) if isinstance(v, list | dict) else v for path, v in row["axes"].items()}
    facts = {name: row[name] for name in (*_BEFORE, *_AFTER)}
    return {**axes, **facts, **(_facts(result) if result else {})}


def _facts(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a result says, flat."""
    bounds, balance = result["bounds"], result["exp_balance"]
    return {
        "objective": result["objective"],
        "cycles": result["cycles"],
        "time_us": result["time_us"],
        **{f"{name}_pj": value for name, value in result["energy_pj"].items()},
        "dram_read_bytes": result["dram_read_bytes"],
        "dram_write_bytes": result["dram_write_bytes"],
        "dram_bytes": result["dram_read_bytes"] + result["dram_write_bytes"],
        "l1_peak_bytes": result["l1_peak_bytes"],
        "lower_cycles": bounds["lower_cycles"],
        "limited_by": bounds["limited_by"],
        "gap_to_bound": result["gap_to_bound"],
        **{f"{unit}_busy_share": share for unit, share in result["utilization"].items()},
        **{f"stall_{unit}_cycles": sum(causes.values()) for unit, causes in result["stall_cycles"].items()},
        **{f"exp_{name}": value for name, value in balance.items()},
        "proven_optimal": result["proven_optimal"],
        "instructions": result["instructions"],
        **{f"tiling.{name}": value for name, value in result["tiling"].items()},
    }


def objective_kinds(frame: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Return the objectives of results in words, and their kinds: `latency`, `energy`, `edp` or `weighted`."""
    goals = [str(one) for one in dict.fromkeys(frame["objective"].dropna())]
    return goals, list(dict.fromkeys(goal.partition(",")[0].partition(":")[0].strip() for goal in goals))


def export(frame: pd.DataFrame, path: str | Path) -> Path:
    """Write a table as CSV or Parquet; an old file is replaced only by a whole new one.

    Parameters
    ----------
    path
        Ends in `.csv` or `.parquet`.

    Raises
    ------
    MasSimError
        If it ends otherwise, cannot be written, or Parquet needs a package that is not installed.
    """
    file = Path(path)
    if file.suffix not in (".csv", ".parquet"):
        raise MasSimError(f"{file}: results are exported to a name that ends in .csv or .parquet")
    if not file.parent.is_dir():
        raise MasSimError(f"{file}: cannot be written: there is no folder {file.parent}")
    draft = file.with_name(f".{file.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}")
    try:
        if file.suffix == ".csv":
            frame.to_csv(draft, index=False, lineterminator="\n")
        else:
            frame.to_parquet(draft, index=False)
        draft.replace(file)
    except ImportError:
        raise MasSimError(f'{file}: Parquet needs pyarrow: pip install "mas_sim[parquet]"') from None
    except OSError as error:
        raise MasSimError(f"{file}: cannot be written: {error.strerror or error}") from error
    finally:
        draft.unlink(missing_ok=True)
    return file
