"""Whether readers of schedules know which scores a mask keeps, and whether the reference and the inputs are right."""

from typing import Any

import numpy as np
import pytest
from builders import masks
from hypothesis import given
from hypothesis import strategies as st

from mas_sim.arch import load_arch
from mas_sim.dataflows import DATAFLOWS, build_schedule
from mas_sim.execute import INT8_STEP, attention_reference, make_inputs, round_to
from mas_sim.geometry import make_geometry
from mas_sim.schedule import F_GROUP, F_OP, F_ROW, F_STEP, OP_MASK
from mas_sim.tiling import Tiling
from mas_sim.workload import Dtype, Workload

EDGE = load_arch("mas_edge").with_(cores=1)


@st.composite
def masked(draw: st.DrawFn) -> Workload:
    n_q, n_kv = draw(st.integers(1, 30)), draw(st.integers(1, 30))
    fields = draw(masks(n_q, n_kv))
    return Workload(name="any", heads=1, n_q=n_q, n_kv=n_kv, head_dim_qk=2, head_dim_v=3, **fields)


def kept(workload: Workload) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Whether each score counts, row by row; bool[N_q, N_kv]."""
    rows = np.zeros((workload.n_q, workload.n_kv), np.bool_)
    for row in range(workload.n_q):
        first, last = workload.key_range(row)
        rows[row, first:last] = True
    return rows


@pytest.mark.parametrize("dataflow", DATAFLOWS)
@given(workload=masked(), q_tile=st.integers(1, 12), kv_tile=st.integers(1, 12))
def test_are_exactly_the_tiles_masked_that_are_kept_in_part(
    dataflow: str, workload: Workload, q_tile: int, kv_tile: int
) -> None:
    """Score by score: tiles without any are not visited, tiles with some are masked, tiles with all are not."""
    schedule = build_schedule(dataflow, EDGE, workload, Tiling(q_tile=q_tile, kv_tile=kv_tile))
    geometry, scores = make_geometry(schedule), kept(workload)
    visited, partial = list[tuple[int, int]](), list[bool]()
    for i in range(geometry.rows):
        for j in range(geometry.tiles):
            tile = scores[i * q_tile : (i + 1) * q_tile, j * kv_tile : (j + 1) * kv_tile]
            if tile.any():
                visited.append((i, j))
                partial.append(not tile.all())
    tiles = schedule.grid.row_tiles.tolist()
    assert list(zip(geometry.pair_row.tolist(), tiles, strict=True)) == visited
    assert geometry.pair_partial.tolist() == partial
    assert [j for i in range(geometry.rows) for j in range(*geometry.row_span[i])] == tiles
    code = schedule.instructions[schedule.instructions[:, F_OP] == OP_MASK]
    assert not code[:, F_GROUP].any()
    pairs = geometry.row_first[code[:, F_ROW]] + code[:, F_STEP]
    assert sorted(pairs.tolist()) == np.flatnonzero(geometry.pair_partial).tolist()


@given(workload=masked())
def test_does_the_reference_leave_out_what_the_mask_does(workload: Workload) -> None:
    """Against softmax over the kept scores of each row alone."""
    q, k, v = make_inputs(workload)
    reference = attention_reference(q, k, v, workload.band)
    for row in range(workload.n_q):
        first, last = workload.key_range(row)
        keys, values = k[0, 0, first:last].astype(np.float64), v[0, 0, first:last].astype(np.float64)
        weights = np.exp(keys @ q[0, 0, row].astype(np.float64) / np.sqrt(2))
        np.testing.assert_allclose(reference[0, 0, row], weights @ values / weights.sum(), rtol=0, atol=1e-12)


# --- Are inputs numbers that the type can hold? ---


def test_are_numbers_rounded_to_the_nearest_and_ties_to_even() -> None:
    """bf16 has 8 bits of significand: between 1 and 2, steps of 2**-7; fp16 has 11, and steps of 2**-10."""
    step = np.float32(2.0**-7)
    values = np.array([1, 1 + 0.5 * step, 1 + 0.51 * step, 1 + 1.5 * step, -1 - 0.5 * step, 0.0, -3.0], np.float32)
    assert round_to(values, "bf16").tolist() == [1, 1, 1 + step, 1 + 2 * step, -1, 0, -3]
    step = np.float32(2.0**-10)
    values = np.array([1, 1 + 0.5 * step, 1 + 0.51 * step, 1 + 1.5 * step], np.float32)
    assert round_to(values, "fp16").tolist() == [1, 1, 1 + step, 1 + 2 * step]
    values = np.array([0.5, 1.5, 2.51, 126.9, 400, -400], np.float32) * INT8_STEP
    assert (round_to(values, "int8") / INT8_STEP).tolist() == [0, 2, 3, 127, 127, -127]


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "int8"])
def test_do_inputs_stay_as_they_are_in_the_workload_s_type(dtype: Dtype) -> None:
    workload = Workload(name="any", heads=4, n_q=40, n_kv=50, head_dim_qk=8, head_dim_v=12, dtype=dtype)
    for tensor in make_inputs(workload):
        assert tensor.dtype == np.float32
        assert np.array_equal(round_to(tensor, dtype), tensor)
        assert abs(float(tensor.std()) - 1) < 0.1
