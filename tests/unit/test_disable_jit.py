"""Whether plain Python does what compiled code does: the same work in a process with NUMBA_DISABLE_JIT=1.

The process treats warnings as errors: a whole number that outgrows its type, which compiled code would let pass, fails.
Run as a script, this file prints what `measure` finds.
"""

import json
import os
import subprocess
import sys
from typing import Any

from mas_sim._kernels import simulate_events
from mas_sim.arch import load_arch
from mas_sim.audit import audit
from mas_sim.dataflows import DATAFLOWS, build_schedule
from mas_sim.execute import execute
from mas_sim.search.exhaustive import ExhaustiveSearch
from mas_sim.search.space import SearchSpace
from mas_sim.simulator import simulate
from mas_sim.tiling import Tiling
from mas_sim.workload import Workload


def measure() -> dict[str, Any]:
    """Build, simulate, meter, audit and execute a small workload with every dataflow, and search its best tiling."""
    arch = load_arch("mas_edge")
    workload = Workload(name="small", heads=2, n_q=48, n_kv=48, head_dim_qk=16, head_dim_v=16)
    tiling = Tiling(q_tile=16, kv_tile=20, k_resident_tiles=1, v_resident_tiles=2)
    found: dict[str, Any] = {}
    for dataflow in DATAFLOWS:
        schedule = build_schedule(dataflow, arch, workload, tiling)
        timeline = simulate(schedule)
        result = ExhaustiveSearch(threads=1).search(SearchSpace(dataflow, arch, workload, limit=2, buffers=(2,)))
        found[dataflow] = {
            "cycles": timeline.cycles,
            "start": timeline.start.tolist(),
            "end": timeline.end.tolist(),
            "busy_cycles": timeline.busy_cycles.tolist(),
            "stall_cycles": timeline.stall_cycles.tolist(),
            "meter": schedule.meter_counts().tolist(),
            "faults": list(audit(schedule, timeline).faults),
            "max_abs_error": execute(schedule, timeline).max_abs_error,
            "best": [result.best.index, result.best.cycles, result.best.dram_bytes, result.best.l1_bytes],
            "counts": [result.space_size, result.legal, result.simulated, result.pruned, result.too_long],
        }
    return found


def test_does_plain_python_agree_with_compiled_code() -> None:
    plain = subprocess.run(
        [sys.executable, "-W", "error", __file__],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert plain.returncode == 0, plain.stderr
    expected = measure()
    assert json.loads(plain.stdout) == expected
    assert len(expected) == len(DATAFLOWS)
    for result in expected.values():
        assert result["cycles"] >= result["best"][1] > 0
        assert not result["faults"]


if __name__ == "__main__":
    assert not hasattr(simulate_events, "py_func"), "the event kernel is compiled"
    print(json.dumps(measure()))
