"""What loads, stores and products do to the numbers of `execute`."""

import numpy as np

from mas_sim._execute_machine import Floats, Machine, Work, Write
from mas_sim.schedule import FLAG_FIRST, OP_STORE_C, OP_STORE_P


def load_q(machine: Machine, work: Work) -> list[Write]:
    """Bring a row block of Q."""
    place = machine.at(work.dst, (*work.lead, machine.q.shape[3]))
    return [(place, machine.q[work.batches, work.heads, work.rows])]


def load_k(machine: Machine, work: Work) -> list[Write]:
    """Bring a tile of K, or all tiles of its window."""
    return _load_kv(machine, machine.k, work)


def load_v(machine: Machine, work: Work) -> list[Write]:
    """Bring a tile of V, or all tiles of its window."""
    return _load_kv(machine, machine.v, work)


def _load_kv(machine: Machine, source: Floats, work: Work) -> list[Write]:
    """Load a tile, or all tiles of a window, one behind the other."""
    writes, behind = list[Write](), 0
    for j in range(work.tile, work.tile + work.step + 1):
        first = j * machine.tiling.kv_tile
        tile = source[work.batches, work.kv_heads, first : first + machine.tiling.kv_tile]
        writes.append((machine.at(work.dst, tile.shape, behind), tile))
        behind += tile.size
    return writes


def load_c(machine: Machine, work: Work) -> list[Write]:
    """Bring the scores of a row block."""
    return [
        (machine.scores_at(work.dst, work, *place), machine.dram_at(OP_STORE_C, work, *place).copy())
        for place in machine.steps(work)
    ]


def load_p(machine: Machine, work: Work) -> list[Write]:
    """Bring the probabilities of a kv tile."""
    return [(machine.tile_at(work.dst, work), machine.dram_at(OP_STORE_P, work, work.step, work.width).copy())]


def store_c(machine: Machine, work: Work) -> list[Write]:
    """Put the scores of a kv tile into DRAM."""
    return [(machine.dram_at(OP_STORE_C, work, work.step, work.width), machine.tile_at(work.src0, work).copy())]


def store_p(machine: Machine, work: Work) -> list[Write]:
    """Put the probabilities of a row block into DRAM."""
    return [
        (machine.dram_at(OP_STORE_P, work, *place), machine.scores_at(work.src0, work, *place).copy())
        for place in machine.steps(work)
    ]


def store_o(machine: Machine, work: Work) -> list[Write]:
    """Put an output row block into DRAM."""
    tile = machine.at(work.src0, (*work.lead, machine.output.shape[3]))
    return [(machine.output[work.batches, work.heads, work.rows], tile.copy())]


def qk(machine: Machine, work: Work) -> list[Write]:
    """Compute C = Q K^T of a kv tile; whole-numbered accumulators hold every sum exactly, as float64 does."""
    writes = []
    exact = machine.workload.accumulator == "int32"
    for part in (*work.again, work):
        q = machine.at(part.src0, (*part.lead, machine.q.shape[3]))
        k = machine.k_at(part).swapaxes(2, 3)
        scores = (q.astype(np.float64) @ k.astype(np.float64)).astype(np.float32) if exact else q @ k
        if machine.scale_in_product:
            scores *= machine.scale
        writes.append((machine.tile_at(part.dst, part), scores))
    return writes


def pv(machine: Machine, work: Work) -> list[Write]:
    """Add P V of a kv tile to the output, or let it be a partial output of its own.

    Where exp runs on the MAC array, the rows' sums come out as one more column, as if V had a column of ones.
    """
    place = machine.sums_at(work.dst, work)
    product = np.zeros_like(place)
    for part in (*work.again, work):
        p, v = machine.tile_at(part.src0, part), machine.v_at(part)
        if machine.geometry.exp_on_mac:
            v = np.concatenate([v, np.ones((*v.shape[:3], 1), np.float32)], axis=3)
        product += p @ v
    stands_alone = machine.geometry.adds or work.again or work.flags & FLAG_FIRST
    return [(place, product if stands_alone else place + product)]
