"""Does FuseMax, simulated event by event, take as long and move as much as FuseMax published?

Its three designs run on its machine, `fusemax_cloud`, in the dataflow `fusemax`: tiles of 256 queries by 256
keys, K and V kept in L1. The heads repeat, so one and two of them say what all 64 * H take: each further one
takes the same. What remains is fill and drain, the first loads and products and the last ones, of which the
closed forms know nothing.

`python tests/golden/test_fusemax_simulated.py` prints the table of docs/validation.md.
"""

import functools
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from test_fusemax_published import (
    BATCH,
    HEADS_AND_DIM,
    PUBLISHED_NAME,
    Published,
    case_id,
    cloud,
    published_rows,
    workload_of,
)

from mas_sim.arch import Arch
from mas_sim.dataflows import build_schedule
from mas_sim.energy import METER_COLUMNS
from mas_sim.fusemax_forms import (
    FuseMaxDesign,
    fusemax_busy_cycles,
    fusemax_compute_cycles,
    fusemax_dram_bytes,
    query_tile,
)
from mas_sim.schedule import (
    F_OP,
    MAC,
    OP_ADD,
    OP_LOAD_K,
    OP_LOAD_Q,
    OP_NORMALIZE,
    OP_ONLINE,
    OP_PV,
    OP_QK,
    OP_RESCALE,
    OP_STORE_O,
    VEC,
)
from mas_sim.simulator import simulate
from mas_sim.tiling import Tiling

PAGE = Path(__file__).parents[2] / "docs" / "validation.md"
N = 256
"""Side of the array, lanes, and both tile sizes."""
LENGTHS = (1024, 4096, 16384)
DESIGNS: tuple[FuseMaxDesign, ...] = ("binding", "architecture", "cascade")
OVERLAP = {"binding": "pipelined", "architecture": "none", "cascade": "pipelined"}
EXP_ON = {"binding": "mac", "architecture": "mac", "cascade": "vec"}


class Run(NamedTuple):
    """What one simulation gives; cycles of each operation are those of its longest instruction."""

    cycles: int
    dram_bytes: int
    mac_busy: int
    vec_busy: int
    of_op: dict[int, int]


def machine(design: FuseMaxDesign) -> Arch:
    """The machine; the cascade's lanes have an exponential unit of their own, a result a cycle."""
    return cloud().with_(**{"vec.op_lane_cycles.exp": 1}) if design == "cascade" else cloud()


def run(design: FuseMaxDesign, model: str, seq_len: int, heads: int, batch: int = 1) -> Run:
    """Simulate some heads of a published workload."""
    return _run(design, HEADS_AND_DIM[model][1], seq_len, heads, batch)


@functools.cache
def _run(design: FuseMaxDesign, dim: int, seq_len: int, heads: int, batch: int) -> Run:
    model = next(name for name in HEADS_AND_DIM if HEADS_AND_DIM[name][1] == dim)
    workload = workload_of(model, seq_len, batch).with_(heads=heads, kv_heads=heads)
    tiles = seq_len // N
    # Single buffers of K and V: each resident tile is replaced as soon as its head is done with it.
    tiling = Tiling(
        q_tile=N,
        kv_tile=N,
        k_resident_tiles=tiles,
        v_resident_tiles=tiles,
        k_buffers=1,
        v_buffers=1,
        exp_on=EXP_ON[design],
        overlap=OVERLAP[design],
    )
    schedule = build_schedule("fusemax", machine(design), workload, tiling)
    timeline, counts = simulate(schedule), dict(zip(METER_COLUMNS, schedule.meter_counts().tolist(), strict=True))
    operations = schedule.instructions[:, F_OP]
    return Run(
        timeline.cycles,
        counts["dram_read_bytes"] + counts["dram_write_bytes"],
        timeline.unit_busy_cycles(MAC),
        timeline.unit_busy_cycles(VEC),
        {int(op): int(schedule.cycles[operations == op].max()) for op in np.unique(operations)},
    )


def steady(design: FuseMaxDesign, model: str, seq_len: int) -> tuple[int, int]:
    """Cycles of each head but the first, and of fill and drain."""
    one, two = (run(design, model, seq_len, heads).cycles for heads in (1, 2))
    return two - one, 2 * one - two


def total_cycles(design: FuseMaxDesign, model: str, seq_len: int) -> int:
    """Cycles of the whole published workload."""
    head, ends = steady(design, model, seq_len)
    return ends + BATCH * HEADS_AND_DIM[model][0] * head


