"""What every dataflow promises: a legal schedule that computes attention, again and again the same.

A dataflow joins by one subclass of `DataflowContract`.
"""

from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from mas_sim.arch import Arch, load_arch
from mas_sim.audit import audit
from mas_sim.dataflows import DATAFLOWS, build_schedule
from mas_sim.execute import execute
from mas_sim.overwrites import read_overwrites
from mas_sim.schedule import Schedule
from mas_sim.simulator import simulate
from mas_sim.tiling import Tiling
from mas_sim.workload import Workload

TOLERANCE = 1e-4  # float32 against float64


@dataclass(frozen=True)
class Case:
    """A workload, a tiling and a machine; `arch` are changes to the edge machine."""

    name: str
    workload: Workload
    tiling: Tiling
    arch: dict[str, Any] = field(default_factory=dict)


def attention(heads: int, n_q: int, n_kv: int, **other: Any) -> Workload:
    return Workload(**{"name": "case", "head_dim_qk": 8, "head_dim_v": 12, **other}, heads=heads, n_q=n_q, n_kv=n_kv)


ONE_PASS = (("max", "subtract", "exp", "sum", "divide"),)
SCALED = (("scale",), ("max", "subtract"), ("exp", "sum"), ("divide",))
NO_WAITING = {"sync_cycles": 0, "issue_cycles": 0, "dram.latency_cycles": 0, "dram.setup_cycles": 0}
FREE_VECTOR = {f"vec.op_lane_cycles.{op}": 0 for op in ("max", "add", "subtract", "multiply", "exp", "divide")}

CASES = [
    Case("one tile", attention(1, 16, 16), Tiling()),
    Case("one number", attention(1, 1, 1, head_dim_qk=1, head_dim_v=1), Tiling()),
    Case("exact tiles", attention(2, 32, 48), Tiling(q_tile=16, kv_tile=16)),
    Case("ragged rows", attention(2, 37, 48), Tiling(q_tile=16, kv_tile=16)),
    Case("ragged kv tiles", attention(2, 32, 50), Tiling(q_tile=16, kv_tile=16, k_resident_tiles=2)),
    Case("ragged both", attention(3, 37, 50), Tiling(q_tile=16, kv_tile=16, k_resident_tiles=4, v_resident_tiles=4)),
    Case("groups of two", attention(4, 37, 50), Tiling(head_tile=2, q_tile=16, kv_tile=16)),
    Case("heads not divisible", attention(5, 37, 50), Tiling(head_tile=2, q_tile=16, kv_tile=16, k_resident_tiles=1)),
    Case("two batches", attention(2, 20, 30, batch=2), Tiling(head_tile=2, q_tile=16, kv_tile=16)),
    Case("batches together", attention(3, 20, 30, batch=3), Tiling(batch_tile=2, head_tile=2, q_tile=16, kv_tile=16)),
    Case("grouped query", attention(6, 37, 50, kv_heads=2), Tiling(q_tile=16, kv_tile=16, k_resident_tiles=4)),
    Case("grouped by heads", attention(6, 20, 30, kv_heads=2), Tiling(head_tile=3, q_tile=16, kv_tile=16)),
    Case(
        "grouped across kv heads",
        attention(6, 20, 30, kv_heads=3, batch=2),
        Tiling(batch_tile=2, head_tile=3, q_tile=16, kv_tile=16, k_resident_tiles=1, v_resident_tiles=2),
    ),
    Case("split by items", attention(2, 50, 50), Tiling(q_tile=16, kv_tile=16, core_split="items")),
    Case("more cores than work", attention(1, 16, 50), Tiling(q_tile=16, kv_tile=16, core_split="items")),
    Case("decode", attention(4, 1, 90, kv_heads=1), Tiling(head_tile=4, q_tile=1, kv_tile=16)),
    Case("eight bits", attention(2, 37, 50, dtype="int8"), Tiling(q_tile=16, kv_tile=16)),
    Case("softmax in one pass", attention(2, 37, 50), Tiling(q_tile=16, kv_tile=16), {"vec.softmax_passes": ONE_PASS}),
    Case("softmax that scales", attention(2, 37, 50), Tiling(q_tile=16, kv_tile=16), {"vec.softmax_passes": SCALED}),
    Case("no waiting", attention(2, 37, 50), Tiling(q_tile=16, kv_tile=16), NO_WAITING),
    Case("softmax in no time", attention(2, 37, 50), Tiling(q_tile=16, kv_tile=16), NO_WAITING | FREE_VECTOR),
    Case("slow DRAM", attention(2, 37, 50), Tiling(q_tile=16, kv_tile=16), {"dram.bandwidth_gb_per_s": 0.5}),
    Case("private L1", attention(2, 37, 50), Tiling(q_tile=16, kv_tile=16), {"l1.shared": False}),
    Case("spilled sums", attention(2, 37, 50), Tiling(q_tile=16, kv_tile=16), {"l0.accumulator_kib": 0.25}),
]

BUFFERS_OF_ONE: dict[str, Any] = {"q_buffers": 1, "k_buffers": 1, "v_buffers": 1, "o_buffers": 1}
BUFFERS: list[dict[str, Any]] = [
    {
        "k_resident_tiles": k_resident,
        "v_resident_tiles": v_resident,
        "q_buffers": q,
        "k_buffers": k,
        "v_buffers": v,
        "o_buffers": o,
    }
    for k_resident, v_resident, q, k, v, o in product((0, 2, 4), (0, 3, 4), (1, 2), (1, 3), (1, 2), (1, 2))
]

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

