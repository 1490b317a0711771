"""What was published, and whether our figures agree with it; facts and their places stand in `published.yaml`."""

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Literal

from pydantic import Field, StrictFloat, StrictStr

from mas_sim.config import FrozenModel, load_model

Judgement = Literal["agrees", "differs", "not comparable"]
Unit = Literal["times", "share", "networks", "tokens", "evaluations", "cycles", "us"]

SOURCES = ("MAS-Attention", "other simulators", "STOF")
NEAR = 0.05
"""A figure agrees if it is within the last digit that was published, or within this share of it."""


class Claim(FrozenModel):
    """A published figure.

    Attributes
    ----------
    id, section : str
        Its name here, and the page that compares it.
    what, where : str
        What it is, and where in the paper it stands.
    low, high : float
        The range that is stated; equal where it is one number.
    digits : float
        What the last digit that is given is worth.
    unit : str
        `times`, `share` (of 1), `networks`, `tokens`, `evaluations`, `cycles` or `us`.
    said : str or None
        Its own words, where it is not stated as a number.
    """

    id: StrictStr
    section: StrictStr
    what: StrictStr
    low: StrictFloat
    high: StrictFloat
    digits: StrictFloat = Field(gt=0)
    unit: Unit
    where: StrictStr
    said: StrictStr | None = None

    @property
    def source(self) -> str:
        """Whose figure it is, one of `SOURCES`."""
        kinds = {"peer": SOURCES[1], "stof": SOURCES[2]}
        return kinds.get(self.id.partition("_")[0], SOURCES[0])

    @property
    def text(self) -> str:
        """The published figure, written out."""
        if self.said is not None:
            return self.said
        if self.low == self.high:
            return write(self.low, self.unit)
        return f"{write(self.low, self.unit)} to {write(self.high, self.unit)}"

    def agrees(self, ours: float) -> bool:
        """Whether a figure of ours is what was published, as far as its digits go."""
        room = max(self.digits, NEAR * max(abs(self.low), abs(self.high)))
        return self.low - room <= ours <= self.high + room


class Objection(FrozenModel):
    """An objection of a published review, or a question that the paper leaves open.

    Attributes
    ----------
    id, section : str
        Its name here, and the page that answers it, or most of it.
    what : str
        What is said or asked.
    """

    id: StrictStr
    section: StrictStr
    what: StrictStr


class _Published(FrozenModel):
    claims: tuple[Claim, ...]
    objections: tuple[Objection, ...]
    questions: tuple[Objection, ...]


def write(value: float, unit: Unit) -> str:
    """Write a figure with its unit."""
    if unit == "times":
        return f"{value:.2f}x"
    if unit == "share":
        return f"{100 * value:.2f} %"
    if unit in ("cycles", "us"):
        return f"{value:,.0f} cycles" if unit == "cycles" else f"{value:,.2f} us"
    return f"{value:,.0f}"


def _published() -> _Published:
    return load_model(_Published, Path(str(files("mas_sim.reproduce"))) / "published.yaml")


def load_claims() -> dict[str, Claim]:
    """Return the published figures by name.

    Raises
    ------
    ConfigError
        If the file that ships with the package is wrong.
    """
    return {claim.id: claim for claim in _published().claims}


def load_objections() -> tuple[Objection, ...]:
    """Return the objections of the review, and then the open questions; each is answered on a page.

    Raises
    ------
    ConfigError
        If the file that ships with the package is wrong.
    """
    published = _published()
    return (*published.objections, *published.questions)


@dataclass(frozen=True)
class Verdict:
    """A published figure beside ours.

    Attributes
    ----------
    ours
        Our figure, written out; a dash where there is none.
    judgement
        Whether it agrees.
    why
        One sentence.
    """

    claim: Claim
    ours: str
    judgement: Judgement
    why: str


def judge(claim: Claim, ours: float, why: str, why_agrees: str = "to the digits that are given") -> Verdict:
    """Compare a figure of ours with a published one.

    Parameters
    ----------
    why, why_agrees
        The sentence for each outcome.
    """
    agrees = claim.agrees(ours)
    return Verdict(claim, write(ours, claim.unit), "agrees" if agrees else "differs", why_agrees if agrees else why)


def beside(claim: Claim, ours: float | None, why: str) -> Verdict:
    """Put a figure of ours beside a published one that it cannot be compared with."""
    return Verdict(claim, "-" if ours is None else write(ours, claim.unit), "not comparable", why)


__all__ = ["Claim", "Judgement", "Objection", "Verdict", "beside", "judge", "load_claims", "load_objections", "write"]
