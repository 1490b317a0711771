"""How fast the simulator is: what a search does most, each of its parts alone, and a whole search.

The first and the last also assert a floor, from the fastest round, which other work on the machine disturbs least.
"""

from typing import Any, NamedTuple

import numpy as np
import pytest

from mas_sim._batch import E_CYCLES, EVALUATION_FIELDS, evaluate
from mas_sim._kernels import CAUSES, REDO_FIELDS, simulate_events
from mas_sim.arch import Arch, load_arch
from mas_sim.costs import pack_problem, pack_softmax
from mas_sim.dataflows import DATAFLOWS, build_schedule, get_dataflow
from mas_sim.dataflows._dispatch import emit, plan_slots
from mas_sim.dataflows._emission import make_book
from mas_sim.dataflows._plan import kind_bases
from mas_sim.energy import energy_breakdown, energy_coefficients
from mas_sim.schedule import C_CYCLES, IntArray, Schedule
from mas_sim.search.exhaustive import ExhaustiveSearch
from mas_sim.search.space import SearchSpace
from mas_sim.simulator import simulate, timing_vector
from mas_sim.tiling import Tiling
from mas_sim.workload import Workload, load_workload

COPIES = 200
MIN_INSTRUCTIONS_PER_SECOND = 20e6
MIN_SIMULATIONS_PER_SECOND = 10e3
MAX_LONG_SECONDS = 1.0
MAX_SEARCH_SECONDS = 2.0


class Case(NamedTuple):
    """One dataflow on one arch, workload and tiling, and the vectors that compiled code reads."""

    arch: Arch
    workload: Workload
    schedule: Schedule
    number: int
    p: IntArray
    passes: IntArray


@pytest.fixture(scope="session")
def bert_mas() -> Case:
    """BERT-Base under `mas` on the edge machine, in tiles of 128 x 128."""
    arch, workload = load_arch("mas_edge"), load_workload("bert_base")
    schedule = build_schedule("mas", arch, workload, Tiling(q_tile=128, kv_tile=128))
    number = get_dataflow("mas").number
    return Case(arch, workload, schedule, number, pack_problem(arch, workload), pack_softmax(arch))


def fastest_seconds(benchmark: Any) -> float:
    return float(benchmark.stats.stats.min)


@pytest.mark.benchmark(group="frequent")
def test_how_fast_are_build_and_simulation_of_bert_base(benchmark: Any, bert_mas: Case) -> None:
    tilings = np.repeat(bert_mas.schedule.tiling.pack()[None, :], COPIES, axis=0)
    results = np.zeros((COPIES, EVALUATION_FIELDS), np.int64)
    arguments = (bert_mas.number, bert_mas.p, bert_mas.passes, tilings, results)
    benchmark.pedantic(evaluate, args=arguments, rounds=100, warmup_rounds=5)
    assert (results[:, E_CYCLES] == simulate(bert_mas.schedule).cycles).all()
    simulations_per_second = COPIES / fastest_seconds(benchmark)
    instructions_per_second = simulations_per_second * len(bert_mas.schedule)
    benchmark.extra_info["instructions"] = len(bert_mas.schedule)
    benchmark.extra_info["simulations_per_second"] = round(simulations_per_second)
    benchmark.extra_info["instructions_per_second"] = round(instructions_per_second)
    assert instructions_per_second >= MIN_INSTRUCTIONS_PER_SECOND
    assert simulations_per_second >= MIN_SIMULATIONS_PER_SECOND


@pytest.mark.benchmark(group="frequent")
@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_how_fast_are_build_and_simulation_of_each_dataflow(benchmark: Any, bert_mas: Case, dataflow: str) -> None:
    flow = get_dataflow(dataflow)
    tiling = Tiling(q_tile=128, kv_tile=128, score_buffers=flow.score_buffers[-1], overlap=flow.overlaps[-1])
    schedule = build_schedule(dataflow, bert_mas.arch, bert_mas.workload, tiling)
    tilings = np.repeat(schedule.tiling.pack()[None, :], COPIES, axis=0)
    results = np.zeros((COPIES, EVALUATION_FIELDS), np.int64)
    arguments = (flow.number, bert_mas.p, flow.softmax(bert_mas.arch), tilings, results)
    benchmark.pedantic(evaluate, args=arguments, rounds=30, warmup_rounds=3)
    assert (results[:, E_CYCLES] == simulate(schedule).cycles).all()
    instructions_per_second = COPIES / fastest_seconds(benchmark) * len(schedule)
    benchmark.extra_info["instructions_per_second"] = round(instructions_per_second)
    assert instructions_per_second >= MIN_INSTRUCTIONS_PER_SECOND / 2


