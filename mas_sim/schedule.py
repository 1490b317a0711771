"""Schedules as data: the instruction format that every reader (timing, energy, audit, execution, drawing) shares.

A schedule is one int32 matrix of instructions, one row each, in *program order*: the order in which the dataflow means
them. Each hardware queue (a core's MAC, VEC, LOAD or STORE unit) runs its own instructions in that order; between
queues only the explicit dependencies order them. Every dependency points to an earlier row, so no schedule can
deadlock. An instruction names the L1 slots it reads and writes and the tile it works on, as a real instruction
would; what it costs stands once in a table of *kinds* (instructions of the same shape share a row).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mas_sim.arch import Arch
from mas_sim.errors import ScheduleError
from mas_sim.tiling import Tiling
from mas_sim.workload import Workload

IntArray = npt.NDArray[np.int64]
CodeArray = npt.NDArray[np.int32]

# --- units; a queue is core * UNITS + unit ------------------------------------------------------------------------
MAC, VEC, LOAD, STORE = 0, 1, 2, 3
UNITS = 4
UNIT_NAMES = ("MAC", "VEC", "LOAD", "STORE")

# --- operations ---------------------------------------------------------------------------------------------------
OP_LOAD_Q, OP_LOAD_K, OP_LOAD_V, OP_LOAD_C, OP_LOAD_P = 0, 1, 2, 3, 4
OP_QK, OP_PV, OP_SOFTMAX = 5, 6, 7
OP_STORE_C, OP_STORE_P, OP_STORE_O = 8, 9, 10
OP_MASK = 11  # VEC: the scores of one partially kept kv tile that do not count become -inf
OP_TILE_SOFTMAX = 12  # VEC: one pass of full-row softmax over one kv tile
OP_ONLINE = 13  # VEC: one pass of online softmax over one kv tile
OP_RESCALE, OP_ADD, OP_NORMALIZE = 14, 15, 16  # VEC: O times the correction; O plus a partial O; O over the row sum
OP_EXP = 17  # MAC: P = exp(C - row maximum) of one kv tile, in the array's own positions
OP_NAMES = (
    "load_q", "load_k", "load_v", "load_c", "load_p", "qk", "pv", "softmax", "store_c", "store_p", "store_o",
    "mask", "tile_softmax", "online", "rescale", "add", "normalize", "exp",
)  # fmt: skip

# --- fields of an instruction (columns of the matrix) -------------------------------------------------------------
F_OP, F_QUEUE, F_KIND = 0, 1, 2
F_DST, F_SRC0, F_SRC1 = 3, 4, 5  # L1 slots, -1 for none
F_GROUP, F_ROW, F_TILE = 6, 7, 8  # the work item (group of heads, row block) and the kv tile (or the softmax pass)
F_STEP = 9  # place of the kv tile in the row block's list
F_FLAGS = 10  # bit 0: first of its accumulation, bit 1: last; from bit 2 on the pass of OP_TILE_SOFTMAX and OP_ONLINE
F_DEP0 = 11  # dependencies: 2 * index + (1 if it only waits for a buffer to be free), -1 for none
MAX_DEPS = 5
# Proactive overwrite, -1 elsewhere. Of a product that reads tiles which a softmax may overwrite: that softmax's first
# writing pass, the load that brings the tiles back, and the slot the tiles are in before (F_SRC1: after). Of such a
# pass: the first and the last of those products.
F_OVER, F_RELOAD, F_ALT = 16, 17, 18
F_FIRST_VICTIM, F_LAST_VICTIM = 16, 17
F_SRC2 = 18  # of OP_ONLINE: the slot of the row's statistics before this kv tile, -1 before the first
FIELDS = 19
FLAG_FIRST, FLAG_LAST, FLAG_PASS = 1, 2, 4  # FLAG_PASS * pass

# --- tensors a slot can hold --------------------------------------------------------------------------------------
T_Q, T_K, T_V, T_S, T_O, T_STATS, T_TILE, T_PART = 0, 1, 2, 3, 4, 5, 6, 7
TENSOR_NAMES = ("Q", "K", "V", "C/P rows", "O", "stats", "C/P tile", "partial O")

# --- columns of the slot table ------------------------------------------------------------------------------------
SLOT_TENSOR, SLOT_OFFSET, SLOT_BYTES = 0, 1, 2
SLOT_FIELDS = 3

# --- columns of the cost table: cycles, the metered actions (energy.METER_COLUMNS), the shape -----------------------
C_CYCLES = 0
C_DRAM_READ, C_DRAM_WRITE, C_L1_READ, C_L1_WRITE, C_L0_READ, C_L0_WRITE = 1, 2, 3, 4, 5, 6
C_MACS, C_VEC_MAX, C_VEC_ADD, C_VEC_MUL, C_VEC_EXP, C_VEC_DIV = 7, 8, 9, 10, 11, 12
COST_FIELDS = 13
METER_FIELDS = 12

# --- columns of the row shapes ------------------------------------------------------------------------------------
# Columns of a row of that shape; its kv tiles; whether one of them is the ragged last tile; those that the mask keeps
# in part, but for the ragged one; whether that is; whether the row block is the ragged last one.
R_LENGTH, R_TILES, R_RAGGED_KV, R_PARTIAL, R_PARTIAL_RAGGED, R_RAGGED_ROW = 0, 1, 2, 3, 4, 5
ROW_SHAPE_FIELDS = 6

# --- columns of the packs: what one class of groups stacks on the rows of the MAC array -----------------------------
# Batches; query heads that share the group's first K/V head, if not all of its heads; K/V heads with all their query
# heads; query heads of the last K/V head, if not all.
PACK_BATCHES, PACK_LEAD, PACK_WHOLE, PACK_TAIL = 0, 1, 2, 3
PACK_FIELDS = 4


class Grid(NamedTuple):
    """How a tiling cuts the workload: groups of heads, row blocks, and each row block's list of kv tiles.

    Attributes
    ----------
    group_batches, group_heads, group_kv_heads : int64[groups]
        Batches, query heads and distinct K/V heads of a group.
    group_first_batch, group_first_head, group_first_kv_head : int64[groups]
        Where the group starts.
    group_key : int64[groups]
        Equal for groups that use the very same K and V, so that a resident tile is not loaded again.
    group_class : int64[groups]
        Groups of one class have the same shape, and so the same costs.
    class_heads, class_kv : int64[classes]
        (batch, head) pairs and (batch, kv head) pairs in a group of this class.
    class_packs : int64[classes, PACK_FIELDS]
        How its heads share K/V heads: query heads of one K/V head are stacked on the rows of the MAC array.
    row_ptr : int64[row_blocks + 1], row_tiles : int64[pairs]
        Row block i visits kv tiles `row_tiles[row_ptr[i]:row_ptr[i + 1]]`, in this order: those that hold any score
        that the mask keeps.
    row_span : int64[row_blocks, 2]
        The same as a range `[first, last + 1)`: what a mask keeps of a row is one range of keys.
    row_length : int64[row_blocks]
        Columns of a row of that block: the widths of its kv tiles added up.
    row_class : int64[row_blocks], row_shapes : int64[row classes, ROW_SHAPE_FIELDS]
        Row blocks of one class have the same shape, and so the same costs.
    """

    group_batches: IntArray
    group_heads: IntArray
    group_kv_heads: IntArray
    group_first_batch: IntArray
    group_first_head: IntArray
    group_first_kv_head: IntArray
    group_key: IntArray
    group_class: IntArray
    class_heads: IntArray
    class_kv: IntArray
    class_packs: IntArray
    row_ptr: IntArray
    row_tiles: IntArray
    row_span: IntArray
    row_length: IntArray
    row_class: IntArray
    row_shapes: IntArray


@dataclass(frozen=True)
class Schedule:
    """One dataflow's instruction streams for one arch, workload and tiling.

    Attributes
    ----------
    instructions : int32[n, FIELDS]
        Program order; columns are the `F_*` constants.
    costs : int64[kinds, COST_FIELDS]
        Cycles and metered actions of each kind of instruction; columns are the `C_*` constants.
    slots : int64[slots, SLOT_FIELDS]
        Place of every L1 buffer of one core; core c's slots are `c * len(slots) + s`, at the same offsets in its share.
    active_cores
        How many cores have any work; with fewer items than cores some are idle, the first one among them.
    """

    dataflow: str
    arch: Arch
    workload: Workload
    tiling: Tiling
    instructions: CodeArray
    costs: IntArray
    slots: IntArray
    grid: Grid
    active_cores: int

    def __len__(self) -> int:
        return int(self.instructions.shape[0])

    @cached_property
    def cycles(self) -> IntArray:
        """Duration of each instruction on its unit (DMA: on the channel), in cycles; int64[n]."""
        return np.ascontiguousarray(self.costs[self.instructions[:, F_KIND], C_CYCLES])

    @property
    def unit_of(self) -> CodeArray:
        """Unit of each instruction (MAC, VEC, LOAD or STORE); int32[n]."""
        units: CodeArray = self.instructions[:, F_QUEUE] % UNITS
        return units

    @cached_property
    def overwrites(self) -> bool:
        """Whether any softmax writes over tiles of K or V that a product still has to read."""
        return bool(((self.unit_of == MAC) & (self.instructions[:, F_OVER] >= 0)).any())

    @property
    def queues(self) -> int:
        """Number of queues: four a core."""
        return self.arch.cores * UNITS

    @property
    def core_l1_bytes(self) -> int:
        """L1 bytes that one active core's buffers span."""
        return int((self.slots[:, SLOT_OFFSET] + self.slots[:, SLOT_BYTES]).max(initial=0))

    @property
    def l1_peak_bytes(self) -> int:
        """Bytes in use in the fullest L1: all active cores' buffers if it is shared, one core's if it is private."""
        return self.core_l1_bytes * (self.active_cores if self.arch.l1.shared else 1)

    def meter_counts(self) -> IntArray:
        """Metered actions of the whole schedule, in the order of `energy.METER_COLUMNS`; int64[METER_FIELDS]."""
        per_kind = np.bincount(self.instructions[:, F_KIND], minlength=self.costs.shape[0])
        counts: IntArray = per_kind.astype(np.int64) @ self.costs[:, C_DRAM_READ:]
        return counts

    def dependencies(self, index: int) -> list[tuple[int, bool]]:
        """Dependencies of an instruction.

        Returns
        -------
        list of (int, bool)
            Row of the earlier instruction, and whether it is only waited for because it still uses the buffer.
        """
        deps = self.instructions[index, F_DEP0 : F_DEP0 + MAX_DEPS]
        return [(int(d) >> 1, bool(d & 1)) for d in deps if d >= 0]

    def describe(self, index: int) -> str:
        """One instruction in words, for messages: `#12 core 0 MAC qk(group 0, row 1, tile 3)`."""
        row = self.instructions[index]
        core, unit = divmod(int(row[F_QUEUE]), UNITS)
        where = f"group {row[F_GROUP]}, row {row[F_ROW]}, tile {row[F_TILE]}"
        return f"#{index} core {core} {UNIT_NAMES[unit]} {OP_NAMES[row[F_OP]]}({where})"

    def check(self) -> None:
        """Refuse a matrix that no dataflow would write: unknown codes, or dependencies that do not point backwards.

        Raises
        ------
        ScheduleError
            With the first offending instruction.
        """
        code = self.instructions
        if code.ndim != 2 or code.shape[1] != FIELDS or code.dtype != np.int32:
            raise ScheduleError(f"instructions must be int32[n, {FIELDS}], got {code.dtype}{list(code.shape)}")
        bad = np.flatnonzero(self.costs[:, C_CYCLES] < 0)
        if bad.size:
            raise ScheduleError(f"kind {bad[0]} takes {self.costs[bad[0], C_CYCLES]} cycles; costs cannot be negative")
        n_slots = self.slots.shape[0] * self.arch.cores
        limits = ((F_OP, len(OP_NAMES)), (F_QUEUE, self.queues), (F_KIND, self.costs.shape[0]))
        for column, limit in limits:
            bad = np.flatnonzero((code[:, column] < 0) | (code[:, column] >= limit))
            if bad.size:
                raise ScheduleError(
                    f"instruction #{bad[0]}: field {column} is {code[bad[0], column]}, not in 0..{limit - 1}"
                )
        bad = np.flatnonzero((self.unit_of >= LOAD) & (self.cycles < 1))
        if bad.size:
            raise ScheduleError(
                f"instruction #{bad[0]}: a transfer takes {self.cycles[bad[0]]} cycles; at least 1 is needed"
            )
        slot_columns = code[:, [F_DST, F_SRC0, F_SRC1]]
        bad = np.flatnonzero(((slot_columns < -1) | (slot_columns >= n_slots)).any(axis=1))
        if bad.size:
            raise ScheduleError(f"instruction #{bad[0]}: a slot is outside 0..{n_slots - 1}")
        links = code[:, [F_OVER, F_RELOAD]]
        bad = np.flatnonzero(((links < -1) | (links >= len(code))).any(axis=1))
        if bad.size:
            raise ScheduleError(f"instruction #{bad[0]}: an overwrite link is outside 0..{len(code) - 1}")
        bad = np.flatnonzero((self.unit_of == MAC) & (code[:, F_OVER] >= 0) & (code[:, F_RELOAD] < 0))
        if bad.size:
            raise ScheduleError(f"instruction #{bad[0]} may be overwritten, but no load brings its tiles back")
        deps = code[:, F_DEP0 : F_DEP0 + MAX_DEPS] >> 1
        bad = np.flatnonzero((deps >= np.arange(len(code))[:, None]).any(axis=1))
        if bad.size:
            raise ScheduleError(f"instruction #{bad[0]} depends on itself or on a later one: the queues would deadlock")
