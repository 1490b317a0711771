"""Do the pages on assumptions, energy bands and regimes say what follows from their numbers?"""

from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mas_sim.arch import Arch, load_arch
from mas_sim.energy import METER_COLUMNS, energy_coefficients
from mas_sim.energy_table import Level
from mas_sim.report import make_report
from mas_sim.reproduce.assumptions import Assumption, Value
from mas_sim.reproduce.bands import ALL, ENDS, TABLE_ROWS, Change, Counted
from mas_sim.reproduce.book import Book, Page
from mas_sim.reproduce.regimes import _fallback, _where
from mas_sim.reproduce.sensitivity import _told
from mas_sim.sweep_file import load_sweep
from mas_sim.tiling import Tiling
from mas_sim.workload import Workload

LEVELS: tuple[Level, ...] = ("nominal", "low", "high")


def points(**cycles: float) -> list[dict[str, Any]]:
    """Make the points of one network, by dataflow."""
    return [{"workload": "bert", "dataflow": flow, "cycles": value} for flow, value in cycles.items()]


def l1(*speedups: float) -> Assumption:
    """Make an assumption with these speedups of mas over flat at its values, 1 KiB, 2 KiB, 4 KiB, ..."""
    values = [Value(2.0**k, k == 2, points(flat=1000 * s, mas=1000.0, flash=1000.0)) for k, s in enumerate(speedups)]
    return Assumption("l1_size", "L1 size", "KiB", values)


# --- assumptions ---


def test_is_a_plateau_named_by_its_range() -> None:
    one = l1(0.6, 1.2, 1.5, 1.501, 1.5)
    assert [one.plateau(k) for k in (0, 1, 3)] == ["1 KiB", "2 KiB", "4 KiB and more"]
    assert l1(1.5, 1.5, 1.2, 1.2, 0.9).plateau(0) == "2 KiB and less"
    assert l1(1.0, 1.5, 1.5, 1.2).plateau(2) == "2 to 4 KiB"
    assert l1(1.5, 1.5, 1.5).plateau(1) == "any value from 1 to 4 KiB"
    assert one.tried == "1 to 16 KiB"


def test_are_values_beside_each_other_one_run() -> None:
    assert l1(1, 1, 1, 1, 1).runs([True, True, False, True, False]) == [(0, 1), (3, 3)]
    assert l1(1, 1).runs([False, False]) == []


def test_does_a_lead_within_the_tie_not_win() -> None:
    best, lead = Value(1.0, True, points(flat=1200, flash=1004, mas=1000)).winners()
    assert best == ["flash", "mas"]
    assert lead == pytest.approx(1.2)
    best, lead = Value(1.0, True, points(flat=1200, flash=1006, mas=1000)).winners()
    assert best == ["mas"]
    assert lead == pytest.approx(1.006)
    assert Value(1.0, True, points(flat=1200, mas=1000)).behind("flat") == pytest.approx(1.2)
    assert np.isnan(Value(1.0, True, points(flat=1200, mas=1000)).behind("flash"))


def test_is_a_mean_of_the_networks_what_decides() -> None:
    rows = [*points(flat=100, mas=200), *(row | {"workload": "xlm"} for row in points(flat=900, mas=100))]
    best, lead = Value(1.0, False, rows).winners()
    assert best == ["mas"]
    assert lead == pytest.approx(4.5**0.5)
    assert Value(1.0, False, rows).speedup == pytest.approx(4.5**0.5)


def test_does_the_way_of_normalising_say_who_was_faster_before_and_after() -> None:
    divided, taken = points(flash=100, mas=125), points(flash=100, mas=80)
    told = _told("npu", Assumption("n", "n", "", [Value("division", True, divided), Value("reciprocal", False, taken)]))
    assert "from 0.800x to 1.250x" in told
    assert "faster on 0 before and 1 after, slower on 1 before and 0 after" in told
    same = _told("npu", Assumption("n", "n", "", [Value(way, True, divided) for way in ("division", "reciprocal")]))
    assert same.endswith("all cycles stay the same.")


def test_do_both_sweeps_of_normalising_hold_each_way_on_the_machine_that_they_name() -> None:
    for name in ("normalize", "normalize_hardware"):
        sweep = load_sweep(name)
        machines = [sweep.point(place).job.arch for place in range(len(sweep))]
        assert {arch.vec.normalize for arch in machines} == {"divide", "reciprocal"}
        other = sweep.arch.with_softmax("reciprocal")
        assert {arch.vec.softmax_passes for arch in machines} == {
            sweep.arch.vec.softmax_passes,
            other.vec.softmax_passes,
        }


# --- energy bands ---


