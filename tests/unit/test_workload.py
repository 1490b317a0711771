"""Whether a workload is the attention layer that its file says, and its sizes count what they claim."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from mas_sim.config import dump_yaml, find_preset, list_presets
from mas_sim.errors import ConfigError
from mas_sim.workload import UNLIMITED, Workload, load_workload

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

BATCH_AND_SHAPE = {  # batch, heads, K/V heads, N_q, N_kv, head dimension, mask, window_back: public configurations
    "llama3_8b_prefill_512": (1, 32, 8, 512, 512, 128, "causal", None),
    "llama3_8b_prefill_4096": (1, 32, 8, 4096, 4096, 128, "causal", None),
    "llama3_8b_decode_8k": (1, 32, 8, 1, 8192, 128, "causal", None),
    "llama32_1b_prefill_2048": (1, 32, 8, 2048, 2048, 64, "causal", None),
    "gemma2_2b_global_8k": (1, 8, 4, 8192, 8192, 256, "causal", None),
    "gemma2_2b_local_8k": (1, 8, 4, 8192, 8192, 256, "sliding_window", 4095),
    "qwen25_05b_prefill_2048": (1, 14, 2, 2048, 2048, 64, "causal", None),
    "qwen25_7b_prefill_2048": (1, 28, 4, 2048, 2048, 128, "causal", None),
    "phi3_mini_prefill_2048": (1, 32, 32, 2048, 2048, 96, "sliding_window", 2046),
    "whisper_base_encoder": (1, 8, 8, 1500, 1500, 64, "none", None),
    "whisper_base_cross": (1, 8, 8, 448, 1500, 64, "none", None),
    "vit_b_16_224": (1, 12, 12, 197, 197, 64, "none", None),
    "deit_s_16": (1, 6, 6, 198, 198, 64, "none", None),
    "sam_b_global": (1, 12, 12, 4096, 4096, 64, "none", None),
    "sam_b_window": (25, 12, 12, 196, 196, 64, "none", None),
    "sd15_self_64": (1, 8, 8, 4096, 4096, 40, "none", None),
    "sd15_self_32": (1, 8, 8, 1024, 1024, 80, "none", None),
    "sd15_self_16": (1, 8, 8, 256, 256, 160, "none", None),
    "sd15_self_8": (1, 8, 8, 64, 64, 160, "none", None),
    "sd15_cross_64": (1, 8, 8, 4096, 77, 40, "none", None),
    "sd15_cross_32": (1, 8, 8, 1024, 77, 80, "none", None),
    "sd15_cross_16": (1, 8, 8, 256, 77, 160, "none", None),
    "sd15_cross_8": (1, 8, 8, 64, 77, 160, "none", None),
    "clip_text_l": (1, 12, 12, 77, 77, 64, "causal", None),
}


def make(**changes: Any) -> Workload:
    """Make a small workload whose six sizes all differ."""
    sizes: dict[str, Any] = {"heads": 6, "n_q": 5, "n_kv": 7, "head_dim_qk": 11, "head_dim_v": 13, "batch": 2}
    return Workload(**({"name": "tiny"} | sizes | changes))


def test_are_exactly_these_workloads_shipped() -> None:
    assert list_presets("workloads") == sorted([*SHAPES, *BATCH_AND_SHAPE])


@pytest.mark.parametrize("name", sorted(BATCH_AND_SHAPE))
def test_does_a_shipped_layer_have_its_public_shape(name: str) -> None:
    workload = load_workload(name)
    batch, heads, kv_heads, n_q, n_kv, head_dim, mask, window_back = BATCH_AND_SHAPE[name]
    assert (workload.name, workload.batch, workload.heads, workload.kv_heads) == (name, batch, heads, kv_heads)
    assert (workload.n_q, workload.n_kv) == (n_q, n_kv)
    assert (workload.head_dim_qk, workload.head_dim_v) == (head_dim, head_dim)
    assert (workload.mask, workload.window_back) == (mask, window_back)
    assert workload.source
    assert workload.description


@pytest.mark.parametrize("name", list_presets("workloads"))
def test_has_every_number_of_a_shipped_file_a_source_of_its_own(name: str) -> None:
    lines = find_preset("workloads", name).read_text(encoding="utf-8").splitlines()
    for line in lines:
        if not line.startswith(("#", "name:", "description:", "source:")):
            assert re.search(r"  # source: .+ \((high|medium|low)\)$", line), line


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
        {"mask": "dilated"},
        {"accumulator": "int32"},
        {"accumulator": "fp64", "dtype": "int8"},
        {"mask": "causal", "n_q": 8},
        {"mask": "sliding_window"},
        {"mask": "sliding_window", "window_ahead": 3},
        {"mask": "sliding_window", "window_back": -1},
        {"mask": "sliding_window", "window_back": 2**24 + 1},
        {"mask": "sliding_window", "window_back": 3, "window_ahead": -1},
        {"mask": "sliding_window", "window_back": 3, "window_ahead": 1, "n_q": 9},
        {"mask": "causal", "window_back": 3},
        {"mask": "causal", "window_ahead": 0},
        {"window_back": 3},
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


@st.composite
def masked(draw: st.DrawFn) -> Workload:
    """A small workload under any mask that leaves every row a key."""
    mask = draw(st.sampled_from(["none", "causal", "sliding_window"]))
    n_kv = draw(st.integers(1, 40))
    window: dict[str, int] = {}
    if mask == "sliding_window":
        window = {"window_back": draw(st.integers(0, 45)), "window_ahead": draw(st.integers(0, 45))}
    most = 80 if mask == "none" else n_kv + window.get("window_ahead", 0)
    return make(n_q=draw(st.integers(1, most)), n_kv=n_kv, mask=mask, kv_heads=3, **window)


def kept_by_definition(workload: Workload) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which scores count, element by element, as the masks are defined."""
    position = (np.arange(workload.n_q) + workload.n_kv - workload.n_q)[:, None]
    key = np.arange(workload.n_kv)[None, :]
    if workload.mask == "none":
        return np.ones((workload.n_q, workload.n_kv), dtype=np.bool_)
    if workload.mask == "causal":
        return key <= position
    assert workload.window_back is not None
    assert workload.window_ahead is not None
    return (key >= position - workload.window_back) & (key <= position + workload.window_ahead)


