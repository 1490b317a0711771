"""Tilings: how a workload is cut into tiles, and what of it stays in L1.

A tiling is a plain record. Any size is legal, not only divisors: the last tile of a dimension may be ragged. Which of
its choices a dataflow uses, and so how many L1 bytes it needs, is the dataflow's to say (`dataflows.footprint`).
"""

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mas_sim.errors import TilingError, nearest
from mas_sim.workload import Workload

CORE_SPLITS = ("groups", "items")

# Columns of a packed tiling (int64 vector), for compiled code.
TL_BATCH, TL_HEAD, TL_Q, TL_KV = 0, 1, 2, 3
TL_K_RESIDENT, TL_V_RESIDENT = 4, 5
TL_Q_BUFFERS, TL_K_BUFFERS, TL_V_BUFFERS, TL_SCORE_BUFFERS, TL_O_BUFFERS = 6, 7, 8, 9, 10
TL_SPLIT, TL_IN_PLACE, TL_OVERWRITE, TL_EXP_ON, TL_OVERLAP = 11, 12, 13, 14, 15
TILING_FIELDS = 16

OVERWRITES = ("none", "v", "k")
"""What a softmax may take the place of; `auto` stands for the first of these that fits L1."""

EXP_ON = ("vec", "mac")
"""The unit that computes exp; only `fusemax` can give it to the MAC array."""

OVERLAPS = ("none", "ping_pong", "pipelined")
"""How `flash` and `fusemax` overlap MAC and VEC work; `auto` stands for a dataflow's first legal choice."""

GRANULARITIES = ("M", "B", "H", "R")
"""What FLAT fuses at once: all batches (multi-batch), a batch with all its heads, heads with all rows, or rows."""

MAX_BUFFERS = 4


