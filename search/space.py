"""The space of tilings that a search looks through: candidate values of every choice, and their product.

Tile sizes are *outer* choices, everything else (residency, buffering, ring, core split) *inner* ones. A tiling's
index is `outer index * inner choices + inner index`, so spaces of a million tilings take no memory. The legal ones
among them are found by one compiled scan; searchers work on those, by their *row* among them.
"""

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mas_sim._batch import scan
from mas_sim._legal import (
    COUNT_FIELDS,
    IN_EXP_ON,
    IN_IN_PLACE,
    IN_K_BUFFERS,
    IN_K_SHARE,
    IN_O_BUFFERS,
    IN_OVERLAP,
    IN_OVERWRITE,
    IN_Q_BUFFERS,
    IN_SCORE_BUFFERS,
    IN_SPLIT,
    IN_V_BUFFERS,
    INNER_FIELDS,
    N_TOO_LONG,
    SHARES,
    ChoiceArray,
    nearest_rows,
)
from mas_sim.arch import Arch
from mas_sim.costs import pack_problem
from mas_sim.dataflows import DATAFLOWS, MAX_INSTRUCTIONS, footprint, get_dataflow, legal_tiling
from mas_sim.energy import EnergyCoefficients
from mas_sim.errors import MasSimError, TilingError
from mas_sim.schedule import METER_FIELDS, IntArray
from mas_sim.search.base import NothingFitsError
from mas_sim.search.candidates import MAX_CANDIDATES, Scan, choice_faults, thin, tile_candidates
from mas_sim.tiling import (
    CORE_SPLITS,
    EXP_ON,
    GRANULARITIES,
    OVERLAPS,
    OVERWRITES,
    TILING_FIELDS,
    TL_BATCH,
    TL_EXP_ON,
    TL_HEAD,
    TL_IN_PLACE,
    TL_K_BUFFERS,
    TL_K_RESIDENT,
    TL_KV,
    TL_O_BUFFERS,
    TL_OVERLAP,
    TL_OVERWRITE,
    TL_Q,
    TL_Q_BUFFERS,
    TL_SCORE_BUFFERS,
    TL_SPLIT,
    TL_V_BUFFERS,
    Tiling,
)
from mas_sim.workload import Workload

SCAN_TILINGS = 65_536
"""Tilings that a thread looks at in one go."""

LEVELS = (
    "batch_tile", "head_tile", "q_tile", "kv_tile", "core_split", "overwrite", "score_buffers", "softmax_in_place",
    "exp_on", "overlap", "k_resident", "v_resident", "q_buffers", "k_buffers", "v_buffers", "o_buffers",
)  # fmt: skip
"""The choices that make a tiling, in the order in which the space goes through them."""

