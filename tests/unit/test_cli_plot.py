"""Does `mas-sim plot` draw what files and runs hold, refuse what is wrong with them, and leave old figures alone?"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from cli_runner import Run

from mas_sim import _plot_files as files
from mas_sim.errors import ConfigError

KINDS = ("timeline", "energy", "time", "roofline", "convergence", "crossover", "pareto", "heatmap", "sweep")
SMALL = "name: small\nbatch: 1\nheads: 2\nn_q: 64\nn_kv: 64\nhead_dim_qk: 32\nhead_dim_v: 32\ndtype: fp16\n"
SWEEP = """\
name: tiny
question: Does L1 matter?
arch: mas_edge
workloads: [{workload}]
dataflows: [flat, mas]
axes:
  l1.capacity_kib: [16, 64]
  dram.bandwidth_gb_per_s: [8, 30]
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A workload that is searched in no time."""
    file = tmp_path / "small.yaml"
    file.write_text(SMALL, encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What the commands print and write, as files; made once."""
    folder = tmp_path_factory.mktemp("printed")
    small = folder / "small.yaml"
    small.write_text(SMALL, encoding="utf-8")
    found: dict[str, Path] = {"workload": small}
    with pytest.MonkeyPatch.context() as patch:
        for name, arguments in {
            "run": ("run",),
            "compare": ("compare", "--dataflow", "layer_wise,flat,mas"),
            "crossover": ("crossover", "--over", "seq=32,64", "--dataflow", "flat,mas"),
            "pareto": ("search", "--objective", "pareto"),
        }.items():
            found[name] = folder / f"{name}.json"
            found[name].write_text(_output(patch, *arguments, "--workload", small, "--json"), encoding="utf-8")
        found["history"] = folder / "history.csv"
        options = ("--method", "all", "--budget", 20, "--repeats", 2, "--history", found["history"])
        _output(patch, "search", *options, "--workload", small)
    return found


def _output(patch: pytest.MonkeyPatch, *arguments: object) -> str:
    """Run a command in this process, and return its standard output."""
    import contextlib
    import io

    from mas_sim.cli import main

    patch.setattr(sys, "argv", ["mas-sim", *map(str, arguments)])
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()), pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    return out.getvalue()


def svg(path: Path) -> str:
    """Read a figure."""
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<?xml")
    return text


def words(path: Path) -> set[str]:
    """Return the texts of a figure: matplotlib writes each as a comment beside its outlines."""
    lines = svg(path).splitlines()
    return {line.strip()[5:-4] for line in lines if line.strip().startswith("<!-- ")}


# --- every kind, from files and from runs ---


@pytest.mark.parametrize(
    ("kind", "source", "expected"),
    [
        ("timeline", "run", {"MAC", "L1 (KiB)", "time (cycles at 3.75 GHz)"}),
        ("energy", "compare", {"DRAM", "leakage", "small", "energy / layer_wise"}),
        ("time", "compare", {"small", "cycles / layer_wise", "lower bound"}),
        ("roofline", "compare", {"MAC: 512", "flat (limit: ", "mas"}),
        ("crossover", "crossover", {"small on mas_edge", "flat", "mas", "winner"}),
        ("pareto", "pareto", {"front", "mas", "cycles"}),
        ("convergence", "history", {"mcts", "genetic", "random", "best value so far"}),
    ],
)
def test_is_a_file_drawn(
    kind: str, source: str, expected: set[str], printed: dict[str, Path], mas_sim: Run, tmp_path: Path
) -> None:
    out = tmp_path / "figure.svg"
    done = mas_sim("plot", kind, printed[source], "-o", out)
    assert done.returncode == 0, done.stderr
    assert f"wrote {out}" in done.stderr
    assert done.stdout == ""
    found = words(out)
    assert not {word for word in expected if not any(word in text for text in found)}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("timeline", ("--dataflow", "flat", "--q-tile", 16, "--kv-tile", 32)),
        ("timeline", ("--to-cycle", 500, "--core", 0, "--no-occupancy")),
        ("energy", ("--dataflow", "flat,mas", "--absolute")),
        ("time", ("--dataflow", "flat,mas", "--baseline", "mas")),
        ("roofline", ("--dataflow", "flat", "--dataflow", "mas")),
        ("crossover", ("--over", "seq=32,64", "--dataflow", "flat,mas")),
        ("pareto", ("--title", "front of all")),
        ("convergence", ("--budget", 10, "--repeats", 2)),
    ],
)
def test_is_a_run_of_its_own_drawn(
    kind: str, options: tuple[object, ...], mas_sim: Run, small: Path, tmp_path: Path
) -> None:
    done = mas_sim("plot", kind, "--workload", small, *options, "--out", tmp_path / "figure")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.glob("figure*")) == ["figure.png", "figure.svg"]


