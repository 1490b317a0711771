"""Does the schedule really overlap? Each fused dataflow where the answer is known beforehand."""

from dataclasses import replace
from typing import Any

import pytest

from mas_sim import Arch, Tiling, Workload, build_schedule, load_arch, simulate
from mas_sim.bounds import bounds
from mas_sim.search import ExhaustiveSearch, SearchSpace

ROWS = 64
WORKLOAD = Workload(name="even", heads=12, n_q=512, n_kv=512, head_dim_qk=64, head_dim_v=64)
TILING = Tiling(q_tile=ROWS, kv_tile=128, k_resident_tiles=4, v_resident_tiles=4, score_buffers=3)


def machine(exp_lane_cycles: int) -> Arch:
    """A machine whose only costs are MAC steps and exp: ideal array, wide ports, fast DRAM, L1 for everything."""
    return load_arch("mas_edge").with_(
        **{
            "mac.timing": "ideal",
            "mac.l1_port_bytes_per_cycle": 2**20,
            "vec.l1_port_bytes_per_cycle": 2**20,
            "vec.row_reduction_cycles": 0,
            "vec.softmax_passes": [["max", "subtract", "exp", "sum", "divide"]],
            "vec.op_lane_cycles.max": 0,
            "vec.op_lane_cycles.add": 0,
            "vec.op_lane_cycles.subtract": 0,
            "vec.op_lane_cycles.exp": exp_lane_cycles,
            "vec.op_lane_cycles.divide": 0,
            "l1.capacity_kib": 2**20,
            "dram.bandwidth_gb_per_s": 100_000.0,
            "dram.latency_cycles": 0,
            "dram.setup_cycles": 0,
            "issue_cycles": 0,
            "sync_cycles": 0,
        }
    )


def cycles(dataflow: str, arch: Arch, **changes: Any) -> int:
    return simulate(build_schedule(dataflow, arch, WORKLOAD, replace(TILING, **changes))).cycles


@pytest.mark.parametrize("score_buffers", [2, 3])
def test_is_mas_twice_as_fast_as_flat_where_vec_work_equals_mac_work(score_buffers: int) -> None:
    # A row block: 2 * 64 * 512 * 64 MACs on 16 x 16 are 16,384 cycles; 64 * 512 exps on 256 lanes are 128 times
    # the lane-cycles.
    arch = machine(exp_lane_cycles=128)
    mas = cycles("mas", arch, score_buffers=score_buffers)
    flat = cycles("flat", arch)
    assert flat >= 48 * 2 * 16_384  # 48 row blocks a core, both works in turn
    assert mas == pytest.approx(flat / 2, rel=0.03)


def test_are_mas_and_flat_equal_where_vec_work_is_free() -> None:
    arch = machine(exp_lane_cycles=0)
    assert cycles("mas", arch) == pytest.approx(cycles("flat", arch), rel=0.03)


def test_does_mas_hide_all_softmax_but_the_last_where_vec_is_the_faster_unit() -> None:
    arch = machine(exp_lane_cycles=32)
    mac, softmax = 48 * 16_384, 4_096
    # Only the first loads and the last store are outside of the MAC unit's work, and the last softmax hides behind O.
    assert mac <= cycles("mas", arch) <= mac + softmax
    assert cycles("flat", arch) >= mac + 48 * softmax


# --- The other dataflows, where VEC work equals MAC work ---

BLOCKS = 48
"""Row blocks of each of the two cores: 12 heads of 8."""
PRODUCT = 2048
"""Cycles of C, or of O, of one kv tile: 64 * 128 * 64 MACs on 16 x 16."""
EXP = 4096
"""Cycles of 64 * 128 exps on 256 lanes, 128 lane-cycles each: as long as both products of the tile."""
CORRECTION = 128
"""Online softmax takes one exp a row more for each kv tile: 64 rows are one round of the lanes."""
RESCALE = 16
"""64 * 64 multiplications of O by it, one lane-cycle each; in `flash` not for the first kv tile of a row block."""
LOADS_AND_STORE = 300
"""The first loads, the last store, and what takes no lane-cycles but its bytes: a cycle each, at 2**20 a cycle."""


def test_is_flash_in_sequence_the_sum_of_both_units_work() -> None:
    expected = BLOCKS * (4 * (2 * PRODUCT + EXP + CORRECTION) + 3 * RESCALE)
    assert expected <= cycles("flash", machine(128), overlap="none") <= expected + LOADS_AND_STORE


