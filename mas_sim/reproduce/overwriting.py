"""What stopping a product for an overwrite costs, tiling by tiling; and one stop, step by step, in a real schedule."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from mas_sim import plots
from mas_sim.arch import Arch
from mas_sim.overwrites import begin_of
from mas_sim.report import Report, make_report
from mas_sim.reproduce.book import Cell, Page
from mas_sim.reproduce.data import SUBJECT, TIES, Data, percent, times
from mas_sim.results import result_names
from mas_sim.schedule import (
    F_FLAGS,
    F_GROUP,
    F_OP,
    F_OVER,
    F_QUEUE,
    F_RELOAD,
    F_ROW,
    F_TILE,
    FLAG_FIRST,
    LOAD,
    MAC,
    OP_PV,
    OP_QK,
    OP_SOFTMAX,
    OP_STORE_O,
    STORE,
    UNIT_NAMES,
    UNITS,
    VEC,
)
from mas_sim.tiling import Tiling
from mas_sim.trace import pass_steps, tiles_of
from mas_sim.workload import Workload

Tensor = Literal["v", "k"]
TENSORS: tuple[Tensor, ...] = ("v", "k")

KV_TILES = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512)
"""Rows of a tile of K and V that are tried; tiles of Q are multiples of the array's rows, up to the head dimension."""

BASE, PRODUCT, WAITS = "stops, loses a tile", "stops, loses the product", "waits"
DRAINS = (300, 3000)
MACHINES: dict[str, dict[str, Any]] = {
    BASE: {"preemption.lost_granularity": "tile"},
    PRODUCT: {"preemption.lost_granularity": "matmul"},
    **{f"stops, drains {cycles:,} cycles": {"preemption.drain_cycles": cycles} for cycles in DRAINS},
    WAITS: {"preemption.supported": False},
}
"""Ways to deal with a product that is in the way, as changes of the machine."""

SHOWN = (64, 128)
"""Tiles of Q and of K and V of the schedule in which one stop is shown."""


