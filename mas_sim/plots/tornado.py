"""How far a result moves with what an assumption may be: a tornado chart.

A bar for each assumption, from the result at one end of its range to that at the other, the widest on top. It shows
which of them decide, and whether any of them changes the winner.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mas_sim.errors import ConfigError, shorten
from mas_sim.plots._lanes import (
    Ask,
    end_label,
    end_width,
    faults_of,
    finish,
    fitting,
    is_nothing,
    name_ask,
    named_line,
    panel,
    scale,
    value_ticks,
)
from mas_sim.plots._style import BLACK, DARK_GREY, LIGHT_GREY, SKY, VERMILLION, in_paper_style, refuse, short_number

BAR_INCHES, BAR_HEIGHT = 0.24, 0.62
DOES_NOT_FIT = "does not fit"


@dataclass(frozen=True)
class TornadoBar:
    """An assumption, and the results at both ends of its range.

    Attributes
    ----------
    name : str
        The assumption.
    low, high : float
        The results at the two ends, in either order; NaN where nothing fits.
    low_label, high_label : str
        What the assumption was there: `4 GB/s`.
    """

    name: str
    low: float
    high: float
    low_label: str
    high_label: str


def tornado_figure(
    bars: Sequence[TornadoBar],
    *,
    nominal: float,
    quantity: str,
    flip: float | None = 1.0,
    flip_name: str = "",
    title: str | None = None,
) -> Figure:
    """Draw how much each assumption moves a result: a bar for each, the widest on top.

    What lies beyond `flip`, seen from the nominal result, is shaded, and the parts of bars there are hatched. A bar of
    which both ends lie on one side of the nominal result is joined to it by a thin line, which counts as width. Where
    nothing fits at an end, the bar ends at the nominal result with a cross and a note.

    Parameters
    ----------
    bars
        The assumptions, in any order; equally wide ones keep theirs.
    nominal
        The result with every assumption at its nominal value.
    quantity
        What the results are: `speedup of mas over flat`.
    flip
        The result at which the winner changes, drawn as a dashed line; None if there is none.
    flip_name
        What is written there; `the winner changes` unless given.

    Returns
    -------
    Figure
        7.2 inches wide.

    Raises
    ------
    ConfigError
        If there are no bars, no end is a number, an end is neither finite nor NaN, or `nominal` or `flip` is not
        finite.
    """
    if not bars:
        refuse("bars", "must hold at least one assumption", list(bars))
    faults = faults_of("nominal", nominal, signed=True)
    faults += [] if flip is None else faults_of("flip", flip, signed=True)
    for k, bar in enumerate(bars):
        for end in ("low", "high"):
            value = getattr(bar, end)
            faults += [] if is_nothing(value) else faults_of(f"bars[{k}].{end}", value, signed=True)
    if faults:
        raise ConfigError(faults[:10])
    spans = [_Span.of(bar, float(nominal)) for bar in bars]
    if not any(end.fits for span in spans for end in (span.left, span.right)):
        refuse("bars", "must hold at least one number", list(bars))
    spans.sort(key=lambda span: -span.width(nominal))
    return _tornado(spans, float(nominal), quantity, flip, flip_name or "the winner changes", title)


@dataclass(frozen=True)
class _End:
    """One end of a bar; at the nominal result if nothing fits there."""

    value: float
    label: str
    fits: bool

    def text(self, room: float, digits: int | None) -> str:
        """Return what is written there, at most that many points wide; with so many decimals, if that is given."""
        number = short_number(self.value) if digits is None else f"{self.value:.{digits}f}"
        tail = number if self.fits else DOES_NOT_FIT
        return fitting(self.label, f": {tail}" if self.label else tail, room)


@dataclass(frozen=True)
class _Span:
    """A bar by its ends, the lesser result at the left."""

    name: str
    left: _End
    right: _End

    @classmethod
    def of(cls, bar: TornadoBar, nominal: float) -> "_Span":
        """Sort the ends of a bar."""
        ends = [
            _End(nominal if is_nothing(value) else float(value), label, not is_nothing(value))
            for value, label in ((bar.low, bar.low_label), (bar.high, bar.high_label))
        ]
        left, right = sorted(ends, key=lambda end: end.value)
        return cls(bar.name, left, right)

    def width(self, nominal: float) -> float:
        """How far the assumption moves the result, from one end to the other or to the nominal one."""
        return max(self.right.value, nominal) - min(self.left.value, nominal)


@in_paper_style
def _tornado(
    spans: list[_Span], nominal: float, quantity: str, flip: float | None, flip_name: str, title: str | None
) -> Figure:
    """Draw what `tornado_figure` has checked."""
    figure, axes, points = panel([shorten(span.name, 44) for span in spans], BAR_INCHES)
    room, seen = 0.28 * points, [nominal, *(end.value for span in spans for end in (span.left, span.right))]
    # Where all is near 1, a second decimal does not say on which side of it a bar ends.
    digits = 3 if min(seen) > 0.5 and max(seen) < 2 and max(seen) - min(seen) < 0.4 else None
    texts = [(span.left.text(room, digits), span.right.text(room, digits)) for span in spans]
    number = short_number(nominal) if digits is None else f"{nominal:.{digits}f}"
    nominal_name, flip_name = f"nominal {number}", fitting(flip_name, "", 0.4 * points)
    # The two names stand side by side, each on its side of the other's line.
    sides = ("center", "center") if flip is None else ("left", "right") if flip <= nominal else ("right", "left")
    asks: list[Ask] = [name_ask(nominal, nominal_name, sides[0])]
    asks += [] if flip is None else [name_ask(flip, flip_name, sides[1])]
    for span, (left, right) in zip(spans, texts, strict=True):
        asks.append((span.left.value, end_width(left), 0.0))
        asks.append((span.right.value, 0.0, end_width(right)))
    scale(axes, asks, points, logs=False)
    named_line(axes, nominal, nominal_name, sides[0], lw=0.9, label="_nominal", gid="nominal")
    if flip is not None:
        if flip != nominal:
            edge = axes.get_xlim()[flip > nominal]
            axes.axvspan(min(flip, edge), max(flip, edge), color=LIGHT_GREY, lw=0, zorder=0, label="_beyond")
        named_line(axes, flip, flip_name, sides[1], ls=(0, (5, 2)), lw=1.0, label="_flip", gid="flip")
    for k, (span, (left, right)) in enumerate(zip(spans, texts, strict=True)):
        _draw_bar(axes, k, span, nominal, flip)
        end_label(axes, span.left.value, k, left, "right")
        end_label(axes, span.right.value, k, right, "left")
    value_ticks(axes)
    axes.set_xlabel(quantity)
    return finish(figure, len(spans) * BAR_INCHES + 0.75, True, title)


def _draw_bar(axes: Axes, k: int, span: _Span, nominal: float, flip: float | None) -> None:
    """Draw a bar, hatched where it lies beyond the flip, and what joins it to the nominal result."""
    low, high = span.left.value, span.right.value
    kept, beyond = [(low, high)], []
    if flip is not None and flip < nominal:
        kept, beyond = [(max(low, flip), high)], [(low, min(high, flip))]
    elif flip is not None and flip > nominal:
        kept, beyond = [(low, min(high, flip))], [(max(low, flip), high)]
    for parts, colour, hatch, name in ((kept, SKY, None, "_kept"), (beyond, VERMILLION, "//////", "_flipped")):
        for start, stop in parts:
            if stop > start:
                axes.barh(k, stop - start, BAR_HEIGHT, left=start, color=colour, edgecolor=BLACK, linewidth=0.4,
                          hatch=hatch, zorder=2, label=name)  # fmt: skip
    joined = (nominal, low) if low > nominal else (high, nominal) if high < nominal else None
    if joined is not None:
        axes.plot(joined, [k, k], color=DARK_GREY, lw=0.7, zorder=1, label="_joined")
    for end in (span.left, span.right):
        if not end.fits:
            axes.plot([end.value], [k], ls="none", marker="x", color=BLACK, ms=4, mew=1.0, zorder=4, label="_misfit")
