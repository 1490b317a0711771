"""Whether a machine is what its file says, and whether no illegal one can be made."""

import functools
import pickle
from fractions import Fraction
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mas_sim.arch import SOFTMAX_SEQUENCES, SOFTMAX_STEPS, Arch, Normalize, SoftmaxStep, load_arch
from mas_sim.config import dump_yaml, find_preset, list_presets
from mas_sim.errors import ConfigError


@functools.cache
def load_cached() -> Arch:
    """Load mas_edge once for all examples of a property."""
    return load_arch("mas_edge")


@pytest.fixture(scope="module")
def edge() -> Arch:
    return load_cached()


def refused(arch: Arch, **changes: Any) -> dict[str, str]:
    """Make a variant that must be refused, and return the rule of each faulty path."""
    with pytest.raises(ConfigError) as caught:
        arch.with_(**changes)
    return {fault.path: fault.rule for fault in caught.value.faults}


# --- Do the presets say what their sources say? ---


def test_is_mas_edge_the_published_machine(edge: Arch) -> None:
    assert (edge.clock_ghz, edge.node_nm, edge.dram.bandwidth_gb_per_s, edge.cores) == (3.75, 16, 30, 2)
    assert (edge.mac.rows, edge.mac.cols, edge.vec.lanes) == (16, 16, 256)
    assert edge.l1.capacity_bytes == 5 * 2**20
    assert edge.dram_bytes_per_cycle == 8
    assert edge.dram.latency_cycles == 100 * edge.clock_ghz  # 100 ns
    assert edge.preemption.drain_cycles == edge.mac.rows + edge.mac.cols - 2
    assert len(edge.vec.softmax_passes) == 5
    assert edge.mac.exp_steps == 6


def test_is_davinci_lite_a_cube_of_1024_macs() -> None:
    lite = load_arch("davinci_lite")
    assert lite.macs_per_cycle_per_core == 1024
    assert lite.dram_bytes_per_cycle == Fraction(152, 3)
    assert (lite.l1.capacity_bytes, lite.l0.operand_bytes, lite.l0.accumulator_bytes) == (2**19, 2**16, 2**16)
    assert not lite.preemption.supported
    assert len(lite.vec.softmax_passes) == 1
    assert lite.mac.exp_steps is None


def test_is_fusemax_cloud_the_published_machine() -> None:
    cloud = load_arch("fusemax_cloud")
    assert cloud.macs_per_cycle_per_core == 256 * 256
    assert float(cloud.dram_bytes_per_cycle) == pytest.approx(400 * 2**30 / 940e6, rel=1e-15)
    assert cloud.mac_vec_path.kind == "direct"
    assert (cloud.mac.exp_steps, cloud.vec.op_lane_cycles.exp, cloud.vec.op_lane_cycles.divide) == (6, 6, 1)


def test_can_no_port_of_fusemax_cloud_limit_what_the_closed_forms_charge_nothing_for() -> None:
    cloud = load_arch("fusemax_cloud")
    positions = cloud.mac.rows * cloud.mac.cols
    c_bytes_per_cycle = 2 * positions / 64  # C of E = 64 in E cycles
    assert cloud.mac_vec_path.bytes_per_cycle >= c_bytes_per_cycle
    assert cloud.vec.l1_port_bytes_per_cycle >= 2 * 4 * cloud.vec.lanes  # one in and one out
    assert cloud.mac.l1_port_bytes_per_cycle >= 2 * (cloud.mac.rows + cloud.mac.cols)  # a row and a column
    assert cloud.l0.accumulator_bytes == 2 * 4 * positions


@pytest.mark.parametrize("name", list_presets("arch_configs"))
def test_does_every_number_of_a_preset_carry_its_source_and_its_confidence(name: str) -> None:
    for line in find_preset("arch_configs", name).read_text().splitlines():
        key, _, rest = line.partition(":")
        value, _, comment = rest.partition("  # ")
        if line.startswith("#") or key in ("name", "description", "source") or not value.strip():
            continue
        assert comment.startswith(("source: ", "assumed")), line
        assert comment.endswith(("(high)", "(medium)", "(low)")), line


