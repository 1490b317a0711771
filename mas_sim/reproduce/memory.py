"""DRAM accesses and what overwrite adds to them, the longest sequences, and what preemption is worth."""

from typing import Any

from mas_sim import plots
from mas_sim.arch import load_arch
from mas_sim.limits import sequence_limits
from mas_sim.report import make_report
from mas_sim.reproduce.book import Cell, Page
from mas_sim.reproduce.claims import judge
from mas_sim.reproduce.data import BASELINE, SUBJECT, Data, grouped, percent, ratios, times, values_of
from mas_sim.reproduce.networks import main_rows
from mas_sim.tiling import Tiling

FORCED = ("mas_overwrite_v", "mas_overwrite_k")


def traffic(page: Page, data: Data) -> None:
    """Write the DRAM accesses of MAS and FLAT."""
    points = main_rows(data, "latency")
    reads, writes = values_of(points, "dram_read_bytes"), values_of(points, "dram_write_bytes")
    rows: list[list[Cell]] = []
    for name in reads:
        cells = [int(of[name][flow]) for flow in (BASELINE, SUBJECT) for of in (reads, writes)]
        rows.append([name, *cells, times(reads[name][SUBJECT] / reads[name][BASELINE])])
    head = ["network", "flat reads", "flat writes", "mas reads", "mas writes", "reads, mas over flat"]
    page.heading("Twelve networks, at the optima of latency")
    page.table(head, rows, "DRAM bytes on mas_edge")
    page.rows(head, rows, "accesses", "The table")
    more = [name for name, one in ratios(reads, SUBJECT, BASELINE).items() if one > 1]
    fewer = [name for name, one in ratios(reads, SUBJECT, BASELINE).items() if one < 1]
    page.finding(
        f"MAS reads as many DRAM bytes as FLAT in {len(rows) - len(more) - len(fewer)} of {len(rows)} networks, "
        f"more in {len(more)} and fewer in {len(fewer)}; both write O once."
    )
    page.heading("Reads that overwrite adds")
    head = ["N", "overwrites", "K, V, Q read without, bytes", "read with overwrite, bytes", "of these, loaded again"]
    table: list[list[Cell]] = []
    for tokens, found in _forced(data, preempts=True).items():
        without = data.done("preemption", workload__seq=tokens, preemption__supported=True, dataflow=SUBJECT)
        plain = without[0]["dram_read_bytes"] if without else None
        for flow, result in found.items():
            again = result["overwrite"]["reloaded_bytes"]
            table.append([tokens, flow[-1].upper(), plain, result["dram_read_bytes"], again])
    page.table(head, table, "DRAM reads of mas with two heads, without overwrite and where it must overwrite V or K")
    page.rows(head, table, "overwrite", "The table")
    shares = [row[4] / row[3] for row in table if isinstance(row[3], int) and isinstance(row[4], int)]
    if shares:
        page.finding(
            f"Where MAS must overwrite, up to {100 * max(shares):.0f} % of its DRAM reads are tiles loaded again."
        )


def _forced(data: Data, *, preempts: bool) -> dict[int, dict[str, dict[str, Any]]]:
    """Return the results of `mas` where it must overwrite, by length and by what it overwrites."""
    found: dict[int, dict[str, dict[str, Any]]] = {}
    for row in data.done("preemption", preemption__supported=preempts):
        if row["dataflow"] in FORCED:
            found.setdefault(row["workload.seq"], {})[row["dataflow"]] = data.result(row["key"])
    return found


def longest(page: Page, data: Data) -> None:
    """Write the longest sequence of every dataflow."""
    limits = sequence_limits(load_arch("mas_edge"))
    rows: list[list[Cell]] = [[one.dataflow, one.cores, one.tokens, one.limited_by] for one in limits]
    head = ["dataflow", "active cores", "tokens", "limited by"]
    page.table(head, rows, "Longest sequence on mas_edge, E = 64, fp16")
    page.rows(head, rows, "limits", "The table")
    alone = {one.dataflow: one.tokens for one in limits if one.cores == 1}
    unused = percent(1 - data.claims["limit_flat"].high / alone[BASELINE])
    why = f"ours is where one row of scores fills L1; at the published length {unused} of it are unused"
    page.compare(
        judge(data.claims["limit_mas"], alone[SUBJECT], "two rows of scores", "two rows of scores fill L1"),
        judge(data.claims["limit_flat"], alone[BASELINE], why),
    )
    page.finding(f"One core can run {alone[SUBJECT]:,} tokens under MAS and {alone[BASELINE]:,} under FLAT.")


def preemption(page: Page, data: Data) -> None:
    """Write what preemption costs and is worth, and the test that could falsify the dataflow."""
    rows = data.done("preemption")
    cycles = {
        place: {row["dataflow"]: float(row["cycles"]) for row in part}
        for place, part in grouped(rows, "workload.seq", "preemption.supported").items()
    }
    _falsification(page, cycles)
    _stops(page, data)
    _price(page, data)
    shown = []
    for row in rows:
        waits = not row["preemption.supported"]
        if row["dataflow"] == BASELINE or (waits and row["dataflow"] not in FORCED):
            continue  # the same as with it
        flat = cycles[row["workload.seq"], row["preemption.supported"]][BASELINE]
        series = row["dataflow"] + (", no preemption" if waits else "")
        shown.append({**row, "series": series, "speedup over flat": flat / row["cycles"]})
    figure = plots.sweep_figure(shown, "workload.seq", y="speedup over flat", by="series")
    page.figure(figure, "lengths", "Speedup over flat, with overwrite of V or K, with and without preemption")
    columns = ("workload.seq", "preemption.supported", "dataflow", "cycles", "total_pj", "dram_bytes")
    page.data(rows, columns, "points", "Every figure")


