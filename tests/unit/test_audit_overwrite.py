"""Whether the audit catches every way in which proactive overwrite can go wrong, and execution shows it in numbers.

Most tests take a legal run and change what the timeline says of one product (its *victim*), or one field of one
instruction, and then ask the audit without timing the schedule again.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mas_sim.arch import load_arch
from mas_sim.audit import audit
from mas_sim.dataflows import build_schedule
from mas_sim.errors import ScheduleError
from mas_sim.execute import execute
from mas_sim.overwrites import begin_of, read_overwrites
from mas_sim.schedule import (
    F_ALT,
    F_DEP0,
    F_DST,
    F_FIRST_VICTIM,
    F_FLAGS,
    F_GROUP,
    F_OP,
    F_OVER,
    F_RELOAD,
    F_ROW,
    F_SRC0,
    F_SRC1,
    F_STEP,
    F_TILE,
    FLAG_FIRST,
    LOAD,
    OP_LOAD_V,
    OP_PV,
    SLOT_TENSOR,
    T_S,
    VEC,
    IntArray,
    Schedule,
)
from mas_sim.simulator import simulate
from mas_sim.tiling import Tiling
from mas_sim.timeline import Timeline
from mas_sim.workload import Workload

# V has tiles of 16, 16, 16 and 2 columns, 1,200 bytes in all; a row block of P takes 600. So the window is the last
# three tiles, of 384, 384 and 48 bytes, of which P covers the first, and of the second 216 bytes.
WORKLOAD = Workload(name="small", heads=3, n_q=37, n_kv=50, head_dim_qk=8, head_dim_v=12)
TILING = Tiling(q_tile=6, kv_tile=16, k_resident_tiles=4, v_resident_tiles=4, softmax_in_place=False, overwrite="v")
LAST_PASS = 4
# Two lanes make the first pass, which only reduces, so slow that products are in flight when the next one writes.
MACHINE: dict[str, Any] = {
    "cores": 1,
    "vec.lanes": 2,
    "preemption.supported": True,
    "preemption.drain_cycles": 5,
    "dram.bandwidth_gb_per_s": 1000.0,
}


def build(tiling: Tiling = TILING, /, **arch: Any) -> Schedule:
    return build_schedule("mas", load_arch("mas_edge").with_(**(MACHINE | arch)), WORKLOAD, tiling)


def run(lost: str = "tile", **arch: Any) -> tuple[Schedule, Timeline]:
    """Build and time a schedule on a machine that loses a tile, or a whole product (`matmul`)."""
    schedule = build(**{"preemption.lost_granularity": lost} | arch)
    return schedule, simulate(schedule)


def victims(schedule: Schedule, timeline: Timeline, *, late: bool = False, stopped: bool = False) -> IntArray:
    """Rows of the victims that ran early, or late without being stopped, or late because they were stopped."""
    rows = read_overwrites(schedule, timeline).victims
    chosen = rows[(timeline.late[rows] > 0) == (late or stopped)]
    return chosen[(timeline.lost_cycles[chosen] > 0) == stopped]


def retimed(timeline: Timeline, row: int, **changes: int) -> Timeline:
    """Copy a timeline with another `start`, `end`, or entry of `redo` (`late`, `first_start`, `lost`) of one row."""
    columns = {"late": 0, "first_start": 1, "lost": 2}
    parts = {name: getattr(timeline, name).copy() for name in ("start", "end", "channel_end", "redo")}
    for name, value in changes.items():
        if name in columns:
            parts["redo"][row, columns[name]] = value
        else:
            parts[name][row] = value
    parts["channel_end"][row] = parts["end"][row]
    return replace(timeline, **parts)


def moved(timeline: Timeline, row: int, start: int) -> Timeline:
    """Copy a timeline with one row at another time, as long as before."""
    return retimed(timeline, row, start=start, end=start + int(timeline.end[row] - timeline.start[row]))


def edited(schedule: Schedule, row: int, column: int, value: int) -> Schedule:
    code = schedule.instructions.copy()
    code[row, column] = value
    return replace(schedule, instructions=code)


def faults_of(schedule: Schedule, timeline: Timeline) -> tuple[str, ...]:
    return audit(schedule, timeline).faults


def kinds(faults: tuple[str, ...]) -> set[str]:
    return {fault.split(":")[0] for fault in faults}


def error_of(schedule: Schedule, timeline: Timeline) -> float:
    return execute(schedule, timeline).max_abs_error


def of(schedule: Schedule, row: int, column: int) -> int:
    return int(schedule.instructions[row, column])


@pytest.mark.parametrize("lost", ["tile", "matmul"])
def test_is_the_run_that_the_tests_break_legal(lost: str) -> None:
    """And it has victims of every fate."""
    schedule, timeline = run(lost)
    assert faults_of(schedule, timeline) == ()
    assert error_of(schedule, timeline) < 1e-4
    for fate in ({}, {"late": True}, {"stopped": True}):
        assert victims(schedule, timeline, **fate).size, fate


# --- Is the use of overwritten bytes caught? ---


@pytest.mark.parametrize("fate", ["late", "stopped"])
def test_is_a_product_that_uses_an_overwritten_byte_caught(fate: str) -> None:
    """It ran behind the overwrite, but took the tiles from where they had been before."""
    schedule, timeline = run(**{"vec.lanes": 4})  # so that it is the window's first tiles that are stopped
    rows = victims(schedule, timeline, **{fate: True})
    victim = int(rows[schedule.instructions[rows, F_TILE] < 3][0])
    broken = retimed(timeline, victim, late=0, first_start=0, lost=0)
    faults = [fault for fault in faults_of(schedule, broken) if fault.startswith("overwritten byte used")]
    over = schedule.instructions[of(schedule, victim, F_OVER)]
    assert f"#{victim} core 0 MAC pv" in faults[0]
    assert f"reads V(group {of(schedule, victim, F_GROUP)}, tile {of(schedule, victim, F_TILE)})" in faults[0]
    assert f"core 0 VEC softmax(group {over[F_GROUP]}, row {over[F_ROW]}" in faults[0]
    assert error_of(schedule, broken) > 1e-3


def test_is_every_late_product_caught_when_it_is_made_early() -> None:
    """Except for the last tile, which softmax does not reach: its bytes are still what they were."""
    schedule, timeline = run()
    late = np.concatenate([victims(schedule, timeline, late=True), victims(schedule, timeline, stopped=True)])
    caught = {1: 0, 2: 0, 3: 0}
    spared = 0
    for victim in late.tolist():
        broken = retimed(timeline, victim, late=0, first_start=0, lost=0)
        found = "overwritten byte used" in kinds(faults_of(schedule, broken))
        tile = of(schedule, victim, F_TILE)
        caught[tile] += found
        spared += not found
        assert found == (error_of(schedule, broken) > 1e-3) == (tile < 3), schedule.describe(victim)
    assert caught[1] > 0
    assert caught[2] > 0
    assert spared > 0


def test_is_an_early_product_caught_when_the_overwrite_begins_before_it_ends() -> None:
    """One cycle is enough."""
    schedule, timeline = run()
    early = victims(schedule, timeline)
    victim = int(early[schedule.instructions[early, F_TILE] == 1][0])
    writes = int(timeline.start[of(schedule, victim, F_OVER)])
    just_in_time = retimed(timeline, victim, end=writes)
    assert "overwritten in use" not in kinds(faults_of(schedule, just_in_time))
    too_late = retimed(timeline, victim, end=writes + 1)
    faults = [fault for fault in faults_of(schedule, too_late) if fault.startswith("overwritten in use")]
    assert f"#{victim} core 0 MAC pv" in faults[0]
    assert "still reads V(group 0, tile 1) there" in faults[0]


def test_is_an_early_product_that_starts_too_late_caught() -> None:
    schedule, timeline = run()
    early = victims(schedule, timeline)
    victim = int(early[schedule.instructions[early, F_TILE] == 1][0])
    broken = moved(timeline, victim, int(timeline.start[of(schedule, victim, F_OVER)]))
    assert any(f.startswith(f"overwritten byte used: #{victim} ") for f in faults_of(schedule, broken))
    assert error_of(schedule, broken) > 1e-3


def test_is_a_late_product_that_does_not_await_its_tiles_caught() -> None:
    """One cycle less than to synchronise is caught by its own message, and before their end also as a hazard."""
    schedule, timeline = run(sync_cycles=8)
    victim = int(victims(schedule, timeline, late=True)[0])
    back = int(timeline.end[of(schedule, victim, F_RELOAD)])
    hasty = faults_of(schedule, moved(timeline, victim, back + 7))
    assert any(f.startswith(f"window not awaited: #{victim} ") and f"in cycle {back + 8}" in f for f in hasty)
    assert "read too early" not in kinds(hasty)
    broken = moved(timeline, victim, back - 1)
    assert any(f.startswith(f"read too early: #{victim} ") for f in faults_of(schedule, broken))
    assert error_of(schedule, broken) > 1e-3


@pytest.mark.parametrize("lost", ["tile", "matmul"])
def test_is_a_missing_dependency_caught_exactly_when_it_matters(lost: str) -> None:
    """It mattered if the instruction now starts before the other ends.

    Except for the window, which comes back when softmax has ended: its place is free as soon as C has been read.
    """
    one_each = replace(TILING, q_buffers=1, k_buffers=1, v_buffers=1, o_buffers=1)
    schedule = build(one_each, **{"preemption.lost_granularity": lost, "dram.latency_cycles": 0, "sync_cycles": 0})
    caught = 0
    for i in range(len(schedule)):
        for place, (other, _) in enumerate(schedule.dependencies(i)):
            broken = edited(schedule, i, F_DEP0 + place, -1)
            timeline = simulate(broken)
            faults = faults_of(broken, timeline)
            matters = bool(begin_of(timeline)[i] < timeline.end[other])
            if (
                schedule.unit_of[i] == LOAD
                and schedule.unit_of[other] == VEC
                and of(schedule, other, F_TILE) == LAST_PASS
            ):
                matters = False
            assert bool(faults) == matters, (i, other, faults)
            caught += matters
    assert caught > 20


# --- Is a window watched that does not come back, or elsewhere? ---


def test_is_a_window_that_is_not_loaded_again_caught() -> None:
    """The load brings another group's tiles, or brings them elsewhere."""
    schedule, timeline = run()
    rows = victims(schedule, timeline, late=True)
    victim = int(rows[schedule.instructions[rows, F_TILE] == 1][0])
    reload, slot = of(schedule, victim, F_RELOAD), of(schedule, victim, F_SRC1)
    other = edited(schedule, reload, F_GROUP, (of(schedule, reload, F_GROUP) + 1) % 3)
    faults = faults_of(other, timeline)
    assert any(f"#{victim} core 0 MAC" in f and f"#{reload} core 0 LOAD" in f and "reads V(group" in f for f in faults)
    assert error_of(other, timeline) > 1e-3
    elsewhere = next(s for s, t in enumerate(schedule.slots[:, SLOT_TENSOR]) if t == T_S and s != slot)
    gone = edited(schedule, reload, F_DST, elsewhere)
    faults = faults_of(gone, timeline)
    assert any(f.startswith(f"not loaded again: #{victim} ") and "finds C/P" in f for f in faults)
    assert any(f.startswith(f"wrong slot: #{victim} ") and f"that loads to {elsewhere}" in f for f in faults)
    assert error_of(gone, timeline) > 1e-3