@dataclass(frozen=True)
class Run:
    """One tiling on one machine.

    Attributes
    ----------
    stops, behind
        Products stopped; those of them that were stopped behind their first tile, so that they had more to lose.
    back_cycles
        Cycles from the stop to when the tiles are back and known to be, of the stop with the fewest; 0 without stops.
    at_once
        Whether every stopped product runs again in the very cycle in which its tiles are known to be back.
    result
        The whole result.
    """

    cycles: int
    stops: int
    behind: int
    lost_mac_cycles: int
    reloaded_bytes: int
    back_cycles: int
    at_once: bool
    result: dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A tiling with which products are stopped, on every machine."""

    tensor: Tensor
    q_tile: int
    kv_tile: int
    overwrites: int
    runs: dict[str, Run]

    @property
    def name(self) -> str:
        """The tiles of Q and of K and V."""
        return f"{self.q_tile} x {self.kv_tile}"

    def over(self, machine: str) -> float:
        """Cycles over those of the machine that loses a tile."""
        return self.runs[machine].cycles / self.runs[BASE].cycles


def held_to(workload: Workload, tensor: Tensor, q_tile: int, kv_tile: int) -> Tiling:
    """Return the tiling of `mas` that keeps all of K and V and writes P over the last tiles of one of them."""
    tiles = -(-workload.n_kv // kv_tile)
    return Tiling(
        q_tile=q_tile, kv_tile=kv_tile, k_resident_tiles=tiles, v_resident_tiles=tiles, softmax_in_place=False,
        overwrite=tensor,
    )  # fmt: skip


def stopped(report: Report) -> list[int]:
    """Return the rows of the products that were stopped, in program order."""
    return [int(row) for row in np.flatnonzero(report.timeline.lost_cycles > 0)]


def run_of(report: Report) -> Run:
    """Read off what was stopped and lost, and when it ran again."""
    code, timeline, cost = report.schedule.instructions, report.timeline, report.overwrite
    assert cost is not None
    rows = stopped(report)
    back = timeline.end[code[rows, F_RELOAD]] + report.arch.sync_cycles
    after = back - timeline.start[code[rows, F_OVER]]
    return Run(
        cycles=report.cycles,
        stops=cost.stops,
        behind=int(((code[rows, F_FLAGS] & FLAG_FIRST) == 0).sum()),
        lost_mac_cycles=cost.lost_mac_cycles,
        reloaded_bytes=cost.reloaded_bytes,
        back_cycles=int(after.min()) if rows else 0,
        at_once=bool((timeline.start[rows] == back).all()),
        result=report.as_dict(),
    )


def cases_of(
    arch: Arch, workload: Workload, tensor: Tensor, q_tiles: Iterable[int], kv_tiles: Iterable[int]
) -> list[Case]:
    """Run every tiling of a grid, and return those with which the machine as it is stops products."""
    machines = {name: arch.with_(**changes) for name, changes in MACHINES.items()}
    found = []
    for q_tile in q_tiles:
        for kv_tile in kv_tiles:
            tiling = held_to(workload, tensor, q_tile, kv_tile)
            first = make_report(SUBJECT, machines[BASE], workload, tiling, check=False)
            if not stopped(first):
                continue
            assert first.overwrite is not None
            runs = {BASE: run_of(first)}
            for name in list(machines)[1:]:
                runs[name] = run_of(make_report(SUBJECT, machines[name], workload, tiling, check=False))
            found.append(Case(tensor, q_tile, kv_tile, first.overwrite.overwrites, runs))
    return found


def price(page: Page, data: Data) -> None:
    """Say what stopping costs where it happens, at tilings that no search would choose."""
    page.heading("The price of a stop")
    sweep = data.sweeps["preemption"]
    workload, drain = sweep.workloads[0], sweep.arch.preemption.drain_cycles
    q_tiles = range(sweep.arch.mac.rows, workload.head_dim_v + 1, sweep.arch.mac.rows)
    cases = {tensor: cases_of(sweep.arch, workload, tensor, q_tiles, KV_TILES) for tensor in TENSORS}
    both = [case for some in cases.values() for case in some]
    page.text(
        f"So that products are in the way, mas is held here to tilings that no search would choose: {workload.name}, "
        f"tiles of {', '.join(map(str, q_tiles))} rows of Q by {', '.join(map(str, KV_TILES))} of K and V, all of K "
        "and V kept, P written over the last tiles of V (or of K). Shown are those with which products are stopped. "
        f"The machines differ in what a stopped product loses (the tile in flight, or all of it), in how long it "
        f"drains ({drain} cycles unless said), and in whether it can be stopped at all; else softmax waits."
    )
    if not both:
        page.finding("With none of these tilings a product is stopped, so a stop has no price.", answers="preemption")
        return
    _table(page, cases["v"])
    _rows(page, both)
    for tensor, some in cases.items():
        if some:
            _figure(page, tensor.upper(), some)
            page.finding(_waiting(tensor.upper(), some), answers="preemption")
    page.finding(_draining(both), answers="preemption")
    page.finding(_losing(both, sweep.arch.cores), answers="preemption")


def _table(page: Page, cases: Sequence[Case]) -> None:
    """Show the cycles of every machine where V is overwritten."""
    others = list(MACHINES)[1:]
    head = ["q_tile", "kv_tile", "overwrites", "products stopped", "of them after their first tile", BASE, *others]
    rows: list[list[Cell]] = []
    for case in cases:
        base = case.runs[BASE]
        ratios = [times(case.over(name)) for name in others]
        rows.append([case.q_tile, case.kv_tile, case.overwrites, base.stops, base.behind, base.cycles, *ratios])
    page.table(head, rows, "V overwritten: cycles of the machine that loses a tile, and those of the others over them")


def _rows(page: Page, cases: Sequence[Case]) -> None:
    """Write every tiling on every machine."""
    head = (
        "overwritten", "q_tile", "kv_tile", "machine", "cycles", "overwrites", "products stopped",
        "of them after their first tile", "MAC cycles lost", "bytes loaded again", "least cycles until tiles are back",
    )  # fmt: skip
    rows: list[list[Cell]] = []
    for case in cases:
        for name, run in case.runs.items():
            facts = (run.stops, run.behind, run.lost_mac_cycles, run.reloaded_bytes, run.back_cycles)
            place = (case.tensor.upper(), case.q_tile, case.kv_tile, name)
            rows.append([*place, run.cycles, case.overwrites, *facts])
    page.rows(head, rows, "price", "Every tiling on every machine, of V and of K", cases=True)
    results = []
    for case in cases:
        at = {"overwrite": case.tensor, "q_tile": case.q_tile, "kv_tile": case.kv_tile}
        results += [{**run.result, "place": {**at, **MACHINES[name]}} for name, run in case.runs.items()]
    _behind(page, "price", results, "The schedule of each:")


def _behind(page: Page, name: str, results: list[dict[str, Any]], what: str) -> None:
    """Write results that are of no sweep, and say how one of them is built again."""
    file = f"results/{page.name}_{name}.json"
    page.book.write_results(file, results)
    pick = shlex.quote(result_names(results)[0])
    page.text(what)
    page.code(f"mas-sim run --from reports/{file} --pick {pick} --figure t.svg --trace t.json")


def _figure(page: Page, tensor: str, cases: Sequence[Case]) -> None:
    """Draw the cycles of every machine over those of the machine that loses a tile."""
    across, up = "tile of Q x tile of K and V (rows)", "cycles over those with a tile lost"
    shown = [{across: case.name, up: case.over(name), "machine": name} for case in cases for name in list(MACHINES)[1:]]
    figure = plots.sweep_figure(shown, across, y=up, by="machine", title=f"{tensor} overwritten")
    caption = f"{tensor} overwritten: cycles of every machine over those of the machine that stops and loses a tile"
    page.figure(figure, f"price_{tensor.lower()}", caption)


def _waiting(tensor: str, cases: Sequence[Case]) -> str:
    """Say how often waiting for the product is faster than stopping it."""
    ratios = {case.name: case.over(WAITS) for case in cases}
    faster = sum(one < 1 - TIES for one in ratios.values())
    slower = sum(one > 1 + TIES for one in ratios.values())
    low, high = min(ratios, key=lambda one: ratios[one]), max(ratios, key=lambda one: ratios[one])
    share = [case.runs[BASE].stops / case.overwrites for case in cases]
    often = percent(max(share)) if min(share) == max(share) else f"{percent(min(share))} to {percent(max(share))}"
    return (
        f"Held to tilings where overwriting {tensor} stops products ({len(cases)} found, {often} of their overwrites "
        f"stop one), a machine that waits for the product is faster in {faster}, equal within {percent(TIES)} in "
        f"{len(cases) - faster - slower} and slower in {slower}: {times(ratios[low])} ({low}) to "
        f"{times(ratios[high])} ({high}) the cycles of one that stops it."
    )


def _draining(cases: Sequence[Case]) -> str:
    """Say whether the drain matters, and what it hides behind if not."""
    names = [name for name in MACHINES if "drains" in name]
    changed = [case for case in cases if any(case.runs[name].cycles != case.runs[BASE].cycles for name in names)]
    tried = " and ".join(f"{cycles:,}" for cycles in DRAINS)
    if changed:
        worst = max(case.over(name) for case in changed for name in names)
        return f"A longer drain ({tried} cycles) changes {len(changed)} of {len(cases)} tilings, up to {times(worst)}."
    told = f"Drains of {tried} cycles change none of these {len(cases)} tilings"
    if not all(case.runs[BASE].at_once for case in cases):
        return f"{told}."
    least = min(case.runs[BASE].back_cycles for case in cases)
    return (
        f"{told}: a stopped product waits for its tiles anyway, and runs again in the very cycle in which they are "
        f"known to be back, {least:,} cycles after the stop or later. A drain that is shorter hides behind that."
    )


def _losing(cases: Sequence[Case], cores: int) -> str:
    """Say what is lost, and whether it matters how much of the product is."""
    changed = [case for case in cases if case.runs[PRODUCT].cycles != case.runs[BASE].cycles]
    behind = [case for case in cases if case.runs[BASE].behind]
    share = max(case.runs[BASE].lost_mac_cycles / case.runs[BASE].cycles / cores for case in cases)
    told = f"The MAC work lost by stopping is at most {percent(share)} of the time where a tile is lost. "
    told += f"Losing the whole product instead changes {len(changed) or 'none'} of {len(cases)} tilings"
    if changed:
        told += f", up to {times(max(case.over(PRODUCT) for case in changed))}"
    alike = len(cases) - len(behind)
    if alike and all(case in behind for case in changed):
        told += f": in {alike} every stopped product is in its first tile, so that both lose the same"
    return f"{told}."


# --- One stop, step by step ---


def algorithm(page: Page, data: Data) -> None:
    """Show the branch that the paper's Algorithm 1 lacks, in a real schedule."""
    page.heading("Algorithm 1's missing branch, in a real schedule")
    sweep = data.sweeps["preemption"]
    arch, cores = sweep.arch, sweep.arch.cores
    workload = sweep.workloads[0].with_(heads=cores, kv_heads=cores)
    report = make_report(SUBJECT, arch, workload, held_to(workload, "v", *SHOWN))
    where = f"{cores} heads of {workload.name} (N = {workload.n_kv}), tiles of {SHOWN[0]} rows of Q by {SHOWN[1]}"
    code = report.schedule.instructions
    mine = [row for row in stopped(report) if code[row, F_QUEUE] // UNITS == 0]
    if not mine:
        page.finding(f"No product is stopped in mas held to overwriting V ({where}).", answers="algorithm")
        return
    product = mine[len(mine) // 2]
    steps = steps_of(report, product)
    over, lost = code[product, F_OVER], int(report.timeline.lost_cycles[product])
    page.text(
        f"The branch as mas_sim builds it is spelled out in docs/model.md, section 4. Here it is in a schedule of mas "
        f"that is held to overwriting V on {arch.name}: {where}. One overwrite of core 0, in the order of time:"
    )
    head = ["from cycle", "to cycle", "unit", "what happens"]
    page.table(head, steps)
    page.rows(head, steps, "algorithm", "The table", cases=True)
    begin, end = int(begin_of(report.timeline)[product]), int(report.timeline.end[product])
    window = (max(0, begin - (end - begin) // 20), end + (end - begin) // 10)
    figure = plots.timeline_figure(report.schedule, report.timeline, window, core=0, occupancy=False)
    page.figure(figure, "algorithm", "The same overwrite as a timeline: what each unit of core 0 does")
    _behind(page, "algorithm", [report.as_dict()], "This schedule, as a whole:")
    drain = arch.preemption.drain_cycles
    back = int(report.timeline.end[code[product, F_RELOAD]] - report.timeline.start[over])
    page.finding(
        f"Halting, overwriting and recomputing are a branch of the schedule here, which is built, timed and checked: "
        f"in mas held to overwriting V ({where}) {len(stopped(report))} products are stopped. The one shown loses "
        f"{lost:,} MAC cycles of its tile and drains for {drain}; its tiles of V are back {back:,} cycles after "
        f"softmax began to write over them, and it runs again. {_checks(report)}",
        answers="algorithm",
    )


def _checks(report: Report) -> str:
    """Say what audit and execution found."""
    assert report.audit is not None
    audited = "The audit passes" if report.audit.ok else "The audit fails"
    if report.execution is None:
        return f"{audited}."
    return (
        f"{audited}; executed on numbers, the output is within {report.execution.max_abs_error:.1e} of attention in "
        "float64."
    )


def steps_of(report: Report, product: int) -> list[list[Cell]]:
    """List what happens around the stop of a product of O: from and to which cycle, on which unit, and what."""
    schedule, timeline, code = report.schedule, report.timeline, report.schedule.instructions
    core, over, back = int(code[product, F_QUEUE]) // UNITS, int(code[product, F_OVER]), int(code[product, F_RELOAD])
    block, next_block, tile = int(code[product, F_ROW]), int(code[over, F_ROW]), int(code[product, F_TILE])
    begin, writes = int(begin_of(timeline)[product]), int(timeline.start[over])
    lost, drained = int(timeline.lost_cycles[product]), writes + report.arch.preemption.drain_cycles

    def rows_of(unit: int, op: int, like: int) -> list[int]:
        """Return the rows of an operation of this core on the item of row `like`, in program order."""
        same = (code[:, [F_GROUP, F_ROW]] == code[like, [F_GROUP, F_ROW]]).all(axis=1)
        found = same & (code[:, F_QUEUE] == core * UNITS + unit) & (code[:, F_OP] == op)
        return [int(row) for row in np.flatnonzero(found)]

    def step(unit: int, rows: Sequence[int], what: str) -> list[Cell]:
        return [int(timeline.start[rows[0]]), int(timeline.end[rows[-1]]), UNIT_NAMES[unit], what]

    passes = rows_of(VEC, OP_SOFTMAX, over)
    reads, rest = [row for row in passes if row < over], [row for row in passes if row >= over]
    later = [row for row in rows_of(MAC, OP_PV, product) if row > product]
    scores = np.flatnonzero((code[:, F_QUEUE] == core * UNITS + MAC) & (code[:, F_OP] == OP_QK))
    scores = scores[scores > product]
    first, last = tiles_of(schedule, back)
    window = f"tiles {first} to {last} of V" if last > first else f"tile {first} of V"
    told: list[list[Cell]] = [[begin, writes, "MAC", f"O of row block {block}: the product with tile {tile} of V"]]
    if reads:
        names = ", ".join(name for row in reads for name in pass_steps(schedule, row))
        told.append(step(VEC, reads, f"softmax of row block {next_block}: {names}, which only read C"))
    names = ", ".join(name for row in rest for name in pass_steps(schedule, row))
    told += [
        [writes, drained, "MAC", f"stopped, since softmax begins to write; drains; {lost:,} cycles of work are lost"],
        step(VEC, rest, f"softmax of row block {next_block}: {names}; P is written over {window}"),
        step(LOAD, [back], f"{window} again, into the place that C of row block {next_block} has left"),
        step(MAC, [product], f"O of row block {block}: the product with tile {tile} of V again, lost work and all"),
    ]
    if later:
        told.append(step(MAC, later, f"O of row block {block}: the products with the other tiles, which waited"))
    if scores.size:
        after = rows_of(MAC, OP_QK, int(scores[0]))
        told.append(step(MAC, after, f"C of row block {int(code[after[0], F_ROW])}"))
    stores = rows_of(STORE, OP_STORE_O, product)
    return told + ([step(STORE, stores, f"O of row block {block}")] if stores else [])
