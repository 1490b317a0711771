"""Whether a sweep file means what it says, and whether everything wrong with one is said at once."""

import itertools
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweep_files import SWEEP, write_sweep

from mas_sim._constraints import ConstraintError, parse_constraint
from mas_sim._model_version import model_version, sources
from mas_sim._sweep_axes import AxisError, axis_values, crossed, moving_together
from mas_sim._sweep_tables import plan_lines
from mas_sim.config import list_presets
from mas_sim.dataflows import DATAFLOWS
from mas_sim.errors import ConfigError, Fault
from mas_sim.sweep_file import MAX_POINTS, Sweep, load_sweep


@pytest.fixture
def small(tmp_path: Path) -> Sweep:
    return load_sweep(write_sweep(tmp_path))


def faults_of(folder: Path, text: str) -> list[Fault]:
    """Faults of a sweep that must be refused."""
    with pytest.raises(ConfigError) as caught:
        load_sweep(write_sweep(folder, text))
    return list(caught.value.faults)


# --- Are the points those that the axes span? ---


def test_are_axes_crossed_with_workloads_and_dataflows_the_last_fastest(small: Sweep) -> None:
    points = [small.point(position) for position in range(len(small))]
    seen = [(p.values["l1.capacity_kib"], p.values["dram.bandwidth_gb_per_s"], p.job.dataflow) for p in points]
    assert seen == list(itertools.product([16, 64, 5120], [8, 16, 32], ["flat", "mas"]))
    for point in points:
        assert point.job.arch.l1.capacity_kib == point.values["l1.capacity_kib"]
        assert point.job.arch.dram.bandwidth_gb_per_s == point.values["dram.bandwidth_gb_per_s"]
        assert point.job.key == small.keys[point.position]
        assert point.job.search.limit == 2
    assert len(set(small.keys)) == len(small)


def test_are_zipped_axes_walked_together(tmp_path: Path) -> None:
    text = SWEEP + "zipped:\n  - {vec.lanes: [64, 128], vec.l1_port_bytes_per_cycle: {from: 32, to: 64, step: 32}}\n"
    sweep = load_sweep(write_sweep(tmp_path, text))
    assert len(sweep) == 3 * 3 * 2 * 2
    pairs = {(v["vec.lanes"], v["vec.l1_port_bytes_per_cycle"]) for v, _ in sweep.places}
    assert pairs == {(64, 32), (128, 64)}
    assert sweep.axes == (
        "l1.capacity_kib", "dram.bandwidth_gb_per_s", "vec.lanes", "vec.l1_port_bytes_per_cycle",
    )  # fmt: skip


def test_are_zipped_axes_told_from_those_that_are_crossed(tmp_path: Path) -> None:
    text = SWEEP.replace("axes:", "zipped: [{cores: [1, 2], vec.lanes: [8, 16]}]\naxes:\n  issue_cycles: [3]")
    sweep = load_sweep(write_sweep(tmp_path, text))
    groups = moving_together(sweep.axes, [values for values, _ in sweep.places])
    assert ("cores", "vec.lanes") in groups
    assert sorted(sum(groups, ())) == sorted(sweep.axes)
    assert len(groups) == len(sweep.axes) - 1
    assert "  cores with vec.lanes: 1 with 8, 2 with 16" in plan_lines(sweep)


def test_do_axes_reach_workload_search_energy_table_and_whole_parts(tmp_path: Path) -> None:
    axes = (
        "axes:\n  workload.seq: [32, 48]\n  search.seed: [0, 1]\n  energy_table.leakage.mw_per_mib: [1.0, 1.5]\n"
        "  mac_vec_path: [{kind: l1}, {kind: direct, bytes_per_cycle: 64}]\nfixed: {cores: 1}\n"
    )
    text = SWEEP[: SWEEP.index("axes:")].replace("{limit: 2}", "{limit: 2, method: random, evaluations: 5}") + axes
    base = load_sweep(write_sweep(tmp_path)).arch.energy_table.leakage
    text = text.replace("[1.0, 1.5]", f"[{base.low}, {base.high}]")
    sweep = load_sweep(write_sweep(tmp_path, text))
    last = sweep.point(len(sweep) - 1).job
    assert (last.workload.n_q, last.workload.n_kv, last.search.seed, last.arch.cores) == (48, 48, 1, 1)
    assert last.arch.energy_table.leakage.mw_per_mib == base.high
    assert (last.arch.mac_vec_path.kind, last.arch.mac_vec_path.bytes_per_cycle) == ("direct", 64)
    assert len(set(sweep.keys)) == len(sweep) == 2**4 * 2


