"""Read the data frame of a sweep for a figure: pick a workload, and see that each place has one row a dataflow.

Such a frame (`store.load_results`) has a row for each point: the swept axes (`l1.capacity_kib`), `workload`,
`dataflow`, `status` (`done`, or what became of it), and, where it is done, `cycles`, `total_pj` and more.
"""

import json
from collections.abc import Sequence
from typing import Any

from mas_sim.errors import ConfigError, Fault, nearest, shorten
from mas_sim.plots._labels import name_and_unit
from mas_sim.plots._style import Row, finite_or_nan, geomean, refuse, rows_of

QUANTITIES = {
    "cycles": ("cycles", 1.0),
    "time_us": ("time (us)", 1.0),
    "total_pj": ("energy (uJ)", 1e6),
    "energy_pj": ("energy (uJ)", 1e6),
    "dram_bytes": ("DRAM traffic (MB)", 1e6),
    "edp": ("EDP (pJ cycles)", 1.0),
}
"""How columns are named on an axis, and what they are divided by there."""

DONE, MISSING, MISFIT = "done", "missing", "does_not_fit"
"""Of a point: it has a result; it was not run (yet); no tiling fits. Any other status means that it has none either."""

LABEL_CHARS = 24
"""Labels of values on an axis are cut to this many characters."""

NONE = "\0none"
"""Stands on an axis for no value (`null` in a sweep); no text is equal to it."""

Key = str | float
Point = dict[str, float]
"""The value of each dataflow that is done at a point."""


def sweep_rows(
    frame: Any, axes: Sequence[str], by: str, value: str, workload: str | None = None, value_name: str = "value"
) -> list[dict[str, Any]]:
    """Return the rows of a workload, of all if it is None.

    Raises
    ------
    ConfigError
        If there are none, columns are missing, the value is no column of numbers, or there is no such workload.
    """
    rows = rows_of(frame, (*axes, by), "frame")
    _check_value(rows, value, value_name)
    if workload is not None:
        names = list(dict.fromkeys(str(row.get("workload")) for row in rows))
        if workload not in names:
            refuse("workload", f"must be one of {', '.join(names)}", workload, nearest(workload, names))
        rows = [row for row in rows if str(row.get("workload")) == workload]
    return rows


def _check_value(rows: Sequence[Row], value: str, value_name: str) -> None:
    """Refuse a column that is not there, or holds anything else than numbers where a point is done."""
    there = list(dict.fromkeys(str(name) for row in rows for name in row))
    if value not in there:
        some = ", ".join([name for name in QUANTITIES if name in there][:4] or there[:8])
        refuse(value_name, f"must be a column, such as {some}", value, nearest(value, there))
    done = [row for row in rows if row.get("status", DONE) == DONE]
    if done and not _holds_numbers(done, value):
        numeric = [name for name in there if _holds_numbers(done, name)]
        some = ", ".join([name for name in QUANTITIES if name in numeric][:4] or numeric[:8])
        rule = f"must be a column of numbers, such as {some}" if some else "must be a column of numbers"
        refuse(value_name, rule, value, nearest(value, numeric))


def _holds_numbers(rows: Sequence[Row], name: str) -> bool:
    """Whether a column holds numbers, and nothing else but holes."""
    found = [row[name] for row in rows if name in row and not is_none(row[name])]
    return bool(found) and all(_is_number(value) for value in found)


def _is_number(value: object) -> bool:
    """Whether a value is a number, finite or not; truth is none."""
    return finite_or_nan(value) == finite_or_nan(value) or (isinstance(value, float) and value == value)


def only_workload(rows: Sequence[Row]) -> None:
    """Refuse rows of several workloads, where a figure shows one."""
    names = list(dict.fromkeys(str(row["workload"]) for row in rows if "workload" in row))
    if len(names) > 1:
        refuse("workload", f"must be given, one of {', '.join(names)}: the frame holds several", None)


def is_none(value: object) -> bool:
    """Whether a value is `None`, or the hole that a data frame has in its place."""
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas.NA is neither equal to itself nor not
        return True


def key_of(value: object) -> Key:
    """Return a value on an axis so that equal ones are equal: numbers as float, no value as `NONE`, else text."""
    number = finite_or_nan(value)
    return number if number == number else NONE if is_none(value) else str(value)


