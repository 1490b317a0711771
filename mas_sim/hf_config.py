"""Read a Hugging Face ``config.json`` into the workload of one of its attention layers.

:func:`load_config` reads the file, :func:`read_config` turns it into a :class:`~mas_sim.workload.Workload` together
with notes on what was assumed, and :func:`workload_from_config` gives the workload alone. Which keys a family of models
uses stands in :mod:`mas_sim._hf_families`. Nothing is looked up on a network.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any, get_args

from mas_sim._hf_families import Family
from mas_sim._hf_model import PYTHON, Model, model_of
from mas_sim._hf_reader import MAX_COUNT, Layers, Reader, layers_of, load_config
from mas_sim.config import validate
from mas_sim.errors import ConfigError, Fault, nearest
from mas_sim.workload import Dtype, Workload
from mas_sim.yaml_source import LineMap, cap_faults

__all__ = ["ATTENTIONS", "PHASES", "ConfigReading", "load_config", "read_config", "workload_from_config"]

PHASES = ("prefill", "decode")
"""All tokens at once, or the newest ones against a cache."""

ATTENTIONS = ("global", "local", "encoder", "decoder", "cross", "vision")
"""Kinds of attention that models have; each has some of them."""

_DTYPES: Mapping[str, Dtype] = {"float16": "fp16", "bfloat16": "bf16", "int8": "int8"}
_MAX_BATCH = 65536


@dataclass(frozen=True)
class ConfigReading:
    """What a configuration says about one attention layer.

    Attributes
    ----------
    workload : Workload
        The layer.
    notes : tuple of str
        What was assumed, or chosen among several; one line each.
    """

    workload: Workload
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Request:
    """The arguments, as given: see :func:`read_config`."""

    seq: int
    phase: str
    batch: int
    dtype: str | None
    attention: str | None
    new_tokens: int | None

    def faults(self) -> list[Fault]:
        """Find what is wrong with the arguments by themselves."""
        choices = (("phase", PHASES), ("dtype", get_args(Dtype)), ("attention", ATTENTIONS))
        counts = (("seq", MAX_COUNT), ("batch", _MAX_BATCH), ("new_tokens", MAX_COUNT))
        optional = ("dtype", "attention", "new_tokens")
        found = []
        for name, legal in choices:
            value = getattr(self, name)
            if value not in legal and not (value is None and name in optional):
                rule = f"must be one of {', '.join(legal)}"
                found.append(Fault.of(PYTHON, None, name, rule, value, nearest(str(value), legal)))
        for name, most in counts:
            value = getattr(self, name)
            is_count = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most
            if not is_count and not (value is None and name in optional):
                found.append(Fault.of(PYTHON, None, name, f"must be an integer from 1 to {most}", value))
        return found


def workload_from_config(
    config: Mapping[str, Any],
    *,
    seq: int,
    phase: str,
    name: str | None = None,
    batch: int = 1,
    dtype: str | None = None,
    attention: str | None = None,
    new_tokens: int | None = None,
    file: str = PYTHON,
) -> Workload:
    """Make the workload of one attention layer of a model.

    Parameters
    ----------
    config : mapping
        A Hugging Face configuration, as :func:`load_config` returns it.
    seq : int
        Keys of a sequence, ``N_kv``: the prompt in prefill, the cache with its new tokens in decode, the encoder's
        output in cross-attention.
    phase : {"prefill", "decode"}
        All tokens at once, or the newest ones against a cache. Encoders have no decode.
    name : str, optional
        Name of the workload. Default: from the model's type, the phase and ``seq``.
    batch : int
        Sequences in the batch.
    dtype : {"fp16", "bf16", "int8"}, optional
        Element type. Default: the configuration's, fp16 where it has none that is legal here.
    attention : {"global", "local", "encoder", "decoder", "cross", "vision"}, optional
        Which attention, where the model has several. Default: the global layers of a decoder; of an encoder-decoder,
        the encoder in prefill and the decoder in decode.
    new_tokens : int, optional
        Rows of Q, ``N_q``. Default: ``seq`` in prefill and 1 in decode; cross-attention in prefill has no default.
    file : str
        The file's name, as faults and the workload's ``source`` show it.

    Returns
    -------
    Workload
        The layer.

    Raises
    ------
    ConfigError
        With every fault of the configuration and of the arguments.
    """
    return read_config(
        config, seq=seq, phase=phase, name=name, batch=batch, dtype=dtype, attention=attention,
        new_tokens=new_tokens, file=file,
    ).workload  # fmt: skip


def read_config(
    config: Mapping[str, Any],
    *,
    seq: int,
    phase: str,
    name: str | None = None,
    batch: int = 1,
    dtype: str | None = None,
    attention: str | None = None,
    new_tokens: int | None = None,
    file: str = PYTHON,
    line_of: LineMap | None = None,
) -> ConfigReading:
    """Do as :func:`workload_from_config` does, and say what was assumed.

    Parameters
    ----------
    config, seq, phase, name, batch, dtype, attention, new_tokens, file
        As there.
    line_of : dict, optional
        Lines of the keys, for the faults.

    Returns
    -------
    ConfigReading
        The workload and the notes.

    Raises
    ------
    ConfigError
        With every fault of the configuration and of the arguments.
    """
    request = _Request(seq, phase, batch, dtype, attention, new_tokens)
    faults = request.faults()
    try:
        model = model_of(config, attention, file, line_of or {})
    except ConfigError as error:
        raise ConfigError([*faults, *error.faults]) from None
    reader = model.reader
    layers = layers_of(reader)
    kind = _attention_of(request, model.family, layers, reader)
    sizes = _sizes_of(reader, model.family, kind)
    rows = _rows_of(request, model.family, kind, reader)
    faults += reader.faults
    if faults:
        raise ConfigError(cap_faults(faults))
    element, dtype_note = _dtype_of(request, reader.config, config)
    data = {
        "name": name or _name_of(request, model, kind, layers),
        "description": f"{kind.capitalize()} attention of one layer, {_what(request, model.family, kind)}",
        "source": _source_of(file, model.type_name, reader),
        "batch": batch, **sizes, **rows, "dtype": element, **_mask_of(model.family, kind, layers),
    }  # fmt: skip
    notes = [*model.notes, *reader.notes, *_notes_on(request, model, layers, kind, config), *dtype_note]
    return ConfigReading(_validated(data, reader), tuple(notes))


def _attention_of(request: _Request, family: Family, layers: Layers, reader: Reader) -> str:
    """Choose the attention: the one asked for, if the model has it, or the default, the first that it has."""
    if family.kind == "encoder_decoder":
        has = ["encoder", "decoder", "cross"] if request.phase == "prefill" else ["decoder", "cross"]
    elif layers.local:
        has = ["global", "local"] if layers.full else ["local"]
    else:
        has = ["encoder"] if family.kind == "encoder" else ["global"]
    asked = request.attention
    if asked is None or asked == "vision" or asked not in ATTENTIONS:
        return has[0]
    if asked not in has:
        rule = f"the model has no {asked} attention in {request.phase}, only {', '.join(has)}"
        reader.faults.append(Fault.of(PYTHON, None, "attention", rule, asked))
        return has[0]
    return asked


def _sees_ahead(family: Family, kind: str) -> bool:
    """Whether rows see the keys after them."""
    return family.kind == "encoder" or kind in ("encoder", "cross")


def _sizes_of(reader: Reader, family: Family, kind: str) -> dict[str, int | None]:
    """Read the heads and the head dimension, under the names of the workload's fields."""
    heads = reader.count(family.encoder_heads if kind == "encoder" and family.encoder_heads else family.heads, "heads")
    if family.kv_rule == "multi_query" and not reader.flag("new_decoder_architecture", "n_head_kv" in reader.config):
        multi_query = reader.flag("multi_query", True)  # it overrides the number that Falcon's files give
        reader.used["multi_query"] = multi_query
        kv_heads = 1 if multi_query else None
    else:
        kv_heads = reader.optional_count(family.kv_heads, "kv_heads")
    head_dim = reader.optional_count(family.head_dim, "head_dim_qk")
    if head_dim is None and not reader.has(family.head_dim):
        hidden = reader.count(family.hidden, "head_dim_qk")
        if hidden and heads and hidden % heads:
            reader.refuse(reader.key_of["head_dim_qk"], f"must be a multiple of the heads ({heads})", hidden)
        head_dim = hidden // heads if hidden and heads else None
    return {"heads": heads, "kv_heads": kv_heads or heads, "head_dim_qk": head_dim, "head_dim_v": head_dim}


