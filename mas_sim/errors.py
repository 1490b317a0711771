"""The exceptions of mas_sim, and the faults that a bad input file is reported with.

Everything that a user can cause ends in one of these, never in a bare traceback of another library::

    MasSimError
    ├── ConfigError      a YAML file, a preset name or a parameter is wrong; carries every fault found
    ├── TilingError      a tiling does not fit the machine; carries by how many bytes
    └── ScheduleError    a schedule is illegal: a deadlock, a stale read, a unit used twice at once

``except MasSimError`` catches them all.
"""

import difflib
import reprlib
from collections.abc import Iterable
from dataclasses import dataclass

VALUE_CHARS = 60
"""A fault shows at most this many characters of the value that broke the rule."""

NAME_CHARS = 80
"""Names longer than this are cut before they are compared or printed."""

_REPR = reprlib.Repr()  # bounds the work of showing a huge value; shorten() then bounds the text
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = VALUE_CHARS


def shorten(text: str, limit: int = VALUE_CHARS) -> str:
    """Cut ``text`` to ``limit`` characters, marking the cut with an ellipsis."""
    return text if len(text) <= limit else text[: limit - 3] + "..."


def nearest(name: str, legal: Iterable[str]) -> str | None:
    """Find the legal name that a misspelt one most likely meant.

    Parameters
    ----------
    name : str
        What was written.
    legal : iterable of str
        What could have been written.

    Returns
    -------
    str or None
        The closest legal name, ignoring case, or None if nothing is similar enough to be worth suggesting.
    """
    by_lower = {candidate.lower(): candidate for candidate in legal}
    matches = difflib.get_close_matches(name[:NAME_CHARS].lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[matches[0]] if matches else None


@dataclass(frozen=True)
class Fault:
    """One broken rule: where, which rule, what was found, and what was probably meant.

    Attributes
    ----------
    file : str
        The file, or ``<python>`` for a value that code passed.
    line : int or None
        One-based line, where known.
    path : str
        Dotted path of the field, such as ``mac.rows``; empty when the fault concerns the whole file.
    rule : str
        The rule that was broken, as a clause: ``must be at least 1``.
    value : str
        The ``repr`` of the offending value, at most 60 characters; empty when there is none to show.
    suggestion : str or None
        The nearest legal name.
    """

    file: str
    line: int | None
    path: str
    rule: str
    value: str = ""
    suggestion: str | None = None

    @classmethod
    def of(
        cls, file: str, line: int | None, path: str, rule: str, value: object, suggestion: str | None = None
    ) -> "Fault":
        """Make a fault that shows ``value``, however long its ``repr`` is."""
        return cls(file, line, path, rule, shorten(_REPR.repr(value)), suggestion)

    def __str__(self) -> str:
        """Return ``file:line: path: rule (got value); did you mean 'x'?``."""
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        text = f"{where}: {self.path}: {self.rule}" if self.path else f"{where}: {self.rule}"
        if self.value:
            text += f" (got {self.value})"
        if self.suggestion is not None:
            text += f"; did you mean '{self.suggestion}'?"
        return text


class MasSimError(Exception):
    """Base class of every error that mas_sim raises on purpose."""


class ConfigError(MasSimError):
    """A file, a preset name or a parameter is wrong.

    Parameters
    ----------
    faults : iterable of Fault
        Everything that was found wrong, in the order of the file.
    """

    faults: tuple[Fault, ...]

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__(self.faults)

    def __str__(self) -> str:
        """Return one line per fault."""
        return "\n".join(str(fault) for fault in self.faults)


class TilingError(MasSimError):
    """A tiling is illegal on this machine and workload.

    Parameters
    ----------
    message : str
        What does not fit.
    over_bytes : int, optional
        By how many bytes it does not fit, where the fault is one of capacity.
    """

    message: str
    over_bytes: int | None

    def __init__(self, message: str, over_bytes: int | None = None) -> None:
        self.message = message
        self.over_bytes = over_bytes
        super().__init__(message, over_bytes)

    def __str__(self) -> str:
        """Return the message."""
        return self.message


class ScheduleError(MasSimError):
    """A schedule cannot be run, or would read data that is not there.

    Parameters
    ----------
    message : str
        What is illegal, and at which instruction.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
