"""Does the command line do what its help says, and is bad input one clear message and exit code 2?"""

import io
import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Done, Run
from rich.console import Console

from mas_sim import _cli_options, load_arch
from mas_sim.cli import main
from mas_sim.config import dump_yaml
from mas_sim.dataflows import DATAFLOWS
from mas_sim.search.exhaustive import ExhaustiveSearch

RESULT_KEYS = {
    "arch", "workload", "dataflow", "tiling", "proven_optimal", "cycles", "time_us", "energy_pj", "dram_read_bytes",
    "dram_write_bytes", "l1_peak_bytes", "utilization", "bounds", "gap_to_bound", "audit", "execute_max_abs_error",
}  # fmt: skip

SMALL = "name: small\nheads: 2\nn_q: 48\nn_kv: 40\nhead_dim_qk: 16\nhead_dim_v: 16\n"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


def width(done: Done) -> int:
    """Columns of the widest line of what was printed."""
    return max(map(len, done.stdout.splitlines()))


@pytest.fixture
def tight(tmp_path: Path) -> Path:
    """A machine whose L1 holds what `layer_wise` and `flat` need of `vit_b_16`, but not what `mas` needs."""
    path = tmp_path / "tight.yaml"
    path.write_text(dump_yaml(load_arch("mas_edge").with_(**{"l1.capacity_kib": 9.75})))
    return path


def test_does_list_name_every_preset(mas_sim: Run) -> None:
    done = mas_sim("list")
    assert done.returncode == 0
    for name in ("mas_edge", "davinci_lite", "bert_base", "xlm", "llama3_8b_gqa", "layer_wise", "mas", "auto"):
        assert f"  {name} " in done.stdout


