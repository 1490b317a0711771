"""Sizes of a schedule's tiles, and what each version of its data is called: what all readers of data agree on.

Data has *versions*: Q, K and V have one per tile; the scores of one kv tile have one as they are computed, one with the
mask on them, and one per softmax pass that went over them; an output row block has one per product added to it, and
where softmax is online one per correction as well. Which form of softmax a schedule uses is read from its operations.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mas_sim.costs import FORM_ONLINE, FORM_ROWS, FORM_TILES, softmax_passes
from mas_sim.schedule import (
    F_DST,
    F_FLAGS,
    F_OP,
    F_TILE,
    FLAG_PASS,
    OP_ADD,
    OP_EXP,
    OP_LOAD_K,
    OP_LOAD_V,
    OP_ONLINE,
    OP_SOFTMAX,
    OP_TILE_SOFTMAX,
    SLOT_TENSOR,
    T_K,
    T_O,
    T_PART,
    T_S,
    T_STATS,
    T_V,
    TENSOR_NAMES,
    CodeArray,
    IntArray,
    Schedule,
)

Flags = npt.NDArray[np.bool_]

TENSORS = len(TENSOR_NAMES)
ONLY_REDUCES = frozenset({"max", "sum", "reciprocal"})
"""Steps of softmax that leave the scores as they are."""

RAW, MASKED = 0, 1
"""Stages of scores before softmax. Those of a kv tile that the mask keeps whole are never masked."""

FORMS = {OP_SOFTMAX: FORM_ROWS, OP_TILE_SOFTMAX: FORM_TILES, OP_ONLINE: FORM_ONLINE}
"""The form of softmax (`costs.FORM_*`) that each operation does a pass of."""


@dataclass(frozen=True)
class Geometry:
    """Sizes of a schedule's tiles, and where they lie in the slots that hold several of them.

    A *pair* is a row block and a place in its list of kv tiles. A row block's scores lie pair by pair: all rows of the
    first kv tile, then all rows of the second, each as high as a full row block of a full group. The *window* is the
    last tiles of K or V under proactive overwrite: they lie in a row block's slot, tile behind tile.

    Attributes
    ----------
    groups, rows, pairs, tiles
        Groups of heads, row blocks, pairs, kv tiles.
    steps : tuple of tuple of str
        The steps of each softmax pass.
    softmax_op
        The operation that does them: `OP_SOFTMAX`, `OP_TILE_SOFTMAX` or `OP_ONLINE`.
    exp_on_mac, adds
        Whether exp runs on the MAC array; whether products are partial outputs that the vector unit adds up.
    first_write
        First softmax pass that changes the scores (`passes` if none does); those before it only reduce them.
    phase_first, phase_last : int64[passes]
        The passes `[first, last)` that run over one kv tile before the next kv tile's turn.
    row_height : int64[rows]
        Rows of each row block.
    tile_width : int64[tiles]
        Columns of each kv tile.
    row_first, row_pairs : int64[rows]
        First pair of each row block, and how many it has.
    pair_row, pair_width, pair_before : int64[pairs]
        Row block and columns of each pair, and columns in front of it in its row block.
    pair_partial : bool[pairs]
        Whether the mask leaves out any score of the pair.
    row_span : int64[rows, 2]
        Kv tiles `[first, last)` that hold any score of the row block that the mask keeps.
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
    steps: tuple[tuple[str, ...], ...]
    softmax_op: int
    exp_on_mac: bool
    adds: bool
    first_write: int
    phase_first: IntArray
    phase_last: IntArray
    row_height: IntArray
    tile_width: IntArray
    row_first: IntArray
    row_pairs: IntArray
    pair_row: IntArray
    pair_width: IntArray
    pair_before: IntArray
    pair_partial: Flags
    row_span: IntArray
    key_of: IntArray
    column_elements: int
    k_window: int
    v_window: int

    @property
    def passes(self) -> int:
        """Softmax passes."""
        return len(self.steps)

    @property
    def online(self) -> bool:
        """Whether softmax is online, so that an unfinished output is corrected as the rows' maxima grow."""
        return self.softmax_op == OP_ONLINE

    @property
    def stages(self) -> int:
        """Versions of one piece of data at most: stats have one per pass and kv tile, an output two per kv tile."""
        return int(self.row_pairs.max()) * max(self.passes, 2) + 3

    def window_of(self, tensor: int) -> int:
        """First kv tile of the window of `T_K` or `T_V`."""
        return self.k_window if tensor == T_K else self.v_window

    def output_columns(self, head_dim_v: int) -> int:
        """Columns of an unfinished output: one more, for the row's sum, where the MAC array adds that up."""
        return head_dim_v + int(self.exp_on_mac)