def _rows_of(request: _Request, family: Family, kind: str, reader: Reader) -> dict[str, int]:
    """Find N_q and N_kv, or what is wrong with asking for them."""
    seq, new_tokens, decode = request.seq, request.new_tokens, request.phase == "decode"

    def refuse(name: str, rule: str, value: object) -> None:
        reader.faults.append(Fault.of(PYTHON, None, name, rule, value))

    n_q = new_tokens or (1 if decode else seq)
    if kind == "cross":
        if new_tokens is None and not decode:
            refuse("new_tokens", "is required by cross-attention in prefill: the decoder's tokens", new_tokens)
    elif _sees_ahead(family, kind):
        if decode:
            refuse("phase", "an encoder sees all of its input at once and has no decode phase", request.phase)
        elif new_tokens not in (None, seq):
            refuse("new_tokens", f"an encoder's rows are all of its input, seq ({seq})", new_tokens)
    elif isinstance(seq, int) and isinstance(n_q, int) and n_q > seq:
        refuse("new_tokens", f"must be at most seq ({seq}), which counts the new tokens too", n_q)
    return {"n_q": n_q, "n_kv": seq}


def _mask_of(family: Family, kind: str, layers: Layers) -> dict[str, Any]:
    """Fields of the mask."""
    if kind == "local":
        return {"mask": "sliding_window", "window_back": layers.back, "window_ahead": layers.ahead}
    return {"mask": "none" if _sees_ahead(family, kind) else "causal"}