def test_do_a_file_and_a_run_of_its_own_give_the_same_figure(
    printed: dict[str, Path], mas_sim: Run, tmp_path: Path
) -> None:
    flows = ("--dataflow", "layer_wise,flat,mas", "--workload", printed["workload"])
    for kind in ("energy", "time", "roofline"):
        assert mas_sim("plot", kind, printed["compare"], "-o", tmp_path / "a.svg").returncode == 0
        assert mas_sim("plot", kind, *flows, "-o", tmp_path / "b.svg").returncode == 0
        assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_is_one_of_several_results_run_again_for_its_timeline(
    printed: dict[str, Path], mas_sim: Run, tmp_path: Path
) -> None:
    out = tmp_path / "t.svg"
    done = mas_sim("plot", "timeline", printed["compare"], "-o", out)
    assert done.returncode == 2
    assert "pick one (--pick) of small/layer_wise, small/flat, small/mas" in done.stderr
    assert mas_sim("plot", "timeline", printed["compare"], "--pick", "small/mas", "-o", out).returncode == 0
    beside = mas_sim("plot", "timeline", printed["run"], "--q-tile", 16, "-o", out)
    assert beside.returncode == 2
    assert "cannot be given: --q-tile" in beside.stderr


def test_are_sweeps_drawn(mas_sim: Run, small: Path, tmp_path: Path) -> None:
    file, folder = tmp_path / "tiny.yaml", tmp_path / "results"
    file.write_text(SWEEP.format(workload=small), encoding="utf-8")
    assert mas_sim("sweep", file, "--out", folder, "--jobs", 1).returncode == 0
    out = tmp_path / "map.svg"
    done = mas_sim("plot", "heatmap", folder, "-o", out)
    assert done.returncode == 0, done.stderr
    assert {"L1 capacity (KiB)", "DRAM bandwidth (GB/s)"} <= words(out)
    ratio = mas_sim("plot", "heatmap", folder, "--ratio", "flat/mas", "--x", "l1.capacity_kib", "-o", out)
    assert ratio.returncode == 0, ratio.stderr
    assert "cycles of flat / mas" in words(out)
    line = ("plot", "sweep", folder, "-o", out)
    assert "give --x, one of the fields that vary" in mas_sim(*line).stderr
    done = mas_sim(*line, "--where", "dram.bandwidth_gb_per_s=8", "--y", "total_pj")
    assert done.returncode == 0, done.stderr
    assert {"energy (uJ)", "flat", "mas"} <= words(out)
    for options, message in (
        (("--where", "dram.bandwidth_gb_per_s=9"), "--where: must be a value of dram.bandwidth_gb_per_s: 8"),
        (("--where", "l1.capacity=64"), "did you mean 'l1.capacity_kib'"),
        (("--where", "dataflow"), "--where: must be COLUMN=VALUE"),
        (("--x", "l1.capacity_kib", "--ratio", "flat"), "--ratio: must be two dataflows, A/B (got 'flat')"),
        (("--x", "l1.capacity_kib", "--where", "dram.bandwidth_gb_per_s=8", "--y", "cycels"), "--y: must be a column"),
    ):
        refused = mas_sim(*line, *options)
        assert refused.returncode == 2
        assert message in refused.stderr
    for value, message in (
        ("status", "--value: must be a column of numbers, such as cycles"),
        ("mac_busy_share", "--value: must be a column of which less is better"),
    ):
        refused = mas_sim("plot", "heatmap", folder, "--value", value, "-o", out)
        assert refused.returncode == 2
        assert message in refused.stderr
    assert "no such file" in mas_sim("plot", "sweep", tmp_path / "nowhere", "-o", out).stderr