# --- Are the derived numbers exact and bounded? ---


def test_is_l1_shared_out_only_where_it_is_shared(edge: Arch) -> None:
    private = edge.with_(**{"l1.shared": False})
    assert edge.l1_share_bytes(1) == 5 * 2**20
    assert edge.l1_share_bytes(2) == 5 * 2**19
    assert private.l1_share_bytes(2) == 5 * 2**20
    for cores in (0, 3):
        with pytest.raises(ValueError, match="active_cores"):
            edge.l1_share_bytes(cores)


@given(bandwidth=st.floats(1e-3, 1e5), clock=st.floats(1e-3, 100))
@settings(derandomize=True, max_examples=200, deadline=None)
def test_does_the_dram_ratio_always_fit_31_bits(bandwidth: float, clock: float) -> None:
    arch = load_cached().with_(**{"dram.bandwidth_gb_per_s": bandwidth, "clock_ghz": clock})
    ratio = arch.dram_bytes_per_cycle
    assert 0 < ratio.numerator < 2**31
    assert 0 < ratio.denominator < 2**31
    assert float(ratio) == pytest.approx(bandwidth / clock, rel=1e-4)


def test_is_a_decimal_ratio_exact(edge: Arch) -> None:
    arch = edge.with_(**{"dram.bandwidth_gb_per_s": 25.6, "clock_ghz": 0.1})
    assert arch.dram_bytes_per_cycle == 256


# --- Is every rule between fields enforced? ---


def test_may_kib_be_fractional_only_in_whole_bytes(edge: Arch) -> None:
    assert edge.with_(**{"l0.operand_kib": 0.5}).l0.operand_bytes == 512
    assert edge.with_(**{"l1.capacity_kib": 1 / 1024}).l1.capacity_bytes == 1
    assert "whole number of bytes" in refused(edge, **{"l0.operand_kib": 0.3})["l0.operand_kib"]


START = ("max", "subtract", "exp", "sum")


@pytest.mark.parametrize(
    "passes",
    [
        [["max"], ["subtract"], ["exp"], ["sum"]],
        [["max", "subtract", "exp", "sum", "divide", "divide"]],
        [["subtract", "max", "exp", "sum", "divide"]],
        [["max", "scale", "subtract", "exp", "sum", "divide"]],
        [["max"], [], ["subtract", "exp", "sum", "divide"]],
        [],
        [[*START, "reciprocal"]],
        [[*START, "multiply"]],
        [[*START, "multiply", "reciprocal"]],
        [[*START, "divide", "multiply"]],
        [[*START, "divide"], ["reciprocal", "multiply"]],
        [["max", "subtract", "exp", "reciprocal", "sum", "multiply"]],
        [[*START], ["reciprocal"], [], ["multiply"]],
    ],
)
def test_are_softmax_passes_that_do_not_compute_softmax_refused(edge: Arch, passes: list[list[str]]) -> None:
    assert "once each in this order" in refused(edge, **{"vec.softmax_passes": passes})["vec.softmax_passes"]


@pytest.mark.parametrize(
    ("passes", "suggestion"),
    [
        ([["max", "subtract", "exp", "sum", "reciprocal"]], "max, subtract, exp, sum, reciprocal, multiply"),
        ([["max"], ["subtract", "exp"], ["divide", "sum"]], "max, subtract, exp, sum, divide"),
        ([["scale", "subtract", "exp", "sum", "divide"]], "scale, max, subtract, exp, sum, divide"),
        ([[*START], [], ["divide"]], None),  # the order is right
    ],
)
def test_do_illegal_softmax_passes_get_the_nearest_legal_order(
    edge: Arch, passes: list[list[str]], suggestion: str | None
) -> None:
    with pytest.raises(ConfigError) as caught:
        edge.with_(**{"vec.softmax_passes": passes})
    (fault,) = caught.value.faults
    assert (fault.path, fault.suggestion) == ("vec.softmax_passes", suggestion)
    assert fault.value.startswith("[[")


