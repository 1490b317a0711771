"""Whether the results store keeps all that is finished, once, and refuses what is not one without touching it."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from sweep_files import SWEEP, write_sweep

from mas_sim import _store_file
from mas_sim._store_file import StoreError
from mas_sim.errors import ConfigError, MasSimError
from mas_sim.report import make_report
from mas_sim.results import load_result
from mas_sim.results_frame import RESULT_COLUMNS, _facts, export
from mas_sim.store import STORE_NAME, Store, chosen_sweep, load_results, store_path
from mas_sim.sweep import run_sweep
from mas_sim.sweep_file import Sweep, load_sweep
from mas_sim.sweep_point import Outcome, run_point


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return load_sweep(write_sweep(tmp_path_factory.mktemp("sweep")))


@pytest.fixture(scope="module")
def finished(sweep: Sweep, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the whole sweep's results; tests only read it."""
    folder = tmp_path_factory.mktemp("finished")
    with Store.open(folder, create_missing=True) as store:
        run_sweep(sweep, store)
    return folder


@pytest.fixture
def store(tmp_path: Path, sweep: Sweep) -> Iterator[Store]:
    with Store.open(tmp_path, create_missing=True) as opened:
        opened.begin(sweep)
        yield opened


def everything(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, by name."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# --- Is what is not a whole store refused, and left as it is? ---


def foreign_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE mine (precious TEXT)")
        connection.commit()


def of_a_later_layout(path: Path) -> None:
    _store_file.create(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")


def damaged(path: Path, source: Path) -> None:
    data = bytearray((source / STORE_NAME).read_bytes())
    middle = len(data) // 2
    data[middle : middle + 4096] = b"\xa5" * 4096
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("text", "not an SQLite database"),
        ("empty", "not an SQLite database"),
        ("foreign", "another application"),
        ("later", "layout 99"),
        ("cut", "corrupt"),
        ("damaged", "corrupt"),
        ("header only", "corrupt"),
    ],
)
def test_is_what_is_not_a_whole_store_refused_untouched(tmp_path: Path, finished: Path, kind: str, says: str) -> None:
    path = tmp_path / STORE_NAME
    whole = (finished / STORE_NAME).read_bytes()
    if kind in ("text", "empty"):
        path.write_text("my thesis\n" * 50 if kind == "text" else "")
    elif kind == "foreign":
        foreign_database(path)
    elif kind == "later":
        of_a_later_layout(path)
    elif kind == "damaged":
        damaged(path, finished)
    else:
        path.write_bytes(whole[: 100 if kind == "header only" else len(whole) // 2])
    before = everything(tmp_path)
    for create_missing, writes in ((True, True), (False, False)):
        with pytest.raises(ConfigError, match=says):
            Store.open(tmp_path, create_missing=create_missing, writes=writes)
    assert everything(tmp_path) == before


def test_is_a_missing_store_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there are no results here"):
        load_results(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_does_a_store_that_cannot_be_made_leave_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="cannot be made"):
        Store.open(tmp_path / "file" / "folder", create_missing=True)
    assert everything(tmp_path) == {"file": b"x"}


def test_does_whoever_makes_a_store_second_take_the_first(tmp_path: Path, sweep: Sweep) -> None:
    path = tmp_path / STORE_NAME
    with Store.open(path, create_missing=True) as one:
        one.begin(sweep)
    _store_file.create(path)  # as if both had found nothing there
    with Store.open(path) as two:
        assert len(two.sweeps()) == 1
    assert [file.name for file in tmp_path.iterdir()] == [STORE_NAME]


def test_is_it_one_file_when_nobody_has_it_open(finished: Path) -> None:
    load_results(finished)
    assert [file.name for file in finished.iterdir()] == [STORE_NAME]


def test_can_it_be_read_where_nothing_can_be_written(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = load_results(finished)
    monkeypatch.setattr("mas_sim._store_file.os.access", lambda *_: False)
    before = everything(finished)
    pd.testing.assert_frame_equal(load_results(finished), whole)
    assert everything(finished) == before


def test_is_a_result_that_was_damaged_inside_refused(finished: Path, tmp_path: Path) -> None:
    """A changed digit is no fault to SQLite."""
    path = tmp_path / STORE_NAME
    data = (finished / STORE_NAME).read_bytes()
    place = data.index(b'"cycles": ') + 10
    path.write_bytes(data[:place] + (b"1" if data[place : place + 1] != b"1" else b"2") + data[place + 1 :])
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="is corrupt: the result of point"):
        load_results(tmp_path)
    assert path.read_bytes() == before


def test_are_rows_that_wait_in_the_log_read_where_nothing_can_be_written(
    sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(tmp_path, create_missing=True) as store:  # still at work: its rows are in the log
        run_sweep(sweep, store)
        monkeypatch.setattr("mas_sim._store_file.os.access", lambda *_: False)
        assert (load_results(tmp_path)["status"] == "done").sum() == len(sweep)


@pytest.mark.parametrize(
    ("name", "file"), [("v1.5", "v1.5/results.sqlite"), ("r.sqlite", "r.sqlite"), ("r.db", "r.db")]
)
def test_is_a_folder_taken_for_a_folder_whatever_its_name(tmp_path: Path, name: str, file: str) -> None:
    assert store_path(tmp_path / name) == tmp_path / file


# --- Is each finished point there once, and stays? ---


def test_is_a_point_written_once_and_a_failed_one_mended(store: Store, sweep: Sweep) -> None:
    job = sweep.point(3).job
    failed = Outcome(job.key, "failed", "out of memory", seconds=1.0, model_version="m")
    done = replace(run_point(job), seconds=2.0)
    assert store.write(job, failed)
    assert store.write(job, replace(failed, reason="another"))
    assert next(row["reason"] for row in store.rows(sweep.id) if row["key"] == job.key) == "another"
    assert store.finished(sweep.keys) == {job.key}
    assert store.finished(sweep.keys, failed=False) == set()
    assert store.write(job, done)
    assert not store.write(job, failed)
    assert not store.write(job, replace(done, seconds=3.0))
    rows = [row for row in store.rows(sweep.id) if row["status"] != "missing"]
    assert [(row["position"], row["status"], row["seconds"]) for row in rows] == [(3, "done", 2.0)]


def test_does_a_full_disk_lose_nothing_that_was_finished(store: Store, sweep: Sweep) -> None:
    outcome = run_point(sweep.point(0).job)
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages + 4}")  # what SQLite meets when a disk is full
    written = []

    def write_all() -> None:
        for position in range(len(sweep)):
            job = sweep.point(position).job
            store.write(job, replace(outcome, key=job.key))
            written.append(job.key)

    with pytest.raises(StoreError, match="the disk is full; what was finished before is kept"):
        write_all()
    assert 0 < len(written) < len(sweep)
    assert store.finished(sweep.keys) == set(written)
    store._connection.execute("PRAGMA max_page_count = 1000000")  # there is room again
    job = sweep.point(len(written)).job
    assert store.write(job, outcome)


def test_can_another_read_while_it_is_written(sweep: Sweep, tmp_path: Path) -> None:
    seen: list[int] = []

    with Store.open(tmp_path, create_missing=True) as store:
        run_sweep(
            sweep, store, progress=lambda state: seen.append(int((load_results(tmp_path).status == "done").sum()))
        )
    assert seen == [0, *range(1, len(sweep) + 1)]


def test_does_writing_wait_for_another_writer(store: Store, sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mas_sim._store_file.BUSY_SECONDS", 0.05)
    with Store.open(store.path) as other, closing(sqlite3.connect(store.path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="another process has held it"):
            other.begin(replace(sweep, name="other"))
        holder.execute("ROLLBACK")
        other.begin(replace(sweep, name="other"))
    assert [one["name"] for one in store.sweeps()] == ["small", "other"]


# --- Is the table what a user expects of it? ---


def test_has_the_table_a_row_a_point_with_units_in_its_columns(finished: Path, sweep: Sweep) -> None:
    frame = load_results(finished)
    assert list(frame["position"]) == list(range(len(sweep)))
    assert list(frame["key"]) == list(sweep.keys)
    assert set(RESULT_COLUMNS) == set(_facts(run_point(sweep.point(0).job).result or {}))
    assert set(frame["status"]) == {"done"}
    units = ("_cycles", "_pj", "_bytes", "_us", "_share", "_per_cycle", "_kib", "_gb_per_s", "seconds", "_utc")
    bare = {
        "position", "workload", "dataflow", "status", "reason", "objective", "cycles", "limited_by", "gap_to_bound",
        "proven_optimal", "instructions", "key", "model_version",
    }  # fmt: skip
    odd = [name for name in frame if not name.endswith(units) and name not in bare and not name.startswith("tiling.")]
    assert not odd
    job = sweep.point(5).job
    row = frame.iloc[5]
    report = make_report(job.dataflow, job.arch, job.workload, tiling_of(row), check=False)
    assert (row["cycles"], row["total_pj"]) == (report.cycles, report.energy.total)
    assert row["dram_bytes"] == row["dram_read_bytes"] + row["dram_write_bytes"] == report.dram_bytes
    assert row["gap_to_bound"] == report.gap_to_bound
    parts = [name for name in frame if name.endswith("_pj") and name != "total_pj"]
    assert sum(row[name] for name in parts) == pytest.approx(row["total_pj"])


def tiling_of(row: "pd.Series[float]"):  # type: ignore[no-untyped-def]
    from mas_sim.tiling import Tiling

    values = {str(name)[7:]: row[name] for name in row.index if str(name).startswith("tiling.")}
    return Tiling(**{name: value.item() if hasattr(value, "item") else value for name, value in values.items()})


def test_do_whole_numbers_stay_whole_beside_points_without_a_result(store: Store, sweep: Sweep, tmp_path: Path) -> None:
    store.write(sweep.point(1).job, run_point(sweep.point(1).job))
    frame = load_results(tmp_path)
    assert list(frame["status"][:3]) == ["missing", "done", "missing"]
    assert str(frame["cycles"].dtype) == "Int64"
    assert str(frame["proven_optimal"].dtype) == "boolean"
    assert frame["cycles"].isna().sum() == len(sweep) - 1
    assert frame["l1.capacity_kib"].tolist() == [sweep.values(position)["l1.capacity_kib"] for position in range(18)]


def test_is_the_sweep_that_is_meant_chosen(store: Store, sweep: Sweep) -> None:
    assert chosen_sweep(store, None)["name"] == "small"
    other = replace(sweep, name="other")
    store.begin(other)
    assert chosen_sweep(store, None)["name"] == "other"
    store.begin(sweep)  # again: it is the last one now
    assert chosen_sweep(store, None)["name"] == "small"
    assert chosen_sweep(store, "other")["id"] == other.id
    assert chosen_sweep(store, other.id)["name"] == "other"
    with pytest.raises(ConfigError, match=r"but .*did you mean 'small'"):
        chosen_sweep(store, "smal")
    with (
        pytest.raises(ConfigError, match="holds no sweep"),
        Store.open(store.path.with_name("empty.sqlite"), create_missing=True) as empty,
    ):
        chosen_sweep(empty, None)


def test_can_a_point_be_run_again_from_its_row(finished: Path, sweep: Sweep, tmp_path: Path) -> None:
    with Store.open(finished, writes=False) as opened:
        file = tmp_path / "r.json"
        file.write_text(json.dumps(opened.result(sweep.keys[7][:10])))
        with pytest.raises(ConfigError, match="no finished point"):
            opened.result("xyz")
        with pytest.raises(ConfigError, match="no finished point"):
            opened.result("")
    stored, row = load_result(file), load_results(finished).iloc[7]
    assert (stored.cycles, stored.energy_pj, stored.dataflow) == (row["cycles"], row["total_pj"], row["dataflow"])
    again = make_report(stored.dataflow, stored.arch, stored.workload, stored.tiling, check=True)
    assert (again.cycles, again.energy.total) == (stored.cycles, stored.energy_pj)


def test_is_an_ambiguous_or_empty_point_refused(store: Store, sweep: Sweep) -> None:
    for position, status in ((0, "does_not_fit"), (1, "failed")):
        job = sweep.point(position).job
        store.write(job, Outcome(job.key, status, "because"))  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="because"):
            store.result(job.key)


# --- Are exports whole or not at all? ---


def test_do_csv_and_parquet_hold_the_same_table(finished: Path, tmp_path: Path) -> None:
    frame = load_results(finished)
    csv = pd.read_csv(export(frame, tmp_path / "r.csv"), keep_default_na=True)
    parquet = pd.read_parquet(export(frame, tmp_path / "r.parquet"))
    assert list(csv.columns) == list(parquet.columns) == list(frame.columns)
    pd.testing.assert_frame_equal(parquet, frame)
    for name in ("cycles", "total_pj", "gap_to_bound", "l1.capacity_kib"):
        assert csv[name].tolist() == frame[name].tolist()


def test_does_a_failed_export_keep_the_old_file(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame, file = load_results(finished), tmp_path / "r.csv"
    file.write_text("old")

    def half(self: pd.DataFrame, path: Path, **_: object) -> None:
        path.write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pd.DataFrame, "to_csv", half)
    with pytest.raises(MasSimError, match="No space left"):
        export(frame, file)
    assert everything(tmp_path) == {"r.csv": b"old"}
    with pytest.raises(MasSimError, match=r"\.csv or \.parquet"):
        export(frame, tmp_path / "r.xlsx")


def test_do_points_with_the_same_inputs_share_a_row(tmp_path: Path) -> None:
    text = SWEEP[: SWEEP.index("axes:")] + "axes: {workload.kv_heads: [null, 2, 1]}\n"
    sweep = load_sweep(write_sweep(tmp_path, text))
    assert len(sweep) == 6
    assert len(set(sweep.keys)) == 4
    with Store.open(tmp_path, create_missing=True) as store:
        state = run_sweep(sweep, store)
    frame = load_results(tmp_path)
    assert (state.points, state.finished, len(frame)) == (4, 4, 6)
    assert set(frame["status"]) == {"done"}
    assert frame["cycles"][:2].tolist() == frame["cycles"][2:4].tolist()
