"""Do heat maps, lines and rooflines show the winners, ratios and roofs that follow from their numbers?"""

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from figure_facts import assert_legible, legend_of, saved_bytes, texts_of
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from mas_sim.arch import load_arch
from mas_sim.config import list_presets
from mas_sim.dataflows import DATAFLOWS
from mas_sim.errors import ConfigError
from mas_sim.plots import RooflinePoint, heatmap_figure, roofline_figure, sweep_figure
from mas_sim.plots._labels import axis_name
from mas_sim.plots._style import FLOW_LOOKS
from mas_sim.plots.heatmap import SHORT_NAMES, text_colour
from mas_sim.report import Report, make_report
from mas_sim.sweep_file import load_sweep
from mas_sim.tiling import Tiling
from mas_sim.workload import Workload

X, Y = "l1.capacity_kib", "dram.bandwidth_gb_per_s"


def point(x: float, y: float, dataflow: str, cycles: float, status: str = "done", **more: Any) -> dict[str, Any]:
    """Make the row of a point of a sweep."""
    return {X: x, Y: y, "workload": "bert", "dataflow": dataflow, "status": status, "cycles": cycles} | more


NAN = math.nan
POINTS = [
    point(64, 8, "flat", NAN, "does_not_fit"), point(64, 8, "mas", NAN, "does_not_fit"),
    point(256, 8, "flat", 300), point(256, 8, "mas", NAN, "does_not_fit"),
    point(1024, 8, "flat", 100), point(1024, 8, "mas", 112),
    point(64, 30, "flat", 500), point(64, 30, "mas", 500),
    point(256, 30, "flat", 150), point(256, 30, "mas", 100),
    point(1024, 30, "flat", 130), point(1024, 30, "mas", NAN, "missing"),
]  # fmt: skip


def cells(figure: Figure) -> dict[tuple[int, int], tuple[str, object]]:
    """Return colour and hatch of each cell."""
    found: dict[tuple[int, int], tuple[str, object]] = {}
    for patch in figure.axes[0].patches:
        assert isinstance(patch, Rectangle)
        _, i, j = str(patch.get_gid()).split()
        found[int(i), int(j)] = (to_hex(patch.get_facecolor()).upper(), patch.get_hatch())
    return found


def cell_texts(figure: Figure) -> dict[tuple[int, int], str]:
    """Return what stands in each cell."""
    gids = {text: str(text.get_gid()).split() for text in figure.axes[0].texts}
    return {(int(gid[1]), int(gid[2])): text.get_text() for text, gid in gids.items()}


def boundaries(figure: Figure) -> set[tuple[float, ...]]:
    """Return the ends of the thick lines."""
    lines = [line for line in figure.axes[0].lines if line.get_gid() == "boundary"]
    return {(*map(float, np.asarray(l.get_xdata())), *map(float, np.asarray(l.get_ydata()))) for l in lines}  # noqa: E741


# --- the heat map ---


def test_has_each_cell_its_winner_and_margin() -> None:
    figure = heatmap_figure(POINTS, X, Y)
    assert cell_texts(figure) == {
        (1, 0): "FLAT alone", (2, 0): "FLAT 1.12x", (0, 1): "tie FLAT=MAS", (1, 1): "MAS 1.50x",
    }  # fmt: skip
    found = cells(figure)
    assert found[1, 0] == found[2, 0] == (FLOW_LOOKS["flat"][0], None)
    assert found[1, 1] == (FLOW_LOOKS["mas"][0], None)
    assert found[0, 0][1] == "//////"  # nothing fits
    assert (2, 1) not in found  # one of them is still to be run


def test_is_a_place_without_a_point_no_point_that_is_still_to_be_run() -> None:
    rows = [point(x, x, flow, cycles) for x in (8, 16) for flow, cycles in (("flat", 5), ("mas", 4))]  # a diagonal
    figure = heatmap_figure(rows, X, Y)
    assert cells(figure)[0, 1][1] == cells(figure)[1, 0][1] == "...."
    assert legend_of(figure) == ["MAS: mas", "not in the sweep"]
    waiting = heatmap_figure([*rows, point(8, 16, "mas", math.nan, "missing")], X, Y)
    assert legend_of(waiting) == ["MAS: mas", "not in the sweep", "not all run yet"]
    assert_legible(waiting)


