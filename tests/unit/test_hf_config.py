"""Whether a Hugging Face configuration is read as the attention that the model runs, and a bad one refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mas_sim._hf_families import FAMILIES
from mas_sim._hf_reader import MAX_LAYERS
from mas_sim.errors import ConfigError
from mas_sim.hf_config import load_config, read_config, workload_from_config
from mas_sim.workload import UNLIMITED, Workload

Config = dict[str, Any]

LLAMA: Config = {
    "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
    "num_hidden_layers": 32, "max_position_embeddings": 8192, "torch_dtype": "bfloat16",
}  # fmt: skip
GEMMA2: Config = {
    "model_type": "gemma2", "hidden_size": 2304, "head_dim": 256, "num_attention_heads": 8, "num_key_value_heads": 4,
    "num_hidden_layers": 26, "sliding_window": 4096, "attn_logit_softcapping": 50.0, "torch_dtype": "bfloat16",
}  # fmt: skip
GEMMA3: Config = {  # as published: what equals the class's default is left out
    "model_type": "gemma3", "vision_config": {"hidden_size": 1152, "num_attention_heads": 16, "patch_size": 14,
    "image_size": 896, "model_type": "siglip_vision_model"}, "torch_dtype": "bfloat16",
    "text_config": {"hidden_size": 2560, "model_type": "gemma3_text", "num_hidden_layers": 34, "sliding_window": 1024},
}  # fmt: skip
WHISPER: Config = {
    "model_type": "whisper", "d_model": 512, "encoder_attention_heads": 8, "decoder_attention_heads": 4,
    "max_source_positions": 1500, "max_target_positions": 448, "torch_dtype": "float32",
}  # fmt: skip
CLIP: Config = {
    "model_type": "clip", "text_config": {"hidden_size": 768, "num_attention_heads": 12},
    "vision_config": {"hidden_size": 1024, "num_attention_heads": 16, "patch_size": 14, "image_size": 224},
}  # fmt: skip
FALCON: Config = {"model_type": "falcon", "hidden_size": 4544, "num_attention_heads": 71}
QWEN2: Config = LLAMA | {"model_type": "qwen2", "sliding_window": 1024, "max_window_layers": 24}
BERT: Config = {"model_type": "bert", "hidden_size": 768, "num_attention_heads": 12}


def shape(workload: Workload) -> tuple[int, int, int]:
    """Heads, K/V heads and head dimension."""
    assert workload.head_dim_v == workload.head_dim_qk
    return workload.heads, workload.kv_heads, workload.head_dim_qk


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (LLAMA, (32, 8, 128)),
        (LLAMA | {"num_key_value_heads": None}, (32, 32, 128)),
        (LLAMA | {"head_dim": 64}, (32, 8, 64)),
        (LLAMA | {"model_type": "qwen3"}, (32, 8, 128)),
        ({"model_type": "gemma", "hidden_size": 3072, "num_attention_heads": 16, "head_dim": None}, (16, 16, 256)),
        ({"model_type": "gpt2", "n_embd": 768, "n_head": 12}, (12, 12, 64)),
        ({"model_type": "gptj", "n_embd": 4096, "n_head": 16}, (16, 16, 256)),
        ({"model_type": "gpt_bigcode", "n_embd": 6144, "n_head": 48, "multi_query": True}, (48, 1, 128)),
        ({"model_type": "gpt_neox", "hidden_size": 6144, "num_attention_heads": 64}, (64, 64, 96)),
        ({"model_type": "opt", "hidden_size": 2048, "num_attention_heads": 32}, (32, 32, 64)),
        ({"model_type": "bloom", "n_embed": 4096, "n_head": 32}, (32, 32, 128)),
        (FALCON | {"multi_query": True, "num_kv_heads": 71}, (71, 1, 64)),
        (FALCON | {"multi_query": False}, (71, 71, 64)),
        (
            {"model_type": "falcon", "hidden_size": 8192, "num_attention_heads": 128, "num_kv_heads": 8}
            | {"new_decoder_architecture": True},
            (128, 8, 64),
        ),
        ({"model_type": "RefinedWeb", "hidden_size": 8192, "n_head": 128, "n_head_kv": 8}, (128, 8, 64)),
        (BERT, (12, 12, 64)),
        ({"model_type": "distilbert", "dim": 768, "n_heads": 12}, (12, 12, 64)),
        ({"model_type": "deit", "hidden_size": 384, "num_attention_heads": 6}, (6, 6, 64)),
        ({"model_type": "t5", "d_model": 512, "num_heads": 6, "d_kv": 64}, (6, 6, 64)),
        (WHISPER, (8, 8, 64)),
        (CLIP, (12, 12, 64)),
        (GEMMA3, (8, 4, 256)),
    ],
)
def test_is_the_shape_of_a_family_read_from_its_own_keys(config: Config, expected: tuple[int, int, int]) -> None:
    assert shape(workload_from_config(config, seq=64, phase="prefill")) == expected


def test_does_every_family_of_the_table_read_a_model_of_its_keys() -> None:
    for model_type, family in FAMILIES.items():
        keys = {family.hidden[0]: 256, family.heads[0]: 4, family.layers[0]: 12}
        keys |= dict.fromkeys(family.encoder_heads, 4)
        keys |= {key: 2 for key in family.kv_heads[:1] if key == "num_key_value_heads"}
        workload = workload_from_config({"model_type": model_type} | keys, seq=16, phase="prefill")
        assert workload.heads == 4, model_type
        assert (workload.n_q, workload.n_kv) == (16, 16)
        assert (workload.mask == "none") == (family.kind != "decoder")


@pytest.mark.parametrize(
    ("config", "mask"),
    [
        (LLAMA, "causal"),
        (BERT, "none"),
        (BERT | {"is_decoder": True}, "causal"),
        (LLAMA | {"model_type": "eurobert"}, "none"),
        (CLIP, "causal"),
        (WHISPER, "none"),
    ],
)
def test_do_decoders_look_back_and_encoders_everywhere(config: Config, mask: str) -> None:
    assert workload_from_config(config, seq=77, phase="prefill").mask == mask


def test_is_decoding_one_row_on_a_cache_unless_more_are_asked_for() -> None:
    one = workload_from_config(LLAMA, seq=8192, phase="decode")
    assert (one.n_q, one.n_kv, one.mask, one.dtype, one.batch) == (1, 8192, "causal", "bf16", 1)
    four = workload_from_config(LLAMA, seq=8192, phase="decode", new_tokens=4, batch=3, dtype="int8", name="mine")
    assert (four.n_q, four.batch, four.dtype, four.accumulator, four.name) == (4, 3, "int8", "int32", "mine")
    chunk = workload_from_config(LLAMA, seq=8192, phase="prefill", new_tokens=512)
    assert (chunk.n_q, chunk.n_kv) == (512, 8192)


@pytest.mark.parametrize(
    ("config", "local"),
    [
        (LLAMA | {"sliding_window": 1024}, None),  # llama has no such key
        (LLAMA | {"model_type": "mistral", "sliding_window": 1024}, 1024),
        (LLAMA | {"model_type": "mistral", "sliding_window": None}, None),
        (LLAMA | {"model_type": "mistral"}, None),
        (LLAMA | {"model_type": "phi3", "sliding_window": 2047}, 2047),
        (QWEN2, None),
        (QWEN2 | {"use_sliding_window": False}, None),
        (QWEN2 | {"use_sliding_window": True, "max_window_layers": 32}, None),
        (QWEN2 | {"use_sliding_window": True, "max_window_layers": 0}, 1024),
        (QWEN2 | {"use_sliding_window": True, "sliding_window": None}, None),
    ],
)
def test_does_a_window_slide_where_the_family_says_so(config: Config, local: int | None) -> None:
    workload = workload_from_config(config, seq=4096, phase="prefill")
    assert workload.band == (UNLIMITED if local is None else local - 1, 0)


TYPES = {"num_hidden_layers": 3, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}


@pytest.mark.parametrize(
    ("config", "full", "local", "band"),
    [
        (GEMMA2, 13, 13, (4095, 0)),
        (GEMMA3, 5, 29, (1023, 0)),
        (GEMMA2 | TYPES, 1, 2, (4095, 0)),
        (LLAMA | TYPES | {"sliding_window": 100}, 1, 2, (99, 0)),
        (QWEN2 | {"use_sliding_window": True}, 24, 8, (1023, 0)),
        (LLAMA | {"model_type": "cohere2", "sliding_window": 4096}, 8, 24, (4095, 0)),
        (BERT | {"model_type": "modernbert", "num_hidden_layers": 22, "local_attention": 128}, 8, 14, (64, 64)),
    ],
)
def test_are_mixed_layers_counted_and_either_kind_given(
    config: Config, full: int, local: int, band: tuple[int, int]
) -> None:
    seq = 8192
    first = read_config(config, seq=seq, phase="prefill")
    assert first.workload.mask == ("none" if config["model_type"] == "modernbert" else "causal")
    assert any(f"{full} global and {local} local layers" in note for note in first.notes)
    assert any("--attention local" in note for note in first.notes)
    second = read_config(config, seq=seq, phase="prefill", attention="local")
    assert second.workload.band == band
    assert any("--attention global" in note for note in second.notes)
    assert "global" in first.workload.name
    assert "local" in second.workload.name


def test_does_a_decoder_of_windows_keep_only_the_window_of_its_cache() -> None:
    workload = workload_from_config(GEMMA2, seq=8192, phase="decode", attention="local")
    assert (workload.keys_used, workload.kept_scores) == (4096, 8 * 4096)


def test_has_an_encoder_decoder_three_attentions() -> None:
    def read(phase: str, **asked: Any) -> Workload:
        return workload_from_config(WHISPER, seq=1500, phase=phase, **asked)

    assert (read("prefill").heads, read("prefill").mask) == (8, "none")
    assert (read("decode").heads, read("decode").mask, read("decode").n_q) == (4, "causal", 1)
    assert (read("prefill", attention="decoder").heads, read("prefill", attention="decoder").mask) == (4, "causal")
    cross = read("decode", attention="cross")
    assert (cross.n_q, cross.n_kv, cross.heads, cross.mask) == (1, 1500, 4, "none")
    assert read("prefill", attention="cross", new_tokens=2000).n_q == 2000


def test_is_the_picture_part_read_where_asked_for() -> None:
    picture = read_config(CLIP, seq=257, phase="prefill", attention="vision")
    assert shape(picture.workload) == (16, 16, 64)
    assert picture.workload.mask == "none"
    assert not any("picture" in note for note in picture.notes)
    other = read_config(CLIP, seq=256, phase="prefill", attention="vision")
    assert any("makes 257 tokens, but seq is 256" in note for note in other.notes)
    assert any("--attention vision" in note for note in read_config(CLIP, seq=77, phase="prefill").notes)


@pytest.mark.parametrize(
    ("config", "note"),
    [
        (GEMMA3, "no text_config.num_attention_heads: taken as 8"),
        (GEMMA2, "soft cap"),
        (WHISPER, "dtype is 'float32': taken as fp16"),
        (BERT, "no dtype: taken as fp16"),
        (LLAMA | {"model_type": "brandnew"}, "unknown model_type 'brandnew': taken as a causal decoder"),
        (
            {key: value for key, value in LLAMA.items() if key != "model_type"},
            "has no model_type: taken as a causal dec",
        ),
        (LLAMA | {"max_position_embeddings": 99}, "seq 100 is more than the model's max_position_embeddings, 99"),
    ],
)
def test_is_what_was_assumed_said(config: Config, note: str) -> None:
    notes = read_config(config, seq=100, phase="prefill").notes
    assert sum(note in said for said in notes) == 1, notes


def test_is_nothing_noted_of_a_plain_model() -> None:
    assert read_config(LLAMA, seq=100, phase="prefill").notes == ()


def test_does_the_source_name_the_file_without_its_folder_and_the_keys() -> None:
    source = workload_from_config(LLAMA, seq=9, phase="prefill", file="models/mine/config.json").source
    assert "config.json of model_type llama: num_attention_heads 32, num_key_value_heads 8, hidden_size 4096" in source
    assert "mine" not in source


@pytest.mark.parametrize(
    ("config", "path", "rule", "suggestion"),
    [
        ({}, "model_type", "required key is missing", None),
        ({"model_type": "lama"}, "model_type", "no known type of model", "llama"),
        ({"model_type": 3}, "model_type", "must be text", None),
        ({"model_type": "clip"}, "text_config", "required key is missing", None),
        ({"text_config": 3}, "text_config", "must be an object", None),
        ({"model_type": "deepseek_v3"}, "model_type", "latent", None),
        (LLAMA | {"model_type": "phi3small"}, "model_type", "no band of keys", None),
        (LLAMA | {"head_dim": 5000}, "head_dim", "at most 4096", None),
        (BERT | {"hidden_size": 12 * 5000}, "hidden_size", "at most 4096", None),
        ({"model_type": "mamba"}, "model_type", "recurrent", None),
        (LLAMA | {"model_type": "new", "kv_lora_rank": 512}, "kv_lora_rank", "latent", None),
        (LLAMA | {"num_attention_heads": -1}, "num_attention_heads", "from 1 to", None),
        (LLAMA | {"num_attention_heads": 5000, "head_dim": 8}, "num_attention_heads", "at most 4096", None),
        (LLAMA | {"num_attention_heads": True}, "num_attention_heads", "must be an integer", None),
        (LLAMA | {"num_key_value_heads": 5}, "num_key_value_heads", "must divide heads (32)", None),
        (LLAMA | {"hidden_size": 4097}, "hidden_size", "multiple of the heads (32)", None),
        (LLAMA | {"head_dim": 0}, "head_dim", "from 1 to", None),
        (LLAMA | {"hidden_size": None}, "hidden_size", "required key is missing", None),
        (GEMMA2 | {"num_hidden_layers": MAX_LAYERS + 1}, "num_hidden_layers", "at most", None),
        (GEMMA2 | {"sliding_window": 0}, "sliding_window", "from 1 to", None),
        (GEMMA2 | {"layer_types": ["linear_attention"]}, "layer_types", "other layers are no band", None),
        (
            GEMMA2 | TYPES | {"num_hidden_layers": 4},
            "layer_types",
            "one entry a layer, and num_hidden_layers is 4",
            None,
        ),
        (LLAMA | {"layer_types": []}, "layer_types", "must be a list", None),
        (LLAMA | {"layer_types": 0}, "layer_types", "must be a list", None),
        (QWEN2 | {"use_sliding_window": False, "layer_types": "all"}, "layer_types", "must be a list", None),
        (GEMMA2 | {"layer_types": 7}, "layer_types", "must be a list", None),
        (GEMMA2 | {"use_bidirectional_attention": True}, "use_bidirectional_attention", "not supported", None),
        (LLAMA | TYPES, "sliding_window", "required key is missing", None),
        (QWEN2 | {"use_sliding_window": "no"}, "use_sliding_window", "true or false", None),
        (QWEN2 | {"use_sliding_window": True, "max_window_layers": -1}, "max_window_layers", "at least 0", None),
    ],
)
def test_is_a_bad_configuration_one_clear_fault(config: Config, path: str, rule: str, suggestion: str | None) -> None:
    with pytest.raises(ConfigError) as caught:
        read_config(config, seq=64, phase="prefill", file="config.json")
    (fault,) = caught.value.faults
    assert (fault.file, fault.path, fault.suggestion) == ("config.json", path, suggestion)
    assert rule in fault.rule


@pytest.mark.parametrize(
    ("config", "request_", "path"),
    [
        (LLAMA, {"seq": 0}, "seq"),
        (LLAMA, {"seq": 2**24 + 1}, "seq"),
        (LLAMA, {"seq": "9"}, "seq"),
        (LLAMA, {"batch": 0}, "batch"),
        (LLAMA, {"phase": "prefil"}, "phase"),
        (LLAMA, {"dtype": "fp8"}, "dtype"),
        (LLAMA, {"attention": "globl"}, "attention"),
        (LLAMA, {"attention": "local"}, "attention"),
        (LLAMA, {"attention": "vision"}, "attention"),
        (LLAMA, {"new_tokens": 65}, "new_tokens"),
        (LLAMA, {"new_tokens": 0}, "new_tokens"),
        (LLAMA, {"name": "a\nb"}, "name"),
        (BERT, {"phase": "decode"}, "phase"),
        (LLAMA | {"model_type": "eurobert"}, {"phase": "decode"}, "phase"),
        (BERT, {"new_tokens": 3}, "new_tokens"),
        (WHISPER, {"attention": "cross"}, "new_tokens"),
        (WHISPER, {"attention": "encoder", "phase": "decode"}, "attention"),
        (WHISPER, {"attention": "global"}, "attention"),
    ],
)
def test_is_a_bad_request_one_clear_fault(config: Config, request_: dict[str, Any], path: str) -> None:
    with pytest.raises(ConfigError) as caught:
        workload_from_config(config, **({"seq": 64, "phase": "prefill"} | request_))
    (fault,) = caught.value.faults
    assert (fault.file, fault.path) == ("<python>", path)


def test_are_all_faults_found_at_once_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(
        '{\n\t"vision_config": {"hidden_size": 1},\n\t"model_type": "x", "text_config": {\n'
        '"model_type": "llama",\n"num_attention_heads": -3,\n"hidden_size":\n"big"}\n}'
    )
    config, line_of = load_config(path)
    with pytest.raises(ConfigError) as caught:
        read_config(config, seq=-1, phase="prefill", file="c.json", line_of=line_of)
    found = [(fault.file, fault.line, fault.path) for fault in caught.value.faults]
    assert found == [
        ("<python>", None, "seq"),
        ("c.json", 5, "text_config.num_attention_heads"),
        ("c.json", 6, "text_config.hidden_size"),
    ]


@pytest.mark.parametrize(
    ("text", "line", "rule"),
    [
        ("", 1, "not valid JSON"),
        ("[1, 2]", 1, "must hold an object"),
        ("null", 1, "must hold an object"),
        ('{\n"a": 1,\n}', 3, "not valid JSON"),
        ('{"a": 1,\n"b": {"c": [1, {"c": 2}], "c": 3},\n"a": 2}', 2, "duplicate key"),
        ("[" * 200_000, None, "nested too deeply"),
        ('{"a": ' + "9" * 5000 + "}", None, "absurdly long"),
        ("{" + " " * 2**20 + "}", None, "too large"),
        ("{\0}", None, "binary"),
    ],
)
def test_is_a_file_that_is_no_configuration_refused(tmp_path: Path, text: str, line: int | None, rule: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    fault = caught.value.faults[0]
    assert (fault.file, fault.line) == (str(path), line)
    assert rule in fault.rule


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**25) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
KEYS = sorted({*LLAMA, *GEMMA2, *GEMMA3, *WHISPER, *QWEN2, *FALCON, "layer_types", "dtype", "head_dim", "is_decoder"})


@given(
    base=st.sampled_from([LLAMA, GEMMA2, GEMMA3, WHISPER, CLIP, FALCON, QWEN2, BERT]),
    changes=st.dictionaries(st.sampled_from(KEYS), JSON, max_size=4),
    attention=st.sampled_from([None, "global", "local", "cross", "vision", "encoder"]),
    phase=st.sampled_from(["prefill", "decode"]),
)
@settings(max_examples=400, derandomize=True, deadline=None)
def test_does_any_object_end_in_a_workload_or_in_faults(
    base: Config, changes: Config, attention: str | None, phase: str
) -> None:
    try:
        reading = read_config(base | changes, seq=64, phase=phase, attention=attention)
    except ConfigError:
        return
    assert reading.workload.n_kv == 64


@given(JSON)
@settings(max_examples=100, derandomize=True, deadline=None)
def test_are_the_lines_of_keys_those_of_the_text(tmp_path_factory: pytest.TempPathFactory, value: object) -> None:
    path = tmp_path_factory.mktemp("json") / "config.json"
    text = json.dumps({"x{": value, 'y"': {"z,": value, "w": [value]}}, indent=1)
    path.write_text(text)
    config, line_of = load_config(path)
    assert list(config) == ["x{", 'y"']
    for key in (("x{",), ('y"',), ('y"', "z,"), ('y"', "w")):
        assert text.splitlines()[line_of[key] - 1].strip().startswith(json.dumps(key[-1]))