def test_is_a_window_that_comes_back_in_part_caught() -> None:
    """Its second tile is missing, or it begins with that."""
    schedule, timeline = run()
    rows = victims(schedule, timeline, late=True)
    victim = int(rows[schedule.instructions[rows, F_TILE] == 2][0])
    reload = of(schedule, victim, F_RELOAD)
    short = edited(schedule, reload, F_STEP, 0)
    assert any(f.startswith(f"wrong window: #{victim} ") for f in faults_of(short, timeline))
    assert any(f.startswith(f"not loaded again: #{victim} ") for f in faults_of(short, timeline))
    assert error_of(short, timeline) > 1e-3
    shifted = edited(short, reload, F_TILE, 2)
    faults = faults_of(shifted, timeline)
    assert any("wrong window" in f for f in faults)
    assert any(f"#{reload} core 0 LOAD" in f and "writes V" in f for f in faults)
    assert error_of(shifted, timeline) > 1e-3


@pytest.mark.parametrize("column", [F_ALT, F_SRC1])
def test_is_a_wrong_slot_caught(column: int) -> None:
    """The product looks for its tile in another row block: by the links, whatever its fate, and by its data."""
    schedule, timeline = run()
    places = np.flatnonzero(schedule.slots[:, SLOT_TENSOR] == T_S).tolist()
    rows = victims(schedule, timeline, late=column == F_SRC1)
    victim = int(rows[schedule.instructions[rows, F_TILE] == 1][0])
    other_fate = int(victims(schedule, timeline, late=column == F_ALT)[0])
    for row in (victim, other_fate):
        used = {of(schedule, row, F_ALT), of(schedule, row, F_SRC1)}
        broken = edited(schedule, row, column, next(slot for slot in places if slot not in used))
        assert any(f.startswith(f"wrong slot: #{row} ") for f in faults_of(broken, timeline))
        assert (error_of(broken, timeline) > 1e-3) == (row == victim)
        assert (len(faults_of(broken, timeline)) > 1) == (row == victim)