def test_does_the_legend_of_a_ratio_say_what_it_is_told() -> None:
    words = {"neither has a result": "does not fit", "ratio crosses 1": "the optimum"}
    figure = heatmap_figure(POINTS, X, Y, ratio=("flat", "mas"), words=words)
    assert {"does not fit", "the optimum"} <= set(legend_of(figure))
    assert not {*words} & set(legend_of(figure))


def test_does_a_margin_never_look_like_a_tie() -> None:
    rows = [point(x, 8, flow, cycles) for x, other in ((1, 1.0002), (2, 1.004), (3, 1.006))
            for flow, cycles in (("flat", 1e6 * other), ("mas", 1e6))]  # fmt: skip
    assert list(cell_texts(heatmap_figure(rows, X, Y)).values()) == ["MAS <1.001x", "MAS 1.004x", "MAS 1.01x"]


def test_is_a_small_lead_a_tie_where_the_model_is_no_finer() -> None:
    rows = [point(x, 8, flow, cycles) for x, other in ((1, 1.004), (2, 1.006))
            for flow, cycles in (("flat", 1e6 * other), ("mas", 1e6))]  # fmt: skip
    figure = heatmap_figure(rows, X, Y, tie_tolerance=0.005)
    assert cell_texts(figure) == {(0, 0): "tie FLAT=MAS", (1, 0): "MAS 1.01x"}
    assert legend_of(figure) == ["MAS: mas", "tie within 0.5 % (FLAT: flat)"]
    assert_legible(figure)


def test_do_axes_say_what_they_are_told() -> None:
    figures = (
        heatmap_figure(POINTS, X, Y, x_label="how much L1", y_label="how fast DRAM"),
        sweep_figure(LINE, X, ratio=("flat", "mas"), x_label="how much L1", y_label="how fast DRAM"),
    )
    for figure in figures:
        assert (figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()) == ("how much L1", "how fast DRAM")


def test_are_all_fields_of_shipped_sweeps_named_in_words() -> None:
    swept = {path for name in list_presets("sweeps") for path in load_sweep(name).axes}
    assert "vec.lanes" in swept
    assert [path for path in sorted(swept) if axis_name(path).partition(" (")[0] == path.partition(" (")[0]] == []
    assert [axis_name("sync_cycles"), axis_name("vec.lanes")] == [
        "synchronisation of two units (cycles)",
        "vector lanes",
    ]
    assert [axis_name("a.b_kib"), axis_name("some_bytes")] == ["a.b (KiB)", "some (bytes)"]


def test_do_thick_lines_part_the_regions() -> None:
    expected = {(1, 1, 0, 1), (1, 1, 1, 2), (0, 1, 1, 1), (1, 2, 1, 1)}
    assert boundaries(heatmap_figure(POINTS, X, Y)) == expected


