"""Whether L1 occupancy and DRAM bandwidth over time are what a byte map and the meter say, in every dataflow."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from builders import MicroSchedule, schedules, small_arch, small_workload
from hypothesis import given, settings

from mas_sim.accesses import Accesses, list_accesses
from mas_sim.dataflows import DATAFLOWS, build_schedule
from mas_sim.errors import MasSimError, ScheduleError
from mas_sim.geometry import TENSORS, make_geometry
from mas_sim.meter import meter
from mas_sim.occupancy import Rate, Steps, dram_bandwidth, l1_occupancy
from mas_sim.overwrites import read_overwrites
from mas_sim.schedule import (
    F_ALT,
    F_GROUP,
    F_OVER,
    F_SRC1,
    LOAD,
    SLOT_OFFSET,
    T_V,
    UNITS,
    IntArray,
    Schedule,
)
from mas_sim.simulator import simulate
from mas_sim.tiling import Tiling
from mas_sim.timeline import Timeline

Use = tuple[int, int, int, bool, int, int]
"""Start, instruction, end, whether it writes, first and last byte."""

MASKS: dict[str, dict[str, Any]] = {
    "none": {},
    "causal": {"mask": "causal"},
    "window": {"mask": "sliding_window", "window_back": 9, "window_ahead": 4},
}


def masked(dataflow: str, mask: str, cores: int = 2, **changes: Any) -> tuple[Schedule, Timeline]:
    """Run a small case with ragged tiles on both sides."""
    workload = small_workload(heads=3, n_q=21, n_kv=26, head_dim_qk=4, head_dim_v=6, dtype="fp16", **MASKS[mask])
    score_buffers = 3 if dataflow == "mas" else DATAFLOWS[dataflow].score_buffers[0]
    tiling = Tiling(q_tile=8, kv_tile=8, k_resident_tiles=1, score_buffers=score_buffers)
    schedule = build_schedule(dataflow, small_arch(cores=cores, **changes), workload, tiling)
    return schedule, simulate(schedule)


def overwriting(lost_granularity: str = "tile", **changes: Any) -> tuple[Schedule, Timeline]:
    """Run a schedule in which softmax stops products and overwrites their tiles of V."""
    changes = {
        "vec.lanes": 64, "vec.op_lane_cycles.max": 5, "preemption.drain_cycles": 3, "dram.latency_cycles": 10,
        "preemption.lost_granularity": lost_granularity, **changes,
    }  # fmt: skip
    workload = small_workload(heads=2, n_q=40, n_kv=64, head_dim_qk=8, head_dim_v=8)
    tiling = Tiling(q_tile=8, kv_tile=16, k_resident_tiles=4, v_resident_tiles=4, softmax_in_place=False, overwrite="v")
    schedule = build_schedule("mas", small_arch(**changes), workload, tiling)
    timeline = simulate(schedule)
    assert (timeline.lost_cycles > 0).sum() > 1
    return schedule, timeline


def uses_of(schedule: Schedule, timeline: Timeline) -> list[Use]:
    """List who uses which bytes when; a stopped product also its V tile as it was, and its output, up to the stop."""
    start, end, code = timeline.start.tolist(), timeline.end.tolist(), schedule.instructions
    geometry, overwrites = make_geometry(schedule), read_overwrites(schedule, timeline)
    found = []
    for row, writes, _, first, last, need in rows_of(list_accesses(schedule, geometry, overwrites)):
        found.append((start[row], row, end[row], bool(writes), first, min(last, first + need)))
    alone = replace(overwrites, redone=overwrites.redone[:0])
    for row, writes, version, first, last, need in rows_of(list_accesses(schedule, geometry, alone)):
        if not timeline.lost_cycles[row]:
            continue
        stop = start[code[row, F_OVER]] + schedule.arch.preemption.drain_cycles
        now, before = schedule.slots[code[row, [F_SRC1, F_ALT]] % len(schedule.slots), SLOT_OFFSET].tolist()
        moved = before - now if version % TENSORS == T_V else 0
        size = min(last - first, need)
        begin = int(timeline.redo[row, 1])
        found.append((begin, row + len(schedule), stop, bool(writes), first + moved, first + moved + size))
    return found


def rows_of(accesses: Accesses) -> Iterator[tuple[int, ...]]:
    """Go through accesses one by one."""
    return zip(*(column.tolist() for column in accesses), strict=True)


def twin(schedule: Schedule, timeline: Timeline, core: int | None) -> IntArray:
    """Count live bytes in every cycle, byte by byte; int64[cycles + 1]."""
    of_byte: dict[int, list[Use]] = defaultdict(list)
    mine = range(schedule.core_l1_bytes * schedule.arch.cores)
    if core is not None:
        mine = mine[core * schedule.core_l1_bytes : (core + 1) * schedule.core_l1_bytes]
    for use in uses_of(schedule, timeline):
        for byte in range(use[4], use[5]):
            if byte in mine:
                of_byte[byte].append(use)
    change = np.zeros(timeline.cycles + 2, np.int64)
    for uses in of_byte.values():
        lives: list[list[int]] = []
        reader = -1
        for start, who, end, writes, _, _ in sorted(uses):
            if writes and reader != who:
                if lives:
                    lives[-1][1] = min(lives[-1][1], start)
                lives.append([start, end])
            else:
                lives[-1][1] = max(lives[-1][1], end)
            reader = -1 if writes else who
        for begin, end in lives:
            change[begin] += 1
            change[end] -= 1
    return np.cumsum(change)[:-1]


def by_cycle(steps: Steps, cycles: int) -> IntArray:
    """Spell a step function out; int64[cycles + 1]."""
    found: IntArray = steps.bytes[np.searchsorted(steps.cycles, np.arange(cycles + 1), side="right") - 1]
    return found


def assert_well_formed(steps: Steps | Rate, timeline: Timeline) -> None:
    assert steps.cycles.dtype == steps.bytes.dtype == np.int64
    assert len(steps.cycles) == len(steps.bytes)
    assert steps.cycles[0] == 0
    assert (np.diff(steps.cycles) > 0).all()
    assert steps.cycles[-1] <= timeline.cycles
    assert steps.bytes[-1] == 0
    assert (steps.bytes >= 0).all()


def assert_fits(schedule: Schedule, timeline: Timeline) -> None:
    """Hold occupancy to its bounds: never above the slots, and the cores' shares add up to all of it."""
    total = l1_occupancy(schedule, timeline)
    assert_well_formed(total, timeline)
    assert 0 < total.peak_bytes <= schedule.core_l1_bytes * schedule.active_cores
    if schedule.arch.l1.shared:
        assert total.peak_bytes <= schedule.l1_peak_bytes <= schedule.arch.l1.capacity_bytes
    shares = [l1_occupancy(schedule, timeline, core) for core in range(schedule.arch.cores)]
    assert max(share.peak_bytes for share in shares) <= schedule.core_l1_bytes
    added = sum(by_cycle(share, timeline.cycles) for share in shares)
    assert np.array_equal(by_cycle(total, timeline.cycles), added)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_is_every_cycle_what_a_byte_map_says(dataflow: str, mask: str) -> None:
    schedule, timeline = masked(dataflow, mask)
    for core in (None, 0, 1):
        steps = l1_occupancy(schedule, timeline, core)
        assert np.array_equal(by_cycle(steps, timeline.cycles), twin(schedule, timeline, core))
    assert_fits(schedule, timeline)


