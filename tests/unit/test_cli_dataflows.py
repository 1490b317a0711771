"""Does the command line cope with all dataflows at once: wide tables, their own options, their own operations?"""

import json
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Run

from mas_sim.crossover import OVERWRITING
from mas_sim.dataflows import DATAFLOWS
from mas_sim.tiling import Tiling
from mas_sim.workload import load_workload

SMALL = "name: small\nheads: 4\nn_q: 48\nn_kv: 48\nhead_dim_qk: 16\nhead_dim_v: 16\n"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


@pytest.fixture
def causal(tmp_path: Path) -> Path:
    path = tmp_path / "causal.yaml"
    path.write_text(SMALL + "batch: 2\nmask: causal\n")
    return path


# --- Do tables of many dataflows stay within the terminal, and whole? ---


@pytest.mark.parametrize(("flows", "columns"), [("all", len(DATAFLOWS)), ("all,auto", len(DATAFLOWS) + 1)])
def test_does_a_comparison_of_all_dataflows_fit_100_columns(
    mas_sim: Run, small: Path, flows: str, columns: int
) -> None:
    arguments = ("compare", "--workload", f"{small},vit_b_16", "--dataflow", flows)
    data = json.loads(mas_sim(*arguments, "--json").stdout)
    assert [result["dataflow"] for result in data["results"][: len(DATAFLOWS)]] == list(DATAFLOWS)
    assert len(data["results"]) == 2 * columns
    done = mas_sim(*arguments)
    assert done.returncode == 0, done.stderr
    assert done.width <= 100
    assert "…" not in done.stdout
    words = done.stdout.split()
    for result in data["results"]:
        assert f"{result['cycles']:,}" in words
        assert f"{result['energy_pj']['total'] / 1e6:,.1f}" in words
        assert f"{100 * result['gap_to_bound']:.1f}" in words
    speedups = done.stdout.partition("Speedup of mas")[2].partition("Energy in uJ")[0]
    for spread in data["geomean"]["speedup_over"].values():
        assert f"{spread['geomean']:.3f}x" in speedups.split()


def test_does_a_comparison_name_the_best_of_each_network_with_ties_and_the_means(mas_sim: Run, small: Path) -> None:
    arguments = ("compare", "--workload", f"{small},vit_b_16", "--dataflow", "all")
    data = json.loads(mas_sim(*arguments, "--json").stdout)
    printed = mas_sim(*arguments).stdout
    table = printed.partition("Best dataflow (latency)")[2]
    for name in ("small", "vit_b_16"):
        cycles = {r["dataflow"]: r["cycles"] for r in data["results"] if r["workload"] == name}
        best = [flow for flow, value in cycles.items() if value == min(cycles.values())]
        assert data["best"][name] == best
        assert f"{name} " in table
        assert ", ".join(best) in table
    means = " ".join(table.partition("speedup of mas, geometric means: ")[2].split())
    parts = [f"{flow} {s['geomean']:.2f}x" for flow, s in data["geomean"]["speedup_over"].items()]
    assert means.startswith(f"over {', '.join(parts)}")


def test_is_a_comparison_of_three_still_one_table_of_cycles(mas_sim: Run, small: Path) -> None:
    printed = mas_sim("compare", "--workload", small).stdout
    assert "over layer_wise   over flat" in printed
    assert "Best dataflow" not in printed
    assert printed.count("network") == 3


def test_does_a_crossover_of_all_series_fit_100_columns(mas_sim: Run, small: Path) -> None:
    series = [*DATAFLOWS, OVERWRITING]
    arguments = ("crossover", "--workload", small, "--over", "seq=64,256", "--dataflow", ",".join(series))
    data = json.loads(mas_sim(*arguments, "--json").stdout)
    done = mas_sim(*arguments)
    assert done.width <= 100
    assert "…" not in done.stdout
    words = done.stdout.split()
    for point in data["points"]:
        assert list(point["series"]) == series
        for result in point["series"].values():
            assert f"{result['all_heads']['cycles']:,}" in words


def test_do_limits_name_every_dataflow(mas_sim: Run) -> None:
    data = json.loads(mas_sim("limits", "--json").stdout)
    assert list(dict.fromkeys(limit["dataflow"] for limit in data["limits"])) == list(DATAFLOWS)
    assert "nothing: the longest that there may" in mas_sim("limits").stdout


# --- Do the options of single dataflows reach their tiling, and the table? ---

TILES = ("--q-tile", 16, "--kv-tile", 16)