def _dtype_of(request: _Request, part: Mapping[str, Any], config: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Choose the element type, and say so where the file has none that is legal here."""
    if request.dtype is not None:
        return request.dtype, []
    values = (holder.get(key) for holder in (part, config) for key in ("dtype", "torch_dtype"))
    given = next((value for value in values if value is not None), None)
    if given is None:
        return "fp16", ["the file has no dtype: taken as fp16 (--dtype sets another)"]
    known = _DTYPES.get(str(given).removeprefix("torch."))
    if known is None:
        return "fp16", [f"the file's dtype is {given!r:.40}: taken as fp16 (--dtype sets another)"]
    return known, []


def _notes_on(request: _Request, model: Model, layers: Layers, kind: str, config: Mapping[str, Any]) -> list[str]:
    """Say which other attentions the model has, and what about this one is not counted or looks odd."""
    notes, family, reader = [], model.family, model.reader
    if layers.full and layers.local:
        chosen, other = ("local", "global") if kind == "local" else ("global", "local")
        counts = f"{layers.full} global and {layers.local} local layers"
        notes.append(f"the model has {counts}: this is a {chosen} one (--attention {other} gives the other)")
    elif family.kind == "encoder_decoder" and request.attention is None:
        notes.append(f"the model has encoder, decoder and cross attention: this is {kind} (--attention chooses)")
    if request.attention != "vision" and isinstance(config.get("vision_config"), Mapping):
        notes.append("this is the text part of the model (--attention vision gives the picture part)")
    if reader.config.get("attn_logit_softcapping") is not None:
        notes.append("the soft cap of the scores (attn_logit_softcapping) is not counted")
    limit_key = {"encoder": "max_source_positions", "cross": "max_source_positions", "decoder": "max_target_positions"}
    for key in (limit_key.get(kind, "max_position_embeddings"), "max_position_embeddings", "n_positions"):
        limit = reader.config.get(key)
        if isinstance(limit, int) and 1 <= limit < request.seq:
            notes.append(f"seq {request.seq} is more than the model's {key}, {limit}")
            break
    side, patch = reader.config.get("image_size"), reader.config.get("patch_size")
    if family.extra_tokens is not None and isinstance(side, int) and isinstance(patch, int) and 1 <= patch <= side:
        tokens = (side // patch) ** 2 + family.extra_tokens
        if tokens != request.seq:
            notes.append(f"a picture of {side} pixels makes {tokens} tokens, but seq is {request.seq}")
    return notes


def _what(request: _Request, family: Family, kind: str) -> str:
    """Say how many rows see how many keys."""
    if kind == "cross":
        return f"{request.phase} of {request.new_tokens or 1} tokens on {request.seq} of the encoder"
    if request.phase == "decode":
        return f"decode of {request.new_tokens or 1} tokens on a cache of {request.seq}, themselves included"
    if request.new_tokens not in (None, request.seq):
        return f"prefill of the last {request.new_tokens} of {request.seq} tokens"
    return f"{request.seq} tokens" if _sees_ahead(family, kind) else f"prefill of {request.seq} tokens"


def _name_of(request: _Request, model: Model, kind: str, layers: Layers) -> str:
    """Make a short name: the type, which attention where there are several, the phase and the length."""
    stem = re.sub(r"[^a-z0-9]+", "_", model.type_name.lower()).strip("_")[:40] or "model"
    several = model.family.kind == "encoder_decoder" or (layers.full and layers.local)
    return "_".join([stem, *([kind] if several else []), request.phase, str(request.seq)])


def _source_of(file: str, model_type: str, reader: Reader) -> str:
    """Name the file (without its folder) and the keys that were used."""
    base = PurePath(file).name
    base = base if base.isprintable() and file != PYTHON else "a configuration"
    used = ", ".join(f"{key} {value}" for key, value in reader.used.items())
    return f"Hugging Face {base} of model_type {ascii(model_type)[1:-1]:.60}: {used}"


def _validated(data: dict[str, Any], reader: Reader) -> Workload:
    """Build the workload; faults of its fields name the keys that gave them."""
    try:
        return validate(Workload, data, {}, PYTHON)
    except ConfigError as error:
        moved: list[Fault] = []
        for fault in error.faults:
            if fault.path == "head_dim_v":  # always head_dim_qk, whose fault is there too
                continue
            key = reader.key_of.get(fault.path)
            if key is not None:
                line, path = reader.where(key)
                fault = replace(fault, file=reader.file, line=line, path=path)
            moved.append(fault)
        raise ConfigError(moved) from None
