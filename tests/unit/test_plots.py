"""Whether figures show what happened, all of it, legibly, and come out the same each time."""

import importlib.util
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from builders import MicroSchedule, edge
from figure_facts import assert_legible
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from PIL import Image

from mas_sim.dataflows import build_schedule
from mas_sim.errors import ConfigError, TilingError
from mas_sim.occupancy import l1_occupancy
from mas_sim.plots import crossover_figure, plot_crossover, plot_timeline, timeline_figure
from mas_sim.plots.timeline import LOOKS, WAIT_LOOKS
from mas_sim.schedule import F_OVER, LOAD, Schedule
from mas_sim.simulator import simulate
from mas_sim.tiling import Tiling
from mas_sim.timeline import CAUSE_NAMES, Timeline
from mas_sim.waits import waits
from mas_sim.workload import load_workload

SCRIPT = Path(__file__).parents[2] / "docs" / "figures" / "make_overwrite.py"


def script() -> ModuleType:
    """Load the script that draws the documents' figure; its case has overwrites in each of its rounds."""
    spec = importlib.util.spec_from_file_location("make_overwrite", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def overwriting() -> tuple[Schedule, Timeline]:
    """Run the case of the documents' figure."""
    schedule, timeline = script().run()
    return schedule, timeline


def on_two_cores() -> tuple[Schedule, Timeline]:
    """Run a schedule of several groups on two cores."""
    workload = load_workload("bert_base").with_(heads=4, kv_heads=4)
    tiling = Tiling(q_tile=128, kv_tile=128, k_resident_tiles=4, v_resident_tiles=4)
    schedule = build_schedule("mas", edge(), workload, tiling)
    return schedule, simulate(schedule)


def bars(figure: Figure) -> Counter[str]:
    """Count the bars of each kind of work in a Gantt chart."""
    count: Counter[str] = Counter()
    for drawn in work_bars(figure):
        count[str(drawn.get_gid()).split()[0]] += len(drawn.get_paths())
    return count


def work_bars(figure: Figure, *, waiting: bool = False) -> list[PolyCollection]:
    """Return the bars of a Gantt chart that stand for instructions, or those that stand for waits."""
    bars = [drawn for drawn in figure.axes[0].collections if isinstance(drawn, PolyCollection)]
    assert len(bars) == len(figure.axes[0].collections)
    return [drawn for drawn in bars if str(drawn.get_gid()).startswith("wait-") == waiting]


def legend(figure: Figure) -> list[str]:
    """Return the entries of a figure's legend."""
    return [text.get_text() for text in figure.legends[0].get_texts()]


def texts(axes: Axes) -> list[str]:
    """Return the labels in a panel."""
    return [text.get_text() for text in axes.texts]


# --- the Gantt chart ---


@pytest.mark.parametrize("window", [(0, None), (45_000, 110_000), (61_000, 62_000)])
def test_is_there_one_bar_for_every_instruction_in_the_window(window: tuple[int, int | None]) -> None:
    schedule, timeline = overwriting()
    first, last = window[0], window[1] or timeline.cycles
    count = bars(timeline_figure(schedule, timeline, (first, last)))
    seen = (timeline.start < last) & (timeline.channel_end > first)
    stops = timeline.lost_cycles > 0
    stopped_until = timeline.start[schedule.instructions[:, F_OVER]] + schedule.arch.preemption.drain_cycles
    lost = stops & (timeline.redo[:, 1] < last) & (stopped_until > first)
    again = (schedule.unit_of == LOAD) & (schedule.instructions[:, F_OVER] >= 0)
    assert count["stopped"] == lost.sum()
    assert count.total() - count["stopped"] == seen.sum()
    assert count["redone"] == (seen & stops).sum()
    assert count["reloaded"] == (seen & again).sum()


def test_is_a_bar_where_its_instruction_is() -> None:
    micro = MicroSchedule(latency=7).load("a", 10).mac("x", 5, after=["a"]).store("s", 4, after=["x"])
    schedule = micro.build()
    figure = timeline_figure(schedule, simulate(schedule), (0, 33))
    assert figure.axes[0].get_xlim() == (0, 33)
    extents = {}
    for drawn in work_bars(figure):
        (path,) = drawn.get_paths()
        box = path.get_extents()
        extents[str(drawn.get_gid())] = (box.x0, box.x1, int(box.y0), int(box.y1))
    assert extents == {"qk 0": (17, 22, 0, 0), "load 2": (0, 10, 2, 2), "store 3": (22, 26, 3, 3)}


def test_does_the_legend_name_what_is_drawn_and_nothing_else() -> None:
    schedule, timeline = overwriting()
    work = ["$C = QK^{T}$", r"$P = \mathrm{softmax}(C)$", "$O = PV$", "load", "store"]
    special = [
        "stopped, work lost",
        "lost work done again",
        "tiles loaded again",
        "tiles overwritten",
        "tiles back in L1",
    ]
    waiting = ["waits for a unit", "waits for a free buffer", "synchronises"]
    assert legend(timeline_figure(schedule, timeline, (45_000, 110_000))) == work + special + waiting
    plain = on_two_cores()
    waiting.insert(1, "waits for DRAM channel")
    assert legend(timeline_figure(*plain, (0, plain[1].cycles))) == work + waiting
    start = int(timeline.start[schedule.unit_of < LOAD].min())
    assert legend(timeline_figure(schedule, timeline, (0, start)))[0] == "load"
    assert not {*work, *special} & {*legend(timeline_figure(schedule, timeline, (0, start)))[1:]}


def test_do_labels_say_row_block_tile_and_pass() -> None:
    module = script()
    schedule, timeline = module.run()
    labels = texts(timeline_figure(schedule, timeline, module.window(schedule, timeline)).axes[0])
    assert {"$C_{4}$", "$O_{3}$", "$P_{4}$", "$V$", "tile 0", "tile 2", "2–3", "exp"} <= set(labels)
    groups = texts(timeline_figure(*on_two_cores(), (100_000, 170_000)).axes[0])
    assert {"$O_{0,2}$", "$C_{1,0}$", "$V_{1}$"} <= set(groups)


@pytest.mark.parametrize(("lost_granularity", "label"), [("tile", "tile 2"), ("matmul", "tiles up to 2")])
def test_does_a_bar_say_all_that_is_done_again(lost_granularity: str, label: str) -> None:
    case, _ = overwriting()
    arch = case.arch.with_(**{"preemption.lost_granularity": lost_granularity})
    schedule = build_schedule("mas", arch, case.workload, case.tiling)
    timeline = simulate(schedule)
    row = int(np.flatnonzero(timeline.lost_cycles > 0)[3])
    window = int(timeline.start[row]), int(timeline.end[row])
    assert label in texts(timeline_figure(schedule, timeline, window).axes[0])


def test_are_axes_and_lanes_labelled() -> None:
    schedule, timeline = on_two_cores()
    axes, panel = timeline_figure(schedule, timeline, (0, 50_000), title="two cores").axes
    assert (axes.get_xlabel(), panel.get_xlabel()) == ("", "time (cycles at 3.75 GHz)")
    assert (axes.get_xlim(), panel.get_xlim()) == ((0, 50_000), (0, 50_000))
    assert axes.get_title() == "two cores"
    (alone,) = timeline_figure(schedule, timeline, (0, 50_000), occupancy=False).axes
    assert alone.get_xlabel() == "time (cycles at 3.75 GHz)"
    names = [f"core {core} {unit}" for core in (0, 1) for unit in ("MAC", "VEC", "LOAD", "STORE")]
    assert [label.get_text() for label in axes.get_yticklabels()] == names
    one = timeline_figure(schedule, timeline, (0, 50_000), core=1).axes[0]
    assert [label.get_text() for label in one.get_yticklabels()] == names[4:]


@pytest.mark.parametrize("window", [(0, 260_000), (45_000, 145_000), (61_000, 84_000), (68_000, 69_000)])
def test_do_labels_keep_off_each_other_and_inside_the_axes(window: tuple[int, int], tmp_path: Path) -> None:
    figure = timeline_figure(*overwriting(), window)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    boxes = [text.get_window_extent(canvas.get_renderer()) for text in figure.axes[0].texts]
    frame = figure.axes[0].get_window_extent().padded(1)
    assert boxes
    assert all(frame.x0 <= box.x0 and box.x1 <= frame.x1 for box in boxes)
    assert not [(a, b) for i, a in enumerate(boxes) for b in boxes[:i] if a.padded(-0.5).overlaps(b.padded(-0.5))]


def test_is_lost_work_hatched() -> None:
    figure = timeline_figure(*overwriting(), (45_000, 110_000))
    hatched = {str(c.get_gid()).split()[0] for c in work_bars(figure) if c.get_hatch()}
    assert hatched == {"stopped"}


def test_do_the_lines_mark_the_overwrite_and_the_return_of_the_tiles() -> None:
    schedule, timeline = overwriting()
    (row,) = np.flatnonzero(
        (timeline.lost_cycles > 0) & (timeline.redo[:, 1] > 61_000) & (timeline.redo[:, 1] < 70_000)
    )
    axes = timeline_figure(schedule, timeline, (61_500, 83_000)).axes[0]
    upright = [line.get_xdata()[0] for line in axes.lines if np.ptp(line.get_xdata()) == 0]
    over, back = schedule.instructions[row, [F_OVER, F_OVER + 1]]
    assert upright == [timeline.start[over], timeline.end[back]]


@pytest.mark.parametrize(
    ("dataflow", "tiling", "words"),
    [
        ("tileflow", {}, ["mask", r"$P = \mathrm{softmax}(C)$"]),
        ("flash", {"overlap": "ping_pong"}, ["mask", "online softmax", "$O$ scaled, added", "$O$ / row sum"]),
        ("fusemax", {"exp_on": "mac"}, ["mask", "online softmax", r"$P = \exp(C - m)$ on MAC", "$O$ scaled, added"]),
    ],
)
def test_are_the_operations_of_every_dataflow_drawn_and_named(
    dataflow: str, tiling: dict[str, str], words: list[str]
) -> None:
    workload = load_workload("bert_base").with_(heads=2, kv_heads=2, mask="causal")
    arch = edge().with_(cores=1, **{"vec.lanes": 64})
    schedule = build_schedule(dataflow, arch, workload, Tiling(q_tile=64, kv_tile=64, **tiling))  # type: ignore[arg-type]
    timeline = simulate(schedule)
    figure = timeline_figure(schedule, timeline, (0, timeline.cycles))
    assert bars(figure).total() == len(schedule)
    assert set(words) < set(legend(figure))
    assert legend(figure)[0] == "$C = QK^{T}$"


def test_do_bars_of_different_meaning_differ_in_one_chart() -> None:
    """Two kinds that share a colour are never in one chart: proactive overwrite is of `mas` without a mask alone."""
    overwrite, others = {"stopped", "redone", "reloaded"}, {"mask", "online", "exp", "correct", "normalize"}
    for left_out in (overwrite, others | {"softmax"}, others, overwrite | {"softmax"}):
        shown = [look for kind, look in LOOKS.items() if kind not in left_out]
        if left_out == overwrite:
            shown.remove(LOOKS["softmax"])  # or else `online`
        assert len({(look.face, look.hatch) for look in shown}) == len(shown)


# --- waits, and the panel of L1 ---


def test_is_every_wait_of_the_window_drawn_with_its_cause() -> None:
    schedule, timeline = overwriting()
    figure = timeline_figure(schedule, timeline, (45_000, 110_000))
    told = waits(schedule, timeline).within(45_000, 110_000)
    expected = Counter(
        f"wait-{CAUSE_NAMES[cause]} {queue}" for cause, queue in zip(told.cause, told.queue, strict=True)
    )
    assert {str(d.get_gid()): len(d.get_paths()) for d in work_bars(figure, waiting=True)} == expected
    box = next(d for d in work_bars(figure, waiting=True) if d.get_gid() == "wait-load 0").get_paths()[0].get_extents()
    first = np.flatnonzero((told.cause == CAUSE_NAMES.index("load")) & (told.queue == 0))[0]
    assert (box.x0, box.x1) == (told.begin[first], told.end[first])


def test_do_waits_differ_without_colour_and_name_the_unit() -> None:
    looks = {id(look): look for look in WAIT_LOOKS.values()}.values()
    assert len({look.hatch or look.face for look in looks}) == len(looks) == 4
    assert set(WAIT_LOOKS) == set(CAUSE_NAMES)
    labels = texts(timeline_figure(*overwriting(), (61_500, 83_000)).axes[0])
    assert {"waits for MAC", "waits for LOAD"} <= set(labels)


def test_does_the_panel_show_the_bytes_of_l1_under_its_capacity() -> None:
    schedule, timeline = overwriting()
    panel = timeline_figure(schedule, timeline, (0, timeline.cycles)).axes[1]
    used, capacity = panel.lines
    steps = l1_occupancy(schedule, timeline)
    np.testing.assert_array_equal(used.get_xdata()[: len(steps.cycles)], steps.cycles)
    np.testing.assert_allclose(np.asarray(used.get_ydata())[: len(steps.bytes)] * 1024, steps.bytes)
    assert used.get_drawstyle() == "steps-post"
    assert np.asarray(capacity.get_ydata()).tolist() == [224, 224]
    assert panel.get_ylim()[1] > 224 >= max(used.get_ydata())
    assert texts(panel) == ["L1: 224 KiB"]


def test_has_each_core_a_line_where_each_has_its_own_l1() -> None:
    schedule, _ = on_two_cores()
    arch = schedule.arch.with_(**{"l1.shared": False})
    own = build_schedule("mas", arch, schedule.workload, schedule.tiling)
    panel = timeline_figure(own, simulate(own), (0, 50_000)).axes[1]
    assert [line.get_label() for line in panel.lines] == ["core 0", "core 1", "capacity"]
    assert texts(panel)[0].startswith("each core's L1: 5,120 KiB")
    shared = timeline_figure(schedule, simulate(schedule), (0, 50_000)).axes[1]
    assert texts(shared) == ["L1: 5,120 KiB, shared by 2 cores"]


# --- the files ---


def test_does_an_old_figure_survive_a_failed_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is half-written: the file is there as it was, and no draft beside it."""
    file = tmp_path / "over.svg"
    plot_crossover(ROWS, file)
    before = file.read_bytes()

    def fill_the_disk(self: Figure, file: Path, **_: Any) -> None:
        file.write_bytes(b"<svg")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", fill_the_disk)
    with pytest.raises(ConfigError, match=r"over\.svg: cannot be written: No space left"):
        plot_crossover(ROWS, file)
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


def test_does_a_link_stay_a_link(tmp_path: Path) -> None:
    (tmp_path / "link.svg").symlink_to(tmp_path / "real.svg")
    plot_crossover(ROWS, tmp_path / "link.svg")
    assert (tmp_path / "link.svg").is_symlink()
    assert (tmp_path / "real.svg").read_text(encoding="utf-8").startswith("<?xml")


def test_is_a_folder_in_the_way_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "over.svg").mkdir()
    with pytest.raises(ConfigError, match=r"over\.svg: cannot be written"):
        plot_crossover(ROWS, tmp_path / "over.svg")
    assert len(list(tmp_path.iterdir())) == 1


def test_does_a_path_without_suffix_give_a_vector_and_a_pixel_file(tmp_path: Path) -> None:
    files = plot_timeline(*overwriting(), tmp_path / "run", first_cycle=45_000, last_cycle=110_000)
    assert files == (tmp_path / "run.svg", tmp_path / "run.png")
    assert files[0].read_text(encoding="utf-8").startswith("<?xml")
    with Image.open(files[1]) as image:
        assert image.size[0] == 7.2 * 200
        assert image.info["dpi"] == pytest.approx((200, 200), abs=0.1)


@pytest.mark.parametrize("suffix", [".svg", ".pdf", ".png"])
def test_are_two_runs_the_same_bytes_whatever_the_user_has_set(suffix: str, tmp_path: Path) -> None:
    def draw(name: str) -> list[bytes]:
        window: dict[str, Any] = {"first_cycle": 45_000, "last_cycle": 110_000}
        files = plot_timeline(*overwriting(), tmp_path / f"{name}{suffix}", **window)
        files += plot_crossover(ROWS, tmp_path / f"{name}_over{suffix}", title="over N")
        return [file.read_bytes() for file in files]

    first = draw("one")
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "#ff0000", "svg.hashsalt": None, "savefig.dpi": 20}):
        assert draw("two") == first
        assert mpl.rcParams["font.size"] == 30


@pytest.mark.parametrize(
    ("name", "window", "message"),
    [
        ("run.jpg", {}, r"must end in \.svg, \.pdf, \.png.*'\.jpg'"),
        ("absent/run.svg", {}, "cannot be written: No such file"),
        ("run.svg", {"first_cycle": 9, "last_cycle": 9}, r"last_cycle: must be more than first_cycle, 9 \(got 9\)"),
        ("run.svg", {"core": 7}, r"core: must be a core that has work, of \[0\] \(got 7\)"),
    ],
)
def test_is_a_figure_that_cannot_be_drawn_an_error_of_ours(
    name: str, window: dict[str, int], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        plot_timeline(*overwriting(), tmp_path / name, **window)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_can_an_empty_schedule_be_drawn(tmp_path: Path) -> None:
    schedule = MicroSchedule().build()
    (file,) = plot_timeline(schedule, simulate(schedule), tmp_path / "empty.svg")
    assert file.stat().st_size > 0


def test_do_plots_leave_pyplot_alone() -> None:
    code = "import mas_sim.plots, sys; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_does_the_documents_case_still_show_an_overwrite_that_is_needed() -> None:
    module = script()
    schedule, timeline = module.run()
    first, last = module.window(schedule, timeline)
    assert 0 < first < last < timeline.cycles
    assert 0 < timeline.lost_cycles.max() < schedule.cycles[timeline.lost_cycles.argmax()]  # in the middle of a tile
    apart = Tiling(**(schedule.tiling.as_dict() | {"overwrite": "none"}))
    with pytest.raises(TilingError):
        build_schedule("mas", module.machine(), schedule.workload, apart)


# --- over the sequence length ---


def result(cycles: int, energy_pj: float) -> dict[str, float]:
    """Make what a row holds for a series that fits."""
    return {"cycles": cycles, "energy_pj": energy_pj, "dram_bytes": 1}


ROWS: list[dict[str, Any]] = [
    {"n": 1024, "results": {"flat": result(300, 4e6), "mas": result(200, 3e6)}, "winner": "mas"},
    {"n": 512, "results": {"flat": result(150, 1e6), "mas": result(100, 2e6)}, "winner": "mas"},
    {"n": 2048, "results": {"flat": result(600, 9e6), "mas": None}, "winner": "flat"},
    {"n": 4096, "results": {"flat": result(1200, 3e7), "mas": result(1500, 4e7)}, "winner": "flat"},
    {"n": 8192, "results": {"flat": None, "mas": None}, "winner": None},
]


def test_does_the_crossover_show_every_number_and_break_where_nothing_fits() -> None:
    left, right = crossover_figure(ROWS).axes
    lines = {panel: [panel.lines[0], panel.lines[2]] for panel in (left, right)}  # each followed by its crosses
    nan = np.nan
    lengths = [512, 1024, 2048, 4096, 8192]
    for panel, expected in (
        (left, ([1.5, 1.5, 1, 1, nan], [1, 1, nan, 1.25, nan])),
        (right, ([e / n**2 for e, n in zip(energies, lengths, strict=True)] for energies in (
            [1e6, 4e6, 9e6, 3e7, nan], [2e6, 3e6, nan, 4e7, nan],
        ))),
    ):  # fmt: skip
        for line, numbers in zip(lines[panel], expected, strict=True):
            np.testing.assert_array_equal(line.get_xdata(), lengths)
            np.testing.assert_allclose(np.asarray(line.get_ydata(), float), numbers)
        assert [list(panel.lines[k].get_xdata()) for k in (1, 3)] == [[8192], [2048, 8192]]
        assert {panel.lines[k].get_marker() for k in (1, 3)} == {"x"}


def test_does_a_ring_mark_each_winner() -> None:
    left, right = crossover_figure(ROWS).axes
    rings = [(line.get_xdata()[0], line.get_ydata()[0]) for line in left.lines[4:]]
    assert rings == [(512, 1), (1024, 1), (2048, 1), (4096, 1)]
    assert len(right.lines) == 4


def test_can_series_be_told_apart_without_colour() -> None:
    names = [f"dataflow {k}" for k in range(8)]
    row = {"results": {name: result(10 + k, 1.0) for k, name in enumerate(names)}, "winner": names[0]}
    figure = crossover_figure([row | {"n": 512}, row | {"n": 1024}])
    drawn = figure.axes[0].lines[:16:2]
    assert len({line.get_marker() for line in drawn}) == len({line.get_color() for line in drawn}) == 8
    assert len({str(line._dash_pattern) for line in drawn}) == 5  # type: ignore[attr-defined]
    assert legend(figure) == [*names, "winner"]


def test_are_the_axes_of_the_crossover_labelled_and_by_powers_of_two() -> None:
    figure = crossover_figure(ROWS, title="over N")
    left, right = figure.axes
    assert (left.get_ylabel(), right.get_ylabel()) == ("cycles / fewest cycles (1 = fastest)", "energy / $N^{2}$ (pJ)")
    FigureCanvasAgg(figure).draw()
    for panel in (left, right):
        assert panel.get_xlabel() == "sequence length $N$ (tokens; K = 1,024)"
        assert panel.get_xscale() == "log"
        assert [label.get_text() for label in panel.get_xticklabels()] == ["512", "1K", "2K", "4K", "8K"]
    assert legend(figure) == ["flat", "mas", "winner", "does not fit, or is too long to simulate"]
    assert figure.get_suptitle() == "over N"


@pytest.mark.parametrize("rows", [ROWS[:1], ROWS[4:], [{"n": 512, "results": {}, "winner": ""}]])
def test_can_little_or_nothing_be_drawn(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    assert all(file.stat().st_size > 0 for file in plot_crossover(rows, tmp_path / "over"))


def test_are_no_rows_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="rows: must hold at least one sequence length"):
        plot_crossover([], tmp_path / "over")


def test_is_a_row_without_its_fields_an_error_of_ours() -> None:
    with pytest.raises(ConfigError, match=r"must have a column 'n'(.|\n)*must have a column 'winner'"):
        crossover_figure([{"results": {}, "win": "mas"}])
    with pytest.raises(ConfigError, match=r"rows\[0\]\.n: must be a number, more than 0"):
        crossover_figure([{"n": -4, "results": {}, "winner": None}])


@pytest.mark.parametrize("rows", [ROWS, ROWS[:1]], ids=len)
def test_is_a_crossover_legible(rows: list[dict[str, Any]]) -> None:
    assert_legible(crossover_figure(rows, title="over N"))