@pytest.mark.parametrize(
    ("options", "field", "value", "rows"),
    [
        (("--dataflow", "fusemax", "--exp-on", "mac"), "exp_on", "mac", ["exp on MAC", "overlap pipelined"]),
        (("--dataflow", "fusemax", "--overlap", "none"), "overlap", "none", ["exp on VEC", "overlap none"]),
        (("--dataflow", "flash", "--overlap", "ping_pong"), "overlap", "ping_pong", ["overlap ping_pong"]),
        (("--dataflow", "flat"), "exp_on", "vec", ["granularity R"]),
        (("--dataflow", "flat", "--granularity", "R"), "head_tile", 1, ["granularity R"]),
    ],
)
def test_does_a_choice_reach_the_tiling_and_the_table(
    mas_sim: Run, small: Path, options: tuple[str, ...], field: str, value: Any, rows: list[str]
) -> None:
    arguments = ("run", "--workload", small, *TILES, *options)
    result = json.loads(mas_sim(*arguments, "--json").stdout)
    assert result["tiling"][field] == value
    assert result["audit"] == "ok"
    printed = " ".join(mas_sim(*arguments).stdout.split())
    assert all(row in printed for row in rows)


def test_does_a_dataflow_without_a_choice_show_none(mas_sim: Run, small: Path) -> None:
    printed = mas_sim("run", "--workload", small, *TILES, "--dataflow", "mas").stdout
    for row in ("exp on", "overlap ", "granularity", "mask"):
        assert f"\n  {row}" not in printed


def test_does_run_show_the_mask_and_what_the_balance_means(mas_sim: Run, causal: Path) -> None:
    printed = " ".join(mas_sim("run", "--workload", causal, *TILES, "--dataflow", "flat").stdout.split())
    kept = load_workload(str(causal)).kept_scores
    assert f"mask causal {kept:,} of {2 * 4 * 48 * 48:,} scores count, {kept / 184.32:.1f} %" in printed
    assert "softmax rate needed 8/cycle exp rate that keeps MAC busy; VEC gives " in printed


SIZES = {
    "M": {"batch_tile": 2, "head_tile": 4, "q_tile": 48},
    "B": {"batch_tile": 1, "head_tile": 4, "q_tile": 48},
    "H": {"batch_tile": 1, "head_tile": 1, "q_tile": 48},
    "R": {"batch_tile": 1, "head_tile": 1, "q_tile": 16},
}


@pytest.mark.parametrize("letter", SIZES)
def test_does_a_granularity_set_the_sizes_that_are_not_given(mas_sim: Run, causal: Path, letter: str) -> None:
    rows = ("--q-tile", 16) if letter == "R" else ()
    arguments = ("run", "--workload", causal, "--dataflow", "flat", "--kv-tile", 16, "--granularity", letter, *rows)
    result = json.loads(mas_sim(*arguments, "--json").stdout)
    assert {name: result["tiling"][name] for name in SIZES[letter]} == SIZES[letter]
    assert f"granularity {letter} fused at once" in " ".join(mas_sim(*arguments).stdout.split())


@pytest.mark.parametrize("letter", SIZES)
def test_does_a_granularity_limit_the_search(mas_sim: Run, causal: Path, letter: str) -> None:
    arguments = ("run", "--workload", causal, "--dataflow", "flat", "--json")
    every, limited = (json.loads(mas_sim(*arguments, *more).stdout) for more in ((), ("--granularity", letter)))
    for name in ("q_tile", "head_tile", "batch_tile")[: 3 - "MBHR".index(letter)]:
        assert limited["tiling"][name] == {"q_tile": 48, "head_tile": 4, "batch_tile": 2}[name]
    assert limited["proven_optimal"]
    assert limited["cycles"] >= every["cycles"]
    assert f"granularity {letter}" in limited["search"]["space"]
    assert Tiling(**limited["tiling"]).granularity(load_workload(str(causal))) == letter
    assert limited["search"]["space_size"] < every["search"]["space_size"]


def test_does_normalize_change_the_machine(mas_sim: Run, small: Path) -> None:
    arguments = ("run", "--workload", small, *TILES, "--dataflow", "flat")
    by = {way: json.loads(mas_sim(*arguments, "--normalize", way, "--json").stdout) for way in ("divide", "reciprocal")}
    plain = json.loads(mas_sim(*arguments, "--json").stdout)
    energy = {way: result["energy_pj"]["vec"] for way, result in by.items()}
    assert energy["divide"] == plain["energy_pj"]["vec"] != energy["reciprocal"]
    assert by["reciprocal"]["execute_max_abs_error"] < 1e-4
    assert "normalize reciprocal" in " ".join(mas_sim(*arguments, "--normalize", "reciprocal").stdout.split())
    compared = ("compare", "--workload", small, "--dataflow", "flat", "--json")
    ways: tuple[tuple[str, ...], ...] = ((), ("--normalize", "divide"), ("--normalize", "reciprocal"))
    found = [json.loads(mas_sim(*compared, *way).stdout)["results"][0]["energy_pj"]["vec"] for way in ways]
    assert found[0] == found[1] != found[2]


