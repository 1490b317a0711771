"""Do the pages on memory say what their numbers say: limits, added reads, falsification, the price of a stop?"""

import csv
import re
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from mas_sim import Workload, load_arch
from mas_sim.dataflows import footprint
from mas_sim.limits import sequence_limit, smallest_tiling
from mas_sim.report import make_report
from mas_sim.reproduce import memory, overwriting
from mas_sim.reproduce.book import Book, Page
from mas_sim.reproduce.claims import load_claims
from mas_sim.reproduce.data import Data
from mas_sim.reproduce.overwriting import BASE, MACHINES, PRODUCT, WAITS, cases_of, held_to, steps_of, stopped
from mas_sim.results import load_result
from mas_sim.schedule import F_DST, F_OVER, F_RELOAD, F_SRC0
from mas_sim.store import Store
from mas_sim.sweep_file import load_sweep

SWEEP = load_sweep("preemption")
ARCH, WORKLOAD = SWEEP.arch, SWEEP.workloads[0].with_(heads=2, kv_heads=2)
FIGURE = re.compile(r"\d(x| %)$")
"""How a number that is written for a reader ends."""


class Results:
    """Stands for a store: results by key."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, Any]] = {}

    def result(self, key: str) -> dict[str, Any]:
        """Return a result."""
        return self.found[key]


def data_of(rows: list[dict[str, Any]], results: Results | None = None) -> Data:
    """Make the data of a report that has only the sweep `preemption`."""
    rows = [{"status": "done", "preemption.supported": True, **row} for row in rows]
    return Data(cast(Store, results or Results()), True, {"preemption": SWEEP}, {"preemption": rows})


@pytest.fixture
def page(tmp_path: Path) -> Page:
    """An empty page."""
    return Book(tmp_path).page("page", "Title", "Question?")


def written(page: Page, name: str) -> list[dict[str, str]]:
    """Read a CSV file of a page."""
    with (page.book.out / "data" / f"page_{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def tiny_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the page try a few tilings only."""
    monkeypatch.setattr(overwriting, "KV_TILES", (16, 512))


# --- Are both limits judged by one rule? ---


def test_do_both_limits_differ_by_one_rule_with_one_reason(page: Page) -> None:
    memory.longest(page, data_of([]))
    assert [verdict.judgement for verdict in page.verdicts] == ["differs", "differs"]
    assert len({verdict.why for verdict in page.verdicts}) == 1
    assert "23.7 % of L1 are unused" in page.verdicts[0].why
    assert "agrees with the published 2.00" in page.findings[0]
    claims = load_claims()
    assert claims["limit_mas"].digits == claims["limit_flat"].digits


@pytest.mark.parametrize(("dataflow", "tokens"), [("mas", 1_000_000), ("flat", 2_000_000)])
def test_is_the_unused_share_that_of_a_schedule_of_the_published_length(dataflow: str, tokens: int) -> None:
    limit = sequence_limit(load_arch("mas_edge"), dataflow)
    workload = Workload(name="w", heads=1, n_q=1, n_kv=tokens, head_dim_qk=64, head_dim_v=64, dtype="fp16")
    used = footprint(dataflow, load_arch("mas_edge").with_(cores=1), workload, smallest_tiling(dataflow))
    free = 1 - used.total_bytes / used.capacity_bytes
    assert memory._unused(limit, tokens) == pytest.approx(free, abs=1e-4)


# --- Is the falsification test told for K and V, with ties as ties? ---


def test_is_a_tie_no_win() -> None:
    told = memory._outcomes({512: 1.2, 1024: 0.998, 2048: 0.9, 4096: 0.85, 8192: 1.004})
    assert told == (
        "faster than FLAT at N = 2,048 and 4,096 (0.850x to 0.900x its cycles), equal within 0.5 % at N = 1,024 and "
        "8,192 (0.998x to 1.004x its cycles), slower at N = 512 (1.200x its cycles)"
    )
    assert memory._outcomes({512: 1.2}) == "faster than FLAT nowhere, slower at N = 512 (1.200x its cycles)"