def test_is_a_misspelt_softmax_step_named_with_its_place(edge: Arch) -> None:
    passes = [[*START], ["reciprokal", "multiplied"]]
    with pytest.raises(ConfigError) as caught:
        edge.with_(**{"vec.softmax_passes": passes})
    found = {fault.path: fault.suggestion for fault in caught.value.faults}
    assert found == {"vec.softmax_passes[1][0]": "reciprocal", "vec.softmax_passes[1][1]": "multiply"}


@st.composite
def legal_passes(draw: st.DrawFn, normalize: Normalize) -> list[list[SoftmaxStep]]:
    """Draw any grouping of a legal sequence of steps into passes."""
    steps = SOFTMAX_SEQUENCES[normalize][draw(st.integers(0, 1)) :]
    cuts = draw(st.sets(st.integers(1, len(steps) - 1)))
    return [list(steps[first:last]) for first, last in pairwise([0, *sorted(cuts), len(steps)])]


@given(passes=legal_passes("divide") | legal_passes("reciprocal"))
@settings(derandomize=True, max_examples=50, deadline=None)
def test_may_softmax_passes_be_grouped_freely_and_start_with_scale(passes: list[list[SoftmaxStep]]) -> None:
    vec = load_cached().with_(**{"vec.softmax_passes": passes}).vec
    assert vec.softmax_passes == tuple(tuple(steps) for steps in passes)
    assert vec.normalize == ("divide" if passes[-1][-1] == "divide" else "reciprocal")


# --- Can softmax be made to divide, or to multiply by the reciprocal? ---


@given(passes=legal_passes("divide"))
@settings(derandomize=True, max_examples=50, deadline=None)
def test_does_normalising_by_the_reciprocal_change_one_step_in_place_and_come_back(
    passes: list[list[SoftmaxStep]],
) -> None:
    dividing = load_cached().with_(**{"vec.softmax_passes": passes})
    other = dividing.with_softmax("reciprocal")
    *same, last = dividing.vec.softmax_passes
    assert other.vec.softmax_passes == (*same, (*last[:-1], "reciprocal", "multiply"))
    assert other.vec.normalize == "reciprocal"
    assert dividing.with_softmax("divide") == dividing
    assert other.with_softmax("reciprocal") == other
    assert other.with_softmax(normalize="divide") == dividing


@given(passes=legal_passes("reciprocal"))
@settings(derandomize=True, max_examples=50, deadline=None)
def test_does_division_stand_where_the_multiply_stood(passes: list[list[SoftmaxStep]]) -> None:
    arch = load_cached().with_(**{"vec.softmax_passes": passes}).with_softmax("divide")
    assert arch.vec.normalize == "divide"
    assert arch.vec.softmax_passes[-1] == (
        *(step for step in passes[-1] if step not in ("reciprocal", "multiply")),
        "divide",
    )
    assert list(chain.from_iterable(arch.vec.softmax_passes)) == list(
        SOFTMAX_STEPS[0 if passes[0][0] == "scale" else 1 :]
    )


def test_does_a_pass_of_the_reciprocal_alone_go_with_it(edge: Arch) -> None:
    passes = [["max"], ["subtract"], ["exp"], ["sum"], ["reciprocal"], ["multiply"]]
    assert edge.with_(**{"vec.softmax_passes": passes}).with_softmax("divide") == edge


@pytest.mark.parametrize(
    ("normalize", "suggestion"),
    [("reciprocol", "reciprocal"), ("", None), (None, None), (["divide"], None)],
)
def test_is_an_unknown_way_to_normalise_refused(edge: Arch, normalize: Any, suggestion: str | None) -> None:
    with pytest.raises(ConfigError, match="'divide' or 'reciprocal'") as caught:
        edge.with_softmax(normalize)
    (fault,) = caught.value.faults
    assert (fault.path, fault.value, fault.suggestion) == ("normalize", repr(normalize), suggestion)


