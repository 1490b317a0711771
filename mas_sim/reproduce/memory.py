"""DRAM accesses and what overwrite adds to them, the longest sequences, and what preemption is worth."""

from collections.abc import Mapping, Sequence
from typing import Any

from mas_sim import plots
from mas_sim.arch import load_arch
from mas_sim.limits import MAX_SEQUENCE, SequenceLimit, sequence_limits
from mas_sim.reproduce.book import Cell, Page
from mas_sim.reproduce.claims import NEAR, judge
from mas_sim.reproduce.data import BASELINE, SUBJECT, TIES, Data, grouped, percent, ratios, times, values_of
from mas_sim.reproduce.networks import main_rows
from mas_sim.reproduce.overwriting import algorithm, price

ENDLESS = "nothing: the longest that mas_sim takes"
FORCED = ("mas_overwrite_v", "mas_overwrite_k")


def traffic(page: Page, data: Data) -> None:
    """Write the DRAM accesses of MAS and FLAT, and what overwrite adds."""
    points = main_rows(data, "latency")
    reads, writes = values_of(points, "dram_read_bytes"), values_of(points, "dram_write_bytes")
    rows: list[list[Cell]] = []
    for name in reads:
        cells = [int(of[name][flow]) for flow in (BASELINE, SUBJECT) for of in (reads, writes)]
        rows.append([name, *cells, reads[name][SUBJECT] / reads[name][BASELINE]])
    head = ["network", *(f"{flow} {way}, bytes" for flow in (BASELINE, SUBJECT) for way in ("reads", "writes")),
            "reads, mas over flat"]  # fmt: skip
    page.heading("Twelve networks, at the optima of latency" if not data.quick else "At the optima of latency")
    page.table(head, [[*row[:-1], _times(row[-1])] for row in rows], "DRAM bytes on mas_edge")
    page.rows(head, rows, "accesses", "The table", cases=True)
    more = [name for name, one in ratios(reads, SUBJECT, BASELINE).items() if one > 1]
    fewer = [name for name, one in ratios(reads, SUBJECT, BASELINE).items() if one < 1]
    same = all(one[SUBJECT] == one[BASELINE] for one in writes.values())
    page.finding(
        f"MAS reads as many DRAM bytes as FLAT in {len(rows) - len(more) - len(fewer)} of {len(rows)} networks, "
        f"more in {len(more)} and fewer in {len(fewer)}; " + ("both write the same." if same else "writes differ.")
    )
    _added(page, data)


def _added(page: Page, data: Data) -> None:
    """Say what overwrite adds to the reads of `mas`, and how much of that is tiles loaded again."""
    page.heading("Reads that overwrite adds")
    page.text(
        "mas with one head a core, at its optimum without overwrite, and at its optimum where it must overwrite V or "
        "K. The two tilings may differ, so what overwrite adds need not be the tiles that are loaded again: the rest "
        "depends on how tall row blocks are, and on how much of K and V stays in L1 meanwhile."
    )
    head = [
        "N", "overwrites", "q_tile without", "q_tile with", "K / V tiles that stay without", "with",
        "read without, bytes", "read with overwrite, bytes", "added by overwrite, bytes", "loaded again, bytes",
    ]  # fmt: skip
    table: list[list[Cell]] = []
    added: dict[tuple[int, str], tuple[int, int, int]] = {}
    for tokens, found in _forced(data, preempts=True).items():
        rows = data.done("preemption", workload__seq=tokens, preemption__supported=True, dataflow=SUBJECT)
        plain = data.result(rows[0]["key"]) if rows else None
        if plain is None or plain["overwrite"] is not None:
            continue  # nothing to compare with
        for flow, result in found.items():
            without, read, again = (
                plain["dram_read_bytes"], result["dram_read_bytes"], result["overwrite"]["reloaded_bytes"],
            )  # fmt: skip
            both = [one["tiling"] for one in (plain, result)]
            tiles = [one["q_tile"] for one in both]
            kept = [_kept(tokens, one) for one in both]
            tensor = flow[-1].upper()
            table.append([tokens, tensor, *tiles, *kept, without, read, read - without, again])
            added[tokens, tensor] = (without, read - without, again)
    page.table(head, table, "DRAM reads of mas with one head a core, without overwrite and where it must overwrite")
    page.rows(head, table, "overwrite", "The table", cases=True)
    if added:
        _added_findings(page, added)


