"""Whether any legal input, however odd, gives a legal schedule that computes attention."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from builders import DTYPES, Problem, computing_exp, masks, overwriting, random_tiling
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mas_sim.arch import Arch, load_arch
from mas_sim.audit import audit
from mas_sim.dataflows import DATAFLOWS, build_schedule
from mas_sim.execute import execute
from mas_sim.overwrites import read_overwrites
from mas_sim.schedule import Schedule
from mas_sim.simulator import simulate
from mas_sim.tiling import CORE_SPLITS, OVERWRITES, Tiling
from mas_sim.timeline import Timeline
from mas_sim.workload import Workload

STEPS = ("scale", "max", "subtract", "exp", "sum")
NORMALIZING = (("divide",), ("reciprocal", "multiply"))


@st.composite
def workloads(
    draw: st.DrawFn, n_q: tuple[int, int] = (1, 40), n_kv: tuple[int, int] = (1, 40), masked: bool = True
) -> Workload:
    """Small attention layers: any heads over K/V heads, any lengths, E unlike F, any mask and data type."""
    kv_heads = draw(st.integers(1, 3))
    lengths = draw(st.integers(*n_q)), draw(st.integers(*n_kv))
    return Workload(
        name="any",
        batch=draw(st.integers(1, 3)),
        heads=kv_heads * draw(st.integers(1, 3)),
        kv_heads=kv_heads,
        n_q=lengths[0],
        n_kv=lengths[1],
        head_dim_qk=draw(st.integers(1, 9)),
        head_dim_v=draw(st.integers(1, 9)),
        **draw(st.sampled_from(DTYPES)),
        **(draw(masks(*lengths)) if masked else {}),
    )


@st.composite
def arches(draw: st.DrawFn) -> Arch:
    """Machines with room enough, but any number of cores, any speeds, and softmax cut into any passes."""
    steps = (*STEPS[draw(st.integers(0, 1)) :], *draw(st.sampled_from(NORMALIZING)))
    cuts = draw(st.sets(st.integers(1, len(steps) - 1)))
    edges = [0, *sorted(cuts), len(steps)]
    changes: dict[str, Any] = {
        "cores": draw(st.integers(1, 4)),
        "vec.softmax_passes": [list(steps[a:b]) for a, b in pairwise(edges)],
        "vec.lanes": draw(st.sampled_from([1, 16, 256])),
        "vec.op_lane_cycles.exp": draw(st.sampled_from([0, 6])),
        "mac.timing": draw(st.sampled_from(["ideal", "pipelined", "systolic"])),
        "l0.accumulator_kib": draw(st.sampled_from([0.25, 64.0])),
        "l1.shared": draw(st.booleans()),
        "dram.bandwidth_gb_per_s": draw(st.sampled_from([0.5, 30.0, 5000.0])),
        "dram.latency_cycles": draw(st.sampled_from([0, 375])),
        "dram.setup_cycles": draw(st.sampled_from([0, 16])),
        "issue_cycles": draw(st.integers(0, 2)),
        "sync_cycles": draw(st.sampled_from([0, 8])),
        "preemption.supported": draw(st.booleans()),
        "preemption.lost_granularity": draw(st.sampled_from(["tile", "matmul"])),
        "preemption.drain_cycles": draw(st.sampled_from([0, 30])),
    }
    return load_arch("mas_edge").with_(**changes)


@st.composite
def tilings(draw: st.DrawFn, dataflow: str) -> Tiling:
    """Any tiling that the dataflow takes, larger than the workload or not; exp is on the vector unit."""
    buffers, flow = st.integers(1, 4), DATAFLOWS[dataflow]
    return Tiling(
        batch_tile=draw(st.integers(1, 3)),
        head_tile=draw(st.integers(1, 6)),
        q_tile=draw(st.integers(3, 45)),
        kv_tile=draw(st.integers(3, 45)),
        k_resident_tiles=draw(st.integers(0, 6)),
        v_resident_tiles=draw(st.integers(0, 6)),
        q_buffers=draw(buffers),
        k_buffers=draw(buffers),
        v_buffers=draw(buffers),
        o_buffers=draw(buffers),
        score_buffers=draw(st.sampled_from(flow.score_buffers)),
        core_split=draw(st.sampled_from(CORE_SPLITS)),
        softmax_in_place=draw(st.sampled_from(flow.in_place)),
        overlap=draw(st.sampled_from(flow.overlaps)),
    )


@st.composite
def schedules(draw: st.DrawFn, dataflow: str) -> Schedule:
    arch, workload, tiling = draw(arches()), draw(workloads()), draw(tilings(dataflow))
    exp_on = draw(st.sampled_from(DATAFLOWS[dataflow].exp_on))
    return build_schedule(dataflow, arch, workload, computing_exp(dataflow, arch, workload, tiling, exp_on))


@st.composite
def overwrites(draw: st.DrawFn) -> Schedule:
    """Schedules of `mas` that overwrite, where the workload allows it: row blocks so small that P fits V or K.

    Slow vector units stop products in flight, fast ones overwrite before they start; slow channels let them wait.
    """
    arch, workload, tiling = draw(arches()), draw(workloads((5, 20), (10, 40), masked=False)), draw(tilings("mas"))
    changes: dict[str, Any] = {
        "vec.op_lane_cycles.max": draw(st.integers(1, 20)),
        "vec.lanes": draw(st.sampled_from([1, 2, 4, 16, 256])),
        "preemption.supported": draw(st.integers(0, 3)) > 0,
    }
    if draw(st.booleans()):  # then a product has time to begin before the first pass that writes
        changes["vec.softmax_passes"] = [["max"], ["subtract", "exp", "sum", "divide"]]
    sizes: dict[str, Any] = {
        "head_tile": draw(st.integers(1, 2)),
        "q_tile": draw(st.integers(1, 4)),
        "kv_tile": draw(st.integers(3, 9)),
    }
    arch, tiling = arch.with_(**changes), replace(tiling, **sizes)
    choice = draw(st.sampled_from(OVERWRITES[1:]))
    return build_schedule("mas", arch, workload, overwriting("mas", arch, workload, tiling, choice))


def assert_legal_and_correct(schedule: Schedule) -> Timeline:
    timeline = simulate(schedule)
    assert timeline.cycles >= 0
    assert audit(schedule, timeline).summary() == "ok"
    assert execute(schedule, timeline).max_abs_error < 1e-4
    return timeline


@pytest.mark.parametrize("dataflow", DATAFLOWS)
@settings(derandomize=True, deadline=None, max_examples=60)
@given(data=st.data())
def test_is_any_legal_input_run_legally_and_correctly(dataflow: str, data: st.DataObject) -> None:
    assert_legal_and_correct(data.draw(schedules(dataflow)))


def test_is_every_overwrite_legal_and_correct() -> None:
    """No product ever uses an overwritten byte; and products that are stopped, late and early all occur."""
    seen = {"late": 0, "early": 0, "stopped": 0, "tiles done again": 0}

    @settings(derandomize=True, deadline=None, max_examples=250, suppress_health_check=[HealthCheck.too_slow])
    @given(schedule=overwrites())
    def check(schedule: Schedule) -> None:
        timeline = assert_legal_and_correct(schedule)
        outcome = read_overwrites(schedule, timeline)
        seen["late"] += int(timeline.late.sum())
        seen["early"] += len(outcome.victims) - int(timeline.late.sum())
        seen["stopped"] += int((timeline.lost_cycles > 0).sum())
        seen["tiles done again"] += len(outcome.redone)

    check()
    assert min(seen.values()) > 0, seen


@settings(derandomize=True, deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(problem=random_tiling("mas"))
def test_are_the_schedules_of_mas_that_other_tests_draw_legal(problem: Problem) -> None:
    assert_legal_and_correct(problem.build())


@settings(derandomize=True, deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(problem=random_tiling())
def test_are_the_schedules_that_other_tests_draw_legal(problem: Problem) -> None:
    assert_legal_and_correct(problem.build())
