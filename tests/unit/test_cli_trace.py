"""Whether `mas-sim trace` and the writer of trace files do what they promise, whatever happens meanwhile."""

import errno
import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from builders import edge, small_workload
from cli_runner import Run

from mas_sim import perfetto
from mas_sim.config import dump_yaml
from mas_sim.dataflows import DATAFLOWS, build_schedule
from mas_sim.errors import ConfigError, MasSimError
from mas_sim.perfetto import write_trace
from mas_sim.schedule import Schedule
from mas_sim.simulator import simulate
from mas_sim.tiling import Tiling
from mas_sim.timeline import Timeline
from mas_sim.trace_events import trace_events

TILES = ("--q-tile", 16, "--kv-tile", 16)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Write a workload that is simulated at once."""
    path = tmp_path / "small.yaml"
    path.write_text(dump_yaml(small_workload(heads=4, n_q=48, n_kv=48, dtype="fp16")), encoding="utf-8")
    return path


def case() -> tuple[Schedule, Timeline]:
    """Run a small schedule on two cores."""
    schedule = build_schedule("mas", edge(), small_workload(heads=4, n_q=48, n_kv=48), Tiling(q_tile=16, kv_tile=16))
    return schedule, simulate(schedule)


def rows_of(path: Path) -> list[int]:
    """List the instructions on the cores' tracks of a trace file."""
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    return [event["args"]["instruction"] for event in events if event["ph"] == "X" and "op" in event["args"]]


# --- the writer ---


def test_is_a_trace_file_the_same_json_each_time(tmp_path: Path) -> None:
    schedule, timeline = case()
    for name in ("one.json", "two.json"):
        written = write_trace(schedule, timeline, tmp_path / name)
    text = (tmp_path / "one.json").read_bytes()
    assert text == (tmp_path / "two.json").read_bytes()
    trace = json.loads(text)
    events = trace["traceEvents"]
    assert events == list(trace_events(schedule, timeline))
    assert text.count(b"\n") == len(events) + 2  # one event a line
    assert trace["otherData"]["cycles"] == timeline.cycles
    assert trace["otherData"]["shown"] == {"core": None, "first_cycle": 0, "last_cycle": None, "flows": True}
    assert Tiling(**trace["otherData"]["tiling"]) == schedule.tiling
    assert written.path == tmp_path / "two.json"
    phases = [event["ph"] for event in events]
    counts = written.events, written.slices, written.flows
    assert counts == (len(events), phases.count("X"), phases.count("s"))
    assert written.flows == phases.count("f") > 0


def test_is_a_compressed_trace_the_plain_one_and_the_same_bytes_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule, timeline = case()
    monkeypatch.setattr(perfetto, "BUFFER_BYTES", 1000)  # written in many pieces
    for name in ("plain.json", "one.json.gz", "two.json.gz"):
        write_trace(schedule, timeline, tmp_path / name)
    packed = (tmp_path / "one.json.gz").read_bytes()
    assert packed == (tmp_path / "two.json.gz").read_bytes()
    assert packed[4:8] == b"\0\0\0\0"  # no time
    plain = (tmp_path / "plain.json").read_bytes()
    assert gzip.decompress(packed) == plain
    assert len(packed) < len(plain) / 5


@pytest.mark.parametrize(
    ("error", "raised"),
    [(OSError(errno.ENOSPC, "No space left on device"), ConfigError), (KeyboardInterrupt(), KeyboardInterrupt)],
)
def test_does_an_older_file_survive_a_write_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, raised: type[BaseException]
) -> None:
    schedule, timeline = case()
    path = tmp_path / "trace.json"
    path.write_text("older", encoding="utf-8")

    def fail(_: int) -> None:
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(raised):
        write_trace(schedule, timeline, path)
    assert path.read_text(encoding="utf-8") == "older"
    assert os.listdir(tmp_path) == ["trace.json"]