# Everything is resident, and no two cores need the same K and V: nothing needs to move twice.
RESIDENT = [
    (attention(4, 37, 50), Tiling(q_tile=16, kv_tile=16), 3),
    (attention(5, 37, 50, batch=2), Tiling(head_tile=2, q_tile=16, kv_tile=16), 2),
    (attention(6, 37, 50, kv_heads=2), Tiling(head_tile=3, q_tile=16, kv_tile=16), 2),
    (attention(6, 37, 50, kv_heads=2), Tiling(q_tile=16, kv_tile=16, k_buffers=1, v_buffers=1), 1),
]


def edge(**changes: Any) -> Arch:
    return load_arch("mas_edge").with_(**changes)


def dram_bytes(schedule: Schedule) -> int:
    read, write = schedule.meter_counts()[:2]
    return int(read + write)


def legal_overwrite(case: Case, overwrite: str) -> Tiling:
    """Return the case's tiling with that overwrite; all tiles of what is overwritten are resident."""
    tiles = case.tiling.kv_tiles(case.workload)
    resident = {f"{overwrite}_resident_tiles": tiles}
    return replace(case.tiling, overwrite=overwrite, **resident)


class DataflowContract:
    """The promises; a subclass names the dataflow."""

    fused = True
    """Whether C and P stay on chip, so that only compulsory bytes need to move."""

    @pytest.fixture
    def dataflow(self) -> str:
        raise NotImplementedError

    def schedules(
        self, dataflow: str, case: Case, cores: int, in_place: tuple[bool, ...] = (True, False)
    ) -> list[Schedule]:
        """Build the case with each number of score buffers that is legal, with softmax in place and not."""
        arch = edge(**case.arch, cores=cores)
        choices = product(DATAFLOWS[dataflow].score_buffers, in_place)
        tilings = [replace(case.tiling, score_buffers=count, softmax_in_place=stays) for count, stays in choices]
        return [build_schedule(dataflow, arch, case.workload, tiling) for tiling in tilings]

    @pytest.mark.parametrize("cores", [1, 2, 3])
    @pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
    def test_is_it_legal_and_does_it_compute_attention(self, dataflow: str, case: Case, cores: int) -> None:
        for schedule in self.schedules(dataflow, case, cores):
            timeline = simulate(schedule)
            assert audit(schedule, timeline).summary() == "ok"
            assert execute(schedule, timeline).max_abs_error < TOLERANCE

    @pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
    def test_is_it_the_same_every_time(self, dataflow: str, case: Case) -> None:
        for first, second in zip(self.schedules(dataflow, case, 2), self.schedules(dataflow, case, 2), strict=True):
            assert np.array_equal(first.instructions, second.instructions)
            assert np.array_equal(first.costs, second.costs)
            one, two = simulate(first), simulate(second)
            assert one.cycles == two.cycles
            assert np.array_equal(one.start, two.start)
            assert np.array_equal(execute(first, one).output, execute(second, two).output)

    @pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
    def test_does_it_move_at_least_the_compulsory_bytes(self, dataflow: str, case: Case) -> None:
        for schedule in self.schedules(dataflow, case, 2):
            assert dram_bytes(schedule) >= case.workload.compulsory_bytes

    @pytest.mark.parametrize(("workload", "tiling", "cores"), RESIDENT)
    def test_does_it_move_nothing_twice_when_everything_is_resident(
        self, dataflow: str, workload: Workload, tiling: Tiling, cores: int
    ) -> None:
        tiling = replace(tiling, k_resident_tiles=4, v_resident_tiles=4)
        for schedule in self.schedules(dataflow, Case("resident", workload, tiling), cores):
            if self.fused:
                assert dram_bytes(schedule) == workload.compulsory_bytes
            else:
                passed = 4 * workload.scores * workload.bytes_per_element  # C and P out and in again
                assert dram_bytes(schedule) == workload.compulsory_bytes + passed

    def test_is_every_choice_of_residency_and_buffers_legal(self, dataflow: str) -> None:
        workload = attention(4, 37, 50, kv_heads=2)
        for number, buffers in enumerate(BUFFERS):
            case = Case("buffers", workload, replace(Tiling(q_tile=16, kv_tile=16), **buffers))
            for schedule in self.schedules(dataflow, case, 2, in_place=(number % 3 > 0,)):
                timeline = simulate(schedule)
                assert audit(schedule, timeline).summary() == "ok", buffers
                assert execute(schedule, timeline).max_abs_error < TOLERANCE, buffers

    @pytest.mark.parametrize("name", ["mas_edge", "davinci_lite", "fusemax_cloud"])
    def test_does_it_work_on_every_shipped_machine(self, dataflow: str, name: str) -> None:
        tiling = Tiling(head_tile=2, q_tile=32, kv_tile=32, score_buffers=DATAFLOWS[dataflow].score_buffers[-1])
        schedule = build_schedule(dataflow, load_arch(name), attention(5, 70, 100), tiling)
        timeline = simulate(schedule)
        assert audit(schedule, timeline).summary() == "ok"
        assert execute(schedule, timeline).max_abs_error < TOLERANCE


class TestLayerWise(DataflowContract):
    fused = False

    @pytest.fixture
    def dataflow(self) -> str:
        return "layer_wise"


class TestFlat(DataflowContract):
    @pytest.fixture
    def dataflow(self) -> str:
        return "flat"


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