INNER_COLUMNS = (
    (TL_Q_BUFFERS, IN_Q_BUFFERS), (TL_K_BUFFERS, IN_K_BUFFERS), (TL_V_BUFFERS, IN_V_BUFFERS),
    (TL_O_BUFFERS, IN_O_BUFFERS), (TL_SCORE_BUFFERS, IN_SCORE_BUFFERS), (TL_SPLIT, IN_SPLIT),
    (TL_IN_PLACE, IN_IN_PLACE), (TL_OVERWRITE, IN_OVERWRITE), (TL_EXP_ON, IN_EXP_ON), (TL_OVERLAP, IN_OVERLAP),
)  # fmt: skip
"""Where each inner choice stands in a packed tiling."""


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

    def __post_init__(self) -> None:
        """Refuse choices that no space can be made of, with a `MasSimError` that names them all."""
        get_dataflow(self.dataflow)
        names = ("residency", "buffers", "in_place", "overwrites", "exp_on")
        faults = choice_faults(self.limit, self.granularity, {name: getattr(self, name) for name in names})
        if faults:
            raise MasSimError(f"a search space of {self.dataflow}: {'; '.join(faults)}")

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
        chosen, tiles = self.inner[inner], -(-self.workload.n_kv // tilings[:, TL_KV])
        for is_v in range(2):
            tilings[:, TL_K_RESIDENT + is_v] = -(-(tiles * chosen[:, IN_K_SHARE + is_v]) // SHARES)
        for column, choice in INNER_COLUMNS:
            tilings[:, column] = chosen[:, choice]
        return tilings

    def tiling(self, index: int) -> Tiling:
        """Return the tiling at an index."""
        return Tiling.unpack(self.packed(np.array([index]))[0])

    def parts(self) -> "tuple[tuple[int, SearchSpace], ...]":
        """Return the spaces of single dataflows that it is made of, each with its first index: itself."""
        return ((0, self),)

    def dataflow_of(self, index: int) -> str:
        """Return the dataflow of the tiling at an index: this space's."""
        return self.dataflow

    @cached_property
    def _digits(self) -> tuple[IntArray, IntArray]:
        """Places of the outer and of the inner choices in the list of each level's values; int64[n, ...]."""
        outer = [np.unique(column, return_inverse=True)[1] for column in self.outer.T]
        inner = []
        for column in self.inner.T:
            _, first, place = np.unique(column, return_index=True, return_inverse=True)
            inner.append(np.argsort(np.argsort(first))[place])  # in the order in which the space goes through them
        return np.stack(outer, axis=1), np.stack(inner, axis=1)

    def choices_of(self, indices: IntArray) -> ChoiceArray:
        """Return what the tilings at `indices` choose at each of `LEVELS`; int16[n, levels], sorted as indices are."""
        outer, inner = np.divmod(indices, self.inner.shape[0])
        digits = self._digits
        chosen: ChoiceArray = np.concatenate([digits[0][outer], digits[1][inner]], axis=1).astype(np.int16)
        return chosen

    def scan(self, coefficients: EnergyCoefficients | None = None, workers: int = 2) -> Scan:
        """Look at every tiling: which are legal, and, if energy is priced, the lower bounds of those."""
        flow, inner = get_dataflow(self.dataflow), self.inner.shape[0]
        p, passes = pack_problem(self.arch, self.workload), flow.softmax(self.arch)
        priced = coefficients is not None
        pj = np.zeros(METER_FIELDS) if coefficients is None else coefficients.pj_per_action
        leakage = 0.0 if coefficients is None else coefficients.leakage_pj_per_cycle
        chunk = max(1, SCAN_TILINGS // max(1, inner))

        def look(start: int) -> Scan:
            outer = self.outer[start : start + chunk if inner else 0]  # a dataflow may have none of the choices
            room, counts = outer.shape[0] * inner, np.zeros(COUNT_FIELDS, np.int64)
            index, bounds = np.empty(room, np.int64), np.empty((2, room if priced else 0), np.float64)
            n = scan(
                flow.number, p, passes, outer, self.inner, self.blocks, MAX_INSTRUCTIONS, self.steps, pj, leakage,
                priced, start * inner, index, bounds[0], bounds[1], counts,
            )  # fmt: skip
            return Scan(index[:n].copy(), bounds[0, :n].copy(), bounds[1, :n].copy(), counts)

        with ThreadPoolExecutor(workers) as pool:
            parts = list(pool.map(look, range(0, self.outer.shape[0] if inner else 1, chunk)))
        return Scan.together(parts)

    @cached_property
    def legal(self) -> IntArray:
        """Indices of all legal tilings, rising; int64[legal]. A tiling's place in it is its *row*.

        Raises
        ------
        NothingFitsError
            If there are none; says by how many bytes the smallest tiling does not fit.
        """
        if not len(self._scanned.index):
            raise self.misfit()
        return self._scanned.index

    @cached_property
    def _scanned(self) -> Scan:
        return self.scan()

    @property
    def too_long(self) -> int:
        """Number of tilings whose schedule would be too long."""
        return int(self._scanned.counts[N_TOO_LONG])

    @property
    def legal_count(self) -> int:
        """Number of legal tilings."""
        return len(self.legal)

    @cached_property
    def choices(self) -> ChoiceArray:
        """What each legal tiling chooses; int16[legal, levels], in lexicographic order."""
        return self.choices_of(self.legal)

    def nearest(self, wanted: IntArray) -> IntArray:
        """Repair choices, int64[n, levels], to legal ones: rows, int64[n] (`nearest_rows`)."""
        rows: IntArray = nearest_rows(self.choices, wanted)
        return rows

    def encode(self, tiling: Tiling) -> int:
        """Return the index of a tiling; the inverse of `tiling`.

        Raises
        ------
        TilingError
            If it is not a legal one of this space.
        """
        wanted = legal_tiling(self.dataflow, self.arch, self.workload, tiling).pack()
        rows = np.flatnonzero((self.packed(self.legal) == wanted).all(axis=1))
        if not rows.size:
            raise TilingError(f"this tiling is not in the space of {self.dataflow} ({self.describe()})")
        return int(self.legal[rows[0]])

    def neighbours(self, row: int) -> IntArray:
        """Return the rows of legal tilings that differ in one choice, by the next value either way that is legal."""
        choices, mine = self.choices, self.choices[row]
        differs = choices != mine
        found: list[int] = []
        single = np.flatnonzero(differs.sum(axis=1) == 1)
        level = differs[single].argmax(axis=1)
        for at in range(len(LEVELS)):
            rows = single[level == at]
            steps = choices[rows, at].astype(np.int64) - int(mine[at])
            sides = [side for side in (steps < 0, steps > 0) if side.any()]
            found += [int(rows[side][np.argmin(np.abs(steps[side]))]) for side in sides]
        return np.array(sorted(found), dtype=np.int64)

    def draw(self, rng: np.random.Generator, count: int = 1) -> IntArray:
        """Draw rows of legal tilings, all equally likely, none twice; int64[count]."""
        return rng.choice(self.legal_count, size=min(count, self.legal_count), replace=False)

    def misfit(self) -> NothingFitsError:
        """Say by how many bytes the smallest tiling does not fit."""
        values = self.candidates
        least = min(self.buffers)
        flow = get_dataflow(self.dataflow)
        smallest = Tiling(
            values["batch_tile"][0], values["head_tile"][0], values["q_tile"][0], values["kv_tile"][0],
            0, 0, least, least, least, flow.score_buffers[0], least, "groups",
        )  # fmt: skip
        need = footprint(self.dataflow, self.arch, self.workload, smallest)
        where = f"{self.dataflow}: no tiling of the space searched can run {self.workload.name} on {self.arch.name}"
        if not len(self.inner):
            return NothingFitsError(f"{where}: the dataflow has none of the choices given", 0)
        if need.over_bytes == 0:
            reason = (
                f"those that fit L1 need more than {MAX_INSTRUCTIONS:,} instructions, the longest schedule simulated"
            )
        else:
            reason = f"the smallest does not fit L1, by {need.over_bytes:,} bytes "
            reason += f"(needs {need.total_bytes:,} of {need.capacity_bytes:,})"
        return NothingFitsError(f"{where}: {reason}", need.over_bytes)

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
