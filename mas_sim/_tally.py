"""What each core has to do under a tiling: its row blocks by shape, and how often it loads which tiles of K and V.

Everything is counted in closed form, for groups of heads that a core has whole, and row block by row block only where
it has them in part.
"""

from mas_sim._jit import leaf
from mas_sim.costs import P_NKV, ceil_div
from mas_sim.dataflows._numbers import in_pairs, pairs_across
from mas_sim.schedule import Grid, IntArray
from mas_sim.tiling import TL_K_RESIDENT, TL_KV, TL_OVERWRITE

# Columns of the tally, one row a class of groups. Loads of full and ragged tiles of K, then of V; loads of the window;
# then, from N_ROWS on, row blocks of each row class, and behind those the ones of them that `ping_pong` does alone.
N_LOADS, N_WINDOW, N_ROWS = 0, 4, 5


@leaf
def tally_width(grid: Grid) -> int:
    """Columns of the tally."""
    return int(N_ROWS + 2 * grid.row_shapes.shape[0])


@leaf
def _add_tiles(row: IntArray, at: int, first: int, last: int, tiles: int, ragged: int, times: int) -> None:
    """Add loads of tiles `[first, last)` to a row of the tally, full and ragged ones apart."""
    if last <= first:
        return
    tail = 1 if ragged and last == tiles else 0
    row[at] += times * (last - first - tail)
    row[at + 1] += times * tail


@leaf
def _add_streamed(
    row: IntArray,
    at: int,
    grid: Grid,
    begin: int,
    end: int,
    resident: int,
    step: int,
    lead: int,
    tiles: int,
    ragged: int,
) -> None:
    """Add the loads of tiles that are not resident, for row blocks `[begin, end)` of a group.

    They go `step` at a time, and share what they load; the first `lead` of them (0 or 1) by itself.
    """
    # Ranges move forward from row block to row block: if the last one visits all tiles from the first on, all do.
    if grid.row_span[0, 1] == tiles and grid.row_span[grid.row_class.shape[0] - 1, 0] == 0:
        _add_tiles(row, at, resident, tiles, tiles, ragged, lead + ceil_div(end - begin - lead, step))
        return
    i = begin
    while i < end:
        many = 1 if i < begin + lead else step
        last = grid.row_span[min(i + many, end) - 1, 1]
        _add_tiles(row, at, max(resident, grid.row_span[i, 0]), last, tiles, ragged, 1)
        i += many


@leaf
def _add_rows(row: IntArray, grid: Grid, begin: int, end: int, alone: bool) -> None:
    """Add row blocks `[begin, end)` of a group by class; of pairs, the last one may be alone."""
    for i in range(begin, end):
        row[N_ROWS + grid.row_class[i]] += 1
    if alone:
        row[N_ROWS + grid.row_shapes.shape[0] + grid.row_class[end - 1]] += 1


@leaf
def _add_streams(
    row: IntArray, p: IntArray, t: IntArray, grid: Grid, begin: int, end: int, window: int, step: int, lead: int
) -> None:
    """Add the loads of K and of V that are not resident, for row blocks `[begin, end)` of a group."""
    tiles, ragged = ceil_div(p[P_NKV], t[TL_KV]), 1 if p[P_NKV] % t[TL_KV] else 0
    for is_v in range(2):
        if window == 0 or t[TL_OVERWRITE] != (1 if is_v else 2):
            _add_streamed(row, N_LOADS + 2 * is_v, grid, begin, end, t[TL_K_RESIDENT + is_v], step, lead, tiles, ragged)


@leaf
def _add_resident(
    row: IntArray, p: IntArray, t: IntArray, window: int, low: int, high: int, seen_first: int, seen_last: int
) -> None:
    """Add the loads of resident tiles of K and of V in `[low, high)`, but for those already seen."""
    tiles, ragged = ceil_div(p[P_NKV], t[TL_KV]), 1 if p[P_NKV] % t[TL_KV] else 0
    for is_v in range(2):
        resident, at = t[TL_K_RESIDENT + is_v], N_LOADS + 2 * is_v
        if window and t[TL_OVERWRITE] == (1 if is_v else 2):
            resident = tiles - window
        _add_tiles(row, at, low, min(high, resident, seen_first), tiles, ragged, 1)
        _add_tiles(row, at, max(low, seen_last), min(high, resident), tiles, ragged, 1)


@leaf
def tally_core(
    dataflow: int, p: IntArray, t: IntArray, grid: Grid, first: int, last: int, window: int, tally: IntArray
) -> int:
    """Count what a core with items `[first, last)` does; return the class of its last group.

    Fills `tally`, int64[classes + 2, tally_width]; the last two rows are scratch. A set of K and V that groups in a row
    share is loaded once, as far as it is resident; of it, only tiles that any of the core's row blocks visits. Under
    overwrite, the window is loaded for every row block, but (V) for the last one if that of the one before is still
    there.
    """
    rows, classes = grid.row_class.shape[0], grid.class_heads.shape[0]
    pairs = in_pairs(dataflow, t)
    across, step = pairs and pairs_across(t), 2 if pairs else 1
    tally[: classes + 2] = 0
    # What a whole group adds, counted when the first one comes: one whose first row block begins a pair, or ends one.
    counted = 0
    key, run, seen_first, seen_last, cls = -1, 0, 0, 0, 0
    for g in range(first // rows, (last - 1) // rows + 1):
        begin, end = max(first, g * rows) - g * rows, min(last, (g + 1) * rows) - g * rows
        cls = grid.group_class[g]
        row = tally[cls]
        lead = (g * rows + begin - first) % 2 if across else 0
        odd = pairs and (end - begin - lead) % 2 == 1
        alone = odd and (not across or g * rows + end == last)
        if end - begin < rows or (alone and across):
            _add_rows(row, grid, begin, end, alone)
            _add_streams(row, p, t, grid, begin, end, window, step, lead)
        else:
            whole = tally[classes + lead]
            if counted & (1 << lead) == 0:
                _add_rows(whole, grid, begin, end, alone)
                _add_streams(whole, p, t, grid, begin, end, window, step, lead)
                counted |= 1 << lead
            for column in range(whole.shape[0]):
                row[column] += whole[column]
        low, high = grid.row_span[begin, 0], grid.row_span[end - 1, 1]
        if grid.group_key[g] != key:
            key, run, seen_first, seen_last = grid.group_key[g], 0, high, high
        _add_resident(row, p, t, window, low, high, seen_first, seen_last)
        seen_first, seen_last = (low, high) if run == 0 else (min(low, seen_first), max(high, seen_last))
        run += end - begin
        if window:
            row[N_WINDOW] += end - begin
    if window and run > 1 and t[TL_OVERWRITE] == 1:
        tally[cls, N_WINDOW] -= 1
    return int(cls)
