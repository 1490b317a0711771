"""Do FuseMax's closed forms give what FuseMax published, and do they refuse what they do not cover?

`fusemax_published.csv` names its source. `published_rows` and `workload_of` are for every test that compares
with it.
"""

import csv
import functools
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from mas_sim.arch import Arch, load_arch
from mas_sim.errors import ConfigError
from mas_sim.fusemax_forms import (
    FUSEMAX_DESIGNS,
    FuseMaxDesign,
    fusemax_busy_cycles,
    fusemax_compute_cycles,
    fusemax_dram_bytes,
    fusemax_latency_s,
    query_tile,
)
from mas_sim.workload import MAX_PRODUCT, Workload

GOLDEN = Path(__file__).parent / "fusemax_published.csv"

BATCH = 64
"""Sequences in every published workload."""

HEADS_AND_DIM = {"BERT": (12, 64), "TrXL": (16, 64), "T5": (8, 64), "XLM": (16, 128)}
"""Heads, and head dimension of Q, K and V. Source: FuseMax's artifact."""

PUBLISHED_NAME: dict[FuseMaxDesign, str] = {
    "flat": "flat",
    "cascade": "fusemax_cascade",
    "architecture": "fusemax_architecture",
    "binding": "fusemax_binding",
}


class Published(NamedTuple):
    """One published row; bytes keep their text, for they are given to 12 digits."""

    model: str
    seq_len: int
    design: str
    latency_s: float
    traffic_bytes: str
    util_2d: float
    util_1d: float


def published_rows(design: str | None = None) -> list[Published]:
    """Read the published figures, of all designs or of one, by the name it has in the file."""
    with GOLDEN.open() as file:
        rows = [
            Published(
                row["model"],
                int(row["seq_len"]),
                row["design"],
                float(row["latency_s"]),
                row["traffic_bytes"],
                float(row["util_2d"]),
                float(row["util_1d"]),
            )
            for row in csv.DictReader(line for line in file if not line.startswith("#"))
        ]
    return [row for row in rows if design in (None, row.design)]


def workload_of(model: str, seq_len: int, batch: int) -> Workload:
    """Make a published workload, with another batch where asked."""
    heads, dim = HEADS_AND_DIM[model]
    return Workload(
        name=f"{model.lower()}_{seq_len}",
        batch=batch,
        heads=heads,
        n_q=seq_len,
        n_kv=seq_len,
        head_dim_qk=dim,
        head_dim_v=dim,
    )


def batches_of(model: str, seq_len: int) -> tuple[int, int]:
    """Return the largest batch up to `BATCH` that a `Workload` may have, and how many of it make up `BATCH`.

    XLM with 1024 K tokens is just too large; all that is published of it is proportional to the batch.
    """
    heads, dim = HEADS_AND_DIM[model]
    batch = BATCH
    while batch * heads * seq_len**2 * dim > MAX_PRODUCT:
        batch //= 2
    return batch, BATCH // batch


@functools.cache
def cloud() -> Arch:
    """Load the machine of the paper, once."""
    return load_arch("fusemax_cloud")


def latency_s(design: FuseMaxDesign, row: Published) -> float:
    """Closed-form latency of a published workload; FLAT's traffic is the published one."""
    batch, times = batches_of(row.model, row.seq_len)
    dram_bytes = float(row.traffic_bytes) / times if design == "flat" else None
    workload = workload_of(row.model, row.seq_len, batch)
    return times * fusemax_latency_s(design, cloud(), workload, dram_bytes=dram_bytes)


def cases() -> list[tuple[FuseMaxDesign, Published]]:
    """Every design with each of its published workloads."""
    return [(design, row) for design in FUSEMAX_DESIGNS for row in published_rows(PUBLISHED_NAME[design])]


def case_id(value: object) -> str:
    """Name a case by its design, model and length."""
    return f"{value.model}-{value.seq_len}" if isinstance(value, Published) else str(value)


every_case = pytest.mark.parametrize(("design", "row"), cases(), ids=case_id)


# --- Do the closed forms give what is published? ---


def test_are_all_published_figures_here() -> None:
    rows = published_rows()
    assert len(rows) == 5 * 24
    lengths = [1024 * 4**i for i in range(6)]
    assert {(row.model, row.seq_len) for row in rows} == {(m, n) for m in HEADS_AND_DIM for n in lengths}
    assert {row.design for row in rows} == {"unfused", *PUBLISHED_NAME.values()}


def test_is_one_workload_alone_too_large_for_its_batch() -> None:
    names = {(row.model, row.seq_len) for row in published_rows()}
    assert {name for name in names if batches_of(*name)[1] > 1} == {("XLM", 1048576)}


@every_case
def test_is_the_latency_within_a_thousandth(design: FuseMaxDesign, row: Published) -> None:
    assert latency_s(design, row) == pytest.approx(row.latency_s, rel=1e-3)


@every_case
def test_is_the_latency_equal_to_nine_digits(design: FuseMaxDesign, row: Published) -> None:
    assert latency_s(design, row) == pytest.approx(row.latency_s, rel=1e-9)


