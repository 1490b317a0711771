"""Does a schedule compute attention? It runs the very instructions of a timeline on numbers, and compares.

Each core has an L1 of float32 numbers at the places of the schedule's slots, one number for each element's bytes, all
NaN at first. An instruction knows only its own fields: it takes what its slots hold when it starts, and leaves its
result when it ends; in between, what it writes is NaN. So a wrong tile, a buffer reused too early or a read of what has
not come yet gives a wrong number or NaN in the output. Precision is float32 throughout: rounding to the workload's type
is not modelled.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mas_sim.accesses import TILE_OPS, event_ranks, malformed
from mas_sim.errors import ScheduleError
from mas_sim.geometry import make_geometry
from mas_sim.overwrites import broken_timeline, read_overwrites
from mas_sim.schedule import (
    F_DST,
    F_FLAGS,
    F_GROUP,
    F_OP,
    F_ROW,
    F_SRC0,
    F_SRC1,
    F_STEP,
    F_TILE,
    FLAG_FIRST,
    OP_LOAD_C,
    OP_LOAD_K,
    OP_LOAD_P,
    OP_LOAD_Q,
    OP_LOAD_V,
    OP_PV,
    OP_QK,
    OP_SOFTMAX,
    OP_STORE_C,
    OP_STORE_O,
    OP_STORE_P,
    SLOT_OFFSET,
    SLOT_TENSOR,
    T_K,
    T_S,
    T_V,
    Schedule,
)
from mas_sim.timeline import Timeline
from mas_sim.workload import Workload

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Shape = tuple[int, ...]
Write = tuple[Floats, Floats]
"""A place, as a view of L1 or DRAM, and what comes to stand there."""


@dataclass(frozen=True)
class ExecutionResult:
    """What a schedule computed.

    Attributes
    ----------
    output : float32[B, H, N_q, F]
        As the schedule stored it; NaN where it stored nothing, or something that it should not have read.
    max_abs_error
        Largest distance to `attention_reference` over all elements; infinite if any of them is not a number.
    """

    output: Floats
    max_abs_error: float


def make_inputs(workload: Workload, seed: int = 0) -> tuple[Floats, Floats, Floats]:
    """Draw Q, K and V from the standard normal distribution.

    Returns
    -------
    (float32[B, H, N_q, E], float32[B, H_kv, N_kv, E], float32[B, H_kv, N_kv, F])
        The same for the same seed, on any machine.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    batch, kv_heads, n_kv = workload.batch, workload.kv_heads, workload.n_kv
    q = rng.standard_normal((batch, workload.heads, workload.n_q, workload.head_dim_qk), dtype=np.float32)
    k = rng.standard_normal((batch, kv_heads, n_kv, workload.head_dim_qk), dtype=np.float32)
    v = rng.standard_normal((batch, kv_heads, n_kv, workload.head_dim_v), dtype=np.float32)
    return q, k, v


REFERENCE_ROWS = 1024
"""Rows of a head that the reference computes at once."""

MAX_EXECUTED_SCORES = 1 << 29
"""Scores `B H N_q N_kv` up to which reports execute a schedule (half a minute; 4 GiB where C and P go through DRAM)."""