@pytest.mark.parametrize("lost_granularity", ["tile", "matmul"])
def test_is_every_cycle_what_a_byte_map_says_where_tiles_are_overwritten(lost_granularity: str) -> None:
    schedule, timeline = overwriting(lost_granularity)
    assert np.array_equal(by_cycle(l1_occupancy(schedule, timeline), timeline.cycles), twin(schedule, timeline, None))
    assert_fits(schedule, timeline)


def test_does_a_stopped_product_keep_its_tile_alive_up_to_the_stop() -> None:
    """If the stop is forgotten, V dies early: at the end of its load, or of the product before."""
    schedule, timeline = overwriting()
    steps = l1_occupancy(schedule, timeline)
    calm = replace(timeline, redo=timeline.redo * np.array([1, 1, 0]))
    without = by_cycle(l1_occupancy(schedule, calm), timeline.cycles)
    more = by_cycle(steps, timeline.cycles) - without
    assert (more >= 0).all()
    stopped = np.flatnonzero(timeline.lost_cycles > 0)
    writes = timeline.start[schedule.instructions[stopped, F_OVER]]
    assert (more[writes - 1] > 0).all()
    assert not more[writes.max() + schedule.arch.preemption.drain_cycles :].any()


def test_does_softmax_over_v_take_its_bytes_and_no_more() -> None:
    """At the moment of the overwrite no byte counts twice: the new P stands where V stood."""
    schedule, timeline = overwriting()
    steps = by_cycle(l1_occupancy(schedule, timeline), timeline.cycles)
    passes = np.unique(schedule.instructions[timeline.lost_cycles > 0, F_OVER])
    assert passes.size
    # P is 8 rows of 64 int8 scores. It replaces live V bytes, so that occupancy grows by less than all of P.
    for at in timeline.start[passes].tolist():
        assert steps[at] - steps[at - 1] < 8 * 64, at


