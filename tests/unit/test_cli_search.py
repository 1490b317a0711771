"""Does `mas-sim search` find, prove, compare, draw and stop as its help says, and can what it finds be run again?"""

import csv
import importlib.util
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Done, Run, make_runner

from mas_sim import _cli_search
from mas_sim.arch import load_arch
from mas_sim.config import dump_yaml
from mas_sim.dataflows import DATAFLOWS
from mas_sim.search import OBJECTIVES, SEARCHERS, make_space, pareto_front
from mas_sim.search.exhaustive import ExhaustiveSearch
from mas_sim.search.random_search import RandomSearch
from mas_sim.workload import load_workload

SMALL = "name: small\nheads: 2\nn_q: 48\nn_kv: 40\nhead_dim_qk: 16\nhead_dim_v: 16\n"
OPTUNA = importlib.util.find_spec("optuna") is not None


@pytest.fixture
def mas_sim(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Run the command line's entry point in this process; `search` on the small workload, with few candidates."""
    workload = tmp_path / "small.yaml"
    workload.write_text(SMALL)

    runner = make_runner(monkeypatch, capsys)

    def run(command: str, *arguments: str | int | float | Path) -> Done:
        small = ["--workload", str(workload), "--limit", "4"] if command == "search" else []
        return runner(command, *small, *arguments)

    return run


def optimum(folder: Path, dataflow: str = "mas", objective: str = "latency") -> Any:
    """What exhaustive search finds, in Python."""
    space = make_space(load_arch("mas_edge"), load_workload(folder / "small.yaml"), dataflow, limit=4)
    return ExhaustiveSearch().search(space, objective)


# --- one search -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", [*OBJECTIVES, "weighted", "weighted:0.3"])
@pytest.mark.parametrize("dataflow", ["flash", "all"])
def test_is_the_default_a_proof(dataflow: str, objective: str, mas_sim: Run, tmp_path: Path) -> None:
    done = mas_sim("search", "--dataflow", dataflow, "--objective", objective, "--json")
    best = optimum(tmp_path, dataflow, objective).best
    found = done.json
    assert (found["dataflow"], found["tiling"]) == (best.dataflow, best.tiling.as_dict())
    assert (found["cycles"], found["search"]["value"]) == (best.cycles, best.value)
    assert (found["search"]["method"], found["proven_optimal"], found["search"]["gap"]) == ("exhaustive", True, 0.0)


METHODS = [*SEARCHERS, *(["tpe"] if OPTUNA else [])]


@pytest.mark.parametrize("method", METHODS)
def test_does_a_budgeted_method_say_how_far_it_is_from_the_optimum(method: str, mas_sim: Run, tmp_path: Path) -> None:
    found = mas_sim("search", "--method", method, "--budget", 20, "--seed", 3, "--json").json
    facts, best = found["search"], optimum(tmp_path).best
    assert (facts["method"], facts["seed"], facts["evaluations"], facts["stopped"]) == (method, 3, 20, "budget")
    assert facts["optimum"] == best.value
    assert facts["gap"] == facts["value"] / best.value - 1 >= 0
    assert found["cycles"] == facts["value"]
    assert "settings" in facts
    near = facts["evaluations_to_1_percent"]
    assert (near is not None and near <= 20) == (facts["gap"] <= 0.01)


def test_does_the_same_seed_find_the_same_and_another_one_something_else(mas_sim: Run) -> None:
    def values(seed: int) -> list[Any]:
        found = mas_sim("search", "--method", "random", "--budget", 5, "--seed", seed, "--json").json
        return [found["tiling"], found["cycles"]]

    assert values(1) == values(1)
    assert any(values(1) != values(seed) for seed in (2, 3, 4))


def test_does_the_table_say_what_there_is_to_know(mas_sim: Run, tmp_path: Path) -> None:
    done = mas_sim("search", "--method", "mcts", "--budget", 30)
    assert done.returncode == 0
    for words in (
        "mcts search of small", "kept in L1", "cycles", "energy uJ", "gap to optimum", "the proven optimum is",
        "outside simulation", "stopped", "seed", "MctsSearch(", "Space: batch_tile",
    ):  # fmt: skip
        assert words in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
    proven = mas_sim("search").stdout
    assert "proven optimal" in proven
    assert f"{optimum(tmp_path).best.cycles:,}" in proven


def test_can_the_proof_be_left_out(mas_sim: Run) -> None:
    arguments = ("search", "--method", "genetic", "--budget", 10, "--no-proof")
    facts = mas_sim(*arguments, "--json").json["search"]
    assert (facts["optimum"], facts["gap"], facts["evaluations_to_1_percent"]) == (None, None, None)
    assert "the optimum was not proven" in mas_sim(*arguments).stdout


def test_does_exhaustive_search_stop_within_a_gap(mas_sim: Run) -> None:
    wide, full = (mas_sim("search", "--gap", gap, "--json").json for gap in (0.5, 0))
    assert wide["search"]["gap"] <= 0.5
    assert wide["search"]["evaluations"] <= full["search"]["evaluations"]
    assert wide["search"]["value"] <= 1.5 * full["search"]["value"]
    assert wide["search"]["lower_bound"] <= full["search"]["value"]


def test_are_limits_kept_to(mas_sim: Run) -> None:
    fastest = mas_sim("search", "--dataflow", "all", "--json").json
    thrift = mas_sim("search", "--dataflow", "all", "--objective", "energy", "--json").json
    assert fastest["cycles"] < thrift["cycles"]  # else the limit would limit nothing
    for method in ("exhaustive", "random"):
        limited = mas_sim(
            "search", "--dataflow", "all", "--objective", "energy", "--max-cycles", fastest["cycles"], "--json",
            "--method", method, *([] if method == "exhaustive" else ["--budget", 100_000]),
        ).json  # fmt: skip
        assert limited["cycles"] == fastest["cycles"]
        assert "cycles <=" in limited["objective"]
    done = mas_sim("search", "--max-energy-uj", 1e-6)
    assert (done.returncode, done.stdout) == (2, "")
    assert "keeps to the limits" in done.stderr


def test_do_seconds_alone_end_a_search(mas_sim: Run) -> None:
    short = mas_sim("search", "--method", "random", "--seconds", 1e-9, "--budget", 100, "--json").json["search"]
    assert (short["stopped"], 0 < short["evaluations"] < 100) == ("seconds", True)
    done = mas_sim("search", "--method", "random", "--seconds", 1000, "--json").json["search"]
    assert (done["stopped"], done["evaluations"]) == ("done", done["legal"])
    assert done["gap"] == 0


# --- all methods ----------------------------------------------------------------------------------------------------


def test_are_methods_compared_over_seeds(mas_sim: Run, tmp_path: Path) -> None:
    arguments = ("search", "--method", "all", "--budget", 12, "--repeats", 3, "--seed", 5)
    found = mas_sim(*arguments, "--json").json
    best = optimum(tmp_path).best
    assert (found["cycles"], found["proven_optimal"], found["search"]["method"]) == (best.cycles, True, "exhaustive")
    assert [method["method"] for method in found["methods"]] == [*SEARCHERS]
    for method in found["methods"]:
        gaps = [run["value"] / best.value - 1 for run in method["results"]]
        assert [run["seed"] for run in method["results"]] == [5, 6, 7]
        assert (method["median_gap"], method["worst_gap"]) == (sorted(gaps)[1], max(gaps))
        assert method["runs_within_1_percent"] == sum(gap <= 0.01 for gap in gaps)
        assert [run["evaluations"] for run in method["results"]] == [12, 12, 12]
    table = mas_sim(*arguments).stdout
    for words in (*SEARCHERS, "exhaustive", "median gap", "proven optimum", "space: batch_tile"):
        assert words in table
    assert max(map(len, table.splitlines())) <= 100
    assert "…" not in table


def test_does_a_run_that_finds_nothing_within_the_limits_count_as_such(mas_sim: Run, tmp_path: Path) -> None:
    limit = optimum(tmp_path).best.cycles
    arguments = ("search", "--method", "random", "--budget", 1, "--repeats", 3, "--max-cycles", limit)
    (method,) = mas_sim(*arguments, "--json").json["methods"]
    assert None in [run["value"] for run in method["results"]]
    assert method["worst_gap"] is None
    assert "none found" in mas_sim(*arguments).stdout


# --- the front ------------------------------------------------------------------------------------------------------


def test_is_the_front_the_exact_one_and_each_point_of_it_reproducible(mas_sim: Run, tmp_path: Path) -> None:
    arguments = ("search", "--dataflow", "all", "--objective", "pareto")
    found = mas_sim(*arguments, "--json", "--plot", tmp_path / "front.svg")
    assert found.returncode == 0
    assert (tmp_path / "front.svg").exists()
    space = make_space(load_arch("mas_edge"), load_workload(tmp_path / "small.yaml"), "all", limit=4)
    front = pareto_front(space).trials
    assert len(front) > 1
    points = [(p["cycles"], p["dataflow"], p["tiling"]) for p in found.json["results"]]
    assert points == [(t.cycles, t.dataflow, t.tiling.as_dict()) for t in front]
    (tmp_path / "front.json").write_text(found.stdout)
    last = found.json["results"][-1]
    refused = mas_sim("run", "--from", tmp_path / "front.json")
    assert (refused.returncode, "pick one (--pick) of" in refused.stderr) == (2, True)
    name = refused.stderr.split("pick one (--pick) of ")[1].strip().split(", ")[-1]
    again = mas_sim("run", "--from", tmp_path / "front.json", "--pick", name, "--json").json
    assert (again["cycles"], again["energy_pj"]) == (last["cycles"], last["energy_pj"])
    table = mas_sim(*arguments).stdout
    assert all(f"{trial.cycles:,}" in table for trial in front)
    assert max(map(len, table.splitlines())) <= 100


# --- what is written ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("--method", "random", "--budget", 5, "--energy", "high"),
        ("--dataflow", "all", "--objective", "edp"),
        ("--method", "all", "--budget", 5),
    ],
)
def test_does_run_from_reproduce_a_search_to_the_digit(
    arguments: tuple[str | int, ...], mas_sim: Run, tmp_path: Path
) -> None:
    found = mas_sim("search", *arguments, "--json")
    (tmp_path / "result.json").write_text(found.stdout)
    (tmp_path / "small.yaml").unlink()
    again = mas_sim("run", "--from", tmp_path / "result.json", "--json")
    assert (again.returncode, again.stderr) == (0, "")
    for key in ("cycles", "energy_pj", "tiling", "dataflow", "energy_level", "inputs"):
        assert again.json[key] == found.json[key]
    assert again.json["audit"] == "ok"