def test_does_a_variant_of_softmax_keep_its_energy_table(tmp_path: Path) -> None:
    text = find_preset("energy_tables", "energy_16nm").read_text()
    (tmp_path / "mine.yaml").write_text(text.replace("pj: 0.347", "pj: 0.5"))
    mine = load_arch(write_variant(tmp_path, energy="mine.yaml"))
    assert mine.with_softmax("reciprocal").energy_table is mine.energy_table


# --- Are values of single fields held to their domains? ---


def test_is_a_bandwidth_of_the_mac_vec_path_given_exactly_where_needed(edge: Arch) -> None:
    assert "is required when kind is direct" in refused(edge, **{"mac_vec_path.kind": "direct"}).popitem()[1]
    assert "must be absent" in refused(edge, **{"mac_vec_path.bytes_per_cycle": 64}).popitem()[1]
    both = {"mac_vec_path.kind": "dram", "mac_vec_path.bytes_per_cycle": 64}
    assert edge.with_(**both).mac_vec_path.bytes_per_cycle == 64


@pytest.mark.parametrize(
    ("path", "value", "rule"),
    [
        ("mac.rows", 0, "at least 1"),
        ("mac.rows", 4097, "at most 4096"),
        ("mac.rows", 1.5, "integer"),
        ("mac.rows", True, "integer"),
        ("mac.rows", "3", "integer"),
        ("cores", 65, "at most 64"),
        ("clock_ghz", float("nan"), "finite"),
        ("clock_ghz", float("inf"), "finite"),
        ("clock_ghz", -1.0, "at least"),
        ("clock_ghz", True, "number"),
        ("clock_ghz", "1e30", "reads an exponent"),
        ("l1.capacity_kib", 1e30, "at most"),
        ("l1.shared", 1, "true or false"),
        ("dram.latency_cycles", -1, "at least 0"),
        ("mac.timing", "systolyc", "must be one of"),
        ("mac", None, "must be a mapping"),
        ("mac.exp_steps", 0, "at least 1"),
        ("mac.exp_steps", 65, "at most 64"),
        ("mac.exp_steps", 6.5, "integer"),
        ("mac.exp_steps", "six", "integer"),
        ("mac.exp_steps", True, "integer"),
        ("vec.op_lane_cycles.mask", -1, "at least 0"),
        ("vec.op_lane_cycles.mask", 4097, "at most 4096"),
        ("vec.op_lane_cycles.mask", None, "integer"),
        ("vec.exp_pj", 0.0, "greater than 0"),
        ("vec.exp_pj", -1.0, "greater than 0"),
        ("vec.exp_pj", 1.1e6, "at most"),
        ("vec.exp_pj", float("nan"), "finite"),
        ("vec.exp_pj", True, "number"),
        ("vec.exp_pj", "1e3", "reads an exponent"),
    ],
)
def test_is_a_value_out_of_its_domain_refused(edge: Arch, path: str, value: object, rule: str) -> None:
    faults = refused(edge, **{path: value})
    assert list(faults) == [path]
    assert rule in faults[path]


# --- Does a file's energy table come with it? ---


def write_variant(folder: Path, **changes: Any) -> Path:
    """Write mas_edge with some top-level keys replaced."""
    data = yaml.safe_load(find_preset("arch_configs", "mas_edge").read_text()) | changes
    path = folder / "machine.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    return path


def test_is_an_unknown_energy_table_or_dram_kind_a_fault_of_the_file(tmp_path: Path) -> None:
    path = write_variant(tmp_path, energy="energy_15nm", cores=0)
    with pytest.raises(ConfigError) as caught:
        load_arch(path)
    found = {fault.path: fault for fault in caught.value.faults}
    assert set(found) == {"cores", "energy"}
    assert found["energy"].suggestion == "energy_16nm"
    assert "energy: energy_15nm" in path.read_text().splitlines()[(found["energy"].line or 0) - 1]

    dram = {"kind": "LPDR4", "bandwidth_gb_per_s": 30, "latency_cycles": 0, "setup_cycles": 0}
    with pytest.raises(ConfigError) as caught:
        load_arch(write_variant(tmp_path, dram=dram))
    (fault,) = caught.value.faults
    assert (fault.path, fault.suggestion) == ("dram.kind", "LPDDR4")
    assert fault.line is not None


