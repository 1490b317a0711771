"""Whether a workload is the attention layer that its file says, and its sizes count what they claim."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from mas_sim.config import dump_yaml, find_preset, list_presets
from mas_sim.errors import ConfigError
from mas_sim.workload import Workload, load_workload

SHAPES = {  # heads, K/V heads, sequence, head dimension, from the public model configurations
    "bert_base": (12, 12, 512, 64),
    "bert_large": (16, 16, 512, 64),
    "bert_small": (8, 8, 512, 64),
    "llama3_8b": (32, 32, 512, 128),
    "llama3_8b_gqa": (32, 8, 512, 128),
    "t5_mini": (8, 8, 512, 32),
    "vit_b_14": (12, 12, 256, 64),
    "vit_l_14": (16, 16, 256, 64),
    "vit_h_14": (16, 16, 256, 80),
    "vit_b_16": (12, 12, 196, 64),
    "vit_l_16": (16, 16, 196, 64),
    "vit_h_16": (16, 16, 196, 80),
    "xlm": (8, 8, 512, 128),
}


def make(**changes: Any) -> Workload:
    """Make a small workload whose six sizes all differ."""
    sizes: dict[str, Any] = {"heads": 6, "n_q": 5, "n_kv": 7, "head_dim_qk": 11, "head_dim_v": 13, "batch": 2}
    return Workload(**({"name": "tiny"} | sizes | changes))


def test_are_exactly_the_thirteen_networks_shipped() -> None:
    assert list_presets("workloads") == sorted(SHAPES)


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_does_a_shipped_network_have_its_public_shape(name: str) -> None:
    workload = load_workload(name)
    heads, kv_heads, sequence, head_dim = SHAPES[name]
    assert (workload.name, workload.heads, workload.kv_heads) == (name, heads, kv_heads)
    assert (workload.n_q, workload.n_kv) == (sequence, sequence)
    assert (workload.head_dim_qk, workload.head_dim_v) == (head_dim, head_dim)
    assert (workload.batch, workload.dtype, workload.mask) == (1, "fp16", "none")
    assert workload.source


def test_do_the_sizes_count_what_they_claim() -> None:
    workload = make(kv_heads=3)
    assert workload.scores == 2 * 6 * 5 * 7
    assert workload.macs == 2 * 6 * 5 * 7 * 11 + 2 * 6 * 5 * 7 * 13
    assert workload.q_bytes == 2 * 6 * 5 * 11 * 2
    assert workload.k_bytes == 2 * 3 * 7 * 11 * 2
    assert workload.v_bytes == 2 * 3 * 7 * 13 * 2
    assert workload.o_bytes == 2 * 6 * 5 * 13 * 2
    assert workload.compulsory_bytes == 2 * 2 * (6 * 5 * 24 + 3 * 7 * 24)


@pytest.mark.parametrize(("dtype", "element_bytes"), [("fp16", 2), ("bf16", 2), ("int8", 1)])
def test_does_the_dtype_set_the_bytes_but_not_the_accumulator(dtype: str, element_bytes: int) -> None:
    workload = make(dtype=dtype)
    assert (workload.bytes_per_element, workload.accumulator_bytes) == (element_bytes, 4)
    assert workload.q_bytes == 2 * 6 * 5 * 11 * element_bytes


def test_do_kv_heads_follow_heads_unless_given() -> None:
    assert make().kv_heads == 6
    assert make(kv_heads=None).kv_heads == 6
    assert make(kv_heads=2).kv_heads == 2
    for kv_heads in (0, 4, 12, -1):
        with pytest.raises(ValidationError):
            make(kv_heads=kv_heads)


@pytest.mark.parametrize(
    "changes",
    [
        {"batch": 0},
        {"batch": 65537},
        {"heads": 4097},
        {"n_q": 2**24 + 1},
        {"n_kv": 0},
        {"head_dim_qk": 4097},
        {"head_dim_v": -1},
        {"dtype": "fp32"},
        {"mask": "causal"},
        {"name": ""},
    ],
)
def test_is_a_value_out_of_range_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        make(**changes)
    assert caught.value.error_count() == 1


def test_is_the_largest_product_allowed_and_one_more_refused_as_one_fault(tmp_path: Path) -> None:
    largest = make(heads=1, n_q=2**24, n_kv=2**24, head_dim_qk=2**8, head_dim_v=1, batch=1)
    assert largest.scores * 2**8 == 2**56
    path = tmp_path / "huge.yaml"
    path.write_text(dump_yaml(largest).replace("batch: 1", "batch: 2"))
    with pytest.raises(ConfigError) as caught:
        load_workload(path)
    (fault,) = caught.value.faults
    assert "2**56" in fault.rule
    assert fault.value == str(2**57)
    assert fault.line == 1


def test_is_a_million_tokens_legal() -> None:
    assert load_workload("bert_base").with_(n_q=2**20, n_kv=2**20).scores == 12 * 2**40


@given(
    st.builds(
        lambda heads, group, **rest: Workload(heads=heads * group, kv_heads=heads, **rest),
        heads=st.integers(1, 64),
        group=st.integers(1, 64),
        name=st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1, max_size=20),
        batch=st.integers(1, 8),
        n_q=st.integers(1, 2**12),
        n_kv=st.integers(1, 2**12),
        head_dim_qk=st.integers(1, 256),
        head_dim_v=st.integers(1, 256),
        dtype=st.sampled_from(["fp16", "bf16", "int8"]),
    )
)
@settings(max_examples=100, deadline=None)
def test_does_any_legal_workload_survive_the_way_through_yaml(
    tmp_path_factory: pytest.TempPathFactory, workload: Workload
) -> None:
    path = tmp_path_factory.mktemp("workload") / "workload.yaml"
    path.write_text(dump_yaml(workload), encoding="utf-8")
    loaded = load_workload(path)
    assert loaded == workload
    assert loaded.hash == workload.hash


def test_does_the_readme_list_every_key_and_network() -> None:
    readme = (find_preset("workloads", "xlm").parent / "README.md").read_text()
    for word in [*Workload.model_fields, *SHAPES]:
        assert f"`{word}`" in readme, word