def _falsification(page: Page, cycles: dict[tuple[int, bool], dict[str, float]]) -> None:
    """Say whether MAS without preemption is still faster than FLAT where it must overwrite."""
    page.heading("The falsification test")
    page.text(
        "On this machine overwrite is never forced: softmax in place needs two row blocks, the paper's own least, "
        "without it. So MAS is held to overwriting V or K here, with P beside C as the paper draws it, and stands "
        "against FLAT at its best."
    )
    ways = [f"{flow}, {how}" for flow in FORCED for how in ("preempts", "waits")]
    head = ["N", "flat", "mas, free to choose", *ways]
    rows: list[list[Cell]] = []
    wins: list[int] = []
    losses: list[int] = []
    differs = 0
    for tokens in dict.fromkeys(place[0] for place in cycles):
        yes, no = cycles.get((tokens, True), {}), cycles.get((tokens, False), {})
        forced = [(yes.get(flow), no.get(flow)) for flow in FORCED]
        rows.append([tokens, *(_over(yes.get(flow), yes.get(BASELINE)) for flow in (BASELINE, SUBJECT)),
                     *(_over(one, yes.get(BASELINE)) for pair in forced for one in pair)])  # fmt: skip
        differs += sum(pair[0] != pair[1] for pair in forced)
        best = min((pair[1] for pair in forced if pair[1] is not None), default=None)
        if best is not None:
            (wins if best < yes[BASELINE] else losses).append(tokens)
    page.table(head, rows, "Cycles over those of flat (below 1: faster than flat)")
    lengths = ", ".join(f"{tokens:,}" for tokens in wins) or "none"
    page.finding(
        f"Held to overwriting, and without stopping a product, MAS is still faster than FLAT at N = {lengths}, and "
        f"slower at the other {len(losses)} of {len(rows)} lengths."
    )
    outcome = "nothing: every optimum is the same to the cycle" if not differs else f"something in {differs} optima"
    page.finding(f"Whether the machine can stop a product in flight changes {outcome}.")


STOPPING = ((64, 128), (32, 512))
"""Tiles of Q and of K and V with which products are stopped, where all of K and V stays and V is overwritten."""

MACHINES: dict[str, dict[str, Any]] = {
    "stops, loses a tile": {},
    "stops, loses the product": {"preemption.lost_granularity": "matmul"},
    "stops, drains 300 cycles": {"preemption.drain_cycles": 300},
    "waits": {"preemption.supported": False},
}


def _price(page: Page, data: Data) -> None:
    """Say what stopping costs where it happens, at tilings that no search would choose."""
    page.heading("The price of a stop")
    sweep = data.sweeps["preemption"]
    workload = sweep.workloads[0]
    rows: list[list[Cell]] = []
    for q_tile, kv_tile in STOPPING:
        tiles = -(-workload.n_kv // kv_tile)
        kept: dict[str, Any] = {"k_resident_tiles": tiles, "v_resident_tiles": tiles, "softmax_in_place": False}
        for name, changes in MACHINES.items():
            arch, tiling = sweep.arch.with_(**changes), Tiling(q_tile=q_tile, kv_tile=kv_tile, overwrite="v", **kept)
            report = make_report(SUBJECT, arch, workload, tiling, check=False)
            assert report.overwrite is not None
            cost = report.overwrite
            rows.append([q_tile, kv_tile, name, report.cycles, cost.stops, cost.lost_mac_cycles, cost.reloaded_bytes])
    head = ["q_tile", "kv_tile", "the machine", "cycles", "products stopped", "MAC cycles lost", "bytes loaded again"]
    page.table(head, rows, f"{workload.name}, V overwritten, at tilings with which products are in the way")
    page.rows(head, rows, "price", "The table")
    dearest = max(int(str(row[5])) / int(str(row[3])) / sweep.arch.cores for row in rows)
    mixed = "; waiting instead is faster with one of two tilings, and slower with the other" if _mixed(rows) else ""
    page.finding(
        "At tilings where products are in the way, the MAC work lost by stopping them is at most "
        f"{100 * dearest:.1f} % of the time{mixed}."
    )


def _mixed(rows: list[list[Cell]]) -> bool:
    """Whether waiting is faster than stopping with some tilings, and slower with others."""
    ways = len(MACHINES)
    pairs = [(rows[at][3], rows[at + ways - 1][3]) for at in range(0, len(rows), ways)]
    return len({int(str(waits)) < int(str(stops)) for stops, waits in pairs}) > 1


def _over(value: float | None, base: float | None) -> Cell:
    return None if value is None or base is None else times(value / base)


def _stops(page: Page, data: Data) -> None:
    """Say what was stopped and lost at the optima."""
    page.heading("What is stopped, lost and loaded again")
    counted = ["overwrites made", "products stopped", "MAC cycles lost", "bytes loaded again", "energy of it, uJ"]
    head = ["N", "overwrites", "preemption", *counted]
    rows: list[list[Cell]] = []
    for preempts in (True, False):
        for tokens, found in _forced(data, preempts=preempts).items():
            for flow, result in found.items():
                cost = result["overwrite"]
                facts = [cost[name] for name in ("overwrites", "stops", "lost_mac_cycles", "reloaded_bytes")]
                how = "preempts" if preempts else "waits"
                rows.append([tokens, flow[-1].upper(), how, *facts, f"{cost['energy_pj'] / 1e6:,.1f}"])
    page.table(head, rows, "At the proven optima of mas where it must overwrite")
    page.rows(head, rows, "stops", "The table")
    stops = sum(int(str(row[4])) for row in rows)
    why = "" if stops else ": the best tilings let softmax write when no product reads those tiles"
    page.finding(f"At these optima {stops} products are stopped{why}; what overwrite costs is the loading again.")
