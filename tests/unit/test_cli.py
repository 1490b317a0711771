"""Does the command line do what its help says, and is bad input one clear message and exit code 2?"""

import json
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from mas_sim import load_arch
from mas_sim.cli import main
from mas_sim.config import dump_yaml

RESULT_KEYS = {
    "arch", "workload", "dataflow", "tiling", "proven_optimal", "cycles", "time_us", "energy_pj", "dram_read_bytes",
    "dram_write_bytes", "l1_peak_bytes", "utilization", "bounds", "gap_to_bound", "audit", "execute_max_abs_error",
}  # fmt: skip

SMALL = "name: small\nheads: 2\nn_q: 48\nn_kv: 40\nhead_dim_qk: 16\nhead_dim_v: 16\n"


@dataclass
class Done:
    """What a finished command left."""

    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Done]


@pytest.fixture
def mas_sim(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line's entry point in this process."""

    def run(*arguments: str | int | Path) -> Done:
        monkeypatch.setattr(sys, "argv", ["mas-sim", *map(str, arguments)])
        code: object = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
        out, err = capsys.readouterr()
        assert isinstance(code, int)
        return Done(code, out, err)

    return run


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


def test_does_list_name_every_preset(mas_sim: Run) -> None:
    done = mas_sim("list")
    assert done.returncode == 0
    for name in ("mas_edge", "davinci_lite", "fusemax_cloud", "bert_base", "xlm", "llama3_8b_gqa", "layer_wise", "mas"):
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
    assert max(map(len, table.stdout.splitlines())) <= 100
    for word in ("geometric mean", "minimum", "maximum", "gap"):
        assert word in table.stdout


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
    ("compare", "--dataflow", "mas,flta"): "flat",
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
    assert BAD_ARGUMENTS[arguments] in done.stderr


def test_does_a_machine_too_small_for_anything_say_by_how_many_bytes(mas_sim: Run, tmp_path: Path) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text(dump_yaml(load_arch("mas_edge").with_(**{"l1.capacity_kib": 4})))
    done = mas_sim("run", "--arch", path, "--dataflow", "mas")
    assert done.returncode == 2
    assert "over by" in done.stderr
    assert "bytes" in done.stderr


def test_is_bad_input_an_exit_code_of_the_process_itself(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(b"")
    command = [sys.executable, "-W", "error", "-m", "mas_sim.cli", "run", "--workload", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