def test_does_all_stand_for_every_dataflow(tmp_path: Path) -> None:
    sweep = load_sweep(write_sweep(tmp_path, SWEEP.replace("[flat, mas]", "[all, mas_overwrite]")))
    assert sweep.dataflows == (*DATAFLOWS, "mas_overwrite")


def test_do_constraints_drop_points(tmp_path: Path) -> None:
    text = SWEEP + "where: ['l1.capacity_kib <= 64', 'dram.bandwidth_gb_per_s * 4 < l1.capacity_kib * cores']\n"
    sweep = load_sweep(write_sweep(tmp_path, text))
    kept = [(v["l1.capacity_kib"], v["dram.bandwidth_gb_per_s"]) for v, _ in sweep.places]
    assert kept == [(k, b) for k in (16, 64) for b in (8, 16, 32) if b * 4 < k * 2]


def test_is_a_constraint_asked_before_a_point_is_made(tmp_path: Path) -> None:
    """Illegal combinations may be left out by a constraint."""
    text = SWEEP[: SWEEP.index("axes:")] + (
        "axes:\n  mac_vec_path.kind: [l1, direct]\n  mac_vec_path.bytes_per_cycle: [null, 64]\n"
    )
    assert faults_of(tmp_path, text)
    text += "where: [\"mac_vec_path.kind == 'l1'\", mac_vec_path.bytes_per_cycle == null]\n"
    assert len(load_sweep(write_sweep(tmp_path, text))) == 2


def test_does_the_key_follow_the_content_and_nothing_else(tmp_path: Path, small: Sweep) -> None:
    again = load_sweep(write_sweep(tmp_path, "# a comment\n" + SWEEP.replace("name: small", "name: other")))
    assert again.keys == small.keys
    assert again.id != small.id
    for old, new in (("limit: 2", "limit: 3"), ("mas_edge", "davinci_lite"), ("limit: 2", "limit: 2, objective: edp")):
        assert not set(load_sweep(write_sweep(tmp_path, SWEEP.replace(old, new))).keys) & set(small.keys)
    (tmp_path / "tiny.yaml").write_text((tmp_path / "tiny.yaml").read_text().replace("n_q: 32", "n_q: 31"))
    assert not set(load_sweep(tmp_path / "small.yaml").keys) & set(small.keys)


@pytest.mark.parametrize("name", list_presets("sweeps"))
def test_is_every_shipped_sweep_legal(name: str) -> None:
    sweep = load_sweep(name)
    assert sweep.name == name
    assert sweep.question.endswith("?")
    assert 10 <= len(sweep) <= 1000


# --- Are ranges written out as a person would? ---


@pytest.mark.parametrize(
    ("axis", "values"),
    [
        ({"from": 8, "to": 128, "factor": 2}, (8, 16, 32, 64, 128)),
        ({"from": 8, "to": 100, "factor": 2}, (8, 16, 32, 64)),
        ({"from": 1, "to": 2, "factor": 1.5}, (1.0, 1.5)),
        ({"from": 0.1, "to": 0.5, "step": 0.1}, (0.1, 0.2, 0.3, 0.4, 0.5)),
        ({"from": 3, "to": 3, "step": 5}, (3,)),
        ([True, False], (True, False)),
        ([0, False], (0, False)),
        ([[["max"]], None], ([["max"]], None)),
    ],
)
def test_is_an_axis_what_is_meant(axis: object, values: tuple[object, ...]) -> None:
    found = axis_values(axis)
    assert found == values
    assert [type(value) for value in found] == [type(value) for value in values]


@pytest.mark.parametrize(
    "axis",
    [
        [], 5, "abc", None, [1, 1], {"from": 1}, {"from": 1, "to": 8}, {"from": 1, "to": 8, "factor": 1},
        {"from": 0, "to": 8, "factor": 2}, {"from": 1, "to": 8, "step": 0}, {"from": 8, "to": 1, "step": 1},
        {"from": "1", "to": 8, "step": 1}, {"from": 1, "to": 8, "step": 1, "factor": 2},
        {"from": 1, "to": 1e9, "step": 1}, {"from": 1, "to": float("inf"), "factor": 2},
        {"from": True, "to": 8, "step": 1}, {"form": 1, "to": 8, "step": 1},
    ],
)  # fmt: skip
def test_is_an_axis_that_makes_no_sense_refused(axis: object) -> None:
    with pytest.raises(AxisError):
        axis_values(axis)


