"""Which operand of which operation holds which version of which tensor: one table, `RULES`, for all readers of data.

`accesses` applies it to a schedule. Nothing here looks at the dependencies that a schedule declares.
"""

from typing import NamedTuple

from mas_sim.geometry import Geometry
from mas_sim.schedule import (
    F_DST,
    F_SRC0,
    F_SRC1,
    F_SRC2,
    OP_ADD,
    OP_EXP,
    OP_LOAD_C,
    OP_LOAD_K,
    OP_LOAD_P,
    OP_LOAD_Q,
    OP_LOAD_V,
    OP_MASK,
    OP_NORMALIZE,
    OP_ONLINE,
    OP_PV,
    OP_QK,
    OP_RESCALE,
    OP_SOFTMAX,
    OP_STORE_C,
    OP_STORE_O,
    OP_STORE_P,
    OP_TILE_SOFTMAX,
    T_K,
    T_O,
    T_PART,
    T_Q,
    T_S,
    T_STATS,
    T_V,
)

DRAM_C, DRAM_P = -1, -2
"""Operands that are no L1 slot: the scores and the probabilities that a dataflow keeps in DRAM."""

# How far the data has come when it is read, or has been written. Of scores: as computed; ready for softmax, which means
# masked where the mask leaves any out; masked; behind all of softmax.
NONE, READY, WITH_MASK, ALL_PASSES = 0, 1, 2, 3
# Of scores and stats: before and behind the softmax pass that the instruction is.
PASS, NEXT_PASS = 4, 5
# Of stats that run on from kv tile to kv tile: before this one, behind it, behind the row block's last one.
CARRIED, TILE_DONE, ROW_DONE = 6, 7, 8
# Of an output: before and behind the product of this kv tile; behind all; and where it is corrected: before that,
# and divided by the rows' sums.
STEP, NEXT_STEP, ALL_STEPS, UNCORRECTED, NORMALIZED = 9, 10, 11, 12, 13


class Rule(NamedTuple):
    """One operand of an operation.

    Attributes
    ----------
    operand
        The field that names its slot, or `DRAM_C`, `DRAM_P`.
    tensor
        What it holds (`T_*`; C and P are versions of `T_S`).
    is_write
        Whether this access writes. An operand that is updated in place has two rules.
    stage
        How far the data has come (`NONE` to `NORMALIZED`): expected of a read, made by a write.
    whole_row
        The access covers the scores of every kv tile of the row block, not of one.
    whole_window
        The access covers as many kv tiles as the instruction's step says, and one more.
    """

    operand: int
    tensor: int
    is_write: bool
    stage: int = NONE
    whole_row: bool = False
    whole_window: bool = False


_SUM_OF_PRODUCTS = Rule(F_DST, T_O, False, STEP), Rule(F_DST, T_O, True, NEXT_STEP)
_PASS_OVER_TILE = (
    Rule(F_SRC0, T_S, False, PASS),
    Rule(F_DST, T_S, True, NEXT_PASS),
    Rule(F_SRC1, T_STATS, False, PASS),
    Rule(F_SRC1, T_STATS, True, NEXT_PASS),
)

RULES: dict[int, tuple[Rule, ...]] = {
    OP_LOAD_Q: (Rule(F_DST, T_Q, True),),
    OP_LOAD_K: (Rule(F_DST, T_K, True, whole_window=True),),
    OP_LOAD_V: (Rule(F_DST, T_V, True, whole_window=True),),
    OP_LOAD_C: (Rule(DRAM_C, T_S, False, NONE, True), Rule(F_DST, T_S, True, NONE, True)),
    OP_LOAD_P: (Rule(DRAM_P, T_S, False, ALL_PASSES), Rule(F_DST, T_S, True, ALL_PASSES)),
    OP_QK: (Rule(F_SRC0, T_Q, False), Rule(F_SRC1, T_K, False), Rule(F_DST, T_S, True)),
    OP_PV: (Rule(F_SRC0, T_S, False, ALL_PASSES), Rule(F_SRC1, T_V, False), *_SUM_OF_PRODUCTS),
    OP_MASK: (Rule(F_SRC0, T_S, False), Rule(F_DST, T_S, True, WITH_MASK)),
    OP_SOFTMAX: (
        Rule(F_SRC0, T_S, False, PASS, True),
        Rule(F_DST, T_S, True, NEXT_PASS, True),
        Rule(F_SRC1, T_STATS, False, PASS),
        Rule(F_SRC1, T_STATS, True, NEXT_PASS),
    ),
    OP_TILE_SOFTMAX: _PASS_OVER_TILE,
    OP_ONLINE: (*_PASS_OVER_TILE, Rule(F_SRC2, T_STATS, False, CARRIED)),
    OP_EXP: (
        Rule(F_SRC0, T_S, False, READY),
        Rule(F_DST, T_S, True, ALL_PASSES),
        Rule(F_SRC1, T_STATS, False, TILE_DONE),
    ),
    OP_RESCALE: (
        Rule(F_SRC1, T_STATS, False, TILE_DONE),
        Rule(F_DST, T_O, False, UNCORRECTED),
        Rule(F_DST, T_O, True, STEP),
    ),
    OP_ADD: (Rule(F_SRC0, T_PART, False), *_SUM_OF_PRODUCTS),
    OP_NORMALIZE: (
        Rule(F_SRC1, T_STATS, False, ROW_DONE),
        Rule(F_DST, T_O, False, ALL_STEPS),
        Rule(F_DST, T_O, True, NORMALIZED),
    ),
    OP_STORE_C: (Rule(F_SRC0, T_S, False), Rule(DRAM_C, T_S, True)),
    OP_STORE_P: (Rule(F_SRC0, T_S, False, ALL_PASSES, True), Rule(DRAM_P, T_S, True, ALL_PASSES, True)),
    OP_STORE_O: (Rule(F_SRC0, T_O, False, NORMALIZED),),
}
"""What each operation reads and writes. Where a stage of an output or of stats is 0, there is nothing to read yet.

Softmax passes before the first one that changes the scores read them as they are, and write stats only. An output that
is not online needs no division of its own: its last product makes it `NORMALIZED`. For products that are partial
outputs see `rules_of`.
"""

PARTIAL_PRODUCT = (*RULES[OP_PV][:2], Rule(F_DST, T_PART, True))
"""Of `OP_PV` where products are partial outputs, which `OP_ADD` adds up."""

SOFTMAX_OPS = (OP_SOFTMAX, OP_TILE_SOFTMAX, OP_ONLINE)
"""Operations that do one pass of softmax; a schedule uses one of them only."""

STEP_OPS = (
    *(OP_QK, OP_PV, OP_STORE_C, OP_LOAD_P),
    *(OP_MASK, OP_TILE_SOFTMAX, OP_ONLINE, OP_RESCALE, OP_ADD, OP_EXP),
)
"""Operations whose step field is a place in the row block's list of kv tiles."""

LOADS_OF_KV = (OP_LOAD_K, OP_LOAD_V)

TILE_OPS = (*LOADS_OF_KV, *STEP_OPS)
"""Operations whose tile field is a kv tile."""

FLAGGED_OPS = (OP_PV, OP_TILE_SOFTMAX, OP_ONLINE, OP_RESCALE, OP_ADD, OP_EXP)
"""Operations whose flags say whether their step is the first or the last one of the row block."""


def rules_of(op: int, geometry: Geometry) -> tuple[Rule, ...]:
    """Return the rules of an operation in a schedule."""
    return PARTIAL_PRODUCT if op == OP_PV and geometry.adds else RULES[op]
