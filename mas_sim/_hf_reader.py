"""Read a JSON configuration from disk, and numbers from it, keeping every fault with its line.

What the numbers are for is up to :mod:`mas_sim.hf_config`.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mas_sim._hf_families import Family
from mas_sim.errors import ConfigError, Fault
from mas_sim.yaml_source import FieldPath, LineMap, cap_faults, dotted, read_text

MAX_COUNT = 2**24
"""Largest number that any key read here may have."""

MAX_LAYERS = 65536
"""Most layers of a model whose layers differ."""

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"(\s*:)?|[{}\[\],]')
_LINED_DEPTH = 2  # no key below this depth is read


def load_config(path: str | Path) -> tuple[dict[str, Any], LineMap]:
    """Read a JSON file that must hold one object.

    Parameters
    ----------
    path : str or Path
        Such as ``config.json``; at most 1 MiB.

    Returns
    -------
    config : dict
        The object.
    line_of : dict
        One-based line of the keys of the two outer levels.

    Raises
    ------
    ConfigError
        If the file cannot be read, is not JSON, holds something else than an object, or sets a key twice.
    """
    file = str(path)
    text = read_text(path, file)
    try:
        config = json.loads(text)
    except RecursionError:
        raise ConfigError([Fault(file, None, "", "is nested too deeply")]) from None
    except json.JSONDecodeError as error:
        raise ConfigError([Fault(file, error.lineno, "", f"is not valid JSON: {error.msg}")]) from None
    except ValueError:  # an integer of thousands of digits
        raise ConfigError([Fault(file, None, "", "is not valid JSON: a number is absurdly long")]) from None
    if not isinstance(config, dict):
        raise ConfigError([Fault.of(file, 1, "", "must hold an object of keys and values", config)])
    line_of, faults = _key_lines(text, file)
    if faults:
        raise ConfigError(cap_faults(faults))
    return config, line_of


def _key_lines(text: str, file: str) -> tuple[LineMap, list[Fault]]:
    """Find the lines of the outer keys of JSON text that is known to be valid, and the keys that are set twice."""
    line_of: LineMap = {(): 1}
    faults: list[Fault] = []
    path: list[str | int] = []  # of the innermost container, its current key or index last
    line, seen = 1, 0
    for token in _TOKEN.finditer(text):
        line += text.count("\n", seen, token.start())
        seen = token.start()
        sign = token.group()
        if sign in "{[":
            path.append("" if sign == "{" else 0)
        elif sign in "}]":
            path.pop()
        elif sign == "," and isinstance(path[-1], int):
            path[-1] += 1
        elif token.group(1) is not None:
            path[-1] = json.loads(sign[: -len(token.group(1))])
            if len(path) > _LINED_DEPTH:
                continue
            key = tuple(path)
            if key in line_of:
                rule = f"duplicate key, first set on line {line_of[key]}"
                faults.append(Fault(file, line, dotted(key), rule))
            line_of.setdefault(key, line)
    return line_of, faults


@dataclass
class Reader:
    """Reads numbers from one part of a configuration; what is wrong goes into ``faults``.

    Attributes
    ----------
    config : mapping
        The part.
    prefix : tuple
        Where it stands in the file.
    family : Family
        Its family, which knows what files leave out.
    file : str
        The file, as faults show it.
    line_of : dict
        Lines of the keys.
    faults : list of Fault
        What was wrong so far.
    notes : list of str
        What was assumed so far.
    used : dict of str to int or bool
        What was read, by key.
    key_of : dict of str to str
        The key that gave each field of the workload.
    """

    config: Mapping[str, Any]
    prefix: FieldPath
    family: Family
    file: str
    line_of: LineMap
    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    used: dict[str, int | bool] = field(default_factory=dict)
    key_of: dict[str, str] = field(default_factory=dict)

    def where(self, key: str) -> tuple[int | None, str]:
        """Line and path of a key; the line of what is around it, where the file does not have it."""
        path = (*self.prefix, key)
        return self.line_of.get(path, self.line_of.get(self.prefix)), dotted(path)

    def refuse(self, key: str, rule: str, value: object) -> None:
        """Note that a key broke a rule."""
        self.faults.append(Fault.of(self.file, *self.where(key), rule, value))

    def optional_count(self, keys: tuple[str, ...], wanted_for: str = "") -> int | None:
        """Read a number of at least 1 from the first of some keys that the file has.

        Parameters
        ----------
        keys : tuple of str
            The keys; null counts as absent, as in Transformers.
        wanted_for : str
            The field of the workload that it is for, if any.

        Returns
        -------
        int or None
            The number, the family's default where the file leaves it out, or None if there is none or it is at fault.
        """
        key = next((key for key in keys if self.config.get(key) is not None), None)
        if key is None:
            key = next((key for key in keys if key in self.family.defaults), None)
            if key is None:
                return None
            value: Any = self.family.defaults[key]
            self.notes.append(f"the file has no {self.where(key)[1]}: taken as {value}, which Transformers assumes")
        else:
            value = self.config[key]
        if not isinstance(value, int) or isinstance(value, bool):
            self.refuse(key, "must be an integer", value)
            return None
        if not 1 <= value <= MAX_COUNT:
            self.refuse(key, f"must be from 1 to {MAX_COUNT}", value)
            return None
        self.used[key] = value
        if wanted_for:
            self.key_of[wanted_for] = key
        return value

    def count(self, keys: tuple[str, ...], wanted_for: str = "") -> int | None:
        """Read a number as :meth:`optional_count` does, and note a fault if there is none."""
        value = self.optional_count(keys, wanted_for)
        if value is None and not self.has(keys):
            line, path = self.where(keys[0])
            others = f" (or {', '.join(keys[1:])})" if keys[1:] else ""
            self.faults.append(Fault(self.file, line, path, f"required key is missing{others}"))
        return value

    def flag(self, key: str, default: bool) -> bool:
        """Read true or false; the default where the key is absent, null or at fault."""
        value = self.config.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.refuse(key, "must be true or false", value)
            return default
        return value

    def has(self, keys: tuple[str, ...]) -> bool:
        """Whether the file sets any of some keys."""
        return any(self.config.get(key) is not None for key in keys)


@dataclass(frozen=True)
class Layers:
    """How many layers see everything and how many a window, and which window.

    Attributes
    ----------
    full, local : int
        Numbers of layers; (1, 0) or (0, 1) where all are alike.
    back, ahead : int
        Keys that a local layer reaches back and ahead.
    """

    full: int = 1
    local: int = 0
    back: int = 0
    ahead: int = 0


def layers_of(reader: Reader) -> Layers:
    """Tell a model's global layers from its local ones, by its ``layer_types`` or else by its family's rule.

    A decoder's window of W keys holds the row's own key and the W - 1 before it (``kv_idx > q_idx - sliding_window`` in
    ``masking_utils.py`` of Transformers). ModernBERT's ``local_attention`` of W reaches W / 2 both ways.
    """
    config, family = reader.config, reader.family
    if reader.flag("use_bidirectional_attention", False):
        reader.refuse("use_bidirectional_attention", "is not supported: such a decoder sees ahead, too", True)
    types = _layer_types(reader)
    if family.window == "none" and types is None:
        return Layers()
    if not reader.flag("use_sliding_window", family.window != "flagged"):
        return Layers()
    is_local = _local_layers(reader) if types is None else types
    if not any(is_local):
        return Layers(full=len(is_local))
    full = is_local.count(False)
    if family.window == "every_nth_global":
        both_ways = (reader.count(("local_attention",)) or 0) // 2
        return Layers(full, len(is_local) - full, both_ways, both_ways)
    if "sliding_window" in config and config["sliding_window"] is None:
        return Layers(full=len(is_local))
    needed = types is not None or family.window == "flagged"
    read = reader.count if needed else reader.optional_count
    window = read(("sliding_window",))
    if window is None and not reader.faults:
        return Layers(full=len(is_local))
    return Layers(full, len(is_local) - full, (window or 1) - 1)


def _layer_types(reader: Reader) -> list[bool] | None:
    """Tell by ``layer_types`` of each layer whether it slides; None where the file has none or they are at fault.

    There must be as many as layers, as in ``layer_type_validation`` of Transformers.
    """
    types = reader.config.get("layer_types")
    if types is None:
        return None
    legal = ("sliding_attention", "full_attention")
    odd = [kind for kind in types if kind not in legal] if isinstance(types, list) and types else [types]
    if odd:
        reader.refuse("layer_types", f"must be a list of {' and '.join(legal)}: other layers are no band", odd[0])
        return None
    key = next((key for key in reader.family.layers if reader.config.get(key) is not None), None)
    layers = None if key is None else reader.config[key]
    if key is not None and layers != len(types):
        rule = f"must have one entry a layer, and {key} is {layers!r:.40} (got {len(types)} entries)"
        line, path = reader.where("layer_types")
        reader.faults.append(Fault(reader.file, line, path, rule))
        return None
    return [kind == "sliding_attention" for kind in types]


def _local_layers(reader: Reader) -> list[bool]:
    """Tell of each layer whether it slides, where no key lists that; of one layer, where all are alike."""
    family = reader.family
    if family.window == "every_layer":
        return [True]
    layers = reader.count(family.layers) or 1
    if layers > MAX_LAYERS:
        reader.refuse(family.layers[0], f"must be at most {MAX_LAYERS}", layers)
        return []
    if family.window == "flagged":
        first = 28 if reader.config.get("max_window_layers") is None else reader.config["max_window_layers"]
        if not isinstance(first, int) or isinstance(first, bool) or first < 0:
            reader.refuse("max_window_layers", "must be an integer of at least 0", first)
            return []
        return [i >= first for i in range(layers)]
    if family.window == "every_nth_global":
        every = reader.optional_count(("global_attn_every_n_layers",)) or family.global_every
        return [i % every != 0 for i in range(layers)]
    pattern = reader.optional_count(("sliding_window_pattern", "_sliding_window_pattern")) or family.global_every
    return [(i + 1) % pattern != 0 for i in range(layers)]
