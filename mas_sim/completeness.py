"""Does a schedule do all the work of attention, and each part once? It counts instructions, whenever they run.

That each of them finds the data it needs is for `hazards` to say.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from mas_sim.access_rules import FLAGGED_OPS, STEP_OPS
from mas_sim.geometry import Flags, Geometry, pass_of
from mas_sim.schedule import (
    F_FLAGS,
    F_GROUP,
    F_OP,
    F_ROW,
    F_STEP,
    F_TILE,
    FLAG_FIRST,
    FLAG_LAST,
    OP_ADD,
    OP_EXP,
    OP_MASK,
    OP_NAMES,
    OP_NORMALIZE,
    OP_ONLINE,
    OP_PV,
    OP_QK,
    OP_RESCALE,
    OP_STORE_O,
    OP_TILE_SOFTMAX,
    IntArray,
    Schedule,
)


class FaultList(Protocol):
    """Where faults go."""

    def add(self, found: IntArray, describe: Callable[[int], str]) -> None:
        """Add one fault for each entry of `found`; `describe` puts it into words."""


def check_completeness(schedule: Schedule, geometry: Geometry, faults: FaultList) -> None:
    """Look for work that is missing, done twice or mislabelled; instructions must have passed `malformed`."""
    code = schedule.instructions.astype(np.int64)
    pair = np.where(np.isin(code[:, F_OP], STEP_OPS), geometry.row_first[code[:, F_ROW]] + code[:, F_STEP], 0)
    _check_lists(schedule, geometry, faults)
    _check_rows(code, geometry, faults)
    _check_pairs(schedule, code, pair, geometry, faults)
    _check_masks(schedule, code, pair, geometry, faults)
    _check_passes(schedule, code, pair, geometry, faults)
    _check_labels(schedule, pair, geometry, faults)


def _check_lists(schedule: Schedule, geometry: Geometry, faults: FaultList) -> None:
    """Look for row blocks whose list of kv tiles is not that of the tiles which hold any score that the mask keeps."""
    first, last = geometry.row_span.T
    running = np.arange(geometry.pairs) - np.repeat(geometry.row_first, geometry.row_pairs)
    wrong = geometry.row_pairs != last - first
    wrong[geometry.pair_row[schedule.grid.row_tiles != first[geometry.pair_row] + running]] = True
    faults.add(
        np.flatnonzero(wrong),
        lambda row: f"wrong list: row {row} must visit kv tiles {first[row]} to {last[row] - 1}, those that it keeps",
    )


def _check_rows(code: IntArray, geometry: Geometry, faults: FaultList) -> None:
    """Look for outputs that are not stored once, or, if softmax is online, not normalised once."""
    item = code[:, F_GROUP] * geometry.rows + code[:, F_ROW]
    for op, done in ((OP_STORE_O, "stored"), (OP_NORMALIZE, "normalized")):
        if op == OP_NORMALIZE and not geometry.online:
            continue
        count = np.bincount(item[code[:, F_OP] == op], minlength=geometry.groups * geometry.rows)

        def describe(at: int, done: str = done, count: IntArray = count) -> str:
            group, row = divmod(at, geometry.rows)
            return f"{done} {count[at]} times: the output of group {group}, row {row} must be {done} exactly once"

        faults.add(np.flatnonzero(count != 1), describe)


def _check_pairs(schedule: Schedule, code: IntArray, pair: IntArray, geometry: Geometry, faults: FaultList) -> None:
    """Look for kv tiles that a row block's products or vector work leave out, or that it corrects or adds twice."""
    first = np.zeros(geometry.pairs, np.bool_)
    first[geometry.row_first] = True
    once: list[tuple[int, Flags]] = [(OP_QK, np.ones_like(first)), (OP_PV, np.ones_like(first))]
    if geometry.online:
        # Before its first product an output is corrected nowhere, or everywhere (which makes it zero).
        corrects_first = (code[code[:, F_OP] == OP_RESCALE, F_STEP] == 0).any()
        once.append((OP_RESCALE, ~first | corrects_first))
    if geometry.adds:
        once.append((OP_ADD, np.ones_like(first)))
    if geometry.exp_on_mac:
        once.append((OP_EXP, np.ones_like(first)))
    for op, needed in once:
        chosen = code[:, F_OP] == op
        size = geometry.groups * geometry.pairs
        done = np.bincount((code[:, F_GROUP] * geometry.pairs + pair)[chosen], minlength=size)
        needs = np.tile(needed, geometry.groups)

        def lacks(at: int, op: int = op) -> str:
            where, tile = _place(at, schedule, geometry)
            return f"incomplete: {where} lacks {OP_NAMES[op]} with kv tile {tile}"

        def repeats(at: int, op: int = op, done: IntArray = done) -> str:
            where, tile = _place(at, schedule, geometry)
            return f"repeated: {where} has {done[at]} times {OP_NAMES[op]} with kv tile {tile}, not once"

        faults.add(np.flatnonzero(needs & (done == 0)), lacks)
        faults.add(np.flatnonzero(done > 1), repeats)


