"""Does a comparison hold each dataflow's best, cope with what does not fit, and does `auto` choose rightly?"""

from typing import Any

import pytest
from builders import small_arch, small_workload

from mas_sim.comparison import AUTO, Comparison, Misfit, best_report, compare
from mas_sim.dataflows import DATAFLOWS
from mas_sim.errors import MasSimError
from mas_sim.report import Report
from mas_sim.search.base import NothingFitsError
from mas_sim.search.exhaustive import ExhaustiveSearch
from mas_sim.search.objective import OBJECTIVES
from mas_sim.search.space import SearchSpace
from mas_sim.workload import Workload

SMALL = small_workload(heads=2, n_q=24, n_kv=40)
LONG = small_workload(name="long", n_q=16, n_kv=600)
ARCH = small_arch(cores=2, **{"l1.capacity_kib": 8, "sync_cycles": 4})
CRAMPED = small_arch(**{"l1.capacity_kib": 1.5})
"""Runs `SMALL` with every dataflow; of `LONG`, a row of C fits once but not twice, as `mas` needs it."""


def values_of(workload: Workload, objective: str) -> dict[str, float]:
    """The best value of each dataflow's own search."""
    return {
        name: ExhaustiveSearch().search(SearchSpace(name, ARCH, workload), objective).best.value for name in DATAFLOWS
    }


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("workload", [SMALL, LONG], ids=lambda w: w.name)
def test_does_auto_choose_the_best_dataflow_by_the_objective(workload: Workload, objective: str) -> None:
    values = values_of(workload, objective)
    chosen = best_report(AUTO, ARCH, workload, objective)
    assert values[chosen.schedule.dataflow] == min(values.values())
    same = best_report(chosen.schedule.dataflow, ARCH, workload, objective)
    assert (chosen.cycles, chosen.schedule.tiling) == (same.cycles, same.schedule.tiling)
    assert chosen.proven_optimal


def test_does_auto_say_why() -> None:
    values = values_of(SMALL, "latency")
    report = best_report(AUTO, ARCH, SMALL)
    (why,) = [note for note in report.notes if note.startswith("auto chose")]
    assert f"auto chose {report.schedule.dataflow}: {report.cycles:,} cycles (limited by " in why
    for name in values:
        if name != report.schedule.dataflow:
            assert f"{name} {int(values[name]):,} (limited by " in why


def test_does_auto_name_what_does_not_fit_with_its_bytes() -> None:
    report = best_report(AUTO, CRAMPED, LONG)
    with pytest.raises(NothingFitsError) as misfit:
        best_report("mas", CRAMPED, LONG)
    assert report.schedule.dataflow != "mas"
    assert misfit.value.over_bytes > 0
    assert f"mas does not fit (by {misfit.value.over_bytes:,} bytes)" in report.notes[-1]


def test_does_auto_say_of_each_dataflow_why_nothing_fits() -> None:
    tiny = small_arch(**{"l1.capacity_kib": 0.125})
    with pytest.raises(NothingFitsError) as error:
        best_report(AUTO, tiny, LONG)
    for name in DATAFLOWS:
        assert f"{name}: no tiling" in str(error.value)
    assert error.value.over_bytes > 0


def test_does_a_schedule_that_is_too_long_read_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    search = ExhaustiveSearch.search

    def spy(self: ExhaustiveSearch, space: SearchSpace, *args: Any, **kwargs: Any) -> Any:
        if space.dataflow == "flat":
            raise NothingFitsError("too long", 0)
        return search(self, space, *args, **kwargs)

    monkeypatch.setattr(ExhaustiveSearch, "search", spy)
    assert "flat is too long to simulate" in best_report(AUTO, ARCH, SMALL).notes[-1]


def test_do_seed_and_energy_level_reach_their_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    levels = []
    search = ExhaustiveSearch.search

    def spy(self: ExhaustiveSearch, *args: Any, **kwargs: Any) -> Any:
        levels.append(kwargs["energy_level"])
        return search(self, *args, **kwargs)

    monkeypatch.setattr(ExhaustiveSearch, "search", spy)
    errors = []
    for seed in (0, 1, 1):
        report = best_report("flat", ARCH, SMALL, "energy", energy_level="low", check=True, seed=seed)
        assert report.energy_level == "low"
        assert report.execution is not None
        errors.append(report.execution.max_abs_error)
    assert levels == ["low"] * 3
    assert errors[0] != errors[1] == errors[2]


def test_is_each_dataflow_searched_once_though_auto_asks_for_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    searched = []
    search = ExhaustiveSearch.search

    def spy(self: ExhaustiveSearch, space: SearchSpace, *args: Any, **kwargs: Any) -> Any:
        searched.append(space.dataflow)
        return search(self, space, *args, **kwargs)

    monkeypatch.setattr(ExhaustiveSearch, "search", spy)
    result = compare(ARCH, [SMALL], ["mas", AUTO, "flat"])
    assert sorted(searched) == sorted(DATAFLOWS)
    auto = result.as_dict()["results"][1]
    assert auto["chosen_by"] == "auto"
    assert auto["dataflow"] in DATAFLOWS
    assert "chosen_by" not in result.as_dict()["results"][0]
    frame = result.to_frame()
    assert list(frame["chosen_by"]) == ["mas", "auto", "flat"]
    assert frame["cycles"][1] <= frame["cycles"].min()