@given(st.lists(st.integers(1, 3), min_size=0, max_size=3), st.lists(st.integers(1, 3), min_size=0, max_size=2))
def test_are_there_as_many_points_as_the_lengths_multiply_to(crossing: list[int], zipping: list[int]) -> None:
    axes = {f"a{k}": tuple(range(length)) for k, length in enumerate(crossing)}
    zipped = [{f"b{k}": tuple(range(n)), f"c{k}": tuple(range(n))} for k, n in enumerate(zipping)]
    points = list(crossed(axes, zipped))
    expected = 1
    for length in crossing + zipping:
        expected *= length
    assert len(points) == expected == len({tuple(p.items()) for p in points})
    assert all(p[f"b{k}"] == p[f"c{k}"] for p in points for k in range(len(zipping)))


# --- Do constraints say what they seem to? ---

FIELDS = {"mac.rows": 16, "vec.lanes": 256, "dram.kind": "LPDDR4", "l1.shared": True, "mac.exp_steps": None, "zero": 0}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("mac.rows == 16", True),
        ("mac.rows != 16", False),
        ("mac.rows * mac.rows >= vec.lanes", True),
        ("vec.lanes / mac.rows / 2 < 8", False),
        ("8 <= mac.rows < 17", True),
        ("8 <= mac.rows < 16", False),
        ("dram.kind == 'LPDDR4'", True),
        ('"HBM2" == dram.kind', False),
        ("l1.shared == true", True),
        ("mac.exp_steps == null", True),
        ("1.5e1 < mac.rows", True),
    ],
)
def test_does_a_constraint_hold_where_it_should(text: str, holds: bool) -> None:
    constraint = parse_constraint(text, list(FIELDS))
    assert constraint.holds(FIELDS.__getitem__) is holds
    assert set(constraint.fields) <= set(FIELDS)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("mac.row == 1", "did you mean 'mac.rows'"),
        ("mac.rows", "must be a comparison"),
        ("mac.rows = 1", "cannot be read"),
        ("mac.rows + 1 == 2", "cannot be read"),
        ("mac.rows == ", "must be a comparison"),
        ("== 1", "stops making sense"),
        ("1 < mac.rows < 3 < 4", "must be a comparison"),
        ("mac.rows vec.lanes == 1", "stops making sense"),
        ("__import__('os') == 1", "no such field"),
        ("", "must be a comparison"),
        ("1 == 1" + " " * 400 + "x", "longer"),
    ],
)
def test_is_a_constraint_that_makes_no_sense_refused(text: str, says: str) -> None:
    with pytest.raises(ConstraintError, match=says):
        parse_constraint(text, list(FIELDS))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1 / zero == 1", "zero"), ("dram.kind * 2 == 1", "no number"), ("mac.exp_steps < 3", "no order"),
        ("l1.shared * 2 == 2", "no number"), ("dram.kind < 5", "no order"), ("l1.shared > 0", "no order"),
    ],
)  # fmt: skip
def test_is_a_constraint_without_an_answer_refused(text: str, says: str) -> None:
    with pytest.raises(ConstraintError, match=says):
        parse_constraint(text, list(FIELDS)).holds(FIELDS.__getitem__)


# --- Is everything wrong with a file said at once, and where? ---


def test_are_all_faults_of_a_file_said_at_once_with_their_lines(tmp_path: Path) -> None:
    text = (
        "name: bad\narch: mas_egde\nworkloads: [bert_bse, bert_base]\ndataflows: [mass, mas]\n"
        "axes:\n  l1.size_kib: [1]\n  vec.lanes: {from: 1, too: 8, factor: 2}\n"
        "zipped:\n  - {cores: [1, 2], mac.rows: [1]}\n"
    )
    found = {(fault.path, fault.line): fault for fault in faults_of(tmp_path, text)}
    assert found["arch", 2].suggestion == "mas_edge"
    assert found["workloads.0", 3].suggestion == "bert_base"
    assert found["dataflows.0", 4].suggestion == "mas"
    assert "too" in str(found["axes.vec.lanes.too", 7])
    assert "equally long" in found["zipped.0", 9].rule