def test_is_a_product_that_looks_for_its_tile_outside_the_window_refused() -> None:
    """Tile 0 is not in the window, so no slot of a row block can hold it."""
    schedule, timeline = run()
    row = int(np.flatnonzero((schedule.instructions[:, F_OP] == OP_PV) & (schedule.instructions[:, F_TILE] == 0))[0])
    broken = edited(schedule, row, F_SRC1, int(np.flatnonzero(schedule.slots[:, SLOT_TENSOR] == T_S)[0]))
    assert any("reads a tile from the window that is not in there" in f for f in faults_of(broken, timeline))
    with pytest.raises(ScheduleError, match="not in there"):
        error_of(broken, timeline)


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        (F_OVER, 1 << 20, "an overwrite link is outside"),
        (F_OVER, 0, "the victim of a row that is no writing softmax pass"),
        (F_RELOAD, -1, "no load brings its tiles back"),
        (F_RELOAD, 1 << 20, "an overwrite link is outside"),
        (F_RELOAD, 0, "waits for a row that is no load of such tiles"),
        (F_ALT, -1, "lacks a slot for its tiles as they were"),
        (F_ALT, 1 << 20, "lacks a slot for its tiles as they were"),
    ],
)
def test_are_links_that_mean_nothing_refused(column: int, value: int, problem: str) -> None:
    schedule, timeline = run()
    broken = edited(schedule, int(victims(schedule, timeline)[0]), column, value)
    assert any(f.startswith("malformed") and problem in f for f in faults_of(broken, timeline))
    with pytest.raises(ScheduleError, match=problem):
        error_of(broken, timeline)


