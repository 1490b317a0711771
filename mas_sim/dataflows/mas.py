"""MAS-Attention (MLSys 2025): two semi-synchronous streams with full-row softmax.

In round r the MAC unit computes C_r and then O_{r-2}, while the vector unit computes P_{r-1}. Rounds run on across
heads and batches, so the pipeline fills once a core, not once a head.

C and P of the three row blocks in flight sit in a ring (`score_buffers`). With three, a round's C_r has a row
block of its own. Two are the least (the paper's section 5.6: a row of P_i and one of P_{i-1} or C_{i+1}): C_r then
takes the place of P_{r-2}, so the MAC unit computes O_{r-2} first and C_r behind it.
"""

from mas_sim._jit import leaf
from mas_sim.dataflows._emission import BK_FIRST, BK_LAST, BK_T, output, scores, softmax
from mas_sim.dataflows._plan import plan_fused
from mas_sim.schedule import CodeArray, IntArray
from mas_sim.tiling import TL_SCORE_BUFFERS


@leaf
def plan(p: IntArray, t: IntArray, row_length: int, slots: IntArray, places: IntArray) -> int:
    """Lay out one core's L1 with a ring of `score_buffers` row blocks, and return the number of slots."""
    return plan_fused(p, t, row_length, t[TL_SCORE_BUFFERS], slots, places)


@leaf
def emit_core(code: CodeArray, book: IntArray) -> None:
    """Write the streams of one core, round by round; two more rounds than items drain the pipeline."""
    items = book[BK_LAST] - book[BK_FIRST]
    output_first = book[BK_T + TL_SCORE_BUFFERS] == 2
    for r in range(items + 2):
        if output_first and r >= 2:
            output(code, book, r - 2)
        if r < items:
            scores(code, book, r)
        if 1 <= r <= items:
            softmax(code, book, r - 1)
        if not output_first and r >= 2:
            output(code, book, r - 2)
