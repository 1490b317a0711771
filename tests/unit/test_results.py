"""Does a result's file hold all that it takes to run it again, and is one that does not refused in full?"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mas_sim import results
from mas_sim.arch import load_arch
from mas_sim.cli import main
from mas_sim.config import dump_yaml
from mas_sim.dataflows import DATAFLOWS
from mas_sim.errors import ConfigError
from mas_sim.report import make_report
from mas_sim.results import load_result, result_names, sealed, share_inputs
from mas_sim.tiling import Tiling
from mas_sim.workload import Workload

SMALL = Workload(name="small", heads=2, n_q=40, n_kv=48, head_dim_qk=16, head_dim_v=16, mask="causal")
ARCH = load_arch("mas_edge").with_(**{"l1.capacity_kib": 64.5, "name": "mine"})

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def mas_sim(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line's entry point in this process."""

    def run(*arguments: str | int | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["mas-sim", *map(str, arguments)])
        code: Any = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    return run


def result(dataflow: str = "mas", **choices: Any) -> dict[str, Any]:
    """A result as JSON gives it back."""
    report = make_report(
        dataflow, ARCH, SMALL, Tiling(q_tile=16, kv_tile=16, **choices), energy_level="high", check=False
    )
    data: dict[str, Any] = json.loads(json.dumps(report.as_dict()))
    return data


def written(folder: Path, data: object) -> Path:
    path = folder / "result.json"
    path.write_text(json.dumps(data, indent=2))
    return path


def faults(path: Path, pick: str | None = None) -> str:
    """What a file is refused with."""
    with pytest.raises(ConfigError) as refused:
        load_result(path, pick)
    return str(refused.value)


@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_does_a_file_give_back_what_was_run(dataflow: str, tmp_path: Path) -> None:
    data = result(dataflow)
    stored = load_result(written(tmp_path, data))
    assert (stored.arch, stored.workload, stored.dataflow) == (ARCH, SMALL, dataflow)
    assert stored.tiling.as_dict() == data["tiling"]
    assert (stored.energy_level, stored.objective) == ("high", None)
    again = make_report(
        stored.dataflow, stored.arch, stored.workload, stored.tiling, energy_level=stored.energy_level, check=False
    )
    assert (again.cycles, again.energy.total) == (stored.cycles, stored.energy_pj)
    assert (stored.cycles, stored.energy_pj) == (data["cycles"], data["energy_pj"]["total"])


def test_is_the_energy_table_that_of_the_file(tmp_path: Path) -> None:
    table = ARCH.energy_table.with_(**{"leakage.mw_per_mib": 7.25, "name": "odd"})
    arch = ARCH.with_(energy="gone.yaml")
    arch._energy_table = table
    report = make_report("flat", arch, SMALL, Tiling(q_tile=16, kv_tile=16), check=False)
    assert load_result(written(tmp_path, report.as_dict())).arch.energy_table == table


EDITS: dict[str, tuple[tuple[str | int, ...], Any, str]] = {
    "cycles": (("cycles",), 12, "made_by.result_hash: is not the hash"),
    "energy": (("energy_pj", "total"), 1.5, "made_by.result_hash"),
    "tiling": (("tiling", "q_tile"), 8, "the result (dataflow, tiling, cycles, energy, ...) was changed"),
    "dataflow": (("dataflow",), "flat", "made_by.result_hash"),
    "level": (("energy_level",), "low", "made_by.result_hash"),
    "machine": (("inputs", "arch", "cores"), 1, "made_by.arch_hash: is not the hash"),
    "table": (("inputs", "energy_table", "leakage", "mw_per_mib"), 6.5, "the machine and its energy table was changed"),
    "workload": (("inputs", "workload", "n_kv"), 56, "made_by.workload_hash"),
    "unknown dataflow": (("dataflow",), "flatt", "did you mean 'flat'?"),
    "tiling's word": (("tiling", "core_split"), "itms", "did you mean 'items'?"),
    "tiling's size": (("tiling", "q_tile"), 0, "q_tile must be a whole number"),
    "tiling's unknown field": (("tiling", "r_tile"), 1, "'r_tile' is no field of a tiling"),
    "level's name": (("energy_level",), "hihg", "did you mean 'high'?"),
    "machine's key": (("inputs", "arch", "corez"), 1, "inputs.arch.corez: unknown key"),
    "machine's DRAM": (("inputs", "arch", "dram", "kind"), "lpddr9", "must be a kind of DRAM"),
    "workload's size": (("inputs", "workload", "heads"), -2, "inputs.workload.heads: must be at least 1"),
    "cycles' type": (("cycles",), "many", "cycles: must be an integer"),
    "inputs": (("inputs",), None, "it has no inputs"),
    "made by": (("made_by",), [], "it has no made_by"),
}


