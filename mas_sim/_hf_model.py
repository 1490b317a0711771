"""Find out what kind of model a Hugging Face configuration describes: which part of it, and of which family.

The first step of :mod:`mas_sim.hf_config`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mas_sim._hf_families import FAMILIES, LLAMA_LIKE, PARTS, UNSUPPORTED, UNSUPPORTED_KEYS, Family
from mas_sim._hf_reader import Reader
from mas_sim.errors import ConfigError, Fault, nearest
from mas_sim.yaml_source import FieldPath, LineMap, dotted

PYTHON = "<python>"
"""The file of a fault in an argument, rather than in the configuration."""


@dataclass(frozen=True)
class Model:
    """The part of a configuration that an attention is in.

    Attributes
    ----------
    family : Family
        Its family.
    type_name : str
        Its ``model_type``, or ``model`` where the file has none.
    reader : Reader
        Reads its numbers.
    notes : tuple of str
        What was assumed.
    """

    family: Family
    type_name: str
    reader: Reader
    notes: tuple[str, ...]


def model_of(config: Mapping[str, Any], attention: str | None, file: str, line_of: LineMap) -> Model:
    """Find the part of a configuration that an attention is in, and its family.

    Parameters
    ----------
    config : mapping
        The whole configuration.
    attention : str or None
        ``vision`` for the picture part; anything else is the text part, or the whole where there are no parts.
    file : str
        The file's name, as faults show it.
    line_of : dict
        Lines of the keys.

    Returns
    -------
    Model
        The part.

    Raises
    ------
    ConfigError
        If there is no such part, or its type is unknown or not supported: nothing else can be read then.
    """
    part, prefix = _part_of(config, attention, file, line_of)
    family, type_name, notes = _family_of(part, prefix, config, file, line_of)
    if family.kind == "encoder" and part.get("is_decoder") is True:
        family = replace(family, kind="decoder")
    return Model(family, type_name, Reader(part, prefix, family, file, line_of), notes)


def _part_of(
    config: Mapping[str, Any], attention: str | None, file: str, line_of: LineMap
) -> tuple[Mapping[str, Any], FieldPath]:
    """Find the part of a configuration that the attention is in: the whole, its text part or its picture part."""
    key = "vision_config" if attention == "vision" else "text_config"
    part = config.get(key)
    if part is None and attention != "vision":
        return config, ()
    if part is None:
        rule = "the model has no vision_config, so no vision attention"
        raise ConfigError([Fault.of(PYTHON, None, "attention", rule, attention)])
    if not isinstance(part, Mapping):
        rule = "must be an object of keys and values"
        raise ConfigError([Fault.of(file, line_of.get((key,)), key, rule, part)])
    return part, (key,)


def _family_of(
    part: Mapping[str, Any], prefix: FieldPath, config: Mapping[str, Any], file: str, line_of: LineMap
) -> tuple[Family, str, tuple[str, ...]]:
    """Find the family that a model belongs to, by its type or else by its keys."""
    path = (*prefix, "model_type") if "model_type" in part else ("model_type",)
    model_type = part.get("model_type", config.get("model_type"))

    def refuse(where: FieldPath, rule: str, value: object, suggestion: str | None = None) -> ConfigError:
        return ConfigError([Fault.of(file, line_of.get(where), dotted(where), rule, value, suggestion)])

    if model_type is not None and not isinstance(model_type, str):
        raise refuse(path, "must be text", model_type)
    if model_type is not None and prefix and path == ("model_type",) and model_type in PARTS:
        model_type = PARTS[model_type][prefix == ("vision_config",)]
    if model_type in UNSUPPORTED:
        raise refuse(path, f"is not supported: {UNSUPPORTED[model_type]}", model_type)
    for key, why in UNSUPPORTED_KEYS.items():
        if part.get(key) is not None and model_type not in FAMILIES:
            raise refuse((*prefix, key), f"is not supported: {why}", part[key])
    if model_type in FAMILIES:
        return FAMILIES[model_type], model_type, ()
    needed = ("hidden_size", "num_attention_heads", "num_key_value_heads")
    if all(part.get(key) is not None for key in needed):
        said = "has no model_type" if model_type is None else f"has the unknown model_type {model_type!r:.60}"
        note = f"the file {said}: taken as a causal decoder and read as a llama, since it has a llama's keys"
        return LLAMA_LIKE, model_type or "model", (note,)
    if model_type in PARTS:
        raise ConfigError([Fault(file, line_of.get(prefix), "text_config", "required key is missing")])
    if model_type is None:
        raise ConfigError([Fault(file, line_of.get(prefix), dotted(path), "required key is missing")])
    rule = f"is no known type of model, nor has the file a llama's keys ({', '.join(needed)})"
    raise refuse(path, rule, model_type, nearest(model_type, [*FAMILIES, *PARTS]))