def test_does_run_with_a_tiling_print_the_promised_json(mas_sim: Run, small: Path) -> None:
    done = mas_sim("run", "--workload", small, "--q-tile", 16, "--kv-tile", 16, "--dataflow", "flat", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert set(result) >= RESULT_KEYS
    assert result["proven_optimal"] is False
    assert result["tiling"]["q_tile"] == 16
    assert result["audit"] == "ok"
    assert result["execute_max_abs_error"] < 1e-4
    assert set(result["energy_pj"]) == {"total", "dram", "l1", "l0", "mac", "vec", "leakage"}
    parts = [value for name, value in result["energy_pj"].items() if name != "total"]
    assert math.isclose(sum(parts), result["energy_pj"]["total"])
    assert set(result["utilization"]) == {"mac", "vec", "dram"}
    assert {"mac_cycles", "vec_cycles", "dram_cycles", "lower_cycles"} <= set(result["bounds"])
    assert result["time_us"] == pytest.approx(result["cycles"] / 3750)
    assert result["gap_to_bound"] == pytest.approx(result["cycles"] / result["bounds"]["lower_cycles"] - 1)


def test_does_run_without_a_tiling_find_and_prove_the_best(mas_sim: Run, small: Path) -> None:
    done = mas_sim("run", "--workload", small, "--json")
    assert done.returncode == 0, done.stderr
    best = json.loads(done.stdout)
    assert best["proven_optimal"] is True
    assert best["search"]["legal"] == best["search"]["simulated"] + best["search"]["pruned"]
    given = json.loads(mas_sim("run", "--workload", small, "--q-tile", 16, "--kv-tile", 16, "--json").stdout)
    assert best["cycles"] <= given["cycles"]


def test_does_compare_print_results_and_means_and_fit_100_columns(mas_sim: Run, small: Path) -> None:
    done = mas_sim("compare", "--workload", f"{small},vit_h_16", "--check", "--json")
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert [(r["workload"], r["dataflow"]) for r in data["results"]][:3] == [
        ("small", "layer_wise"), ("small", "flat"), ("small", "mas"),
    ]  # fmt: skip
    assert all(r["proven_optimal"] and r["audit"] == "ok" for r in data["results"])
    over_flat = data["geomean"]["speedup_over"]["flat"]
    assert over_flat["min"] <= over_flat["geomean"] <= over_flat["max"]
    table = mas_sim("compare", "--workload", f"{small},vit_h_16")
    assert width(table) <= 100
    for word in ("geometric mean", "minimum", "maximum", "Gap", "proven over, for small: batch_tile"):
        assert word in table.stdout
    gaps = table.stdout.partition("Gap")[2]
    for result in data["results"]:
        assert f"{100 * result['gap_to_bound']:.1f} % {result['bounds']['limited_by']}" in gaps


def test_does_validate_name_kind_and_hash(mas_sim: Run, small: Path) -> None:
    done = mas_sim("validate", small)
    assert done.returncode == 0
    assert "a workload (small)" in done.stdout


BAD_FILES = {
    "misspelt key": (b"name: x\nheads: 2\nn_q: 8\nn_kv: 8\nhead_dim_qk: 8\nhaed_dim_v: 8\n", "head_dim_v"),
    "negative size": (b"name: x\nheads: -2\nn_q: 8\nn_kv: 8\nhead_dim_qk: 8\nhead_dim_v: 8\n", "heads"),
    "empty": (b"", "empty"),
    "binary": (bytes(range(256)) * 8, "UTF-8"),
    "ten megabytes": (b"# " + b"x" * 10_000_000, "too large"),
    "NaN": (b"name: x\nheads: .nan\nn_q: 8\nn_kv: 8\nhead_dim_qk: 8\nhead_dim_v: 8\n", "heads"),
    "1e30 heads": (b"name: x\nheads: 1e30\nn_q: 8\nn_kv: 8\nhead_dim_qk: 8\nhead_dim_v: 8\n", "heads"),
    "alias bomb": (b"a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]\n", "alias"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_is_a_bad_file_one_clear_message_and_exit_code_2(mas_sim: Run, name: str, tmp_path: Path) -> None:
    content, expected = BAD_FILES[name]
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    for command in (("validate", path), ("run", "--workload", path), ("compare", "--workload", path)):
        done = mas_sim(*command)
        assert done.returncode == 2, (command, done.stdout, done.stderr)
        assert done.stdout == ""
        assert "Traceback" not in done.stderr
        assert expected.lower() in done.stderr.lower()
        assert len(done.stderr) < 4_000


BAD_ARGUMENTS = {
    ("run", "--workload", "bert_bsae"): "bert_base",
    ("run", "--arch", "mas_egde"): "mas_edge",
    ("run", "--dataflow", "masa"): "mas",
    ("run", "--objective", "speed"): "latency",
    ("run", "--q-tile", "-3"): "q_tile",
    ("run", "--q-tile", "0"): "q_tile",
    ("run", "--q-tile", "512", "--kv-tile", "512", "--head-tile", "12"): "does not fit",
    ("run", "--core-split", "group"): "groups",
    ("run", "--workload", "nowhere.yaml"): "nowhere.yaml",
    ("run", "--dataflow", "atuo"): "did you mean 'auto'",
    ("run", "--workload", ""): "--workload: no such workload",
    ("run", "--arch", "edge"): "--arch: no such architecture",
    ("run", "--dataflow", "auto", "--q-tile", "16"): "--q-tile",
    ("run", "--objective", "edp", "--q-tile", "16"): "--objective is for the search",
    ("run", "--objective", "latency", "--overwrite", "auto"): "--objective is for the search",
    ("run", "--dataflow", "flat", "--score-buffers", "1"): "--score-buffers",
    ("run", "--dataflow", "flat", "--score-buffers", "3", "--q-tile", "16"): "--score-buffers",
    ("run", "--dataflow", "flat", "--overwrite", "v"): "only mas overwrites",
    ("run", "--overwrite", "vk"): "none, v, k, auto",
    ("run", "--overwrite", "v", "--v-resident-tiles", "9", "--softmax-in-place"): "softmax_in_place false",
    ("run", "--softmax-in-place", "yes"): "unexpected extra argument",
    ("compare", "--dataflow", "mas,flta"): "flat",
    ("compare", "--dataflow", ","): "--dataflow: a name is empty",
    ("compare", "--workload", ""): "--workload: a name is empty",
    ("compare", "--workload", ","): "--workload: a name is empty",
    ("compare", "--workload", "bert_base,"): "--workload: a name is empty",
    ("compare", "--workload", "bert_bsae"): "--workload: no such workload",
    ("crossover", "--over", "512"): "seq=FIRST:LAST:xFACTOR",
    ("crossover", "--over", "seq=512,16777216"): "--over: batch * heads",
    ("crossover", "--dataflow", "flta"): "did you mean 'flat'",
    ("crossover", "--dataflow", ","): "--dataflow: a name is empty",
    ("limits", "--arch", "mas_egde"): "mas_edge",
    ("limits", "--head-dim", "0"): "head-dim",
    ("limits", "--dtype", "fp1"): "fp16",
    ("compare", "--workload", "bert_base,bert_base"): "bert_base",
    ("validate", "."): "directory",
    ("fly",): "fly",
}


@pytest.mark.parametrize("arguments", BAD_ARGUMENTS)
def test_is_a_bad_argument_one_clear_message_and_exit_code_2(mas_sim: Run, arguments: tuple[str, ...]) -> None:
    done = mas_sim(*arguments)
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert "<python>" not in done.stderr
    words = " ".join(done.stderr.replace("│", " ").split()).lower()
    assert BAD_ARGUMENTS[arguments].lower() in words


def test_does_a_machine_too_small_for_anything_say_by_how_many_bytes(mas_sim: Run, tmp_path: Path) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text(dump_yaml(load_arch("mas_edge").with_(**{"l1.capacity_kib": 4})))
    done = mas_sim("run", "--arch", path, "--dataflow", "mas")
    assert done.returncode == 2
    assert re.search(r"does not fit L1, by [0-9,]+ bytes", done.stderr)
    for dataflow in ("auto", "all"):
        done = mas_sim("compare", "--arch", path, "--workload", "bert_base", "--dataflow", dataflow)
        assert done.returncode == 2
        assert done.stdout == ""
        assert len(re.findall(r"does not fit L1, by [0-9,]+ bytes", done.stderr)) == len(DATAFLOWS)


def test_is_bad_input_an_exit_code_of_the_process_itself(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(b"")
    command = [sys.executable, "-W", "error", "-m", "mas_sim.cli", "run", "--workload", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


def test_does_auto_run_the_best_and_say_why(mas_sim: Run, small: Path) -> None:
    best = json.loads(mas_sim("run", "--workload", small, "--dataflow", "auto", "--json").stdout)
    assert best["chosen_by"] == "auto"
    every = {
        name: json.loads(mas_sim("run", "--workload", small, "--dataflow", name, "--json").stdout) for name in DATAFLOWS
    }
    assert best["cycles"] == min(result["cycles"] for result in every.values())
    assert best["cycles"] == every[best["dataflow"]]["cycles"]
    assert best["notes"][-1].startswith(f"auto chose {best['dataflow']}: {best['cycles']:,} cycles")
    assert "chosen_by" not in every["mas"]
    assert "note: auto chose" in mas_sim("run", "--workload", small, "--dataflow", "auto").stdout


def test_does_compare_take_auto_beside_others(mas_sim: Run, small: Path) -> None:
    arguments = ("compare", "--workload", small, "--dataflow", "layer_wise,flat,auto")
    data = json.loads(mas_sim(*arguments, "--json").stdout)
    assert [result.get("chosen_by") for result in data["results"]] == [None, None, "auto"]
    chosen = data["results"][2]
    table = mas_sim(*arguments)
    assert width(table) <= 100
    assert f"{chosen['cycles']:,} {chosen['dataflow']}" in table.stdout
    assert "note: small: auto chose" in table.stdout


def test_does_compare_say_what_does_not_fit_and_go_on(mas_sim: Run, small: Path, tight: Path) -> None:
    arguments = ("compare", "--arch", tight, "--workload", f"{small},vit_b_16")
    done = mas_sim(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    misfit = data["results"][-1]
    assert (misfit["workload"], misfit["dataflow"], misfit["fits"]) == ("vit_b_16", "mas", False)
    assert misfit["over_bytes"] > 0
    assert [result["fits"] for result in data["results"]] == [True] * 5 + [False]
    table = mas_sim(*arguments)
    assert table.returncode == 0
    assert width(table) <= 100
    assert table.stdout.count("does not fit ") == 4  # a cell of each table, and a note
    assert f"note: vit_b_16: mas does not fit (by {misfit['over_bytes']:,} bytes)" in table.stdout
    assert "note: means against flat leave out vit_b_16" in table.stdout


def test_does_the_seed_reach_the_check_of_a_searched_tiling(mas_sim: Run, small: Path) -> None:
    def error(*arguments: str) -> float:
        done = mas_sim("run", "--workload", small, "--dataflow", "flat", "--json", *arguments)
        return float(json.loads(done.stdout)["execute_max_abs_error"])

    assert error() == error("--seed", "0") != error("--seed", "1")


def test_do_overwrite_and_softmax_in_place_reach_the_tiling(mas_sim: Run, small: Path) -> None:
    sizes = ("--q-tile", 16, "--kv-tile", 8, "--k-resident-tiles", 5, "--v-resident-tiles", 5)

    def run(*arguments: str) -> dict[str, Any]:
        done = mas_sim("run", "--workload", small, *sizes, *arguments, "--json")
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    for name in ("v", "k"):
        result = run("--overwrite", name)
        assert (result["tiling"]["overwrite"], result["tiling"]["softmax_in_place"]) == (name, False)
        assert result["overwrite"]["overwrites"] > 0
    assert run()["tiling"]["softmax_in_place"] is True
    assert run("--no-softmax-in-place")["tiling"]["softmax_in_place"] is False
    auto = run("--overwrite", "auto")
    assert auto["tiling"]["overwrite"] == "none"  # without need, nothing is overwritten
    assert auto["cycles"] == run()["cycles"]


def test_does_run_write_trace_and_figure(mas_sim: Run, small: Path, tmp_path: Path) -> None:
    trace, figure = tmp_path / "trace.json", tmp_path / "figure.svg"
    done = mas_sim("run", "--workload", small, "--q-tile", 16, "--trace", trace, "--figure", figure)
    assert done.returncode == 0, done.stderr
    assert json.loads(trace.read_text())["traceEvents"]
    assert "<svg" in figure.read_text()
    assert str(trace) in done.stderr
    assert str(figure) in done.stderr
    for option, name in (("--trace", "nowhere/t.json"), ("--figure", "f.xyz"), ("--figure", "nowhere/f.svg")):
        done = mas_sim("run", "--workload", small, "--q-tile", 16, option, tmp_path / name)
        assert done.returncode == 2
        assert name in done.stderr
        assert "cycles" in done.stdout  # the results are not lost


def test_is_it_said_how_many_tilings_were_too_long(mas_sim: Run, small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search = ExhaustiveSearch.search
    monkeypatch.setattr(ExhaustiveSearch, "search", lambda *a, **k: replace(search(*a, **k), too_long=1234))
    printed = " ".join(mas_sim("run", "--workload", small).stdout.split())
    assert "Proven over: batch_tile 1 values 1..1, " in printed
    assert "1,234 tilings left out, as too long to simulate" in printed
    printed = " ".join(mas_sim("compare", "--workload", small, "--dataflow", "flat").stdout.split())
    assert "too long to simulate: tilings, 1,234 of small flat" in printed
    printed = " ".join(mas_sim("crossover", "--workload", small, "--over", "seq=16").stdout.split())
    assert f"too long to simulate: tilings, {4 * 1234:,} at N = 16" in printed


def test_does_limits_print_the_longest_sequences(mas_sim: Run) -> None:
    data = json.loads(mas_sim("limits", "--json").stdout)
    powers = {(limit["dataflow"], limit["cores"]): limit["tokens_power_of_two"] for limit in data["limits"]}
    assert powers["flat", 1] == 2**21
    assert powers["mas", 1] == 2**20
    table = mas_sim("limits")
    assert width(table) <= 100
    for limit in data["limits"]:
        assert f"{limit['tokens']:,} " in table.stdout
    half = json.loads(mas_sim("limits", "--dtype", "int8", "--head-dim", 32, "--json").stdout)
    assert half["limits"][0]["tokens"] > data["limits"][0]["tokens"]


def test_does_crossover_print_tables_findings_json_and_figure(mas_sim: Run, small: Path, tmp_path: Path) -> None:
    figure = tmp_path / "figure.svg"
    arguments = ("crossover", "--workload", small, "--over", "seq=16:64:x2")
    done = mas_sim(*arguments, "--json", "--figure", figure)
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert [point["seq"] for point in data["points"]] == [16, 32, 64]
    assert data["complete"] is True
    assert "<svg" in figure.read_text()
    table = mas_sim(*arguments)
    assert width(table) <= 100
    for point in data["points"]:
        cells = [f"{series['cycles']:,}" for series in point["series"].values()]
        assert re.search(r"\s+".join([str(point["seq"]), *cells, point["winner"]]), table.stdout)
    for words in ("overwrite pays at N =", "mas loses to flat", "nothing fits at N =", "proven over, at N = 16"):
        assert words in table.stdout


def test_does_crossover_say_by_how_many_bytes_nothing_fits(mas_sim: Run, tight: Path) -> None:
    arguments = ("crossover", "--arch", tight, "--over", "seq=196,4096", "--dataflow", "flat,mas")
    data = json.loads(mas_sim(*arguments, "--json").stdout)
    table = mas_sim(*arguments)
    assert table.returncode == 0
    for point in data["points"]:
        misfit = point["series"]["mas"]
        assert misfit["fits"] is False
        assert f"(by {misfit['over_bytes']:,}" in table.stdout
    assert data["nothing_fits"] == [4096]
    assert "nothing fits at N = 4,096" in table.stdout
    assert "mas loses to flat, with overwrite and without, at N = 196" in table.stdout


def test_does_ctrl_c_leave_the_lengths_that_are_done(
    mas_sim: Run, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = ExhaustiveSearch.search

    def stop_at_64(self: ExhaustiveSearch, *args: Any, **kwargs: Any) -> Any:
        if args[0].workload.n_q == 64:
            raise KeyboardInterrupt
        return search(self, *args, **kwargs)

    monkeypatch.setattr(ExhaustiveSearch, "search", stop_at_64)
    figure = tmp_path / "figure.svg"
    arguments = ("crossover", "--workload", small, "--over", "seq=16,32,64,128")
    done = mas_sim(*arguments, "--json", "--figure", figure)
    assert done.returncode == 130
    assert [point["seq"] for point in json.loads(done.stdout)["points"]] == [16, 32]
    assert json.loads(done.stdout)["complete"] is False
    assert figure.exists()
    table = mas_sim(*arguments)
    assert table.returncode == 130
    assert "2 of 4 lengths are done" in table.stderr
    assert "mas" in table.stdout
    long = tmp_path / "long.yaml"
    long.write_text(SMALL.replace("48", "64"))
    for command in ("run", "compare"):
        done = mas_sim(command, "--workload", long)
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


MARKUP = "[/bold] :smile: [red]"


def test_is_markup_in_a_name_printed_as_it_stands(mas_sim: Run, tmp_path: Path) -> None:
    path, machine = tmp_path / "w.yaml", tmp_path / "a.yaml"
    path.write_text(SMALL.replace("name: small", f'name: "{MARKUP}"'))
    machine.write_text(dump_yaml(load_arch("mas_edge").with_(name=MARKUP)))
    for command in (("run",), ("compare",), ("crossover", "--over", "seq=16"), ("validate", path), ("limits",)):
        given = () if command[0] in ("validate", "limits") else ("--workload", path)
        done = mas_sim(*command, *given, *(() if command[0] == "validate" else ("--arch", machine)))
        assert done.returncode == 0, done.stderr
        assert MARKUP in done.stdout


@pytest.mark.parametrize("field", ["name", "description", "source"])
def test_is_a_control_character_in_a_text_a_fault(mas_sim: Run, field: str, tmp_path: Path) -> None:
    lines = {"name": "x", "description": "", "source": ""} | {field: "\\e[2J"}
    path = tmp_path / "w.yaml"
    rest = SMALL.removeprefix("name: small\n")
    path.write_text("".join(f'{name}: "{text}"\n' for name, text in lines.items()) + rest)
    done = mas_sim("validate", path)
    assert done.returncode == 2
    assert f"{field}: must not hold control characters" in done.stderr
    assert "\x1b" not in done.stderr
    machine = tmp_path / "a.yaml"
    text = dump_yaml(load_arch("mas_edge").with_(description="", source=""))
    machine.write_text(re.sub(rf"^{field}: .*$", lambda _: f'{field}: "\\e[2J"', text, count=1, flags=re.MULTILINE))
    done = mas_sim("limits", "--arch", machine)
    assert done.returncode == 2
    assert f"{field}: must not hold control characters" in done.stderr


@pytest.mark.parametrize(
    ("text", "shown"), [("[1, 2]", "a list of 2"), ("- a: 1\n", "a list of 1"), ("hello", "'hello'")]
)
def test_is_a_file_that_is_no_mapping_described_in_words(mas_sim: Run, text: str, shown: str, tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(text)
    done = mas_sim("validate", path)
    assert done.returncode == 2
    assert f"must be a mapping of keys to values (got {shown})" in done.stderr


def test_does_the_progress_name_what_is_going_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(*calls: tuple[str, int, int], compiled: bool = True) -> str:
        out = io.StringIO()
        console = Console(file=out, force_terminal=True, width=100)
        monkeypatch.setattr(_cli_options, "plain_console", lambda stderr: console)
        monkeypatch.setattr(_cli_options, "nothing_compiled", lambda: not compiled)
        with _cli_options.search_progress() as step:
            for call in calls:
                step(*call)
        assert "None" not in out.getvalue()
        return out.getvalue()

    assert "bounding tilings" in shown(("x [/bold] mas", 0, 0))
    assert "compiling" in shown(("x mas", 0, 0), compiled=False)
    assert "3/1,000 tilings" in shown(("x mas", 0, 0), ("x mas", 3, 1000))
    again = shown(("x mas", 5, 10), ("y [/bold] mas", 0, 0))
    assert "y [/bold] mas" in again
    assert "bounding tilings" in again


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("arguments", [("list",), ("limits", "--json")])
def test_is_a_full_disk_one_message_and_exit_code_1(arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-W", "error", "-m", "mas_sim.cli", *arguments]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: the output cannot be written: ")
    assert done.stderr.count("\n") == 1


def test_is_an_interrupt_outside_a_command_quiet() -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as end:
        main(stop)
    assert end.value.code == 130