@pytest.mark.parametrize("name", EDITS)
def test_is_an_edited_file_refused(name: str, tmp_path: Path) -> None:
    path, value, rule = EDITS[name]
    data = result()
    place: Any = data
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert rule in faults(written(tmp_path, data))


def test_are_all_faults_named_at_once_with_their_lines(tmp_path: Path) -> None:
    data = result()
    data["cycles"], data["dataflow"], data["inputs"]["arch"]["cores"] = -1, "nope", "two"
    del data["tiling"]["q_tile"]
    path = written(tmp_path, data)
    said, lines = faults(path), path.read_text().splitlines()
    for field in ("cycles", "dataflow", "tiling"):
        number = next(k for k, line in enumerate(lines, 1) if line.startswith(f'  "{field}"'))
        assert f"{path}:{number}: {field}: " in said
    number = next(k for k, line in enumerate(lines, 1) if '"cores"' in line)
    assert f"{path}:{number}: inputs.arch.cores: must be an integer" in said
    assert "q_tile is missing" in said


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"", "is not valid JSON"),
        (b"name: bert\n", "is not valid JSON"),
        (b'{"cycles": 1', ":1: is not valid JSON"),
        (b"[1, 2]", "must hold an object"),
        (b"{}", "it has no inputs and no made_by"),
        (b"\xff\xfe", "is not UTF-8 text"),
        (b'{"a": NaN}', "NaN is no number"),
        (b'{"a": ' + b"9" * 5000 + b"}", "absurdly long"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' + b"[" * 80 + b"]" * 80 + b"}", "nested more than"),
        (b'{\n"a": 1,\n"a": 2}', ":3: a: duplicate key, first set on line 2"),
        (b'{"results": []}', "at least one result"),
        (b'{"results": 3}', "at least one result"),
        (b'{"results": [{"inputs": 1}]}', "it has no inputs and no made_by"),
    ],
)
def test_is_a_foreign_or_broken_file_refused(content: bytes, rule: str, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_bytes(content)
    assert rule in faults(path)


def test_is_a_missing_file_or_a_folder_refused(tmp_path: Path) -> None:
    assert "no such file" in faults(tmp_path / "gone.json")
    assert "is not a regular file" in faults(tmp_path)


def test_must_one_of_several_results_be_picked(tmp_path: Path) -> None:
    auto, misfit = {**result("flash"), "chosen_by": "auto"}, {"workload": "long", "dataflow": "mas", "fits": False}
    several = {"results": [misfit, result("mas"), result("flat"), auto, result("mas", q_buffers=1)]}
    path = written(tmp_path, several)
    assert "pick one (--pick) of small/mas, small/flat, small/auto, small/mas#2" in faults(path)
    assert "did you mean 'small/flat'?" in faults(path, "small/falt")
    assert load_result(path, "small/auto").dataflow == "flash"
    assert load_result(path, "small/mas#2").tiling.q_buffers == 1
    assert "nothing to pick" in faults(written(tmp_path, result()), "small/mas")
    assert result_names([1, misfit]) == ["", ""]


def test_does_a_single_result_of_a_list_need_no_pick(tmp_path: Path) -> None:
    assert load_result(written(tmp_path, {"results": [result("flat")]})).dataflow == "flat"


# --- run --from ---------------------------------------------------------------------------------------------------


def test_does_run_from_give_the_same_to_the_digit_without_the_files_it_came_from(mas_sim: Run, tmp_path: Path) -> None:
    machine, shape, stored = tmp_path / "a.yaml", tmp_path / "w.yaml", tmp_path / "r.json"
    machine.write_text(dump_yaml(ARCH))
    shape.write_text(dump_yaml(SMALL))
    code, out, _ = mas_sim(
        "run", "--arch", machine, "--workload", shape, "--dataflow", "flat", "--energy", "low", "--seed", 3, "--json"
    )
    assert code == 0
    stored.write_text(out)
    machine.unlink()
    shape.unlink()
    code, again, err = mas_sim("run", "--from", stored, "--json")
    assert (code, err) == (0, "")
    old, new = json.loads(out), json.loads(again)
    for key in ("cycles", "energy_pj", "tiling", "energy_level", "inputs", "execute_max_abs_error", "seed"):
        assert old[key] == new[key]
    other = json.loads(mas_sim("run", "--from", stored, "--json", "--seed", 8)[1])
    assert (other["seed"], other["cycles"]) == (8, old["cycles"])
    code, table, _ = mas_sim("run", "--from", stored)
    assert (code, f"{old['cycles']:,}" in table) == (0, True)


def test_is_a_result_picked_out_of_a_comparison(mas_sim: Run, tmp_path: Path) -> None:
    shape, stored = tmp_path / "w.yaml", tmp_path / "r.json"
    shape.write_text(dump_yaml(SMALL))
    stored.write_text(mas_sim("compare", "--workload", shape, "--dataflow", "flat,mas", "--json")[1])
    code, out, _ = mas_sim("run", "--from", stored, "--pick", "small/flat", "--json")
    assert code == 0
    assert json.loads(out)["cycles"] == json.loads(stored.read_text())["results"][0]["cycles"]
    code, out, err = mas_sim("run", "--from", stored)
    assert (code, out) == (2, "")
    assert "small/flat, small/mas" in err


def test_is_a_file_of_another_version_named_as_such(
    mas_sim: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "package_version", lambda: "0.0.7")
    data = result()
    monkeypatch.undo()
    code, _, err = mas_sim("run", "--from", written(tmp_path, data))
    assert (code, err.startswith("note: made by version 0.0.7; this is ")) == (0, True)
    data["inputs"]["arch"]["cores"] = 1
    code, out, err = mas_sim("run", "--from", written(tmp_path, data))
    assert (code, out) == (2, "")
    assert "was made by another version than this" in err


def test_is_a_result_that_comes_out_otherwise_an_error(mas_sim: Run, tmp_path: Path) -> None:
    data = result()
    data["cycles"] += 1
    data = sealed(data, ARCH, SMALL)  # as if another model of time had written it
    code, out, err = mas_sim("run", "--from", written(tmp_path, data))
    assert code == 1
    assert f"{data['cycles'] - 1:,}" in out
    assert "error: not reproduced" in err


@pytest.mark.parametrize("option", [("--arch", "mas_edge"), ("--q-tile", "8"), ("--energy", "low")])
def test_are_options_that_the_file_answers_refused(option: tuple[str, str], mas_sim: Run, tmp_path: Path) -> None:
    code, out, err = mas_sim("run", "--from", written(tmp_path, result()), *option)
    assert (code, out) == (2, "")
    assert f"these cannot be given: {option[0]}" in err
    assert mas_sim("run", "--pick", "a/b")[0] == 2


# --- May several results share their inputs? ---


def test_is_a_result_with_shared_inputs_the_same_result(tmp_path: Path) -> None:
    alone = [result("mas"), result("flash"), result("mas", score_buffers=3) | {"place": {"cores": 2, "x.y": 1.5}}]
    data = share_inputs(alone)
    assert {kind: len(found) for kind, found in data["shared_inputs"].items()} == {
        "arch": 1, "energy_table": 1, "workload": 1,
    }  # fmt: skip
    path = written(tmp_path, data)
    assert result_names(data["results"]) == ["small/mas", "small/flash", "small/mas@cores=2,x.y=1.5"]
    for at, name in enumerate(result_names(data["results"])):
        (tmp_path / "one").mkdir(exist_ok=True)
        assert load_result(path, name) == load_result(written(tmp_path / "one", alone[at]))
    assert len(path.read_bytes()) < 0.7 * sum(len(json.dumps(one, indent=2)) for one in alone)


@pytest.mark.parametrize("broken", ["gone", "changed", "no object"])
def test_are_shared_inputs_that_are_not_what_was_written_refused(tmp_path: Path, broken: str) -> None:
    data = share_inputs([result("mas"), result("flash")])
    machines = data["shared_inputs"]["arch"]
    (digest,) = machines
    if broken == "gone":
        machines["000000000000"] = machines.pop(digest)
    elif broken == "changed":
        machines[digest]["clock_ghz"] = 9.0
    else:
        data["shared_inputs"]["arch"] = 3
    says = "arch_hash" if broken == "changed" else "inputs.arch"
    assert says in faults(written(tmp_path, data), "small/mas")


def test_are_many_results_not_all_listed(tmp_path: Path) -> None:
    data = share_inputs([result("mas") | {"place": {"n": n}} for n in range(60)])
    told = faults(written(tmp_path, data), "small/mas@n=77")
    assert "... (60)" in told
    assert "n=40" not in told
