"""Does each instruction of the online and the tiled dataflows start in the cycle in which it does on paper?

The machine: a 4 x 4 array without fill, 16 lanes, 8 bytes a cycle to DRAM, all ports wide, no delays. One head of
int8, head dimension 8, rows in blocks of 4, keys in tiles of 8. So in cycles: Q 4, a tile of K or V 8, O 4; C of a
tile 1 * 2 * 8 = 16, its part of O 16. Softmax of a tile: 2 rounds of the lanes of max 1, subtract 1, exp 2 and add 1,
and for its 4 rows one round of max, subtract, exp (4) and multiply, add (4): 18. O is 2 rounds: scaled 6, added 2,
divided 10.
"""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from builders import small_arch, small_workload

from mas_sim.arch import Arch
from mas_sim.dataflows import DATAFLOWS, build_schedule
from mas_sim.energy import METER_COLUMNS
from mas_sim.schedule import (
    F_FLAGS,
    F_GROUP,
    F_OP,
    F_ROW,
    F_TILE,
    FLAG_PASS,
    LOAD,
    OP_LOAD_K,
    OP_LOAD_V,
    OP_MASK,
    OP_NAMES,
    OP_PV,
    OP_QK,
    OP_STORE_P,
    OP_TILE_SOFTMAX,
    Schedule,
)
from mas_sim.simulator import simulate
from mas_sim.tiling import Tiling
from mas_sim.workload import Workload

Spans = dict[str, tuple[int, int]]
"""First cycle of each instruction and the first one after it, by name: `qk 1.0` is C of row block 1, kv tile 0."""

LANES = {"max": 1, "subtract": 1, "exp": 2, "add": 1, "multiply": 3, "divide": 5, "mask": 1}
TILING = Tiling(q_tile=4, kv_tile=8)


def machine(**changes: Any) -> Arch:
    """The machine above."""
    plain = {
        **{"mac.rows": 4, "mac.cols": 4, "mac.timing": "ideal", "mac.l1_port_bytes_per_cycle": 2**20},
        **{"vec.lanes": 16, "vec.l1_port_bytes_per_cycle": 2**20, "vec.row_reduction_cycles": 0},
        **{f"vec.op_lane_cycles.{name}": cycles for name, cycles in LANES.items()},
        "vec.softmax_passes": [["max", "subtract", "exp", "sum", "divide"]],
    }
    return small_arch(**(plain | changes))


def problem(rows: int, tiles: int) -> Workload:
    """So many row blocks and kv tiles of one head."""
    return small_workload(n_q=4 * rows, n_kv=8 * tiles, head_dim_qk=8, head_dim_v=8)


def spans(schedule: Schedule) -> Spans:
    """Simulate a schedule; passes of softmax over tiles are numbered: `tile_softmax 0.1/2`."""
    timeline, found = simulate(schedule), {}
    for at, row in enumerate(schedule.instructions):
        name = f"{OP_NAMES[row[F_OP]]} {row[F_ROW]}.{row[F_TILE]}"
        if row[F_OP] == OP_TILE_SOFTMAX:
            name += f"/{row[F_FLAGS] // FLAG_PASS}"
        assert name not in found
        found[name] = (int(timeline.start[at]), int(timeline.end[at]))
    return found


def run(dataflow: str, workload: Workload, **changes: Any) -> Spans:
    """Simulate a workload on the machine above, `changes` made to the tiling."""
    return spans(build_schedule(dataflow, machine(), workload, replace(TILING, **changes)))


# --- flash ---


def test_when_does_flash_in_sequence_do_each_step_of_two_tiles() -> None:
    assert run("flash", problem(1, 2), overlap="none") == {
        "load_q 0.0": (0, 4),
        "load_k 0.0": (4, 12),
        "load_v 0.0": (12, 20),
        "load_k 0.1": (20, 28),
        "load_v 0.1": (28, 36),
        "qk 0.0": (12, 28),
        "online 0.0": (28, 46),
        "pv 0.0": (46, 62),  # O is not there yet: nothing to scale
        "qk 0.1": (62, 78),
        "online 0.1": (78, 96),
        "rescale 0.1": (96, 102),
        "pv 0.1": (102, 118),
        "normalize 0.0": (118, 128),
        "store_o 0.0": (128, 132),
    }