def _added_findings(page: Page, added: Mapping[tuple[int, str], tuple[int, int, int]]) -> None:
    """Say what share of the added reads is tiles loaded again, from (reads without, added, loaded again)."""
    shares = {f"N = {n:,} ({tensor})": more / without for (n, tensor), (without, more, _) in added.items()}
    low, high = min(shares, key=lambda one: shares[one]), max(shares, key=lambda one: shares[one])
    page.finding(
        f"Having to overwrite adds {shares[low]:.1f} times (at {low}) to {shares[high]:.1f} times (at {high}) the DRAM "
        "reads of mas without it."
    )
    exact = [key for key, (_, more, again) in added.items() if more == again]
    under = {key: again / more for key, (_, more, again) in added.items() if more > again}
    over = {key: again / more for key, (_, more, again) in added.items() if 0 < more < again}
    parts = []
    if exact:
        parts.append(f"all of it is tiles loaded again in {len(exact)} of {len(added)} cases")
    if under:
        told = ", ".join(f"{percent(share)} at N = {n:,} ({tensor})" for (n, tensor), share in under.items())
        parts.append(
            f"they are only a part of it in {len(under)} ({told}), where the other tiling reads more by itself"
        )
    if over:
        told = ", ".join(f"{percent(share)} at N = {n:,} ({tensor})" for (n, tensor), share in over.items())
        parts.append(f"they are more than it in {len(over)} ({told}), where the other tiling reads less by itself")
    if parts:
        page.finding(f"Of what overwrite adds: {'; '.join(parts)}.")


def _kept(tokens: int, tiling: dict[str, Any]) -> str:
    """Write how many tiles of K and of V stay in L1, of how many."""
    return f"{tiling['k_resident_tiles']} / {tiling['v_resident_tiles']} of {-(-tokens // tiling['kv_tile'])}"


def _times(value: Cell) -> Cell:
    return times(value) if isinstance(value, float) else value


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
    rows: list[list[Cell]] = [
        [one.dataflow, one.cores, one.tokens, one.limited_by if one.tokens < MAX_SEQUENCE else ENDLESS]
        for one in limits
    ]
    head = ["dataflow", "active cores", "tokens", "limited by"]
    page.table(head, rows, "Longest sequence on mas_edge, E = 64, fp16")
    page.rows(head, rows, "limits", "The table", cases=True)
    alone = {one.dataflow: one for one in limits if one.cores == 1}
    mas, flat = data.claims["limit_mas"], data.claims["limit_flat"]
    ours, theirs = alone[BASELINE].tokens / alone[SUBJECT].tokens, flat.high / mas.high
    near = abs(ours / theirs - 1) <= NEAR
    ratio = f"FLAT's limit over that of MAS, {ours:.2f}, {'agrees with' if near else 'differs from'} the published"
    verdicts = []
    for claim, one in ((mas, alone[SUBJECT]), (flat, alone[BASELINE])):
        why = (
            f"ours is where rows of scores fill L1 {_to_the_last(one)}; at the published length "
            f"{percent(_unused(one, claim.high))} of L1 are unused; {ratio} {theirs:.2f}"
        )
        verdicts.append(judge(claim, one.tokens, why, why))
    page.compare(*verdicts)
    page.finding(
        f"One core can run {alone[SUBJECT].tokens:,} tokens under MAS and {alone[BASELINE].tokens:,} under FLAT, "
        f"{times(alone[SUBJECT].tokens / mas.high)} and {times(alone[BASELINE].tokens / flat.high)} the published "
        f"lengths: rows of scores then fill L1 {_to_the_last(alone[SUBJECT], alone[BASELINE])}. {ratio} {theirs:.2f}."
    )


def _to_the_last(*limits: SequenceLimit) -> str:
    """Say how full L1 is at some limits."""
    left = max(one.capacity_bytes - one.l1_bytes for one in limits)
    return "to the last byte" if left == 0 else f"but for {left:,} bytes"


def _unused(limit: SequenceLimit, tokens: float) -> float:
    """Return the share of L1 that is unused at a shorter length, where the rows that limit are as much shorter."""
    rows = limit.by_tensor[limit.limited_by] * limit.cores
    return 1 - (limit.l1_bytes - rows * (1 - tokens / limit.tokens)) / limit.capacity_bytes


