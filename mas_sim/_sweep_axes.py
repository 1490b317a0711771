"""Axes of a sweep: a list of values, or a range that is written out; crossed or zipped.

`axis_values` writes one axis out; `crossed` lists the points of all axes, the last one fastest.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mas_sim.errors import MasSimError, nearest

MAX_AXIS_VALUES = 10_000

Values = dict[str, Any]
"""What the fields on some axes are at a point, by path."""


class AxisError(MasSimError):
    """An axis cannot be read; the message is a clause.

    Attributes
    ----------
    key
        The key of a range that is at fault, or None.
    """

    def __init__(self, message: str, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key


def axis_values(axis: object) -> tuple[Any, ...]:
    """Return the values of an axis as it was written.

    Parameters
    ----------
    axis
        A list of values, or `{from, to, factor}` or `{from, to, step}`, which ends at `to` if it comes to it.

    Raises
    ------
    AxisError
        If it is neither, is empty, repeats a value, or grows never or too far.
    """
    if isinstance(axis, Mapping):
        values = _range(axis)
    elif isinstance(axis, Sequence) and not isinstance(axis, str):
        values = tuple(axis)
    else:
        raise AxisError("must be a list of values, or a range {from, to, factor} or {from, to, step}")
    if not values:
        raise AxisError("must have at least one value")
    if len(values) > MAX_AXIS_VALUES:
        raise AxisError(f"has {len(values):,} values, more than {MAX_AXIS_VALUES:,}")
    seen: set[str] = set()
    for value in values:
        known = repr(value if isinstance(value, bool) or not isinstance(value, int) else float(value))  # 1 is 1.0
        if known in seen:
            raise AxisError(f"has {value!r} more than once")
        seen.add(known)
    return values


def _range(axis: Mapping[str, Any]) -> tuple[Any, ...]:
    """Write a range out."""
    legal = ("from", "to", "factor", "step")
    unknown = next((key for key in axis if key not in legal), None)
    if unknown is not None:
        near = nearest(str(unknown), legal)
        hint = f"; did you mean {near!r}?" if near else ""
        raise AxisError(f"unknown key (a range has {', '.join(legal)}){hint}", unknown)
    grows = [key for key in ("factor", "step") if key in axis]
    missing = [key for key in ("from", "to") if key not in axis]
    if missing or len(grows) != 1:
        raise AxisError("a range needs from, to, and either factor or step")
    for key, value in axis.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise AxisError(f"must be a number (got {value!r})", key)
    first, last, by = axis["from"], axis["to"], axis[grows[0]]
    if grows[0] == "factor" and not (by > 1 and first > 0):
        raise AxisError("must be more than 1, with from more than 0", "factor")
    if grows[0] == "step" and by <= 0:
        raise AxisError("must be more than 0", "step")
    if last < first:
        raise AxisError(f"must be from ({first!r}) or more", "to")
    return tuple(_written_out(first, last, by, grows[0] == "factor"))


def _written_out(first: float, last: float, by: float, multiplies: bool) -> Iterator[float]:
    """Go from the first to the last; whole numbers stay whole, others do not drift."""
    edge = last + 1e-9 * abs(last)
    for count in range(MAX_AXIS_VALUES + 1):
        try:
            value = first * by**count if multiplies else first + by * count
        except OverflowError:  # of a float: it is beyond `to` in any case
            return
        if value > edge:
            return
        # 0.1 * 3 is 0.30000000000000004: what a person would have written is meant.
        yield value if isinstance(value, int) else float(f"{value:.12g}")


def crossed(axes: Mapping[str, Sequence[Any]], zipped: Sequence[Mapping[str, Sequence[Any]]]) -> Iterator[Values]:
    """List the points of axes: each of `axes` on its own, those of a group of `zipped` together."""
    groups = [[{path: value} for value in values] for path, values in axes.items()]
    for group in zipped:
        rows = zip(*group.values(), strict=True)
        groups.append([dict(zip(group, row, strict=True)) for row in rows])
    for parts in itertools.product(*groups):
        yield {path: value for part in parts for path, value in part.items()}


def moving_together(axes: Sequence[str], places: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return the axes in groups of those that always change together, as zipped ones do; most stand alone.

    Parameters
    ----------
    places
        What the fields on the axes are, at every place of a sweep.
    """
    groups: dict[tuple[int, ...], list[str]] = {}
    for number, axis in enumerate(axes):
        firsts: dict[str, int] = {}
        order = tuple(firsts.setdefault(repr(place[axis]), at) for at, place in enumerate(places))
        groups.setdefault(order if len(firsts) > 1 else (-1, number), []).append(axis)
    return [tuple(group) for group in groups.values()]
