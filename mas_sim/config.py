"""Turn YAML text into validated, frozen models, reporting every fault of a file at once.

The steps are :func:`read_yaml` (text to plain data with line numbers), :func:`validate` (plain data to a model) and,
for both at once, :func:`load_model`. Names of shipped files are resolved by :func:`find_preset`. What the fields mean
is up to the models, in :mod:`mas_sim.arch`, :mod:`mas_sim.workload` and :mod:`mas_sim.energy_table`.
"""

import hashlib
import importlib.resources
import json
import math
import os
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeGuard, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, Field, StrictStr, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from mas_sim.errors import ConfigError, Fault, nearest
from mas_sim.yaml_source import (
    MAX_FAULTS,
    Document,
    FieldPath,
    LineMap,
    cap_faults,
    dotted,
    read_document,
    read_yaml,
)

__all__ = [
    "FrozenModel",
    "NameText",
    "PresetKind",
    "ProseText",
    "broken_rule",
    "content_hash",
    "dump_yaml",
    "find_preset",
    "list_presets",
    "load_model",
    "read_yaml",
    "validate",
]

PresetKind = Literal["arch_configs", "workloads", "energy_tables", "sweeps"]
"""What a preset is: an architecture, a workload, an energy table (shipped beside the architectures), or a sweep."""

_ENERGY_PREFIX = "energy_"
_KIND_NOUNS: dict[PresetKind, str] = {
    "arch_configs": "architecture",
    "workloads": "workload",
    "energy_tables": "energy table",
    "sweeps": "sweep",
}
_EXPONENT = re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]{1,3}")
_LARGEST_SPELLED_OUT = 1e15

_RULES = {
    "missing": "required key is missing",
    "extra_forbidden": "unknown key",
    "int_type": "must be an integer",
    "int_parsing": "must be an integer",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
    "finite_number": "must be a finite number",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "greater_than": "must be greater than {gt}",
    "less_than": "must be less than {lt}",
    "literal_error": "must be one of {expected}",
    "too_short": "must have at least {min_length} items",
    "too_long": "must have at most {max_length} items",
    "string_too_short": "must not be empty",
    "string_pattern_mismatch": "must not hold control characters",
    "string_too_long": "must have at most {max_length} characters",
}
"""How each of pydantic's error types reads here; any other type keeps pydantic's own message."""


