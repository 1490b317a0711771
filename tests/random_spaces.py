"""Small random spaces that tests share, and all their legal tilings evaluated."""

from typing import Any

import numpy as np
from builders import DTYPES, archs, masks, small_workload
from hypothesis import assume
from hypothesis import strategies as st

from mas_sim._batch import E_CYCLES
from mas_sim.dataflows import DATAFLOWS
from mas_sim.search.base import FloatArray, NothingFitsError
from mas_sim.search.evaluator import AnySpace, Simulator
from mas_sim.search.joint import JointSpace
from mas_sim.search.space import SearchSpace
from mas_sim.tiling import GRANULARITIES

MOST = 600
"""Legal tilings that a random space has at most."""


@st.composite
def spaces(draw: st.DrawFn, dataflow: str | None = None, *, joint: bool = True) -> AnySpace:
    """Draw a space with 1 to `MOST` legal tilings: of the dataflow named, or of any, or of two to four at once.

    Machines with an L1 that is too small for many tilings; ragged and grouped workloads, masks, all data types.
    """
    kv_heads = draw(st.integers(1, 2))
    n_q, n_kv = draw(st.integers(1, 40)), draw(st.integers(1, 70))
    workload = small_workload(
        batch=draw(st.integers(1, 2)),
        heads=kv_heads * draw(st.integers(1, 2)),
        kv_heads=kv_heads,
        n_q=n_q,
        n_kv=n_kv,
        head_dim_qk=draw(st.integers(1, 20)),
        head_dim_v=draw(st.integers(1, 20)),
        **draw(st.sampled_from(DTYPES)),
        **draw(masks(n_q, n_kv)),
    )
    arch = draw(archs()).with_(**{"l1.capacity_kib": draw(st.sampled_from([2, 5, 12, 40]))})
    options: dict[str, Any] = {
        "limit": draw(st.integers(2, 3)),
        "residency": draw(st.sampled_from([(0,), (0, 8), (0, 2, 4, 8), (3, 7)])),
        "buffers": draw(st.sampled_from([(1,), (2,), (1, 2), (1, 3)])),
        "in_place": draw(st.sampled_from([(True,), (True, False)])),
        "use_all_l1": draw(st.booleans()),
        "granularity": draw(st.sampled_from([None, None, None, *GRANULARITIES])),
    }
    space: AnySpace
    if dataflow is None and joint and draw(st.booleans(), label="joint"):
        names = draw(st.lists(st.sampled_from(sorted(DATAFLOWS)), min_size=2, max_size=4, unique=True))
        space = JointSpace(arch, workload, names, **options)
    else:
        space = SearchSpace(dataflow or draw(st.sampled_from(sorted(DATAFLOWS))), arch, workload, **options)
    try:
        assume(space.legal_count <= MOST)
    except NothingFitsError:
        assume(False)
    return space


def everything(space: AnySpace) -> tuple[FloatArray, FloatArray]:
    """Return cycles and pJ of every legal tiling, float64[legal] each: no bound is asked, and nothing pruned."""
    with Simulator(space, workers=1) as simulator:
        results = simulator.results(space.legal)
        return results[:, E_CYCLES].astype(np.float64), simulator.energies(results)