def make_geometry(schedule: Schedule) -> Geometry:
    """Measure the tiles of a schedule."""
    grid, tiling, workload = schedule.grid, schedule.tiling, schedule.workload
    ops = schedule.instructions[:, F_OP]
    rows, tiles = len(grid.row_ptr) - 1, tiling.kv_tiles(workload)
    tile_width = np.minimum(tiling.kv_tile, workload.n_kv - np.arange(tiles) * tiling.kv_tile)
    pair_width = tile_width[grid.row_tiles]
    row_pairs = np.diff(grid.row_ptr)
    row_height = np.minimum(tiling.q_tile, workload.n_q - np.arange(rows) * tiling.q_tile)
    pair_row = np.repeat(np.arange(rows), row_pairs)
    ahead = np.concatenate([[0], np.cumsum(pair_width)])
    softmax_op = max(FORMS, key=lambda op: np.count_nonzero(ops == op))
    exp_on_mac = bool((ops == OP_EXP).any())
    # With exp on the MAC array the vector unit only updates the rows' maxima.
    steps = (("max",),) if exp_on_mac else softmax_passes(schedule.arch, FORMS[softmax_op])
    phase_first, phase_last = _phases(steps, softmax_op)
    kept_by_any, kept_by_all = _kept_keys(schedule, row_height)
    pair_first = grid.row_tiles * tiling.kv_tile
    whole = (kept_by_all[pair_row, 0] <= pair_first) & (pair_first + pair_width <= kept_by_all[pair_row, 1])
    lines = min(tiling.batch_tile, workload.batch) * min(tiling.head_tile, workload.heads)
    return Geometry(
        groups=len(grid.group_class),
        rows=rows,
        pairs=len(grid.row_tiles),
        tiles=tiles,
        steps=steps,
        softmax_op=softmax_op,
        exp_on_mac=exp_on_mac,
        adds=bool((ops == OP_ADD).any()),
        first_write=next((at for at, names in enumerate(steps) if not ONLY_REDUCES.issuperset(names)), len(steps)),
        phase_first=phase_first,
        phase_last=phase_last,
        row_height=row_height,
        tile_width=tile_width,
        row_first=grid.row_ptr[:-1],
        row_pairs=row_pairs,
        pair_row=pair_row,
        pair_width=pair_width,
        pair_before=ahead[:-1] - np.repeat(ahead[grid.row_ptr[:-1]], row_pairs),
        pair_partial=~whole,
        row_span=np.stack([kept_by_any[:, 0] // tiling.kv_tile, -(-kept_by_any[:, 1] // tiling.kv_tile)], axis=1),
        key_of=np.unique(grid.group_key, return_inverse=True)[1].astype(np.int64),
        column_elements=lines * min(tiling.q_tile, workload.n_q),
        k_window=_window_start(schedule, OP_LOAD_K, tiles),
        v_window=_window_start(schedule, OP_LOAD_V, tiles),
    )


def _kept_keys(schedule: Schedule, row_height: IntArray) -> tuple[IntArray, IntArray]:
    """Keys `[first, last)` that any row of each row block keeps, and those that all its rows keep; int64[rows, 2] each.

    A row stands at position `row + N_kv - N_q` and keeps the keys of its band (`Workload.band`). From row to row that
    range moves on by one key, so the first and the last row of a block tell.
    """
    workload = schedule.workload
    back, ahead = workload.band
    top = np.arange(len(row_height)) * schedule.tiling.q_tile + workload.n_kv - workload.n_q
    bottom = top + row_height - 1

    def keys(first: IntArray, last: IntArray) -> IntArray:
        return np.stack([np.maximum(0, first), np.minimum(workload.n_kv, last + 1)], axis=1)

    return keys(top - back, bottom + ahead), keys(bottom - back, top + ahead)


def _phases(steps: tuple[tuple[str, ...], ...], softmax_op: int) -> tuple[IntArray, IntArray]:
    """Passes `[first, last)` that go over a kv tile together with each pass; int64[passes] each.

    Over kv tiles, passes end with the step that needs the whole row: those up to `max`, up to `sum`, and the rest.
    """
    first, last = np.zeros(len(steps), np.int64), np.full(len(steps), len(steps), np.int64)
    if softmax_op == OP_TILE_SOFTMAX:
        for at, names in enumerate(steps[:-1]):
            if not {"max", "sum"}.isdisjoint(names):
                last[first[at] : at + 1] = at + 1
                first[at + 1 :] = at + 1
    return first, last


def pass_of(code: CodeArray) -> IntArray:
    """Softmax pass that each instruction does, of those that do any; int64[n]."""
    of_row = code[:, F_OP] == OP_SOFTMAX
    return np.where(of_row, code[:, F_TILE], code[:, F_FLAGS] // FLAG_PASS).astype(np.int64)


def in_row_block(schedule: Schedule, slot: IntArray | CodeArray) -> Flags:
    """Whether slots are places for row blocks, where K and V have their window; not if they are none (-1)."""
    is_row_block: Flags = schedule.slots[:, SLOT_TENSOR] == T_S
    found: Flags = is_row_block[slot % len(is_row_block)] & (slot >= 0)
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
    """Say in words what a version is: `C/P(group 0, row 1, step 2) after 3 of 5 softmax passes`."""
    rest, tensor = divmod(version, TENSORS)
    piece, stage = divmod(rest, geometry.stages)
    if tensor in (T_K, T_V):
        key, tile = divmod(piece, geometry.tiles)
        return f"{TENSOR_NAMES[tensor]}(group {int(np.argmax(geometry.key_of == key))}, tile {tile})"
    if tensor in (T_S, T_PART):
        group, pair = divmod(piece, geometry.pairs)
        row = int(geometry.pair_row[pair])
        place = f"{TENSOR_NAMES[tensor]}(group {group}, row {row}, step {pair - geometry.row_first[row]})"
        return place if tensor == T_PART else f"{place} {_progress_of_scores(stage, geometry)}"
    group, row = divmod(piece, geometry.rows)
    progress = ""
    if tensor == T_STATS:
        progress = f" after {stage} softmax passes"
    elif tensor == T_O:
        progress = f" {_progress_of_output(stage, int(geometry.row_pairs[row]), geometry)}"
    return f"{TENSOR_NAMES[tensor]}(group {group}, row {row}){progress}"


def _progress_of_scores(stage: int, geometry: Geometry) -> str:
    if stage <= MASKED:
        return "masked, before softmax" if stage == MASKED else "as computed"
    if geometry.exp_on_mac:
        return "after exp"
    return f"after {stage - MASKED} of {geometry.passes} softmax passes"


def _progress_of_output(stage: int, pairs: int, geometry: Geometry) -> str:
    if not geometry.online:
        return f"after {stage} products"
    if stage == 2 * pairs:
        return "normalised"
    return f"after {(stage + 1) // 2} products" + ("" if stage % 2 else ", corrected for the next")