@dataclass(frozen=True)
class Tiling:
    """Tile sizes, residency and buffering of one schedule.

    Attributes
    ----------
    batch_tile, head_tile
        Batches and heads that form one group (MAS-Attention's B_b and H_h); a work item is a row block of a group.
    q_tile, kv_tile
        Rows of a row block, and columns of a K/V tile (MAS-Attention's N_Q and N_KV).
    k_resident_tiles, v_resident_tiles
        How many of the K (V) tiles of a group stay in L1 over its row blocks, the first ones; the others are loaded
        again for every row block. Zero streams the tensor; `kv_tiles(workload)` keeps it whole.
    q_buffers, k_buffers, v_buffers, o_buffers
        Buffers of each tensor: 1, or 2 for double buffering (a resident set is then kept twice, so that the next
        group's can be loaded while this one's is in use).
    score_buffers
        Row blocks of C and P in L1 (`mas`: a ring of two or three; `layer_wise`: tiles and row blocks in flight).
    core_split
        `groups`: each core takes whole groups; `items`: the row blocks of all groups are dealt out evenly.
    softmax_in_place
        True: P takes C's bytes. False: P is written to a row block of its own, one more than `score_buffers`, and C's
        place is free once softmax has read it.
    overwrite
        `mas` only: where that one more row block comes from. `none`: it has bytes of its own. `v`, `k`: softmax
        writes P over the last tiles of V (K), which are then loaded again into the place that C leaves. `auto`:
        the first of `none`, `v` and `k` that fits L1.
    exp_on
        `fusemax` only: `vec`, or `mac` for exp, local maximum and local sum on the MAC array, where the arch can.
    overlap
        `flash`: `none` (in sequence), or `ping_pong` (two row blocks in turn: one's products while the other's softmax
        runs). `fusemax`: `pipelined` (over kv tiles), or `none` (each kv tile ends before the next begins). `auto`: a
        dataflow's first choice. All others have one way only.
    """

    batch_tile: int = 1
    head_tile: int = 1
    q_tile: int = 128
    kv_tile: int = 128
    k_resident_tiles: int = 0
    v_resident_tiles: int = 0
    q_buffers: int = 2
    k_buffers: int = 2
    v_buffers: int = 2
    score_buffers: int = 2
    o_buffers: int = 2
    core_split: str = "groups"
    softmax_in_place: bool = True
    overwrite: str = "none"
    exp_on: str = "vec"
    overlap: str = "auto"

    def kv_tiles(self, workload: Workload) -> int:
        """Number of kv tiles of a head, `ceil(N_kv / kv_tile)`."""
        return -(-workload.n_kv // self.kv_tile)

    def row_blocks(self, workload: Workload) -> int:
        """Number of row blocks of a head, `ceil(N_q / q_tile)`."""
        return -(-workload.n_q // self.q_tile)

    def groups(self, workload: Workload) -> int:
        """Number of groups, `ceil(B / batch_tile) * ceil(H / head_tile)`."""
        return -(-workload.batch // self.batch_tile) * -(-workload.heads // self.head_tile)

    def granularity(self, workload: Workload) -> str:
        """FLAT's name for what is fused at once: `M`, `B`, `H` or `R` (Kao et al., ASPLOS 2023, section 4)."""
        if self.q_tile < workload.n_q:
            return "R"
        if self.head_tile < workload.heads:
            return "H"
        return "B" if self.batch_tile < workload.batch else "M"

    def clipped(self, workload: Workload) -> "Tiling":
        """Return the same tiling with every size cut to its dimension, so that equal schedules have equal tilings."""
        kv_tile = min(self.kv_tile, workload.n_kv)
        tiles = -(-workload.n_kv // kv_tile)
        return replace(
            self,
            batch_tile=min(self.batch_tile, workload.batch),
            head_tile=min(self.head_tile, workload.heads),
            q_tile=min(self.q_tile, workload.n_q),
            kv_tile=kv_tile,
            k_resident_tiles=min(self.k_resident_tiles, tiles),
            v_resident_tiles=min(self.v_resident_tiles, tiles),
        )

    def check(self) -> None:
        """Refuse values that no workload allows.

        Raises
        ------
        TilingError
            Naming every faulty field, its rule and its value.
        """
        faults = []
        for spec in fields(self):
            value = getattr(self, spec.name)
            if spec.name in _WORDS:
                legal = _WORDS[spec.name]
                if value not in legal:
                    near = nearest(str(value), legal)
                    hint = f"; did you mean {near!r}?" if near else ""
                    faults.append(f"{spec.name} must be one of {', '.join(legal)} (got {value!r}{hint})")
                continue
            if spec.name == "softmax_in_place":
                if not isinstance(value, bool):
                    faults.append(f"softmax_in_place must be true or false (got {value!r})")
                continue
            low = 0 if spec.name.endswith("resident_tiles") else 1
            high = MAX_BUFFERS if spec.name.endswith("buffers") else 2**24
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                faults.append(f"{spec.name} must be a whole number in {low}..{high} (got {value!r})")
        if faults:
            raise TilingError("; ".join(faults))

    def pack(self) -> npt.NDArray[np.int64]:
        """Return the tiling as an int64[TILING_FIELDS] vector, the form compiled code takes; `auto` must be settled."""
        values = [getattr(self, name) for name in _SIZES]
        words = [CORE_SPLITS.index(self.core_split), int(self.softmax_in_place), OVERWRITES.index(self.overwrite)]
        words += [EXP_ON.index(self.exp_on), OVERLAPS.index(self.overlap)]
        return np.array([*values, *words], dtype=np.int64)

    @staticmethod
    def unpack(vector: npt.NDArray[np.int64]) -> "Tiling":
        """Return the tiling of a packed vector; the inverse of `pack`."""
        sizes: dict[str, Any] = {name: int(v) for name, v in zip(_SIZES, vector[:TL_SPLIT], strict=True)}
        return Tiling(
            **sizes,
            core_split=CORE_SPLITS[int(vector[TL_SPLIT])],
            softmax_in_place=bool(vector[TL_IN_PLACE]),
            overwrite=OVERWRITES[int(vector[TL_OVERWRITE])],
            exp_on=EXP_ON[int(vector[TL_EXP_ON])],
            overlap=OVERLAPS[int(vector[TL_OVERLAP])],
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the fields by name, for results."""
        return asdict(self)


_WORDS = {
    "core_split": CORE_SPLITS,
    "overwrite": (*OVERWRITES, "auto"),
    "exp_on": EXP_ON,
    "overlap": (*OVERLAPS, "auto"),
}
_SIZES = tuple(spec.name for spec in fields(Tiling) if spec.name not in _WORDS and spec.name != "softmax_in_place")