@pytest.fixture(scope="module")
def edge() -> Arch:
    return load_arch("mas_edge")


def made(edge: Arch, cycles: int = 1000, **counts: int) -> Counted:
    """Count some actions, none of the others."""
    found = np.array([counts.get(name, 0) for name in METER_COLUMNS], np.int64)
    return Counted(found, cycles, {level: energy_coefficients(edge, "fp16", level) for level in LEVELS})


def test_has_each_column_of_a_meter_one_row_of_the_table() -> None:
    assert sorted(chain.from_iterable(TABLE_ROWS.values())) == list(range(len(METER_COLUMNS)))


@pytest.mark.parametrize("level", ENDS)
def test_do_changes_of_single_rows_add_up_to_that_of_all(edge: Arch, level: Level) -> None:
    one = made(edge, **{name: 1000 + 7 * k for k, name in enumerate(METER_COLUMNS)})
    alone = [one.energy_pj(row, level) - one.energy_pj() for row in TABLE_ROWS]
    assert all(alone)
    assert sum(alone) == pytest.approx(one.energy_pj(ALL, level) - one.energy_pj())


def test_is_a_schedule_priced_as_its_report_prices_it(edge: Arch) -> None:
    workload = Workload(name="small", batch=1, heads=2, n_q=64, n_kv=64, head_dim_qk=64, head_dim_v=64)
    tiling = Tiling(1, 1, 32, 32)
    reports = {level: make_report("mas", edge, workload, tiling, energy_level=level, check=False) for level in LEVELS}
    prices = {level: energy_coefficients(edge, "fp16", level) for level in LEVELS}
    one = Counted(reports["nominal"].meter_counts, reports["nominal"].cycles, prices)
    for level, report in reports.items():
        assert one.energy_pj(ALL, level) == report.energy.total


@pytest.mark.parametrize(("share", "beyond"), [(1.05, {"bert": "flash"}), (0.95, {})])
def test_is_another_winner_found_and_a_tie_told_from_it(edge: Arch, share: float, beyond: dict[str, str]) -> None:
    """One multiplies, the other exponentiates, for that share of the energy that the first takes at the high end."""
    compute = edge.energy_table.compute
    mac, exp = compute.mac_fp16_acc32, compute.vec_exp_fp16
    flash = made(edge, vec_exp_ops=round(10**6 * mac.high / exp.pj / share), cycles=0)
    counts = {"bert": {"fusemax": made(edge, mac_ops=10**6, cycles=0), "flash": flash}}
    assert Change.of(counts, "mac_fp16_acc32", "low").flips == {}
    assert Change.of(counts, "mac_fp16_acc32", "high").beyond() == beyond
    near = made(edge, vec_exp_ops=round(10**6 * mac.high / exp.pj / 1.003), cycles=0)
    tied = Change.of({"bert": counts["bert"] | {"flash": near}}, "mac_fp16_acc32", "high")
    flow, factor = tied.flips["bert"]
    assert flow == "flash"
    assert factor == pytest.approx(1.003, abs=1e-5)
    assert tied.beyond() == {}


# --- regimes ---


def fallback(tmp_path: Path, cells: dict[tuple[int, int], dict[str, float]]) -> Page:
    """Let the page say where flat is faster; winners are those with the least."""
    page = Book(tmp_path).page("regimes", "t", "q")
    _fallback(page, cells, {place: [min(one, key=one.__getitem__)] for place, one in cells.items()})
    return page


def test_is_flat_faster_only_beyond_a_tie(tmp_path: Path) -> None:
    cells = {(256, 6): {"flat": 120.0, "mas": 100.0}, (512, 6): {"flat": 1000.0, "mas": 1002.0}}
    page = fallback(tmp_path, cells)
    assert "none of 2 cells and as fast in 1, up to N = 512" in page.findings[0]
    assert page.answers["fallback"][0] == page.findings[0]
    longer = fallback(tmp_path, cells | {(1024, 6): {"flat": 100.0, "mas": 200.0, "flash": 50.0}})
    assert "1 of 3 cells and as fast in 1: N = 1,024 at exp 6, where MAS takes 2.000x" in longer.findings[0]
    assert "FLAT is among the fastest in 0 of these; the fastest are flash" in longer.findings[0]
    assert "at N = 1,024, exp 6: 4.000x the cycles of flash" in longer.findings[1]


def test_are_costs_with_the_same_lengths_told_together() -> None:
    assert _where([(512, 6), (512, 32), (1024, 6), (1024, 32), (512, 128)]) == (
        "N = 512, 1,024 at exp 6, 32; N = 512 at exp 128"
    )
