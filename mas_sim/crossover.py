"""Long sequences: which dataflow wins at which length, where overwrite pays, and where nothing fits."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mas_sim.arch import Arch
from mas_sim.comparison import Misfit, StepProgress, require_name, search_facts
from mas_sim.dataflows import DATAFLOWS
from mas_sim.energy_table import Level
from mas_sim.errors import MasSimError
from mas_sim.report import make_report
from mas_sim.search.base import NothingFitsError
from mas_sim.search.candidates import MAX_CANDIDATES
from mas_sim.search.exhaustive import ExhaustiveSearch
from mas_sim.search.objective import Objective, objective_value
from mas_sim.search.space import SearchSpace
from mas_sim.workload import Workload

OVERWRITING = "mas_overwrite"
"""The series of `mas` with proactive overwrite of V or K, whichever is better; `mas` is then without."""

OVERWRITES = {OVERWRITING: ("v", "k"), f"{OVERWRITING}_v": ("v",), f"{OVERWRITING}_k": ("k",)}
"""What `mas` must write P over, by the name of the series that is held to it."""

SERIES = ("layer_wise", "flat", "mas", OVERWRITING)

MAX_LENGTHS = 1000
MAX_TOKENS = 2**24


@dataclass(frozen=True)
class SeriesResult:
    """What is kept of a series' report at one length: not its schedule, which may take a gigabyte.

    Attributes
    ----------
    facts
        The report as plain data (`Report.as_dict`), as simulated.
    scale
        How many times as many heads the workload has as were simulated; 1 if all were.
    """

    facts: dict[str, Any]
    scale: float = 1.0

    @property
    def cycles(self) -> int:
        """Cycles of all heads, from the first instruction to the last one's end."""
        cycles: int = self.facts["cycles"]
        return round(cycles * self.scale)

    @property
    def energy_pj(self) -> float:
        """Energy of all components and heads."""
        return float(self.facts["energy_pj"]["total"]) * self.scale

    @property
    def dram_bytes(self) -> int:
        """DRAM bytes read and written for all heads."""
        moved: int = self.facts["dram_read_bytes"] + self.facts["dram_write_bytes"]
        return round(moved * self.scale)

    def as_dict(self) -> dict[str, Any]:
        """Return the facts, and what they come to for all heads."""
        whole = {"cycles": self.cycles, "energy_pj": self.energy_pj, "dram_bytes": self.dram_bytes}
        return {**self.facts, "fits": True, "scale": self.scale, "all_heads": whole}


@dataclass(frozen=True)
class CrossoverPoint:
    """What the series make of one sequence length.

    Attributes
    ----------
    results
        What each series reports at its proven best tiling, or a misfit where nothing fits or can be simulated.
    values
        The objective of those that were simulated.
    winner
        The series with the best objective, of those simulated; of equals the first, so `mas_overwrite` only wins where
        it pays. None where there are none.
    simulated_heads
        Heads of all batches that were simulated. Fewer than there are where some series' schedule would else be too
        long: then the same few for every series, and cycles, energy and bytes are scaled, since heads repeat.
    """

    tokens: int
    results: dict[str, SeriesResult | Misfit]
    values: dict[str, float]
    winner: str | None
    simulated_heads: int

    def beats(self, series: str, other: str) -> bool:
        """Whether one series is better than another: strictly, or because the other does not fit.

        One that fits, but is too long to simulate, may be better or not: nothing beats it.
        """
        if series not in self.values:
            return False
        return self.does_not_fit(other) if other not in self.values else self.values[series] < self.values[other]

    def does_not_fit(self, series: str) -> bool:
        """Whether no tiling of a series fits L1."""
        result = self.results[series]
        return isinstance(result, Misfit) and result.over_bytes > 0

    def as_dict(self) -> dict[str, Any]:
        """Return the point as plain data."""
        series = {}
        for name, result in self.results.items():
            series[name] = result.as_dict()
        return {
            "seq": self.tokens,
            "winner": self.winner,
            "simulated_heads": self.simulated_heads,
            "series": series,
        }

    def row(self) -> dict[str, Any]:
        """Return what a figure shows: `n`, `winner` and cycles, energy and DRAM bytes of each series."""
        results: dict[str, dict[str, float] | None] = {}
        for name, result in self.results.items():
            results[name] = None
            if isinstance(result, SeriesResult):
                facts = {"cycles": result.cycles, "energy_pj": result.energy_pj, "dram_bytes": result.dram_bytes}
                results[name] = facts
        return {"n": self.tokens, "results": results, "winner": self.winner}