def form_difference(design: FuseMaxDesign, seq_len: int) -> int:
    """Cycles by which one head in the steady state differs from the closed form; the reasons are below.

    - binding and cascade are bound by the vector unit, which does what the closed form counts: no difference.
    - architecture is bound by a chain of both units. In the closed form exp on the array waits for the running
      maximum only; here that and the correction (subtract, exp) are one instruction, and exp waits for both.
      And the row sum is a column of the partial O: one lane-cycle more, where the closed form adds sums beside
      the next tile's product.
    """
    op = machine(design).vec.op_lane_cycles
    return (seq_len // N) ** 2 * (op.subtract + op.exp + op.add) if design == "architecture" else 0


def cases() -> list[tuple[FuseMaxDesign, Published]]:
    """The three designs with their workloads of up to 16K tokens."""
    rows = [(design, row) for design in DESIGNS for row in published_rows(PUBLISHED_NAME[design])]
    return [(design, row) for design, row in rows if row.seq_len in LENGTHS]


every_case = pytest.mark.parametrize(("design", "row"), cases(), ids=case_id)


def test_are_there_twelve_workloads_of_three_designs() -> None:
    assert len(cases()) == 36


# --- Do the heads repeat? ---


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize(("model", "seq_len"), [("T5", 1024), ("BERT", 1024), ("XLM", 1024), ("BERT", 4096)])
@pytest.mark.parametrize("batch", [1, 2])
def test_does_every_further_head_and_batch_take_the_same(
    design: FuseMaxDesign, model: str, seq_len: int, batch: int
) -> None:
    heads = HEADS_AND_DIM[model][0]
    head, ends = steady(design, model, seq_len)
    assert run(design, model, seq_len, heads, batch).cycles == ends + batch * heads * head


# --- Is the latency the published one? ---


@every_case
def test_is_the_latency_within_three_percent(design: FuseMaxDesign, row: Published) -> None:
    published = row.latency_s * cloud().clock_ghz * 1e9
    error = total_cycles(design, row.model, row.seq_len) / published - 1
    assert 0 <= error <= (0.03 if design == "architecture" else 0.001)


@every_case
def test_is_a_heads_steady_state_the_closed_form_and_the_stated_difference(
    design: FuseMaxDesign, row: Published
) -> None:
    heads = BATCH * HEADS_AND_DIM[row.model][0]
    published = row.latency_s * cloud().clock_ghz * 1e9 / heads
    head, _ = steady(design, row.model, row.seq_len)
    assert head - form_difference(design, row.seq_len) == pytest.approx(published, rel=1e-9)


@every_case
def test_is_the_rest_fill_and_drain(design: FuseMaxDesign, row: Published) -> None:
    """The first and the last instructions, which nothing else runs beside, by their costs."""
    cost = run(design, row.model, row.seq_len, 1).of_op
    load, store = cost[OP_LOAD_K], cost[OP_STORE_O]
    assert load == cost[OP_LOAD_Q]
    _, ends = steady(design, row.model, row.seq_len)
    if design == "architecture":
        # Before the first product Q and K are loaded; behind the last sum O is divided and stored.
        assert ends == 2 * load + cost[OP_NORMALIZE] + store
    elif design == "cascade":
        # The vector unit waits for Q, K and the first C; at the end for O of the last tile, which the MAC unit
        # computes while the tile before it is added and O is scaled; then O is stored.
        waits = max(0, cost[OP_PV] - cost[OP_ADD] - cost[OP_RESCALE])
        assert ends == 2 * load + cost[OP_QK] + waits + store
    else:
        # Of the first row block, a tile of K and one of V take longer to load than their vector work takes. Its
        # last product follows the last of them: M1 pairs, and Q of this row block and of the next. Of this row
        # block's vector work only that product's sum is left then, and of the next one's the first statistics are
        # done already.
        tiles, vec = row.seq_len // N, cost[OP_ADD] + cost[OP_RESCALE] + cost[OP_ONLINE]
        assert 2 * load > vec
        behind = cost[OP_PV] + cost[OP_ADD] - cost[OP_ONLINE]
        assert ends == tiles * (2 * load - vec) + 2 * load + behind + store


@every_case
def test_are_fill_and_drain_less_than_a_thousandth_of_it_all(design: FuseMaxDesign, row: Published) -> None:
    _, ends = steady(design, row.model, row.seq_len)
    assert 0 < ends < 1e-3 * total_cycles(design, row.model, row.seq_len)


# --- Does it move the published bytes? ---


@every_case
def test_are_dram_bytes_the_published_ones(design: FuseMaxDesign, row: Published) -> None:
    found = BATCH * HEADS_AND_DIM[row.model][0] * run(design, row.model, row.seq_len, 1).dram_bytes
    whole = workload_of(row.model, row.seq_len, BATCH)
    assert found == whole.compulsory_bytes
    if query_tile(design, cloud(), whole) == row.seq_len:
        assert found == float(row.traffic_bytes) == fusemax_dram_bytes(design, cloud(), whole)
    else:
        # The cascade keeps scores of all its queries in L1, and so at 16K not all queries: K and V pass by more
        # than once. Here K and V stay, and queries pass by.
        assert (design, row.seq_len) == ("cascade", 16384)
        assert found < float(row.traffic_bytes)


@pytest.mark.parametrize("model", HEADS_AND_DIM)
def test_are_the_bytes_of_the_cascade_at_16k_the_published_ones_in_its_own_query_tiles(model: str) -> None:
    """Not all queries at once, and nothing of K and V kept: both pass by once for each query tile, as published."""
    row = next(r for r in published_rows(PUBLISHED_NAME["cascade"]) if (r.model, r.seq_len) == (model, 16384))
    whole = workload_of(model, row.seq_len, BATCH)
    rows = query_tile("cascade", cloud(), whole)
    assert 1 < row.seq_len // rows < row.seq_len // N
    one = workload_of(model, row.seq_len, 1).with_(heads=1, kv_heads=1)
    schedule = build_schedule("fusemax", machine("cascade"), one, Tiling(q_tile=rows, kv_tile=N), allow_overfull=True)
    found = BATCH * HEADS_AND_DIM[model][0] * int(schedule.meter_counts()[:2].sum())
    assert found == float(row.traffic_bytes) == fusemax_dram_bytes("cascade", cloud(), whole)


# --- Are the arrays as busy? ---


@every_case
def test_is_each_array_as_busy_as_in_the_closed_form(design: FuseMaxDesign, row: Published) -> None:
    one, two = (run(design, row.model, row.seq_len, heads) for heads in (1, 2))
    form = fusemax_busy_cycles(design, cloud(), workload_of(row.model, row.seq_len, 1).with_(heads=1, kv_heads=1))
    blocks, dim = row.seq_len // N, HEADS_AND_DIM[row.model][1]
    # The row sum is a column of O where the array adds it up, and so is as often scaled and added as published.
    assert two.vec_busy - one.vec_busy == form.lanes
    mac = two.mac_busy - one.mac_busy
    if design == "binding":
        assert mac == form.array
    elif design == "architecture":
        # While the maxima leave the array, the closed form calls it idle, and the simulation busy.
        assert mac == form.array + blocks**2 * N
    else:
        # O = P V keeps O in the array, F of its 256 columns: 256 steps, where the closed form keeps P there: F
        # steps. The vector unit takes longer than both products anyway.
        assert mac == blocks**2 * (dim + N)
        assert mac < 0.4 * (two.cycles - one.cycles)


@every_case
def test_is_the_steady_states_utilisation_the_published_one(design: FuseMaxDesign, row: Published) -> None:
    one, two = (run(design, row.model, row.seq_len, heads) for heads in (1, 2))
    cycles = two.cycles - one.cycles
    array, lanes = (two.mac_busy - one.mac_busy) / cycles, (two.vec_busy - one.vec_busy) / cycles
    if design == "architecture":
        # The lanes' work is the same, in the stated cycles more; the array's busy cycles are not comparable.
        heads = BATCH * HEADS_AND_DIM[row.model][0]
        published = row.latency_s * cloud().clock_ghz * 1e9 / heads
        assert lanes * cycles / published == pytest.approx(row.util_1d, abs=5.1e-7)
    else:
        assert lanes == pytest.approx(row.util_1d, abs=5.1e-7)
    if design == "binding":
        assert array == pytest.approx(row.util_2d, abs=5.1e-7)


# --- Does the page say so? ---


def table() -> list[str]:
    """The table of docs/validation.md: published and simulated cycles, and the difference without the stated one."""
    lines = [
        "| workload | design | published cycles | simulated cycles | difference | without the stated one |",
        "|---|---|---|---|---|---|",
    ]
    for model, (heads, _) in HEADS_AND_DIM.items():
        for seq_len in LENGTHS:
            for design in DESIGNS:
                found = total_cycles(design, model, seq_len)
                published = published_cycles(design, model, seq_len)
                stated = BATCH * heads * form_difference(design, seq_len)
                error, rest = 100 * (found / published - 1), 100 * (found / (published + stated) - 1)
                name = f"{model} {seq_len:,} | {design}"
                lines.append(f"| {name} | {published:,} | {found:,} | {error:+.2f} % | {rest:+.3f} % |")
    return lines


def published_cycles(design: FuseMaxDesign, model: str, seq_len: int) -> int:
    """Cycles of the closed form, which is the published latency to nine digits."""
    whole = workload_of(model, seq_len, BATCH)
    cycles = fusemax_compute_cycles(design, cloud(), whole)
    assert cycles == int(cycles)
    return int(cycles)


def test_does_the_page_show_this_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert "\n".join(table()) in page


if __name__ == "__main__":
    print("\n".join(table()))