def test_when_does_ping_pong_do_each_step_of_two_row_blocks() -> None:
    assert run("flash", problem(2, 2), overlap="ping_pong") == {
        # Both row blocks use each tile of K and V, which is loaded once.
        "load_q 0.0": (0, 4),
        "load_k 0.0": (4, 12),
        "load_q 1.0": (12, 16),
        "load_v 0.0": (16, 24),
        "load_k 0.1": (24, 32),
        "load_v 0.1": (32, 40),
        # While the vector unit has tile 0 of row block 0, the MAC unit does C of row block 1, and so on in turn.
        "qk 0.0": (12, 28),
        "qk 1.0": (28, 44),
        "pv 0.0": (46, 62),
        "qk 0.1": (62, 78),
        "pv 1.0": (78, 94),
        "qk 1.1": (94, 110),
        "pv 0.1": (110, 126),
        "pv 1.1": (134, 150),
        "online 0.0": (28, 46),
        "online 1.0": (46, 64),
        "online 0.1": (78, 96),
        "rescale 0.1": (96, 102),
        "online 1.1": (110, 128),
        "rescale 1.1": (128, 134),
        "normalize 0.0": (134, 144),
        "normalize 1.0": (150, 160),
        "store_o 0.0": (144, 148),
        "store_o 1.0": (160, 164),
    }


def test_does_an_odd_last_row_block_load_its_tiles_for_itself() -> None:
    schedule = build_schedule("flash", machine(), problem(3, 2), replace(TILING, overlap="ping_pong"))
    loads = Counter(schedule.instructions[:, F_OP].tolist())
    assert (loads[OP_LOAD_K], loads[OP_LOAD_V]) == (4, 4)
    in_turn = build_schedule("flash", machine(), problem(3, 2), replace(TILING, overlap="none"))
    loads = Counter(in_turn.instructions[:, F_OP].tolist())
    assert (loads[OP_LOAD_K], loads[OP_LOAD_V]) == (6, 6)


# --- soft_pipe ---


@pytest.mark.parametrize(("sync", "latency"), [(0, 0), (5, 0), (0, 7), (3, 11)])
def test_does_the_second_pass_of_soft_pipe_start_when_the_last_p_is_stored(sync: int, latency: int) -> None:
    arch = machine(sync_cycles=sync, **{"dram.latency_cycles": latency})
    schedule = build_schedule("soft_pipe", arch, problem(3, 2), TILING)
    timeline, ops = simulate(schedule), schedule.instructions[:, F_OP]
    stored = int(timeline.end[ops == OP_STORE_P].max())
    second = [int(timeline.start[at]) for at in range(len(ops)) if OP_NAMES[ops[at]] in ("load_p", "load_v", "pv")]
    assert min(second) == stored + sync


def test_when_does_soft_pipe_do_each_step_of_a_row_block() -> None:
    # One tile. Softmax of whole rows, 5 lane-cycles and a division: 2 * 10; P is 4 * 8 bytes.
    assert run("soft_pipe", problem(1, 1)) == {
        "load_q 0.0": (0, 4),
        "load_k 0.0": (4, 12),
        "qk 0.0": (12, 28),
        "softmax 0.0": (28, 48),
        "store_p 0.0": (48, 52),
        "load_p 0.0": (52, 56),
        "load_v 0.0": (56, 64),
        "pv 0.0": (64, 80),
        "store_o 0.0": (80, 84),
    }


# --- tileflow ---


