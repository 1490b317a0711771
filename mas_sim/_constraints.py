"""Constraints of a sweep: comparisons of fields and numbers, such as ``mac.rows * mac.cols >= vec.lanes``.

One or two comparisons in a row (``512 <= l1.capacity_kib <= 2048``), of products and quotients of fields, numbers,
quoted text, ``true``, ``false`` and ``null``. Nothing else: no sums, no calls, and nothing is evaluated as Python.
"""

import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mas_sim.errors import MasSimError, nearest

_TOKEN = re.compile(
    r"\s*(?:(?P<number>[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]{1,3})?)|(?P<field>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*)"
    r"|'(?P<single>[^']*)'|\"(?P<double>[^\"]*)\"|(?P<sign><=|>=|==|!=|<|>|\*|/))"
)
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_WORDS = {"true": True, "false": False, "null": None}
MAX_CHARS = 400
FORM = "must be a comparison with <, <=, >, >=, == or !=, or two in a row, as 1 <= cores <= 4"

Lookup = Callable[[str], Any]
"""Gives the value of a field at one point of a sweep."""

_Factor = tuple[str, Any]
"""`("field", path)` or `("value", value)`, after the sign that joins it to the factors before it."""


class ConstraintError(MasSimError):
    """A constraint cannot be read, or has no answer at a point; the message is a clause."""


@dataclass(frozen=True)
class Constraint:
    """A constraint, read.

    Attributes
    ----------
    text
        As it was written.
    terms
        Sides of the comparisons, each a product: factors with the sign before each.
    signs
        The comparison between each term and the next.
    """

    text: str
    terms: tuple[tuple[tuple[str, _Factor], ...], ...]
    signs: tuple[str, ...]

    @property
    def fields(self) -> tuple[str, ...]:
        """Paths of the fields that it names, in order."""
        named = [factor[1] for term in self.terms for _, factor in term if factor[0] == "field"]
        return tuple(dict.fromkeys(named))

    def holds(self, lookup: Lookup) -> bool:
        """Whether it holds where the fields have the values that `lookup` gives.

        Raises
        ------
        ConstraintError
            If it divides by zero, or compares what cannot be compared.
        """
        values = [_product(term, lookup) for term in self.terms]
        pairs = list(zip(self.signs, values[:-1], values[1:], strict=True))
        try:
            if any(sign not in ("==", "!=") and bool in (type(left), type(right)) for sign, left, right in pairs):
                raise TypeError  # Python orders them: True is 1
            return all(_COMPARISONS[sign](left, right) for sign, left, right in pairs)
        except TypeError:
            raise ConstraintError(f"compares {' with '.join(map(repr, values))}, which have no order") from None


def _product(term: Sequence[tuple[str, _Factor]], lookup: Lookup) -> Any:
    """Multiply and divide the factors of a term; a single one may be anything."""
    values = [(sign, lookup(what) if kind == "field" else what) for sign, (kind, what) in term]
    if len(values) == 1:
        return values[0][1]
    total: float = 1
    for sign, value in values:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConstraintError(f"multiplies {value!r}, which is no number")
        if sign == "/" and value == 0:
            raise ConstraintError("divides by zero")
        try:
            total = total / value if sign == "/" else total * value
        except OverflowError:
            raise ConstraintError("comes to a number beyond all bounds") from None
    return total


def parse_constraint(text: str, legal: Sequence[str]) -> Constraint:
    """Read a constraint.

    Parameters
    ----------
    text
        At most 400 characters.
    legal
        Paths of the fields that there are.

    Raises
    ------
    ConstraintError
        If it is no comparison, or names a field that there is not; names the nearest.
    """
    if len(text) > MAX_CHARS:
        raise ConstraintError(f"is longer than {MAX_CHARS} characters")
    terms: list[tuple[tuple[str, _Factor], ...]] = []
    signs: list[str] = []
    term: list[tuple[str, _Factor]] = []
    joint, expects_factor = "*", True
    for kind, token in _tokens(text):
        if (kind == "sign") == expects_factor:
            raise ConstraintError(f"{FORM}; stops making sense at {token!r}")
        if kind != "sign":
            term.append((joint, _factor(kind, token, legal)))
        elif token in "*/":
            joint = token
        else:
            terms.append(tuple(term))
            signs.append(token)
            term, joint = [], "*"
        expects_factor = kind == "sign"
    if expects_factor or not 1 <= len(signs) <= 2:
        raise ConstraintError(FORM)
    return Constraint(text, (*terms, tuple(term)), tuple(signs))


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Cut a constraint into tokens: their kind, and what they say."""
    place, end = 0, len(text.rstrip())
    while place < end:
        match = _TOKEN.match(text, place)
        if match is None:
            raise ConstraintError(f"cannot be read from {text[place:].strip()[:20]!r} on")
        kind = str(match.lastgroup)
        yield ("text" if kind in ("single", "double") else kind), match[kind]
        place = match.end()


def _factor(kind: str, token: str, legal: Sequence[str]) -> _Factor:
    """Read a factor."""
    if kind == "number":
        return "value", int(token) if token.isdigit() else float(token)
    if kind == "text":
        return "value", token
    if token in _WORDS:
        return "value", _WORDS[token]
    if token not in legal:
        near = nearest(token, legal)
        hint = f"; did you mean '{near}'?" if near else " (text needs quotes)"
        raise ConstraintError(f"names {token!r}, and there is no such field{hint}")
    return "field", token