def test_is_a_window_in_another_core_s_private_l1_out_of_reach() -> None:
    schedule, timeline = run(cores=2, **{"l1.shared": False})
    victim = int(victims(schedule, timeline)[0])
    broken = edited(
        schedule, victim, F_ALT, (of(schedule, victim, F_ALT) + len(schedule.slots)) % (2 * len(schedule.slots))
    )
    assert any("another core's private L1" in f for f in faults_of(broken, timeline))


def test_are_several_tiles_in_a_place_for_one_refused() -> None:
    schedule, timeline = run()
    loads = np.flatnonzero((schedule.instructions[:, F_OP] == OP_LOAD_V) & (schedule.instructions[:, F_STEP] == 0))
    broken = edited(schedule, int(loads[0]), F_STEP, 1)
    assert any("loads several tiles to a place for one" in f for f in faults_of(broken, timeline))
    window = of(schedule, int(victims(schedule, timeline)[0]), F_RELOAD)
    assert any("loads tiles that do not exist" in f for f in faults_of(edited(schedule, window, F_STEP, 3), timeline))


def test_is_a_pass_that_names_the_wrong_victims_caught() -> None:
    """A machine that cannot stop products looks there for those that it has to wait for."""
    schedule, timeline = run()
    over = of(schedule, int(victims(schedule, timeline)[0]), F_OVER)
    broken = edited(schedule, over, F_FIRST_VICTIM, of(schedule, over, F_FIRST_VICTIM) + 1)
    assert kinds(faults_of(broken, timeline)) == {"wrong victims"}