def attention_reference(q: Floats, k: Floats, v: Floats) -> Doubles:
    """Compute `softmax(Q K^T / sqrt(E)) V` in float64, head by head and by blocks of rows, so that memory stays small.

    Parameters
    ----------
    q : [B, H, N_q, E]
        Queries; head h uses the keys and values of head `h // (H / H_kv)`.
    k, v : [B, H_kv, N_kv, E], [B, H_kv, N_kv, F]
        Keys and values.

    Returns
    -------
    float64[B, H, N_q, F]
        The attention output.
    """
    batch, heads, n_q, head_dim = q.shape
    share = heads // k.shape[1]
    output = np.empty((batch, heads, n_q, v.shape[3]))
    for b in range(batch):
        for h in range(heads):
            keys, values = k[b, h // share].astype(np.float64).T, v[b, h // share].astype(np.float64)
            for row in range(0, n_q, REFERENCE_ROWS):
                block = slice(row, row + REFERENCE_ROWS)
                scores = q[b, h, block].astype(np.float64) @ keys / np.sqrt(head_dim)
                weights = np.exp(scores - scores.max(axis=1, keepdims=True))
                output[b, h, block] = weights @ values / weights.sum(axis=1, keepdims=True)
    return output


def execute(schedule: Schedule, timeline: Timeline, seed: int = 0) -> ExecutionResult:
    """Run a schedule on random inputs, in the order of its timeline, and compare with the reference.

    Parameters
    ----------
    schedule, timeline
        What runs, and when. Nothing need be legal; what is not shows in the output.
    seed
        Of the inputs.

    Raises
    ------
    ScheduleError
        If an instruction names a tile, a step or a slot that does not exist, so that it cannot be run at all.
    """
    schedule.check()
    broken = malformed(schedule, make_geometry(schedule)) or [broken_timeline(schedule, timeline)]
    if broken[0]:
        raise ScheduleError(broken[0])
    q, k, v = make_inputs(schedule.workload, seed)
    machine = _Machine(schedule, timeline, q, k, v)
    n = len(schedule)
    start, end = event_ranks(timeline)
    event_of_rank = np.empty(2 * n, np.int64)
    event_of_rank[start] = np.arange(n)
    event_of_rank[end] = n + np.arange(n)
    with np.errstate(all="ignore"):  # NaN and garbage are part of the game
        for event in event_of_rank.tolist():
            if event < n:
                machine.start(event)
            else:
                machine.finish(event - n)
    error = np.abs(machine.output - attention_reference(q, k, v))
    worst = float(error.max()) if np.isfinite(error).all() else float("inf")
    return ExecutionResult(machine.output, worst)


class _Instruction:
    """One instruction's fields, and the sizes of the work item that they name."""

    def __init__(self, fields: list[int], src1: int, machine: "_Machine") -> None:
        grid, geometry = machine.grid, machine.geometry
        self.op, self.flags = fields[F_OP], fields[F_FLAGS]
        self.dst, self.src0, self.src1 = fields[F_DST], fields[F_SRC0], src1
        self.again: list[_Instruction] = []  # earlier tiles of a product, which it does again
        self.group, self.row, self.tile, self.step = (fields[at] for at in (F_GROUP, F_ROW, F_TILE, F_STEP))
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


class _Machine:
    """The cores' L1, the DRAM, and what is on its way between them."""

    def __init__(self, schedule: Schedule, timeline: Timeline, q: Floats, k: Floats, v: Floats) -> None:
        workload = schedule.workload
        self.grid, self.tiling, self.geometry = schedule.grid, schedule.tiling, make_geometry(schedule)
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
        self._passes = schedule.arch.vec.softmax_passes
        self._share = workload.heads // workload.kv_heads
        self._scale = np.float32(workload.head_dim_qk**-0.5)
        self._scale_in_product = not any("scale" in steps for steps in self._passes)
        self._on_its_way: dict[int, list[Write]] = {}
        self._operations: dict[int, Callable[[_Instruction], list[Write]]] = {
            OP_LOAD_Q: self._load_q,
            OP_LOAD_K: self._load_k,
            OP_LOAD_V: self._load_v,
            OP_LOAD_C: self._load_c,
            OP_LOAD_P: self._load_p,
            OP_QK: self._qk,
            OP_PV: self._pv,
            OP_SOFTMAX: self._softmax,
            OP_STORE_C: self._store_c,
            OP_STORE_P: self._store_p,
            OP_STORE_O: self._store_o,
        }

    def start(self, index: int) -> None:
        """Take the operands of an instruction as they are now; its results are NaN until it ends.

        A product that was stopped is run once, when it runs again: what it did before is lost. It finds its earlier
        tiles in the places where they are behind the overwrite.
        """
        instruction = _Instruction(self._code[index], self._source[index], self)
        for earlier in self._redone.get(index, ()):
            fields = self._code[earlier]
            instruction.again.append(_Instruction(fields, fields[F_SRC1], self))
        writes = self._operations[instruction.op](instruction)
        for place, _ in writes:
            place[...] = np.nan
        self._on_its_way[index] = writes

    def finish(self, index: int) -> None:
        """Leave the results of an instruction."""
        for place, value in self._on_its_way.pop(index):
            place[...] = value

    def _at(self, slot: int, shape: Shape, first_element: int = 0) -> Floats:
        """View the numbers of that shape in a slot; what would lie behind L1 is NaN, and lost when written."""
        core, local = divmod(slot, len(self._slots))
        first = self._slots[local][SLOT_OFFSET] // self._element_bytes + first_element
        size = int(np.prod(shape))
        flat = self._l1[core, first : first + size]
        return (flat if flat.size == size else np.full(size, np.nan, np.float32)).reshape(shape)

    def _scores_at(self, slot: int, work: _Instruction, step: int, width: int) -> Floats:
        """View the scores of one kv tile: a slot of their own, or their place in a slot of whole rows."""
        first = 0
        if self._slots[slot % len(self._slots)][SLOT_TENSOR] == T_S:
            first = int(self.geometry.pair_before[work.first_pair + step]) * self.geometry.column_elements
        return self._at(slot, (*work.lead, width), first)

    def _dram_at(self, region: int, work: _Instruction, step: int, width: int) -> Floats:
        """View the scores of one kv tile in DRAM; `region` tells C from P, by the operation that stores it."""
        pair = work.group * self.geometry.pairs + work.first_pair + step
        lines = int(np.prod(work.lead))
        if (region, pair) not in self._dram:
            self._dram[region, pair] = np.full(lines * self.tiling.kv_tile, np.nan, np.float32)
        return self._dram[region, pair][: lines * width].reshape(*work.lead, width)

    def _steps(self, work: _Instruction) -> list[tuple[int, int]]:
        """List the steps of a row block, and the width of the kv tile of each."""
        widths = self.geometry.pair_width[work.first_pair : work.first_pair + work.pairs]
        return list(enumerate(widths.tolist()))

    def _per_head(self, kv: Floats, work: _Instruction) -> Floats:
        """Give each query head its K or V head."""
        if self._share == 1:
            return kv
        return kv[:, np.arange(work.heads.start, work.heads.stop) // self._share - work.kv_heads.start]

    def _load_q(self, work: _Instruction) -> list[Write]:
        return [(self._at(work.dst, (*work.lead, self.q.shape[3])), self.q[work.batches, work.heads, work.rows])]

    def _load_k(self, work: _Instruction) -> list[Write]:
        return self._load_kv(self.k, work)

    def _load_v(self, work: _Instruction) -> list[Write]:
        return self._load_kv(self.v, work)

    def _load_kv(self, source: Floats, work: _Instruction) -> list[Write]:
        """Load a tile, or all tiles of a window, one behind the other."""
        writes, behind = list[Write](), 0
        for j in range(work.tile, work.tile + work.step + 1):
            first = j * self.tiling.kv_tile
            tile = source[work.batches, work.kv_heads, first : first + self.tiling.kv_tile]
            writes.append((self._at(work.dst, tile.shape, behind), tile))
            behind += tile.size
        return writes

    def _kv_at(self, work: _Instruction, tensor: int, head_dim: int) -> Floats:
        """View the K or V tile of a product, for each of its query heads: in its slot, or in the window."""
        behind = 0
        if self._slots[work.src1 % len(self._slots)][SLOT_TENSOR] == T_S:
            columns = (work.tile - self.geometry.window_of(tensor)) * self.tiling.kv_tile
            behind = columns * head_dim * int(np.prod(work.kv_lead))
        return self._per_head(self._at(work.src1, (*work.kv_lead, work.width, head_dim), behind), work)

    def _load_c(self, work: _Instruction) -> list[Write]:
        return [
            (self._scores_at(work.dst, work, *place), self._dram_at(OP_STORE_C, work, *place).copy())
            for place in self._steps(work)
        ]

    def _load_p(self, work: _Instruction) -> list[Write]:
        place = work.step, work.width
        return [(self._scores_at(work.dst, work, *place), self._dram_at(OP_STORE_P, work, *place).copy())]

    def _store_c(self, work: _Instruction) -> list[Write]:
        place = work.step, work.width
        return [(self._dram_at(OP_STORE_C, work, *place), self._scores_at(work.src0, work, *place).copy())]

    def _store_p(self, work: _Instruction) -> list[Write]:
        return [
            (self._dram_at(OP_STORE_P, work, *place), self._scores_at(work.src0, work, *place).copy())
            for place in self._steps(work)
        ]

    def _store_o(self, work: _Instruction) -> list[Write]:
        tile = self._at(work.src0, (*work.lead, self.output.shape[3]))
        return [(self.output[work.batches, work.heads, work.rows], tile.copy())]

    def _qk(self, work: _Instruction) -> list[Write]:
        writes = []
        for part in (*work.again, work):
            q = self._at(part.src0, (*part.lead, self.q.shape[3]))
            scores = q @ self._kv_at(part, T_K, self.k.shape[3]).swapaxes(2, 3)
            if self._scale_in_product:
                scores *= self._scale
            writes.append((self._scores_at(part.dst, part, part.step, part.width), scores))
        return writes

    def _pv(self, work: _Instruction) -> list[Write]:
        place = self._at(work.dst, (*work.lead, self.v.shape[3]))
        product = np.zeros_like(place)
        for part in (*work.again, work):
            p = self._scores_at(part.src0, part, part.step, part.width)
            product += p @ self._kv_at(part, T_V, self.v.shape[3])
        return [(place, product if work.again or work.flags & FLAG_FIRST else place + product)]

    def _softmax(self, work: _Instruction) -> list[Write]:
        """Do one pass, step by step.

        Passes before the first one that changes the scores only reduce them. That one may write to another slot, which
        later passes work on; so one of these that only reduces leaves the scores as they are if it works in place.
        """
        steps = self._passes[work.tile]
        scores = [self._scores_at(work.src0, work, *place) for place in self._steps(work)]
        only_reduces = {"max", "sum"}.issuperset(steps) and work.dst == work.src0
        only_reduces = only_reduces or work.tile < self.geometry.first_write
        if not only_reduces:
            scores = [block.copy() for block in scores]
        stats_place = self._at(work.src1, (2, *work.lead))
        stats = stats_place.copy()
        for step in steps:
            if step == "max":
                stats[0] = np.max([block.max(axis=3) for block in scores], axis=0)
            elif step == "sum":
                stats[1] = np.sum([block.sum(axis=3) for block in scores], axis=0)
            for block in scores:
                if step == "scale":
                    block *= self._scale
                elif step == "subtract":
                    block -= stats[0, ..., None]
                elif step == "exp":
                    np.exp(block, out=block)
                elif step == "divide":
                    block /= stats[1, ..., None]
        if only_reduces:
            return [(stats_place, stats)]
        targets = [self._scores_at(work.dst, work, *place) for place in self._steps(work)]
        return [(stats_place, stats), *zip(targets, scores, strict=True)]