def test_are_unknown_fields_named_with_the_nearest(tmp_path: Path) -> None:
    text = SWEEP.replace("l1.capacity_kib", "l1.capacity_kb").replace("dram.bandwidth", "dram.bandwith")
    text += "fixed: {workload.head: 3, cores: 1, search.sed: 1}\nwhere: [vec.lane > 3, cores]\n"
    faults = faults_of(tmp_path, text)
    assert {fault.suggestion for fault in faults} >= {
        "l1.capacity_kib", "dram.bandwidth_gb_per_s", "workload.heads", "search.seed",
    }  # fmt: skip
    assert any("did you mean 'vec.lanes'" in fault.rule for fault in faults)
    assert any("must be a comparison" in fault.rule for fault in faults)
    assert all(fault.line is not None for fault in faults)


def test_are_illegal_values_blamed_on_their_axis_once_each(tmp_path: Path) -> None:
    text = SWEEP.replace("[16, 64, 5120]", "[16, -1, 0.0001, 64, many]") + "fixed: {workload.kv_heads: 3}\n"
    faults = faults_of(tmp_path, text)
    by_path = [(fault.path, fault.line) for fault in faults]
    assert by_path.count(("axes.l1.capacity_kib", 8)) == 3
    assert ("fixed.workload.kv_heads", 10) in by_path
    assert len(faults) == 4


