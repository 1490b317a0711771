"""Whether energy follows its formulas, its table and its bands."""

import functools
import math
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mas_sim.arch import Arch, load_arch
from mas_sim.config import dump_yaml, validate
from mas_sim.energy import (
    COMPONENT_OF_COLUMN,
    COMPONENTS,
    METER_COLUMNS,
    EnergyBreakdown,
    energy_breakdown,
    energy_coefficients,
    sram_pj_per_byte,
)
from mas_sim.energy_table import Access, EnergyTable, Level, SramLaw, load_energy_table
from mas_sim.errors import ConfigError
from mas_sim.workload import Dtype


@functools.cache
def load_energy_table_once() -> EnergyTable:
    """Load the table once for all examples of a property."""
    return load_energy_table("energy_16nm")


@pytest.fixture(scope="module")
def table() -> EnergyTable:
    return load_energy_table_once()


@functools.cache
def load_edge_once() -> Arch:
    """Load mas_edge once for all examples of a property."""
    return load_arch("mas_edge")


@pytest.fixture(scope="module")
def edge() -> Arch:
    return load_edge_once()


def per_action(arch: Arch, dtype: Dtype = "fp16", level: Level = "nominal") -> dict[str, float]:
    """Return pJ per action by column name."""
    values = energy_coefficients(arch, dtype, level).pj_per_action
    return dict(zip(METER_COLUMNS, values.tolist(), strict=True))


# --- Does the capacity law give the energies that it was fitted to? ---


def test_does_5_mib_of_l1_cost_what_the_law_says_and_nearly_what_was_measured(table: EnergyTable) -> None:
    read = sram_pj_per_byte(table.l1_law, 5120, "read")
    assert read == pytest.approx(1.663 * 5**0.544)
    assert read == pytest.approx(4.062, rel=0.06)
    assert sram_pj_per_byte(table.l1_law, 5120, "write") == pytest.approx(1.552 * 5**0.561)


@pytest.mark.parametrize(("name", "worst"), [("l1_law", 0.04), ("l0_law", 0.125)])
def test_is_every_measured_memory_near_its_law(table: EnergyTable, name: str, worst: float) -> None:
    law: SramLaw = getattr(table, name)
    assert len(law.measured) >= 3
    for point in law.measured:
        assert sram_pj_per_byte(law, point.capacity_kib, "read") == pytest.approx(point.read, rel=worst)
        assert sram_pj_per_byte(law, point.capacity_kib, "write") == pytest.approx(point.write, rel=worst)


@pytest.mark.parametrize("name", ["l1_law", "l0_law"])
def test_do_the_band_factors_follow_from_the_measured_bands(table: EnergyTable, name: str) -> None:
    law: SramLaw = getattr(table, name)
    low = min(point.low / point.read for point in law.measured)
    high = max(point.high / max(point.read, point.write) for point in law.measured)
    assert law.low_factor == pytest.approx(low, abs=0.005)
    assert law.high_factor == pytest.approx(high, abs=0.005)


@given(small=st.floats(1, 2**20), factor=st.floats(1.01, 100))
@settings(derandomize=True, deadline=None)
def test_does_a_larger_memory_always_cost_more(small: float, factor: float) -> None:
    law = load_energy_table_once().l1_law
    for access in get_args(Access):
        assert sram_pj_per_byte(law, small, access) < sram_pj_per_byte(law, small * factor, access)


# --- Do the table's derived rows follow from what they claim to be derived from? ---


def test_do_the_scaled_rows_follow_from_their_published_figures(table: EnergyTable) -> None:
    e45_to_16 = 0.1735
    compute = table.compute
    assert compute.mac_fp16_acc32.pj == pytest.approx((1.1 + 0.9) * e45_to_16, abs=5e-4)
    assert compute.vec_add_fp16.pj == pytest.approx(0.4 * e45_to_16, abs=5e-4)
    assert compute.vec_add_fp32.pj == pytest.approx(0.9 * e45_to_16, abs=5e-4)
    assert compute.vec_mul_fp16.pj == pytest.approx(1.1 * e45_to_16, abs=5e-4)
    assert compute.vec_fma_fp16.pj == pytest.approx(compute.vec_mul_fp16.pj + compute.vec_add_fp16.pj)
    assert compute.vec_exp_fp16.pj == pytest.approx(6 * compute.vec_fma_fp16.pj)
    assert compute.vec_div_fp16.pj == pytest.approx(math.sqrt(1.36 * 6.29), abs=0.05)
    assert compute.mac_int8_acc32.pj == pytest.approx(math.sqrt(0.052 * 0.200), abs=0.005)
    assert compute.vec_max_fp16.pj == pytest.approx(math.sqrt(0.0049 * 0.069), abs=0.001)


