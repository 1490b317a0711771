"""MAS-Attention (MLSys 2025): two semi-synchronous streams with full-row softmax.

In round r the MAC unit computes C_r and then O_{r-2}, while the vector unit computes P_{r-1}. Rounds run on across
heads and batches, so the pipeline fills once a core, not once a head.

C and P of the three row blocks in flight sit in a ring (`score_buffers`). With three, a round's C_r has a row
block of its own. Two are the least (the paper's section 5.6: a row of P_i and one of P_{i-1} or C_{i+1}): C_r then
takes the place of P_{r-2}, so the MAC unit computes O_{r-2} first and C_r behind it.

**Proactive overwrite.** Where L1 has no room for P beside C, K and V, softmax writes P_{r-1} over the last tiles
of V (or K), the
*window*, although the MAC unit may be reading them in O_{r-2} (or C_r): see docs/model.md, section 4, for the
steps. The ring is then of two, and the softmax and the load that brings the window back stand before O_{r-2} and
C_r in program order, so that no load that waits for those products can stand before it in the LOAD queue.
"""

from mas_sim._jit import leaf
from mas_sim.dataflows._blocks import begin_places, fetch_q, load_and_score, output, scores, softmax
from mas_sim.dataflows._emission import BK_FIRST, BK_LAST, BK_ROW_BLOCKS, BK_T
from mas_sim.dataflows._slots import plan_fused
from mas_sim.schedule import CodeArray, IntArray
from mas_sim.tiling import TL_OVERWRITE, TL_SCORE_BUFFERS


@leaf
def plan(p: IntArray, t: IntArray, row_length: int, slots: IntArray, places: IntArray) -> int:
    """Lay out one core's L1 with a ring of `score_buffers` row blocks, and return the number of slots."""
    return plan_fused(p, t, row_length, t[TL_SCORE_BUFFERS], slots, places)


@leaf
def emit_core(code: CodeArray, book: IntArray) -> None:
    """Write the streams of one core, round by round; two more rounds than items drain the pipeline."""
    items = book[BK_LAST] - book[BK_FIRST]
    ring = book[BK_T + TL_SCORE_BUFFERS]
    begin_places(book, ring)
    for r in range(items + 2):
        if book[BK_T + TL_OVERWRITE]:
            _overwrite_round(code, book, r, items)
            continue
        if ring == 2 and r >= 2:
            output(code, book, r - 2)
        if r < items:
            load_and_score(code, book, r)
        if 1 <= r <= items:
            softmax(code, book, r - 1)
        if ring > 2 and r >= 2:
            output(code, book, r - 2)


@leaf
def _overwrite_round(code: CodeArray, book: IntArray, r: int, items: int) -> None:
    """Write round r under proactive overwrite."""
    q_slot = -1
    if r < items:
        item = book[BK_FIRST] + r
        q_slot = fetch_q(code, book, r, item // book[BK_ROW_BLOCKS], item % book[BK_ROW_BLOCKS])
    if 1 <= r <= items:
        softmax(code, book, r - 1)
    if r >= 2:
        output(code, book, r - 2)
    if r < items:
        scores(code, book, r, q_slot)