def preemption(page: Page, data: Data) -> None:
    """Write what preemption costs and is worth, and the test that could falsify the dataflow."""
    rows = data.done("preemption")
    cycles = {
        place: {row["dataflow"]: int(row["cycles"]) for row in part}
        for place, part in grouped(rows, "workload.seq", "preemption.supported").items()
    }
    _falsification(page, cycles)
    columns = ("workload.seq", "preemption.supported", "dataflow", "cycles", "total_pj", "dram_bytes")
    page.data(rows, columns, "points", "Every point")
    _stops(page, data)
    price(page, data)
    algorithm(page, data)


def _falsification(page: Page, cycles: Mapping[tuple[int, bool], Mapping[str, int]]) -> None:
    """Say whether MAS without preemption is still faster than FLAT where it must overwrite V, and K."""
    page.heading("The falsification test")
    page.text(
        "On this machine overwrite is never forced: softmax in place needs two row blocks, the paper's own least, "
        "without it. So MAS is held to overwriting V or K here, with P beside C as the paper draws it, and stands "
        "against FLAT at its best."
    )
    ways = [f"{flow[-1].upper()} overwritten, {how}" for flow in FORCED for how in ("stops", "waits")]
    head = ["N", "flat, cycles", "mas, free to choose", *ways]
    shown: list[list[Cell]] = []
    waits: dict[str, dict[int, float]] = {flow: {} for flow in FORCED}
    free: dict[int, float] = {}
    changed = []
    for tokens in dict.fromkeys(place[0] for place in cycles):
        yes, no = cycles.get((tokens, True), {}), cycles.get((tokens, False), {})
        flat = yes.get(BASELINE)
        pairs = [(yes.get(flow), no.get(flow)) for flow in FORCED]
        shown.append(
            [tokens, flat, _over(yes.get(SUBJECT), flat), *(_over(one, flat) for pair in pairs for one in pair)]
        )
        changed += [_away(*pair) for pair in pairs if None not in pair]
        if flat is not None and SUBJECT in yes:
            free[tokens] = yes[SUBJECT] / flat
        for flow, (_, waiting) in zip(FORCED, pairs, strict=True):
            if flat is not None and waiting is not None:
                waits[flow][tokens] = waiting / flat
    table = [[*row[:2], *map(_times, row[2:])] for row in shown]
    page.table(head, table, "Cycles of mas over those of flat (below 1: faster than flat)")
    page.rows(head, shown, "falsification", "The table", cases=True)
    _speedups(page, cycles)
    for flow, found in waits.items():
        if found:
            told = f"Held to overwriting {flow[-1].upper()}, and without stopping a product, MAS is {_outcomes(found)}."
            page.finding(told, answers="falsification")
    _at_the_longest(page, waits, free)
    moved = [one for one in changed if one]
    what = f"{len(moved)} of {len(changed)} optima, by up to {percent(max(moved))}" if moved else ""
    page.finding(
        "Whether the machine can stop a product in flight changes "
        + (what or "nothing: every optimum takes the same cycles") + ".",
        answers="falsification",
    )  # fmt: skip


def _at_the_longest(page: Page, waits: Mapping[str, Mapping[int, float]], free: Mapping[int, float]) -> None:
    """Say how MAS stands at the longest length, where L1 is the scarcest."""
    last = max((tokens for found in waits.values() for tokens in found), default=None)
    if last is None:
        return
    told = [f"{times(found[last])} overwriting {flow[-1].upper()}" for flow, found in waits.items() if last in found]
    told += [f"{times(free[last])} where it is free to choose"] if last in free else []
    page.finding(
        f"At the longest length, N = {last:,}, where room in L1 is the scarcest and overwrite would matter most, MAS "
        f"takes these multiples of FLAT's cycles: {', '.join(told)}.",
        answers="falsification",
    )


