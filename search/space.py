"""The space of tilings that a search looks through: candidate values of every choice, and their product.

Tile sizes are *outer* choices, everything else (residency, buffering, ring, core split) *inner* ones. A tiling's
index is `outer index * inner choices + inner index`, so spaces of a million tilings take no memory.
"""

import itertools
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mas_sim._batch import INNER_FIELDS, SHARES, apply_inner
from mas_sim.arch import Arch
from mas_sim.dataflows import DATAFLOWS, get_dataflow
from mas_sim.schedule import IntArray
from mas_sim.tiling import CORE_SPLITS, TILING_FIELDS, TL_BATCH, TL_HEAD, TL_KV, TL_Q, Tiling
from mas_sim.workload import Workload

MAX_CANDIDATES = 32
"""Candidates of a factor before they are thinned."""


def thin(values: list[int], limit: int) -> list[int]:
    """Thin sorted values geometrically to about `limit`, keeping the first and the last."""
    if len(values) <= limit:
        return values
    picks = np.geomspace(1, len(values), limit)
    return [values[i] for i in sorted({round(float(pick)) - 1 for pick in picks})]


def tile_candidates(dimension: int, side: int, limit: int = MAX_CANDIDATES) -> list[int]:
    """Candidate tile sizes of a dimension: multiples of the array's side up to it, and the dimension itself."""
    values = [*range(side, dimension, side), dimension]
    return thin(values, limit)


@dataclass(frozen=True)
class SearchSpace:
    """Legal tilings of one dataflow on one arch and workload.

    Attributes
    ----------
    limit
        About how many candidates a tile size has at most; more of them are thinned geometrically.
    residency
        Shares of K and of V that may stay in L1, in eighths of their tiles.
    buffers
        Buffering depths; one depth holds for Q, K, V and O together.
    """

    dataflow: str
    arch: Arch
    workload: Workload
    limit: int = MAX_CANDIDATES
    residency: tuple[int, ...] = (0, SHARES)
    buffers: tuple[int, ...] = (1, 2)

    @cached_property
    def candidates(self) -> dict[str, list[int]]:
        """Candidate values of each tile size."""
        workload, mac = self.workload, self.arch.mac
        return {
            "batch_tile": thin(list(range(1, workload.batch + 1)), self.limit),
            "head_tile": thin(list(range(1, workload.heads + 1)), self.limit),
            "q_tile": tile_candidates(workload.n_q, mac.rows, self.limit),
            "kv_tile": tile_candidates(workload.n_kv, mac.cols, self.limit),
        }

    @cached_property
    def outer(self) -> IntArray:
        """Tile sizes, int64[outer, 4]: batch, head, q, kv."""
        return np.array(list(itertools.product(*self.candidates.values())), dtype=np.int64).reshape(-1, 4)

    @cached_property
    def inner(self) -> IntArray:
        """The other choices, int64[inner, INNER_FIELDS]."""
        score_buffers = get_dataflow(self.dataflow).score_buffers
        splits = range(len(CORE_SPLITS)) if self.arch.cores > 1 else range(1)
        rows = [
            (k, v, depth, depth, depth, ring, depth, split)
            for k, v in itertools.product(self.residency, repeat=2)
            for depth in self.buffers
            for ring in score_buffers
            for split in splits
        ]
        return np.array(rows, dtype=np.int64).reshape(-1, INNER_FIELDS)

    def __len__(self) -> int:
        return int(self.outer.shape[0] * self.inner.shape[0])

    def packed(self, indices: IntArray) -> IntArray:
        """Return the tilings at `indices`, packed; int64[n, TILING_FIELDS]."""
        tilings = np.zeros((len(indices), TILING_FIELDS), dtype=np.int64)
        outer, inner = np.divmod(indices, self.inner.shape[0])
        tilings[:, [TL_BATCH, TL_HEAD, TL_Q, TL_KV]] = self.outer[outer]
        for row, choice in zip(tilings, inner.tolist(), strict=True):
            apply_inner(row, self.inner[choice], -(-self.workload.n_kv // int(row[TL_KV])))
        return tilings

    def tiling(self, index: int) -> Tiling:
        """Return the tiling at an index."""
        return Tiling.unpack(self.packed(np.array([index]))[0])

    def describe(self) -> str:
        """Return the space in words."""
        sizes = ", ".join(f"{name} {len(v)} values {v[0]}..{v[-1]}" for name, v in self.candidates.items())
        shares = "/".join(str(share / SHARES) for share in self.residency)
        rings = "/".join(map(str, DATAFLOWS[self.dataflow].score_buffers))
        depths = "/".join(map(str, self.buffers))
        inner = f"K and V resident share {shares}; buffers {depths}; score buffers {rings}; core split by groups/items"
        return f"{sizes}; {inner}"