def parse_lengths(text: str) -> list[int]:
    """Parse `seq=512:131072:x2` (each twice the one before), `seq=512:2048:512` (steps), or `seq=512,768`.

    Raises
    ------
    MasSimError
        If it is none of these, or a length is not in 1..2**24.
    """
    match = re.fullmatch(r"seq=(?:([0-9]{1,9}):([0-9]{1,9}):(x?)([0-9]{1,9})|([0-9]{1,9}(?:,[0-9]{1,9})*))", text)
    lengths: list[int] = []
    if match and match[5]:
        lengths = [int(part) for part in match[5].split(",")]
    elif match:
        at, last, by = int(match[1]), int(match[2]), int(match[4])
        if by < (2 if match[3] else 1):
            raise MasSimError(f"--over {text!r}: the step must grow the length")
        while 0 < at <= last and len(lengths) <= MAX_LENGTHS:
            lengths.append(at)
            at = at * by if match[3] else at + by
    if not 1 <= len(lengths) <= MAX_LENGTHS or not all(1 <= n <= MAX_TOKENS for n in lengths):
        form = "seq=FIRST:LAST:xFACTOR, seq=FIRST:LAST:STEP or seq=N,N,..."
        raise MasSimError(f"--over must be {form}, with 1 to {MAX_LENGTHS} lengths in 1..2**24 (got {text[:60]!r})")
    return lengths


def swept_space(name: str, arch: Arch, workload: Workload, *, limit: int = MAX_CANDIDATES) -> SearchSpace:
    """Return the whole space of a dataflow; of a name in `OVERWRITES` the tilings of `mas` that overwrite those."""
    if name in OVERWRITES:
        return SearchSpace("mas", arch, workload, limit=limit, in_place=(False,), overwrites=OVERWRITES[name])
    return SearchSpace(name, arch, workload, limit=limit)


def series_space(series: str, arch: Arch, workload: Workload) -> SearchSpace:
    """Return the space that a series is searched over."""
    if series == OVERWRITING:
        return swept_space(series, arch, workload)
    return SearchSpace(series, arch, workload, overwrites=("none",))


def crossover(
    arch: Arch,
    workload: Workload,
    lengths: Sequence[int],
    series: Sequence[str] = SERIES,
    objective: str = "latency",
    *,
    energy_level: Level = "nominal",
    progress: StepProgress | None = None,
) -> Iterator[CrossoverPoint]:
    """Search every series at every sequence length (N_q = N_kv), and name the winner of each.

    What is asked for is checked at once; the points then come one by one, as they are found.

    Parameters
    ----------
    series
        Dataflows, and `mas_overwrite`.

    Raises
    ------
    MasSimError
        If a series or the objective is unknown, a series is given twice, or there is none.
    ConfigError
        If a length makes the workload too large.
    """
    Objective.parse(objective)
    if not series or len(set(series)) < len(series):
        raise MasSimError(f"each series must be given once (got {', '.join(series) or 'none'})")
    for name in series:
        require_name("series", name, (*DATAFLOWS, OVERWRITING))
    workloads = [workload.with_(n_q=tokens, n_kv=tokens) for tokens in lengths]
    return (_point(arch, at, series, objective, energy_level, progress) for at in workloads)


