"""Does a sweep of two thousand points survive three kills, and how fast and how large is it? `make bench-sweep`."""

import subprocess
import time
from pathlib import Path

import pandas as pd
import pytest
from killing import kill_three_times, results_of, rows_in, start, wait_until_gone
from sweep_files import SWEEP, write_sweep

from mas_sim.store import STORE_NAME
from mas_sim.sweep_file import load_sweep

AXES = """\
axes:
  l1.capacity_kib: {from: 16, to: 8192, factor: 2}
  dram.bandwidth_gb_per_s: {from: 10, to: 100, step: 10}
  vec.lanes: {from: 32, to: 320, step: 32}
"""
FIRST_POINTS = 200
"""When the workers have loaded all that they need."""


def resident_mib(pid: int) -> float:
    """Memory of a process and of those that it started, in MiB."""
    listed = subprocess.run(
        ["ps", "-o", "rss=", "--pid", str(pid), "--ppid", str(pid)], capture_output=True, text=True, check=False
    )
    return sum(int(line) for line in listed.stdout.split()) / 1024


@pytest.mark.filterwarnings("default")
def test_is_a_sweep_of_2000_points_killed_three_times_the_same_row_for_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_sweep(tmp_path / "files", SWEEP[: SWEEP.index("axes:")] + AXES)
    points = len(load_sweep(file))
    assert points == 2000
    whole, killed = tmp_path / "whole", tmp_path / "killed"

    began = time.perf_counter()
    process = start(file, whole, "--jobs", "2")
    memory: list[tuple[int, float]] = []
    while process.poll() is None:
        time.sleep(0.5)
        memory.append((rows_in(whole), resident_mib(process.pid)))
    seconds = time.perf_counter() - began
    assert process.returncode == 0

    wait_until_gone(kill_three_times(file, killed, points))
    assert start(file, killed, "--jobs", "2", "--resume").wait() == 0
    pd.testing.assert_frame_equal(results_of(killed), results_of(whole))

    steady = [mib for rows, mib in memory if FIRST_POINTS <= rows < points]
    assert max(steady) < 1.1 * min(steady), "memory grows with the sweep"
    size = (whole / STORE_NAME).stat().st_size / 1024
    with capsys.disabled():
        print(
            f"\n{points:,} points in {seconds:.1f} s ({points / seconds:.0f}/s), start included; "
            f"memory of all processes {min(steady):.0f} to {max(steady):.0f} MiB; {size / points:.1f} KiB a point"
        )