def test_when_does_tileflow_do_each_step_of_two_tiles() -> None:
    assert run("tileflow", problem(1, 2)) == {
        "load_q 0.0": (0, 4),
        "load_k 0.0": (4, 12),
        "load_k 0.1": (12, 20),
        "load_v 0.0": (20, 28),
        "load_v 0.1": (28, 36),
        "qk 0.0": (12, 28),
        "qk 0.1": (28, 44),
        "tile_softmax 0.0/0": (28, 30),  # max, 2 * 1
        "tile_softmax 0.1/0": (44, 46),
        "tile_softmax 0.0/1": (46, 54),  # subtract, exp and sum, 2 * 4, behind the maximum of both tiles
        "tile_softmax 0.1/1": (54, 62),
        "tile_softmax 0.0/2": (62, 72),  # divide, 2 * 5, behind the sum of both
        "tile_softmax 0.1/2": (72, 82),
        "pv 0.0": (72, 88),  # beside the division of tile 1
        "pv 0.1": (88, 104),
        "store_o 0.0": (104, 108),
    }


@pytest.mark.parametrize("score_buffers", [2, 3])
def test_does_no_tile_of_tileflow_run_ahead_of_its_rows_maximum_and_sum(score_buffers: int) -> None:
    rows, tiles = 4, 3
    found = run("tileflow", problem(rows, tiles), score_buffers=score_buffers)
    for row in range(rows):
        ends = [max(found[f"tile_softmax {row}.{tile}/{step}"][1] for tile in range(tiles)) for step in (0, 1)]
        for tile in range(tiles):
            assert found[f"tile_softmax {row}.{tile}/1"][0] >= ends[0]
            assert found[f"tile_softmax {row}.{tile}/2"][0] >= ends[1]
            assert found[f"pv {row}.{tile}"][0] >= found[f"tile_softmax {row}.{tile}/2"][1]


# --- fusemax ---


def test_when_does_fusemax_in_turn_do_each_step_of_three_tiles() -> None:
    found = run("fusemax", problem(1, 3), overlap="none")
    assert {name: span for name, span in found.items() if not name.startswith("load")} == {
        "qk 0.0": (12, 28),
        "online 0.0": (28, 46),
        "rescale 0.0": (46, 52),  # makes O zero
        "pv 0.0": (46, 62),
        "add 0.0": (62, 64),
        "qk 0.1": (64, 80),  # just when the sum of the tile before it has ended
        "online 0.1": (80, 98),
        "rescale 0.1": (98, 104),
        "pv 0.1": (98, 114),  # into a partial O of its own: it need not wait for the scaled one
        "add 0.1": (114, 116),
        "qk 0.2": (116, 132),
        "online 0.2": (132, 150),
        "rescale 0.2": (150, 156),
        "pv 0.2": (150, 166),
        "add 0.2": (166, 168),
        "normalize 0.0": (168, 178),
        "store_o 0.0": (178, 182),
    }


def test_when_does_fusemax_pipelined_do_each_step_of_three_tiles() -> None:
    assert run("fusemax", problem(1, 3), overlap="pipelined") == {
        "load_q 0.0": (0, 4),
        "load_k 0.0": (4, 12),
        "load_k 0.1": (12, 20),
        "load_v 0.0": (20, 28),
        "load_k 0.2": (28, 36),  # into the buffer of tile 0, which C has read by then
        "load_v 0.1": (36, 44),
        "load_v 0.2": (62, 70),  # into the buffer of tile 0
        "qk 0.0": (12, 28),
        "qk 0.1": (28, 44),  # beside softmax of tile 0
        "pv 0.0": (46, 62),
        "qk 0.2": (62, 78),
        "pv 0.1": (78, 94),
        "pv 0.2": (96, 112),
        "online 0.0": (28, 46),
        "rescale 0.0": (46, 52),
        "online 0.1": (52, 70),  # beside O of tile 0
        "add 0.0": (70, 72),
        "rescale 0.1": (72, 78),
        "online 0.2": (78, 96),
        "add 0.1": (96, 98),
        "rescale 0.2": (98, 104),
        "add 0.2": (112, 114),
        "normalize 0.0": (114, 124),
        "store_o 0.0": (124, 128),
    }


