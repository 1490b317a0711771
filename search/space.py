"""The space of tilings that a search looks through: candidate values of every choice, and their product.

Tile sizes are *outer* choices, everything else (residency, buffering, ring, core split) *inner* ones. A tiling's
index is `outer index * inner choices + inner index`, so spaces of a million tilings take no memory.
"""

import itertools
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mas_sim._batch import (
    IN_K_SHARE,
    INNER_FIELDS,
    SHARES,
    apply_inner,
)
from mas_sim.arch import Arch
from mas_sim.dataflows import DATAFLOWS, MAX_INSTRUCTIONS, get_dataflow
from mas_sim.schedule import IntArray
from mas_sim.tiling import (
    CORE_SPLITS,
    EXP_ON,
    GRANULARITIES,
    OVERLAPS,
    OVERWRITES,
    TILING_FIELDS,
    TL_BATCH,
    TL_HEAD,
    TL_KV,
    TL_Q,
    Tiling,
)
from mas_sim.workload import Workload

MAX_CANDIDATES = 32
"""Candidates of a factor before they are thinned."""


def thin(values: list[int], limit: int) -> list[int]:
    """Thin sorted values geometrically to about `limit`, keeping the first and the last."""
    if len(values) <= limit:
        return values
    picks = np.geomspace(1, len(values), limit)
    return [values[i] for i in sorted({round(float(pick)) - 1 for pick in picks})]


