"""Builders that tests share: small machines and workloads, schedules written by hand, and random legal ones.

`MicroSchedule` writes a schedule line by line, for timings that can be worked out on paper. `schedules()` is a
hypothesis strategy of what the dataflows themselves write, `micro_schedules()` of what no dataflow ever would.
"""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np
from hypothesis import strategies as st

from mas_sim.arch import Arch, load_arch
from mas_sim.costs import FORM_ROWS
from mas_sim.dataflows import DATAFLOWS, build_schedule, legal_tiling, overwrite_fault
from mas_sim.errors import TilingError
from mas_sim.schedule import (
    C_CYCLES,
    COST_FIELDS,
    F_DEP0,
    F_DST,
    F_FLAGS,
    F_KIND,
    F_OP,
    F_QUEUE,
    F_SRC1,
    FIELDS,
    LOAD,
    MAC,
    MAX_DEPS,
    OP_LOAD_Q,
    OP_QK,
    OP_SOFTMAX,
    OP_STORE_O,
    SLOT_FIELDS,
    STORE,
    UNITS,
    VEC,
    Grid,
    Schedule,
)
from mas_sim.tiling import CORE_SPLITS, MAX_BUFFERS, OVERWRITES, Tiling
from mas_sim.timeline import Timeline
from mas_sim.workload import Workload

OP_OF_UNIT = {MAC: OP_QK, VEC: OP_SOFTMAX, LOAD: OP_LOAD_Q, STORE: OP_STORE_O}

Dep = tuple[str, bool]
"""Name of an earlier instruction, and whether it is only waited for because it still uses the buffer."""


@functools.cache
def edge() -> Arch:
    """Load the preset that small machines are made from, once."""
    return load_arch("mas_edge")


def small_arch(**changes: Any) -> Arch:
    """Make a machine whose every delay is zero, so that a test states just the ones it is about.

    One core; no issue, synchronisation, latency or set-up cycles; `changes` go by dotted path, as in `Arch.with_`:
    `small_arch(cores=2, **{"dram.latency_cycles": 7})`.
    """
    plain = {"cores": 1, "issue_cycles": 0, "sync_cycles": 0, "dram.latency_cycles": 0, "dram.setup_cycles": 0}
    return edge().with_(**(plain | changes))


def small_workload(**changes: Any) -> Workload:
    """Make a workload of one head, 16 x 16 scores and head dimension 16, in int8, except for `changes`."""
    values: dict[str, Any] = {"name": "small", "heads": 1, "n_q": 16, "n_kv": 16, "head_dim_qk": 16, "head_dim_v": 16}
    return Workload(**({**values, "dtype": "int8"} | changes))


