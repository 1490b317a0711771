"""What tests ask of any figure: its legend, its texts, and whether anything lies over something else or is cut off."""

from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from mas_sim.plots import save_figure


def legend_of(figure: Figure) -> list[str]:
    """Return the entries of a figure's legend."""
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def texts_of(figure: Figure, gid: str | None = None) -> list[str]:
    """Return the texts inside the panels, all or those of one kind."""
    return [text.get_text() for text in _texts(figure, gid)]


def _texts(figure: Figure, gid: str | None) -> list[Text]:
    return [t for axes in figure.axes for t in axes.texts if gid is None or str(t.get_gid()).split()[0] == gid]


def assert_legible(figure: Figure) -> None:
    """Draw a figure, and see that no text inside a panel touches another, and that nothing leaves the figure."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    whole = figure.bbox.padded(1)
    legends = [legend.get_window_extent(renderer) for legend in figure.legends]
    for axes in figure.axes:
        frame = axes.get_tightbbox(renderer)
        assert frame is not None
        assert_within(frame, whole)
        assert not [box for box in legends if box.overlaps(frame.padded(-1))], "the legend lies over a panel"
        upright = [
            t for t in axes.texts if t.get_text() and t.get_rotation() % 90 == 0
        ]  # the box of others is too large
        boxes = [(t.get_text(), t.get_window_extent(renderer).padded(-0.5)) for t in upright]
        touching = [(a, b) for i, (a, at) in enumerate(boxes) for b, before in boxes[:i] if at.overlaps(before)]
        assert not touching
        for _, box in boxes:
            assert_within(box, whole)
    for box in legends:
        assert_within(box, whole)


def assert_within(box: Bbox, whole: Bbox) -> None:
    """See that a box does not leave another."""
    assert whole.x0 <= box.x0, box
    assert box.x1 <= whole.x1, box
    assert whole.y0 <= box.y0, box
    assert box.y1 <= whole.y1, box


def saved_bytes(figure: Figure, folder: Path, name: str) -> list[bytes]:
    """Save a figure as SVG and PNG, and return what was written."""
    return [file.read_bytes() for file in save_figure(figure, folder / name)]
