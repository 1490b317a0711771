"""Is no kernel measured on silicon faster than our bound, with what is known of that machine?

Ascend 910B2, one head, head dimension 128, fp16, N queries and keys: the time of the vendor's public flash-attention
kernel, as its project publishes it. Known of the machine: 24 cube cores at 1.8 GHz, 4,096 multiply-adds a clock each
(derived), L1 and L0 of a core, and about 13.2 scores of softmax a clock and core (observed). Not known to us: the
bandwidth of its memory, and that of the way of scores through global memory between cube and vector cores. So
the schedules cannot be timed on it, and nothing is assumed here: what is not known is wide and free.

`python tests/golden/test_ascend_bounds.py` prints the table of docs/validation.md.
"""

from pathlib import Path

import pytest

from mas_sim.arch import Arch, load_arch
from mas_sim.bounds import Bounds, bounds
from mas_sim.workload import Workload

PAGE = Path(__file__).parents[2] / "docs" / "validation.md"
MEASURED_US = {1024: 20.96, 2048: 32.46, 4096: 88.90, 8192: 292.6, 16384: 909.1, 32768: 3262.6}
CLOCK_GHZ, CORES, MACS, SCORES_PER_CYCLE = 1.8, 24, 16 * 16 * 16, 13.2
HEAD_DIM = 128
WIDE = 2**20


def machine() -> Arch:
    """What is known of the machine; the lanes and the costs of softmax give its observed rate, 66 / 5 = 13.2."""
    steps = {"max": 1, "subtract": 1, "exp": 2, "add": 1, "multiply": 0, "divide": 0}
    known = {
        **{"name": "ascend_910b2", "clock_ghz": CLOCK_GHZ, "cores": CORES, "l1.capacity_kib": 512, "l1.shared": False},
        **{"l0.operand_kib": 128, "l0.accumulator_kib": 128, "vec.lanes": 66},
        **{"mac.rows": 16, "mac.cols": 16, "mac.depth": 16, "mac.timing": "ideal", "mac.l1_port_bytes_per_cycle": WIDE},
        **{f"vec.op_lane_cycles.{name}": cycles for name, cycles in steps.items()},
        **{"vec.l1_port_bytes_per_cycle": WIDE, "vec.row_reduction_cycles": 0, "dram.bandwidth_gb_per_s": 100_000.0},
        **{"dram.latency_cycles": 0, "dram.setup_cycles": 0, "issue_cycles": 0, "sync_cycles": 0},
    }
    return load_arch("davinci_lite").with_(**known)


def found(tokens: int) -> Bounds:
    head = Workload(name="head", heads=1, n_q=tokens, n_kv=tokens, head_dim_qk=HEAD_DIM, head_dim_v=HEAD_DIM)
    return bounds(machine(), head, "flash")


def microseconds(cycles: int) -> float:
    return cycles / (1e3 * CLOCK_GHZ)


def table() -> list[str]:
    lines = [
        "| N | measured, us | bound of MAC, us | of softmax, us | measured over the bound |",
        "|---|---|---|---|---|",
    ]
    for tokens, measured in MEASURED_US.items():
        one = found(tokens)
        mac, vec, least = map(microseconds, (one.mac_cycles, one.vec_cycles, one.lower_cycles))
        lines.append(f"| {tokens:,} | {measured:,.4g} | {mac:,.4g} | {vec:,.4g} | {measured / least:.2f} |")
    return lines


@pytest.mark.parametrize("tokens", MEASURED_US)
def test_is_the_bound_what_the_known_rates_give_and_nothing_else(tokens: int) -> None:
    scores, one = tokens**2, found(tokens)
    assert one.mac_cycles == -(-2 * scores * HEAD_DIM // (MACS * CORES))
    assert one.vec_cycles == pytest.approx(scores / (SCORES_PER_CYCLE * CORES), rel=1e-4)
    assert one.limited_by == "vec"


def test_is_no_measured_kernel_faster_than_the_bound_and_the_long_ones_near_it() -> None:
    over = [measured / microseconds(found(tokens).lower_cycles) for tokens, measured in MEASURED_US.items()]
    assert min(over) > 1
    assert over == sorted(over, reverse=True)  # what start-up costs weighs less and less
    longest = found(max(MEASURED_US))
    in_turn = (longest.mac_cycles + longest.vec_cycles) / longest.lower_cycles
    assert over[-1] < in_turn == pytest.approx(1.825, abs=0.001)  # so its two units overlap


def test_are_measured_shares_of_the_peak_those_of_the_machine_as_it_is_here() -> None:
    """The project states shares of the peak, too: 47.6 % at 32,768 tokens; so peak and clock are those meant."""
    shares = [microseconds(found(tokens).mac_cycles) / measured for tokens, measured in MEASURED_US.items()]
    assert [round(100 * share, 1) for share in shares] == [7.2, 18.7, 27.3, 33.2, 42.7, 47.6]


def test_does_the_page_show_this_table() -> None:
    assert "\n".join(table()) in PAGE.read_text(encoding="utf-8")


if __name__ == "__main__":
    print("\n".join(table()))
