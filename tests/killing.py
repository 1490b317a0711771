"""Sweeps in processes of their own, and killing them; for the tests and the benchmark that do so."""

import contextlib
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd

from mas_sim.results_frame import BESIDES
from mas_sim.store import STORE_NAME, load_results

PATIENCE_SECONDS = 60.0


def results_of(folder: Path) -> pd.DataFrame:
    return load_results(folder).drop(columns=list(BESIDES))


def start(file: Path, out: Path, *options: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "mas_sim.cli", "sweep", str(file), "--out", str(out), *options]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)


def rows_in(out: Path) -> int:
    """Points that another process can see to be finished; 0 while there is no store."""
    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(sqlite3.connect(f"file:{out / STORE_NAME}?mode=ro", uri=True)) as connection,
    ):
        return int(connection.execute("SELECT count(*) FROM points").fetchone()[0])
    return 0


def wait_for_rows(out: Path, count: int, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while rows_in(out) < count:
        assert process.poll() is None, "it ended by itself"
        assert time.monotonic() < until, "it does not come on"
        time.sleep(0.005)


def children_of(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]


def is_there(pid: int) -> bool:
    """Whether a process is there, and not only waiting to be noticed as dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def kill_three_times(file: Path, out: Path, points: int) -> list[int]:
    """Start a sweep and kill it when a fifth, nearly half and most of its points are done; return its workers."""
    workers: list[int] = []
    for share in (0.2, 0.45, 0.7):
        process = start(file, out, "--jobs", "2")
        wait_for_rows(out, int(share * points), process)
        workers += children_of(process.pid)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert rows_in(out) < points
    assert workers
    return workers


def wait_until_gone(processes: list[int]) -> None:
    """Wait until processes have noticed that their parent is dead, and ended."""
    until = time.monotonic() + PATIENCE_SECONDS
    while any(map(is_there, processes)):
        assert time.monotonic() < until, "its workers live on"
        time.sleep(0.05)