@pytest.mark.benchmark(group="targeted")
def test_how_fast_is_the_event_kernel_alone(benchmark: Any, bert_mas: Case) -> None:
    schedule = bert_mas.schedule
    n, queues = len(schedule), schedule.queues
    code, costs = np.ascontiguousarray(schedule.instructions), schedule.costs[:, C_CYCLES].copy()
    following, start, end = np.empty(n, np.int32), np.empty(n, np.int64), np.empty(n, np.int64)
    busy, stalls = np.empty(queues, np.int64), np.empty((queues, CAUSES), np.int64)
    timing, redo = timing_vector(schedule), np.zeros((0, REDO_FIELDS), np.int64)

    def run() -> int:
        return simulate_events(
            code, n, costs, schedule.arch.cores, timing, following, start, end, busy, stalls, redo
        )  # fmt: skip

    assert benchmark(run) == simulate(schedule).cycles


@pytest.mark.benchmark(group="targeted")
def test_how_fast_is_emission_alone(benchmark: Any, bert_mas: Case) -> None:
    schedule, p, t = bert_mas.schedule, bert_mas.p, bert_mas.schedule.tiling.pack()
    kinds = kind_bases(bert_mas.number, t, schedule.grid, bert_mas.passes)
    slots, places = plan_slots(bert_mas.number, p, t, int(schedule.grid.row_length.max()))
    code = np.empty_like(schedule.instructions)
    blank: IntArray = make_book(
        bert_mas.number, p, t, kinds, schedule.costs.shape[0], schedule.grid, slots.shape[0], places
    )
    book = blank.copy()

    def run() -> int:
        book[:] = blank
        return emit(code, book, slots.shape[0])

    assert benchmark(run) == len(schedule)
    np.testing.assert_array_equal(code, schedule.instructions)


@pytest.mark.benchmark(group="targeted")
def test_how_fast_is_the_energy_table(benchmark: Any, bert_mas: Case) -> None:
    counts = bert_mas.schedule.meter_counts()

    def run() -> float:
        return energy_breakdown(counts, 10**6, energy_coefficients(bert_mas.arch, "fp16")).total

    assert benchmark(run) > 0


@pytest.mark.benchmark(group="targeted")
def test_how_fast_does_an_arch_load(benchmark: Any) -> None:
    assert benchmark(load_arch, "mas_edge").name == "mas_edge"


@pytest.mark.benchmark(group="whole run")
def test_how_fast_is_the_best_tiling_of_bert_base_proven(benchmark: Any, bert_mas: Case) -> None:
    space = SearchSpace("mas", bert_mas.arch, bert_mas.workload)
    ExhaustiveSearch().search(SearchSpace("mas", bert_mas.arch, bert_mas.workload, limit=3))  # compiles
    result = benchmark.pedantic(ExhaustiveSearch().search, args=(space,), rounds=5)
    assert result.proven_optimal
    benchmark.extra_info["tilings"] = result.space_size
    assert fastest_seconds(benchmark) < MAX_SEARCH_SECONDS


@pytest.mark.benchmark(group="targeted")
def test_how_fast_is_one_long_sequence(benchmark: Any) -> None:
    """One head of 131,072 tokens under `mas`, at the tiling that the search proves best."""
    arch = load_arch("mas_edge")
    workload = load_workload("bert_base").with_(heads=1, kv_heads=1, n_q=131_072, n_kv=131_072)
    tiling = Tiling(q_tile=8, kv_tile=1_680, overlap="none")
    p, passes = pack_problem(arch, workload), pack_softmax(arch)
    results = np.zeros((1, EVALUATION_FIELDS), np.int64)
    arguments = (get_dataflow("mas").number, p, passes, tiling.pack()[None, :], results)
    benchmark.pedantic(evaluate, args=arguments, rounds=3, warmup_rounds=1)
    assert results[0, E_CYCLES] == 68_770_811_656
    assert fastest_seconds(benchmark) < MAX_LONG_SECONDS
