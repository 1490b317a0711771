"""Whether the audit and execution both catch what can go wrong with masks and with softmax over kv tiles."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mas_sim.arch import load_arch
from mas_sim.audit import audit
from mas_sim.completeness import check_completeness
from mas_sim.dataflows import build_schedule
from mas_sim.errors import ScheduleError
from mas_sim.execute import execute
from mas_sim.geometry import make_geometry
from mas_sim.schedule import (
    F_DEP0,
    F_DST,
    F_FLAGS,
    F_OP,
    F_SRC0,
    F_SRC1,
    F_SRC2,
    F_STEP,
    F_TILE,
    FLAG_FIRST,
    FLAG_PASS,
    MAX_DEPS,
    OP_ADD,
    OP_EXP,
    OP_MASK,
    OP_NORMALIZE,
    OP_ONLINE,
    OP_PV,
    OP_QK,
    OP_RESCALE,
    OP_SOFTMAX,
    OP_TILE_SOFTMAX,
    SLOT_BYTES,
    SLOT_OFFSET,
    SLOT_TENSOR,
    T_O,
    T_PART,
    T_STATS,
    T_TILE,
    CodeArray,
    IntArray,
    Schedule,
)
from mas_sim.simulator import simulate
from mas_sim.tiling import Tiling
from mas_sim.workload import Workload

CAUSAL = Workload(name="small", heads=2, n_q=37, n_kv=50, head_dim_qk=8, head_dim_v=12, mask="causal")
TILING = Tiling(q_tile=16, kv_tile=16)

CHOICES: dict[str, tuple[str, dict[str, Any]]] = {
    "flash": ("flash", {"overlap": "none"}),
    "ping_pong": ("flash", {"overlap": "ping_pong"}),
    "fusemax": ("fusemax", {"overlap": "pipelined"}),
    "fusemax in turn": ("fusemax", {"overlap": "none"}),
    "fusemax on mac": ("fusemax", {"overlap": "pipelined", "exp_on": "mac"}),
}


FAST_DRAM: dict[str, Any] = {
    "dram.bandwidth_gb_per_s": 1000.0,
    "dram.latency_cycles": 0,
    "dram.setup_cycles": 0,
    "sync_cycles": 0,
}


def build(name: str, workload: Workload = CAUSAL, /, **arch: Any) -> Schedule:
    dataflow, choice = CHOICES.get(name, (name, {}))
    machine = load_arch("mas_edge").with_(**({"cores": 1} | arch))
    return build_schedule(dataflow, machine, workload, replace(TILING, **choice))


def rows_of(schedule: Schedule, op: int) -> list[int]:
    return [int(i) for i in np.flatnonzero(schedule.instructions[:, F_OP] == op)]


def edited(schedule: Schedule, code: CodeArray) -> Schedule:
    return replace(schedule, instructions=np.ascontiguousarray(code, np.int32))


def changed(schedule: Schedule, row: int, **fields: int) -> Schedule:
    """Set fields of one instruction, by the names of their columns."""
    code = schedule.instructions.copy()
    for name, value in fields.items():
        code[row, COLUMNS[name]] = value
    return edited(schedule, code)


COLUMNS = {
    **{"op": F_OP, "dst": F_DST, "src0": F_SRC0, "src1": F_SRC1, "src2": F_SRC2},
    **{"tile": F_TILE, "step": F_STEP, "flags": F_FLAGS},
}


def without(schedule: Schedule, row: int) -> Schedule:
    """Leave one instruction out; what depended on it does not wait for it, nor for anything in its place."""
    code = np.delete(schedule.instructions, row, axis=0)
    deps = code[:, F_DEP0 : F_DEP0 + MAX_DEPS]
    other = deps >> 1
    deps[(deps >= 0) & (other > row)] -= 2
    deps[(deps >= 0) & (other == row)] = -1
    return edited(schedule, code)


def kinds(schedule: Schedule) -> set[str]:
    return {fault.split(":")[0] for fault in audit(schedule, simulate(schedule)).faults}


def error_of(schedule: Schedule) -> float:
    return execute(schedule, simulate(schedule)).max_abs_error


def assert_both_catch(schedule: Schedule, kind: str) -> None:
    assert kind in kinds(schedule)
    assert error_of(schedule) > 1e-3


def other_slot(schedule: Schedule, slot: int) -> int:
    """Another slot for the same tensor as `slot`, or for a row block's statistics if there is none."""
    tensor = schedule.slots[:, SLOT_TENSOR]
    alike = np.flatnonzero((tensor == tensor[slot]) & (np.arange(len(tensor)) != slot))
    return int(alike[0])


