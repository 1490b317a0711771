"""Dataflows: pure functions from arch, workload and tiling to a schedule; each stands in a file of its own.

`build_schedule` is the entry: it checks, packs, calls the compiled emission and wraps what comes back.
"""

from dataclasses import dataclass, replace

import numpy as np

from mas_sim.arch import Arch
from mas_sim.costs import pack_problem, pack_softmax
from mas_sim.dataflows import _dispatch, _numbers
from mas_sim.dataflows._emission import make_book
from mas_sim.dataflows._numbers import softmax_form
from mas_sim.dataflows._plan import (
    active_core_count,
    cost_table,
    kind_bases,
    make_grid,
)
from mas_sim.dataflows._slots import window_tiles
from mas_sim.errors import ScheduleError, TilingError, nearest
from mas_sim.schedule import FIELDS, SLOT_BYTES, SLOT_TENSOR, TENSOR_NAMES, IntArray, Schedule
from mas_sim.tiling import OVERWRITES, Tiling
from mas_sim.workload import Workload

MAX_INSTRUCTIONS = 1 << 24
"""Longest schedule that is built: 16.8 million instructions, at about 100 bytes each with their times."""


@dataclass(frozen=True)
class Dataflow:
    """What the rest of the package needs to know of a dataflow.

    Attributes
    ----------
    number
        Its place in the compiled dispatch.
    score_buffers
        Legal numbers of row blocks (or tiles) of C and P in L1.
    in_place
        Whether P may take C's bytes, have bytes of its own, or both.
    overlaps, exp_on
        Legal values of those fields of a tiling; the first overlap is what `auto` stands for.
    form
        Form of its softmax (`costs.FORM_*`).
    """

    name: str
    number: int
    score_buffers: tuple[int, ...]
    summary: str
    in_place: tuple[bool, ...] = (True, False)
    overlaps: tuple[str, ...] = ("none",)
    exp_on: tuple[str, ...] = ("vec",)

    @property
    def form(self) -> int:
        """Form of its softmax, `costs.FORM_*`."""
        return softmax_form(self.number)

    def softmax(self, arch: Arch) -> IntArray:
        """Its softmax pass table on an arch, int64[passes, PASS_FIELDS]."""
        return pack_softmax(arch, self.form)


TILES_ONLY = (True,)