def test_are_the_axes_in_rising_order_and_named_with_units() -> None:
    axes = heatmap_figure(POINTS[::-1], X, Y).axes[0]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["64", "256", "1,024"]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["8", "30"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("L1 capacity (KiB)", "DRAM bandwidth (GB/s)")


def test_does_the_legend_name_what_is_drawn_and_nothing_else() -> None:
    entries = ["FLAT: flat", "MAS: mas", "tie", "nothing fits", "not all run yet"]
    assert legend_of(heatmap_figure(POINTS, X, Y)) == entries
    assert legend_of(heatmap_figure(POINTS[4:6], X, Y)) == ["FLAT: flat"]


def test_does_a_question_mark_say_that_one_might_still_win() -> None:
    figure = heatmap_figure([point(1, 1, "flat", 100), point(1, 1, "mas", NAN, "too_long")], X, Y)
    assert cell_texts(figure) == {(0, 0): "FLAT alone?"}
    assert legend_of(figure) == ["FLAT: flat", "one has no result"]
    nothing = heatmap_figure([point(1, 1, "flat", NAN, "failed")], X, Y)
    assert legend_of(nothing) == ["nothing fits, or no result"]


def test_is_a_ratio_a_number_in_each_cell_with_a_line_where_it_crosses_one() -> None:
    figure = heatmap_figure(POINTS, X, Y, ratio=("flat", "mas"))
    assert cell_texts(figure) == {(1, 0): "only FLAT", (2, 0): "0.89", (0, 1): "1.00", (1, 1): "1.50"}
    assert boundaries(figure) == {(1, 1, 1, 2)}
    assert figure.axes[1].get_ylabel() == "cycles of flat / mas"
    shades = cells(figure)
    assert len({shades[2, 0], shades[0, 1], shades[1, 1]}) == 3
    assert legend_of(figure) == [
        "ratio crosses 1", "FLAT: only flat has a result", "neither has a result", "not all run yet",
    ]  # fmt: skip


def test_have_all_dataflows_a_colour_and_a_short_name_of_their_own() -> None:
    assert set(DATAFLOWS) < set(SHORT_NAMES)
    assert set(SHORT_NAMES) <= set(FLOW_LOOKS)
    assert len({FLOW_LOOKS[name][0] for name in SHORT_NAMES}) == len(SHORT_NAMES)
    for names in (SHORT_NAMES,):
        assert len(set(names.values())) == len(names)
    assert (text_colour("#FFFFFF"), text_colour("#00224e")) == ("#000000", "#FFFFFF")


def test_can_what_is_no_number_be_an_axis() -> None:
    rows = [
        {"preemption.supported": on, "dtype": dtype, "dataflow": "mas", "cycles": 5}
        for on, dtype in itertools.product([True, False], ["int8", "fp16"])
    ]
    axes = heatmap_figure(pd.DataFrame(rows), "preemption.supported", "dtype").axes[0]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["True", "False"]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["int8", "fp16"]


SHARES = [
    point(64, 8, "mas", 100, mac_busy_share=0.5, exp_available_per_cycle=4.0, proven=True, bound_name="dram",
          bound_cycles=90),
]  # fmt: skip


def caption_of(figure: Figure) -> str:
    """Return the line over the legend."""
    return figure.legends[0].get_title().get_text()


def ticks_of(figure: Figure, name: str = "x") -> list[str]:
    """Return the labels of the ticks of an axis."""
    ticks = figure.axes[0].get_xticklabels() if name == "x" else figure.axes[0].get_yticklabels()
    return [tick.get_text() for tick in ticks]


def assert_ticks_apart(figure: Figure) -> None:
    """Draw a figure, and see that no label of a tick touches the one before."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    axes = figure.axes[0]
    for labels in (axes.get_xticklabels(), axes.get_yticklabels()):
        boxes = [label.get_window_extent(canvas.get_renderer()) for label in labels if label.get_text()]
        assert not [b for a, b in itertools.pairwise(boxes) if a.overlaps(b)]


def test_is_nothing_at_all_less_than_something() -> None:
    """A 0 is a result: it wins, and no number says by how much."""
    rows = [point(1, 1, "flat", 10), point(1, 1, "mas", 0), point(2, 1, "flat", 0), point(2, 1, "mas", 0)]
    figure = heatmap_figure(rows, X, Y)
    assert cell_texts(figure) == {(0, 0): "MAS", (1, 0): "tie FLAT=MAS"}
    ratio = heatmap_figure(rows, X, Y, ratio=("flat", "mas"))
    assert cell_texts(ratio) == {(0, 0): "/ 0", (1, 0): "/ 0"}
    assert legend_of(ratio) == ["/ 0: no ratio, mas has 0"]
    assert cell_texts(heatmap_figure(rows[:2], X, Y, ratio=("mas", "flat"))) == {(0, 0): "0.00"}


def test_does_the_map_say_what_decides_and_what_its_numbers_are() -> None:
    assert caption_of(heatmap_figure(POINTS, X, Y)) == "winner: least cycles; number: second over winner"
    stalls = heatmap_figure([row | {"stall_mac_cycles": 1} for row in POINTS], X, Y, value="stall_mac_cycles")
    assert caption_of(stalls).startswith("winner: least stall_mac_cycles")
    assert caption_of(heatmap_figure(POINTS, X, Y, ratio=("flat", "mas"))) == ""
    assert_legible(heatmap_figure([point(1, 1, "flat", 1, a_column_of_a_very_long_name_in_bytes=1)], X, Y,
                                  value="a_column_of_a_very_long_name_in_bytes"))  # fmt: skip


@pytest.mark.parametrize("frame", [list, pd.DataFrame, lambda rows: pd.DataFrame(rows).astype({X: "Int64"})])
def test_does_no_value_on_an_axis_stand_before_all_others(frame: Any) -> None:
    rows = [point(x, 8, flow, cycles) for x, cycles in ((64, 3), (None, 2), (16, 1)) for flow in ("flat", "mas")]  # type: ignore[arg-type]
    figure = heatmap_figure(frame(rows), X, Y)
    assert ticks_of(figure) == ["none", "16", "64"]
    assert len(cell_texts(figure)) == 3
    line = sweep_figure(frame(rows), X)
    assert lines_of(line)["flat"] == [[2, 1, 3]]
    assert ticks_of(line) == ["none", "16", "64"]


MAPPINGS = [f'{{"mac": {{"rows": {rows}, "columns": {rows}}}, "vec": {{"lanes": {lanes}}}}}'
            for rows in (16, 32, 160) for lanes in (64, 128)]  # fmt: skip


@pytest.mark.parametrize("turned", [False, True])
def test_are_long_labels_cut_and_still_told_apart(turned: bool) -> None:
    rows = [point(text, y, "mas", 5) for text in MAPPINGS for y in (8, 16)]  # type: ignore[arg-type]
    figure = heatmap_figure(rows, *((Y, X) if turned else (X, Y)))
    labels = ticks_of(figure, "y" if turned else "x")
    assert len(set(labels)) == len(MAPPINGS)
    assert max(map(len, labels)) <= 28
    assert all("..." in label for label in labels)
    line = sweep_figure([row for row in rows if row[Y] == 8], X)
    assert len(set(ticks_of(line))) == len(MAPPINGS)
    for one in (figure, line):
        assert_ticks_apart(one)
        assert_legible(one)
        assert min(one.axes[0].get_position().bounds[2:]) > 0.25


def test_is_a_map_of_many_rows_no_taller_than_a_page() -> None:
    figure = heatmap_figure(grid(3, 60), X, Y)
    assert figure.get_figheight() < 10
    for one in (figure, heatmap_figure(grid(60, 3), X, Y)):
        assert_legible(one)
        assert_ticks_apart(one)


def grid(columns: int, lines: int) -> list[dict[str, Any]]:
    """Make a grid of points with three regions."""
    return [
        point(64 * (i + 1), 8 * (j + 1), flow, base + rate * abs(i - j), workload="bert_base")
        for i, j in itertools.product(range(columns), range(lines))
        for flow, base, rate in (("flat", 900.0, 20.0), ("flash", 950.0, 10.0), ("mas", 800.0, 90.0))
    ]


@pytest.mark.parametrize("rows", [POINTS, POINTS[4:6], grid(8, 5), grid(20, 20), grid(1, 12)], ids=len)
@pytest.mark.parametrize("ratio", [None, ("flat", "mas")], ids=str)
def test_is_every_size_of_map_legible(rows: list[dict[str, Any]], ratio: tuple[str, str] | None) -> None:
    figure = heatmap_figure(rows, X, Y, ratio=ratio, title="who wins where")
    assert figure.get_figwidth() <= 7.2
    assert_legible(figure)


# --- lines ---

LINE = [
    point(x, 8, flow, cycles, workload=name, total_pj=cycles * 1e6, bound=90.0)
    for name, scale in (("bert", 1), ("xlm", 4))
    for x, flow, cycles in (
        (64, "flat", 400 * scale), (64, "mas", 400 * scale), (256, "flat", 300 * scale), (256, "mas", 100 * scale),
        (1024, "flat", 200 * scale), (1024, "mas", 100 * scale),
    )
]  # fmt: skip


def lines_of(figure: Figure) -> dict[str, list[list[float]]]:
    """Return the heights of the lines by label."""
    found: dict[str, list[list[float]]] = {}
    for line in figure.axes[0].lines:
        found.setdefault(str(line.get_label()), []).append([float(v) for v in np.asarray(line.get_ydata())])
    return found


def test_is_a_line_drawn_for_each_dataflow_and_workload_and_their_mean() -> None:
    found = lines_of(sweep_figure(LINE, X))
    np.testing.assert_allclose(found["flat"], [[800, 600, 400]])
    assert found["_workload"][:2] == [[400, 300, 200], [1600, 1200, 800]]
    alone = sweep_figure(LINE, X, workload="bert", y="total_pj")
    assert lines_of(alone) == {"flat": [[400, 300, 200]], "mas": [[400, 100, 100]]}
    assert alone.axes[0].get_ylabel() == "energy (uJ)"
    assert legend_of(alone) == ["flat", "mas"]


def test_is_the_speedup_drawn_with_what_would_be_ideal() -> None:
    figure = sweep_figure(LINE, X, ratio=("flat", "mas"), ideal=lambda kib: kib / 64, ideal_name="linear")
    found = lines_of(figure)
    np.testing.assert_allclose(found["geometric mean of 2"], [[1, 3, 2]])
    assert found["linear"] == [[1, 4, 16]]
    assert figure.axes[0].get_ylabel() == "cycles of flat / mas"
    assert legend_of(figure) == ["bert", "xlm", "geometric mean of 2", "linear"]
    assert lines_of(sweep_figure(LINE, X, ideal="bound"))["ideal"] == [[90, 90, 90]]


def test_is_each_of_a_few_networks_told_apart() -> None:
    lines = sweep_figure(LINE, X, ratio=("flat", "mas")).axes[0].lines
    looks = {str(one.get_label()): (one.get_color(), one.get_marker(), one.get_linewidth()) for one in lines}
    assert looks["geometric mean of 2"][2] > looks["bert"][2]
    assert len({looks[name][:2] for name in ("bert", "xlm", "geometric mean of 2")}) == 3
    many = [row | {"workload": f"{row['workload']} {k}"} for row in LINE for k in range(5)]
    figure = sweep_figure(many, X, ratio=("flat", "mas"))
    assert legend_of(figure) == ["flat / mas", "thick: geometric mean of 10 workloads", "thin: one workload"]
    assert_legible(figure)
    entries = dict(zip(legend_of(figure), figure.legends[0].get_lines(), strict=True))
    (mean,) = [line for line in figure.axes[0].lines if line.get_label() == "flat / mas"]
    assert entries["thick: geometric mean of 10 workloads"].get_color() == mean.get_color()


def test_is_a_line_broken_where_there_is_no_result() -> None:
    rows = [*LINE[:4], point(1024, 8, "flat", NAN, "does_not_fit"), point(1024, 8, "mas", 100)]
    found = lines_of(sweep_figure(rows, X))
    np.testing.assert_array_equal(found["flat"], [[400, 300, NAN]])
    np.testing.assert_array_equal(lines_of(sweep_figure(rows, X, ratio=("flat", "mas")))["flat / mas"], [[1, 3, NAN]])


def test_is_a_line_drawn_down_to_nothing() -> None:
    """A 0 is a result: it stands on the line, and the axis that shows it is not logarithmic."""
    heights = {1: 1000, 2: 0, 4: 10}
    rows = [point(x, 8, flow, cycles) for x, cycles in heights.items() for flow in ("flat", "mas")]
    figure = sweep_figure(rows, X)
    assert lines_of(figure)["flat"] == [[1000, 0, 10]]
    assert figure.axes[0].get_yscale() == "linear"
    assert figure.axes[0].get_ylim()[0] < 0
    ratio = lines_of(sweep_figure(rows, X, ratio=("flat", "mas")))["flat / mas"]
    np.testing.assert_array_equal(ratio, [[1, NAN, 1]])
    two = [row | {"workload": name} for row in rows for name in ("bert", "xlm")]
    np.testing.assert_allclose(lines_of(sweep_figure(two, X))["flat"], [[1000, 0, 10]])
    assert_legible(figure)


@pytest.mark.parametrize("values", [range(1, 78), range(1000, 9000, 1000), [1, 2, 1000, 1001], range(64, 577, 32)])
def test_do_the_labels_of_ticks_not_touch(values: Any) -> None:
    figure = sweep_figure([point(x, 8, "mas", 5) for x in values], X)
    assert len(ticks_of(figure)) >= 2
    assert_ticks_apart(figure)


@pytest.mark.parametrize("rows", [LINE, LINE[:6], LINE[:1], POINTS[2:4]], ids=len)
def test_are_lines_legible(rows: list[dict[str, Any]]) -> None:
    names = {row["dataflow"] for row in rows}
    ratio = ("flat", "mas") if {"flat", "mas"} <= names else None
    for figure in (sweep_figure(rows, X, title="L1"), sweep_figure(rows, X, ratio=ratio)):
        assert_legible(figure)


# --- the roofline ---


def roof(dataflow: str, macs: float, dram_bytes: float, cycles: float, **more: Any) -> dict[str, Any]:
    """Make a point of a machine with 512 MACs and 8 bytes a cycle."""
    facts = {"workload": "bert", "dataflow": dataflow, "macs": macs, "dram_bytes": dram_bytes, "cycles": cycles}
    return facts | {"peak_macs_per_cycle": 512, "dram_bytes_per_cycle": 8.0} | more


ROOFS = [
    roof("layer_wise", 1e6, 1e5, 12500, vec_macs_per_cycle=2048.0, limited_by="dram"),
    roof("flat", 1e6, 1e4, 2500, vec_macs_per_cycle=2048.0, limited_by="mac+vec"),
    roof("mas", 1e6, 1e4, 2000, vec_macs_per_cycle=2730.7, limited_by="mac"),
    roof("flash", 1e6, 1e4, 2001, vec_macs_per_cycle=math.inf, limited_by="mac"),
]  # fmt: skip


def test_do_the_roofs_and_points_stand_where_the_numbers_say() -> None:
    axes = roofline_figure(ROOFS).axes[0]
    lines = {str(line.get_label()): line for line in axes.lines}
    x, y = (np.asarray(data, float) for data in lines["_roof"].get_data())
    np.testing.assert_allclose(y, np.minimum(512, 8 * x))
    assert x[1] == 64
    for name, at in (("_layer_wise", (10, 80)), ("_flat", (100, 400)), ("_mas", (100, 500))):
        assert (*lines[name].get_xdata(), *lines[name].get_ydata()) == at
    vec = sorted(float(np.asarray(line.get_ydata())[0]) for line in axes.lines if line.get_label() == "_vec")
    assert vec == [2048, 2731]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")


def test_are_roofs_and_points_named_with_what_limits_them() -> None:
    figure = roofline_figure(ROOFS, title="bert")
    assert legend_of(figure) == [
        "layer_wise (limit: dram)", "flat (limit: mac+vec)", "mas (limit: mac)", "flash (limit: mac)",
    ]  # fmt: skip
    assert texts_of(figure, "point") == ["mas, flash", "flat", "layer_wise"]
    assert {"MAC: 512", "DRAM: 8.00 bytes/cycle", "VEC (mas): 2,731"} < set(texts_of(figure, "roof"))


def test_does_a_report_give_its_own_point() -> None:
    """Useful MACs, both ways of the DRAM traffic, and all cores' arrays and vector units."""
    shape = Workload(name="small", heads=2, n_q=64, n_kv=64, head_dim_qk=32, head_dim_v=32, dtype="fp16")
    report = make_report("flat", load_arch("mas_edge"), shape, Tiling(q_tile=32, kv_tile=32), check=False)
    found = RooflinePoint.of(report)
    assert (found.macs, found.cycles, found.dram_bytes) == (2 * 64 * 64 * 64, report.cycles, report.dram_bytes)
    assert (found.peak_macs_per_cycle, found.dram_bytes_per_cycle) == (512, 8)
    assert found.vec_macs_per_cycle == 2 * report.exp_balance.available_per_cycle * 64
    assert found.macs / found.cycles <= min(512, found.vec_macs_per_cycle, 8 * found.macs / found.dram_bytes)
    assert isinstance(report, Report)
    assert_legible(roofline_figure([report]))


def test_is_every_size_of_roofline_legible() -> None:
    many = [
        roof(flow, 1e6 * (w + 1), 1e4 * (k + 1), 2000.0 * (w + 1) + 100 * k, workload=f"network {w}", limited_by="mac",
             vec_macs_per_cycle=1000.0 * (w + 1))
        for w, (k, flow) in itertools.product(range(12), enumerate(DATAFLOWS))
    ]  # fmt: skip
    for points in (ROOFS, ROOFS[:1], many, many[:7]):
        assert_legible(roofline_figure(points))


# --- all of them ---


def test_do_the_same_numbers_give_the_same_bytes(tmp_path: Path) -> None:
    makers = (
        lambda: heatmap_figure(POINTS, X, Y),
        lambda: heatmap_figure(pd.DataFrame(POINTS), X, Y, ratio=("flat", "mas")),
        lambda: sweep_figure(LINE, X),
        lambda: roofline_figure(ROOFS),
    )
    for make in makers:
        assert saved_bytes(make(), tmp_path, "one") == saved_bytes(make(), tmp_path, "two")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: heatmap_figure([], X, Y), "frame: must hold at least one row"),
        (lambda: heatmap_figure(POINTS, "l1.capacity_kb", Y), "must have a column .*did you mean 'l1.capacity_kib'"),
        (lambda: heatmap_figure(POINTS, X, X), "y: must be another axis than x"),
        (lambda: heatmap_figure(POINTS, X, Y, value="cycle"), "value: must be a column, such as cycles .*'cycles'"),
        (lambda: heatmap_figure(POINTS, X, Y, ratio=("flat", "mad")), "ratio: must be two of .*did you mean 'mas'"),
        (lambda: heatmap_figure(POINTS, X, Y, workload="bart"), "workload: must be one of bert .*did you mean 'bert'"),
        (lambda: heatmap_figure([*POINTS, POINTS[0]], X, Y), "one row for each dataflow at a place.*flat at"),
        (lambda: heatmap_figure(LINE, X, Y), "workload: must be given, one of bert, xlm"),
        (lambda: heatmap_figure(POINTS, X, Y, value="status"), "value: must be a column of numbers, such as cycles"),
        (lambda: heatmap_figure(SHARES, X, Y, value="bound_name"), "value: must be a column of num.*'bound_cycles'"),
        (lambda: heatmap_figure(SHARES, X, Y, value="mac_busy_share"), "value: must be a column of which less is"),
        (lambda: heatmap_figure(SHARES, X, Y, value="exp_available_per_cycle"), "value: .* of which less is better"),
        (lambda: heatmap_figure(SHARES, X, Y, value="proven"), "value: must be a column of numbers"),
        (lambda: heatmap_figure(grid(61, 1), X, Y), "x: must have at most 60 values, but has 61"),
        (lambda: heatmap_figure(grid(1, 77), X, Y), "y: must have at most 60 values, but has 77"),
        (lambda: sweep_figure(LINE, X, y="status"), "y: must be a column of numbers, such as cycles, total_pj"),
        (lambda: sweep_figure([], X), "frame: must hold at least one row"),
        (lambda: sweep_figure(LINE, X, y="cycels"), "y: must be a column, such as cycles.*did you mean 'cycles'"),
        (lambda: sweep_figure(LINE, X, ideal="bond"), "ideal: must be a column .*did you mean 'bound'"),
        (lambda: sweep_figure([*LINE, LINE[0]], X), "one row for each dataflow"),
        (lambda: roofline_figure([]), "points: must hold at least one row"),
        (lambda: roofline_figure([ROOFS[0] | {"cycles": 0}]), r"points\[0\]\.cycles: must be a number, more than 0"),
        (lambda: roofline_figure([ROOFS[0], ROOFS[1] | {"peak_macs_per_cycle": 1}]), "must be of one machine"),
        (lambda: roofline_figure([ROOFS[0] | {"vec_macs_per_cycle": NAN}]), r"vec_macs_per_cycle: must be a number"),
        (lambda: roofline_figure([{"workload": "a"}]), "must have a column 'dataflow'(.|\n)*must have a column 'macs'"),
    ],
)  # fmt: skip
def test_is_what_cannot_be_drawn_an_error_that_says_why(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