WRONG = {
    ("run", "--dataflow", "fusemax", "--exp-on", "mca"): "did you mean 'mac'",
    ("run", "--dataflow", "flat", "--exp-on", "mac"): "exp_on of flat must be vec (got mac)",
    ("run", "--dataflow", "fusemax", "--exp-on", "mac", "--arch", "davinci_lite"): "exp_steps of davinci_lite",
    ("run", "--overlap", "pingpong"): "did you mean 'ping_pong'",
    ("run", "--dataflow", "mas", "--overlap", "ping_pong"): "overlap of mas must be none (got ping_pong)",
    ("run", "--granularity", "h"): "there are M, B, H, R); did you mean 'H'",
    ("run", "--granularity", "", "--q-tile", "8"): "no granularity is called ''",
    ("run", "--granularity", "M", "--q-tile", "16"): "--q-tile must be 512 or more (got 16)",
    ("run", "--granularity", "B", "--head-tile", "3"): "--head-tile must be 12 or more (got 3)",
    (
        "run",
        "--granularity",
        "H",
        "--q-tile",
        "9",
        "--head-tile",
        "12",
    ): "512 or more (got 9); --head-tile must be less",
    ("run", "--granularity", "R", "--q-tile", "512"): "--q-tile must be less than 512 (got 512)",
    ("run", "--normalize", "recip"): "--normalize: must be one of 'divide' or 'reciprocal' (got 'recip')",
    ("compare", "--normalize", "divde"): "did you mean 'divide'",
    ("compare", "--dataflow", "all,mas"): "dataflow given twice: mas",
}


@pytest.mark.parametrize("arguments", WRONG)
def test_is_a_wrong_choice_one_clear_message_and_exit_code_2(mas_sim: Run, arguments: tuple[str, ...]) -> None:
    done = mas_sim(*arguments)
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert WRONG[arguments] in " ".join(done.stderr.split())


@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_does_every_dataflow_write_a_trace_and_a_figure(
    mas_sim: Run, causal: Path, tmp_path: Path, dataflow: str
) -> None:
    trace, figure = tmp_path / "trace.json", tmp_path / "figure.svg"
    done = mas_sim(
        "run", "--workload", causal, *TILES, "--dataflow", dataflow, "--trace", trace, "--figure", figure
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(trace.read_text())["otherData"]["dataflow"] == dataflow
    assert "<svg" in figure.read_text()


def test_does_a_comparison_say_its_balance_and_what_its_checks_found(mas_sim: Run, small: Path) -> None:
    done = mas_sim("compare", "--workload", small, "--dataflow", "all", "--check")
    printed = " ".join(done.stdout.split())
    assert done.width <= 100
    assert printed.count("exp balance in scores a cycle: E = F = 16 needs 8 to keep MAC busy, VEC gives ") == 1
    assert "(online)" in printed
    last = done.stdout.splitlines()[-1]
    assert last.startswith(f"audited and executed: {len(DATAFLOWS)} of {len(DATAFLOWS)} legal, largest error ")
    assert "audited" not in mas_sim("compare", "--workload", small, "--dataflow", "flat").stdout


def test_does_a_crossover_take_all_and_say_its_balance(mas_sim: Run, small: Path) -> None:
    arguments = ("crossover", "--workload", small, "--over", "seq=16", "--dataflow", "all")
    done = mas_sim(*arguments)
    assert done.width <= 100
    printed = " ".join(done.stdout.split())
    assert printed.count("exp balance in scores a cycle: E = F = 16 needs 8 to keep MAC busy, VEC gives ") == 1
    (point,) = json.loads(mas_sim(*arguments, "--json").stdout)["points"]
    assert list(point["series"]) == list(DATAFLOWS)


def test_does_run_give_the_balance_of_its_own_softmax(mas_sim: Run, small: Path) -> None:
    arguments = ("run", "--workload", small, *TILES, "--dataflow", "fusemax")
    on_mac = (*arguments, "--exp-on", "mac")
    assert "keeps MAC busy; exp on the MAC array" in " ".join(mas_sim(*on_mac).stdout.split())
    assert json.loads(mas_sim(*on_mac, "--json").stdout)["exp_balance"]["available_per_cycle"] is None
    whole = ("run", "--workload", small, *TILES, "--dataflow", "flat", "--json")
    online, rows = (json.loads(mas_sim(*a).stdout)["exp_balance"] for a in ((*arguments, "--json"), whole))
    assert online["available_per_cycle"] > rows["available_per_cycle"]