def test_does_each_tensor_stand_for_itself(page: Page) -> None:
    flows = ("flat", "mas", "mas_overwrite_v", "mas_overwrite_k")
    at = {512: (1000, 800, 1300, 900), 1024: (1000, 1500, 8000, 9000)}
    cycles = {(n, stops): dict(zip(flows, found, strict=True)) for n, found in at.items() for stops in (True, False)}
    cycles[1024, False]["mas_overwrite_k"] = 9900
    memory._falsification(page, cycles)
    told = page.answers["falsification"]
    assert "overwriting V" in told[0]
    assert "nowhere, slower at N = 512 and 1,024 (1.300x to 8.000x" in told[0]
    assert "faster than FLAT at N = 512 (0.900x its cycles), slower at N = 1,024 (9.900x" in told[1]
    assert "N = 1,024" in told[2]
    assert "8.000x overwriting V, 9.900x overwriting K, 1.500x where it is free" in told[2]
    assert "changes 1 of 4 optima, by up to 9.1 %" in told[3]
    row = written(page, "falsification")[1]
    assert [float(cell) for cell in row.values()] == [1024, 1000, 1.5, 8, 8, 9, 9.9]


# --- Is what overwrite adds measured against what is read without? ---


@pytest.mark.parametrize(
    ("more", "again", "told"),
    [
        (500, 500, "all of it is tiles loaded again in 1 of 1 cases."),
        (1000, 80, "only a part of it in 1 (8.0 % at N = 64 (V))"),
        (100, 150, "more than it in 1 (150.0 % at N = 64 (V))"),
    ],
)
def test_are_tiles_loaded_again_a_share_of_what_is_added(page: Page, more: int, again: int, told: str) -> None:
    memory._added_findings(page, {(64, "V"): (100, more, again)})
    assert f"adds {more / 100:.1f} times" in page.findings[0]
    assert told in page.findings[1]


TILING = {"q_tile": 32, "kv_tile": 16, "k_resident_tiles": 4, "v_resident_tiles": 1}


def test_is_what_is_added_the_difference_of_reads(page: Page) -> None:
    results = Results()
    results.found["mas"] = {"dram_read_bytes": 100, "overwrite": None, "tiling": TILING}
    forced = {
        "dram_read_bytes": 900,
        "overwrite": {"reloaded_bytes": 300},
        "tiling": TILING | {"q_tile": 4, "k_resident_tiles": 0},
    }
    results.found["mas_overwrite_v"] = forced
    rows = [{"workload.seq": 64, "dataflow": name, "key": name} for name in results.found]
    memory._added(page, data_of(rows, results))
    assert [list(row.values()) for row in written(page, "overwrite")] == [
        ["64", "V", "32", "4", "4 / 1 of 4", "0 / 1 of 4", "100", "900", "800", "300"]
    ]
    assert "37.5 % at N = 64 (V)" in page.findings[1]
    results.found["mas"]["overwrite"] = {"reloaded_bytes": 1}  # it overwrites, so it says nothing of reads without
    memory._added(page, data_of(rows, results))
    assert written(page, "overwrite") == []


# --- What does a stop cost? ---


def test_does_the_drain_hide_up_to_when_the_tiles_are_back_and_no_longer() -> None:
    case = cases_of(ARCH, WORKLOAD, "v", [64], [128])[0]
    base = case.runs[BASE]
    assert (base.stops, base.behind, base.at_once) == (12, 0, True)
    assert {run.cycles for name, run in case.runs.items() if name != WAITS} == {base.cycles}
    tiling = held_to(WORKLOAD, "v", 64, 128)
    hidden, seen = (
        make_report("mas", ARCH.with_(**{"preemption.drain_cycles": cycles}), WORKLOAD, tiling, check=False).cycles
        for cycles in (base.back_cycles, base.back_cycles + 500)
    )
    assert hidden == base.cycles < seen


