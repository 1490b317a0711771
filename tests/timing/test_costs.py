"""Whether every formula of the cost model gives what it gives on paper."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from builders import small_arch, small_workload
from hypothesis import given, settings
from hypothesis import strategies as st

from mas_sim import costs, schedule
from mas_sim.costs import (
    FORM_ONLINE,
    FORM_ROWS,
    FORM_TILES,
    P_HEADS,
    P_KV_HEADS,
    PATHS,
    ceil_div,
    dma_channel_cycles,
    l0_repeats,
    pack_problem,
    pack_softmax,
    softmax_passes,
    vec_cycles,
)
from mas_sim.kind_costs import (
    V_DRAINS,
    V_STAYS,
    V_TO_VEC,
    cost_of_add,
    cost_of_dma,
    cost_of_exp,
    cost_of_mask,
    cost_of_matmul,
    cost_of_normalize,
    cost_of_rescale,
    cost_of_softmax,
)
from mas_sim.schedule import COST_FIELDS, IntArray

COLUMNS = {value: name for name, value in vars(schedule).items() if name.startswith("C_")}

Cost = dict[str, int]
"""Nonzero columns of a row of the cost table, by name: `{"CYCLES": 3}`."""

FIRST, LAST, SPILLED = 1, 2, 4


def filled(fill: Callable[..., None], *arguments: object) -> Cost:
    """Let a function fill a row of the cost table."""
    row = np.zeros(COST_FIELDS, np.int64)
    fill(row, *arguments)
    return {COLUMNS[column].removeprefix("C_"): int(row[column]) for column in np.flatnonzero(row)}


def problem(**changes: Any) -> IntArray:
    """Pack a machine with a 4 x 4 array, 64 bytes of L0 operands and 32 accumulators, except for `changes`.

    8 bytes a cycle to DRAM; int8 elements, so that a byte is an element; partial sums take 4 bytes.
    """
    machine = {"mac.rows": 4, "mac.cols": 4, "mac.timing": "ideal", "mac.l1_port_bytes_per_cycle": 128}
    l0 = {"l0.operand_kib": 64 / 1024, "l0.accumulator_kib": 128 / 1024}
    dtype = changes.pop("dtype", "int8")
    return pack_problem(small_arch(**(machine | l0 | changes)), small_workload(dtype=dtype))


# --- Is everything packed where it is looked for? ---


def test_is_every_parameter_in_its_own_column() -> None:
    arch = small_arch(
        cores=3,
        issue_cycles=4,
        sync_cycles=5,
        clock_ghz=0.75,
        **{
            **{"mac.rows": 6, "mac.cols": 7, "mac.depth": 8, "mac.timing": "systolic", "mac.stationary": "weight"},
            **{"mac.l1_port_bytes_per_cycle": 9, "vec.lanes": 10, "vec.l1_port_bytes_per_cycle": 11},
            **{"vec.row_reduction_cycles": 12, "dram.latency_cycles": 13, "dram.setup_cycles": 14},
            **{"dram.bandwidth_gb_per_s": 38, "l0.operand_kib": 15, "l0.accumulator_kib": 16, "l1.capacity_kib": 17},
            **{"mac_vec_path.kind": "dram", "mac_vec_path.bytes_per_cycle": 18},
            **{"preemption.supported": True, "preemption.drain_cycles": 25, "preemption.lost_granularity": "matmul"},
            **{"mac.exp_steps": 27, "vec.op_lane_cycles.mask": 28, "vec.op_lane_cycles.max": 29},
            **{"vec.op_lane_cycles.add": 30, "vec.op_lane_cycles.multiply": 31, "vec.op_lane_cycles.divide": 32},
        },
    ).with_softmax("reciprocal")
    workload = small_workload(
        batch=19, heads=20, kv_heads=10, n_q=21, n_kv=22, head_dim_qk=23, head_dim_v=24, dtype="fp16",
        mask="sliding_window", window_back=26, window_ahead=3,
    )  # fmt: skip
    p = pack_problem(arch, workload)
    got = {name: int(p[column]) for name, column in vars(costs).items() if name.startswith("P_")}
    assert got == {
        **{"P_CORES": 3, "P_ROWS": 6, "P_COLS": 7, "P_DEPTH": 8, "P_TIMING": 2, "P_STATIONARY": 1, "P_MAC_PORT": 9},
        **{"P_LANES": 10, "P_VEC_PORT": 11, "P_REDUCE": 12, "P_ISSUE": 4, "P_SYNC": 5, "P_LATENCY": 13, "P_SETUP": 14},
        **{"P_BW_NUM": 152, "P_BW_DEN": 3},  # 38 / 0.75 bytes a cycle
        **{"P_OPERAND_BYTES": 15 * 1024, "P_ACC_BYTES": 16 * 1024, "P_L1_BYTES": 17 * 1024, "P_L1_SHARED": 1},
        **{"P_PATH": 2, "P_PATH_BYTES": 18, "P_BATCH": 19, "P_HEADS": 20, "P_KV_HEADS": 10, "P_NQ": 21, "P_NKV": 22},
        **{"P_E": 23, "P_F": 24, "P_ELEMENT": 2, "P_ACC_ELEMENT": 4},
        **{"P_PREEMPTS": 1, "P_DRAIN": 25, "P_LOSES_PRODUCT": 1, "P_BACK": 26, "P_AHEAD": 3, "P_EXP_STEPS": 27},
        **{"P_LC_MASK": 28, "P_LC_MAX": 29, "P_LC_ADD": 30, "P_LC_MUL": 31, "P_LC_DIV": 32, "P_RECIPROCAL": 1},
    }


def test_has_a_machine_without_exp_on_the_array_no_steps_for_it() -> None:
    assert problem(**{"mac.exp_steps": None})[costs.P_EXP_STEPS] == 0


@pytest.mark.parametrize(("mask", "band"), [("none", (2**26, 2**26)), ("causal", (2**26, 0))])
def test_is_a_side_without_limit_further_than_any_key(mask: str, band: tuple[int, int]) -> None:
    p = pack_problem(small_arch(), small_workload(mask=mask))
    assert (p[costs.P_BACK], p[costs.P_AHEAD]) == band


LANES = {"max": 2, "add": 3, "subtract": 5, "multiply": 7, "exp": 11, "divide": 13}


def pass_table(passes: list[list[str]], form: int = FORM_ROWS) -> list[tuple[list[int], list[int], int]]:
    """Rows of a pass table of `LANES`.

    Of each: lane-cycles, row reductions, whether it writes, whether it reads C, then operations (max, add, mul, exp,
    div); the same lane-cycles and operations once a row; whether it works on rows only.
    """
    lanes = {f"vec.op_lane_cycles.{name}": cycles for name, cycles in LANES.items()}
    table = pack_softmax(small_arch(**{"vec.softmax_passes": passes}, **lanes), form).tolist()
    return [(row[:9], row[9:15], row[15]) for row in table]


NO_ROW_WORK = [0, 0, 0, 0, 0, 0]


def test_are_softmax_passes_summed_step_by_step() -> None:
    assert pass_table([["scale", "max"], ["subtract", "exp", "sum"], ["divide"]]) == [
        ([7 + 2, 1, 1, 1, 1, 0, 1, 0, 0], NO_ROW_WORK, 0),
        ([5 + 11 + 3, 1, 1, 0, 0, 2, 0, 1, 0], NO_ROW_WORK, 0),  # a subtraction and the sum are both additions
        ([13, 0, 1, 0, 0, 0, 0, 0, 1], NO_ROW_WORK, 0),
    ]


def test_is_a_reciprocal_one_division_a_row() -> None:
    passes = [["max"], ["subtract", "exp", "sum", "reciprocal"], ["multiply"]]
    assert pass_table(passes) == [
        ([2, 1, 0, 1, 1, 0, 0, 0, 0], NO_ROW_WORK, 0),
        ([5 + 11 + 3, 1, 1, 1, 0, 2, 0, 1, 0], [13, 0, 0, 0, 0, 1], 0),
        ([7, 0, 1, 0, 0, 0, 1, 0, 0], NO_ROW_WORK, 0),
    ]


def test_is_softmax_over_tiles_cut_where_a_whole_rows_maximum_or_sum_is_needed() -> None:
    arch = small_arch(**{"vec.softmax_passes": [["scale", "max", "subtract", "exp", "sum", "divide"]]})
    assert softmax_passes(arch, FORM_TILES) == (("scale", "max"), ("subtract", "exp", "sum"), ("divide",))
    assert softmax_passes(arch, FORM_ROWS) == (("scale", "max", "subtract", "exp", "sum", "divide"),)
    assert softmax_passes(arch, FORM_ONLINE) == (("scale", "max", "subtract", "exp", "sum"),)


@pytest.mark.parametrize("last", [["divide"], ["reciprocal", "multiply"]])
def test_does_online_softmax_update_maximum_and_sum_once_a_row_and_divide_nothing(last: list[str]) -> None:
    # A row: max(old, new), old - max, its exp, with the maximum; sum * correction + new, with the sum. The last row of
    # the table is for exp on the MAC array: the running maximum and the correction from local maxima.
    maximum = [2 + 5 + 11, 1, 1, 0, 1, 0]
    assert pass_table([["max"], ["subtract", "exp", "sum"], last], FORM_ONLINE) == [
        ([2, 1, 0, 1, 1, 0, 0, 0, 0], maximum, 0),
        ([5 + 11 + 3, 1, 1, 1, 0, 2, 0, 1, 0], [7 + 3, 0, 1, 1, 0, 0], 0),
        ([0, 0, 0, 0, 0, 0, 0, 0, 0], maximum, 1),
    ]


# --- Transfers ---


@pytest.mark.parametrize(
    ("size_bytes", "setup", "bandwidth", "cycles"),
    [
        (64, 0, (8, 1), 8),
        (65, 0, (8, 1), 9),
        (65, 16, (8, 1), 25),
        (100, 0, (20, 3), 15),  # 100 / (20 / 3) = 15 exactly; in floating point perhaps a little more
        (101, 0, (20, 3), 16),
        (9, 0, (3, 1), 3),
        (1, 0, (1, 7), 7),  # a seventh of a byte a cycle
        (1, 0, (1000, 1), 1),
        (0, 0, (8, 1), 1),  # the channel is always held for a cycle
        (0, 5, (8, 1), 5),
    ],
)
def test_is_channel_time_set_up_plus_bytes_over_bandwidth_rounded_up(
    size_bytes: int, setup: int, bandwidth: tuple[int, int], cycles: int
) -> None:
    assert dma_channel_cycles(size_bytes, setup, *bandwidth) == cycles


def test_is_bandwidth_an_exact_fraction_of_the_files_decimals() -> None:
    # 0.3 / 0.1 is 2.9999999999999996 in floating point, and 9 bytes would take 4 cycles.
    p = problem(clock_ghz=0.1, **{"dram.bandwidth_gb_per_s": 0.3})
    assert filled(cost_of_dma, 9, True, p)["CYCLES"] == 3


def test_what_does_a_transfer_move() -> None:
    p = problem(**{"dram.setup_cycles": 16, "dram.latency_cycles": 99, "issue_cycles": 2})
    # 100 / 8 = 12.5, so 16 + 13; latency and issue are the event kernel's to add.
    assert filled(cost_of_dma, 100, True, p) == {"CYCLES": 29, "DRAM_READ": 100, "L1_WRITE": 100}
    assert filled(cost_of_dma, 100, False, p) == {"CYCLES": 29, "L1_READ": 100, "DRAM_WRITE": 100}


# --- L0 tiles ---


def test_does_l0_tiling_move_the_fewest_elements_in_a_case_worked_out() -> None:
    # m 8, n 12, k 4 on a 4 x 4 array, 32 accumulators. Tile 4 x 8: A ceil(12/8) = 2 times, B ceil(8/4) = 2 times:
    # 32 * 2 + 48 * 2 = 160 elements. Tile 8 x 4: 32 * 3 + 48 * 1 = 144, which is fewer.
    assert l0_repeats(8, 12, 4, 4, 4, 1, 1, 4, 64, 128) == (3, 1)
    # With 64 accumulators 4 x 12 fits (48), and with operands of 16 bytes too: 32 * 1 + 48 * 2 = 128. 8 x 8 would move
    # 32 * 2 + 48 * 1 = 112 and fits both.
    assert l0_repeats(8, 12, 4, 4, 4, 1, 1, 4, 16, 256) == (2, 1)
    # One byte less of operands, 8 + 8 > 15, and 4 x 12 > 15 as well: 4 x 8 (160) or 8 x 4 (144).
    assert l0_repeats(8, 12, 4, 4, 4, 1, 1, 4, 15, 256) == (3, 1)
    # A depth of 2 doubles the operand bytes: 2 * (8 + 8) = 32.
    assert l0_repeats(8, 12, 4, 4, 4, 2, 1, 4, 32, 256) == (2, 1)
    assert l0_repeats(8, 12, 4, 4, 4, 2, 1, 4, 31, 256) == (3, 1)
    # But no deeper than k is.
    assert l0_repeats(8, 12, 1, 4, 4, 2, 1, 4, 16, 256) == (2, 1)


@given(
    shape=st.tuples(st.integers(1, 40), st.integers(1, 40), st.integers(1, 6)),
    array=st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 5)),
    element=st.sampled_from([1, 2]),
    operand=st.integers(1, 300),
    acc=st.integers(1, 2000),
)
@settings(derandomize=True, deadline=None, max_examples=1000)
def test_does_l0_tiling_move_as_few_elements_as_any_tile_that_fits(
    shape: tuple[int, int, int], array: tuple[int, int, int], element: int, operand: int, acc: int
) -> None:
    (m, n, k), (rows, cols, depth) = shape, array
    tiles = [
        (m0, n0)
        for m0 in range(rows, m + rows, rows)
        for n0 in range(cols, n + cols, cols)
        if (m0, n0) == (rows, cols)  # always fits
        or (m0 * n0 * 4 <= acc and (m0 + n0) * min(k, depth) * element <= operand)
    ]
    repeats = {(ceil_div(n, n0), ceil_div(m, m0)) for m0, n0 in tiles}
    fewest = min(m * k * repeats_n + k * n * repeats_m for repeats_n, repeats_m in repeats)
    found = l0_repeats(m, n, k, *array, element, 4, operand, acc)
    assert found in repeats
    assert m * k * found[0] + k * n * found[1] == fewest


# --- Products ---

# C = Q K^T, m 8, k 4, n 12, two heads. Array: 2 * ceil(8/4) * ceil(12/4) * 4 = 48 cycles. L0 tile 8 x 4 (see above): Q
# goes to L0 three times, 2 * 32 * 3 = 192 bytes, K once, 2 * 48 = 96 bytes. C is 2 * 96 = 192 elements. L0 to array: Q
# ceil(12/4) = 3 times, K ceil(8/4) = 2 times, 2 * (32 * 3 + 48 * 2) = 384 bytes. Accumulators, 4 bytes each:
# written once and read once, 768 bytes.
TWO_HEADS = np.array([1, 0, 2, 0])
"""Packs of one batch: two K/V heads with all their query heads, here one each."""

QK = {"L0_READ": 384 + 768, "L0_WRITE": 192 + 96 + 768, "MACS": 2 * 8 * 4 * 12}


def qk(path: str, **changes: Any) -> Cost:
    return filled(cost_of_matmul, 8, 4, 12, TWO_HEADS, False, 0, PATHS.index(path), 0, problem(**changes))


def test_what_does_a_product_of_q_and_k_cost() -> None:
    assert qk("l1") == {"CYCLES": 48, "L1_READ": 192 + 96, "L1_WRITE": 192, **QK}
    assert qk("l1", issue_cycles=2)["CYCLES"] == 50
    # Pipelined: 4 + 4 - 2 more. In fp16 all bytes but the accumulators' double.
    assert qk("l1", **{"mac.timing": "pipelined"})["CYCLES"] == 54


def test_does_fp16_double_all_bytes_but_those_of_the_accumulators() -> None:
    # Operands of 128 bytes, so that the same L0 tile fits.
    cost = qk("l1", dtype="fp16", **{"l0.operand_kib": 128 / 1024})
    assert (cost["L1_READ"], cost["L1_WRITE"]) == (2 * 288, 2 * 192)
    assert (cost["L0_READ"], cost["L0_WRITE"]) == (2 * 384 + 768, 2 * 288 + 768)
    assert cost["CYCLES"] == 48


@pytest.mark.parametrize(("port", "cycles"), [(11, 48), (10, 48), (9, 54), (1, 480)])
def test_is_a_product_never_faster_than_its_port(port: int, cycles: int) -> None:
    # 288 + 192 = 480 bytes cross the port; 480 / 10 = 48 is just the array's time, 480 / 9 = 53.3.
    assert qk("l1", **{"mac.l1_port_bytes_per_cycle": port})["CYCLES"] == cycles


def test_do_scores_leave_by_the_path() -> None:
    wires = {"mac_vec_path.kind": "direct", "mac_vec_path.bytes_per_cycle": 4}
    # 192 bytes at 4 a cycle are 48 cycles; at 3, 64. L1 sees the operands only, and DRAM nothing.
    assert qk("direct", **wires) == {"CYCLES": 48, "L1_READ": 288, **QK}
    assert qk("direct", **wires | {"mac_vec_path.bytes_per_cycle": 3})["CYCLES"] == 64
    dram = {"mac_vec_path.kind": "dram", "mac_vec_path.bytes_per_cycle": 3}
    assert qk("dram", **dram) == {"CYCLES": 64, "L1_READ": 288, "DRAM_WRITE": 192, **QK}
    # Scores that do not cross the port do not slow it: 288 / 8 = 36 cycles.
    assert qk("direct", **wires, **{"mac.l1_port_bytes_per_cycle": 8})["CYCLES"] == 48


# O = P V, m 8, k 12, n 4, two heads. Array: 2 * 2 * 1 * 12 = 48 cycles. L0 tile 8 x 4 holds all of O: P and V go to L0
# once, 2 * 96 = 192 and 2 * 48 = 96 bytes. O is 2 * 32 = 64 elements, 256 bytes of partial sums. L0 to array: P once, V
# twice, 2 * (96 + 96) = 384 bytes.
PV_OPERANDS, PARTIALS, O_BYTES = 384, 256, 64
PV_CASES = {
    # variant: L1 bytes read and written beside the operands, and how often the accumulators are read
    FIRST | LAST: (0, O_BYTES, 1),  # only once, to leave
    FIRST: (0, 0, 0),  # stays in the accumulators
    0: (0, 0, 1),  # is added to
    LAST: (0, O_BYTES, 2),  # is added to, and leaves
    FIRST | SPILLED: (0, PARTIALS, 1),
    SPILLED: (PARTIALS, PARTIALS, 2),
    LAST | SPILLED: (PARTIALS, O_BYTES, 2),
    FIRST | LAST | SPILLED: (0, O_BYTES, 1),
}


def pv(variant: int, path: str = "l1", **changes: Any) -> Cost:
    return filled(cost_of_matmul, 8, 12, 4, TWO_HEADS, True, variant, PATHS.index(path), 0, problem(**changes))


@pytest.mark.parametrize("variant", sorted(PV_CASES))
def test_where_do_the_partial_sums_of_o_go(variant: int) -> None:
    read, written, drained = PV_CASES[variant]
    cost = pv(variant)
    assert cost["L1_READ"] == 192 + 96 + read
    assert cost.get("L1_WRITE", 0) == written
    assert cost["L0_READ"] == PV_OPERANDS + drained * PARTIALS
    # What was spilled is filled back into the accumulators before it is added to.
    refilled = PARTIALS if variant & SPILLED and not variant & FIRST else 0
    assert cost["L0_WRITE"] == 192 + 96 + PARTIALS + refilled
    assert (cost["CYCLES"], cost["MACS"]) == (48, 2 * 8 * 12 * 4)


def test_do_spilled_partial_sums_slow_the_port() -> None:
    port: dict[str, Any] = {"mac.l1_port_bytes_per_cycle": 8}
    # (288 + 256 + 256) / 8 = 100 cycles; without the spill 288 / 8 = 36, and the array takes 48.
    assert pv(SPILLED, **port)["CYCLES"] == 100
    assert pv(0, **port)["CYCLES"] == 48


def test_do_probabilities_arrive_by_the_path() -> None:
    wires = {"mac_vec_path.kind": "direct", "mac_vec_path.bytes_per_cycle": 3}
    # P is 192 bytes: 64 cycles at 3 a cycle.
    cost = pv(FIRST | LAST, "direct", **wires)
    assert (cost["CYCLES"], cost["L1_READ"], cost["L1_WRITE"]) == (64, 96, O_BYTES)
    assert not {"DRAM_READ", "DRAM_WRITE"} & set(cost)
    cost = pv(FIRST | LAST, "dram", **{**wires, "mac_vec_path.kind": "dram"})
    assert (cost["CYCLES"], cost["L1_READ"], cost["DRAM_READ"]) == (64, 96, 192)


# --- Query heads that share K and V ---


def grouped(packs: list[int]) -> Cost:
    """Cost of C, one row a query head, k 4, n 12, where four query heads share a K/V head."""
    p = problem()
    p[P_HEADS], p[P_KV_HEADS] = 8, 2
    return filled(cost_of_matmul, 1, 4, 12, np.array(packs), False, 0, 0, 0, p)


def test_are_the_rows_of_heads_that_share_k_stacked_on_the_array() -> None:
    # One product of 4 x 4 x 12: 1 * 3 * 4 = 12 cycles, and not four of as many. L0 tile 4 x 8: Q twice, K once.
    cost = grouped([1, 0, 1, 0])
    assert (cost["CYCLES"], cost["MACS"]) == (12, 4 * 48)
    assert (cost["L1_READ"], cost["L1_WRITE"]) == (16 * 2 + 48, 48)
    # To the array Q three times, K once; 48 accumulators of 4 bytes, written and read.
    assert (cost["L0_READ"], cost["L0_WRITE"]) == (16 * 3 + 48 + 192, 80 + 192)


@pytest.mark.parametrize(
    ("packs", "cycles", "heads"),
    [
        ([1, 0, 2, 0], 24, 8),  # two K/V heads
        ([3, 0, 1, 0], 36, 12),  # three batches
        ([1, 3, 0, 1], 24, 4),  # three heads of one, one of the next
        ([2, 3, 1, 2], 72, 18),  # 2 * (3 + 4 + 2) heads
        ([1, 2, 0, 0], 12, 2),  # part of the heads of one
    ],
)
def test_is_every_incomplete_set_of_heads_a_product_of_its_own(packs: list[int], cycles: int, heads: int) -> None:
    cost = grouped(packs)
    assert (cost["CYCLES"], cost["MACS"], cost["L1_WRITE"]) == (cycles, heads * 48, heads * 12)


def test_does_an_output_held_in_the_accumulators_leave_less_of_them() -> None:
    # 128 bytes less 64 are 16 accumulators, one array tile: Q goes to L0 three times, K twice.
    cost = filled(cost_of_matmul, 8, 4, 12, TWO_HEADS, False, 0, 0, 64, problem())
    assert cost["L1_READ"] == 2 * (32 * 3 + 48 * 2)


# --- FuseMax: scores that stay in the array ---


@pytest.mark.parametrize(("variant", "cycles"), [(V_STAYS, 60), (V_STAYS + V_DRAINS, 64)])
def test_do_scores_that_stay_in_the_array_take_a_step_more_for_their_maximum(variant: int, cycles: int) -> None:
    # 2 * 2 * 3 folds of 4 steps and 1; the maxima take 4 rows to drain. Nothing leaves to L1.
    cost = filled(cost_of_matmul, 8, 4, 12, TWO_HEADS, False, variant, 0, 0, problem())
    assert cost == {
        **{"CYCLES": cycles, "L1_READ": 288, "L0_READ": 384, "L0_WRITE": 288 + 768},
        **{"MACS": 768, "VEC_MAX": 192},
    }


def test_does_a_product_with_scores_in_the_array_take_a_step_a_column_and_one_for_the_sum() -> None:
    # 12 folds of 4 steps and 1. Of L1 it reads V only, 96 bytes; partial O, 256 bytes, crosses to the vector unit.
    cost = filled(cost_of_matmul, 8, 12, 4, TWO_HEADS, True, FIRST + V_STAYS + V_TO_VEC, 0, 0, problem())
    assert cost == {
        **{"CYCLES": 60, "L1_READ": 96, "L1_WRITE": 256, "MACS": 768, "VEC_ADD": 192},
        **{"L0_READ": 192 + 256, "L0_WRITE": 96 + 256},
    }


@pytest.mark.parametrize(("timing", "cycles"), [("ideal", 84), ("pipelined", 84 + 6)])
def test_is_exp_on_the_array_a_subtraction_and_its_multiply_adds(timing: str, cycles: int) -> None:
    # 12 folds of 1 + 6 steps over 2 * 96 scores, each read and written in its accumulator.
    p = problem(**{"mac.exp_steps": 6, "mac.timing": timing})
    cost = {"CYCLES": cycles, "MACS": 192 * 6, "VEC_ADD": 192, "L0_READ": 768, "L0_WRITE": 768}
    assert filled(cost_of_exp, 8, 12, TWO_HEADS, p) == cost


# --- Corrections, sums and masks of the vector unit ---

WIDE = {"vec.l1_port_bytes_per_cycle": 2**20}
"""A port that never limits."""


def vector_problem(**changes: Any) -> IntArray:
    """A machine whose vector operations take 2, 3, 4, 5 and 6 lane-cycles: mask, max, add, multiply, divide."""
    names = ("mask", "max", "add", "multiply", "divide")
    return problem(**{f"vec.op_lane_cycles.{name}": 2 + at for at, name in enumerate(names)}, **(WIDE | changes))


def test_does_a_correction_read_and_write_accumulators() -> None:
    # 1000 elements are ceil(1000 / 256) = 4 rounds.
    assert filled(cost_of_rescale, 1000, vector_problem()) == {
        **{"CYCLES": 4 * 5, "L1_READ": 4000, "L1_WRITE": 4000, "VEC_MUL": 1000},
    }
    narrow = vector_problem(issue_cycles=1, **{"vec.l1_port_bytes_per_cycle": 100})
    assert filled(cost_of_rescale, 1000, narrow)["CYCLES"] == 80 + 1


def test_do_partial_sums_arrive_by_the_path() -> None:
    own, other = {"L1_READ": 4000, "L1_WRITE": 4000}, 4000
    assert filled(cost_of_add, 1000, 0, vector_problem()) == {
        **{"CYCLES": 4 * 4, "L1_READ": 4000 + other, "L1_WRITE": 4000, "VEC_ADD": 1000},
    }
    wires = vector_problem(**{"mac_vec_path.kind": "direct", "mac_vec_path.bytes_per_cycle": 100})
    assert filled(cost_of_add, 1000, 1, wires) == {**own, "CYCLES": 40, "VEC_ADD": 1000}
    assert filled(cost_of_add, 1000, 2, wires) == {**own, "CYCLES": 40, "DRAM_READ": other, "VEC_ADD": 1000}


def test_is_output_divided_element_by_element_or_by_a_reciprocal_a_row() -> None:
    # 300 rows of 4: 1200 elements are 5 rounds, 300 are 2.
    moved = {"L1_READ": 4800, "L1_WRITE": 1200}
    assert filled(cost_of_normalize, 300, 4, vector_problem()) == {"CYCLES": 5 * 6, "VEC_DIV": 1200, **moved}
    p = vector_problem()
    p[costs.P_RECIPROCAL] = 1
    reciprocal = {"CYCLES": 2 * 6 + 5 * 5, "VEC_DIV": 300, "VEC_MUL": 1200}
    assert filled(cost_of_normalize, 300, 4, p) == {**reciprocal, **moved}


def test_is_a_mask_one_select_a_score() -> None:
    assert filled(cost_of_mask, 1000, False, 0, vector_problem()) == {
        **{"CYCLES": 4 * 2, "L1_READ": 1000, "L1_WRITE": 1000, "VEC_ADD": 1000},
    }
    # Where the array has taken the maxima before the mask, they are taken again.
    again = vector_problem(**{"vec.row_reduction_cycles": 7})
    cost = filled(cost_of_mask, 1000, True, 0, again)
    assert (cost["CYCLES"], cost["VEC_MAX"]) == (4 * (2 + 3) + 7, 1000)


def test_does_a_mask_send_scores_both_ways_over_the_path() -> None:
    wires = vector_problem(**{"mac_vec_path.kind": "direct", "mac_vec_path.bytes_per_cycle": 20})
    assert filled(cost_of_mask, 1000, False, 1, wires) == {"CYCLES": 100, "VEC_ADD": 1000}


# --- Vector work ---


@pytest.mark.parametrize(
    ("elements", "lane_cycles", "reductions", "cycles"),
    [(256, 1, 0, 1), (257, 1, 0, 2), (1000, 9, 2, 4 * 9 + 2 * 8), (1, 6, 0, 6), (256, 0, 1, 8)],
)
def test_is_vector_work_lane_cycles_plus_a_latency_per_reduction(
    elements: int, lane_cycles: int, reductions: int, cycles: int
) -> None:
    assert vec_cycles(elements, 256, lane_cycles, reductions, 8) == cycles


def softmax(passes: list[list[str]], path: str = "l1", **changes: Any) -> list[Cost]:
    """Cost of every pass over 8 x 100 int8 scores; 256 lanes, a port of 128 bytes a cycle, 8 cycles a reduction."""
    changes = {"vec.softmax_passes": passes, "mac_vec_path.kind": path} | changes
    arch = small_arch(**changes)
    p, table = pack_problem(arch, small_workload()), pack_softmax(arch)
    ways = (PATHS.index(path), PATHS.index(path))
    return [filled(cost_of_softmax, 8, 100, index, table, *ways, p) for index in range(len(passes))]


SEPARATE = [["max"], ["subtract"], ["exp"], ["sum"], ["divide"]]
FUSED = [["max", "subtract", "exp", "sum", "divide"]]


def test_what_does_softmax_cost_pass_by_pass() -> None:
    # 800 elements are ceil(800 / 256) = 4 rounds of the lanes; 800 bytes take 7 cycles of the port, 1600 take 13.
    assert softmax(SEPARATE) == [
        {"CYCLES": 4 + 8, "L1_READ": 800, "VEC_MAX": 800},  # a reduction: nothing is written
        {"CYCLES": 13, "L1_READ": 800, "L1_WRITE": 800, "VEC_ADD": 800},  # the port's time, not 4
        {"CYCLES": 4 * 6, "L1_READ": 800, "L1_WRITE": 800, "VEC_EXP": 800},
        {"CYCLES": 4 + 8, "L1_READ": 800, "VEC_ADD": 800},
        {"CYCLES": 4 * 4, "L1_READ": 800, "L1_WRITE": 800, "VEC_DIV": 800},
    ]


def test_does_a_fused_softmax_read_and_write_once() -> None:
    operations = {"VEC_MAX": 800, "VEC_ADD": 1600, "VEC_EXP": 800, "VEC_DIV": 800}
    # 4 * (1 + 1 + 6 + 1 + 4) + 2 reductions of 8, and 3 of issue.
    cost = {"CYCLES": 4 * 13 + 2 * 8 + 3, "L1_READ": 800, "L1_WRITE": 800, **operations}
    assert softmax(FUSED, issue_cycles=3) == [cost]


def test_do_scores_and_probabilities_of_softmax_cross_the_path_at_its_ends() -> None:
    operations = {"VEC_MAX": 800, "VEC_ADD": 1600, "VEC_EXP": 800, "VEC_DIV": 800}
    # 1600 bytes, 800 in and 800 out, at 20 a cycle: 80 cycles; 68 of lanes.
    direct = softmax(FUSED, "direct", **{"mac_vec_path.bytes_per_cycle": 20})
    assert direct == [{"CYCLES": 80, **operations}]
    dram = softmax(FUSED, "dram", **{"mac_vec_path.bytes_per_cycle": 20})
    assert dram == [{"CYCLES": 80, "DRAM_READ": 800, "DRAM_WRITE": 800, **operations}]


def test_does_only_the_first_pass_read_and_the_last_one_write_over_the_path() -> None:
    passes = [["scale", "max"], ["subtract", "exp"], ["sum", "divide"]]
    first, middle, last = softmax(passes, "direct", **{"mac_vec_path.bytes_per_cycle": 20})
    # 800 bytes at 20 a cycle: 40 cycles. The middle pass: 4 * 7 lanes; its 1600 bytes take 13 cycles of the port.
    assert first == {"CYCLES": 40, "L1_WRITE": 800, "VEC_MUL": 800, "VEC_MAX": 800}
    assert middle == {"CYCLES": 28, "L1_READ": 800, "L1_WRITE": 800, "VEC_ADD": 800, "VEC_EXP": 800}
    assert last == {"CYCLES": 40, "L1_READ": 800, "VEC_ADD": 800, "VEC_DIV": 800}


def test_may_probabilities_leave_by_another_way_than_scores_came() -> None:
    # As in `soft_pipe`, which stores P from L1: 800 bytes over the path take 40 cycles, 68 of lanes.
    arch = small_arch(**{
        "vec.softmax_passes": FUSED, "mac_vec_path.kind": "direct", "mac_vec_path.bytes_per_cycle": 20,
    })  # fmt: skip
    p, table = pack_problem(arch, small_workload()), pack_softmax(arch)
    cost = filled(cost_of_softmax, 8, 100, 0, table, 1, 0, p)
    assert (cost["CYCLES"], cost["L1_WRITE"], "L1_READ" in cost) == (4 * 13 + 2 * 8, 800, False)


def test_is_the_running_maximum_work_on_rows_only() -> None:
    # 300 rows are 2 rounds of max 1, subtract 1 and exp 6; the array has reduced the scores, which stay there.
    arch = small_arch(**{"vec.softmax_passes": FUSED})
    p, table = pack_problem(arch, small_workload()), pack_softmax(arch, FORM_ONLINE)
    cost = filled(cost_of_softmax, 300, 100, 0, table[-1:], 0, 0, p)
    assert cost == {"CYCLES": 2 * 8, "VEC_MAX": 300, "VEC_ADD": 300, "VEC_EXP": 300}


def test_does_an_online_pass_work_on_scores_and_on_rows() -> None:
    # 800 scores, 4 rounds of 1 + 1 + 6 + 1; 8 rows, 1 round of 1 + 1 + 6, then 1 + 1; two reductions of 8.
    arch = small_arch(**{"vec.softmax_passes": FUSED})
    p, table = pack_problem(arch, small_workload()), pack_softmax(arch, FORM_ONLINE)
    cost = filled(cost_of_softmax, 8, 100, 0, table[:-1], 0, 0, p)
    rows = arch.vec.op_lane_cycles.multiply + arch.vec.op_lane_cycles.add
    assert cost["CYCLES"] == 4 * 9 + 2 * 8 + 8 + rows
    assert (cost["L1_READ"], cost["L1_WRITE"]) == (800, 800)
    assert (cost["VEC_MAX"], cost["VEC_EXP"], cost["VEC_MUL"]) == (808, 808, 8)
