"""What the vector unit does to the numbers of `execute`, and exp where it runs on the MAC array.

A row's statistics are its maximum, its sum, and a third number: one over the sum, or, where softmax is online, the
correction `exp(old maximum - new maximum)` by which the row's sum and output so far are scaled (Milakov and Gimelshein,
"Online normalizer calculation for softmax", 2018; Dao, "FlashAttention-2", 2023).
"""

import numpy as np

from mas_sim._execute_machine import Floats, Machine, Work, Write
from mas_sim.geometry import ONLY_REDUCES
from mas_sim.schedule import FLAG_FIRST

MAXIMUM, SUM, THIRD = 0, 1, 2


def mask(machine: Machine, work: Work) -> list[Write]:
    """Set the scores of a kv tile that the mask leaves out to minus infinity."""
    workload = machine.workload
    back, ahead = workload.band
    position = np.arange(work.rows.start, work.rows.stop)[:, None] + workload.n_kv - workload.n_q
    key = work.tile * machine.tiling.kv_tile + np.arange(work.width)
    kept = (key >= position - back) & (key <= position + ahead)
    scores = machine.tile_at(work.src0, work)
    return [(machine.tile_at(work.dst, work), np.where(kept, scores, np.float32(-np.inf)))]


def softmax(machine: Machine, work: Work) -> list[Write]:
    """Do one pass over whole rows, step by step.

    Passes before the first one that changes the scores only reduce them. That one may write to another slot, which
    later passes work on; so one of these that only reduces leaves the scores as they are if it works in place.
    """
    steps = machine.geometry.steps[work.number]
    scores = [machine.scores_at(work.src0, work, *place) for place in machine.steps(work)]
    only_reduces = ONLY_REDUCES.issuperset(steps) and work.dst == work.src0
    only_reduces = only_reduces or work.number < machine.geometry.first_write
    if not only_reduces:
        scores = [block.copy() for block in scores]
    stats_place = machine.stats_at(work.src1, work)
    stats = stats_place.copy()
    for step in steps:
        if step == "max":
            stats[MAXIMUM] = np.max([block.max(axis=3) for block in scores], axis=0)
        elif step == "sum":
            stats[SUM] = np.sum([block.sum(axis=3) for block in scores], axis=0)
        else:
            _change(machine, step, scores, stats)
    if only_reduces:
        return [(stats_place, stats)]
    targets = [machine.scores_at(work.dst, work, *place) for place in machine.steps(work)]
    return [(stats_place, stats), *zip(targets, scores, strict=True)]


def _change(machine: Machine, step: str, scores: list[Floats], stats: Floats) -> None:
    """Do a step that changes the scores, in place; or take the reciprocals of the rows' sums."""
    if step == "reciprocal":
        stats[THIRD] = 1 / stats[SUM]
    for block in scores:
        if step == "scale":
            block *= machine.scale
        elif step == "subtract":
            block -= _finite(stats[MAXIMUM])[..., None]
        elif step == "exp":
            np.exp(block, out=block)
        elif step == "divide":
            block /= stats[SUM, ..., None]
        elif step == "multiply":
            block *= stats[THIRD, ..., None]


def _finite(maximum: Floats) -> Floats:
    """Return row maxima to subtract: 0 for rows without any score so far, so that their exps are 0 and not NaN."""
    return np.where(np.isneginf(maximum), np.float32(0), maximum)


def tile_softmax(machine: Machine, work: Work) -> list[Write]:
    """Do one pass over one kv tile; the rows' maxima and sums grow from tile to tile."""
    steps, stats_place = machine.geometry.steps[work.number], machine.stats_at(work.src1, work)
    stats, scores = stats_place.copy(), machine.tile_at(work.src0, work).copy()
    for step in steps:
        if step == "max":
            highest = scores.max(axis=3)
            stats[MAXIMUM] = highest if work.step == 0 else np.maximum(stats[MAXIMUM], highest)
        elif step == "sum":
            total = scores.sum(axis=3)
            stats[SUM] = total if work.step == 0 else stats[SUM] + total
        else:
            _change(machine, step, [scores], stats)
    return [(stats_place, stats), *_in_place(machine, work, steps, scores)]


def online(machine: Machine, work: Work) -> list[Write]:
    """Do one pass of online softmax over one kv tile.

    The first pass takes the statistics from where they were behind the last kv tile, and leaves them in this one's
    place; the first kv tile's starts from a maximum of minus infinity and a sum of 0.
    """
    steps, stats_place = machine.geometry.steps[work.number], machine.stats_at(work.src1, work)
    scores = machine.tile_at(work.src0, work).copy()
    if work.number > 0:
        stats = stats_place.copy()
    elif work.src2 >= 0:
        stats = machine.stats_at(work.src2, work).copy()
    else:
        stats = np.zeros_like(stats_place)
        stats[MAXIMUM] = -np.inf
    for step in steps:
        if step == "max":
            highest = np.maximum(stats[MAXIMUM], scores.max(axis=3))
            stats[THIRD] = np.exp(stats[MAXIMUM] - _finite(highest))
            stats[MAXIMUM] = highest
        elif step == "sum":
            stats[SUM] = stats[SUM] * stats[THIRD] + scores.sum(axis=3)
        else:
            _change(machine, step, [scores], stats)
    return [(stats_place, stats), *_in_place(machine, work, steps, scores)]


def _in_place(machine: Machine, work: Work, steps: tuple[str, ...], scores: Floats) -> list[Write]:
    """Return what a pass over one kv tile writes of its scores: nothing if it only reduces them."""
    stays = work.number < machine.geometry.first_write or work.dst == work.src0
    if stays and ONLY_REDUCES.issuperset(steps):
        return []
    return [(machine.tile_at(work.dst, work), scores)]


def exp(machine: Machine, work: Work) -> list[Write]:
    """Let the MAC array turn a kv tile of C into P, not yet divided: `exp(C - maximum so far)`."""
    maximum = _finite(machine.stats_at(work.src1, work)[MAXIMUM])
    scores = machine.tile_at(work.src0, work) - maximum[..., None]
    return [(machine.tile_at(work.dst, work), np.exp(scores))]


def rescale(machine: Machine, work: Work) -> list[Write]:
    """Scale an unfinished output by the kv tile's correction; before the first product, clear it."""
    place = machine.sums_at(work.dst, work)
    if work.flags & FLAG_FIRST:
        return [(place, np.zeros_like(place))]
    return [(place, place * machine.stats_at(work.src1, work)[THIRD, ..., None])]


def add(machine: Machine, work: Work) -> list[Write]:
    """Add a partial output to the output; the first one is the output so far."""
    place, part = machine.sums_at(work.dst, work), machine.sums_at(work.src0, work)
    return [(place, part.copy() if work.flags & FLAG_FIRST else place + part)]


def normalize(machine: Machine, work: Work) -> list[Write]:
    """Divide an output by its rows' sums: those of the statistics, or of its own last column."""
    columns = machine.v.shape[3]
    sums = machine.sums_at(work.dst, work)
    total = sums[..., -1] if machine.geometry.exp_on_mac else machine.stats_at(work.src1, work)[SUM]
    return [(machine.at(work.dst, (*work.lead, columns)), sums[..., :columns] / total[..., None])]