def test_when_does_fusemax_do_each_step_with_exp_on_the_array() -> None:
    # Two folds: C 2 * (8 + 1) and 4 to drain, exp 2 * (1 + 6), O 2 * (8 + 1). The running maximum and the correction of
    # 4 rows are 4 cycles; O has a column more, the sum: 36 elements, 3 rounds, added 3 and scaled 9.
    found = run("fusemax", problem(1, 2), overlap="none", exp_on="mac")
    assert {name: span for name, span in found.items() if not name.startswith("load")} == {
        "qk 0.0": (12, 34),
        "online 0.0": (34, 38),
        "rescale 0.0": (38, 47),
        "exp 0.0": (38, 52),
        "pv 0.0": (52, 70),
        "add 0.0": (70, 73),
        "qk 0.1": (73, 95),
        "online 0.1": (95, 99),
        "rescale 0.1": (99, 108),
        "exp 0.1": (99, 113),
        "pv 0.1": (113, 131),
        "add 0.1": (131, 134),
        "normalize 0.0": (134, 144),
        "store_o 0.0": (144, 148),
    }


@pytest.mark.parametrize(("timing", "fills"), [("ideal", 0), ("pipelined", 1), ("systolic", 2)])
def test_does_every_fold_of_exp_on_a_systolic_array_fill_and_drain(timing: str, fills: int) -> None:
    # The lengths above; across a 4 x 4 array it is 6 cycles, once an instruction or once for each of its two folds.
    tiling = replace(TILING, overlap="none", exp_on="mac")
    found = spans(build_schedule("fusemax", machine(**{"mac.timing": timing}), problem(1, 2), tiling))
    lengths = {name: end - start for name, (start, end) in found.items()}
    for tile in ("0.0", "0.1"):
        steps = [lengths[f"{name} {tile}"] for name in ("qk", "exp", "pv")]
        assert steps == [22 + 6 * fills, 14 + 6 * fills, 18 + 6 * fills]


def test_do_the_last_tile_of_a_row_block_and_the_first_of_the_next_overlap_too() -> None:
    found = run("fusemax", problem(2, 1), overlap="pipelined")
    first, then = found["online 0.0"], found["qk 1.0"]
    assert then[0] < first[1]
    assert first[0] < then[1]


# --- Masks ---

SHAPES = [(16, 24), (13, 29), (4, 40), (24, 24), (1, 24)]
MASKS = [
    {"mask": "none"},
    {"mask": "causal"},
    {"mask": "sliding_window", "window_back": 5},
    {"mask": "sliding_window", "window_back": 0},
    {"mask": "sliding_window", "window_back": 11, "window_ahead": 6},
]