def test_are_the_steps_of_one_tile_those_worked_out_on_paper() -> None:
    """16 x 16 in int8: every tile is 256 bytes, a maximum and a sum of 16 rows are 128."""
    schedule = build_schedule("flat", small_arch(), small_workload(), Tiling())
    steps = l1_occupancy(schedule, simulate(schedule))
    assert dict(zip(steps.cycles.tolist(), steps.bytes.tolist(), strict=True)) == {
        0: 256,  # Q is being loaded
        32: 512,  # and K
        64: 1024,  # QK^T writes C, and V is being loaded
        110: 640,  # Q and K have done their part; the statistics have come; P takes the place of C
        142: 768,  # PV: P, V, O
        188: 256,  # O is being stored
        220: 0,
    }
    apart = build_schedule("mas", small_arch(), small_workload(), Tiling(softmax_in_place=False))
    steps = l1_occupancy(apart, simulate(apart))
    # Of P beside C both are live only while the pass runs that first writes P.
    assert by_cycle(steps, 220)[[118, 119, 122, 123]].tolist() == [640, 896, 896, 640]


def test_does_a_double_buffer_count_only_what_it_holds() -> None:
    """More buffers than there is data to hold change nothing of what is live, though the slots take more room."""
    few, many = (
        build_schedule("flat", small_arch(), small_workload(), Tiling(k_buffers=n, v_buffers=n, o_buffers=n))
        for n in (1, 2)
    )
    first, second = (l1_occupancy(schedule, simulate(schedule)) for schedule in (few, many))
    assert many.l1_peak_bytes >= few.l1_peak_bytes
    assert first.bytes.tolist() == second.bytes.tolist()


@settings(derandomize=True, deadline=None, max_examples=60)
@given(schedules())
def test_do_any_schedules_stay_within_their_slots_and_move_what_is_metered(schedule: Schedule) -> None:
    timeline = simulate(schedule)
    assert_fits(schedule, timeline)
    rate = dram_bandwidth(schedule, timeline)
    assert_well_formed(rate, timeline)
    assert rate.total_bytes == meter(schedule, timeline)[:2].sum()