# --- Are stopped products watched? ---


def test_does_the_mac_unit_do_one_thing_at_a_time_with_runs_that_are_stopped() -> None:
    """The stopped run counts from its first start until it has drained."""
    schedule, timeline = run()
    victim = int(victims(schedule, timeline, stopped=True)[0])
    before = victim - 1
    assert schedule.instructions[before, F_OP] == OP_PV
    first = int(timeline.end[before]) - 1
    overlapping = faults_of(schedule, retimed(timeline, victim, first_start=first))
    assert any(
        f.startswith("two things at once: core 0 MAC") and f"#{before} " in f and f"#{victim} " in f
        for f in overlapping
    )
    drained = int(timeline.start[of(schedule, victim, F_OVER)]) + 5
    faults = faults_of(schedule, moved(timeline, victim, drained - 1))
    assert any(f.startswith(f"two things at once: #{victim} ") and f"until {drained}" in f for f in faults)


def test_must_a_stopped_run_await_its_other_operands_too() -> None:
    """What it waits for by declaration, P of its row block, must be there when it first starts."""
    schedule, timeline = run(**{"vec.lanes": 8})
    rows = victims(schedule, timeline, stopped=True)
    victim = next(int(row) for row in rows if schedule.dependencies(int(row)))
    needed = max(int(timeline.end[other]) for other, _ in schedule.dependencies(victim))
    faults = faults_of(schedule, retimed(timeline, victim, first_start=needed - 1))
    assert any(f.startswith(f"dependency not respected: #{victim} ") for f in faults)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"late": 0}, "never runs again"),
        ({"first_start": 1 << 30}, "before it starts"),
        ({"lost": 1}, "lost cycles: "),
    ],
)
def test_is_a_stop_that_cannot_have_been_caught(change: dict[str, int], message: str) -> None:
    schedule, timeline = run()
    victim = int(victims(schedule, timeline, stopped=True)[0])
    faults = faults_of(schedule, retimed(timeline, victim, **change))
    assert any(message in f and f"#{victim} " in f for f in faults)


def test_is_a_stop_on_a_machine_that_cannot_stop_caught() -> None:
    schedule, timeline = run()
    unable = replace(schedule, arch=schedule.arch.with_(**{"preemption.supported": False}))
    assert kinds(faults_of(unable, timeline)) == {"stopped"}
    assert all("on a machine that cannot stop a product" in f for f in faults_of(unable, timeline))
    waiting = build(**{"preemption.supported": False})
    assert faults_of(waiting, simulate(waiting)) == ()


def test_must_lost_work_be_done_again() -> None:
    """Where a stop loses the whole product, the time must be enough for all of its tiles so far."""
    schedule, timeline = run("matmul")
    product = int(read_overwrites(schedule, timeline).redone[0, 0])
    assert timeline.end[product] - timeline.start[product] > schedule.cycles[product]
    shorter = retimed(timeline, product, end=int(timeline.end[product]) - 1)
    assert any(f.startswith(f"lost work not done again: #{product} ") for f in faults_of(schedule, shorter))
    by_tile, by_tile_timeline = run("tile")
    loses_more = replace(by_tile, arch=schedule.arch)
    assert {"lost work not done again", "lost cycles"} <= kinds(faults_of(loses_more, by_tile_timeline))