def in_order(keys: Sequence[Key]) -> list[Key]:
    """Return the distinct keys: no value first, numbers rising, then text in the order in which it comes."""
    numbers = sorted({key for key in keys if isinstance(key, float)})
    texts = dict.fromkeys(key for key in keys if isinstance(key, str) and key != NONE)
    return [*([NONE] if NONE in keys else []), *numbers, *texts]


def by_place(rows: Sequence[Row], axes: Sequence[str], by: str, value: str) -> dict[tuple[Key, ...], Point]:
    """Return the values at each place that was swept, by dataflow; those that are not done are left out of it.

    Raises
    ------
    ConfigError
        If a place has two rows of a dataflow: the frame was swept over more than these axes.
    """
    places: dict[tuple[Key, ...], Point] = {}
    seen: set[tuple[object, ...]] = set()
    for row in rows:
        place, name = tuple(key_of(row[axis]) for axis in axes), str(row[by])
        if (place, name) in seen:
            at = ", ".join(f"{axis}={key_name(key)}" for axis, key in zip(axes, place, strict=True))
            refuse(
                "frame", f"must have one row for each {by} at a place; filter the other axes first", f"{name} at {at}"
            )
        seen.add((place, name))
        point = places.setdefault(place, {})
        number = finite_or_nan(row.get(value))
        if row.get("status", DONE) == DONE and number >= 0:  # 0 is a result, such as no stall
            point[name] = number
    return places


def unfinished(rows: Sequence[Row], axes: Sequence[str]) -> set[tuple[Key, ...]]:
    """Return the places at which some dataflow was not run yet, so that no winner can be named."""
    return {tuple(key_of(row[axis]) for axis in axes) for row in rows if row.get("status", DONE) == MISSING}


def unsure(rows: Sequence[Row], axes: Sequence[str]) -> set[tuple[Key, ...]]:
    """Return the places at which some dataflow has no result although it may fit: too long to simulate, or failed."""
    sure = (DONE, MISSING, MISFIT)
    return {tuple(key_of(row[axis]) for axis in axes) for row in rows if row.get("status", DONE) not in sure}


def check_pair(ratio: tuple[str, str], rows: Sequence[Row], by: str) -> None:
    """Refuse a ratio of dataflows that the frame does not hold."""
    names = list(dict.fromkeys(str(row[by]) for row in rows))
    faults = [
        Fault.of("<python>", None, "ratio", f"must be two of {', '.join(names)}", name, nearest(name, names))
        for name in ratio
        if name not in names
    ]
    if faults:
        raise ConfigError(faults)


def mean_of(points: Sequence[float]) -> float:
    """Geometric mean, 0 if a point is 0; NaN unless every point is there."""
    if not points or not all(point >= 0 for point in points):
        return float("nan")
    return geomean(points) if min(points) > 0 else 0.0


def key_name(key: Key) -> str:
    """Write a value on an axis."""
    return f"{key:,.6g}" if isinstance(key, float) else _part_name(key.removeprefix("\0"))


def _part_name(text: str) -> str:
    """Write a part of a machine, which results hold as JSON, in short: `direct, 64 B/cycle`; all else as it stands."""
    try:
        part = json.loads(text) if text.startswith("{") else None
    except ValueError:
        part = None
    if not isinstance(part, dict) or not part:
        return text
    return ", ".join(_field_name(str(name), value) for name, value in part.items())


def _field_name(name: str, value: Any) -> str:
    """Write one field of a part: a kind as it is, all else by its name, without what is the unit."""
    if name == "kind":
        return str(value)
    words, unit = name_and_unit(name)
    return " ".join(filter(None, (words, str(value), unit)))


def labels_of(keys: Sequence[Key]) -> list[str]:
    """Write the distinct values on an axis, each in at most 24 characters or so, and no two alike."""
    names = [key_name(key) for key in keys]
    labels = [shorten(name, LABEL_CHARS) for name in names]
    if len(set(labels)) < len(labels):
        # They differ behind the cut: leave out what all long ones begin with, back to the start of a word.
        long = [name for name in names if len(name) > LABEL_CHARS]
        same = next((k for k, letters in enumerate(zip(*long, strict=False)) if len({*letters}) > 1), 0)
        start = long[0][:same] if long else ""
        start = start[: max((k + 1 for k, letter in enumerate(start) if letter in ' ":,{['), default=0)]
        labels = [
            shorten("..." + name.removeprefix(start), LABEL_CHARS)
            if start and name in long
            else shorten(name, LABEL_CHARS)
            for name in names
        ]
    return [f"{label} ({k + 1})" if labels.count(label) > 1 else label for k, label in enumerate(labels)]