def test_are_whole_numbers_asked_for_where_the_field_is_one(tmp_path: Path) -> None:
    text = SWEEP.replace("l1.capacity_kib: [16, 64, 5120]", "vec.lanes: {from: 8, to: 20, factor: 1.5}")
    assert {fault.path for fault in faults_of(tmp_path, text)} == {"axes.vec.lanes"}


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("[flat, mas]", "[flat, flat]", "more than once"),
        ("[flat, mas]", "[all, mas]", "more than once"),
        ("[tiny.yaml]", "[tiny.yaml, tiny.yaml]", "more than once"),
        ("[tiny.yaml]", "[nowhere.yaml]", "no such file"),
        ("limit: 2", "limit: 2, evaluations: 9", "no effect on exhaustive"),
        ("limit: 2", "method: mtcs", "mcts"),
        ("limit: 2", "objective: speed", "objective"),
        ("l1.capacity_kib: [16, 64, 5120]", "l1: [{capacity_kib: 16}]\n  l1.shared: [true]", "set already"),
        ("l1.capacity_kib: [16, 64, 5120]", "workload.seq: [16]\n  workload.n_q: [3]", "set already"),
        ("l1.capacity_kib: [16, 64, 5120]", "dram.kind: [LPDDR4, LPDR5]", "kind of DRAM"),
        ("l1.capacity_kib: [16, 64, 5120]", "energy: [energy_16nm, energy_7nm]", "energy"),
        ("l1.capacity_kib: [16, 64, 5120]", "energy_table.leakage.mw_per_mib: [1000000.0]", "band"),
        ("[16, 64, 5120]", "{from: 1, to: 10000, step: 0.5}", "more than"),
        ("[16, 64, 5120]", "{from: 1, to: 9000, step: 1}\n  cores: {from: 1, to: 64, step: 1}", f"{MAX_POINTS:,}"),
        ("name: small", "name: small\nwhere: [cores > 99]", "leaves no point"),
        ("name: small", "name: small\nwhere: [1 / mac.exp_steps > 99 / 0]", "divides by zero"),
        ("name: small", "name: small\nnmae: x", "name"),
        ("axes:", "axis:", "axes"),
    ],
)  # fmt: skip
def test_is_what_makes_no_sense_refused(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert old in SWEEP
    assert says in "\n".join(map(str, faults_of(tmp_path, SWEEP.replace(old, new))))


def test_are_values_checked_even_where_a_field_is_misspelt(tmp_path: Path) -> None:
    text = (
        SWEEP.replace("l1.capacity_kib: [16, 64, 5120]", "l1.capacity_kb: [16]") + "fixed: {cores: 0, energy: nope}\n"
    )
    paths = {fault.path for fault in faults_of(tmp_path, text)}
    assert paths == {"axes.l1.capacity_kb", "fixed.cores", "fixed.energy"}


def test_does_no_fault_hide_those_behind_it(tmp_path: Path) -> None:
    text = (
        "nmae: x\nname: bad\narch: mas_egde\nworkloads: [bert_bas]\ndataflows: [mass]\nsearch: {limit: 1}\n"
        "fixed: {l1.siz: 3, energy_table.dram.Mine.pj_per_byte: 1}\n"
        "axes:\n  vec.lans: [1]\n  cores: []\nwhere: ['lanes > 3', cores]\n"
    )
    faults = faults_of(tmp_path, text)
    assert [(fault.line, fault.path) for fault in faults] == [
        (1, "nmae"), (6, "search.limit"), (3, "arch"), (4, "workloads.0"), (5, "dataflows.0"), (10, "axes.cores"),
        (7, "fixed.l1.siz"), (9, "axes.vec.lans"), (11, "where.0"), (11, "where.1"),
    ]  # fmt: skip


def test_are_constraints_without_an_answer_said_beside_other_faults_and_all_at_once(tmp_path: Path) -> None:
    where = "where: ['vec.lanes / 0 > 3', 'preemption.supported > 2', 'cores >= 1', 'dram.kind * 2 == 1']\n"
    alone = [fault.path for fault in faults_of(tmp_path, SWEEP + where)]
    assert alone == ["where.0", "where.1", "where.3"]
    faults = faults_of(tmp_path, SWEEP.replace("[16, 64, 5120]", "[16, -1]") + where + "fixed: {l1.siz: 3}\n")
    assert [fault.path for fault in faults] == ["fixed.l1.siz", "axes.l1.capacity_kib", *alone]


def test_is_what_is_missing_within_a_value_named(tmp_path: Path) -> None:
    faults = faults_of(tmp_path, SWEEP.replace("l1.capacity_kib: [16, 64, 5120]", "mac: [{rows: 3}]"))
    assert {fault.path for fault in faults} >= {"axes.mac.cols", "axes.mac.l1_port_bytes_per_cycle"}


def test_is_a_fault_of_several_fields_shown_with_the_point_and_workload(tmp_path: Path) -> None:
    text = SWEEP.replace("l1.capacity_kib: [16, 64, 5120]", "workload.heads: [8, 12]").replace(
        "[tiny.yaml]", "[tiny.yaml, llama3_8b_gqa]"
    )
    (fault,) = faults_of(tmp_path, text)
    assert "workload.heads: 12" in fault.rule
    assert "workload llama3_8b_gqa" in fault.rule


def test_is_an_energy_table_looked_for_beside_the_sweep(tmp_path: Path) -> None:
    table = (Path(str(files("mas_sim.arch_configs"))) / "energy_16nm.yaml").read_text(encoding="utf-8")
    text = SWEEP.replace("l1.capacity_kib: [16, 64, 5120]", "energy: [energy_16nm, mine.yaml]")
    path = write_sweep(tmp_path / "elsewhere", text)
    (path.parent / "mine.yaml").write_text(table.replace("mas16_v1", "mine"), encoding="utf-8")
    sweep = load_sweep(path)
    assert sweep.point(len(sweep) - 1).job.arch.energy_table.name == "mine"


def test_are_numbers_beyond_all_bounds_no_traceback(tmp_path: Path) -> None:
    text = SWEEP.replace("[16, 64, 5120]", "{from: 1.0e-300, to: 1.0e+308, factor: 1.0e+10}")
    assert faults_of(tmp_path, text)
    huge = "1" + "0" * 350
    assert "beyond all bounds" in str(faults_of(tmp_path, SWEEP + f"where: ['{huge} / 3 > cores']\n")[0])


def test_is_an_unknown_sweep_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="did you mean 'l1_size'"):
        load_sweep("l1_sise")


# --- Does the model's version follow its sources? ---


def test_does_a_changed_source_make_another_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    changed = tmp_path / "costs.py"
    changed.write_text("# another model\n")
    before, found = model_version(), sources()
    monkeypatch.setattr("mas_sim._model_version.sources", lambda: found | {"mas_sim.costs": changed})
    model_version.cache_clear()
    after = model_version()
    model_version.cache_clear()
    assert after.partition("+")[0] == before.partition("+")[0]
    assert after != before


def test_is_a_seed_without_chance_refused_and_an_objective_named_once(tmp_path: Path) -> None:
    text = SWEEP.replace("limit: 2", "limit: 2, objective: latncy") + "fixed: {search.seed: 3}\n"
    first = faults_of(tmp_path, text)[0]
    assert first.suggestion == "latency"
    assert str(first).count("did you mean") == 1
    (seed,) = faults_of(tmp_path, SWEEP + "fixed: {search.seed: 3}\n")
    assert "no effect on exhaustive search" in seed.rule
    assert load_sweep(write_sweep(tmp_path, SWEEP.replace("limit: 2", "method: mcts, seed: 3"))).search.seed == 3