def test_are_the_tiles_that_are_done_again_read_again() -> None:
    """Earlier tiles must still be there when they are done again, long after they were read first."""
    schedule, timeline = run("matmul")
    product, earlier = read_overwrites(schedule, timeline).redone[0].tolist()
    assert of(schedule, earlier, F_FLAGS) & FLAG_FIRST
    source = of(schedule, earlier, F_SRC1)
    # A load of tile 1 of another group to that place, behind the first read, would be early enough to spoil it.
    loads = (schedule.instructions[:, F_OP] == OP_LOAD_V) & (schedule.instructions[:, F_STEP] == 0)
    loads &= (timeline.start > timeline.start[earlier]) & (schedule.instructions[:, F_GROUP] > 0)
    spoiler = int(np.flatnonzero(loads)[0])
    spoiled = edited(schedule, spoiler, F_DST, source)
    when = int(timeline.end[earlier])
    broken = retimed(timeline, spoiler, start=when, end=when + 1)
    faults = faults_of(spoiled, broken)
    assert any(f"#{product} core 0 MAC pv" in f and "reads V(group 0, tile 0)" in f for f in faults)
    assert error_of(spoiled, broken) > 1e-3
    loses_tile = replace(spoiled, arch=spoiled.arch.with_(**{"preemption.lost_granularity": "tile"}))
    assert not any("reads V(group 0, tile 0)" in f for f in faults_of(loses_tile, broken) if f"#{product} " in f)


def test_is_a_timeline_that_does_not_tell_what_became_of_victims_refused() -> None:
    schedule, timeline = run()
    silent = replace(timeline, redo=np.zeros((0, 3), np.int64))
    assert kinds(faults_of(schedule, silent)) == {"malformed timeline"}
    with pytest.raises(ScheduleError, match="malformed timeline"):
        error_of(schedule, silent)
    stray = retimed(timeline, 0, late=1)
    assert faults_of(schedule, stray) == (
        f"malformed timeline: {schedule.describe(0)} is no victim, but was stopped or came late",
    )


# --- Is the audit as strict as execution? ---


@pytest.mark.parametrize("lost", ["tile", "matmul"])
@pytest.mark.parametrize("overwrite", ["v", "k"])
def test_is_no_change_of_fields_missed_that_shows_in_the_numbers(overwrite: str, lost: str) -> None:
    """Whatever field is changed, a schedule that passes the audit computes attention."""
    tiling = replace(TILING, q_tile=6 if overwrite == "v" else 4, overwrite=overwrite)
    schedule = build(tiling, **{"preemption.lost_granularity": lost})
    timeline = simulate(schedule)
    rows = read_overwrites(schedule, timeline).victims
    rng = np.random.Generator(np.random.PCG64(5))
    slots = len(schedule.slots)
    ranges = {F_DST: slots, F_SRC0: slots, F_SRC1: slots, F_ALT: slots, F_GROUP: 3, F_ROW: 7, F_TILE: 4, F_STEP: 4}
    ranges |= {F_FLAGS: 4, F_OVER: len(schedule), F_RELOAD: len(schedule)}
    wrong = 0
    for _ in range(150):
        i = int(rng.choice(rows) if rng.integers(2) else rng.integers(len(schedule)))
        column = int(rng.choice(list(ranges)))
        if schedule.instructions[i, column] < 0:
            continue  # naming a slot or a row that the instruction does not use changes nothing
        broken = edited(schedule, i, column, int(rng.integers(ranges[column])))
        faults = faults_of(broken, timeline)
        if "malformed instruction" in kinds(faults):
            continue
        error = error_of(broken, timeline)
        wrong += error > 1e-3
        assert faults or error < 1e-4, (schedule.describe(i), column, broken.describe(i))
    assert wrong > 25


@pytest.mark.parametrize("lost", ["tile", "matmul"])
def test_is_no_change_of_times_missed_that_shows_in_the_numbers(lost: str) -> None:
    """Whenever products, passes and loads run, a run that passes the audit computes attention."""
    schedule, timeline = run(lost)
    outcome = read_overwrites(schedule, timeline)
    links = np.unique(schedule.instructions[outcome.victims][:, [F_OVER, F_RELOAD]])
    rng = np.random.Generator(np.random.PCG64(6))
    wrong = 0
    for _ in range(150):
        i = int(rng.choice(outcome.victims) if rng.integers(2) else rng.choice(links))
        start = max(0, int(timeline.start[i] + rng.integers(-200, 200)))
        broken = moved(timeline, i, start)
        if rng.integers(2) and i in outcome.victims:
            broken = retimed(broken, i, late=int(rng.integers(2)), first_start=0, lost=0)
        faults, error = faults_of(schedule, broken), error_of(schedule, broken)
        wrong += error > 1e-3
        assert faults or error < 1e-4, schedule.describe(i)
    assert wrong > 10