class MicroSchedule:
    """A schedule written by hand, line by line, in program order.

        micro = MicroSchedule().load("a", cycles=10).mac("x", cycles=5, after=["a"])
        micro.spans(simulate(micro.build()))["x"] == (10, 15)

    Each line names an instruction; `after` lists those whose results it needs, `after_buffer` those that must have left
    its buffer first. Dependencies stand in the order `after`, then `after_buffer`.
    """

    def __init__(self, *, cores: int = 1, sync: int = 0, latency: int = 0, issue: int = 0) -> None:
        self._delays = (cores, sync, latency, issue)
        self.names: list[str] = []
        self._rows: list[tuple[int, int, list[int]]] = []  # queue, cycles, packed dependencies

    def add(self, unit: int, name: str, cycles: int, deps: Sequence[Dep] = (), core: int = 0) -> Self:
        """Append an instruction with its dependencies in the given order."""
        packed = [2 * self.names.index(other) + int(is_buffer) for other, is_buffer in deps]
        assert name not in self.names, f"two instructions are called {name}"
        self.names.append(name)
        self._rows.append((core * UNITS + unit, cycles, packed))
        return self

    def load(
        self, name: str, cycles: int, after: Iterable[str] = (), after_buffer: Iterable[str] = (), core: int = 0
    ) -> Self:
        """Append a load that holds the channel for `cycles`."""
        return self.add(LOAD, name, cycles, _deps(after, after_buffer), core)

    def store(
        self, name: str, cycles: int, after: Iterable[str] = (), after_buffer: Iterable[str] = (), core: int = 0
    ) -> Self:
        """Append a store that holds the channel for `cycles`."""
        return self.add(STORE, name, cycles, _deps(after, after_buffer), core)

    def mac(
        self, name: str, cycles: int, after: Iterable[str] = (), after_buffer: Iterable[str] = (), core: int = 0
    ) -> Self:
        """Append an instruction of the MAC unit."""
        return self.add(MAC, name, cycles, _deps(after, after_buffer), core)

    def vec(
        self, name: str, cycles: int, after: Iterable[str] = (), after_buffer: Iterable[str] = (), core: int = 0
    ) -> Self:
        """Append an instruction of the vector unit."""
        return self.add(VEC, name, cycles, _deps(after, after_buffer), core)

    def build(self) -> Schedule:
        """Return the schedule; its costs have one kind for each duration that occurs, and nothing but cycles."""
        durations = sorted({cycles for _, cycles, _ in self._rows})
        code = np.zeros((len(self._rows), FIELDS), np.int32)
        code[:, F_DST : F_SRC1 + 1] = -1
        code[:, F_DEP0:] = -1
        code[:, F_FLAGS] = 3
        for row, (queue, cycles, packed) in zip(code, self._rows, strict=True):
            row[F_OP], row[F_QUEUE], row[F_KIND] = OP_OF_UNIT[queue % UNITS], queue, durations.index(cycles)
            row[F_DEP0 : F_DEP0 + len(packed)] = packed
        costs = np.zeros((len(durations), COST_FIELDS), np.int64)
        costs[:, C_CYCLES] = durations
        nothing = np.zeros(1, np.int64)
        arch = _micro_arch(*self._delays)
        return Schedule(
            dataflow="by_hand",
            arch=arch,
            workload=_micro_workload(),
            tiling=Tiling(),
            instructions=code,
            costs=costs,
            slots=np.zeros((0, SLOT_FIELDS), np.int64),
            grid=Grid(*(nothing for _ in Grid._fields)),
            active_cores=arch.cores,
        )

    def spans(self, timeline: Timeline) -> dict[str, tuple[int, int]]:
        """First cycle of each instruction and the first one after it, by name."""
        return dict(zip(self.names, zip(timeline.start.tolist(), timeline.end.tolist(), strict=True), strict=True))


def nonzero_stalls(timeline: Timeline, core: int, unit: int) -> dict[str, int]:
    """Stall cycles of a queue by cause, without the causes that did not occur."""
    return {cause: cycles for cause, cycles in timeline.stalls_of(core, unit).items() if cycles}


def _deps(after: Iterable[str], after_buffer: Iterable[str]) -> list[Dep]:
    assert not isinstance(after, str), "after takes a list of names"
    assert not isinstance(after_buffer, str), "after_buffer takes a list of names"
    return [(name, False) for name in after] + [(name, True) for name in after_buffer]


@functools.lru_cache(maxsize=4096)
def _micro_arch(cores: int, sync: int, latency: int, issue: int) -> Arch:
    delays = {"sync_cycles": sync, "dram.latency_cycles": latency, "issue_cycles": issue}
    return small_arch(cores=cores, **delays)


@functools.cache
def _micro_workload() -> Workload:
    return small_workload()


class Problem(NamedTuple):
    """What a dataflow turns into a schedule."""

    dataflow: str
    arch: Arch
    workload: Workload
    tiling: Tiling

    def build(self) -> Schedule:
        """Return the schedule."""
        return build_schedule(*self)


