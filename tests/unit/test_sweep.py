"""Whether a sweep computes what is missing, once each, whatever happens to it on the way."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from cli_runner import Run
from hypothesis import given
from hypothesis import strategies as st
from sweep_files import SWEEP, write_sweep

from mas_sim._engines import KILLED, local_engine
from mas_sim._sweep_tables import duration
from mas_sim.dataflows import build_schedule
from mas_sim.errors import ConfigError, MasSimError
from mas_sim.results_frame import BESIDES
from mas_sim.search.base import SearchResult
from mas_sim.search.exhaustive import ExhaustiveSearch
from mas_sim.simulator import simulate
from mas_sim.store import STORE_NAME, Store, load_results
from mas_sim.sweep import TIMED_SECONDS, Estimate, SweepState, _waiting, estimate, run_sweep, spread
from mas_sim.sweep_file import Sweep, load_sweep
from mas_sim.sweep_point import Job, Outcome, run_point


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return load_sweep(write_sweep(tmp_path / "files"))


def results_of(folder: Path) -> pd.DataFrame:
    """Results without what differs from run to run."""
    return load_results(folder).drop(columns=list(BESIDES))


def run_into(folder: Path, sweep: Sweep, **options: Any) -> SweepState:
    return run_sweep(sweep, folder, **options)


# --- Are the results right, and the same whoever computes them? ---


def test_is_a_row_what_the_point_gives_by_itself(sweep: Sweep, tmp_path: Path) -> None:
    run_into(tmp_path, sweep)
    frame = load_results(tmp_path)
    for position in (0, 7, 17):
        job, row = sweep.point(position).job, frame.iloc[position]
        result = run_point(job).result
        assert result is not None
        assert (row["cycles"], row["total_pj"]) == (result["cycles"], result["energy_pj"]["total"])
        with Store.open(tmp_path, writes=False) as store:
            stored = store.result(job.key)
        assert {name: value for name, value in stored.items() if name != "inputs"} == result
    assert frame["proven_optimal"].all()
    assert (frame["cycles"] >= frame["lower_cycles"]).all()


def test_do_processes_give_the_same_rows_as_this_one(sweep: Sweep, tmp_path: Path) -> None:
    alone, two = run_into(tmp_path / "alone", sweep), run_into(tmp_path / "two", sweep, jobs=2)
    assert (alone.finished, two.finished) == (18, 18)
    pd.testing.assert_frame_equal(results_of(tmp_path / "alone"), results_of(tmp_path / "two"))


@pytest.mark.parametrize("method", ["mcts", "genetic", "random"])
def test_does_every_method_of_search_give_the_same_rows_again(method: str, tmp_path: Path) -> None:
    text = SWEEP.replace("{limit: 2}", f"{{method: {method}, evaluations: 12, seed: 5, objective: edp}}")
    sweep = load_sweep(write_sweep(tmp_path, text.replace("[16, 64, 5120]", "[64, 5120]")))
    for name in ("one", "two"):
        run_into(tmp_path / name, sweep)
    pd.testing.assert_frame_equal(results_of(tmp_path / "one"), results_of(tmp_path / "two"))
    assert set(load_results(tmp_path / "one")["objective"]) == {"edp"}


def test_does_overwriting_mas_overwrite(tmp_path: Path) -> None:
    sweep = load_sweep(write_sweep(tmp_path, SWEEP.replace("[flat, mas]", "[mas_overwrite]")))
    run_into(tmp_path, sweep)
    frame = load_results(tmp_path)
    done = frame[frame["status"] == "done"]
    assert set(done["dataflow"]) == {"mas_overwrite"}
    assert set(done["tiling.overwrite"]) <= {"v", "k"}
    assert len(done)


def test_is_what_is_compiled_loaded_before_the_clock_starts(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks: list[str] = []
    monkeypatch.setattr("mas_sim.sweep_point._warm_up", lambda: ticks.append("warm"))
    monkeypatch.setattr("mas_sim.sweep_point.time.perf_counter", lambda: ticks.append("clock") or 0.0)
    assert run_point(sweep.point(0).job).seconds == 0.0
    assert ticks[0] == "warm"
    assert "clock" in ticks


# --- Is only that done which is missing? ---


def test_does_a_second_run_compute_nothing(sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_into(tmp_path, sweep)
    before = (tmp_path / STORE_NAME).read_bytes()
    monkeypatch.setattr("mas_sim._engines.run_point", None)  # would fail if it were called
    state = run_into(tmp_path, sweep)
    assert (state.points, state.kept, state.finished, state.left) == (18, 18, 0, 0)
    assert len(before) == len((tmp_path / STORE_NAME).read_bytes())


def test_does_a_wider_sweep_compute_the_new_points_only(sweep: Sweep, tmp_path: Path) -> None:
    run_into(tmp_path, sweep)
    wider = load_sweep(write_sweep(tmp_path / "files", SWEEP.replace("[16, 64, 5120]", "[16, 64, 128, 5120]")))
    state = run_into(tmp_path, wider)
    assert (state.points, state.kept, state.finished) == (24, 18, 6)
    assert set(load_results(tmp_path)["status"]) == {"done"}
    assert len(load_results(tmp_path, sweep.id)) == 18


def test_is_what_another_sweep_finished_meanwhile_not_done_again(sweep: Sweep, tmp_path: Path) -> None:
    """Two sweeps into one store, in turns: while the first one is at work, the second one does it all."""
    states: list[SweepState] = []

    def others_turn(state: SweepState) -> None:
        states.append(state)
        if state.finished == 3:
            assert run_into(tmp_path, sweep).finished == 15

    state = run_into(tmp_path, sweep, progress=others_turn)
    assert (state.finished, state.kept, state.left) == (3, 15, 0)
    assert len(load_results(tmp_path)) == 18


# --- Does trouble with some points leave the others alone? ---


def test_are_points_without_a_result_rows_with_their_reason(tmp_path: Path) -> None:
    text = SWEEP.replace("[16, 64, 5120]", "[1, 5120]").replace("limit: 2", "limit: 2, max_cycles: 100")
    sweep = load_sweep(write_sweep(tmp_path, text))
    state = run_into(tmp_path, sweep)
    frame = load_results(tmp_path)
    assert frame["status"].tolist() == ["does_not_fit"] * 6 + ["over_limits"] * 6
    assert frame["over_bytes"][:6].min() > 0
    assert all("bytes" in reason for reason in frame["reason"][:6])
    assert all("limits" in reason for reason in frame["reason"][6:])
    assert (state.failed, state.left) == (0, 0)


def test_does_a_point_that_fails_not_stop_the_sweep_and_can_it_be_tried_again(
    sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ExhaustiveSearch.search

    def shaky(self: ExhaustiveSearch, space: Any, *args: Any, **options: Any) -> SearchResult:
        if space.dataflow == "mas" and space.arch.l1.capacity_kib == 16:
            raise MemoryError
        if space.dataflow == "mas" and space.arch.l1.capacity_kib == 64:
            raise ZeroDivisionError("division by zero")
        return whole(self, space, *args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(ExhaustiveSearch, "search", shaky)
        state = run_into(tmp_path, sweep)
    frame = load_results(tmp_path)
    failed = frame[frame["status"] == "failed"]
    assert (state.failed, len(failed)) == (6, 6)
    assert set(failed["reason"]) == {"out of memory", "ZeroDivisionError: division by zero"}
    assert run_into(tmp_path, sweep).finished == 0
    again = run_into(tmp_path, sweep, retry_failed=True)
    assert (again.kept, again.finished, again.failed) == (12, 6, 0)
    assert set(load_results(tmp_path)["status"]) == {"done"}


class Deadly:
    """Kills the process that unpickles it."""

    def __reduce__(self) -> Any:
        return os._exit, (9,)


def test_does_a_point_that_kills_its_process_fail_alone(sweep: Sweep) -> None:
    work = [sweep.point(position).job for position in range(6)]
    work[2] = Job(2, "deadly", Deadly(), work[2].workload, "mas", work[2].search)  # type: ignore[arg-type]
    with local_engine(2) as engine:
        found = {job.key: outcome for job, outcome in engine(work)}
    assert set(found) == {job.key for job in work}
    assert (found["deadly"].status, found["deadly"].reason) == ("failed", KILLED)
    assert {outcome.status for key, outcome in found.items() if key != "deadly"} == {"done"}


def test_does_stopping_it_keep_what_is_finished(sweep: Sweep, tmp_path: Path) -> None:
    def stop(state: SweepState) -> None:
        if state.finished == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_into(tmp_path, sweep, progress=stop)
    assert (load_results(tmp_path)["status"] == "done").sum() == 5
    assert run_into(tmp_path, sweep).finished == 13


def test_is_the_best_so_far_of_a_stopped_search_never_kept(
    sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mas_sim.search.evaluator.Simulator.results", stopped)
    with pytest.raises(KeyboardInterrupt):
        run_into(tmp_path, sweep)
    assert set(load_results(tmp_path)["status"]) == {"missing"}


def test_is_a_worker_with_another_model_refused(sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mas_sim.sweep_point.model_version", lambda: "0.0.9+deadbeef")
    with pytest.raises(MasSimError, match=r"0\.0\.9\+deadbeef.*Install the same version"):
        run_into(tmp_path, sweep)
    assert set(load_results(tmp_path)["status"]) == {"missing"}


# --- Does it say how far it is, and how long it will take? ---


def test_does_the_state_count_up_to_the_end(sweep: Sweep, tmp_path: Path) -> None:
    states: list[SweepState] = []
    run_into(tmp_path, sweep, progress=states.append)
    assert [state.finished for state in states] == list(range(19))
    assert states[0].remaining_seconds is None
    middle = states[9]
    assert middle.left == 9
    assert middle.remaining_seconds == pytest.approx(9 / middle.points_per_second)
    assert states[-1].left == 0


def test_does_an_estimate_keep_what_it_computed(sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mas_sim.sweep.MOST_TIMED", 4)
    assert estimate(sweep, jobs=2).missing == 18
    counts: list[int] = []
    with Store.open(tmp_path, create_missing=True) as store:
        first = estimate(sweep, store, progress=counts.append)
        done = len(store.finished(sweep.keys))
        assert 18 - first.missing == done == first.timed == 4
        assert counts == [0, 1, 2, 3]
        second = estimate(sweep, store, jobs=2)
        assert (second.missing, second.timed) == (first.missing, 0)
        assert second.seconds == pytest.approx(store.seconds_per_point(sweep.id) * second.missing / 2)  # type: ignore[operator]
        run_sweep(sweep, store)
        assert estimate(sweep, store).seconds == 0


def test_does_an_estimate_end_with_the_first_point_where_that_is_slow(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Outcome("", "done", seconds=TIMED_SECONDS + 1)
    monkeypatch.setattr("mas_sim.sweep.run_point", lambda job: slow)
    assert (estimate(sweep).timed, estimate(sweep).seconds_per_point) == (1, slow.seconds)


def test_is_what_one_process_does_for_all_counted_in_an_estimate() -> None:
    assert Estimate(100, 0.9, 5, 2, 0.1).seconds == pytest.approx(100 * 1.0 / 2)
    assert Estimate(100, 0.1, 5, 64, 0.1).seconds == pytest.approx(100 * 0.1)  # more processes would not help


@pytest.mark.parametrize("jobs", [0, -3])
def test_are_fewer_than_one_process_refused_before_anything_is_made(sweep: Sweep, tmp_path: Path, jobs: int) -> None:
    with pytest.raises(MasSimError, match="jobs must be at least 1"):
        run_sweep(sweep, tmp_path / "out", jobs=jobs)
    with pytest.raises(MasSimError, match="jobs must be at least 1"):
        estimate(sweep, jobs=jobs)
    assert not (tmp_path / "out").exists()


def test_does_an_address_without_a_scheduler_leave_no_folder(sweep: Sweep, tmp_path: Path) -> None:
    with pytest.raises(MasSimError, match="no Dask scheduler answers"):
        run_sweep(sweep, tmp_path / "out", dask="tcp://127.0.0.1:1")
    assert not (tmp_path / "out").exists()


def test_is_a_damaged_result_refused_before_anything_changes_and_computed_anew_if_asked(
    sweep: Sweep, tmp_path: Path
) -> None:
    run_into(tmp_path, sweep)
    whole, path = results_of(tmp_path), tmp_path / STORE_NAME
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE points SET result = replace(result, '1', '2') WHERE key = ?", (sweep.keys[3],))
    before = path.read_bytes()
    for act in (run_sweep, estimate):
        with Store.open(tmp_path) as store, pytest.raises(ConfigError, match=r"corrupt: 1 results(.|\n)*--resume"):
            act(sweep, store)
    assert path.read_bytes() == before
    state = run_into(tmp_path, sweep, retry_failed=True)
    assert (state.kept, state.finished) == (17, 1)
    pd.testing.assert_frame_equal(results_of(tmp_path), whole)


def test_does_a_finished_sweep_that_is_run_again_change_nothing(sweep: Sweep, tmp_path: Path) -> None:
    run_into(tmp_path, sweep)
    before = (tmp_path / STORE_NAME).read_bytes()
    run_into(tmp_path, sweep)
    assert (tmp_path / STORE_NAME).read_bytes() == before


@given(st.integers(0, 3000))
def test_is_every_point_run_once_and_any_part_spread_over_the_sweep(count: int) -> None:
    order = spread(count)
    assert sorted(order) == list(range(count))
    if count >= 64:
        first = sorted(order[: count // 8])
        gaps = [b - a for a, b in zip([0, *first], [*first, count], strict=True)]
        assert max(gaps) <= 3 * 8


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.1, "1 s"), (45, "45 s"), (119, "119 s"), (121, "2 min"), (7199, "2 h 0 min"), (9e4, "25 h 0 min")],
)
def test_are_times_written_as_people_do(seconds: float, words: str) -> None:
    assert duration(seconds) == words


# --- Does the command line do all that? ---


def test_can_a_sweep_be_run_read_exported_and_a_point_run_again(mas_sim: Run, tmp_path: Path) -> None:
    file, out = write_sweep(tmp_path), tmp_path / "out"
    done = mas_sim("sweep", file, "--dry-run")
    assert done.returncode == 0
    assert "18 points on mas_edge" in done.stderr
    assert "18 points to do, about" in done.stderr
    assert not out.exists()
    done = mas_sim("sweep", file, "--out", out, "--jobs", 1)
    assert done.returncode == 0, done.stderr
    assert "18 points: 18 done" in done.stderr
    assert done.width <= 100
    assert mas_sim("sweep", file, "--out", out, "--resume").stderr.count("nothing is missing") == 1
    csv = tmp_path / "r.csv"
    assert mas_sim("results", out, "--csv", csv, "--parquet", tmp_path / "r.parquet").returncode == 0
    assert len(pd.read_csv(csv)) == len(pd.read_parquet(tmp_path / "r.parquet")) == 18
    rows = mas_sim("results", out, "--json").json
    assert (rows["name"], len(rows["results"])) == ("small", 18)
    shown = mas_sim("results", out)
    assert "mas" in shown.stdout
    assert shown.width <= 100
    result = tmp_path / "result.json"
    result.write_text(mas_sim("results", out, "--key", rows["results"][4]["key"][:8]).stdout)
    again = mas_sim("run", "--from", result, "--json")
    assert again.returncode == 0, again.stderr
    assert again.json["cycles"] == rows["results"][4]["cycles"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["{file}"], "--out is required"),
        (["{file}", "--out", "{out}", "--jobs", "2", "--dask", "tcp://127.0.0.1:1"], "--jobs is for processes"),
        (["{file}", "--out", "{out}", "--resume"], "no results here"),
        (["{file}", "--out", "{file}"], "not an SQLite database"),
        (["nowhere.yaml", "--out", "{out}"], "no such file"),
        (["l1_sise", "--out", "{out}"], "did you mean 'l1_size'"),
    ],
)
def test_is_what_makes_no_sense_refused(mas_sim: Run, tmp_path: Path, arguments: list[str], says: str) -> None:
    file, out = write_sweep(tmp_path), tmp_path / "out"
    done = mas_sim("sweep", *(part.format(file=file, out=out) for part in arguments))
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not out.exists()


def test_does_resume_refuse_what_is_not_there_yet(mas_sim: Run, tmp_path: Path) -> None:
    run_into(tmp_path / "out", load_sweep(write_sweep(tmp_path)))
    other = write_sweep(tmp_path, SWEEP.replace("limit: 2", "limit: 3"), "other.yaml")
    done = mas_sim("sweep", other, "--out", tmp_path / "out", "--resume")
    assert done.returncode == 2
    assert "holds nothing of small as it is now" in done.stderr


def test_do_failed_points_make_it_exit_with_1_and_their_reasons(
    mas_sim: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("division by zero")

    file, out = write_sweep(tmp_path), tmp_path / "out"
    with monkeypatch.context() as patched:
        patched.setattr(ExhaustiveSearch, "search", broken)
        done = mas_sim("sweep", file, "--out", out, "--jobs", 1)
    assert done.returncode == 1
    assert "18 failed" in done.stderr
    assert "ZeroDivisionError: division by zero" in done.stderr
    assert "nothing is missing" in mas_sim("sweep", file, "--out", out, "--jobs", 1).stderr
    again = mas_sim("sweep", file, "--out", out, "--jobs", 1, "--resume")
    assert (again.returncode, "18 points to do" in again.stderr) == (0, True)


def test_do_two_runs_begin_at_different_points(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = []
    for pid in (1000, 1001):
        monkeypatch.setattr("mas_sim.sweep.os.getpid", lambda pid=pid: pid)
        orders.append(_waiting(sweep, set()))
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(len(sweep)))
    assert orders[0][: len(sweep) // 4] != orders[1][: len(sweep) // 4]


def test_is_ctrl_c_a_clear_end(mas_sim: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mas_sim._cli_sweep.run_sweep", stop)
    done = mas_sim("sweep", write_sweep(tmp_path), "--out", tmp_path / "out", "--jobs", 1)
    assert done.returncode == 130
    assert "points are finished and kept" in done.stderr
    assert "the same command goes on" in done.stderr


def test_is_an_unknown_sweep_or_file_type_refused(mas_sim: Run, tmp_path: Path) -> None:
    run_into(tmp_path, load_sweep(write_sweep(tmp_path)))
    assert "did you mean 'small'" in mas_sim("results", tmp_path, "--sweep", "smal").stderr
    done = mas_sim("results", tmp_path, "--csv", tmp_path / "r.txt")
    assert (done.returncode, list(tmp_path.glob("r.*"))) == (2, [])
    assert "must end in .csv" in done.stderr


def test_is_a_stored_schedule_still_there_to_be_drawn(sweep: Sweep) -> None:
    """A point's job and its tiling are all it takes to build the schedule behind a row."""
    job = sweep.point(4).job
    outcome = run_point(job)
    assert outcome.result is not None
    from mas_sim.tiling import Tiling

    schedule = build_schedule(job.dataflow, job.arch, job.workload, Tiling(**outcome.result["tiling"]))
    assert simulate(schedule).cycles == outcome.result["cycles"]