def test_is_a_path_to_an_energy_table_relative_to_the_architecture(tmp_path: Path, edge: Arch) -> None:
    text = find_preset("energy_tables", "energy_16nm").read_text()
    (tmp_path / "mine.yaml").write_text(text.replace("pj: 0.347", "pj: 0.5"))
    path = write_variant(tmp_path, energy="mine.yaml")
    mine = load_arch(path)
    assert mine.energy_table.compute.mac_fp16_acc32.pj == 0.5
    assert mine.with_(cores=1).energy_table is mine.energy_table
    assert mine.with_(energy="energy_16nm").energy_table == edge.energy_table
    (tmp_path / "mine.yaml").write_text(text.replace("pj: 0.347", "pj: 99.0"))
    with pytest.raises(ConfigError) as caught:
        load_arch(path)
    assert [fault.path for fault in caught.value.faults] == ["compute.mac_fp16_acc32.pj"]
    assert caught.value.faults[0].file.endswith("mine.yaml")
    (tmp_path / "mine.yaml").unlink()
    with pytest.raises(ConfigError, match="no such file"):
        load_arch(path)


# --- Is a variant safe to make and to keep? ---


def test_does_an_unknown_parameter_get_the_nearest_one(edge: Arch) -> None:
    with pytest.raises(ConfigError) as caught:
        edge.with_(**{"l1.capacity_kb": 1, "vec.op_lane_cycles.expo": 3})
    assert [fault.suggestion for fault in caught.value.faults] == ["l1.capacity_kib", "vec.op_lane_cycles.exp"]


def test_does_a_variant_leave_the_original_alone(edge: Arch) -> None:
    before = edge.hash
    variant = edge.with_(**{"l1.capacity_kib": np.int64(1024), "clock_ghz": np.float64(1.0)})
    assert (variant.l1.capacity_bytes, variant.clock_ghz) == (2**20, 1.0)
    assert edge.hash == before != variant.hash
    assert variant != edge
    assert variant.with_(**{"l1.capacity_kib": 5120, "clock_ghz": 3.75}) == edge


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("vec.op_lane_cycles.mask", 2),
        ("vec.exp_pj", 1.56),  # as in the table, but without its band
        ("mac.exp_steps", 7),
        ("mac.exp_steps", None),
        ("vec.softmax_passes", [["max"], ["subtract"], ["exp"], ["sum"], ["reciprocal", "multiply"]]),
    ],
)
def test_does_each_key_of_exp_mask_and_division_change_the_hash(edge: Arch, path: str, value: object) -> None:
    variant = edge.with_(**{path: value})
    assert variant.hash != edge.hash
    section, _, key = path.partition(".")
    original = functools.reduce(getattr, key.split("."), getattr(edge, section))
    assert variant.with_(**{path: original}).hash == edge.hash


def test_are_the_new_parameters_off_or_assumed_unless_given(edge: Arch, tmp_path: Path) -> None:
    data = edge.model_dump(mode="json")
    del data["mac"]["exp_steps"], data["vec"]["exp_pj"], data["vec"]["op_lane_cycles"]["mask"]
    path = write_variant(tmp_path, mac=data["mac"], vec=data["vec"])
    arch = load_arch(path)
    assert (arch.mac.exp_steps, arch.vec.exp_pj, arch.vec.op_lane_cycles.mask) == (None, None, 1)
    assert arch == edge.with_(**{"mac.exp_steps": None})