@st.composite
def archs(draw: st.DrawFn) -> Arch:
    """Draw a machine of 1 to 3 cores; delays, softmax passes, path, timing of the array and preemption are mixed."""
    steps = ["max", "subtract", "exp", "sum", "divide"]
    cuts = (
        *([steps], [steps[:1], steps[1:]], [[step] for step in steps], [["scale", "max"], steps[1:4], steps[4:]]),
        *([steps[:3], ["sum", "reciprocal", "multiply"]], [["scale"], steps[:4], ["reciprocal"], ["multiply"]]),
    )
    passes = draw(st.sampled_from(cuts))
    path = draw(st.sampled_from(["l1", "direct", "dram"]))
    changes = {
        "cores": draw(st.integers(1, 3)),
        "sync_cycles": draw(st.sampled_from([0, 1, 8, 100])),
        "issue_cycles": draw(st.sampled_from([0, 1, 2, 30])),
        "dram.latency_cycles": draw(st.sampled_from([0, 1, 20, 375])),
        "dram.setup_cycles": draw(st.sampled_from([0, 16])),
        "dram.bandwidth_gb_per_s": draw(st.sampled_from([0.7, 30, 400])),
        "mac.timing": draw(st.sampled_from(["ideal", "pipelined", "systolic"])),
        "vec.softmax_passes": passes,
        "l0.accumulator_kib": draw(st.sampled_from([1, 64])),
        "l1.shared": draw(st.booleans()),
        "mac_vec_path.kind": path,
        "mac_vec_path.bytes_per_cycle": None if path == "l1" else draw(st.sampled_from([1, 64])),
        "vec.lanes": draw(st.sampled_from([1, 4, 16, 256])),
        "vec.op_lane_cycles.max": draw(st.sampled_from([1, 4, 20])),
        "preemption.supported": draw(st.booleans()),
        "preemption.drain_cycles": draw(st.sampled_from([0, 5, 30])),
        "preemption.lost_granularity": draw(st.sampled_from(["tile", "matmul"])),
    }
    return edge().with_(**changes)


