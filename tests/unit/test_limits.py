"""Is the longest sequence of a dataflow exactly the one whose smallest tiling still fits L1?"""

import itertools

import pytest
from builders import edge, small_arch

from mas_sim.dataflows import DATAFLOWS, Footprint, footprint
from mas_sim.errors import MasSimError
from mas_sim.limits import MAX_SEQUENCE, SequenceLimit, sequence_limit, sequence_limits, smallest_tiling
from mas_sim.tiling import Tiling
from mas_sim.workload import Workload


def need(limit: SequenceLimit, tokens: int, tiling: Tiling | None = None) -> Footprint:
    """Footprint of self-attention over so many tokens, on the machine of a limit of `mas_edge`."""
    # Where nothing limits the length, rows do not count, and a grid of so many would be slow.
    rows = tokens if tokens < MAX_SEQUENCE else limit.cores
    workload = Workload(name="long", heads=1, n_q=rows, n_kv=tokens, head_dim_qk=64, head_dim_v=64)
    machine = edge().with_(cores=limit.cores)
    return footprint(limit.dataflow, machine, workload, tiling or smallest_tiling(limit.dataflow))


@pytest.mark.parametrize(("dataflow", "power"), [("flat", 2**21), ("mas", 2**20)])
def test_does_one_core_reach_the_lengths_that_the_paper_states(dataflow: str, power: int) -> None:
    """The paper, for fp16 and 5 MiB: about 2 M tokens for FLAT and 1 M for MAS-Attention."""
    assert sequence_limit(edge(), dataflow).tokens_power_of_two == power


@pytest.mark.parametrize("limit", sequence_limits(edge()), ids=lambda limit: f"{limit.dataflow}-{limit.cores}")
def test_does_the_limit_fit_and_one_token_more_not(limit: SequenceLimit) -> None:
    at = need(limit, limit.tokens)
    assert at.over_bytes == 0
    assert at.active_cores == limit.cores
    assert (at.total_bytes, at.capacity_bytes, at.by_tensor) == (limit.l1_bytes, limit.capacity_bytes, limit.by_tensor)
    if limit.tokens < MAX_SEQUENCE:
        assert need(limit, limit.tokens + 1).over_bytes > 0
    assert limit.tokens_power_of_two <= limit.tokens < 2 * limit.tokens_power_of_two
    assert limit.by_tensor[limit.limited_by] == max(limit.by_tensor.values())


def test_are_all_dataflows_there_with_one_core_and_with_all() -> None:
    found = [(limit.dataflow, limit.cores) for limit in sequence_limits(edge())]
    assert found == list(itertools.product(DATAFLOWS, (1, edge().cores)))
    assert [limit.cores for limit in sequence_limits(small_arch())] == [1] * len(DATAFLOWS)


@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_does_no_other_tiling_need_fewer_bytes(dataflow: str) -> None:
    limit = sequence_limit(edge(), dataflow)
    least = need(limit, 4096).total_bytes
    flow = DATAFLOWS[dataflow]
    choices = itertools.product(flow.score_buffers, (1, 2, 64), (0, 1, 4096), flow.in_place, flow.overlaps)
    for ring, tile, resident, in_place, overlap in choices:
        tiling = Tiling(
            1, 1, tile, tile, resident, resident, 1, 1, 1, ring, 1, "groups", in_place, overlap=overlap
        )  # fmt: skip
        assert need(limit, 4096, tiling).total_bytes >= least


def test_is_it_said_that_nothing_fits_or_nothing_limits() -> None:
    tiny = small_arch(**{"l1.capacity_kib": 0.125})
    limit = sequence_limit(tiny, "mas", head_dim=64)
    assert (limit.tokens, limit.tokens_power_of_two) == (0, 0)
    assert limit.l1_bytes > limit.capacity_bytes
    huge = small_arch(**{"l1.capacity_kib": 2**20})
    assert sequence_limit(huge, "mas", head_dim=4096).tokens == MAX_SEQUENCE


@pytest.mark.parametrize("dataflow", ["flash", "fusemax"])
def test_does_online_softmax_run_any_length_if_it_runs_one(dataflow: str) -> None:
    """It never holds a whole row of scores: L1 limits the head dimension, and not the length."""
    arch = small_arch(**{"l1.capacity_kib": 4})
    for head_dim, tokens in ((64, MAX_SEQUENCE), (4096, 0)):
        assert sequence_limit(arch, dataflow, head_dim=head_dim).tokens == tokens


def test_are_cores_that_are_not_there_refused() -> None:
    with pytest.raises(MasSimError, match=r"cores must be in 1\.\.2 \(got 3\)"):
        sequence_limit(edge(), "mas", cores=3)