def _place(at: int, schedule: Schedule, geometry: Geometry) -> tuple[str, int]:
    """Return the row block of a pair of all groups in words, and its kv tile."""
    group, pair = divmod(at, geometry.pairs)
    return f"group {group}, row {geometry.pair_row[pair]}", int(schedule.grid.row_tiles[pair])


def _check_masks(schedule: Schedule, code: IntArray, pair: IntArray, geometry: Geometry, faults: FaultList) -> None:
    """Look for kv tiles that are kept in part but not masked once, and for tiles kept whole that are masked."""
    masks = code[:, F_OP] == OP_MASK
    size = geometry.groups * geometry.pairs
    done = np.bincount((code[:, F_GROUP] * geometry.pairs + pair)[masks], minlength=size)
    needs = np.tile(geometry.pair_partial, geometry.groups)

    def missing(at: int) -> str:
        where, tile = _place(at, schedule, geometry)
        return f"mask missing: {where} keeps kv tile {tile} in part, but never masks it"

    def repeated(at: int) -> str:
        where, tile = _place(at, schedule, geometry)
        return f"mask repeated: {where} masks kv tile {tile} {done[at]} times, needed {int(needs[at])} times"

    faults.add(np.flatnonzero(needs & (done == 0)), missing)
    faults.add(np.flatnonzero(done > needs), repeated)


def _check_passes(schedule: Schedule, code: IntArray, pair: IntArray, geometry: Geometry, faults: FaultList) -> None:
    """Look for softmax passes over one kv tile that are missing or done twice."""
    if geometry.softmax_op not in (OP_TILE_SOFTMAX, OP_ONLINE):
        return
    chosen = code[:, F_OP] == geometry.softmax_op
    number = (code[:, F_GROUP] * geometry.pairs + pair) * geometry.passes + pass_of(schedule.instructions)
    done = np.bincount(number[chosen], minlength=geometry.groups * geometry.pairs * geometry.passes)

    def describe(at: int) -> str:
        where, tile = _place(at // geometry.passes, schedule, geometry)
        what = f"{OP_NAMES[geometry.softmax_op]} pass {at % geometry.passes} over kv tile {tile}"
        return f"repeated: {where} has {done[at]} times {what}" if done[at] else f"incomplete: {where} lacks {what}"

    faults.add(np.flatnonzero(done != 1), describe)


def _check_labels(schedule: Schedule, pair: IntArray, geometry: Geometry, faults: FaultList) -> None:
    """Look for instructions whose tile or flags disagree with their step; `pair` is where that lies in all lists."""
    code = schedule.instructions
    ops, step, flags = code[:, F_OP], code[:, F_STEP], code[:, F_FLAGS] & (FLAG_FIRST | FLAG_LAST)
    tiles = schedule.grid.row_tiles
    faults.add(
        np.flatnonzero(np.isin(ops, STEP_OPS) & (code[:, F_TILE] != tiles[pair])),
        lambda i: f"wrong tile: step {step[i]} of the row block of {schedule.describe(i)} is kv tile {tiles[pair[i]]}",
    )
    last = geometry.row_pairs[code[:, F_ROW]] - 1
    expected = np.where(step == 0, FLAG_FIRST, 0) + np.where(step == last, FLAG_LAST, 0)
    faults.add(
        np.flatnonzero(np.isin(ops, FLAGGED_OPS) & (flags != expected)),
        lambda i: (
            f"wrong flags: step {step[i]} of {last[i] + 1} of {schedule.describe(i)} has flags {flags[i]}, "
            f"not {expected[i]}"
        ),
    )
