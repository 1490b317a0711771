"""What the slices of a trace say of themselves: the instruction, its tile, what it waited for, what it moved."""

from typing import Any

import numpy as np

from mas_sim.access_rules import TILE_OPS
from mas_sim.schedule import (
    C_DRAM_READ,
    C_L0_WRITE,
    F_GROUP,
    F_KIND,
    F_OP,
    F_OVER,
    F_ROW,
    LOAD,
    OP_LOAD_C,
    OP_LOAD_K,
    OP_LOAD_V,
    OP_NAMES,
    OP_SOFTMAX,
    OP_STORE_P,
    Schedule,
)
from mas_sim.timeline import CAUSE_NAMES, Timeline
from mas_sim.trace import Span, pass_number, tiles_of
from mas_sim.waits import waits

_BYTES = ("dram_read_bytes", "dram_write_bytes", "l1_read_bytes", "l1_write_bytes", "l0_read_bytes", "l0_write_bytes")

_WHOLE_ROW_OPS = (OP_SOFTMAX, OP_LOAD_C, OP_STORE_P)
"""Operations on the scores of a row block for all keys that the mask leaves it."""


class Facts:
    """The arguments of a run's slices."""

    def __init__(self, schedule: Schedule, timeline: Timeline) -> None:
        self._schedule, self._timeline = schedule, timeline
        self._has_data = len(schedule.slots) > 0  # a schedule written by hand for its timing works on nothing
        waited = waits(schedule, timeline)
        self._waits_begin = np.searchsorted(waited.row, np.arange(len(schedule) + 1)).tolist()
        self._waits = list(zip(waited.begin.tolist(), waited.end.tolist(), waited.cause.tolist(), strict=True))
        self._moved = schedule.costs[:, C_DRAM_READ : C_L0_WRITE + 1].tolist()

    def of(self, span: Span) -> dict[str, Any]:
        """Say what a span is: numbers as in the schedule, ranges of elements in words, first and last one."""
        code = self._schedule.instructions[span.row].tolist()
        args: dict[str, Any] = {
            "instruction": span.row,
            "op": OP_NAMES[code[F_OP]],
            "core": span.core,
            "group": code[F_GROUP],
            "row": code[F_ROW],
            "start_cycle": span.begin,
            "end_cycle": span.end,
            "cycles": span.end - span.begin,
        }
        number = pass_number(self._schedule, span.row)
        if number is not None:
            args["pass"] = number
        if code[F_OP] in TILE_OPS:
            first, last = tiles_of(self._schedule, span.row)
            args["tile"] = first
            if last > first:
                args["tiles"] = last - first + 1
        if self._has_data:
            args |= self._elements(code, span.row)
        args |= self._waited(span)
        if span.unit >= LOAD:
            args["arrival_cycle"] = int(self._timeline.end[span.row])
        if span.state in ("stopped", "redone"):
            args["lost_cycles"] = int(self._timeline.lost_cycles[span.row])
            args["overwritten_by"] = code[F_OVER]
        if span.state != "stopped":  # What a stopped run moved is a matter of its length: see `meter`.
            args |= dict(zip(_BYTES, self._moved[code[F_KIND]], strict=True))
        return args

    def _elements(self, code: list[int], row: int) -> dict[str, str]:
        """Say which batches, heads, rows of Q and rows of K an instruction works on."""
        schedule, grid, op = self._schedule, self._schedule.grid, code[F_OP]
        tiling, workload = schedule.tiling, schedule.workload
        group, block = code[F_GROUP], code[F_ROW]
        is_kv = op in (OP_LOAD_K, OP_LOAD_V)
        heads, count = grid.group_first_head, grid.group_heads
        if is_kv:
            heads, count = grid.group_first_kv_head, grid.group_kv_heads
        said = {"batches": _range(int(grid.group_first_batch[group]), int(grid.group_batches[group]))}
        said["kv_heads" if is_kv else "heads"] = _range(int(heads[group]), int(count[group]))
        if not is_kv:
            first = block * tiling.q_tile
            said["queries"] = _range(first, min(tiling.q_tile, workload.n_q - first))
        tiles = tiles_of(schedule, row) if op in TILE_OPS else None
        if op in _WHOLE_ROW_OPS:
            begin, end = grid.row_span[block].tolist()
            tiles = begin, end - 1
        if tiles is not None:
            first = tiles[0] * tiling.kv_tile
            said["keys"] = _range(first, min((tiles[1] + 1) * tiling.kv_tile, workload.n_kv) - first)
        return said

    def _waited(self, span: Span) -> dict[str, Any]:
        """Say for how long its unit stood still before a span, and by which causes."""
        found = self._waits[self._waits_begin[span.row] : self._waits_begin[span.row + 1]]
        if span.state == "redone":  # it waited before it was stopped, and behind that
            since = int(self._timeline.redo[span.row, 1])
            found = [wait for wait in found if wait[0] >= since]
        causes: dict[str, int] = {}
        for begin, end, cause in found:
            if end <= span.begin:
                causes[CAUSE_NAMES[cause]] = causes.get(CAUSE_NAMES[cause], 0) + end - begin
        return {"waited_cycles": sum(causes.values()), "waited_for": causes} if causes else {}


def _range(first: int, count: int) -> str:
    """Name a range of elements by its first and last one."""
    return f"{first}..{first + count - 1}" if count > 1 else str(first)
