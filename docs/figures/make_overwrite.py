"""Draw `overwrite.svg` and `overwrite.png` beside this file: one proactive overwrite, from a real simulation.

The case is one BERT-like head on one core of `mas_edge` whose L1 is so small that P has no room beside C, K and V, and
whose vector unit takes so long over the maxima of the rows that it starts to write P_{r-1} in the middle of a tile of
O_{r-2}: that product is stopped, the tiles of V are loaded again, and the lost work is done again.

    python docs/figures/make_overwrite.py
"""

from pathlib import Path

from mas_sim.arch import Arch, load_arch
from mas_sim.dataflows import build_schedule
from mas_sim.plots import plot_timeline
from mas_sim.schedule import F_OP, F_ROW, OP_PV, OP_QK, Schedule
from mas_sim.simulator import simulate
from mas_sim.tiling import Tiling
from mas_sim.timeline import Timeline
from mas_sim.workload import Workload

ROW = 4
"""The row block whose softmax overwrites V in the figure: one of the steady state."""
MARGIN_CYCLES = 400


def machine() -> Arch:
    """Return one core of `mas_edge` with little L1, a narrow vector unit and a fast channel, so that all shows."""
    changes = {
        "cores": 1,
        "l1.capacity_kib": 224,
        "vec.lanes": 32,
        "vec.op_lane_cycles.max": 5,
        "dram.bandwidth_gb_per_s": 120,
    }
    return load_arch("mas_edge").with_(**changes)


def run() -> tuple[Schedule, Timeline]:
    """Build the schedule and time it."""
    workload = Workload(name="bert_like", heads=1, n_q=512, n_kv=512, head_dim_qk=64, head_dim_v=64, dtype="fp16")
    tiling = Tiling(
        q_tile=32, kv_tile=128, k_resident_tiles=4, v_resident_tiles=4, k_buffers=1, v_buffers=1,
        softmax_in_place=False, overwrite="v",
    )  # fmt: skip
    schedule = build_schedule("mas", machine(), workload, tiling)
    return schedule, simulate(schedule)


def window(schedule: Schedule, timeline: Timeline) -> tuple[int, int]:
    """Return the cycles to show: from the scores C that the overwriting softmax waits for to the end of that round."""
    code = schedule.instructions
    scores, products = code[:, F_OP] == OP_QK, code[:, F_OP] == OP_PV
    victims = products & (code[:, F_ROW] == ROW - 1)
    if not (timeline.lost_cycles[victims] > 0).any():
        raise SystemExit(f"no tile of O_{ROW - 1} was stopped: the case no longer shows an overwrite")
    first = timeline.start[scores & (code[:, F_ROW] == ROW)].min()
    last = timeline.end[scores & (code[:, F_ROW] == ROW + 1)].max()
    return int(first) - MARGIN_CYCLES, int(last) + MARGIN_CYCLES


def main() -> None:
    """Simulate and draw."""
    schedule, timeline = run()
    first, last = window(schedule, timeline)
    plot_timeline(schedule, timeline, Path(__file__).with_name("overwrite"), first_cycle=first, last_cycle=last)


if __name__ == "__main__":
    main()
