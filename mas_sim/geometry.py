"""Sizes of a schedule's tiles, and what each version of its data is called: what all readers of data agree on.

Data has *versions*: Q, K and V have one per tile; the scores of one kv tile have one per softmax pass that went over
them; an output row block has one per product added to it.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mas_sim.schedule import (
    F_DST,
    F_OP,
    F_TILE,
    OP_LOAD_K,
    OP_LOAD_V,
    SLOT_TENSOR,
    T_K,
    T_O,
    T_S,
    T_STATS,
    T_V,
    TENSOR_NAMES,
    CodeArray,
    IntArray,
    Schedule,
)

TENSORS = len(TENSOR_NAMES)
_ONLY_REDUCES = {"max", "sum"}


@dataclass(frozen=True)
class Geometry:
    """Sizes of a schedule's tiles, and where they lie in the slots that hold several of them.

    A *pair* is a row block and a place in its list of kv tiles. A row block's scores lie pair by pair: all rows of the
    first kv tile, then all rows of the second, each as high as a full row block of a full group. The *window* is the
    last tiles of K or V under proactive overwrite: they lie in a row block's slot, tile behind tile.

    Attributes
    ----------
    groups, rows, pairs, tiles, passes
        Groups of heads, row blocks, pairs, kv tiles, softmax passes.
    first_write
        First softmax pass that changes the scores; those before it only reduce them.
    row_height : int64[rows]
        Rows of each row block.
    tile_width : int64[tiles]
        Columns of each kv tile.
    row_first, row_pairs : int64[rows]
        First pair of each row block, and how many it has.
    pair_width, pair_before : int64[pairs]
        Columns of each pair, and columns in front of it in its row block.
    key_of : int64[groups]
        Equal for groups that use the very same K and V.
    column_elements
        Elements of one column of scores of a full row block of a full group.
    k_window, v_window
        First kv tile of the window of K, and of V; `tiles` if none is loaded.
    """

    groups: int
    rows: int
    pairs: int
    tiles: int
    passes: int
    first_write: int
    row_height: IntArray
    tile_width: IntArray
    row_first: IntArray
    row_pairs: IntArray
    pair_width: IntArray
    pair_before: IntArray
    key_of: IntArray
    column_elements: int
    k_window: int
    v_window: int

    @property
    def stages(self) -> int:
        """Versions of one piece of data at most."""
        return max(self.passes, int(self.row_pairs.max())) + 2

    def window_of(self, tensor: int) -> int:
        """First kv tile of the window of `T_K` or `T_V`."""
        return self.k_window if tensor == T_K else self.v_window


def make_geometry(schedule: Schedule) -> Geometry:
    """Measure the tiles of a schedule."""
    grid, tiling, workload = schedule.grid, schedule.tiling, schedule.workload
    rows, tiles = len(grid.row_ptr) - 1, tiling.kv_tiles(workload)
    tile_width = np.minimum(tiling.kv_tile, workload.n_kv - np.arange(tiles) * tiling.kv_tile)
    pair_width = tile_width[grid.row_tiles]
    row_pairs = np.diff(grid.row_ptr)
    ahead = np.concatenate([[0], np.cumsum(pair_width)])
    passes = schedule.arch.vec.softmax_passes
    writes = [not _ONLY_REDUCES.issuperset(steps) for steps in passes]
    lines = min(tiling.batch_tile, workload.batch) * min(tiling.head_tile, workload.heads)
    return Geometry(
        groups=len(grid.group_class),
        rows=rows,
        pairs=len(grid.row_tiles),
        tiles=tiles,
        passes=len(passes),
        first_write=writes.index(True) if True in writes else len(passes) - 1,
        row_height=np.minimum(tiling.q_tile, workload.n_q - np.arange(rows) * tiling.q_tile),
        tile_width=tile_width,
        row_first=grid.row_ptr[:-1],
        row_pairs=row_pairs,
        pair_width=pair_width,
        pair_before=ahead[:-1] - np.repeat(ahead[grid.row_ptr[:-1]], row_pairs),
        key_of=np.unique(grid.group_key, return_inverse=True)[1].astype(np.int64),
        column_elements=lines * min(tiling.q_tile, workload.n_q),
        k_window=_window_start(schedule, OP_LOAD_K, tiles),
        v_window=_window_start(schedule, OP_LOAD_V, tiles),
    )


def in_row_block(schedule: Schedule, slot: IntArray | CodeArray) -> npt.NDArray[np.bool_]:
    """Whether slots are places for row blocks, where K and V have their window; not if they are none (-1)."""
    is_row_block: npt.NDArray[np.bool_] = schedule.slots[:, SLOT_TENSOR] == T_S
    found: npt.NDArray[np.bool_] = is_row_block[slot % len(is_row_block)] & (slot >= 0)
    return found


def _window_start(schedule: Schedule, op: int, tiles: int) -> int:
    """Return the first tile that the loads `op` bring to a row block's slot; most have it, should they disagree."""
    code = schedule.instructions
    first = code[(code[:, F_OP] == op) & in_row_block(schedule, code[:, F_DST]), F_TILE]
    first = first[(first >= 0) & (first < tiles)]
    return int(np.bincount(first).argmax()) if first.size else tiles


def tensor_of(version: int) -> int:
    """Tensor (`T_*`) that a version is of."""
    return version % TENSORS


def describe_version(version: int, schedule: Schedule, geometry: Geometry) -> str:
    """Say in words what a version is: `C/P(group 0, row 1, step 2) after 3 softmax passes`."""
    rest, tensor = divmod(version, TENSORS)
    piece, stage = divmod(rest, geometry.stages)
    if tensor in (T_K, T_V):
        key, tile = divmod(piece, geometry.tiles)
        return f"{TENSOR_NAMES[tensor]}(group {int(np.argmax(geometry.key_of == key))}, tile {tile})"
    if tensor == T_S:
        group, pair = divmod(piece, geometry.pairs)
        row = int(np.searchsorted(geometry.row_first, pair, side="right")) - 1
        place = f"group {group}, row {row}, step {pair - geometry.row_first[row]}"
        return f"C/P({place}) after {stage} of {geometry.passes} softmax passes"
    group, row = divmod(piece, geometry.rows)
    progress = {T_O: f" after {stage} products", T_STATS: f" after {stage} softmax passes"}
    return f"{TENSOR_NAMES[tensor]}(group {group}, row {row}){progress.get(tensor, '')}"