def test_does_losing_the_product_matter_where_it_is_stopped_behind_its_first_tile_only() -> None:
    found = {case.name: case for case in cases_of(ARCH, WORKLOAD, "v", [16, 64], [16, 128])}
    assert sorted(found) == ["64 x 128", "64 x 16"]  # with 16 rows of Q nothing is stopped
    behind, first = found["64 x 16"], found["64 x 128"]
    assert behind.runs[BASE].behind == behind.runs[BASE].stops > 0
    assert behind.runs[PRODUCT].cycles > behind.runs[BASE].cycles
    assert first.runs[PRODUCT].cycles == first.runs[BASE].cycles
    assert first.runs[WAITS].stops == 0
    told = overwriting._losing([behind, first], ARCH.cores)
    assert "changes 1 of 2 tilings" in told
    assert "in 1 every stopped product is in its first tile" in told


def test_is_every_machine_of_the_price_on_the_page_and_each_cell_a_schedule(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_grid(monkeypatch)
    overwriting.price(page, data_of([]))
    rows = written(page, "price")
    assert {row["machine"] for row in rows} == set(MACHINES)
    assert {row["overwritten"] for row in rows} == {"V", "K"}
    assert not [cell for row in rows for cell in row.values() if FIGURE.search(cell)]
    told = page.answers["preemption"]
    ratio = [
        int(rows[at + len(MACHINES) - 1]["cycles"]) / int(rows[at]["cycles"])
        for at in range(0, len(rows), len(MACHINES))
        if rows[at]["overwritten"] == "V"
    ]
    counts = (sum(one < 0.995 for one in ratio), sum(0.995 <= one <= 1.005 for one in ratio))
    faster, equal, slower = *counts, len(ratio) - sum(counts)
    assert f"is faster in {faster}, equal within 0.5 % in {equal} and slower in {slower}:" in told[0]
    assert "Drains of 300 and 3,000 cycles change none" in told[2]
    file = page.book.out / "results" / "page_price.json"
    stored = load_result(file, "bert_base/mas@overwrite=v,q_tile=64,kv_tile=16,preemption.lost_granularity=matmul")
    again = make_report(stored.dataflow, stored.arch, stored.workload, stored.tiling, check=False)
    row = next(row for row in rows if (row["q_tile"], row["kv_tile"], row["machine"]) == ("64", "16", PRODUCT))
    assert again.cycles == stored.cycles == int(row["cycles"])


# --- Is the branch that Algorithm 1 lacks in the schedule as the page tells it? ---


def test_do_the_steps_follow_each_other_and_lead_where_they_say() -> None:
    report = make_report("mas", ARCH, WORKLOAD, held_to(WORKLOAD, "v", 64, 128), check=False)
    code, product = report.schedule.instructions, stopped(report)[2]
    over, back = code[product, F_OVER], code[product, F_RELOAD]
    assert code[back, F_DST] == code[over, F_SRC0]  # the tiles come back to the place that C has left
    steps = steps_of(report, product)
    assert [step[2] for step in steps] == ["MAC", "VEC", "MAC", "VEC", "LOAD", "MAC", "MAC", "MAC", "STORE"]
    begin, end = (np.array([step[k] for step in steps], np.int64) for k in (0, 1))
    assert (np.diff(begin) >= 0).all()
    assert end[0] == begin[2] == begin[3]  # it is stopped when softmax begins to write
    assert end[2] - begin[2] == ARCH.preemption.drain_cycles
    assert end[3] <= begin[4] < end[4] <= begin[5]  # softmax, then the tiles, then the product again
    assert f"{end[0] - begin[0]:,} cycles of work are lost" in str(steps[2][3])
    assert end[5] - begin[5] >= report.schedule.cycles[product]


def test_is_the_algorithm_answered_with_a_checked_schedule(page: Page) -> None:
    overwriting.algorithm(page, data_of([]))
    (told,) = page.answers["algorithm"]
    assert "12 products are stopped" in told
    assert "The audit passes" in told
    error = re.search(r"within (\S+) of attention", told)
    assert error is not None
    assert 0 < float(error[1]) < 1e-5
    assert (page.book.out / "figures" / "page_algorithm.png").is_file()
    stored = load_result(page.book.out / "results" / "page_algorithm.json", None)
    assert stored.workload.heads == ARCH.cores


def test_does_a_page_without_results_come_out(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_grid(monkeypatch)
    memory.preemption(page, data_of([]))
    page.close()
    assert set(page.answers) == {"falsification", "preemption", "algorithm"}
    assert page.book.files.count("page.md") == 1
