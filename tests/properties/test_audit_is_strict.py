"""Whether every schedule that the audit passes computes attention, whatever was changed in it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mas_sim.arch import load_arch
from mas_sim.audit import audit
from mas_sim.dataflows import build_schedule
from mas_sim.errors import ScheduleError
from mas_sim.execute import execute
from mas_sim.schedule import (
    F_DEP0,
    F_DST,
    F_FLAGS,
    F_GROUP,
    F_OP,
    F_ROW,
    F_SRC0,
    F_SRC1,
    F_SRC2,
    F_STEP,
    F_TILE,
    MAX_DEPS,
    OP_NAMES,
    OP_ONLINE,
    CodeArray,
    Schedule,
)
from mas_sim.simulator import simulate
from mas_sim.tiling import Tiling
from mas_sim.workload import Workload

TILING = Tiling(q_tile=16, kv_tile=16, k_resident_tiles=2)
FAST_DRAM: dict[str, Any] = {
    "cores": 1,
    "dram.bandwidth_gb_per_s": 1000.0,
    "dram.latency_cycles": 0,
    "dram.setup_cycles": 0,
    "sync_cycles": 0,
}
WINDOW: dict[str, Any] = {"mask": "sliding_window", "window_back": 20, "window_ahead": 7}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "layer_wise": ("layer_wise", {}, {}),
    "layer_wise masked": ("layer_wise", {}, WINDOW),
    "soft_pipe": ("soft_pipe", {}, WINDOW),
    "flat": ("flat", {}, {}),
    "flat masked": ("flat", {}, {"mask": "causal"}),
    "mas": ("mas", {}, {}),
    "mas masked": ("mas", {"softmax_in_place": False}, WINDOW),
    "tileflow": ("tileflow", {}, WINDOW),
    "flash": ("flash", {"overlap": "none"}, WINDOW),
    "ping_pong": ("flash", {"overlap": "ping_pong"}, {"mask": "causal"}),
    "fusemax": ("fusemax", {"overlap": "pipelined"}, WINDOW),
    "fusemax in turn": ("fusemax", {"overlap": "none"}, {}),
    "fusemax on mac": ("fusemax", {"overlap": "pipelined", "exp_on": "mac"}, {"mask": "causal"}),
}
NOTHING_TO_WAIT_FOR, LEFT_OUT = -1, -2
CHANGES = 130
"""Changes of each schedule; a third or so of them show in the numbers."""


def build(name: str) -> Schedule:
    dataflow, choice, mask = CASES[name]
    workload = Workload(name="small", heads=2, n_q=37, n_kv=50, head_dim_qk=8, head_dim_v=12, **mask)
    return build_schedule(dataflow, load_arch("mas_edge").with_(**FAST_DRAM), workload, replace(TILING, **choice))


def without(code: CodeArray, row: int) -> CodeArray:
    """Leave one instruction out; what depended on it does not wait for it."""
    rest = np.delete(code, row, axis=0)
    deps = rest[:, F_DEP0 : F_DEP0 + MAX_DEPS]
    other = deps >> 1
    deps[(deps >= 0) & (other > row)] -= 2
    deps[(deps >= 0) & (other == row)] = NOTHING_TO_WAIT_FOR
    return rest


def change(schedule: Schedule, rng: np.random.Generator) -> tuple[str, Schedule] | None:
    """Change one field of one instruction, or leave it out; None if that field means nothing there."""
    slots = len(schedule.slots)
    limits = {F_DST: slots, F_SRC0: slots, F_SRC1: slots, F_SRC2: slots, F_GROUP: 2, F_ROW: 3, F_TILE: 4}
    limits |= {F_STEP: 4, F_FLAGS: 24, F_OP: len(OP_NAMES)}
    code = schedule.instructions.copy()
    row, column = int(rng.integers(len(code))), int(rng.choice([*limits, F_DEP0, LEFT_OUT]))
    if column == LEFT_OUT:
        code = without(code, row)
    elif column == F_DEP0:
        code[row, column] = NOTHING_TO_WAIT_FOR
    elif code[row, column] < 0 or (column == F_SRC2 and code[row, F_OP] != OP_ONLINE):
        return None
    else:
        code[row, column] = rng.integers(limits[column])
    what = f"{schedule.describe(row)}, column {column}: {code[row].tolist() if row < len(code) else 'none'}"
    return what, replace(schedule, instructions=np.ascontiguousarray(code, np.int32))


@pytest.mark.parametrize("name", CASES)
def test_is_the_audit_at_least_as_strict_as_execution(name: str) -> None:
    """Whatever field is changed, a schedule that passes the audit computes attention."""
    schedule = build(name)
    rng = np.random.Generator(np.random.PCG64(7))
    wrong = 0
    for _ in range(CHANGES):
        changed = change(schedule, rng)
        if changed is None:
            continue
        what, broken = changed
        timeline = simulate(broken)
        faults = audit(broken, timeline).faults
        if any(fault.startswith("malformed instruction") for fault in faults):
            with pytest.raises(ScheduleError, match="malformed"):
                execute(broken, timeline)
            continue
        error = execute(broken, timeline).max_abs_error
        wrong += error > 1e-3
        assert faults or error < 1e-4, what
    assert wrong > CHANGES // 5