class Faults(list[str]):
    """All faults in words, however many."""

    def add(self, found: IntArray, describe: Callable[[int], str]) -> None:
        self.extend(describe(int(entry)) for entry in found)


# --- Is work that is left out missed? ---


@pytest.mark.parametrize(
    ("name", "op", "kind"),
    [
        ("flash", OP_RESCALE, "incomplete"),
        ("flash", OP_ONLINE, "incomplete"),
        ("flash", OP_NORMALIZE, "normalized 0 times"),
        ("ping_pong", OP_RESCALE, "incomplete"),
        ("ping_pong", OP_MASK, "mask missing"),
        ("fusemax", OP_RESCALE, "incomplete"),
        ("fusemax", OP_ADD, "incomplete"),
        ("fusemax in turn", OP_ONLINE, "incomplete"),
        ("fusemax on mac", OP_EXP, "incomplete"),
        ("fusemax on mac", OP_RESCALE, "incomplete"),
        ("fusemax on mac", OP_ONLINE, "incomplete"),
        ("fusemax on mac", OP_MASK, "mask missing"),
        ("tileflow", OP_TILE_SOFTMAX, "incomplete"),
        ("tileflow", OP_MASK, "mask missing"),
        ("layer_wise", OP_MASK, "mask missing"),
        ("soft_pipe", OP_MASK, "mask missing"),
        ("flat", OP_MASK, "mask missing"),
        ("mas", OP_MASK, "mask missing"),
    ],
)
def test_is_each_instruction_missed_that_is_left_out(name: str, op: int, kind: str) -> None:
    """By the audit always; in numbers mostly: an update that changes no row's maximum, say, makes no difference."""
    schedule = build(name)
    rows = rows_of(schedule, op)
    errors = []
    for row in rows[:: max(1, len(rows) // 8)]:
        broken = without(schedule, row)
        assert kind in kinds(broken)
        errors.append(error_of(broken))
    assert np.median(errors) > 1e-3


@pytest.mark.parametrize("name", ["ping_pong", "fusemax", "fusemax on mac", "tileflow"])
def test_is_a_missing_dependency_caught_where_it_matters(name: str) -> None:
    """Faults name what starts too early. Without any, numbers are right: timing hides it, or the data is the same."""
    workload = CAUSAL.with_(heads=1, kv_heads=1)
    schedule, caught = build(name, workload, **FAST_DRAM), 0
    for row, column in np.argwhere(schedule.instructions[:, F_DEP0 : F_DEP0 + MAX_DEPS] >= 0).tolist():
        other = int(schedule.instructions[row, F_DEP0 + column]) >> 1
        code = schedule.instructions.copy()
        code[row, F_DEP0 + column] = -1
        broken = edited(schedule, code)
        timeline = simulate(broken)
        faults, too_early = audit(broken, timeline).faults, timeline.start[row] < timeline.end[other]
        if faults:
            assert too_early
            assert any(f"#{row} " in fault for fault in faults)
        elif too_early:
            assert execute(broken, timeline).max_abs_error < 1e-4
        caught += len(faults) > 0
    assert caught > 15


# --- Are masks watched? ---


@pytest.mark.parametrize("name", ["flash", "fusemax on mac", "tileflow", "layer_wise", "flat"])
def test_is_a_mask_on_a_wrong_tile_caught(name: str) -> None:
    """Once by the tile alone, which disagrees with the step; and once by both, so that another tile is masked."""
    schedule = build(name)
    row = next(i for i in rows_of(schedule, OP_MASK) if schedule.instructions[i, F_STEP] > 0)
    tile, step = (int(schedule.instructions[row, at]) for at in (F_TILE, F_STEP))
    assert_both_catch(changed(schedule, row, tile=tile - 1), "wrong tile")
    both = changed(schedule, row, tile=tile - 1, step=step - 1)
    assert {"mask missing", "mask repeated"} <= kinds(both)
    assert error_of(both) > 1e-3


@pytest.mark.parametrize("name", ["flash", "tileflow", "flat"])
def test_is_a_mask_behind_exp_caught(name: str) -> None:
    """It changes places with the pass of exp, and each takes the other's dependencies."""
    schedule = build(name)
    code = schedule.instructions.copy()
    mask = rows_of(schedule, OP_MASK)[0]
    number = np.where(code[:, F_OP] == OP_SOFTMAX, code[:, F_TILE], code[:, F_FLAGS] // FLAG_PASS)
    passes = np.isin(code[:, F_OP], [OP_SOFTMAX, OP_TILE_SOFTMAX, OP_ONLINE]) & (np.arange(len(code)) > mask)
    exp = int(np.flatnonzero(passes & (number == 2))[0])
    assert schedule.arch.vec.softmax_passes[2] == ("exp",)
    deps = slice(F_DEP0, F_DEP0 + MAX_DEPS)
    code[[mask, exp]] = code[[exp, mask]]
    code[[mask, exp], deps] = code[[exp, mask], deps]
    broken = edited(schedule, code)
    assert kinds(broken) & {"wrong data", "read too early"}
    assert error_of(broken) > 1e-3


def test_is_a_mask_twice_caught() -> None:
    schedule = build("flat")
    row = rows_of(schedule, OP_MASK)[0]
    code = np.insert(schedule.instructions, row + 1, schedule.instructions[row], axis=0)
    deps = code[:, F_DEP0 : F_DEP0 + MAX_DEPS]
    deps[(deps >> 1) > row] += 2
    assert "mask repeated" in kinds(edited(schedule, code))


def test_is_a_list_that_leaves_out_kept_tiles_caught() -> None:
    """A schedule for a causal mask, claimed to be one for all keys."""
    schedule = replace(build("flat"), workload=CAUSAL.with_(mask="none"))
    assert not audit(schedule, simulate(schedule)).ok
    faults = Faults()
    check_completeness(schedule, make_geometry(schedule), faults)
    assert "wrong list: row 0 must visit kv tiles 0 to 3, those that it keeps" in faults
    assert "mask repeated: group 0, row 0 masks kv tile 0 1 times, needed 0 times" in faults
    assert error_of(schedule) > 1e-3


# --- Are statistics watched? ---


@pytest.mark.parametrize("name", ["ping_pong", "fusemax", "fusemax on mac"])
def test_are_statistics_of_the_wrong_place_caught(name: str) -> None:
    """The running maximum and sum go on from another row block's, or from an older kv tile's."""
    schedule = build(name)
    code = schedule.instructions
    starts = [i for i in rows_of(schedule, OP_ONLINE) if code[i, F_SRC2] >= 0]
    for row in starts[::3]:
        broken = changed(schedule, row, src2=other_slot(schedule, int(code[row, F_SRC2])))
        assert kinds(broken) & {"wrong data", "buffer reused too early", "read too early"}
        assert error_of(broken) > 1e-3


@pytest.mark.parametrize(
    ("name", "op"),
    [
        *[("ping_pong", op) for op in (OP_RESCALE, OP_NORMALIZE)],
        *[("fusemax", op) for op in (OP_RESCALE, OP_NORMALIZE)],
        *[("fusemax on mac", op) for op in (OP_RESCALE, OP_EXP)],
    ],
)
def test_is_a_wrong_slot_of_statistics_caught(name: str, op: int) -> None:
    schedule = build(name)
    for row in rows_of(schedule, op)[1::3]:
        broken = changed(schedule, row, src1=other_slot(schedule, int(schedule.instructions[row, F_SRC1])))
        assert kinds(broken) & {"wrong data", "buffer reused too early", "read too early"}
        assert error_of(broken) > 1e-3


def test_are_statistics_from_nowhere_refused() -> None:
    """There are some before every kv tile but the first, and none before that."""
    schedule = build("ping_pong")
    code = schedule.instructions
    rows = rows_of(schedule, OP_ONLINE)
    first = next(i for i in rows if code[i, F_STEP] == 0 and code[i, F_FLAGS] < FLAG_PASS)
    later = next(i for i in rows if code[i, F_STEP] > 0 and code[i, F_FLAGS] < FLAG_PASS)
    slots = {"lacks a slot": (later, -1), "before its row block's first": (first, int(code[later, F_SRC2]))}
    for problem, (row, slot) in (slots | {"from no slot": (later, 999)}).items():
        broken = changed(schedule, row, src2=slot)
        assert any(f.startswith("malformed") and problem in f for f in audit(broken, simulate(broken)).faults)
        with pytest.raises(ScheduleError, match=problem):
            error_of(broken)


# --- Are outputs watched? ---


@pytest.mark.parametrize(("name", "op"), [("flash", OP_PV), ("fusemax", OP_ADD), ("fusemax on mac", OP_ADD)])
def test_are_wrong_flags_of_an_output_caught(name: str, op: int) -> None:
    """An output that starts anew in its middle forgets what came before."""
    schedule = build(name)
    row = next(i for i in rows_of(schedule, op) if schedule.instructions[i, F_STEP] == 1)
    assert_both_catch(changed(schedule, row, flags=FLAG_FIRST), "wrong flags")


@pytest.mark.parametrize("name", ["flash", "fusemax"])
def test_is_a_correction_for_another_tile_caught(name: str) -> None:
    schedule = build(name)
    row = next(i for i in rows_of(schedule, OP_RESCALE) if schedule.instructions[i, F_STEP] == 2)
    tile = int(schedule.instructions[row, F_TILE])
    found = kinds(changed(schedule, row, tile=tile - 1, step=1))
    assert {"incomplete", "repeated"} <= found


def test_are_corrections_before_the_first_product_all_or_none() -> None:
    """They make the output zero: FuseMax charges them, FlashAttention leaves them out."""
    flash, fusemax = build("flash"), build("fusemax")
    assert (flash.instructions[rows_of(flash, OP_RESCALE), F_STEP] > 0).all()
    first = next(i for i in rows_of(fusemax, OP_RESCALE) if fusemax.instructions[i, F_STEP] == 0)
    assert "incomplete" in kinds(without(fusemax, first))
    moved = changed(flash, rows_of(flash, OP_RESCALE)[0], step=0, tile=0, flags=FLAG_FIRST)
    assert_both_catch(moved, "incomplete")


@pytest.mark.parametrize("op", [OP_NORMALIZE, OP_ADD])
def test_is_work_done_twice_caught(op: int) -> None:
    """An output divided, or a partial output added, once more."""
    schedule = build("fusemax in turn")
    row = next(i for i in rows_of(schedule, op) if op == OP_NORMALIZE or schedule.instructions[i, F_STEP] == 1)
    code = np.insert(schedule.instructions, row + 1, schedule.instructions[row], axis=0)
    deps = code[:, F_DEP0 : F_DEP0 + MAX_DEPS]
    deps[(deps >> 1) > row] += 2
    assert_both_catch(edited(schedule, code), "repeated" if op == OP_ADD else "normalized 2 times")


# --- Are sizes and fields watched? ---


@pytest.mark.parametrize(
    ("name", "tensor", "said"),
    [
        ("flash", T_STATS, "192 bytes for stats"),  # 16 rows, three numbers of 4 bytes
        ("flash", T_O, "768 bytes for O"),  # 16 rows, 12 sums of 4 bytes
        ("flash", T_TILE, "512 bytes for C/P rows"),
        ("fusemax", T_PART, "768 bytes for partial O"),
        ("fusemax on mac", T_PART, "832 bytes for partial O"),  # and a column of the rows' sums
        ("fusemax on mac", T_O, "832 bytes for O"),
        ("tileflow", T_STATS, "128 bytes for stats"),
    ],
)
def test_is_a_slot_that_is_too_small_caught(name: str, tensor: int, said: str) -> None:
    schedule = build(name)
    slots = schedule.slots.copy()
    slots[slots[:, SLOT_TENSOR] == tensor, SLOT_BYTES] -= 4
    broken = replace(schedule, slots=slots)
    faults = audit(broken, simulate(broken)).faults
    assert any(fault.startswith("slot too small") and f"needs {said}" in fault for fault in faults)


@pytest.mark.parametrize(
    ("name", "op", "fields", "problem"),
    [
        ("flash", OP_ONLINE, {"flags": 99 * FLAG_PASS}, "a pass that does not exist"),
        ("flash", OP_RESCALE, {"step": 4}, "a step that its row block does not have"),
        ("flash", OP_ONLINE, {"op": OP_TILE_SOFTMAX}, "softmax in another form"),
        ("tileflow", OP_TILE_SOFTMAX, {"op": OP_SOFTMAX, "tile": 0}, "softmax in another form"),
        ("fusemax", OP_ADD, {"src0": -1}, "lacks a slot"),
        ("fusemax on mac", OP_EXP, {"tile": 9}, "works on a tile"),
        ("flat", OP_MASK, {"dst": -1}, "lacks a slot"),
    ],
)
def test_are_fields_that_mean_nothing_refused(name: str, op: int, fields: dict[str, int], problem: str) -> None:
    schedule = build(name)
    broken = changed(schedule, rows_of(schedule, op)[0], **fields)
    assert any(f.startswith("malformed instruction") and problem in f for f in audit(broken, simulate(broken)).faults)
    with pytest.raises(ScheduleError, match=problem):
        error_of(broken)


def test_is_data_read_from_its_middle_caught() -> None:
    """A slot that starts inside another one: what is there is of the right tile, but not the tile from its start on."""
    schedule = build("flat", CAUSAL.with_(mask="none"))
    user = next(i for i in rows_of(schedule, OP_QK) if schedule.instructions[i, F_TILE] == 3)  # two columns of 16
    inside = schedule.slots[schedule.instructions[user, F_SRC1]].copy()
    inside[SLOT_OFFSET] += 16
    inside[SLOT_BYTES] -= 16
    slots = np.concatenate([schedule.slots, inside[None]])
    broken = changed(replace(schedule, slots=slots), user, src1=len(schedule.slots))
    faults = audit(broken, simulate(broken)).faults
    assert len(faults) == 1
    assert faults[0].startswith(f"wrong data: #{user} ")
    assert "wrote it from" in faults[0]
    assert error_of(broken) > 1e-3


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("flash", {"as computed", "masked, before softmax", "corrected for the next", "normalised"}),
        ("fusemax on mac", {"after exp", "as computed"}),
    ],
)
def test_do_faults_say_how_far_the_data_is(name: str, said: set[str]) -> None:
    """Over all instructions left out one at a time, each state of the data occurs in some message."""
    schedule = build(name)
    texts = set[str]()
    for op in (OP_MASK, OP_ONLINE, OP_EXP, OP_RESCALE, OP_NORMALIZE, OP_PV):
        for row in rows_of(schedule, op)[:4]:
            broken = without(schedule, row)
            texts |= set(audit(broken, simulate(broken)).faults)
    assert all(any(words in text for text in texts) for words in said), texts