@given(masked())
@settings(max_examples=300, derandomize=True, deadline=None)
def test_do_the_counts_of_a_mask_agree_with_its_elements(workload: Workload) -> None:
    kept = kept_by_definition(workload)
    for row in range(workload.n_q):
        first, end = workload.key_range(row)
        assert np.flatnonzero(kept[row]).tolist() == list(range(first, end))
    assert workload.kept_scores == 2 * 6 * int(kept.sum())
    assert workload.keys_used == int(kept.any(axis=0).sum())
    assert workload.macs == 2 * 6 * int(kept.sum()) * (11 + 13)
    assert workload.scores == 2 * 6 * workload.n_q * workload.n_kv
    used_bytes = 2 * 2 * 3 * workload.keys_used * (11 + 13)
    assert workload.compulsory_bytes == workload.q_bytes + used_bytes + workload.o_bytes
    assert workload.k_bytes == 2 * 2 * 3 * workload.n_kv * 11


@given(n_q=st.integers(1, 60), n_kv=st.integers(1, 30), back=st.integers(0, 30), ahead=st.none() | st.integers(0, 30))
@settings(max_examples=300, derandomize=True, deadline=None)
def test_is_a_mask_refused_exactly_if_it_leaves_a_row_without_keys(
    n_q: int, n_kv: int, back: int, ahead: int | None
) -> None:
    changes: dict[str, Any] = {"mask": "sliding_window", "window_back": back, "window_ahead": ahead or 0}
    if ahead is None:
        changes = {"mask": "causal"}
    position = (np.arange(n_q) + n_kv - n_q)[:, None]
    key = np.arange(n_kv)[None, :]
    kept = (key <= position + (ahead or 0)) & ((ahead is None) | (key >= position - back))
    if kept.any(axis=1).all():
        make(n_q=n_q, n_kv=n_kv, **changes)
        return
    with pytest.raises(ValidationError, match=f"the first {int((~kept.any(axis=1)).sum())} rows have none"):
        make(n_q=n_q, n_kv=n_kv, **changes)