@st.composite
def random_tiling(draw: st.DrawFn, dataflow: str | None = None) -> Problem:
    """Draw a legal tiling with the workload and machine it is for.

    Ragged last tiles, several batches and heads, grouped-query attention, masks, all data types, every residency and
    buffering, softmax in place or not, proactive overwrite, all overlaps, exp on both units and both core splits occur.
    A schedule of it has at most some 400 instructions, and always fits L1.
    """
    name = dataflow or draw(st.sampled_from(sorted(DATAFLOWS)))
    flow = DATAFLOWS[name]
    overwrite = draw(st.sampled_from(OVERWRITES)) if name == "mas" else "none"
    kv_heads = draw(st.integers(1, 3))
    batch, heads = draw(st.integers(1, 2)), kv_heads * draw(st.integers(1, 3))
    head_tile = draw(st.integers(1, heads))
    batch_tile = draw(st.integers(1, batch))
    groups = -(-batch // batch_tile) * -(-heads // head_tile)
    rows = draw(st.integers(1, max(1, min(5, 12 // groups))))
    pairs = 40 if flow.form == FORM_ROWS else 24  # those that do softmax tile by tile write more for each
    kv_tiles = draw(st.integers(1, max(1, min(5, pairs // (groups * rows)))))
    head_dims = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    # Overwrite needs row blocks of P that are no larger than all of V (K).
    window = head_dims[overwrite == "v"] * -(-head_tile * kv_heads // heads) // head_tile
    q_tile = draw(st.integers(1, 24 if overwrite == "none" else max(1, min(24, window))))
    kv_tile = draw(st.integers(1, 24))
    n_q = (rows - 1) * q_tile + draw(st.integers(1, q_tile))
    n_kv = (kv_tiles - 1) * kv_tile + draw(st.integers(1, kv_tile))
    workload = small_workload(
        batch=batch,
        heads=heads,
        kv_heads=kv_heads,
        n_q=n_q,
        n_kv=n_kv,
        head_dim_qk=head_dims[0],
        head_dim_v=head_dims[1],
        **draw(st.sampled_from(DTYPES)),
        **(draw(masks(n_q, n_kv)) if overwrite == "none" else {}),
    )
    buffers = st.integers(1, MAX_BUFFERS)
    tiling = Tiling(
        batch_tile=batch_tile,
        head_tile=head_tile,
        q_tile=q_tile,
        kv_tile=kv_tile,
        k_resident_tiles=draw(st.integers(0, kv_tiles)),
        v_resident_tiles=draw(st.integers(0, kv_tiles)),
        q_buffers=draw(buffers),
        k_buffers=draw(buffers),
        v_buffers=draw(buffers),
        score_buffers=draw(st.sampled_from(flow.score_buffers)),
        o_buffers=draw(buffers),
        core_split=draw(st.sampled_from(CORE_SPLITS)),
        softmax_in_place=draw(st.sampled_from(flow.in_place)),
        overlap=draw(st.sampled_from(flow.overlaps)),
    )
    arch, exp_on = draw(archs()), draw(st.sampled_from(flow.exp_on))
    tiling = computing_exp(name, arch, workload, tiling, exp_on)
    return Problem(name, arch, workload, overwriting(name, arch, workload, tiling, overwrite))


DTYPES = (
    *({"dtype": "fp16"}, {"dtype": "bf16"}, {"dtype": "int8"}),
    {"dtype": "int8", "accumulator": "fp32"},
)
"""All data types that a workload can have."""


@st.composite
def masks(draw: st.DrawFn, n_q: int, n_kv: int) -> dict[str, Any]:
    """Draw the fields of a mask that leaves every row a key: none, causal, or a window on either side."""
    kinds = ["none", "sliding_window"] + (["causal"] if n_q <= n_kv else [])
    kind = draw(st.sampled_from(kinds))
    if kind != "sliding_window":
        return {"mask": kind}
    least = max(0, n_q - n_kv)
    ahead = draw(st.integers(least, max(least, n_kv)))
    return {"mask": kind, "window_back": draw(st.integers(0, n_kv)), "window_ahead": ahead}


def computing_exp(dataflow: str, arch: Arch, workload: Workload, tiling: Tiling, exp_on: str) -> Tiling:
    """Let a unit compute exp; return the tiling as it is if that is not legal."""
    changed = replace(tiling, exp_on=exp_on)
    try:
        legal_tiling(dataflow, arch, workload, changed)
    except TilingError:
        return tiling
    return changed


def overwriting(dataflow: str, arch: Arch, workload: Workload, tiling: Tiling, overwrite: str) -> Tiling:
    """Change a tiling as little as that overwrite needs; return it as it is if nothing makes the overwrite legal."""
    if overwrite == "none":
        return tiling
    resident: dict[str, Any] = {f"{overwrite}_resident_tiles": tiling.kv_tiles(workload)}
    changed = replace(tiling, overwrite=overwrite, softmax_in_place=False, score_buffers=2, **resident)
    return tiling if overwrite_fault(dataflow, arch, workload, changed.clipped(workload)) else changed


def schedules(dataflow: str | None = None) -> st.SearchStrategy[Schedule]:
    """Schedules that a dataflow (any, unless it is named) writes for a `random_tiling`."""
    return random_tiling(dataflow).map(Problem.build)


@st.composite
def micro_schedules(draw: st.DrawFn) -> MicroSchedule:
    """Draw any instructions with any dependencies, in durations so short that many things happen in one cycle.

    Dependencies cross units and cores, repeat, and wait for results or buffers; compute may take no time at all,
    transfers take at least one cycle. The delays of the machine are drawn too.
    """
    cores = draw(st.integers(1, 3))
    delays = st.sampled_from([0, 1, 2, 3, 7])
    micro = MicroSchedule(cores=cores, sync=draw(delays), latency=draw(delays), issue=draw(delays))
    n = draw(st.integers(0, 24))  # drawn first, or else most schedules would be short
    line = st.tuples(st.integers(0, cores * UNITS - 1), st.integers(0, 6))
    lines = draw(st.lists(line, min_size=n, max_size=n))
    for i, (queue, cycles) in enumerate(lines):
        core, unit = divmod(queue, UNITS)
        deps: list[Dep] = []
        if i:
            earlier = st.tuples(st.integers(1, min(i, 8)), st.booleans())
            deps = [(str(i - back), is_buffer) for back, is_buffer in draw(st.lists(earlier, max_size=MAX_DEPS))]
        micro.add(unit, str(i), max(cycles, 1) if unit >= LOAD else cycles, deps, core)
    return micro