def test_does_every_row_lie_in_its_band_and_name_its_source(table: EnergyTable) -> None:
    rows = [getattr(table.compute, name) for name in type(table.compute).model_fields]
    for row in [*rows, *table.dram.values(), table.leakage]:
        assert 0 <= row.low <= row.nominal <= row.high
        assert row.source


def test_is_a_value_outside_its_own_band_refused(table: EnergyTable) -> None:
    data = table.model_dump()
    data["dram"]["LPDDR4"]["pj_per_byte"] = 1000.0
    data["l1_law"]["valid_kib"] = [8192, 512]
    with pytest.raises(ConfigError) as caught:
        validate(EnergyTable, data, {}, "<python>")
    assert {fault.path for fault in caught.value.faults} == {"dram.LPDDR4.pj_per_byte", "l1_law.valid_kib"}


# --- Is each action priced by the right row? ---


def test_is_each_column_priced_by_its_row(edge: Arch, table: EnergyTable) -> None:
    price = per_action(edge)
    assert list(price) == list(METER_COLUMNS)
    assert price["dram_read_bytes"] == price["dram_write_bytes"] == 64
    assert price["l1_read_bytes"] == pytest.approx(1.663 * 5**0.544)
    assert price["l0_read_bytes"] == pytest.approx(0.325 * 2**0.624)  # 64 + 64 KiB, twice the reference
    assert price["l0_write_bytes"] == pytest.approx(0.411 * 2**0.430)
    assert price["mac_ops"] == 0.347
    vec = [price[f"vec_{name}_ops"] for name in ("max", "add", "mul", "exp", "div")]
    assert vec == [0.018, 0.069, 0.191, 1.56, 2.9]


def test_does_the_dtype_decide_the_mac_and_nothing_else(edge: Arch) -> None:
    fp16, bf16, int8 = (per_action(edge, dtype) for dtype in get_args(Dtype))
    assert fp16 == bf16
    assert int8.pop("mac_ops") == 0.10
    fp16.pop("mac_ops")
    assert int8 == fp16


def test_does_every_price_rise_from_low_to_high(edge: Arch) -> None:
    low, nominal, high = (energy_coefficients(edge, "fp16", level) for level in ("low", "nominal", "high"))
    assert (low.pj_per_action < nominal.pj_per_action).all()
    assert (nominal.pj_per_action < high.pj_per_action).all()
    assert low.leakage_pj_per_cycle < nominal.leakage_pj_per_cycle < high.leakage_pj_per_cycle
    assert low.pj_per_action[0] == 32
    assert high.pj_per_action[2] == pytest.approx(1.38 * 1.663 * 5**0.544)


def test_does_the_machines_own_exp_energy_replace_the_row_at_every_level(edge: Arch, table: EnergyTable) -> None:
    row = table.compute.vec_exp_fp16
    own = edge.with_(**{"vec.exp_pj": 0.4})
    for level in get_args(Level):
        assert per_action(edge, level=level)["vec_exp_ops"] == row.at(level) != 0.4
        assert per_action(own, level=level) == per_action(edge, level=level) | {"vec_exp_ops": 0.4}


@given(exp_pj=st.floats(0, 1e6, exclude_min=True), exps=st.integers(0, 10**9))
@settings(derandomize=True, deadline=None)
def test_is_exp_energy_its_count_times_its_own_price(exp_pj: float, exps: int) -> None:
    arch = load_edge_once().with_(**{"vec.exp_pj": exp_pj})
    counts = [0] * 12
    counts[METER_COLUMNS.index("vec_exp_ops")] = exps
    for level in get_args(Level):
        breakdown = energy_breakdown(counts, 0, energy_coefficients(arch, "fp16", level))
        assert breakdown.vec == breakdown.total == exps * exp_pj


def test_does_a_sweep_over_l1_change_energy(edge: Arch) -> None:
    sizes = [512, 1024, 2048, 4096, 8192]
    swept = [energy_coefficients(edge.with_(**{"l1.capacity_kib": size}), "fp16") for size in sizes]
    reads = [coefficients.pj_per_action[METER_COLUMNS.index("l1_read_bytes")] for coefficients in swept]
    assert reads == sorted(set(reads))
    assert reads[1] == pytest.approx(1.663)
    leaks = [coefficients.leakage_pj_per_cycle for coefficients in swept]
    assert leaks == sorted(set(leaks))