class FrozenModel(BaseModel):
    """Base of every configuration model: immutable, unknown keys forbidden, NaN and infinity refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True)

    def with_(self, **changes: Any) -> Self:
        """Make a variant of this model, validated anew.

        Parameters
        ----------
        **changes
            New values by dotted path: ``arch.with_(**{"l1.capacity_kib": 1024, "cores": 1})``. A numpy scalar counts
            as the number it holds.

        Returns
        -------
        Self
            The variant; this model stays as it is.

        Raises
        ------
        ConfigError
            If a path does not exist or a value is illegal.
        """
        data = self.model_dump()
        legal = set(_dotted_paths(type(self)))
        unknown = [path for path in changes if path not in legal]
        if unknown:
            rule = "no such parameter"
            raise ConfigError(Fault("<python>", None, path, rule, "", nearest(path, legal)) for path in unknown)
        for path, value in changes.items():
            *parents, key = path.split(".")
            target = data
            for parent in parents:
                target = target[parent]
            target[key] = _plain(value)
        return validate(type(self), data, {}, "<python>")


ModelT = TypeVar("ModelT", bound=BaseModel)


def broken_rule(rule: str, value: object, suggestion: str | None = None) -> PydanticCustomError:
    """Make the error that a model's own validator raises.

    Parameters
    ----------
    rule : str
        The rule, as a clause: ``must divide heads``.
    value : object
        What broke it.
    suggestion : str, optional
        The nearest legal value.

    Returns
    -------
    PydanticCustomError
        To be raised inside a pydantic validator; :func:`validate` turns it into a fault.
    """
    return PydanticCustomError("broken_rule", "{rule}", {"rule": rule, "value": value, "suggestion": suggestion})


NameText = Annotated[StrictStr, Field(pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$")]
"""Text of one line, without control characters: a terminal would obey them when it is printed."""

ProseText = Annotated[StrictStr, Field(pattern=r"^[^\x00-\x08\x0b-\x1f\x7f-\x9f]*$")]
"""The same of any number of lines."""


def validate(model_cls: type[ModelT], data: Mapping[str, Any], line_of: LineMap, file: str) -> ModelT:
    """Build a model from plain data.

    Parameters
    ----------
    model_cls : type of BaseModel
        The model.
    data : mapping
        Plain data, as :func:`read_yaml` returns it.
    line_of : dict
        One-based line of each field path; may be empty.
    file : str
        The file's name, as faults show it.

    Returns
    -------
    BaseModel
        The validated model.

    Raises
    ------
    ConfigError
        With one fault for every error that pydantic found.
    """
    model, faults, hidden = _try_model(model_cls, data, line_of, file)
    if model is None:
        raise ConfigError(cap_faults(sorted(faults, key=_position), hidden))
    return model


def load_model(
    model_cls: type[ModelT], path: Path, more_faults: Callable[[Document], Iterable[Fault]] | None = None
) -> ModelT:
    """Read and validate a file, reporting the faults of both steps together.

    Parameters
    ----------
    model_cls : type of BaseModel
        The model.
    path : Path
        A YAML file.
    more_faults : callable, optional
        Given the document, returns the faults that only a look at other files can find.

    Returns
    -------
    BaseModel
        The validated model.

    Raises
    ------
    ConfigError
        With every fault of the file.
    """
    document = read_document(path)
    model, faults, hidden = _try_model(model_cls, document.data, document.line_of, document.file)
    found = sorted([*document.faults, *faults], key=_position)
    if more_faults:
        found += more_faults(document)
    if model is None or found:
        raise ConfigError(cap_faults(found, hidden))
    return model


def content_hash(*models: BaseModel) -> str:
    """Hash what one or more models say.

    Parameters
    ----------
    *models : BaseModel
        The models, in order.

    Returns
    -------
    str
        The first 12 hexadecimal digits of the SHA-256 of their canonical JSON (sorted keys, no spaces): equal for equal
        content, on every machine, whatever the file's layout and comments.
    """
    content = [model.model_dump(mode="json") for model in models]
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def dump_yaml(model: BaseModel) -> str:
    """Write a model as YAML that loads back to an equal model."""
    return yaml.safe_dump(model.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def list_presets(kind: PresetKind) -> list[str]:
    """List the names of the shipped files of a kind, sorted."""
    names = (path.stem for path in _preset_folder(kind).glob("*.yaml"))
    return sorted(name for name in names if name.startswith(_ENERGY_PREFIX) == (kind == "energy_tables"))


def find_preset(kind: PresetKind, name_or_path: str | Path) -> Path:
    """Resolve the name of a shipped file, or a path.

    Parameters
    ----------
    kind : {"arch_configs", "workloads", "energy_tables", "sweeps"}
        What is looked for.
    name_or_path : str or Path
        A preset's name such as ``mas_edge``. A Path, or a string that ends in ``.yaml`` or ``.yml`` or holds a path
        separator, is taken as a path instead, and not checked here.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    ConfigError
        If no shipped file has that name.
    """
    text = str(name_or_path)
    is_path = isinstance(name_or_path, Path) or text.endswith((".yaml", ".yml")) or "/" in text or os.sep in text
    if is_path:
        return Path(name_or_path)
    names = list_presets(kind)
    if text not in names:
        rule = f"no such {_KIND_NOUNS[kind]}: the shipped ones are {', '.join(names)}; a path must end in .yaml"
        raise ConfigError([Fault.of("<python>", None, "", rule, text, nearest(text, names))])
    return _preset_folder(kind) / f"{text}.yaml"


def _preset_folder(kind: PresetKind) -> Path:
    """Return the installed folder of a kind of preset."""
    folder = "arch_configs" if kind == "energy_tables" else kind
    return Path(str(importlib.resources.files(f"mas_sim.{folder}")))


def _try_model(
    model_cls: type[ModelT], data: Mapping[str, Any], line_of: LineMap, file: str
) -> tuple[ModelT | None, list[Fault], int]:
    """Build a model, or return its first faults and the number of faults beyond those."""
    try:
        return model_cls.model_validate(dict(data)), [], 0
    except ValidationError as error:
        hidden = max(0, error.error_count() - MAX_FAULTS)
        details = error.errors(include_url=False)[:MAX_FAULTS]
    return None, [_fault(model_cls, detail, line_of, file) for detail in details], hidden


def _position(fault: Fault) -> float:
    """Sort key that puts faults in the order of their file."""
    return math.inf if fault.line is None else fault.line


def _fault(model_cls: type[BaseModel], detail: ErrorDetails, line_of: LineMap, file: str) -> Fault:
    """Translate one of pydantic's errors."""
    kind, path, value = detail["type"], detail["loc"], detail["input"]
    context = detail.get("ctx", {})
    line = _line(path, line_of)
    if kind == "missing":
        return Fault(file, line, dotted(path), _RULES[kind])
    if kind == "broken_rule":
        return Fault.of(file, line, dotted(path), context["rule"], context["value"], context["suggestion"])
    message = detail["msg"][:1].lower() + detail["msg"][1:]
    rule = _RULES[kind].format(**context) if kind in _RULES else message
    suggestion = None
    if kind == "extra_forbidden":
        suggestion = nearest(str(path[-1]), _legal_keys(model_cls, path[:-1]))
    elif kind == "literal_error" and isinstance(value, str):
        suggestion = nearest(value, re.findall(r"'([^']*)'", context["expected"]))
    elif isinstance(value, bool):
        rule += " (YAML reads a bare yes, no, on or off as true or false)"
    elif kind in {"int_type", "int_parsing", "float_type"} and isinstance(value, str):
        rule, suggestion = _number_as_text(rule, value)
    return Fault.of(file, line, dotted(path), rule, value, suggestion)


