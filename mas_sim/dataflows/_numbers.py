"""Each dataflow's number in compiled code, and what its number says of the form of its softmax."""

from mas_sim._jit import leaf
from mas_sim.costs import FORM_ONLINE, FORM_ROWS, FORM_TILES
from mas_sim.schedule import IntArray
from mas_sim.tiling import TL_EXP_ON, TL_K_BUFFERS, TL_K_RESIDENT, TL_OVERLAP

LAYER_WISE, FLAT, MAS, SOFT_PIPE, TILEFLOW, FLASH, FUSEMAX = 0, 1, 2, 3, 4, 5, 6

OVERLAP_NONE, OVERLAP_PING_PONG, OVERLAP_PIPELINED = 0, 1, 2


def softmax_form(dataflow: int) -> int:
    """Return the form of a dataflow's softmax passes, `FORM_*`."""
    if dataflow in (FLASH, FUSEMAX):
        return FORM_ONLINE
    return FORM_TILES if dataflow == TILEFLOW else FORM_ROWS


@leaf
def is_online(dataflow: int) -> bool:
    """Whether softmax is online: no row block of scores is ever whole in L1."""
    return bool(dataflow in (FLASH, FUSEMAX))


@leaf
def by_tiles(dataflow: int) -> bool:
    """Whether a softmax pass works on one kv tile, and not on whole rows."""
    return bool(dataflow == TILEFLOW or is_online(dataflow))


@leaf
def first_pass(dataflow: int, t: IntArray, rows: int) -> int:
    """First row of the pass table, which has `rows`, that a tiling uses; `pass_count` says how many."""
    return rows - 1 if is_online(dataflow) and t[TL_EXP_ON] else 0


@leaf
def pass_count(dataflow: int, t: IntArray, rows: int) -> int:
    """How many passes of the table a tiling uses: of online softmax the last, or all but the last."""
    if not is_online(dataflow):
        return rows
    return 1 if t[TL_EXP_ON] else rows - 1


@leaf
def in_pairs(dataflow: int, t: IntArray) -> bool:
    """Whether row blocks are done two at a time."""
    return bool(dataflow == FLASH and t[TL_OVERLAP] == OVERLAP_PING_PONG)


@leaf
def pairs_across(t: IntArray) -> bool:
    """Whether two row blocks of different groups may be a pair: L1 holds what is resident of K and V of both groups."""
    enough = True
    for is_v in range(2):
        enough = enough and (t[TL_K_RESIDENT + is_v] == 0 or t[TL_K_BUFFERS + is_v] > 1)
    return enough


@leaf
def streams(dataflow: int, t: IntArray) -> int:
    """Row blocks of `flash`, or kv tiles of `fusemax`, that are in the making at once."""
    if dataflow == FLASH:
        return 2 if t[TL_OVERLAP] == OVERLAP_PING_PONG else 1
    return 2 if t[TL_OVERLAP] == OVERLAP_PIPELINED else 1
