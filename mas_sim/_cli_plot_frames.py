"""What the commands `mas-sim plot heatmap` and `sweep` choose of a sweep's results, and how they name it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mas_sim._sweep_axes import moving_together
from mas_sim.errors import ConfigError, Fault, MasSimError, nearest

if TYPE_CHECKING:
    import pandas as pd

MINIMISED = {"latency": "cycles", "energy": "total_pj", "edp": "edp"}
"""The column that a search minimised, by its objective; of any other, cycles are shown."""
MOST_LISTED = 8


def with_objective(frame: "pd.DataFrame", value: str | None) -> tuple["pd.DataFrame", str, str | None]:
    """Return the frame, the column to draw, and what to say of the tilings if they are best in something else.

    Raises
    ------
    MasSimError
        If no column is named and the results are of several objectives.
    """
    if "objective" not in frame.columns:
        return frame, value or "cycles", None
    from mas_sim.results_frame import objective_kinds  # pandas is slow to import

    goals, kinds = objective_kinds(frame)
    if value is None and len(kinds) > 1:
        raise MasSimError(
            f"the results are of several objectives ({', '.join(goals)}): give --where objective=... or the column"
        )
    own = MINIMISED.get(kinds[0], "cycles") if kinds else "cycles"
    if {"cycles", "total_pj"} <= set(frame.columns):
        frame = frame.assign(edp=frame["cycles"].astype("float64") * frame["total_pj"].astype("float64"))
    drawn = value or own
    plain = len(goals) <= 1 and drawn == own and (not kinds or kinds[0] in MINIMISED)
    return frame, drawn, None if plain else f"of tilings that are best in {' or '.join(goals)}"


def _groups(frame: "pd.DataFrame") -> list[tuple[str, ...]]:
    """Return the fields that vary, those together that always change together."""
    several = varying(frame)
    places = frame[several].to_dict("records") if several else []
    return moving_together(several, [{str(name): value for name, value in place.items()} for place in places])


def partners(frame: "pd.DataFrame", axis: str) -> list[str]:
    """Return the fields that always change together with one on an axis, as those zipped with it do."""
    return [other for group in _groups(frame) if axis in group for other in group if other != axis]


def leaders(frame: "pd.DataFrame") -> list[str]:
    """Return the fields that vary; of those that always change together the first."""
    return [group[0] for group in _groups(frame)]


def refuse_open_axes(frame: "pd.DataFrame", used: Sequence[str], by: str) -> None:
    """Refuse to draw where fields vary that are on no axis; says which, with their values.

    Raises
    ------
    MasSimError
        If there are any.
    """
    closed = {*used, by, *(other for axis in used for other in partners(frame, axis))}
    left = [axis for axis in varying(frame) if axis not in closed]
    if left:
        told = []
        for axis in left:
            values = list(dict.fromkeys(map(str, frame[axis])))
            more = ", ..." if len(values) > MOST_LISTED else ""
            told.append(f"{axis} is {', '.join(values[:MOST_LISTED])}{more}")
        first = f"{left[0]}={next(iter(dict.fromkeys(map(str, frame[left[0]]))))}"
        raise MasSimError(f"other fields vary, too: {'; '.join(told)}. Choose one value of each, as --where {first}")


def refuse_one_value(frame: "pd.DataFrame", axis: str, zipped: Sequence[str]) -> None:
    """Refuse to draw a line over a field of which one value only is left; says what it is zipped with in the sweep.

    Raises
    ------
    MasSimError
        If there is no second value.
    """
    if frame[axis].nunique(dropna=False) < 2:
        why = f" (it is zipped with {', '.join(zipped)})" if zipped else ""
        raise MasSimError(f"{axis} has one value only, {frame[axis].iloc[0]}: there is no line to draw{why}")


def varying(frame: "pd.DataFrame") -> list[str]:
    """Return the fields on the axes of a sweep that have several values: the columns before `workload`."""
    names = list(frame.columns)
    axes = names[: names.index("workload")] if "workload" in names else []
    return [name for name in axes if name != "position" and frame[name].nunique() + frame[name].isna().any() > 1]


def pair_of(ratio: str | None) -> tuple[str, str] | None:
    """Read `A/B`.

    Raises
    ------
    MasSimError
        If it is something else.
    """
    if ratio is None:
        return None
    above, slash, below = ratio.partition("/")
    if not above or not slash or not below or "/" in below or above == below:
        raise MasSimError(f"--ratio: must be two dataflows, A/B (got {ratio!r:.60})")
    return above, below


def chosen(frame: "pd.DataFrame", where: Sequence[str] | None) -> "pd.DataFrame":
    """Return the points that every `--where COLUMN=VALUE` keeps.

    Raises
    ------
    ConfigError
        If there is no such column or value; names the nearest.
    """
    for text in where or ():
        column, equals, value = text.partition("=")
        if not equals:
            raise ConfigError([Fault.of("--where", None, "", "must be COLUMN=VALUE", text)])
        if column not in frame.columns:
            rule = "must name a column of the results"
            raise ConfigError([Fault.of("--where", None, "", rule, column, nearest(column, map(str, frame.columns)))])
        cells = ["none" if hole else cell for cell, hole in zip(frame[column], frame[column].isna(), strict=True)]
        kept = frame[[_says(cell, value) for cell in cells]]
        if not len(kept):
            there = [str(cell) for cell in dict.fromkeys(cells)]
            rule = f"must be a value of {column}: {', '.join(there[:20])}"
            raise ConfigError([Fault.of("--where", None, "", rule, value, nearest(value, there))])
        frame = kept
    return frame


def _says(cell: Any, text: str) -> bool:
    """Whether a cell holds the value that a text stands for."""
    if str(cell).lower() == text.lower():
        return True
    try:
        return not isinstance(cell, str | bool) and float(cell) == float(text)
    except (TypeError, ValueError):
        return False