def test_is_what_a_link_leads_to_replaced_and_not_the_link(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("older", encoding="utf-8")
    link = tmp_path / "link.json"
    link.symlink_to("real.json")
    write_trace(*case(), link)
    assert link.is_symlink()
    assert json.loads((tmp_path / "real.json").read_text(encoding="utf-8"))["traceEvents"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_is_a_device_written_to_and_left_in_its_place() -> None:
    schedule, timeline = case()
    with pytest.raises(ConfigError, match="/dev/full: cannot be written: No space left on device"):
        write_trace(schedule, timeline, "/dev/full")
    assert Path("/dev/full").is_char_device()


@pytest.mark.parametrize(("name", "why"), [("absent/trace.json", "No such file"), (".", "Is a directory")])
def test_is_a_file_that_cannot_be_written_an_error_of_ours(tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"cannot be written: {why}"):
        write_trace(*case(), tmp_path / name)


def test_does_a_view_of_nothing_leave_an_older_file(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text("older", encoding="utf-8")
    with pytest.raises(MasSimError, match="nothing is there"):
        write_trace(*case(), path, first_cycle=10**9)
    assert path.read_text(encoding="utf-8") == "older"


# --- the command ---


@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_does_the_command_write_what_run_would_run(mas_sim: Run, small: Path, tmp_path: Path, dataflow: str) -> None:
    arguments = ("--workload", small, "--dataflow", dataflow, *TILES)
    done = mas_sim("trace", *arguments, "-o", tmp_path / "trace.json")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    trace = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))
    events = trace["traceEvents"]
    slices, flows = (sum(event["ph"] == phase for event in events) for phase in "Xs")
    assert f"wrote {tmp_path}/trace.json: {len(events):,} events, {slices:,} slices, {flows:,} flows\n" in done.stderr
    assert 'open it at https://ui.perfetto.dev ("Open trace file")' in done.stderr
    ran = mas_sim("run", *arguments, "--json", "--trace", tmp_path / "same.json")
    assert trace["otherData"]["cycles"] == ran.json["cycles"]
    assert (tmp_path / "same.json").read_bytes() == (tmp_path / "trace.json").read_bytes()
    assert f"wrote {tmp_path}/same.json: {len(events):,} events" in ran.stderr


def test_do_all_options_reach_the_trace(mas_sim: Run, small: Path, tmp_path: Path) -> None:
    arguments: tuple[Any, ...] = ("trace", "--workload", small, *TILES, "--overwrite", "none", "--core-split", "items")
    whole, part = tmp_path / "whole.json", tmp_path / "part.json.gz"
    assert mas_sim(*arguments, "--out", whole).returncode == 0
    view = ("--core", 1, "--from-cycle", 2000, "--to-cycle", 4000, "--no-flows")
    done = mas_sim(*arguments, *view, "--out", part)
    assert done.returncode == 0, done.stderr
    assert ", 0 flows\n" in done.stderr
    shown = json.loads(gzip.decompress(part.read_bytes()))
    assert shown["otherData"]["tiling"]["core_split"] == "items"
    assert shown["otherData"]["shown"] == {"core": 1, "first_cycle": 2000, "last_cycle": 4000, "flows": False}
    rows = {event["args"]["instruction"] for event in shown["traceEvents"] if event["ph"] == "X"}
    assert set() < rows < set(rows_of(whole))
    assert {event["args"]["core"] for event in shown["traceEvents"] if event["ph"] == "X"} == {1}


def test_does_the_command_search_without_a_tiling(mas_sim: Run, small: Path, tmp_path: Path) -> None:
    done = mas_sim("trace", "--workload", small, "--dataflow", "flat", "-o", tmp_path / "best.json")
    assert done.returncode == 0, done.stderr
    best = mas_sim("run", "--workload", small, "--dataflow", "flat", "--json").json
    trace = json.loads((tmp_path / "best.json").read_text(encoding="utf-8"))
    assert trace["otherData"]["tiling"] == best["tiling"]


def test_can_a_result_be_traced_from_its_file_alone(mas_sim: Run, small: Path, tmp_path: Path) -> None:
    result, out = tmp_path / "result.json", tmp_path / "trace.json"
    result.write_text(mas_sim("run", "--workload", small, *TILES, "--json").stdout, encoding="utf-8")
    small.unlink()
    done = mas_sim("trace", "--from", result, "-o", out, "--core", 0, "--from-cycle", 5, "--to-cycle", 900)
    assert done.returncode == 0, done.stderr
    assert rows_of(out)
    done = mas_sim("trace", "--from", result, "-o", out, "--q-tile", 8)
    assert done.returncode == 2
    assert "--from: the file says what is run, so these cannot be given: --q-tile" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        (("-o", "t.svg"), ["--out: must end in .json or .json.gz (got 't.svg')"]),
        (("-o", "absent/t.json"), ["--out: must be in a folder that exists (got 'absent/t.json')"]),
        ((), ["Missing option '--out' / '-o'"]),
        (("-o", "t.json", "--dataflow", "flatt"), ["did you mean 'flat'?"]),
        (("-o", "t.json", "--pick", "a/b"), ["--pick: is for --from only"]),
        (
            ("-o", "t.json", "--core", 2, "--from-cycle", 10**9, "--to-cycle", 5),
            [
                "--core: must be 0 to 1, a core of mas_edge (got 2)",
                "--from-cycle: must be 0 to ",
                "--to-cycle: must be more than --from-cycle, 1,000,000,000 (got 5)",
            ],
        ),
    ],
)
def test_is_a_bad_argument_one_clear_message_and_exit_code_2(
    mas_sim: Run, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[Any, ...], messages: list[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    done = mas_sim("trace", "--workload", small, *TILES, *arguments)
    assert done.returncode == 2
    assert all(message in done.stderr for message in messages), done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(os.listdir(tmp_path)) == ["small.yaml"]


def test_does_a_file_of_many_events_come_with_advice(
    mas_sim: Run, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mas_sim._cli_trace.MANY_EVENTS", 100)
    done = mas_sim("trace", "--workload", small, *TILES, "-o", tmp_path / "t.json")
    assert "note: so many events open slowly; --from-cycle, --to-cycle" in done.stderr