def test_is_leakage_milliwatts_over_gigahertz(edge: Arch) -> None:
    shared = energy_coefficients(edge, "fp16").leakage_pj_per_cycle
    assert shared == pytest.approx(5.6 * (5 + 2 * 0.125) / 3.75)
    private = energy_coefficients(edge.with_(**{"l1.shared": False}), "fp16").leakage_pj_per_cycle
    assert private == pytest.approx(5.6 * (2 * 5 + 2 * 0.125) / 3.75)


# --- Do the notes speak up when, and only when, the figures are weak? ---


def test_does_a_machine_inside_the_table_have_no_notes(edge: Arch) -> None:
    assert energy_coefficients(edge, "fp16").notes == ()


def test_does_each_weakness_have_its_note(edge: Arch) -> None:
    large = edge.with_(**{"l1.capacity_kib": 16384, "l0.operand_kib": 1, "l0.accumulator_kib": 1})
    assert energy_coefficients(large, "fp16").notes == (
        "L1 of 16384 KiB is outside the capacity law's valid range 512..8192 KiB: extrapolated",
        "L0 of 2 KiB is outside the capacity law's valid range 32..512 KiB: extrapolated",
    )
    (note,) = energy_coefficients(edge.with_(node_nm=7), "fp16").notes
    assert "not scaled to 7 nm" in note
    (note,) = energy_coefficients(edge.with_(**{"dram.kind": "LPDDR5"}), "fp16").notes
    assert "low confidence" in note
    for level in get_args(Level):
        (note,) = energy_coefficients(edge.with_(**{"vec.exp_pj": 0.25}), "fp16", level).notes
        assert note.startswith("vec.exp_pj sets the energy of an exp to 0.25 pJ at low, nominal and high alike")
        assert "mas16_v1: 1.56 pJ" in note


def test_is_an_unknown_dram_kind_a_config_error(edge: Arch) -> None:
    with pytest.raises(ConfigError) as caught:
        energy_coefficients(edge.with_(**{"dram.kind": "LPDDR9"}), "fp16")
    assert caught.value.faults[0].path == "dram.kind"


# --- Does the breakdown add up? ---


def test_does_each_column_land_in_its_component(edge: Arch) -> None:
    coefficients = energy_coefficients(edge, "fp16")
    for index, column in enumerate(METER_COLUMNS):
        counts = np.zeros(12, dtype=np.int64)
        counts[index] = 1000
        breakdown = energy_breakdown(counts, 0, coefficients).as_dict()
        component = column.split("_")[0]
        assert breakdown.pop("total") == breakdown[component] == pytest.approx(1000 * per_action(edge)[column])
        assert sum(value != 0 for value in breakdown.values()) == 1
        assert COMPONENTS[COMPONENT_OF_COLUMN[index]] == component


def test_is_the_total_the_sum_of_the_parts_by_hand(edge: Arch) -> None:
    breakdown = energy_breakdown([100, 50, 0, 0, 0, 0, 1000, 1, 2, 3, 4, 5], 1000, energy_coefficients(edge, "fp16"))
    assert breakdown.dram == pytest.approx(150 * 64)
    assert breakdown.mac == pytest.approx(347)
    assert breakdown.vec == pytest.approx(0.018 + 2 * 0.069 + 3 * 0.191 + 4 * 1.56 + 5 * 2.9)
    assert breakdown.leakage == pytest.approx(7840)
    assert breakdown.total == pytest.approx(9600 + 347 + 21.469 + 7840)
    assert breakdown.as_dict() == {"total": breakdown.total} | vars(breakdown)
    assert EnergyBreakdown(1, 2, 4, 8, 16, 32).total == 63


def test_do_counts_near_64_bits_not_overflow(edge: Arch) -> None:
    counts = np.full(12, 2**62, dtype=np.int64)
    breakdown = energy_breakdown(counts, 2**62, energy_coefficients(edge, "fp16"))
    assert breakdown.total > 2**62 * 128
    assert math.isfinite(breakdown.total)


def test_are_counts_of_the_wrong_shape_and_writes_to_prices_refused(edge: Arch) -> None:
    coefficients = energy_coefficients(edge, "fp16")
    with pytest.raises(ValueError, match="shape"):
        energy_breakdown([1, 2, 3], 1, coefficients)
    with pytest.raises(ValueError, match="read-only"):
        coefficients.pj_per_action[0] = 1.0


def test_does_the_table_survive_the_way_through_yaml(
    table: EnergyTable, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("energy") / "energy_copy.yaml"
    path.write_text(dump_yaml(table))
    assert load_energy_table(path) == table
