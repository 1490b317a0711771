"""Whether a sweep survives being killed, in any of its processes, at any moment: real processes, real signals."""

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from killing import PATIENCE_SECONDS, kill_three_times, results_of, rows_in, start, wait_for_rows, wait_until_gone
from sweep_files import SWEEP, write_sweep

from mas_sim._engines import _outcome
from mas_sim.errors import MasSimError
from mas_sim.store import STORE_NAME, Store, load_results
from mas_sim.sweep import run_sweep
from mas_sim.sweep_file import Sweep, load_sweep
from mas_sim.sweep_point import run_point

MANY = SWEEP.replace("[16, 64, 5120]", "{from: 16, to: 400, step: 16}").replace("factor: 2", "factor: 1.7")


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return load_sweep(write_sweep(tmp_path_factory.mktemp("files"), MANY))


@pytest.fixture(scope="module")
def file(sweep: Sweep, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sweep(tmp_path_factory.mktemp("again"), MANY)


@pytest.fixture(scope="module")
def uninterrupted(sweep: Sweep, tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    folder = tmp_path_factory.mktemp("whole")
    with Store.open(folder, create_missing=True) as store:
        run_sweep(sweep, store)
    return results_of(folder)


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes as Linux shows them")
def test_is_a_sweep_killed_three_times_the_same_as_one_that_was_not(
    sweep: Sweep, file: Path, uninterrupted: pd.DataFrame, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    workers = kill_three_times(file, out, len(sweep))
    wait_until_gone(workers)
    before = load_results(out)
    assert start(file, out, "--jobs", "2", "--resume").wait() == 0
    pd.testing.assert_frame_equal(results_of(out), uninterrupted)
    after = load_results(out)
    kept = before["status"] == "done"
    assert kept.any()
    assert after.loc[kept, "finished_utc"].equals(before.loc[kept, "finished_utc"])  # not computed anew
    assert [path.name for path in out.iterdir()] == [STORE_NAME]


def test_do_two_sweeps_into_one_store_at_once_give_every_point_once(
    sweep: Sweep, file: Path, uninterrupted: pd.DataFrame, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    both = [start(file, out, "--jobs", "1") for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    pd.testing.assert_frame_equal(results_of(out), uninterrupted)
    assert rows_in(out) == len(sweep)


@contextlib.contextmanager
def dask_cluster(folder: Path, workers: int, *more: str) -> Iterator[tuple[str, list["subprocess.Popen[bytes]"]]]:
    """A scheduler and workers of one thread each, on the loopback interface."""

    def launch(*arguments: str) -> "subprocess.Popen[bytes]":
        environment = os.environ | {"PYTHONWARNINGS": "ignore", "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1"}
        with (folder / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", *arguments], stdout=log, stderr=log, env=environment, cwd=folder
            )

    contact = folder / "scheduler.json"
    scheduler = launch(
        "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file",
        str(contact),
    )  # fmt: skip
    started = [scheduler]
    try:
        until = time.monotonic() + PATIENCE_SECONDS
        while not contact.exists() or not contact.read_text():
            assert scheduler.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < until
            time.sleep(0.02)
        address = json.loads(contact.read_text())["address"]
        options = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--local-directory", str(folder), *more)
        started += [launch("distributed.cli.dask_worker", address, *options) for _ in range(workers)]
        # A client that only waits for workers takes seconds to import; the scheduler logs each that has registered.
        while (folder / "log").read_text().count("Starting worker compute stream") < workers:
            assert all(process.poll() is None for process in started), (folder / "log").read_text()
            assert time.monotonic() < until, (folder / "log").read_text()
            time.sleep(0.02)
        yield address, started[1:]
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_does_a_dask_cluster_that_loses_a_worker_give_every_point_once(
    sweep: Sweep, file: Path, uninterrupted: pd.DataFrame, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with dask_cluster(tmp_path, workers=2) as (address, workers):
        process = start(file, out, "--dask", address)
        wait_for_rows(out, len(sweep) // 4, process)
        workers[0].send_signal(signal.SIGKILL)
        assert workers[0].wait() == -signal.SIGKILL
        assert rows_in(out) < len(sweep)
        assert process.wait(timeout=PATIENCE_SECONDS) == 0
    pd.testing.assert_frame_equal(results_of(out), uninterrupted)
    assert rows_in(out) == len(sweep)


DEADLY = """
import os
from mas_sim import sweep_point

def run_point(job):
    if job.position == 2:
        os._exit(9)
    return sweep_point.whole(job)

if not hasattr(sweep_point, "whole"):  # Dask loads it twice
    sweep_point.whole = sweep_point.run_point
    sweep_point.run_point = run_point
"""
"""What is loaded into each worker: it dies of the third point."""


def test_does_a_point_that_kills_its_dask_workers_fail_and_not_hang(file: Path, sweep: Sweep, tmp_path: Path) -> None:
    preload = tmp_path / "deadly.py"
    preload.write_text(DEADLY)
    with dask_cluster(tmp_path, 4, "--preload", str(preload)) as (address, _):
        code = (
            "import sys; from mas_sim import _engines as e; e.POLL_SECONDS = 0.2\n"
            f"sys.argv = ['', 'sweep', {str(file)!r}, '--out', {str(tmp_path / 'out')!r}, '--dask', {address!r}]\n"
            "from mas_sim.cli import main; main()"
        )
        command = [sys.executable, "-W", "ignore", "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)
    assert done.returncode == 1, done.stderr
    frame = load_results(tmp_path / "out")
    assert frame["status"][2] == "failed"
    assert "workers died" in frame["reason"][2]
    assert (frame["status"] == "done").sum() > len(sweep) // 2
    assert "missing" not in set(frame["status"])


class FetchedLate:
    """A future that was done when it was waited for, whose worker died before its result was fetched."""

    def __init__(self, becomes: object) -> None:
        self.status, self._becomes = "lost", becomes

    def exception(self, timeout: float) -> BaseException | None:
        return self._becomes if isinstance(self._becomes, BaseException) else None

    def result(self, timeout: float) -> object:
        if isinstance(self._becomes, BaseException):
            self.status = "pending" if isinstance(self._becomes, TimeoutError) else "error"
            raise self._becomes
        self.status = "finished"
        return self._becomes


def test_is_a_job_whose_worker_dies_just_before_it_is_fetched_computed_elsewhere(sweep: Sweep) -> None:
    distributed = importlib.import_module("distributed")
    job = sweep.point(0).job
    outcome = run_point(job)
    assert _outcome(distributed, FetchedLate(outcome), job) == (job, outcome)
    with pytest.raises(TimeoutError):  # it is waited for again
        _outcome(distributed, FetchedLate(TimeoutError()), job)
    killed = distributed.KilledWorker("key", None, 1)
    assert _outcome(distributed, FetchedLate(killed), job)[1].reason == "2 workers died computing it (out of memory?)"
    with pytest.raises(MasSimError, match="a Dask worker cannot compute points: AttributeError: run_point"):
        _outcome(distributed, FetchedLate(AttributeError("run_point")), job)


def test_is_a_cluster_without_workers_in_the_end_said_so(file: Path, tmp_path: Path) -> None:
    with dask_cluster(tmp_path, workers=1) as (address, workers):
        code = (
            "import sys; from mas_sim import _engines as e; e.POLL_SECONDS, e.ALONE_SECONDS = 0.2, 1.0\n"
            f"sys.argv = ['', 'sweep', {str(file)!r}, '--out', {str(tmp_path / 'out')!r}, '--dask', {address!r}]\n"
            "from mas_sim.cli import main; main()"
        )
        command = [sys.executable, "-W", "ignore", "-c", code]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        wait_for_rows(tmp_path / "out", 5, process)  # type: ignore[arg-type]
        workers[0].kill()
        _, told = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 2
    assert "has had no worker for 1 seconds" in told
    assert rows_in(tmp_path / "out") >= 5


def test_is_a_cluster_that_is_not_there_said_so(file: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mas_sim.cli", "sweep", str(file), "--out", str(tmp_path), "--dask", "nowhere:x"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no Dask scheduler answers" in done.stderr
    assert "Traceback" not in done.stderr