def _number_as_text(rule: str, value: str) -> tuple[str, str | None]:
    """Explain why something that looks like a number is text to YAML."""
    if not _EXPONENT.fullmatch(value):
        return rule, None
    number = float(value)
    rule += ", and YAML 1.1 reads an exponent without a point and a sign as text"
    if number.is_integer() and abs(number) <= _LARGEST_SPELLED_OUT:
        return rule, str(int(number))
    return rule, None


def _line(path: FieldPath, line_of: LineMap) -> int | None:
    """Find the line of a field, or of the innermost thing around it that has one."""
    for length in range(len(path), -1, -1):
        if path[:length] in line_of:
            return line_of[path[:length]]
    return None


def _legal_keys(model_cls: type[BaseModel], path: FieldPath) -> list[str]:
    """List the keys that a model allows at a path inside it."""
    annotation: Any = model_cls
    for part in path:
        annotation = _annotation_inside(annotation, part)
    return list(annotation.model_fields) if _is_model(annotation) else []


def _annotation_inside(annotation: Any, part: str | int) -> Any:
    """Return the type of one key or item of a type, or None where that is not a model, list or mapping."""
    if _is_model(annotation):
        info = annotation.model_fields.get(str(part))
        return None if info is None else info.annotation
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _annotation_inside(arguments[0], part)
    if origin in (Union, types.UnionType):
        inner = (_annotation_inside(argument, part) for argument in arguments)
        return next((found for found in inner if found is not None), None)
    if origin is dict:
        return arguments[1]
    return arguments[0] if origin in (tuple, list) else None


def _is_model(annotation: Any) -> TypeGuard[type[BaseModel]]:
    """Tell whether a type is a pydantic model."""
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _dotted_paths(model_cls: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """List every parameter of a model, those of its parts included, as dotted paths."""
    for name, info in model_cls.model_fields.items():
        yield prefix + name
        if _is_model(info.annotation):
            yield from _dotted_paths(info.annotation, f"{prefix}{name}.")


def _plain(value: Any) -> Any:
    """Turn a model into plain data and a numpy scalar into a Python number; leave anything else alone."""
    if isinstance(value, BaseModel):
        return value.model_dump()
    if type(value).__module__ == "numpy" and hasattr(value, "item"):
        return value.item()
    return value
