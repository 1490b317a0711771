"""Does a schedule compute attention? It runs the very instructions of a timeline on numbers, and compares.

Each core has an L1 of float32 numbers at the places of the schedule's slots, one number for each element's bytes, all
NaN at first. An instruction knows only its own fields: it takes what its slots hold when it starts, and leaves its
result when it ends; in between, what it writes is NaN. So a wrong tile, a buffer reused too early or a read of what has
not come yet gives a wrong number or NaN in the output.

Q, K and V hold numbers that the workload's type can hold exactly, and int32 accumulators hold the sums of Q K^T
exactly. Everything else is float32: the rounding of C, P and O to the workload's type is not modelled.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mas_sim import _execute_products as products
from mas_sim import _execute_softmax as vector
from mas_sim._execute_machine import Floats, Machine, Work, Write
from mas_sim.accesses import event_ranks
from mas_sim.errors import ScheduleError
from mas_sim.geometry import make_geometry
from mas_sim.malformed import malformed
from mas_sim.overwrites import broken_timeline
from mas_sim.schedule import (
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
    Schedule,
)
from mas_sim.timeline import Timeline
from mas_sim.workload import UNLIMITED, Dtype, Workload

Doubles = npt.NDArray[np.float64]

INT8_STEP = np.float32(2.0**-5)
"""What one step of an int8 input stands for: -127 to 127 then cover four standard deviations."""

OPERATIONS: dict[int, Callable[[Machine, Work], list[Write]]] = {
    OP_LOAD_Q: products.load_q,
    OP_LOAD_K: products.load_k,
    OP_LOAD_V: products.load_v,
    OP_LOAD_C: products.load_c,
    OP_LOAD_P: products.load_p,
    OP_QK: products.qk,
    OP_PV: products.pv,
    OP_SOFTMAX: vector.softmax,
    OP_STORE_C: products.store_c,
    OP_STORE_P: products.store_p,
    OP_STORE_O: products.store_o,
    OP_MASK: vector.mask,
    OP_TILE_SOFTMAX: vector.tile_softmax,
    OP_ONLINE: vector.online,
    OP_RESCALE: vector.rescale,
    OP_ADD: vector.add,
    OP_NORMALIZE: vector.normalize,
    OP_EXP: vector.exp,
}
"""What each operation writes where, from what stands in L1 and DRAM when it starts."""


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
    """Draw Q, K and V from the standard normal distribution, rounded to what the workload's type can hold.

    Returns
    -------
    (float32[B, H, N_q, E], float32[B, H_kv, N_kv, E], float32[B, H_kv, N_kv, F])
        The same for the same seed, on any machine. Of fp16 and bf16 the nearest numbers of that type; of int8 whole
        numbers from -127 to 127 times `INT8_STEP`.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    batch, kv_heads, n_kv = workload.batch, workload.kv_heads, workload.n_kv
    q = rng.standard_normal((batch, workload.heads, workload.n_q, workload.head_dim_qk), dtype=np.float32)
    k = rng.standard_normal((batch, kv_heads, n_kv, workload.head_dim_qk), dtype=np.float32)
    v = rng.standard_normal((batch, kv_heads, n_kv, workload.head_dim_v), dtype=np.float32)
    return round_to(q, workload.dtype), round_to(k, workload.dtype), round_to(v, workload.dtype)


def round_to(values: Floats, dtype: Dtype) -> Floats:
    """Round finite numbers to the nearest that a type can hold, ties to even.

    Parameters
    ----------
    values : float32[...]
        Any numbers in the range of the type.
    dtype : {"fp16", "bf16", "int8"}
        bf16 is the upper half of a float32; int8 counts in steps of `INT8_STEP`, and ends at 127 of them.

    Returns
    -------
    float32[...]
        The rounded numbers.
    """
    if dtype == "fp16":
        return values.astype(np.float16).astype(np.float32)
    if dtype == "int8":
        counted: Floats = np.clip(np.rint(values / INT8_STEP), -127, 127) * INT8_STEP
        return counted
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    half = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    rounded: Floats = ((bits + half) & np.uint32(0xFFFF0000)).view(np.float32)
    return rounded


REFERENCE_ROWS = 1024
"""Rows of a head that the reference computes at once."""

MAX_EXECUTED_SCORES = 1 << 29
"""Scores `B H N_q N_kv` up to which reports execute a schedule (half a minute; 4 GiB where C and P go through DRAM)."""


def attention_reference(q: Floats, k: Floats, v: Floats, band: tuple[int, int] = (UNLIMITED, UNLIMITED)) -> Doubles:
    """Compute `softmax(Q K^T / sqrt(E)) V` in float64, head by head and by blocks of rows, so that memory stays small.

    Parameters
    ----------
    q : [B, H, N_q, E]
        Queries; head h uses the keys and values of head `h // (H / H_kv)`.
    k, v : [B, H_kv, N_kv, E], [B, H_kv, N_kv, F]
        Keys and values.
    band
        Keys that count before and behind a row's own position, `row + N_kv - N_q` (`Workload.band`).

    Returns
    -------
    float64[B, H, N_q, F]
        The attention output.
    """
    batch, heads, n_q, head_dim = q.shape
    share, n_kv = heads // k.shape[1], k.shape[2]
    output = np.empty((batch, heads, n_q, v.shape[3]))
    for b in range(batch):
        for h in range(heads):
            keys, values = k[b, h // share].astype(np.float64).T, v[b, h // share].astype(np.float64)
            for row in range(0, n_q, REFERENCE_ROWS):
                block = slice(row, row + REFERENCE_ROWS)
                scores = q[b, h, block].astype(np.float64) @ keys / np.sqrt(head_dim)
                distance = np.arange(n_kv) - (np.arange(row, row + len(scores))[:, None] + n_kv - n_q)
                scores[(distance < -band[0]) | (distance > band[1])] = -np.inf
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
    machine = Machine(schedule, timeline, q, k, v)
    on_its_way: dict[int, list[Write]] = {}
    n = len(schedule)
    start, end = event_ranks(timeline)
    event_of_rank = np.empty(2 * n, np.int64)
    event_of_rank[start] = np.arange(n)
    event_of_rank[end] = n + np.arange(n)
    with np.errstate(all="ignore"):  # NaN and garbage are part of the game
        for event in event_of_rank.tolist():
            if event < n:
                work = machine.work_of(event)
                on_its_way[event] = OPERATIONS[work.op](machine, work)
                for place, _ in on_its_way[event]:
                    place[...] = np.nan
            else:
                for place, value in on_its_way.pop(event - n):
                    place[...] = value
    error = np.abs(machine.output - attention_reference(q, k, v, schedule.workload.band))
    worst = float(error.max()) if np.isfinite(error).all() else float("inf")
    return ExecutionResult(machine.output, worst)