def test_does_no_value_count_as_one_of_an_axis(mas_sim: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An axis of a value and of none varies, and `none` picks the points that have none."""
    rows = [{"position": 0, "link": link, "l1": l1, "workload": "bert", "dataflow": "mas", "cycles": cycles}
            for link, l1, cycles in ((None, 1, 5), (8, 1, 6), (None, 2, 7), (8, 2, 8))]  # fmt: skip
    monkeypatch.setattr(
        "mas_sim._cli_plot_sweeps.load_results", lambda *_: pd.DataFrame(rows).astype({"link": "Int64"})
    )
    out = tmp_path / "map.svg"
    done = mas_sim("plot", "heatmap", tmp_path, "-o", out)
    assert done.returncode == 0, done.stderr
    assert {"link", "l1", "none"} <= words(out)
    done = mas_sim("plot", "sweep", tmp_path, "--where", "link=none", "-o", out)
    assert done.returncode == 0, done.stderr
    refused = mas_sim("plot", "sweep", tmp_path, "--where", "link=9", "-o", out)
    assert "must be a value of link: none, 8" in refused.stderr


def results(monkeypatch: pytest.MonkeyPatch, rows: list[dict[str, Any]]) -> None:
    """Let the commands read these rows, whatever folder they are given."""
    monkeypatch.setattr("mas_sim._cli_plot_sweeps.load_results", lambda *_: pd.DataFrame(rows))


def minimised(goal: str) -> list[dict[str, Any]]:
    """Two axes, two dataflows: one takes fewer cycles, the other less energy."""
    return [
        {"position": 0, "l1": l1, "l0": l0, "workload": "bert", "dataflow": flow, "objective": goal,
         "cycles": cycles, "total_pj": energy}
        for l1 in (1, 2) for l0 in (3, 4) for flow, cycles, energy in (("mas", 5, 9e6), ("flash", 6, 8e6))
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("goal", "options", "shown", "title"),
    [
        ("latency", (), {"MAS", "winner: least cycles; number: second over winner"}, None),
        ("energy", (), {"FA", "winner: least energy; number: second over winner"}, None),
        ("edp", (), {"MAS", "winner: least EDP; number: second over winner"}, None),
        ("energy", ("--value", "cycles"), {"MAS"}, "of tilings that are best in energy"),
        ("weighted:0.5", (), {"MAS"}, "of tilings that are best in weighted:0.5"),
    ],
)
def test_is_drawn_what_the_sweep_minimised_and_said_if_it_is_not(
    mas_sim: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, goal: str, options: tuple[str, ...],
    shown: set[str], title: str | None,
) -> None:  # fmt: skip
    results(monkeypatch, minimised(goal))
    out = tmp_path / "map.svg"
    done = mas_sim("plot", "heatmap", tmp_path, *options, "-o", out)
    assert done.returncode == 0, done.stderr
    said = words(out)
    assert shown <= said | {part for text in said for part in text.split()}
    assert [text for text in said if "best in" in text] == ([] if title is None else [title])


def test_are_results_of_several_objectives_not_mixed(
    mas_sim: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        row | {"l1": row["l1"] + 2 * (goal == "energy")} for goal in ("latency", "energy") for row in minimised(goal)
    ]
    results(monkeypatch, rows)
    refused = mas_sim("plot", "heatmap", tmp_path, "-o", tmp_path / "map.svg")
    assert refused.returncode == 2
    assert "several objectives (latency, energy): give --where objective=" in refused.stderr
    done = mas_sim("plot", "heatmap", tmp_path, "--where", "objective=energy", "-o", tmp_path / "map.svg")
    assert done.returncode == 0, done.stderr


def test_are_zipped_axes_named_together_and_not_drawn_against_each_other(
    mas_sim: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results(monkeypatch, [{"lanes": 16 * row["l1"]} | row for row in minimised("latency")])
    out = tmp_path / "map.svg"
    done = mas_sim("plot", "heatmap", tmp_path, "--x", "l1", "--y", "l0", "-o", out)
    assert done.returncode == 0, done.stderr
    assert "l1, with lanes" in words(out)
    done = mas_sim("plot", "heatmap", tmp_path, "-o", out)  # two axes, though three fields vary
    assert done.returncode == 0, done.stderr
    assert {"lanes, with l1", "l0"} <= words(out)
    refused = mas_sim("plot", "heatmap", tmp_path, "--x", "l1", "--y", "lanes", "-o", out)
    assert "l1 and lanes always change together (they are zipped): draw them with `plot sweep`" in refused.stderr
    line = mas_sim("plot", "sweep", tmp_path, "--x", "lanes", "--where", "l0=3", "-o", out)
    assert line.returncode == 0, line.stderr
    assert "lanes, with l1" in words(out)


def test_is_an_axis_that_is_left_open_named_with_its_values(
    mas_sim: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results(monkeypatch, minimised("latency"))
    refused = mas_sim("plot", "sweep", tmp_path, "--x", "l1", "-o", tmp_path / "line.svg")
    assert refused.returncode == 2
    assert "other fields vary, too: l0 is 3, 4. Choose one value of each, as --where l0=3" in refused.stderr
    refused = mas_sim("plot", "sweep", tmp_path, "--x", "l1", "--where", "l1=1", "-o", tmp_path / "line.svg")
    assert "l1 has one value only, 1: there is no line to draw" in refused.stderr


# --- what is refused, and what stays ---


@pytest.mark.parametrize("kind", KINDS)
def test_is_a_file_that_cannot_be_written_refused_before_anything_runs(
    kind: str, mas_sim: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("something was run")

    for name in ("report_of", "compare"):
        monkeypatch.setattr(f"mas_sim._cli_plot.{name}", never)
    for name in ("crossover", "make_space", "load_results"):
        monkeypatch.setattr(f"mas_sim._cli_plot_sweeps.{name}", never)
    folder = [tmp_path] if kind in ("heatmap", "sweep") else []
    unknown = mas_sim("plot", kind, *folder, "-o", tmp_path / "figure.pgn")
    assert unknown.returncode == 2
    assert "did you mean '.png'" in unknown.stderr
    nowhere = mas_sim("plot", kind, *folder, "-o", tmp_path / "nowhere" / "figure.png")
    assert nowhere.returncode == 2
    assert "--out: must be in a folder that exists" in nowhere.stderr
    assert not list(tmp_path.iterdir())


def rename(data: dict[str, Any], old: str, new: str) -> None:
    """Misspell a key."""
    data[new] = data.pop(old)


Change = Callable[[dict[str, Any]], Any]


@pytest.mark.parametrize(
    ("kind", "source", "change", "messages"),
    [
        ("energy", "crossover", lambda d: None, ["results: is missing: give a file of `mas-sim compare --json`"]),
        ("crossover", "compare", lambda d: None, ["points: is missing: give a file of `mas-sim crossover --json`"]),
        ("pareto", "compare", lambda d: None, ["objective: must be 'pareto'"]),
        (
            "time", "compare", lambda d: d["results"][1].update(cycles=-4, dataflow=3, cylces=1),
            ["results[1].cycles: must be", "results[1].dataflow: "],
        ),
        (
            "energy", "compare", lambda d: rename(d["results"][2]["energy_pj"], "dram", "drma"),
            ["results[2].energy_pj.dram: ", "did you mean 'drma'?"],
        ),
        ("roofline", "compare", lambda d: d["results"][0].pop("inputs"), ["results[0].inputs: "]),
        ("time", "compare", lambda d: d.update(results=[{"fits": False}]), ["must hold at least one result that fits"]),
        ("time", "compare", lambda d: d.update(results=[7]), ["results[0]: must be an object (got 7)"]),
        ("crossover", "crossover", lambda d: d["points"][0].pop("winner"), ["points[0].winner: "]),
        ("pareto", "pareto", lambda d: d["results"][0].update(energy_pj=5), ["results[0].energy_pj: "]),
    ],
)  # fmt: skip
def test_is_a_wrong_file_refused_with_what_is_wrong_and_no_figure_touched(
    kind: str, source: str, change: Change, messages: list[str], printed: dict[str, Path], mas_sim: Run, tmp_path: Path
) -> None:
    data = json.loads(printed[source].read_text(encoding="utf-8"))
    change(data)
    file, out = tmp_path / "wrong.json", tmp_path / "figure.svg"
    file.write_text(json.dumps(data, indent=2), encoding="utf-8")
    out.write_text("an old figure", encoding="utf-8")
    done = mas_sim("plot", kind, file, "-o", out)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    for message in messages:
        assert message in done.stderr
    assert str(file) in done.stderr
    assert out.read_text(encoding="utf-8") == "an old figure"
    assert sorted(tmp_path.iterdir()) == [out, file]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1: method: is missing"),
        ("method,sede,value\n", "seed: is missing.*did you mean 'sede'"),
        ("method,seed,value\n", "must hold at least one evaluation"),
        (
            "method,seed,value\nmcts,0,5\nmcts,0,many\nmcts,1,-1\n",
            r"(?s):3: value: must .*'many'.*:4: value",
        ),
        ("method,seed,value\nmcts,0\n", ":2: value: must be a number"),
        ("method,seed,value\nmcts,0,\x00\n", "(value|CSV)"),
    ],
)
def test_is_a_wrong_history_refused(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "history.csv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        files.histories_of(file)


def test_is_what_is_no_text_or_no_file_refused(tmp_path: Path) -> None:
    file = tmp_path / "history.csv"
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        files.histories_of(file)
    file.write_bytes(b"method\xff")
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        files.histories_of(file)


def test_are_histories_read_back_run_by_run(printed: dict[str, Path]) -> None:
    found = files.histories_of(printed["history"])
    assert {method: len(runs) for method, runs in found.items()} == dict.fromkeys(("mcts", "genetic", "random"), 2)
    for runs in found.values():
        for run in runs:
            assert 0 < len(run.value) == len(run.index) == len(run.seconds) <= 20


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("timeline", "--from-cycle", 10**9), "--from-cycle: must be 0 to "),
        (("timeline", "--core", 9), "--core: must be 0 to 1"),
        (("timeline", "--from-cycle", 5, "--to-cycle", 5), "--to-cycle: must be more than --from-cycle, 5"),
        (("energy", "--absolute", "--baseline", "flat"), "--absolute and --baseline exclude each other"),
        (("time", "--dataflow", "flat,mas", "--baseline", "flt"), "--baseline: must be one of flat, mas"),
        (("convergence", "--optimum", -1), "--optimum: must be more than 0"),
        (("convergence", "--optimum", 5), "are for a file only"),
        (("pareto", "--dataflow", "mass"), "mas"),
    ],
)
def test_are_options_without_sense_refused(
    arguments: tuple[object, ...], message: str, mas_sim: Run, small: Path, tmp_path: Path
) -> None:
    done = mas_sim("plot", *arguments, "--workload", small, "-o", tmp_path / "figure.svg")
    assert done.returncode == 2
    assert message in done.stderr
    assert list(tmp_path.iterdir()) == [small]


def test_are_options_refused_that_a_file_answers(printed: dict[str, Path], mas_sim: Run, tmp_path: Path) -> None:
    done = mas_sim("plot", "energy", printed["compare"], "--dataflow", "mas", "-o", tmp_path / "e.svg")
    assert done.returncode == 2
    assert "the file says what is drawn, so these cannot be given: --dataflow" in done.stderr


def test_does_a_long_run_show_its_first_rounds_and_say_so(mas_sim: Run, tmp_path: Path) -> None:
    arguments = ("--workload", "bert_base", "--q-tile", 64, "--kv-tile", 128, "-o", tmp_path / "t.svg")
    done = mas_sim("plot", "timeline", *arguments)
    assert done.returncode == 0, done.stderr
    assert "showing cycles 0 to " in done.stderr


def test_does_the_command_line_start_without_matplotlib() -> None:
    code = "import mas_sim, mas_sim.cli, sys; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_does_every_kind_explain_itself(mas_sim: Run) -> None:
    listed = mas_sim("plot", "--help").stdout
    for kind in KINDS:
        assert kind in listed
        assert "--out" in mas_sim("plot", kind, "--help").stdout