def test_are_all_faults_about_exp_and_softmax_reported_with_their_lines(tmp_path: Path) -> None:
    data = load_cached().model_dump(mode="json")
    mac = data["mac"] | {"exp_steps": 0, "exp_step": 6}
    lanes = data["vec"]["op_lane_cycles"] | {"masc": 1}
    passes = [[*START], ["reciprocal"]]
    vec = data["vec"] | {"exp_pj": -1, "op_lane_cycles": lanes, "softmax_passes": passes}
    path = write_variant(tmp_path, mac=mac, vec=vec)
    with pytest.raises(ConfigError) as caught:
        load_arch(path)
    lines = path.read_text().splitlines()
    found = {fault.path: fault for fault in caught.value.faults}
    expected = {
        "mac.exp_steps": None,
        "mac.exp_step": "exp_steps",
        "vec.exp_pj": None,
        "vec.op_lane_cycles.masc": "mask",
        "vec.softmax_passes": "max, subtract, exp, sum, reciprocal, multiply",
    }
    assert {path: fault.suggestion for path, fault in found.items()} == expected
    for field, fault in found.items():
        assert lines[(fault.line or 0) - 1].strip().startswith(field.rpartition(".")[2] + ":")


def test_is_a_machine_immutable_hashable_and_picklable(edge: Arch) -> None:
    with pytest.raises(ValueError, match="frozen"):
        edge.cores = 3  # type: ignore[misc]
    assert len({edge, load_arch("mas_edge")}) == 1
    copy = pickle.loads(pickle.dumps(edge))
    assert copy == edge
    assert copy.energy_table == edge.energy_table


@pytest.mark.parametrize("name", list_presets("arch_configs"))
def test_does_a_dumped_preset_load_back_equal(name: str, tmp_path: Path) -> None:
    arch = load_arch(name)
    path = tmp_path / "copy.yaml"
    path.write_text(dump_yaml(arch))
    assert load_arch(path) == arch


@given(
    rows=st.integers(1, 4096),
    depth=st.integers(1, 4096),
    bandwidth=st.floats(1e-3, 1e5),
    l1_bytes=st.integers(1, 2**34),
    timing=st.sampled_from(["ideal", "pipelined", "systolic"]),
    exp_steps=st.none() | st.integers(1, 64),
    exp_pj=st.none() | st.floats(0, 1e6, exclude_min=True),
    description=st.text(st.characters(exclude_categories=("Cc", "Cs")), max_size=50),
)
@settings(derandomize=True, max_examples=50, deadline=None)
def test_does_any_legal_machine_survive_the_way_through_yaml(
    tmp_path_factory: pytest.TempPathFactory,
    rows: int,
    depth: int,
    bandwidth: float,
    l1_bytes: int,
    timing: str,
    exp_steps: int | None,
    exp_pj: float | None,
    description: str,
) -> None:
    arch = load_cached().with_(
        **{
            "mac.rows": rows,
            "mac.depth": depth,
            "mac.timing": timing,
            "mac.exp_steps": exp_steps,
            "vec.exp_pj": exp_pj,
            "dram.bandwidth_gb_per_s": bandwidth,
            "l1.capacity_kib": l1_bytes / 1024,
            "description": description,
        }
    )
    path = tmp_path_factory.mktemp("arch") / "machine.yaml"
    path.write_text(dump_yaml(arch), encoding="utf-8")
    assert load_arch(path) == arch
    assert arch.l1.capacity_bytes == l1_bytes


# --- Does the README list every key? ---


def test_does_the_readme_list_every_key(edge: Arch) -> None:
    readme = (find_preset("arch_configs", "mas_edge").parent / "README.md").read_text()

    def keys(data: dict[str, Any], prefix: str = "") -> list[str]:
        found = []
        for key, value in data.items():
            found += keys(value, f"{prefix}{key}.") if isinstance(value, dict) else [f"{prefix}{key}"]
        return found

    for key in keys(edge.model_dump()):
        short = "." + key.rpartition(".")[2]
        assert f"`{key}`" in readme or f"`{short}`" in readme, key