@pytest.mark.parametrize(("design", "row"), [case for case in cases() if case[0] != "flat"], ids=case_id)
def test_is_the_traffic_equal_in_every_digit(design: FuseMaxDesign, row: Published) -> None:
    batch, times = batches_of(row.model, row.seq_len)
    found = times * fusemax_dram_bytes(design, cloud(), workload_of(row.model, row.seq_len, batch))
    assert f"{found:.12g}" == f"{float(row.traffic_bytes):.12g}"


@every_case
def test_are_both_utilisations_equal_to_the_last_digit(design: FuseMaxDesign, row: Published) -> None:
    batch, times = batches_of(row.model, row.seq_len)
    busy = fusemax_busy_cycles(design, cloud(), workload_of(row.model, row.seq_len, batch))
    cycles = latency_s(design, row) * cloud().clock_ghz * 1e9
    assert times * busy.array / cycles == pytest.approx(row.util_2d, abs=5.1e-7)
    assert times * busy.lanes / cycles == pytest.approx(row.util_1d, abs=5.1e-7)


@pytest.mark.parametrize("row", [r for r in published_rows("unfused") if r.seq_len <= 65536], ids=case_id)
def test_does_unfused_move_c_and_p_twice_each_beside_q_k_v_and_o(row: Published) -> None:
    workload = workload_of(row.model, row.seq_len, BATCH)
    found = workload.compulsory_bytes + 4 * workload.scores * workload.bytes_per_element
    assert f"{found:.12g}" == f"{float(row.traffic_bytes):.12g}"


# --- Are they functions of arch and workload? ---


