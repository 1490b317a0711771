"""Which keys the families of Hugging Face configurations use, and which of their layers see a sliding window.

Every entry follows the configuration class of that ``model_type`` in the Transformers library. Nothing here reads a
file: that is :mod:`mas_sim.hf_config`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

Kind = Literal["decoder", "encoder", "encoder_decoder"]
"""What the attention of a family is for: a decoder's is causal, an encoder's sees everything."""

WindowRule = Literal["none", "every_layer", "flagged", "pattern", "every_nth_global"]
"""Which layers slide: none; all, if ``sliding_window`` is set; those from ``max_window_layers`` on, if
``use_sliding_window`` says so; all but every n-th (Gemma); all but every n-th from the first (ModernBERT)."""

KvRule = Literal["own_key", "multi_query"]
"""How K/V heads are told: by a key of their number (absent: as heads), or by ``multi_query`` (absent: one)."""


@dataclass(frozen=True)
class Family:
    """The keys of one family of models; where several are named, the first that a file has counts.

    Attributes
    ----------
    kind : {"decoder", "encoder", "encoder_decoder"}
        What its attention is for.
    hidden, heads, encoder_heads, kv_heads, head_dim, layers : tuple of str
        Keys of the width of the model, the heads (of an encoder-decoder's encoder, where they have a key of their
        own), the K/V heads, the head dimension and the number of layers.
    kv_rule : {"own_key", "multi_query"}
        How K/V heads are told.
    window : str
        Which layers slide.
    global_every : int
        Every how many layers one is global, if the window's rule asks and the file does not say.
    extra_tokens : int or None
        Of a picture encoder: tokens beside the patches. None for others.
    defaults : mapping of str to int
        What Transformers assumes of keys that published files are known to leave out.
    """

    kind: Kind = "decoder"
    hidden: tuple[str, ...] = ("hidden_size",)
    heads: tuple[str, ...] = ("num_attention_heads",)
    encoder_heads: tuple[str, ...] = ()
    kv_heads: tuple[str, ...] = ("num_key_value_heads",)
    head_dim: tuple[str, ...] = ("head_dim",)
    layers: tuple[str, ...] = ("num_hidden_layers",)
    kv_rule: KvRule = "own_key"
    window: WindowRule = "none"
    global_every: int = 0
    extra_tokens: int | None = None
    defaults: Mapping[str, int] = field(default_factory=dict)


LLAMA_LIKE = Family(window="every_layer")
"""What a model of unknown type is taken for, if it has the keys of a Llama with grouped K and V heads."""

_PLAIN = Family()
_FLAGGED = Family(window="flagged")
_QWEN3 = replace(_FLAGGED, defaults={"head_dim": 128})
_GPT2 = Family(hidden=("n_embd", "hidden_size"), heads=("n_head", "num_attention_heads"), kv_heads=(), head_dim=())
_FALCON = Family(
    hidden=("hidden_size", "n_embed"), heads=("num_attention_heads", "n_head"), kv_heads=("num_kv_heads", "n_head_kv"),
    layers=("num_hidden_layers", "n_layer"), kv_rule="multi_query",
)  # fmt: skip
_ENCODER = Family("encoder", kv_heads=(), head_dim=())
_PICTURE = replace(_ENCODER, extra_tokens=1)
_TOWER = {"hidden_size": 768, "num_attention_heads": 12}
_SPEECH = Family(
    "encoder_decoder", hidden=("d_model",), heads=("decoder_attention_heads",),
    encoder_heads=("encoder_attention_heads",), kv_heads=(), head_dim=(),
)  # fmt: skip
_T5 = Family(
    "encoder_decoder", hidden=("d_model",), heads=("num_heads",), encoder_heads=("num_heads",), kv_heads=(),
    head_dim=("d_kv",), defaults={"d_kv": 64},
)  # fmt: skip
_GEMMA3 = Family(
    window="pattern",
    global_every=6,
    defaults={
        "hidden_size": 2304, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
        "num_hidden_layers": 26, "sliding_window": 4096,
    },
)  # fmt: skip

FAMILIES: Mapping[str, Family] = {
    **dict.fromkeys(["llama", "olmo", "olmo2", "phi", "stablelm", "granite", "cohere", "nemotron", "smollm3"], _PLAIN),
    **dict.fromkeys(["mistral", "mixtral", "phi3", "starcoder2"], LLAMA_LIKE),
    **dict.fromkeys(["qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl", "qwen2_5_vl_text"], _FLAGGED),
    **dict.fromkeys(["qwen3", "qwen3_moe", "qwen3_vl_text"], _QWEN3),
    "gemma": Family(defaults={"head_dim": 256}),
    "gemma2": Family(window="pattern", global_every=2, defaults={"head_dim": 256, "sliding_window": 4096}),
    **dict.fromkeys(["gemma3", "gemma3_text"], _GEMMA3),
    "cohere2": Family(window="pattern", global_every=4, defaults={"sliding_window": 4096}),
    "gpt_oss": Family(window="pattern", global_every=2, defaults={"head_dim": 64, "sliding_window": 128}),
    **dict.fromkeys(["gpt2", "gptj"], _GPT2),
    "gpt_bigcode": replace(_GPT2, kv_rule="multi_query"),
    **dict.fromkeys(["gpt_neox", "opt"], Family(kv_heads=(), head_dim=())),
    **dict.fromkeys(["falcon", "RefinedWeb", "RefinedWebModel"], _FALCON),
    "bloom": Family(
        hidden=("hidden_size", "n_embed"), heads=("n_head", "num_attention_heads"), kv_heads=(), head_dim=()
    ),
    **dict.fromkeys(["bert", "roberta", "xlm-roberta", "camembert", "electra", "albert", "mpnet"], _ENCODER),
    "eurobert": Family("encoder"),  # a llama's keys, but it sees all of its input
    "distilbert": replace(_ENCODER, hidden=("dim",), heads=("n_heads",)),
    "modernbert": replace(_ENCODER, window="every_nth_global", global_every=3, defaults={"local_attention": 128}),
    **dict.fromkeys(["vit", "beit", "dinov2", "vit_mae"], _PICTURE),
    "deit": replace(_PICTURE, extra_tokens=2),
    "clip_text_model": Family(kv_heads=(), head_dim=(), defaults={"hidden_size": 512, "num_attention_heads": 8}),
    "clip_vision_model": replace(_PICTURE, defaults=_TOWER),
    "siglip_text_model": replace(_ENCODER, defaults=_TOWER),
    "siglip_vision_model": replace(_ENCODER, extra_tokens=0, defaults=_TOWER),
    **dict.fromkeys(["whisper", "bart", "mbart", "marian", "pegasus", "m2m_100"], _SPEECH),
    **dict.fromkeys(["t5", "mt5", "umt5"], _T5),
}
"""The family of each ``model_type``."""

PARTS: Mapping[str, tuple[str, str]] = {
    "clip": ("clip_text_model", "clip_vision_model"),
    "gemma3": ("gemma3_text", "siglip_vision_model"),
    "siglip": ("siglip_text_model", "siglip_vision_model"),
}
"""Types of the text and the picture part of a model, where those parts do not name their own."""

_LATENT = "its K and V are compressed (multi-head latent attention), which has no workload here"
_NO_ATTENTION = "its layers are recurrent, not attention"
_HYBRID = "it mixes attention with recurrent layers, which has no workload here"
_SPARSE = "its mask is no band of keys around each row, which has no workload here"

UNSUPPORTED: Mapping[str, str] = {
    **dict.fromkeys(["deepseek_v2", "deepseek_v3", "kimi_k2", "minicpm3"], _LATENT),
    **dict.fromkeys(["mamba", "mamba2", "falcon_mamba", "rwkv", "rwkv5", "xlstm"], _NO_ATTENTION),
    **dict.fromkeys(["jamba", "zamba", "zamba2", "bamba", "nemotron_h", "qwen3_next", "recurrent_gemma"], _HYBRID),
    **dict.fromkeys(
        ["llama4", "llama4_text", "longformer", "big_bird", "led", "swin", "gpt_neo", "phi3small"], _SPARSE
    ),
}
"""Model types that are known and have no workload, and why."""

UNSUPPORTED_KEYS: Mapping[str, str] = {
    "kv_lora_rank": _LATENT,
    "ssm_cfg": _NO_ATTENTION,
    "state_size": _NO_ATTENTION,
    "mamba_d_state": _HYBRID,
    "linear_num_value_heads": _HYBRID,
}
"""Keys that give such a model away, whatever its type says."""
