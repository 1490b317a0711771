"""Does the schedule really overlap? `mas` against `flat` where the answer is known beforehand."""

import pytest

from mas_sim import Arch, Tiling, Workload, build_schedule, load_arch, simulate

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


def cycles(dataflow: str, arch: Arch) -> int:
    return simulate(build_schedule(dataflow, arch, WORKLOAD, TILING)).cycles


@pytest.mark.parametrize("score_buffers", [2, 3])
def test_is_mas_twice_as_fast_as_flat_where_vec_work_equals_mac_work(score_buffers: int) -> None:
    # A row block: 2 * 64 * 512 * 64 MACs on 16 x 16 are 16,384 cycles; 64 * 512 exps on 256 lanes are 128 times
    # the lane-cycles.
    arch = machine(exp_lane_cycles=128)
    tiling = Tiling(**{**TILING.as_dict(), "score_buffers": score_buffers})
    mas = simulate(build_schedule("mas", arch, WORKLOAD, tiling)).cycles
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
