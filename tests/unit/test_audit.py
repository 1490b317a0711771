"""Whether the audit catches every way in which a schedule can be wrong, and execution shows it in numbers."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mas_sim.accesses import event_ranks
from mas_sim.arch import load_arch
from mas_sim.audit import MAX_DESCRIBED, AuditResult, audit
from mas_sim.dataflows import build_schedule, footprint
from mas_sim.errors import ScheduleError
from mas_sim.execute import attention_reference, execute, make_inputs
from mas_sim.schedule import (
    F_DEP0,
    F_DST,
    F_FLAGS,
    F_GROUP,
    F_KIND,
    F_OP,
    F_QUEUE,
    F_ROW,
    F_SRC0,
    F_SRC1,
    F_STEP,
    F_TILE,
    MAX_DEPS,
    OP_LOAD_C,
    OP_LOAD_K,
    OP_LOAD_Q,
    OP_PV,
    OP_QK,
    OP_SOFTMAX,
    OP_STORE_C,
    OP_STORE_O,
    SLOT_BYTES,
    SLOT_OFFSET,
    SLOT_TENSOR,
    STORE,
    T_K,
    T_V,
    UNITS,
    CodeArray,
    Schedule,
)
from mas_sim.simulator import simulate
from mas_sim.tiling import Tiling
from mas_sim.timeline import Timeline
from mas_sim.workload import Workload

WORKLOAD = Workload(name="small", heads=3, n_q=37, n_kv=50, head_dim_qk=8, head_dim_v=12)
TILING = Tiling(q_tile=16, kv_tile=16)
FAST_DRAM: dict[str, Any] = {
    "dram.bandwidth_gb_per_s": 1000.0,
    "dram.latency_cycles": 0,
    "dram.setup_cycles": 0,
    "sync_cycles": 0,
}
SLOW_DRAM: dict[str, Any] = {"dram.bandwidth_gb_per_s": 1.0}


def build(dataflow: str = "mas", tiling: Tiling = TILING, /, **arch: Any) -> Schedule:
    return build_schedule(dataflow, load_arch("mas_edge").with_(**({"cores": 1} | arch)), WORKLOAD, tiling)


def edited(schedule: Schedule, code: CodeArray) -> Schedule:
    return replace(schedule, instructions=np.ascontiguousarray(code, np.int32))


def find(schedule: Schedule, op: int, **fields: int) -> int:
    """Row of the first instruction with that operation and those fields."""
    columns = {"group": F_GROUP, "row": F_ROW, "tile": F_TILE}
    code = schedule.instructions
    hit = code[:, F_OP] == op
    for name, value in fields.items():
        hit &= code[:, columns[name]] == value
    return int(np.flatnonzero(hit)[0])


def faults_of(schedule: Schedule, timeline: Timeline | None = None) -> tuple[str, ...]:
    return audit(schedule, timeline or simulate(schedule)).faults


def kinds(faults: tuple[str, ...]) -> set[str]:
    return {fault.split(":")[0] for fault in faults}


def error_of(schedule: Schedule) -> float:
    return execute(schedule, simulate(schedule)).max_abs_error


# --- Are missing dependencies caught? ---


def without_each_dependency(schedule: Schedule) -> list[tuple[int, int, bool, Schedule]]:
    """Remove one dependency at a time: (waiting instruction, the other, is for a buffer, schedule without it)."""
    variants = []
    for i in range(len(schedule)):
        for column in range(F_DEP0, F_DEP0 + MAX_DEPS):
            dep = int(schedule.instructions[i, column])
            if dep >= 0:
                code = schedule.instructions.copy()
                code[i, column] = -1
                variants.append((i, dep >> 1, bool(dep & 1), edited(schedule, code)))
    return variants


@pytest.mark.parametrize("machine", [FAST_DRAM, SLOW_DRAM, FAST_DRAM | {"vec.lanes": 1}], ids=["fast", "slow", "vec"])
@pytest.mark.parametrize("dataflow", ["flat", "mas"])
def test_is_a_missing_dependency_caught_exactly_when_it_matters(dataflow: str, machine: dict[str, Any]) -> None:
    """The dependency mattered if the instruction now starts before the other ends; else the timing hid it."""
    one_each = replace(TILING, q_buffers=1, k_buffers=1, v_buffers=1, o_buffers=1, k_resident_tiles=1)
    for tiling in (TILING, one_each):
        for i, other, _, broken in without_each_dependency(build(dataflow, tiling, **machine)):
            timeline = simulate(broken)
            faults = audit(broken, timeline).faults
            assert bool(faults) == (timeline.start[i] < timeline.end[other]), (i, other, faults)
            if faults:
                assert any(f"#{i} " in fault for fault in faults)


def test_are_both_kinds_of_missing_dependency_told_apart() -> None:
    """One that brings data shows as a read too early; one that guards a buffer as its reuse too early."""
    told: dict[bool, set[str]] = {False: set(), True: set()}
    numbers: dict[bool, float] = {False: 0.0, True: 0.0}
    tiling = replace(TILING, q_buffers=1, k_buffers=1, v_buffers=1, o_buffers=1)
    for machine in (FAST_DRAM, FAST_DRAM | {"vec.lanes": 1}):
        for _, _, for_buffer, broken in without_each_dependency(build("mas", tiling, **machine)):
            faults = faults_of(broken)
            told[for_buffer] |= {faults[0].split(":")[0]} if faults else set()
            numbers[for_buffer] = max(numbers[for_buffer], error_of(broken))
    assert told[False] == {"read too early"}
    assert told[True] == {"buffer reused too early"}
    assert min(numbers.values()) > 1e-3


def test_are_passes_of_layer_wise_kept_apart_by_address() -> None:
    """The passes share addresses, not slots: without the link between them, a load overwrites what is in use."""
    schedule = build("layer_wise", **FAST_DRAM | {"mac.timing": "systolic"})
    code = schedule.instructions.copy()
    code[find(schedule, OP_LOAD_C), F_DEP0 : F_DEP0 + MAX_DEPS] = -1
    faults = faults_of(edited(schedule, code))
    assert any("load_c" in fault and "qk" in fault for fault in faults), faults
    assert error_of(edited(schedule, code)) > 1e-3


# --- Are buffers watched? ---


@pytest.mark.parametrize("sync_cycles", [0, 1000])
def test_is_a_buffer_reused_too_early_caught(sync_cycles: int) -> None:
    """The second K tile is loaded to where the first still is: while that is read, or even before."""
    schedule = build(**FAST_DRAM | {"sync_cycles": sync_cycles})
    code = schedule.instructions.copy()
    first, second = find(schedule, OP_LOAD_K, tile=0), find(schedule, OP_LOAD_K, tile=1)
    user, next_user = find(schedule, OP_QK, tile=0), find(schedule, OP_QK, tile=1)
    code[second, F_DST] = code[next_user, F_SRC1] = code[first, F_DST]
    broken = edited(schedule, code)
    faults = faults_of(broken)
    assert faults[0].startswith("buffer reused too early")
    assert f"#{second} core 0 LOAD load_k" in faults[0]
    assert f"#{user} core 0 MAC qk" in faults[0]
    if sync_cycles:  # operands are taken at the start, so only what is gone by then shows in the numbers
        assert error_of(broken) > 1e-3


def test_are_two_writes_at_once_caught() -> None:
    """Two loads to one buffer, the first still on its way when the second starts."""
    schedule = build(**FAST_DRAM | {"dram.latency_cycles": 1000})
    code = schedule.instructions.copy()
    first, second = find(schedule, OP_LOAD_K, tile=0), find(schedule, OP_LOAD_K, tile=1)
    code[second, F_DST] = code[first, F_DST]
    assert any(
        fault.startswith("two writes at once") and f"#{first} " in fault and f"#{second} " in fault
        for fault in faults_of(edited(schedule, code))
    )


def test_are_slots_compared_by_address() -> None:
    """V's slots are moved onto K's: the slot numbers differ, the bytes do not."""
    schedule = build()
    slots = schedule.slots.copy()
    is_k, is_v = slots[:, SLOT_TENSOR] == T_K, slots[:, SLOT_TENSOR] == T_V
    slots[is_v, SLOT_OFFSET] = slots[is_k, SLOT_OFFSET][0]
    broken = replace(schedule, slots=slots)
    assert kinds(faults_of(broken)) & {"buffer reused too early", "wrong data"}
    assert error_of(broken) > 1e-3


@pytest.mark.parametrize("shared", [True, False])
def test_is_an_overfull_l1_caught(shared: bool) -> None:
    arch = load_arch("mas_edge").with_(**{"l1.capacity_kib": 4.0, "l1.shared": shared})
    schedule = build_schedule("mas", arch, WORKLOAD, TILING, allow_overfull=True)
    over = footprint("mas", arch, WORKLOAD, TILING).over_bytes
    assert over > 0
    faults = faults_of(schedule)
    assert kinds(faults) == {"L1 overfull by " + f"{over:,} bytes"}
    assert len(faults) == (1 if shared else 2)


def test_is_a_slot_that_is_too_small_caught() -> None:
    schedule = build()
    slots = schedule.slots.copy()
    slots[slots[:, SLOT_TENSOR] == T_K, SLOT_BYTES] -= 2
    assert any(
        "needs 256 bytes for K" in fault and "has 254" in fault for fault in faults_of(replace(schedule, slots=slots))
    )


# --- Are units and the channel watched? ---


def moved(timeline: Timeline, index: int, start: int) -> Timeline:
    """Let one instruction run at another time."""
    shift = start - timeline.start[index]
    parts = {name: getattr(timeline, name).copy() for name in ("start", "end", "channel_end")}
    for part in parts.values():
        part[index] += shift
    return replace(timeline, **parts)


def test_are_two_things_at_once_on_a_unit_caught() -> None:
    schedule = build()
    timeline = simulate(schedule)
    first, second = find(schedule, OP_QK, tile=0), find(schedule, OP_QK, tile=1)
    faults = faults_of(schedule, moved(timeline, second, int(timeline.end[first]) - 1))
    assert any(
        fault.startswith("two things at once: core 0 MAC") and f"#{first} " in fault and f"#{second} " in fault
        for fault in faults
    )
    assert not faults_of(schedule, timeline)


def test_is_a_queue_out_of_order_caught() -> None:
    schedule = build(**SLOW_DRAM)
    timeline = simulate(schedule)
    first, second = find(schedule, OP_QK, tile=0), find(schedule, OP_QK, tile=1)
    late = int(timeline.end[second])
    assert any(
        fault.startswith("out of order: core 0 MAC") for fault in faults_of(schedule, moved(timeline, first, late))
    )


def test_are_two_transfers_at_once_caught() -> None:
    """Two cores load at the same time, each with a queue of its own: only the channel is busy twice."""
    schedule = build(cores=2)
    timeline = simulate(schedule)
    second = int(np.flatnonzero(schedule.instructions[:, F_QUEUE] >= UNITS)[0])
    faults = faults_of(schedule, moved(timeline, second, int(timeline.start[0])))
    assert kinds(faults) == {"two things at once"}
    assert "the DRAM channel" in faults[0]


def test_is_a_dependency_that_the_timeline_ignores_caught() -> None:
    """Synchronisation counts: one cycle too early is too early."""
    schedule = build()
    timeline = simulate(schedule)
    user = find(schedule, OP_QK)
    faults = faults_of(schedule, moved(timeline, user, int(timeline.start[user]) - 1))
    assert kinds(faults) == {"dependency not respected"}
    assert f"#{user} " in faults[0]


def test_are_timelines_that_make_no_sense_caught() -> None:
    schedule = build()
    timeline = simulate(schedule)
    backwards = replace(timeline, end=timeline.start - 1)
    assert "malformed timeline" in kinds(faults_of(schedule, backwards))
    short = replace(timeline, start=timeline.start[1:])
    assert kinds(faults_of(schedule, short)) == {"malformed timeline"}


# --- Is the work itself watched? ---


@pytest.mark.parametrize("resident", [0, 4])
def test_is_a_wrong_tile_caught(resident: int) -> None:
    """Tile 2 is loaded where tile 1 is meant."""
    schedule = build("mas", replace(TILING, k_resident_tiles=resident))
    code = schedule.instructions.copy()
    load, user = find(schedule, OP_LOAD_K, tile=1), find(schedule, OP_QK, tile=1)
    code[load, F_TILE] = 2
    broken = edited(schedule, code)
    faults = faults_of(broken)
    assert faults[0].startswith("wrong data" if resident else ("wrong data", "buffer", "read"))
    assert f"#{user} " in faults[0]
    assert "reads K(group 0, tile 1)" in faults[0]
    assert 1e-3 < error_of(broken) < np.inf


def test_is_a_tile_that_is_wrong_throughout_caught() -> None:
    """The load and its product agree on the wrong tile, so the data is as expected; only the step gives it away."""
    schedule = build()
    code = schedule.instructions.copy()
    load, user = find(schedule, OP_LOAD_K, tile=1), find(schedule, OP_QK, tile=1)
    code[[load, user], F_TILE] = 2
    broken = edited(schedule, code)
    assert kinds(faults_of(broken)) == {"wrong tile"}
    assert 1e-3 < error_of(broken) < np.inf


def test_is_a_product_that_is_missing_caught() -> None:
    schedule = build()
    code = schedule.instructions.copy()
    code[find(schedule, OP_PV, row=1, tile=2), [F_TILE, F_STEP]] = 1
    assert "incomplete: group 0, row 1 lacks pv with kv tile 2" in faults_of(edited(schedule, code))
    assert error_of(edited(schedule, code)) > 1e-3


def test_are_wrong_flags_caught() -> None:
    """An accumulation that starts anew in its middle forgets what came before."""
    schedule = build()
    code = schedule.instructions.copy()
    code[find(schedule, OP_PV, tile=2), F_FLAGS] = 1
    assert kinds(faults_of(edited(schedule, code))) == {"wrong flags"}
    assert error_of(edited(schedule, code)) > 1e-3


def test_is_a_missing_store_caught() -> None:
    schedule = build()
    assert schedule.instructions[-1, F_OP] == OP_STORE_O
    broken = edited(schedule, schedule.instructions[:-1])
    assert faults_of(broken) == ("stored 0 times: the output of group 2, row 2 must be stored exactly once",)
    result = execute(broken, simulate(broken))
    assert result.max_abs_error == np.inf
    assert np.isnan(result.output).sum() == 5 * 12  # the ragged last row block, and nothing else


def test_is_a_second_store_caught() -> None:
    schedule = build()
    broken = edited(schedule, np.concatenate([schedule.instructions, schedule.instructions[-1:]]))
    assert kinds(faults_of(broken)) == {"stored 2 times"}


def test_is_a_wrong_order_of_softmax_passes_caught() -> None:
    schedule = build()
    code = schedule.instructions.copy()
    second, third = (find(schedule, OP_SOFTMAX, tile=tile) for tile in (1, 2))
    for column in (F_TILE, F_STEP, F_KIND):
        code[[second, third], column] = code[[third, second], column]
    faults = faults_of(edited(schedule, code))
    assert faults[0].startswith(f"read too early: #{second} core 0 VEC softmax")
    assert "after 2 of 5 softmax passes" in faults[0]
    assert f"but #{third} core 0 VEC softmax" in faults[0]
    assert error_of(edited(schedule, code)) > 1e-3


def test_is_data_that_nobody_wrote_caught() -> None:
    schedule = build()
    code = schedule.instructions.copy()
    code[find(schedule, OP_LOAD_Q), F_ROW] = 1
    faults = faults_of(edited(schedule, code))
    assert faults[0].startswith("wrong data")
    assert "reads Q(group 0, row 0), but finds Q(group 0, row 1), written by #0" in faults[0]


def test_is_data_in_dram_followed() -> None:
    """A tile of C that is never stored is missed when its row block is loaded."""
    schedule = build("layer_wise")
    code = schedule.instructions.copy()
    code[find(schedule, OP_STORE_C, row=1, tile=2), [F_TILE, F_STEP]] = 1
    broken = edited(schedule, code)
    assert any(
        "load_c(group 0, row 1" in fault and "nothing was ever written there" in fault for fault in faults_of(broken)
    )
    assert error_of(broken) == np.inf


@pytest.mark.parametrize(
    ("op", "column", "value", "problem"),
    [
        (OP_QK, F_GROUP, 3, "a row block that does not exist"),
        (OP_QK, F_ROW, -1, "a row block that does not exist"),
        (OP_QK, F_TILE, 4, "a tile or a pass that does not exist"),
        (OP_SOFTMAX, F_TILE, 5, "a tile or a pass that does not exist"),
        (OP_PV, F_STEP, 4, "a step that its row block does not have"),
        (OP_PV, F_SRC1, -1, "lacks a slot"),
    ],
)
def test_are_fields_that_mean_nothing_refused(op: int, column: int, value: int, problem: str) -> None:
    schedule = build()
    code = schedule.instructions.copy()
    code[find(schedule, op), column] = value
    broken = edited(schedule, code)
    assert any(fault.startswith("malformed instruction") and problem in fault for fault in faults_of(broken))
    with pytest.raises(ScheduleError, match=problem):
        error_of(broken)


def test_is_another_core_s_private_l1_out_of_reach() -> None:
    schedule = build(cores=2, **{"l1.shared": False})
    code = schedule.instructions.copy()
    code[find(schedule, OP_QK), F_SRC0] += len(schedule.slots)
    assert any("another core's private L1" in fault for fault in faults_of(edited(schedule, code)))


def test_is_a_matrix_that_no_dataflow_writes_reported() -> None:
    schedule = build()
    timeline = simulate(schedule)
    code = schedule.instructions.copy()
    code[0, F_OP] = 99
    assert kinds(faults_of(edited(schedule, code), timeline)) == {"malformed schedule"}


# --- How are faults reported? ---


def test_are_faults_beyond_the_limit_counted() -> None:
    """All stores are moved to cycle 0, so that there are more faults than anyone reads."""
    schedule = build()
    timeline = simulate(schedule)
    start = np.where(schedule.unit_of == STORE, 0, timeline.start)
    found = audit(schedule, replace(timeline, start=np.zeros_like(start))).faults
    assert len(found) == MAX_DESCRIBED + 1
    assert found[-1].startswith("... and ")
    assert int(found[-1].split()[2].replace(",", "")) > 0


def test_is_the_summary_ok_or_all_faults() -> None:
    assert AuditResult(()).ok
    assert AuditResult(()).summary() == "ok"
    assert not AuditResult(("a", "b")).ok
    assert AuditResult(("a", "b")).summary() == "a\nb"


# --- In which order do events count? ---


def test_do_ends_come_before_starts_and_instant_instructions_in_program_order() -> None:
    """In cycle 5, instruction 0 ends; then 1 runs in no time; then 2, which may depend on it, starts."""
    empty = np.zeros((0, 0), np.int64)
    start, end = np.array([0, 5, 5]), np.array([5, 5, 9])
    starts, ends = event_ranks(Timeline(start, end, end, empty, empty, 9))
    assert starts.tolist() == [0, 2, 4]
    assert ends.tolist() == [1, 3, 5]


# --- Is the reference attention? ---


def test_is_the_reference_attention_with_grouped_heads() -> None:
    """Against the formula, spelled element by element."""
    workload = Workload(name="tiny", batch=2, heads=4, kv_heads=2, n_q=3, n_kv=5, head_dim_qk=4, head_dim_v=6)
    q, k, v = make_inputs(workload, seed=3)
    reference = attention_reference(q, k, v)
    for b, h, i in np.ndindex(2, 4, 3):
        scores = [sum(float(q[b, h, i, e]) * float(k[b, h // 2, j, e]) for e in range(4)) / 2.0 for j in range(5)]
        weights = np.exp(scores) / np.exp(scores).sum()
        expected = sum(weights[j] * v[b, h // 2, j].astype(np.float64) for j in range(5))
        assert np.allclose(reference[b, h, i], expected, rtol=0, atol=1e-12)


def test_do_inputs_depend_on_the_seed_alone() -> None:
    assert all(np.array_equal(a, b) for a, b in zip(make_inputs(WORKLOAD, 1), make_inputs(WORKLOAD, 1), strict=True))
    assert not np.array_equal(make_inputs(WORKLOAD, 1)[0], make_inputs(WORKLOAD, 2)[0])