DATAFLOWS = {
    flow.name: flow
    for flow in (
        Dataflow("layer_wise", _numbers.LAYER_WISE, (1, 2), "three separate passes, C and P through DRAM"),
        Dataflow("soft_pipe", _numbers.SOFT_PIPE, (2, 3), "C and softmax pipelined, P through DRAM, then O"),
        Dataflow("flat", _numbers.FLAT, (1,), "fused by row blocks, in sequence: C_i, P_i, O_i"),
        Dataflow(
            "tileflow", _numbers.TILEFLOW, (2, 3), "fused, tiles of C_r and of an earlier O in turn, VEC by tiles",
            TILES_ONLY,
        ),
        Dataflow(
            "flash", _numbers.FLASH, (1,), "online softmax over kv tiles, in sequence or ping-pong", TILES_ONLY,
            ("none", "ping_pong"),
        ),
        Dataflow(
            "fusemax", _numbers.FUSEMAX, (1,), "online softmax, pipelined over kv tiles; exp on VEC or on MAC",
            TILES_ONLY, ("pipelined", "none"), ("vec", "mac"),
        ),
        Dataflow("mas", _numbers.MAS, (2, 3), "two streams: MAC does C_r and O_{r-2} while VEC does P_{r-1}"),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Footprint:
    """L1 bytes that a schedule needs, buffers of every depth counted.

    Attributes
    ----------
    core_bytes
        Span of one core's buffers.
    active_cores
        Cores that have work.
    total_bytes
        Bytes in the fullest L1: of all active cores if it is shared, of one if it is private.
    capacity_bytes
        What that L1 holds.
    by_tensor
        Bytes of each tensor's buffers on one core, all depths.
    """

    core_bytes: int
    active_cores: int
    total_bytes: int
    capacity_bytes: int
    by_tensor: dict[str, int]

    @property
    def over_bytes(self) -> int:
        """Bytes by which it does not fit; 0 if it fits."""
        return max(0, self.total_bytes - self.capacity_bytes)


def get_dataflow(name: str) -> Dataflow:
    """Return the dataflow of that name.

    Raises
    ------
    ScheduleError
        If there is none; names the nearest.
    """
    if name not in DATAFLOWS:
        near = nearest(name, list(DATAFLOWS))
        hint = f"; did you mean {near!r}?" if near else ""
        raise ScheduleError(f"no dataflow is called {name!r} (there are {', '.join(DATAFLOWS)}){hint}")
    return DATAFLOWS[name]


def legal_tiling(dataflow: str, arch: Arch, workload: Workload, tiling: Tiling) -> Tiling:
    """Return the tiling clipped to the workload, with a dataflow's only legal choice filled in and `auto` settled.

    Raises
    ------
    TilingError
        If a field is out of its range, or the dataflow cannot work with such a choice.
    """
    flow = get_dataflow(dataflow)
    tiling.check()
    tiling = tiling.clipped(workload)
    if len(flow.score_buffers) == 1:
        tiling = replace(tiling, score_buffers=flow.score_buffers[0])
    if tiling.overlap == "auto":
        tiling = replace(tiling, overlap=flow.overlaps[0])
    faults = [
        f"{name} of {dataflow} must be {' or '.join(map(_word, legal))} (got {_word(getattr(tiling, name))})"
        for name, legal in (
            ("score_buffers", flow.score_buffers),
            ("softmax_in_place", flow.in_place),
            ("overlap", flow.overlaps),
            ("exp_on", flow.exp_on),
        )
        if getattr(tiling, name) not in legal
    ]
    if faults:
        raise TilingError("; ".join(faults))
    if tiling.overwrite == "auto":
        tiling = _settle_auto(dataflow, arch, workload, tiling)
    fault = overwrite_fault(dataflow, arch, workload, tiling) or _exp_fault(flow, arch, workload, tiling)
    if fault:
        raise TilingError(fault)
    return tiling


def _word(value: object) -> str:
    """Write a tiling's value as a user would."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _exp_fault(flow: Dataflow, arch: Arch, workload: Workload, tiling: Tiling) -> str:
    """What keeps the MAC array from computing exp as a tiling says; empty if nothing does."""
    if tiling.exp_on == "vec":
        return ""
    if arch.mac.exp_steps is None:
        return f"exp_on mac needs an array that can do it: mac.exp_steps of {arch.name} is not set"
    p, t = pack_problem(arch, workload), replace(tiling, overwrite="none").pack()
    if not _dispatch.is_possible(flow.number, p, t, workload.n_kv):
        return (
            "exp_on mac keeps scores in the MAC array's accumulators: those of a kv tile (two if pipelined) do not fit "
            f"{arch.l0.accumulator_bytes:,} bytes; use a smaller q_tile or kv_tile"
        )
    return ""


def overwrite_fault(dataflow: str, arch: Arch, workload: Workload, tiling: Tiling) -> str:
    """What keeps a tiling from overwriting as it says; empty if nothing does."""
    if tiling.overwrite == "none":
        return ""
    name = tiling.overwrite.upper()
    if dataflow != "mas":
        return f"only mas overwrites: overwrite of {dataflow} must be none (got {tiling.overwrite})"
    if workload.mask != "none":
        return f"overwrite {tiling.overwrite} needs mask none (got {workload.mask}): which tiles are read last changes"
    if tiling.softmax_in_place or tiling.score_buffers != 2:
        return f"overwrite {tiling.overwrite} needs softmax_in_place false and score_buffers 2"
    resident = tiling.v_resident_tiles if tiling.overwrite == "v" else tiling.k_resident_tiles
    tiles = tiling.kv_tiles(workload)
    if resident < tiles:
        return f"overwrite {tiling.overwrite} needs all {tiles} tiles of {name} resident (got {resident})"
    p, t = pack_problem(arch, workload), tiling.pack()
    if window_tiles(p, t, workload.n_kv) > tiles:
        return f"a row block of P is larger than all tiles of {name} together: use a smaller q_tile"
    return ""


def _settle_auto(dataflow: str, arch: Arch, workload: Workload, tiling: Tiling) -> Tiling:
    """Return the tiling with the first overwrite that is possible and fits L1, or else `none`."""
    for choice in OVERWRITES:
        settled = replace(tiling, overwrite=choice)
        if choice != "none":
            settled = replace(settled, softmax_in_place=False, score_buffers=2)
        if not overwrite_fault(dataflow, arch, workload, settled) and not _span(dataflow, arch, workload, settled)[1]:
            return settled
    return replace(tiling, overwrite="none")


def _span(dataflow: str, arch: Arch, workload: Workload, tiling: Tiling) -> tuple[IntArray, int]:
    """Slot table of a settled tiling, and the bytes by which it does not fit."""
    p, t = pack_problem(arch, workload), tiling.pack()
    row_length = int(make_grid(p, t, False).row_length.max())
    slots, _ = _dispatch.plan_slots(get_dataflow(dataflow).number, p, t, row_length)
    total = int(_dispatch.span_bytes(slots)) * (int(active_core_count(p, t)) if arch.l1.shared else 1)
    return slots, max(0, total - arch.l1.capacity_bytes)


def footprint(dataflow: str, arch: Arch, workload: Workload, tiling: Tiling) -> Footprint:
    """L1 bytes that the dataflow needs for a tiling, whether or not they fit.

    Raises
    ------
    TilingError
        If the tiling is out of range.
    """
    tiling = legal_tiling(dataflow, arch, workload, tiling)
    p, t = pack_problem(arch, workload), tiling.pack()
    slots, _ = _span(dataflow, arch, workload, tiling)
    core_bytes, active = int(_dispatch.span_bytes(slots)), int(active_core_count(p, t))
    sizes = np.zeros(len(TENSOR_NAMES), np.int64)
    np.add.at(sizes, slots[:, SLOT_TENSOR], slots[:, SLOT_BYTES])
    by_tensor = {name: int(size) for name, size in zip(TENSOR_NAMES, sizes, strict=True) if size}
    total = core_bytes * (active if arch.l1.shared else 1)
    return Footprint(core_bytes, active, total, arch.l1.capacity_bytes, by_tensor)


def build_schedule(
    dataflow: str, arch: Arch, workload: Workload, tiling: Tiling, *, allow_overfull: bool = False
) -> Schedule:
    """Write the schedule of a dataflow.

    Parameters
    ----------
    allow_overfull
        Build it although it does not fit L1 (`audit` will say so); for studies and tests.

    Raises
    ------
    TilingError
        If a field is out of range, or the tiling does not fit L1 (says by how many bytes, and what takes them).
    ScheduleError
        If there is no such dataflow, or the schedule would be longer than `MAX_INSTRUCTIONS`.
    """
    flow = get_dataflow(dataflow)
    tiling = legal_tiling(dataflow, arch, workload, tiling)
    need = footprint(dataflow, arch, workload, tiling)
    if need.over_bytes and not allow_overfull:
        parts = ", ".join(f"{name} {size:,}" for name, size in need.by_tensor.items())
        raise TilingError(
            f"{dataflow} does not fit L1 by {need.over_bytes:,} bytes: needs {need.total_bytes:,} of "
            f"{need.capacity_bytes:,} on {need.active_cores} active core(s); bytes of one core's buffers: {parts}",
            over_bytes=need.over_bytes,
        )
    p, t, passes = pack_problem(arch, workload), tiling.pack(), flow.softmax(arch)
    bound = int(_dispatch.instruction_bound(flow.number, p, t, passes.shape[0]))
    if bound > MAX_INSTRUCTIONS:
        raise ScheduleError(
            f"this tiling needs about {bound:,} instructions; the limit is {MAX_INSTRUCTIONS:,}: use larger tiles"
        )
    grid = make_grid(p, t, True)
    kinds = kind_bases(flow.number, t, grid, passes)
    costs = cost_table(flow.number, p, t, passes, grid, kinds)
    slots, places = _dispatch.plan_slots(flow.number, p, t, int(grid.row_length.max()))
    code = np.empty((bound, FIELDS), np.int32)
    book = make_book(flow.number, p, t, kinds, costs.shape[0], grid, slots.shape[0], places)
    n = _dispatch.emit(code, book, slots.shape[0])
    return Schedule(dataflow, arch, workload, tiling, code[:n], costs, slots, grid, int(active_core_count(p, t)))