def tile_candidates(dimension: int, side: int, limit: int = MAX_CANDIDATES, *, small: bool = False) -> list[int]:
    """Candidate tile sizes of a dimension: multiples of the array's side up to it, and the dimension itself.

    `small` adds the powers of two below the side: a long row block may only fit L1 with fewer rows than the array has.
    """
    values = thin([*range(side, dimension, side), dimension], limit)
    powers = [1 << bit for bit in range(side.bit_length()) if 1 << bit < min(side, dimension)]
    return [*powers, *values] if small else values


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
        Buffering depths of each of Q, K, V and O.
    in_place
        Whether P may take C's bytes, have bytes of its own, or both.
    overwrites
        What softmax may write P over (`mas` only).
    exp_on
        Units that may compute exp (`fusemax` only).
    granularity
        Only tilings that fuse this much at once: `M`, `B`, `H` or `R` (`Tiling.granularity`); None for all.
    use_all_l1
        Leave out tilings with room left in L1: where a tensor could be buffered more deeply, or more of K or V be kept.
    """

    dataflow: str
    arch: Arch
    workload: Workload
    limit: int = MAX_CANDIDATES
    residency: tuple[int, ...] = tuple(range(0, SHARES + 1, 2))
    buffers: tuple[int, ...] = (1, 2)
    in_place: tuple[bool, ...] = (True, False)
    overwrites: tuple[str, ...] = OVERWRITES
    exp_on: tuple[str, ...] = EXP_ON
    granularity: str | None = None
    use_all_l1: bool = True

    @cached_property
    def steps(self) -> IntArray:
        """Shares and depths for `scan`, int64[2, n]; int64[2, 0] if room may be left."""
        if not self.use_all_l1:
            return np.zeros((2, 0), np.int64)
        longest = max(len(self.residency), len(self.buffers))
        rows = [[*values, *[values[-1]] * (longest - len(values))] for values in (self.residency, self.buffers)]
        return np.array(rows, dtype=np.int64)

    @cached_property
    def candidates(self) -> dict[str, list[int]]:
        """Candidate values of each tile size."""
        workload, mac = self.workload, self.arch.mac
        values = {
            "batch_tile": thin(list(range(1, workload.batch + 1)), self.limit),
            "head_tile": thin(list(range(1, workload.heads + 1)), self.limit),
            "q_tile": tile_candidates(workload.n_q, mac.rows, self.limit, small=True),
            "kv_tile": tile_candidates(workload.n_kv, mac.cols, self.limit),
        }
        if self.granularity is None:
            return values
        level = GRANULARITIES.index(self.granularity)
        whole = {"q_tile": workload.n_q, "head_tile": workload.heads, "batch_tile": workload.batch}
        for place, (name, dimension) in enumerate(whole.items()):
            if place < len(whole) - level:
                values[name] = [dimension]
            elif place == len(whole) - level and len(values[name]) > 1:
                values[name] = [value for value in values[name] if value < dimension]
        return values

    @cached_property
    def outer(self) -> IntArray:
        """Tile sizes, int64[outer, 4]: batch, head, q, kv."""
        return np.array(list(itertools.product(*self.candidates.values())), dtype=np.int64).reshape(-1, 4)

    @cached_property
    def inner(self) -> IntArray:
        """The other choices, int64[inner, INNER_FIELDS]."""
        flow = get_dataflow(self.dataflow)
        splits = range(len(CORE_SPLITS)) if self.arch.cores > 1 else range(1)
        places = [place for place in self.in_place if place in flow.in_place]
        rows: list[tuple[int, ...]] = []
        for split, name, ring, in_place, exp_on, overlap in itertools.product(
            splits, self._overwrites, flow.score_buffers, places, self._exp_on, self._overlaps
        ):
            overwrite = OVERWRITES.index(name)
            if overwrite and (in_place or ring != 2):
                continue
            for k, v in itertools.product(self.residency, repeat=2):
                if (name == "v" and v < SHARES) or (name == "k" and k < SHARES):
                    continue
                ways = (EXP_ON.index(exp_on), OVERLAPS.index(overlap))
                choice = (split, overwrite, ring, int(in_place), *ways, k, v)
                rows.extend((*choice, *depths) for depths in itertools.product(self.buffers, repeat=4))
        return np.array(rows, dtype=np.int64).reshape(-1, INNER_FIELDS)

    @property
    def _overwrites(self) -> tuple[str, ...]:
        """What softmax may write P over: nothing, but for `mas` without a mask."""
        return self.overwrites if self.dataflow == "mas" and self.workload.mask == "none" else ("none",)

    @property
    def _exp_on(self) -> tuple[str, ...]:
        """Units that may compute exp."""
        flow, can = get_dataflow(self.dataflow), self.arch.mac.exp_steps is not None
        return tuple(unit for unit in self.exp_on if unit in flow.exp_on and (unit != "mac" or can))

    @property
    def _overlaps(self) -> tuple[str, ...]:
        """Ways to overlap: `fusemax` in sequence is never better, and only there to be studied."""
        flow = get_dataflow(self.dataflow)
        return flow.overlaps[:1] if self.dataflow == "fusemax" else flow.overlaps

    @cached_property
    def blocks(self) -> IntArray:
        """Where the inner choices' core split, overwrite, ring or place of P change; int64[blocks + 1].

        Within a block, the first choice needs the fewest bytes of L1, the last one the most.
        """
        what = self.inner[:, :IN_K_SHARE]
        changes = np.flatnonzero((what[1:] != what[:-1]).any(axis=1)) + 1
        return np.array([0, *changes, len(what)], dtype=np.int64)

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
        shares = "/".join(f"{share / SHARES:g}" for share in self.residency)
        flow = DATAFLOWS[self.dataflow]
        rings = "/".join(map(str, flow.score_buffers))
        depths = "/".join(map(str, self.buffers))
        places = "/".join("in place" if place else "own bytes" for place in self.in_place if place in flow.in_place)
        inner = (
            f"resident share of K and of V {shares}; buffers of Q, K, V, O {depths}; score buffers {rings}; P {places}"
        )
        if len(self._overwrites) > 1:
            inner += f"; overwrite {'/'.join(self._overwrites)}"
        if len(self._exp_on) > 1:
            inner += f"; exp on {'/'.join(self._exp_on)}"
        if len(self._overlaps) > 1:
            inner += f"; overlap {'/'.join(self._overlaps)}"
        if self.granularity is not None:
            inner += f"; granularity {self.granularity}"
        room = "; only tilings that leave no room in L1 for more of these" if self.use_all_l1 else ""
        split = "; core split by groups/items" if self.arch.cores > 1 else ""
        return f"{sizes}; {inner}{split}{room}; schedules of at most {MAX_INSTRUCTIONS:,} instructions"