@pytest.mark.parametrize(
    ("changes", "band"),
    [
        ({}, (UNLIMITED, UNLIMITED)),
        ({"mask": "causal"}, (UNLIMITED, 0)),
        ({"mask": "sliding_window", "window_back": 3}, (3, 0)),
        ({"mask": "sliding_window", "window_back": 0, "window_ahead": 4}, (0, 4)),
    ],
)
def test_is_every_mask_a_band(changes: dict[str, Any], band: tuple[int, int]) -> None:
    assert make(**changes).band == band


def test_is_decoding_with_a_cache_the_last_row_of_a_causal_prefill() -> None:
    prefill, decode = make(n_q=7, mask="causal"), make(n_q=1, mask="causal")
    assert decode.key_range(0) == prefill.key_range(6) == (0, 7)
    assert decode.kept_scores == decode.scores


def test_are_the_counts_of_the_longest_sequences_exact() -> None:
    n = 2**24
    sizes: dict[str, Any] = {"heads": 1, "batch": 1, "head_dim_qk": 1, "head_dim_v": 1, "n_q": n, "n_kv": n}
    assert make(mask="causal", **sizes).kept_scores == n * (n + 1) // 2
    assert make(mask="sliding_window", window_back=4095, **sizes).kept_scores == n * 4096 - 4095 * 4096 // 2
    assert make(**sizes).kept_scores == n * n


@pytest.mark.parametrize("row", [-1, 5])
def test_is_a_row_that_does_not_exist_refused(row: int) -> None:
    with pytest.raises(IndexError, match=r"not in 0\.\.4"):
        make().key_range(row)


def test_does_the_dtype_bring_its_accumulator_unless_one_is_given() -> None:
    assert (make().accumulator, make(dtype="bf16").accumulator) == ("fp32", "fp32")
    assert make(dtype="int8").accumulator == "int32"
    assert make(dtype="int8", accumulator="fp32").accumulator == "fp32"
    assert make().with_(dtype="int8").accumulator == "int32"
    assert make(dtype="int8").with_(dtype="fp16").accumulator == "fp32"
    assert make(dtype="int8", accumulator="fp32").with_(batch=1).accumulator == "fp32"
    with pytest.raises(ConfigError, match="int32 sums need dtype int8"):
        make(dtype="int8").with_(dtype="fp16", accumulator="int32")


def test_does_another_mask_drop_the_window() -> None:
    window = make(mask="sliding_window", window_back=2, window_ahead=1)
    assert window.with_(mask="causal").band == (UNLIMITED, 0)
    assert window.with_(batch=1).band == (2, 1)
    with pytest.raises(ConfigError, match="only legal with mask sliding_window"):
        window.with_(mask="causal", window_back=2)


def test_are_all_faults_of_a_mask_found_at_once_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "mask.yaml"
    path.write_text(
        "name: tiny\nheads: 2\nn_q: 9\nn_kv: 7\nhead_dim_qk: 4\nhead_dim_v: 4\n"
        "accumulator: int32\nmask: causal\nwindow_bak: 3\nwindow_ahead: 1\n"
    )
    with pytest.raises(ConfigError) as caught:
        load_workload(path)
    found = {fault.path: (fault.line, fault.suggestion) for fault in caught.value.faults}
    assert found == {
        "accumulator": (7, "fp32"),
        "mask": (8, None),
        "window_bak": (9, "window_back"),
        "window_ahead": (10, None),
    }


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
    | masked()
)
@settings(max_examples=100, derandomize=True, deadline=None)
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
    for word in [*Workload.model_fields, *list_presets("workloads")]:
        assert f"`{word}`" in readme, word