@pytest.mark.parametrize(("dataflow", "overlap", "rescaled"), [("flash", "ping_pong", 3), ("fusemax", "pipelined", 4)])
def test_do_ping_pong_and_fusemax_take_the_vector_units_work_only(dataflow: str, overlap: str, rescaled: int) -> None:
    # Vector work is the longer by the corrections. It waits for the first C, and the last O comes behind it.
    vec = BLOCKS * (4 * (EXP + CORRECTION) + rescaled * RESCALE)
    found = cycles(dataflow, machine(128), overlap=overlap)
    assert vec + PRODUCT <= found <= vec + 2 * PRODUCT + BLOCKS * 6 + LOADS_AND_STORE
    assert found == pytest.approx(cycles("flash", machine(128), overlap="none") / 2, rel=0.03)


@pytest.mark.parametrize("dataflow", ["mas", "tileflow"])
def test_do_full_row_pipelines_take_one_units_work_only(dataflow: str) -> None:
    # Beside the softmax of the first row block there is only C to compute, and beside that of the last only O: twice
    # half of the products, so the MAC unit is idle for one row block's time in all.
    mac = BLOCKS * 4 * 2 * PRODUCT
    assert mac + 4 * EXP <= cycles(dataflow, machine(128)) <= mac + 4 * EXP + BLOCKS * 10 + LOADS_AND_STORE


def test_does_tileflow_with_two_row_blocks_overlap_only_in_part() -> None:
    # O of a row block needs its whole softmax, which needs its whole C: with one row block between them in L1, the MAC
    # unit waits for the vector unit in each round.
    mac = BLOCKS * 4 * 2 * PRODUCT
    assert 1.5 * mac < cycles("tileflow", machine(128), score_buffers=2) < 2 * mac


@pytest.mark.parametrize(
    ("dataflow", "changes"),
    [
        ("mas", {}),
        ("tileflow", {"score_buffers": 3}),
        ("flash", {"overlap": "ping_pong"}),
        ("fusemax", {"overlap": "pipelined"}),
    ],
)
def test_is_every_pipeline_about_twice_as_fast_as_flat_and_flash_in_sequence(
    dataflow: str, changes: dict[str, Any]
) -> None:
    arch = machine(128)
    for slow in (cycles("flat", arch), cycles("flash", arch, overlap="none")):
        assert 0.48 * slow < cycles(dataflow, arch, **changes) < 0.53 * slow


# --- Bound by the MAC unit alone ---

FUSED = ("flat", "tileflow", "flash", "fusemax", "mas")
SHAPES = (
    Workload(name="bert_like", heads=4, n_q=512, n_kv=512, head_dim_qk=64, head_dim_v=64),
    Workload(name="ragged", heads=4, n_q=196, n_kv=196, head_dim_qk=64, head_dim_v=64),
    Workload(name="dim_80", heads=2, n_q=256, n_kv=256, head_dim_qk=80, head_dim_v=80),
)


def mac_bound(exp_steps: int | None = None) -> Arch:
    """A machine on which all but MAC steps is free: a million bytes a cycle from DRAM, and vector work of no cycles."""
    free = {f"vec.op_lane_cycles.{name}": 0 for name in ("max", "add", "subtract", "multiply", "exp", "divide")}
    return machine(0).with_(**free, clock_ghz=0.1, **{"mac.exp_steps": exp_steps})


@pytest.mark.parametrize("dataflow", FUSED)
@pytest.mark.parametrize("workload", SHAPES, ids=lambda workload: workload.name)
def test_does_every_fused_dataflow_reach_the_mac_bound_and_none_beat_it(dataflow: str, workload: Workload) -> None:
    arch = mac_bound()
    least = bounds(arch, workload, dataflow).mac_cycles
    # Both products of all heads, whole folds of 16 x 16, on two cores.
    folds = -(-workload.n_q // 16), -(-workload.n_kv // 16), workload.head_dim_qk, -(-workload.head_dim_v // 16)
    steps = folds[0] * folds[1] * folds[2] + folds[0] * folds[3] * workload.n_kv
    assert least == workload.heads * steps // 2
    best = ExhaustiveSearch().search(SearchSpace(dataflow, arch, workload, limit=6)).best.cycles
    assert least <= best <= 1.02 * least


@pytest.mark.parametrize("workload", SHAPES, ids=lambda workload: workload.name)
def test_is_exp_on_the_array_never_below_the_bound_and_never_chosen_where_vec_is_free(workload: Workload) -> None:
    arch = mac_bound(exp_steps=6)
    best = ExhaustiveSearch().search(SearchSpace("fusemax", arch, workload, limit=6)).best
    assert best.tiling.exp_on == "vec"
    without = ExhaustiveSearch().search(SearchSpace("fusemax", mac_bound(), workload, limit=6)).best
    assert bounds(arch, workload, "fusemax").mac_cycles <= best.cycles == without.cycles
