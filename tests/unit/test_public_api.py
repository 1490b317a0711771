"""Is the public interface what it is said to be?"""

import itertools
import sys

import mas_sim

PUBLIC = {
    "DATAFLOWS", "Arch", "Comparison", "ConfigError", "MasSimError", "Report", "Schedule", "ScheduleError", "Tiling",
    "TilingError", "Timeline", "Workload", "audit", "build_schedule", "compare", "evaluate", "execute", "load_arch",
    "load_results", "load_sweep", "load_workload", "run_sweep", "search", "simulate",
}  # fmt: skip


def test_are_the_public_names_these_and_no_others() -> None:
    assert set(mas_sim.__all__) == PUBLIC
    assert all(hasattr(mas_sim, name) for name in PUBLIC)


def test_is_search_a_function_and_a_package() -> None:
    from mas_sim.search import SearchSpace
    from mas_sim.search.space import SearchSpace as Same

    assert SearchSpace is Same
    assert mas_sim.search is sys.modules["mas_sim.search"]
    workload = mas_sim.load_workload("vit_b_16").with_(heads=2, kv_heads=2)
    result = mas_sim.search(mas_sim.load_arch("mas_edge"), workload, "mas", "energy", limit=4)
    assert result.proven_optimal
    assert result.best.tiling.check() is None


def test_does_a_report_agree_with_its_parts() -> None:
    arch, workload = mas_sim.load_arch("mas_edge"), mas_sim.load_workload("vit_b_16")
    report = mas_sim.evaluate("flat", arch, workload, mas_sim.Tiling(q_tile=98, kv_tile=196))
    assert report.audit is not None
    assert report.audit.ok
    assert report.execution is not None
    assert report.execution.max_abs_error < 1e-4
    timeline = mas_sim.simulate(mas_sim.build_schedule("flat", arch, workload, report.schedule.tiling))
    assert report.cycles == timeline.cycles
    assert report.dram_bytes >= workload.compulsory_bytes
    tiling = report.schedule.tiling
    low = mas_sim.evaluate("flat", arch, workload, tiling, energy_level="low", check=False)
    high = mas_sim.evaluate("flat", arch, workload, tiling, energy_level="high", check=False)
    totals = [low.energy.total, report.energy.total, high.energy.total]
    assert totals == sorted(totals)
    assert totals[0] < totals[2]


def test_do_the_stalls_say_why_mas_is_slower_than_flat_where_it_is() -> None:
    """K and V streamed through single buffers: `mas` waits for no softmax, but for loads that it cannot hide."""
    arch, workload = mas_sim.load_arch("mas_edge"), mas_sim.load_workload("bert_base")
    tiling = mas_sim.Tiling(
        q_tile=128, kv_tile=512, q_buffers=1, k_buffers=1, v_buffers=1, o_buffers=1, score_buffers=3
    )
    reports = {name: mas_sim.evaluate(name, arch, workload, tiling, check=False) for name in ("flat", "mas")}
    assert reports["mas"].cycles > reports["flat"].cycles
    mas, flat = (reports[name].stalls()["mac"] for name in ("mas", "flat"))
    assert "vec" not in mas
    assert flat["vec"] > 300_000
    assert mas["load"] > flat["load"] + flat["vec"]
    # The MAC units' work is the same, so their stalls are what makes the difference: every cycle has a reason.
    for report in reports.values():
        timeline = report.timeline
        for queue in range(report.schedule.queues):
            mine = report.schedule.instructions[:, 1] == queue
            out_of_work = timeline.channel_end[mine].max()
            assert timeline.busy_cycles[queue] + timeline.stall_cycles[queue].sum() == out_of_work


def test_has_every_buffer_a_place_and_a_lifetime_in_l1() -> None:
    arch, workload = mas_sim.load_arch("mas_edge"), mas_sim.load_workload("vit_b_16")
    report = mas_sim.evaluate(
        "mas", arch, workload, mas_sim.Tiling(q_tile=98, kv_tile=98, k_resident_tiles=1), check=False
    )
    plan = report.l1_plan()
    assert {row["core"] for row in plan} == {0, 1}
    # Q, one resident and one streamed K tile with two buffers each, V streamed, two row blocks, the statistics, two O.
    assert [row["tensor"] for row in plan if row["core"] == 0] == [
        *("Q", "Q", "K", "K", "K", "V", "V", "C/P rows", "C/P rows", "stats", "O", "O"),
    ]
    for row in plan:
        assert 0 <= row["first_cycle"] < row["last_cycle"] <= report.cycles
        assert 0 <= row["offset_bytes"] <= row["offset_bytes"] + row["size_bytes"] <= report.schedule.core_l1_bytes
    mine = sorted((row["offset_bytes"], row["size_bytes"]) for row in plan if row["core"] == 0)
    assert all(a + size <= b for (a, size), (b, _) in itertools.pairwise(mine))