def test_does_the_history_hold_every_evaluation(mas_sim: Run, tmp_path: Path) -> None:
    path = tmp_path / "history.csv"
    arguments = ("search", "--method", "random", "--budget", 7, "--repeats", 2, "--seed", 4, "--json")
    found = mas_sim(*arguments, "--history", path)
    assert "wrote" in found.stderr
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["method", "seed", "evaluation", "index", "value", "best", "seconds"]
    assert [(row["seed"], int(row["evaluation"])) for row in rows] == [(s, k) for s in "45" for k in range(1, 8)]
    for seed, run in zip("45", found.json["methods"][0]["results"], strict=True):
        mine = [row for row in rows if row["seed"] == seed]
        assert float(mine[-1]["best"]) == min(float(row["value"]) for row in mine) == run["value"]


def test_is_convergence_drawn(mas_sim: Run, tmp_path: Path) -> None:
    done = mas_sim("search", "--method", "random", "--budget", 5, "--repeats", 2, "--plot", tmp_path / "figure")
    assert done.returncode == 0
    assert sorted(path.name for path in tmp_path.glob("figure*")) == ["figure.png", "figure.svg"]


# --- Ctrl-C ---------------------------------------------------------------------------------------------------------


def test_does_ctrl_c_leave_the_best_so_far(mas_sim: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RandomSearch.search

    def stop(self: RandomSearch, *args: Any, **kwargs: Any) -> Any:
        def progress(done: int, total: int) -> None:
            raise KeyboardInterrupt

        return run(self, *args, **{**kwargs, "progress": progress})

    monkeypatch.setattr(RandomSearch, "search", stop)
    arguments = ("search", "--method", "random", "--budget", 500)
    done = mas_sim(*arguments, "--json")
    assert done.returncode == 130
    facts = done.json["search"]
    assert (facts["stopped"], facts["evaluations"], facts["optimum"]) == ("interrupted", 64, None)
    table = mas_sim(*arguments)
    assert (table.returncode, "interrupted" in table.stdout, "best so far" in table.stderr) == (130, True, True)
    found = mas_sim("search", "--method", "all", "--budget", 70, "--json")
    assert found.returncode == 130
    assert [method["method"] for method in found.json["methods"]] == ["mcts", "genetic", "random"]
    assert found.json["search"]["stopped"] == "interrupted"


def test_does_ctrl_c_during_the_proof_leave_what_was_found(mas_sim: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*args: Any, **kwargs: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(ExhaustiveSearch, "search", stop)
    done = mas_sim("search", "--method", "random", "--budget", 5, "--json")
    assert (done.returncode, done.json["search"]["evaluations"], done.json["search"]["gap"]) == (130, 5, None)
    done = mas_sim("search")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


# --- what was given wrong -------------------------------------------------------------------------------------------

FAULTS: dict[tuple[str, ...], str] = {
    ("--method", "mtcs"): "did you mean 'mcts'?",
    ("--objective", "latencey"): "did you mean 'latency'?",
    ("--objective", "paretto"): "did you mean 'pareto'?",
    ("--objective", "weighted:2"): "must be in 0..1",
    ("--objective", "weighted:x"): "did you mean 'weighted'?",
    ("--dataflow", "flahs"): "did you mean 'flash'?",
    ("--arch", "mas_egde"): "did you mean 'mas_edge'?",
    ("--method", "mcts", "--budget", "0"): "--budget: must be positive (got 0)",
    ("--method", "mcts", "--seconds", "nan"): "--seconds: must be positive (got nan)",
    ("--gap", "-0.1"): "--gap: must be a share",
    ("--method", "mcts", "--gap", "0.1"): "--gap: is for exhaustive search only",
    ("--max-cycles", "-1"): "the limit of cycles must be a positive number",
    ("--max-energy-uj", "nan"): "the limit of energy_uj must be a positive number",
    ("--budget", "5"): "--budget: has no effect on exhaustive search",
    ("--history", "h.csv"): "--history: has no effect on exhaustive search",
    ("--plot", "p.svg"): "exhaustive search has no convergence",
    ("--objective", "pareto", "--max-cycles", "5"): "--max-cycles: has no effect on the front",
    ("--objective", "pareto", "--plot", "p.gif"): "must end in .svg",
}


@pytest.mark.parametrize("arguments", FAULTS)
def test_is_a_wrong_option_one_clear_message(arguments: tuple[str, ...], mas_sim: Run) -> None:
    done = mas_sim("search", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert FAULTS[arguments] in done.stderr
    assert "Traceback" not in done.stderr


def test_are_all_options_without_effect_named_at_once(mas_sim: Run) -> None:
    done = mas_sim("search", "--objective", "pareto", "--method", "mcts", "--seed", 0, "--gap", -1)
    for option in ("--method: has no effect", "--seed: has no effect", "--gap: must be a share"):
        assert option in done.stderr


def test_does_a_machine_too_small_end_in_one_message(mas_sim: Run, tmp_path: Path) -> None:
    machine = tmp_path / "tiny.yaml"
    machine.write_text(dump_yaml(load_arch("mas_edge").with_(**{"l1.capacity_kib": 0.25})))
    for method in ("exhaustive", "random"):
        done = mas_sim("search", "--arch", machine, "--method", method)
        assert (done.returncode, "does not fit L1, by" in done.stderr) == (2, True)


def test_does_tpe_without_optuna_name_what_to_install(mas_sim: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_cli_search.importlib.util, "find_spec", lambda name: None)
    done = mas_sim("search", "--method", "tpe", "--budget", 5)
    assert (done.returncode, "mas_sim[optuna]" in done.stderr) == (2, True)
    found = mas_sim("search", "--method", "all", "--budget", 5, "--json").json
    assert [method["method"] for method in found["methods"]] == list(SEARCHERS)


def test_is_every_dataflow_searched(mas_sim: Run) -> None:
    for dataflow in DATAFLOWS:
        assert mas_sim("search", "--dataflow", dataflow, "--json").json["dataflow"] == dataflow