def blocks_of(workload: Workload, n: int) -> int:
    """Blocks of n queries by n keys."""
    return workload.batch * workload.heads * (workload.n_q // n) * (workload.n_kv // n)


def test_do_the_published_constants_come_out_of_the_costs_of_the_preset() -> None:
    e, f, n = 64, 32, 256
    workload = workload_of("BERT", 1024, 1).with_(head_dim_qk=e, head_dim_v=f, n_q=2048)
    blocks, m1 = blocks_of(workload, n), 1024 // n
    cycles = [fusemax_compute_cycles(design, cloud(), workload) / blocks for design in FUSEMAX_DESIGNS]
    assert dict(zip(FUSEMAX_DESIGNS, cycles, strict=True)) == {
        "flat": 4 * n,
        "cascade": 4 * n + 5 + 2 * f + f / m1,
        "architecture": max(e + 1, 1 + f / m1) + n + 9 + 2 * f,
        "binding": max(e + 1, 1 + f + f / m1) + 9 + f,
    }
    for design in ("architecture", "binding"):
        busy = fusemax_busy_cycles(design, cloud(), workload)
        assert (busy.array / blocks, busy.lanes / blocks) == (e + f + 9, 2 * f + 10 + f / m1)


@pytest.mark.parametrize(
    ("cost", "array_steps", "lane_cycles"),
    [
        ("mac.exp_steps", 1, 0),
        ("vec.op_lane_cycles.exp", 0, 1),
        ("vec.op_lane_cycles.subtract", 0, 1),
        ("vec.op_lane_cycles.max", 0, 1),
        ("vec.op_lane_cycles.multiply", 0, 1 + 64),
        ("vec.op_lane_cycles.add", 0, 1 + 64),
        ("vec.op_lane_cycles.divide", 0, 64 // 4),
    ],
)
def test_does_one_cycle_more_of_an_operation_count_as_often_as_it_is_done(
    cost: str, array_steps: int, lane_cycles: int
) -> None:
    workload = workload_of("BERT", 1024, 1)
    value = functools.reduce(getattr, cost.split("."), cloud())
    assert isinstance(value, int)
    before = fusemax_busy_cycles("binding", cloud(), workload)
    after = fusemax_busy_cycles("binding", cloud().with_(**{cost: value + 1}), workload)
    blocks = blocks_of(workload, 256)
    more = (after.array - before.array, after.lanes - before.lanes)
    assert more == (array_steps * blocks, lane_cycles * blocks)


@pytest.mark.parametrize("design", FUSEMAX_DESIGNS)
def test_are_they_proportional_to_the_batch(design: FuseMaxDesign) -> None:
    one, many = workload_of("XLM", 4096, 1), workload_of("XLM", 4096, 64)
    compute = [fusemax_compute_cycles(design, cloud(), workload) for workload in (one, many)]
    assert compute[1] == 64 * compute[0]
    if design != "flat":
        assert fusemax_dram_bytes(design, cloud(), many) == 64 * fusemax_dram_bytes(design, cloud(), one)


def test_do_they_follow_the_side_of_the_array() -> None:
    small = cloud().with_(**{"mac.rows": 128, "mac.cols": 128, "vec.lanes": 128})
    workload = workload_of("T5", 4096, 2)
    blocks, m1 = blocks_of(workload, 128), 32
    assert fusemax_compute_cycles("binding", small, workload) == blocks * (max(65, 1 + 64 + 64 / m1) + 9 + 64)
    assert fusemax_compute_cycles("architecture", small, workload) == blocks * (65 + 128 + 9 + 128)


@pytest.mark.parametrize("design", FUSEMAX_DESIGNS)
def test_is_no_design_faster_than_either_of_its_arrays(design: FuseMaxDesign) -> None:
    ops = ("max", "add", "subtract", "multiply", "exp", "divide")
    free = {f"vec.op_lane_cycles.{op}": 0 for op in ops}
    for arch in (cloud(), cloud().with_(**free), cloud().with_(**{"mac.exp_steps": 64})):
        for e, f in ((64, 64), (16, 1024), (2048, 16)):
            workload = workload_of("BERT", 1024, 1).with_(head_dim_qk=e, head_dim_v=f)
            busy = fusemax_busy_cycles(design, arch, workload)
            assert fusemax_compute_cycles(design, arch, workload) >= max(busy)


def test_does_the_query_tile_fill_l1_and_divide_the_queries() -> None:
    workload = workload_of("BERT", 65536, 1)
    per_row, kv_tile = 2 * (64 + 64 + 2), 2 * 256 * (64 + 64)
    tile = query_tile("binding", cloud(), workload)
    assert 65536 % tile == 0
    assert kv_tile + tile * per_row <= cloud().l1.capacity_bytes < kv_tile + 2 * tile * per_row
    assert query_tile("binding", cloud(), workload_of("BERT", 1024, 1)) == 1024
    assert query_tile("cascade", cloud(), workload) < tile


def test_does_a_byte_too_few_of_l1_halve_the_query_tile() -> None:
    workload = workload_of("BERT", 65536, 1)
    tile = query_tile("binding", cloud(), workload)
    needed = 2 * (256 * 128 + tile * (64 + 64 + 2))
    exact = cloud().with_(**{"l1.capacity_kib": needed / 1024})
    short = cloud().with_(**{"l1.capacity_kib": (needed - 1) / 1024})
    assert query_tile("binding", exact, workload) == tile
    assert query_tile("binding", short, workload) == tile // 2
    assert fusemax_dram_bytes("binding", short, workload) > fusemax_dram_bytes("binding", exact, workload)


# --- Do they refuse what they do not cover? ---


def test_are_all_faults_told_at_once() -> None:
    on_mac = {"mac.cols": 128, "mac.depth": 2, "mac.exp_steps": None}
    arch = cloud().with_(**on_mac, **{"cores": 2, "vec.lanes": 64})
    workload = workload_of("BERT", 1024, 1).with_(n_q=1000, n_kv=1001, kv_heads=4)
    with pytest.raises(ConfigError) as caught:
        fusemax_compute_cycles("binding", arch, workload)
    assert [fault.path for fault in caught.value.faults] == [
        *("arch.cores", "arch.mac.cols", "arch.mac.depth", "arch.vec.lanes", "workload.kv_heads"),
        *("arch.mac.exp_steps", "workload.n_q", "workload.n_kv"),
    ]


def test_is_a_mask_refused() -> None:
    with pytest.raises(ConfigError, match=r"workload\.mask: must equal none"):
        fusemax_busy_cycles("binding", cloud(), workload_of("BERT", 1024, 1).with_(mask="causal"))


def test_is_the_nearest_design_named() -> None:
    with pytest.raises(ConfigError, match=r"one of flat, .* \(got 'bindings'\); did you mean 'binding'"):
        fusemax_compute_cycles("bindings", cloud(), workload_of("BERT", 1024, 1))  # type: ignore[arg-type]


def test_does_flat_do_without_exp_on_the_array() -> None:
    plain = cloud().with_(**{"mac.exp_steps": None})
    workload = workload_of("BERT", 1024, 1)
    for design in ("flat", "cascade"):
        cycles = [fusemax_compute_cycles(design, arch, workload) for arch in (plain, cloud())]
        assert cycles[0] == cycles[1]


@pytest.mark.parametrize("form", [query_tile, fusemax_dram_bytes, fusemax_latency_s])
def test_is_flats_traffic_never_made_up(form: Callable[[FuseMaxDesign, Arch, Workload], float]) -> None:
    with pytest.raises(ConfigError, match="has no closed form for its query tile and DRAM bytes"):
        form("flat", cloud(), workload_of("BERT", 1024, 1))


def test_is_an_l1_refused_that_cannot_hold_a_block_of_queries() -> None:
    tiny = cloud().with_(**{"l1.capacity_kib": 128})
    with pytest.raises(ConfigError, match=r"l1\.capacity_kib: must hold a tile of K and V and 256 rows of Q"):
        fusemax_dram_bytes("binding", tiny, workload_of("BERT", 1024, 1))


@pytest.mark.parametrize("dram_bytes", [-1.0, float("nan"), float("inf")])
def test_are_impossible_bytes_refused(dram_bytes: float) -> None:
    with pytest.raises(ConfigError, match="dram_bytes: must be finite and at least 0"):
        fusemax_latency_s("flat", cloud(), workload_of("BERT", 1024, 1), dram_bytes=dram_bytes)