def kept_tiles(workload: Workload) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    """Row blocks and kv tiles with any score that counts, and those of them with any that does not: score by score."""
    some: set[tuple[int, int]] = set()
    partial: set[tuple[int, int]] = set()
    for row in range(workload.n_q):
        first, last = workload.key_range(row)
        for key in range(workload.n_kv):
            (some if first <= key < last else partial).add((row // 4, key // 8))
    return some, some & partial


@pytest.mark.parametrize("dataflow", sorted(DATAFLOWS))
@pytest.mark.parametrize("mask", MASKS, ids=lambda mask: "_".join(map(str, mask.values())))
@pytest.mark.parametrize(("n_q", "n_kv"), SHAPES)
def test_are_just_the_tiles_computed_that_count_and_the_partial_ones_masked(
    dataflow: str, mask: dict[str, Any], n_q: int, n_kv: int
) -> None:
    workload = small_workload(heads=2, n_q=n_q, n_kv=n_kv, head_dim_qk=8, head_dim_v=8, **mask)
    score_buffers = max(DATAFLOWS[dataflow].score_buffers)
    schedule = build_schedule(dataflow, machine(), workload, replace(TILING, score_buffers=score_buffers))
    some, partial = kept_tiles(workload)
    for op, expected in ((OP_QK, some), (OP_PV, some), (OP_MASK, partial)):
        rows = schedule.instructions[schedule.instructions[:, F_OP] == op]
        found = Counter((int(row[F_GROUP]), int(row[F_ROW]), int(row[F_TILE])) for row in rows)
        assert found == Counter((group, *tile) for group in range(2) for tile in expected)


def test_how_many_tiles_does_a_causal_mask_leave_in_a_square() -> None:
    # 8 row blocks of 4, 4 kv tiles of 8: row blocks 0 and 1 see one tile, 2 and 3 two, and so on. The last is partial.
    workload = small_workload(n_q=32, n_kv=32, head_dim_qk=8, head_dim_v=8, mask="causal")
    found = Counter(build_schedule("mas", machine(), workload, TILING).instructions[:, F_OP].tolist())
    assert (found[OP_QK], found[OP_MASK]) == (2 * (1 + 2 + 3 + 4), 8)


# --- Decoding ---


def decode(kv_heads: int) -> Workload:
    """One query of four heads to 64 keys."""
    return small_workload(heads=4, kv_heads=kv_heads, n_q=1, n_kv=64)


@pytest.mark.parametrize("dataflow", sorted(DATAFLOWS))
@pytest.mark.parametrize(
    ("kv_heads", "products"),
    [
        (1, 1),  # four rows of one product with K
        (2, 2),  # two rows of each of two
        (4, 4),  # a product a head, of one row
    ],
)
def test_are_query_heads_that_share_k_packed_on_the_rows_of_the_array(
    dataflow: str, kv_heads: int, products: int
) -> None:
    arch = machine(**{"mac.rows": 16, "mac.cols": 16})
    tiling = Tiling(head_tile=4, q_tile=1, kv_tile=64, score_buffers=max(DATAFLOWS[dataflow].score_buffers))
    schedule = build_schedule(dataflow, arch, decode(kv_heads), tiling)
    ops = schedule.instructions[:, F_OP]
    # C: 64 / 16 blocks of columns, 16 steps each. O: 16 / 16 blocks, 64 steps.
    assert schedule.cycles[ops == OP_QK].tolist() == [products * 4 * 16]
    assert schedule.cycles[ops == OP_PV].tolist() == [products * 1 * 64]
    # K and V of the group are loaded once, 64 * 16 bytes a K/V head.
    counts = dict(zip(METER_COLUMNS, schedule.meter_counts().tolist(), strict=True))
    for op in (OP_LOAD_K, OP_LOAD_V):
        assert schedule.cycles[ops == op].tolist() == [kv_heads * 64 * 16 // 8]
    if dataflow not in ("layer_wise", "soft_pipe"):
        assert counts["dram_read_bytes"] == 4 * 16 + 2 * kv_heads * 64 * 16


@pytest.mark.parametrize("dataflow", ["flat", "tileflow", "flash", "fusemax", "mas"])
def test_is_k_loaded_for_each_query_head_only_if_neither_grouped_nor_kept(dataflow: str) -> None:
    score_buffers = max(DATAFLOWS[dataflow].score_buffers)
    tiling = Tiling(head_tile=1, q_tile=1, kv_tile=64, score_buffers=score_buffers)
    kept = replace(tiling, k_resident_tiles=1, v_resident_tiles=1)
    for choice, loads in ((tiling, 4), (kept, 1), (replace(tiling, head_tile=4), 1)):
        schedule = build_schedule(dataflow, machine(), decode(1), choice)
        rows = schedule.instructions[schedule.unit_of == LOAD]
        assert Counter(rows[:, F_OP].tolist())[OP_LOAD_K] == loads