def test_is_the_bandwidth_that_of_the_transfer_on_the_channel() -> None:
    schedule = build_schedule("flat", small_arch(), small_workload(), Tiling())
    timeline = simulate(schedule)
    rate = dram_bandwidth(schedule, timeline)
    moved = dict(zip(rate.cycles.tolist(), rate.bytes.tolist(), strict=True))
    assert moved == {0: 256, 32: 256, 64: 256, 96: 0, 188: 256, 220: 0}
    assert rate.bytes_per_cycle.tolist() == [8, 8, 8, 0, 8, 0]
    assert rate.total_bytes == 1024


@pytest.mark.parametrize("lost_granularity", ["tile", "matmul"])
@pytest.mark.parametrize("path", ["l1", "dram"])
def test_do_bytes_that_cross_dram_between_mac_and_vec_count_to_the_last_one(path: str, lost_granularity: str) -> None:
    """Also those of products that were stopped, and of the work that they did again."""
    changes: dict[str, Any] = {"mac_vec_path.kind": path}
    if path == "dram":
        changes["mac_vec_path.bytes_per_cycle"] = 3
    schedule, timeline = overwriting(lost_granularity, **changes)
    rate = dram_bandwidth(schedule, timeline)
    assert_well_formed(rate, timeline)
    assert rate.total_bytes == meter(schedule, timeline)[:2].sum()
    on_channel = schedule.unit_of >= LOAD
    assert (meter(schedule, timeline)[:2].sum() > schedule.costs[schedule.instructions[on_channel, 2], 1:3].sum()) == (
        path == "dram"
    )


def test_do_overlapping_transfers_share_their_cycles_in_whole_bytes() -> None:
    """Bytes by interval are whole and add up, even where rates are no whole numbers."""
    changes: dict[str, Any] = {"mac_vec_path.kind": "dram", "mac_vec_path.bytes_per_cycle": 3}
    schedule, timeline = masked("mas", "none", **changes)
    rate = dram_bandwidth(schedule, timeline)
    assert rate.total_bytes == meter(schedule, timeline)[:2].sum()
    kinds = schedule.costs[schedule.instructions[:, 2]]
    moved, length = kinds[:, 1] + kinds[:, 2], timeline.channel_end - timeline.start
    middle = (rate.cycles[:-1] + rate.cycles[1:]) / 2
    real = sum(
        (moved[i] / length[i]) * ((timeline.start[i] <= middle) & (middle < timeline.channel_end[i]))
        for i in np.flatnonzero(moved)
    )
    assert np.abs(rate.bytes[:-1] - real * np.diff(rate.cycles)).max() < schedule.arch.cores * UNITS


def test_is_a_schedule_without_data_empty() -> None:
    schedule = MicroSchedule().load("a", 3).mac("b", 5, after=["a"]).build()
    steps, rate = l1_occupancy(schedule, simulate(schedule)), dram_bandwidth(schedule, simulate(schedule))
    assert (steps.cycles.tolist(), steps.bytes.tolist()) == ([0], [0])
    assert (rate.cycles.tolist(), rate.bytes.tolist(), rate.bytes_per_cycle.tolist()) == ([0], [0], [0])


def test_is_what_cannot_be_told_an_error_of_ours() -> None:
    schedule, timeline = masked("flat", "none")
    for core in (-1, 2):
        with pytest.raises(MasSimError, match=f"core {core}: the machine mas_edge has cores 0 to 1"):
            l1_occupancy(schedule, timeline, core)
    with pytest.raises(ScheduleError, match=r"malformed timeline: 1 entries"):
        l1_occupancy(schedule, replace(timeline, start=timeline.start[:1]))
    code = schedule.instructions.copy()
    code[3, F_GROUP] = 99
    with pytest.raises(ScheduleError, match="works on a row block that does not exist"):
        l1_occupancy(replace(schedule, instructions=code), timeline)
    overwritten, lost = overwriting()
    with pytest.raises(ScheduleError, match="malformed timeline: it says of 0 of"):
        l1_occupancy(overwritten, replace(lost, redo=lost.redo[:0]))
