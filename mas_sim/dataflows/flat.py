"""FLAT (Kao et al., ASPLOS 2023): attention fused on chip by row blocks, in sequence.

For each row block C_i, then P_i, then O_i: C and P never leave L1, but the MAC unit waits while softmax runs and
the vector unit waits while products run. Loads of the next row block overlap with all of it, as far as the buffers
allow.
"""

from mas_sim._jit import leaf
from mas_sim.dataflows._blocks import begin_places, load_and_score, output, softmax
from mas_sim.dataflows._emission import BK_FIRST, BK_LAST
from mas_sim.dataflows._slots import plan_fused
from mas_sim.schedule import CodeArray, IntArray


@leaf
def plan(p: IntArray, t: IntArray, row_length: int, slots: IntArray, places: IntArray) -> int:
    """Lay out one core's L1 with a single row block of C and P, and return the number of slots."""
    return plan_fused(p, t, row_length, 1, slots, places)


@leaf
def emit_core(code: CodeArray, book: IntArray) -> None:
    """Write the streams of one core."""
    begin_places(book, 1)
    for place in range(book[BK_LAST] - book[BK_FIRST]):
        load_and_score(code, book, place)
        softmax(code, book, place)
        output(code, book, place)
