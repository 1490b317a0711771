"""Do the pipelined dataflows with full-row softmax keep the contract, and `mas` also where it overwrites?"""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from dataflow_contract import (
    BUFFERS_OF_ONE,
    NO_WAITING,
    ONE_PASS,
    SCALED,
    TOLERANCE,
    Case,
    DataflowContract,
    attention,
    dram_bytes,
    edge,
)

from mas_sim.audit import audit
from mas_sim.dataflows import build_schedule
from mas_sim.execute import execute
from mas_sim.overwrites import read_overwrites
from mas_sim.simulator import simulate
from mas_sim.tiling import Tiling

# Row blocks of P are no larger than V and K, so that softmax can take their place. In the machines that stop products,
# the first pass only reduces and is slow, so that products have begun by the time that the next one writes.
SLOW_MAX = {"vec.lanes": 2, "vec.softmax_passes": (("max",), ("subtract", "exp"), ("sum",), ("divide",))}
SMALL = Tiling(q_tile=6, kv_tile=16, k_resident_tiles=4, v_resident_tiles=4, softmax_in_place=False)
STREAMED = replace(SMALL, k_resident_tiles=1, v_resident_tiles=1)
OVERWRITES = [
    Case("whole window", attention(2, 37, 50), replace(SMALL, q_tile=8), SLOW_MAX),
    Case("part of V", attention(3, 37, 50), SMALL, SLOW_MAX),
    Case("last tiles only", attention(2, 14, 60), replace(SMALL, q_tile=2, kv_tile=8, **BUFFERS_OF_ONE), SLOW_MAX),
    Case("streamed others", attention(2, 37, 50), STREAMED, SLOW_MAX | {"vec.lanes": 16}),
    Case("groups not divisible", attention(5, 23, 50), replace(SMALL, head_tile=2), SLOW_MAX),
    Case("grouped query", attention(6, 16, 50, kv_heads=2), replace(SMALL, q_tile=3), SLOW_MAX),
    Case("grouped by heads", attention(6, 9, 50, kv_heads=2), replace(SMALL, head_tile=3, q_tile=2), SLOW_MAX),
    Case("two batches", attention(2, 20, 50, batch=2), replace(SMALL, batch_tile=2), SLOW_MAX),
    Case("split by items", attention(3, 37, 50), replace(SMALL, core_split="items"), SLOW_MAX),
    Case("one row block", attention(3, 6, 50), SMALL, SLOW_MAX),
    Case("private L1", attention(3, 37, 50), SMALL, SLOW_MAX | {"l1.shared": False}),
    Case("softmax in one pass", attention(2, 37, 50), SMALL, {"vec.softmax_passes": ONE_PASS, "vec.lanes": 4}),
    Case("softmax that scales", attention(2, 37, 50), SMALL, {"vec.softmax_passes": SCALED, "vec.lanes": 4}),
    Case("no waiting", attention(2, 37, 50), SMALL, SLOW_MAX | NO_WAITING),
    Case("slow DRAM", attention(2, 37, 50), SMALL, SLOW_MAX | {"dram.bandwidth_gb_per_s": 0.5}),
    Case("fast DRAM", attention(2, 37, 50), SMALL, SLOW_MAX | {"dram.bandwidth_gb_per_s": 1000.0}),
    Case("spilled sums", attention(2, 37, 50), SMALL, SLOW_MAX | {"l0.accumulator_kib": 0.25}),
]

PREEMPTION: dict[str, dict[str, Any]] = {
    "stops tiles": {"preemption.supported": True, "preemption.lost_granularity": "tile"},
    "stops products": {"preemption.supported": True, "preemption.lost_granularity": "matmul"},
    "waits": {"preemption.supported": False},
}


def legal_overwrite(case: Case, overwrite: str) -> Tiling:
    """Return the case's tiling with that overwrite; all tiles of what is overwritten are resident."""
    tiles = case.tiling.kv_tiles(case.workload)
    resident: dict[str, Any] = {f"{overwrite}_resident_tiles": tiles}
    return replace(case.tiling, overwrite=overwrite, **resident)


class TestTileFlow(DataflowContract):
    @pytest.fixture
    def dataflow(self) -> str:
        return "tileflow"


class TestMas(DataflowContract):
    @pytest.fixture
    def dataflow(self) -> str:
        return "mas"

    @pytest.mark.parametrize("preemption", PREEMPTION)
    @pytest.mark.parametrize("overwrite", ["v", "k"])
    @pytest.mark.parametrize("case", OVERWRITES, ids=lambda case: case.name)
    def test_is_overwriting_legal_and_does_it_compute_attention(
        self, case: Case, overwrite: str, preemption: str
    ) -> None:
        tiling = legal_overwrite(case, overwrite)
        for cores in (1, 2):
            schedule = build_schedule(
                "mas", edge(**case.arch | PREEMPTION[preemption], cores=cores), case.workload, tiling
            )
            timeline = simulate(schedule)
            assert audit(schedule, timeline).summary() == "ok"
            assert execute(schedule, timeline).max_abs_error < TOLERANCE
            assert dram_bytes(schedule) >= case.workload.compulsory_bytes

    def test_do_these_cases_stop_products_in_every_way(self) -> None:
        """Of what can happen to a product whose tiles are overwritten, each happens somewhere, to V and to K."""
        for overwrite, (name, preemption) in product(("v", "k"), PREEMPTION.items()):
            early, late, stopped, redone = 0, 0, 0, 0
            for case in OVERWRITES:
                arch = edge(**case.arch | preemption, cores=1)
                schedule = build_schedule("mas", arch, case.workload, legal_overwrite(case, overwrite))
                timeline = simulate(schedule)
                outcome = read_overwrites(schedule, timeline)
                late += int(timeline.late.sum())
                early += len(outcome.victims) - int(timeline.late.sum())
                stopped += int((timeline.lost_cycles > 0).sum())
                redone += len(outcome.redone)
            assert early > 0, (overwrite, name)
            assert late > 0, (overwrite, name)
            assert (stopped > 0) == (name != "waits"), (overwrite, name)
            assert (redone > 0) == (name == "stops products"), (overwrite, name)
