"""Does a strip of winners show who is the best at each value, and can it be read?"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from figure_facts import assert_legible, legend_of, saved_bytes, texts_of
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from mas_sim.errors import ConfigError
from mas_sim.plots import WinnerCell, winners_figure
from mas_sim.plots._style import FLOW_LOOKS

ROWS = {
    "L1 size (KiB)": [WinnerCell("128", ("flash",)), WinnerCell("5120", ("tileflow", "mas"), own=True)],
    "exp": [WinnerCell("6", ("mas",), own=True), WinnerCell("64", ("fusemax",)), WinnerCell("512", ("fusemax",))],
}
ALL = ("flat", "tileflow", "flash", "fusemax", "mas")


def parts_of(figure: Figure, kind: str) -> dict[str, tuple[float, float, float, float]]:
    """Return left, top, width and height of the parts of one kind, by what they are."""
    found = {}
    for patch in figure.axes[0].patches:
        assert isinstance(patch, Rectangle)
        name, _, what = str(patch.get_gid()).partition(" ")
        if name == kind:
            found[what] = (*patch.get_xy(), patch.get_width(), patch.get_height())
    return found


def test_has_each_value_a_cell_parted_among_those_that_are_tied() -> None:
    figure = winners_figure(ROWS)
    cells = parts_of(figure, "best")
    assert list(cells) == ["0 0 flash", "0 1 tileflow", "0 1 mas", "1 0 mas", "1 1 fusemax", "1 2 fusemax"]
    assert cells["0 1 mas"][3] == pytest.approx(cells["0 0 flash"][3] / 2)
    assert cells["0 1 mas"][1] == pytest.approx(cells["0 1 tileflow"][1] + cells["0 1 tileflow"][3])
    assert cells["1 2 fusemax"][0] == pytest.approx(2 / 3)
    assert list(parts_of(figure, "own")) == ["0 1", "1 0"]


def test_is_each_cell_coloured_and_named() -> None:
    figure = winners_figure(ROWS, caption="fewest cycles")
    colours = {str(p.get_gid()).split()[-1]: to_hex(p.get_facecolor()).upper() for p in figure.axes[0].patches
               if str(p.get_gid()).startswith("best")}  # fmt: skip
    assert colours == {name: FLOW_LOOKS[name][0] for name in ("flash", "tileflow", "mas", "fusemax")}
    assert texts_of(figure, "name") == ["FA", "TF", "MAS", "MAS", "FM", "FM"]
    assert texts_of(figure, "value") == ["128", "5120", "6", "64", "512"]
    assert legend_of(figure)[:1] == ["FA: flash"]
    assert legend_of(figure)[-1] == "framed: the machine as it is"
    assert figure.legends[0].get_title().get_text() == "fewest cycles"
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == ["L1 size\n(KiB)", "exp"]


@pytest.mark.parametrize("count", [1, 3, 10])
def test_is_every_strip_legible(count: int) -> None:
    rows = {f"an assumption {k} (bytes/cycle)": [WinnerCell(f"{2**i}", ALL[: 1 + i % 5]) for i in range(count)]
            for k in range(7)}  # fmt: skip
    assert_legible(winners_figure(rows, caption="fewest cycles; tied within 0.5 %", title="who wins"))


def test_do_the_same_winners_give_the_same_bytes(tmp_path: Path) -> None:
    assert saved_bytes(winners_figure(ROWS), tmp_path, "a") == saved_bytes(winners_figure(ROWS), tmp_path, "b")


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: winners_figure({}), "rows: must hold at least one assumption"),
        (lambda: winners_figure({"a": []}), "rows['a']: must hold cells"),
        (lambda: winners_figure({"a": [WinnerCell("1", ())]}), "rows['a']: must hold cells, each with at least"),
    ],
)
def test_is_what_cannot_be_drawn_refused(make: Callable[[], Figure], told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        make()
