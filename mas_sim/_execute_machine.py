"""The numbers of `execute`: the cores' L1, the DRAM, and where each instruction's operands lie in them.

Each core has an L1 of float32 numbers at the places of the schedule's slots, one number for each element's bytes, all
NaN at first. What the instructions do with them is in `_execute_products` and `_execute_softmax`.
"""

import math

import numpy as np
import numpy.typing as npt

from mas_sim.access_rules import TILE_OPS
from mas_sim.geometry import make_geometry
from mas_sim.overwrites import read_overwrites
from mas_sim.schedule import (
    F_DST,
    F_FLAGS,
    F_GROUP,
    F_OP,
    F_ROW,
    F_SRC0,
    F_SRC1,
    F_SRC2,
    F_STEP,
    F_TILE,
    FLAG_PASS,
    OP_SOFTMAX,
    SLOT_OFFSET,
    SLOT_TENSOR,
    T_K,
    T_S,
    T_V,
    Schedule,
)
from mas_sim.timeline import Timeline

Floats = npt.NDArray[np.float32]
Shape = tuple[int, ...]
Write = tuple[Floats, Floats]
"""A place, as a view of L1 or DRAM, and what comes to stand there."""

STATISTICS = 3
"""Numbers of each row beside its scores: the maximum, the sum, and one over the sum or, if online, the correction."""


class Work:
    """One instruction's fields, and the sizes of the work item that they name."""

    def __init__(self, fields: list[int], src1: int, machine: "Machine") -> None:
        grid, geometry = machine.grid, machine.geometry
        self.op, self.flags = fields[F_OP], fields[F_FLAGS]
        self.dst, self.src0, self.src1, self.src2 = fields[F_DST], fields[F_SRC0], src1, fields[F_SRC2]
        self.again: list[Work] = []  # earlier tiles of a product, which it does again
        self.group, self.row, self.tile, self.step = (fields[at] for at in (F_GROUP, F_ROW, F_TILE, F_STEP))
        self.number = self.tile if self.op == OP_SOFTMAX else self.flags // FLAG_PASS  # the pass of a softmax
        group = self.group
        first_batch, first_head = int(grid.group_first_batch[group]), int(grid.group_first_head[group])
        first_kv = int(grid.group_first_kv_head[group])
        self.batches = slice(first_batch, first_batch + int(grid.group_batches[group]))
        self.heads = slice(first_head, first_head + int(grid.group_heads[group]))
        self.kv_heads = slice(first_kv, first_kv + int(grid.group_kv_heads[group]))
        first_row = self.row * machine.tiling.q_tile
        self.height = int(geometry.row_height[self.row])
        self.rows = slice(first_row, first_row + self.height)
        self.lead: Shape = (self.batches.stop - self.batches.start, self.heads.stop - self.heads.start, self.height)
        self.kv_lead: Shape = (self.lead[0], self.kv_heads.stop - self.kv_heads.start)
        self.width = int(geometry.tile_width[self.tile]) if self.op in TILE_OPS else 0
        self.first_pair = int(geometry.row_first[self.row])
        self.pairs = int(geometry.row_pairs[self.row])