def _point(
    arch: Arch, workload: Workload, series: Sequence[str], objective: str, level: Level, progress: StepProgress | None
) -> CrossoverPoint:
    """Search every series at one length; with one K/V head a core, if fewer of them are then too long to simulate.

    Not with fewer still: idle cores would leave their L1 to the others, and that would be another machine.
    """
    share, heads = workload.heads // workload.kv_heads, workload.batch * workload.heads
    best, simulated = _search_all(arch, workload, series, objective, level, progress), heads
    left = sum(_is_too_long(result) for result in best.values())
    if left and arch.cores * share < heads:
        few = workload.with_(batch=1, heads=arch.cores * share, kv_heads=arch.cores)
        results = _search_all(arch, few, series, objective, level, progress)
        if sum(_is_too_long(result) for result in results.values()) < left:
            best, simulated = results, few.heads
    scale = heads / simulated
    best = {name: replace(r, scale=scale) if isinstance(r, SeriesResult) else r for name, r in best.items()}
    values = {
        name: float(objective_value(objective, np.array([float(r.cycles)]), np.array([r.energy_pj]))[0])
        for name, r in best.items()
        if isinstance(r, SeriesResult)
    }
    winner = min(values, key=lambda name: values[name]) if values else None
    return CrossoverPoint(workload.n_q, best, values, winner, simulated)


def _is_too_long(result: SeriesResult | Misfit) -> bool:
    """Whether a series fits, but its schedule is too long to simulate."""
    return isinstance(result, Misfit) and result.over_bytes == 0


def _search_all(
    arch: Arch, workload: Workload, series: Sequence[str], objective: str, level: Level, progress: StepProgress | None
) -> dict[str, SeriesResult | Misfit]:
    """Search every series on one workload."""
    results: dict[str, SeriesResult | Misfit] = {}
    for name in series:

        def step(done: int, total: int, what: str = f"N = {workload.n_q:,} {name}") -> None:
            if progress is not None:
                progress(what, done, total)

        step(0, 0)
        space = series_space(name, arch, workload)
        try:
            found = ExhaustiveSearch().search(space, objective, step, energy_level=level)
        except NothingFitsError as error:
            results[name] = Misfit(workload.name, name, error.over_bytes, str(error))
            continue
        report = make_report(
            space.dataflow, arch, workload, found.best.tiling, energy_level=level, check=False,
            proven_optimal=found.proven_optimal, search=search_facts(found),
        )  # fmt: skip
        results[name] = SeriesResult(report.as_dict())
        del report  # before the next search, which needs the memory
    return results


def findings(points: Sequence[CrossoverPoint]) -> dict[str, list[int]]:
    """Say at which lengths overwrite pays, `mas` loses to `flat`, and nothing can run; for the series there are.

    Returns
    -------
    dict
        `overwrite_pays`: `mas_overwrite` beats `mas`; `mas_loses_to_flat`: `flat` beats `mas`, with overwrite and
        without; `nothing_fits`: no series fits L1. One that would compare series which were not asked for is left out.
    """
    series = set(points[0].results) if points else set()
    result: dict[str, list[int]] = {}
    if {"mas", OVERWRITING} <= series:
        result["overwrite_pays"] = [p.tokens for p in points if p.beats(OVERWRITING, "mas")]
    ours = [name for name in ("mas", OVERWRITING) if name in series]
    if ours and "flat" in series:
        lost = [p.tokens for p in points if all(p.beats("flat", name) for name in ours)]
        result["mas_loses_to_flat"] = lost
    result["nothing_fits"] = [p.tokens for p in points if all(map(p.does_not_fit, p.results))]
    return result


def too_long(points: Sequence[CrossoverPoint]) -> dict[str, list[int]]:
    """Say at which lengths a series fits, but could not be simulated; series without any are left out."""
    result: dict[str, list[int]] = {}
    for point in points:
        for name in point.results:
            if name not in point.values and not point.does_not_fit(name):
                result.setdefault(name, []).append(point.tokens)
    return result