def test_is_progress_told_that_the_number_of_tilings_is_not_yet_known() -> None:
    calls: list[tuple[str, int, int]] = []
    compare(ARCH, [SMALL], ["flat", "mas"], progress=lambda *call: calls.append(call))
    assert calls[0] == ("small flat", 0, 0)
    assert ("small mas", 0, 0) in calls
    last = calls[-1]
    assert last[0] == "small mas"
    assert last[1] == last[2] > 0


@pytest.fixture(scope="module")
def partial() -> Comparison:
    """Two workloads, of which `mas` cannot run the second."""
    return compare(CRAMPED, [SMALL, LONG], ["layer_wise", "flat", "mas"])


def test_does_one_misfit_leave_the_other_results(partial: Comparison) -> None:
    misfit = partial.result("long", "mas")
    assert isinstance(misfit, Misfit)
    assert isinstance(partial.result("long", "flat"), Report)
    assert len(partial.reports) == 5
    entry = partial.as_dict()["results"][5]
    assert entry == {
        "workload": "long", "dataflow": "mas", "fits": False, "over_bytes": misfit.over_bytes, "reason": misfit.reason,
    }  # fmt: skip
    assert misfit.over_bytes > 0
    assert all(result["fits"] for result in partial.as_dict()["results"][:5])
    assert len(partial.to_frame()) == 5
    with pytest.raises(NothingFitsError):
        partial.report("long", "mas")


def test_do_means_leave_out_what_does_not_fit(partial: Comparison) -> None:
    assert partial.left_out("flat") == ("long",)
    spread = partial.speedup_spread("flat")
    assert spread is not None
    assert spread.geomean == pytest.approx(partial.speedup("small", "flat"))
    assert spread.min == spread.max
    assert partial.as_dict()["geomean"]["left_out"] == {"layer_wise": ["long"], "flat": ["long"]}


def test_is_there_no_mean_of_nothing() -> None:
    result = compare(CRAMPED, [LONG], ["flat", "mas"])
    assert result.speedup_spread("flat") is None
    assert result.saving_spread("flat") is None
    assert result.as_dict()["geomean"]["speedup_over"] == {"flat": None}


def test_are_all_that_tie_the_best_and_auto_none_of_them() -> None:
    result = compare(ARCH, [SMALL], ["flat", "mas", AUTO], "edp")
    values = result.values("small")
    assert list(values) == ["flat", "mas"]
    report = result.report("small", "flat")
    assert values["flat"] == pytest.approx(report.cycles * report.energy.total)
    assert result.best("small") == (min(values, key=lambda name: values[name]),)
    alike = (result.report("small", "mas"),) * 2
    assert Comparison(alike, ("flat", "mas"), ("small",), "mas", "latency").best("small") == ("flat", "mas")


def test_is_nothing_the_best_where_nothing_fits(partial: Comparison) -> None:
    assert set(partial.values("long")) == {"layer_wise", "flat"}
    misfits = (partial.result("long", "mas"),)
    assert Comparison(misfits, ("mas",), ("long",), "mas", "latency").best("long") == ()
    assert set(partial.as_dict()["best"]) == {"small", "long"}


@pytest.mark.parametrize("dataflow", ["flat", AUTO])
def test_does_a_granularity_limit_every_search(dataflow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    searched = []
    search = ExhaustiveSearch.search

    def spy(self: ExhaustiveSearch, space: SearchSpace, *args: Any, **kwargs: Any) -> Any:
        searched.append((space.dataflow, space.granularity))
        return search(self, space, *args, **kwargs)

    monkeypatch.setattr(ExhaustiveSearch, "search", spy)
    best_report(dataflow, ARCH, SMALL, granularity="H")
    compare(ARCH, [SMALL], [dataflow], granularity="H")
    names = list(DATAFLOWS) if dataflow == AUTO else [dataflow]
    assert searched == [(name, "H") for name in names * 2]
    with pytest.raises(MasSimError, match=r"no granularity is called 'h'.*did you mean 'H'"):
        best_report(dataflow, ARCH, SMALL, granularity="h")


def test_is_a_comparison_of_what_never_fits_an_error() -> None:
    with pytest.raises(NothingFitsError, match="long"):
        compare(CRAMPED, [LONG], ["mas"])


@pytest.mark.parametrize(
    ("workloads", "dataflows", "message"),
    [
        ([], ["mas"], "no workload is given"),
        ([SMALL], [], "no dataflow is given"),
        ([SMALL, SMALL], ["mas"], "workload given twice: small"),
        ([SMALL], ["mas", "mas"], "dataflow given twice: mas"),
        ([SMALL], ["atuo"], "did you mean 'auto'"),
    ],
)
def test_is_a_senseless_comparison_refused(workloads: list[Workload], dataflows: list[str], message: str) -> None:
    with pytest.raises(MasSimError, match=message):
        compare(ARCH, workloads, dataflows)