class Machine:
    """The cores' L1 and the DRAM, and the views that instructions have of them."""

    def __init__(self, schedule: Schedule, timeline: Timeline, q: Floats, k: Floats, v: Floats) -> None:
        workload = schedule.workload
        self.workload, self.grid, self.tiling = workload, schedule.grid, schedule.tiling
        self.geometry = make_geometry(schedule)
        self.q, self.k, self.v = q, k, v
        self.output = np.full((*q.shape[:3], workload.head_dim_v), np.nan, np.float32)
        self._dram: dict[tuple[int, int], Floats] = {}
        self._element_bytes = workload.bytes_per_element
        size = -(-schedule.core_l1_bytes // self._element_bytes)
        self._l1 = np.full((schedule.arch.cores, size), np.nan, np.float32)
        self._slots = schedule.slots.tolist()
        self._code = schedule.instructions.tolist()
        overwrites = read_overwrites(schedule, timeline)
        self._source = overwrites.source.tolist()
        self._redone: dict[int, list[int]] = {}
        for product, earlier in overwrites.redone.tolist():
            self._redone.setdefault(product, []).append(earlier)
        self._share = workload.heads // workload.kv_heads
        self.scale = np.float32(workload.head_dim_qk**-0.5)
        # Without a step that scales, the scale is taken to be in Q: the product applies it.
        self.scale_in_product = not any("scale" in steps for steps in self.geometry.steps)

    def work_of(self, index: int) -> Work:
        """Return an instruction as it runs.

        A product that was stopped is run once, when it runs again: what it did before is lost. It finds its earlier
        tiles in the places where they are behind the overwrite.
        """
        work = Work(self._code[index], self._source[index], self)
        for earlier in self._redone.get(index, ()):
            fields = self._code[earlier]
            work.again.append(Work(fields, fields[F_SRC1], self))
        return work

    def at(self, slot: int, shape: Shape, first_element: int = 0) -> Floats:
        """View the numbers of that shape in a slot; what would lie behind L1 is NaN, and lost when written."""
        core, local = divmod(slot, len(self._slots))
        first = self._slots[local][SLOT_OFFSET] // self._element_bytes + first_element
        size = math.prod(shape)
        flat = self._l1[core, first : first + size]
        return (flat if flat.size == size else np.full(size, np.nan, np.float32)).reshape(shape)

    def scores_at(self, slot: int, work: Work, step: int, width: int) -> Floats:
        """View the scores of one kv tile: a slot of their own, or their place in a slot of whole rows."""
        first = 0
        if self._slots[slot % len(self._slots)][SLOT_TENSOR] == T_S:
            first = int(self.geometry.pair_before[work.first_pair + step]) * self.geometry.column_elements
        return self.at(slot, (*work.lead, width), first)

    def tile_at(self, slot: int, work: Work) -> Floats:
        """View the scores of the instruction's own kv tile."""
        return self.scores_at(slot, work, work.step, work.width)

    def stats_at(self, slot: int, work: Work) -> Floats:
        """View a row block's statistics, float32[STATISTICS, batches, heads, rows]."""
        return self.at(slot, (STATISTICS, *work.lead))

    def sums_at(self, slot: int, work: Work) -> Floats:
        """View an unfinished or partial output; its last column is the rows' sums where the MAC array adds them up."""
        return self.at(slot, (*work.lead, self.geometry.output_columns(self.v.shape[3])))

    def dram_at(self, region: int, work: Work, step: int, width: int) -> Floats:
        """View the scores of one kv tile in DRAM; `region` tells C from P, by the operation that stores it."""
        pair = work.group * self.geometry.pairs + work.first_pair + step
        lines = math.prod(work.lead)
        if (region, pair) not in self._dram:
            self._dram[region, pair] = np.full(lines * self.tiling.kv_tile, np.nan, np.float32)
        return self._dram[region, pair][: lines * width].reshape(*work.lead, width)

    def steps(self, work: Work) -> list[tuple[int, int]]:
        """List the steps of a row block, and the width of the kv tile of each."""
        widths = self.geometry.pair_width[work.first_pair : work.first_pair + work.pairs]
        return list(enumerate(widths.tolist()))

    def k_at(self, work: Work) -> Floats:
        """View the K tile of a product, for each of its query heads: in its slot, or in the window."""
        return self._kv_at(work, T_K, self.k.shape[3])

    def v_at(self, work: Work) -> Floats:
        """View the V tile of a product, for each of its query heads: in its slot, or in the window."""
        return self._kv_at(work, T_V, self.v.shape[3])

    def _kv_at(self, work: Work, tensor: int, head_dim: int) -> Floats:
        behind = 0
        if self._slots[work.src1 % len(self._slots)][SLOT_TENSOR] == T_S:
            columns = (work.tile - self.geometry.window_of(tensor)) * self.tiling.kv_tile
            behind = columns * head_dim * math.prod(work.kv_lead)
        tile = self.at(work.src1, (*work.kv_lead, work.width, head_dim), behind)
        if self._share == 1:
            return tile
        return tile[:, np.arange(work.heads.start, work.heads.stop) // self._share - work.kv_heads.start]