def _outcomes(over: Mapping[int, float]) -> str:
    """Say at which lengths something is faster, equal or slower, from its cycles over those of FLAT by length."""
    kinds = {
        "faster than FLAT": [n for n, one in over.items() if one < 1 - TIES],
        f"equal within {percent(TIES)}": [n for n, one in over.items() if abs(one - 1) <= TIES],
        "slower": [n for n, one in over.items() if one > 1 + TIES],
    }
    parts = []
    for what, lengths in kinds.items():
        if not lengths:
            parts += [f"{what} nowhere"] if what.startswith("faster") else []
            continue
        low, high = times(min(over[n] for n in lengths)), times(max(over[n] for n in lengths))
        span = low if low == high else f"{low} to {high}"
        parts.append(f"{what} at N = {_listed(lengths)} ({span} its cycles)")
    return ", ".join(parts)


def _listed(lengths: Sequence[int]) -> str:
    """Write lengths, the last behind an `and`."""
    names = [f"{n:,}" for n in lengths]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _away(one: float | None, other: float | None) -> float:
    """Return by what share two figures differ."""
    return abs(one / other - 1) if one is not None and other is not None else 0.0


def _over(value: float | None, base: float | None) -> float | None:
    return None if value is None or base is None else value / base


def _speedups(page: Page, cycles: Mapping[tuple[int, bool], Mapping[str, int]]) -> None:
    """Draw the speedup over FLAT; stopping and waiting are one line where they take the same cycles everywhere."""
    x, y = "sequence length N", "speedup over FLAT"
    lengths = list(dict.fromkeys(place[0] for place in cycles))
    lines: dict[str, dict[int, float]] = {}
    for flow in (SUBJECT, *FORCED):
        name = "MAS, free to choose" if flow == SUBJECT else f"MAS, overwrites {flow[-1].upper()}"
        ways: dict[bool, dict[int, float]] = {True: {}, False: {}}
        for stops, found in ways.items():
            for n in lengths:
                at = cycles.get((n, stops), {})
                if flow in at and BASELINE in at:
                    found[n] = at[BASELINE] / at[flow]
        if flow in FORCED and ways[True] != ways[False]:
            lines |= {f"{name}, stops": ways[True], f"{name}, waits": ways[False]}
        else:
            lines[name] = ways[True]
    shown = [{x: n, y: value, "series": name} for name, found in lines.items() for n, value in found.items()]
    if shown:
        figure = plots.sweep_figure(shown, x, y=y, by="series", ideal=lambda _: 1.0, ideal_name="FLAT")
        same = not any(name.endswith("waits") for name in lines)
        told = "; a machine that stops products and one that waits take the same cycles" if same else ""
        page.figure(figure, "lengths", f"Speedup of MAS over FLAT by sequence length, one head a core{told}")


def _stops(page: Page, data: Data) -> None:
    """Say what was stopped and lost at the optima."""
    page.heading("What is stopped, lost and loaded again")
    head = [
        "N", "overwrites", "products in flight", "overwrites made", "products stopped", "MAC cycles lost",
        "bytes loaded again", "energy of it, pJ",
    ]  # fmt: skip
    rows: list[list[Cell]] = []
    for preempts in (True, False):
        for tokens, found in _forced(data, preempts=preempts).items():
            for flow, result in found.items():
                cost = result["overwrite"]
                facts = [
                    cost[name] for name in ("overwrites", "stops", "lost_mac_cycles", "reloaded_bytes", "energy_pj")
                ]
                rows.append([tokens, flow[-1].upper(), "are stopped" if preempts else "are waited for", *facts])
    halves = [[[*row[:2], *row[3:]] for row in rows if row[2] == how] for how in ("are stopped", "are waited for")]
    same = halves[0] == halves[1]
    table = [[*row[:-1], f"{float(str(row[-1])) / 1e6:,.1f}"] for row in rows if not same or row[2] == "are stopped"]
    also = "; a machine that waits has the same figures" if same else ""
    page.table([*head[:-1], "energy of it, uJ"], table, f"At the proven optima of mas where it must overwrite{also}")
    page.rows(head, rows, "stops", "Both machines", cases=True)
    free = [data.result(row["key"])["overwrite"] is None for row in data.done("preemption", dataflow=SUBJECT)]
    told = f"Free to choose, MAS overwrites nothing in {sum(free)} of {len(free)} cases. " if free else ""
    stops = sum(int(str(row[4])) for row in rows)
    none = " and no MAC work is lost: where softmax writes, no product is reading those tiles"
    page.finding(
        f"{told}At the optima where it must overwrite, {stops:,} products are stopped{'' if stops else none}.",
        answers="preemption",
    )
