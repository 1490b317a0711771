"""Read a YAML file that may be wrong or hostile, and remember on which line every field stood.

The file is refused, with a clear fault and quickly, if it is too large, not text, not one mapping, nested too deeply,
or uses anchors, aliases or tags (a few lines of aliases can expand to gigabytes; no configuration needs them). What
YAML 1.1 silently turns into something else (``010`` into 8, ``1:30`` into 90) is refused too. Nothing here knows what
the fields mean: that is :mod:`mas_sim.config`.
"""

import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from mas_sim.errors import NAME_CHARS, ConfigError, Fault, shorten

try:
    from yaml import CSafeLoader as _Loader
except ImportError:  # PyYAML without libyaml: slower, the same result
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]

FieldPath = tuple[str | int, ...]
"""Where a value stands in a document: mapping keys and sequence indices, outermost first."""

LineMap = dict[FieldPath, int]
"""One-based line of each key and sequence item of a file."""

MAX_FILE_BYTES = 2**20
MAX_DEPTH = 32
MAX_FAULTS = 50
"""No more faults than this are described for one file; the rest are counted."""

_TAG = "tag:yaml.org,2002:"
_PLAIN_INT = re.compile(r"[-+]?(0|[1-9][0-9_]*)")
_MAX_DIGITS = 40
_SPECIAL_FLOATS = {".inf": "inf", "+.inf": "inf", "-.inf": "-inf", ".nan": "nan"}


@dataclass(frozen=True)
class Document:
    """A YAML file as read: plain data, lines, and the faults that did not stop the reading.

    Attributes
    ----------
    file : str
        The file's path, as faults show it.
    data : dict
        Mappings as dict, sequences as list, scalars as str, int, float, bool or None.
    line_of : dict
        One-based line of every field path; ``()`` is the document itself.
    faults : tuple of Fault
        Duplicate keys, keys that are not text, and numbers that are not plain decimal.
    """

    file: str
    data: dict[str, Any]
    line_of: LineMap
    faults: tuple[Fault, ...]


def dotted(path: FieldPath) -> str:
    """Write a field path as text: ``("vec", "softmax_passes", 0)`` becomes ``vec.softmax_passes[0]``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = shorten(part, NAME_CHARS)
            text += ("." if text else "") + (name if name.isprintable() else repr(name)[1:-1])
    return text


def cap_faults(faults: list[Fault], hidden: int = 0) -> tuple[Fault, ...]:
    """Keep the first faults of a hopeless file and count the rest (``hidden`` more were never described)."""
    hidden += max(0, len(faults) - MAX_FAULTS)
    kept = faults[:MAX_FAULTS]
    if hidden:
        kept.append(Fault(kept[0].file, None, "", f"and {hidden} further faults"))
    return tuple(kept)


def read_document(path: str | Path) -> Document:
    """Read a file into plain data, keeping the faults that leave something to validate.

    Parameters
    ----------
    path : str or Path
        A YAML file.

    Returns
    -------
    Document
        The content, with the line of every field and the faults met on the way.

    Raises
    ------
    ConfigError
        If the file cannot be read as one YAML mapping at all.
    """
    file = str(path)
    text = read_text(path, file)
    try:
        _refuse_structure(text, file)
        node = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise ConfigError([_syntax_fault(error, file)]) from None
    if node is None:
        raise ConfigError([Fault(file, None, "", "the file is empty: it must hold a mapping of keys to values")])
    if not isinstance(node, yaml.MappingNode):
        rule = "the top level must be a mapping of keys to values"
        raise ConfigError([_node_fault(file, node, (), rule)])
    builder = _Builder(file)
    data = builder.mapping(node, ())
    return Document(file, data, builder.line_of, tuple(builder.faults))


def read_yaml(path: str | Path) -> tuple[dict[str, Any], LineMap]:
    """Read a file into plain data and a map from field path to line.

    Parameters
    ----------
    path : str or Path
        A YAML file.

    Returns
    -------
    data : dict
        The top-level mapping.
    line_of : dict
        One-based line of every field path.

    Raises
    ------
    ConfigError
        If anything about the file as YAML is wrong.
    """
    document = read_document(path)
    if document.faults:
        raise ConfigError(cap_faults(list(document.faults)))
    return document.data, document.line_of


def read_text(path: str | Path, file: str) -> str:
    """Read a regular UTF-8 file of bounded size; its size is checked before a byte is read."""

    def refuse(rule: str) -> ConfigError:
        return ConfigError([Fault(shorten(file, 4 * NAME_CHARS), None, "", rule)])

    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            raise refuse("is a directory, not a file")
        if not stat.S_ISREG(status.st_mode):
            raise refuse("is not a regular file")
        if status.st_size > MAX_FILE_BYTES:
            raise refuse(f"is too large: {status.st_size} bytes, the limit is {MAX_FILE_BYTES}")
        raw = Path(path).read_bytes()
    except FileNotFoundError:
        raise refuse("no such file") from None
    except PermissionError:
        raise refuse("permission denied") from None
    except (OSError, ValueError) as error:
        raise refuse(f"cannot be read: {error}") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise refuse(f"is not UTF-8 text (byte {error.start})") from None
    if "\0" in text:
        raise refuse("is a binary file, not text")
    return text


def _refuse_structure(text: str, file: str) -> None:
    """Walk the parser's events and stop at the first anchor, alias, tag, second document or too deep nesting.

    Events come one at a time and nothing is expanded or recursed into, so a bomb costs nothing.
    """
    depth = documents = 0
    for event in yaml.parse(text, Loader=_Loader):
        rule = ""
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            rule = "anchors and aliases (& and *) are not allowed: write the value out"
        elif getattr(event, "tag", None) is not None:
            rule = "tags (!) are not allowed"
        elif isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            rule = "holds more than one YAML document" if documents > 1 else ""
        elif isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            rule = f"is nested more than {MAX_DEPTH} levels deep" if depth > MAX_DEPTH else ""
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if rule:
            mark = event.start_mark
            raise ConfigError([Fault(file, None if mark is None else mark.line + 1, "", rule)])


def _node_fault(file: str, node: yaml.Node, path: FieldPath, rule: str) -> Fault:
    """Report a node: a scalar with what it says, a list or mapping with what it is."""
    line = node.start_mark.line + 1
    if isinstance(node, yaml.ScalarNode):
        return Fault.of(file, line, dotted(path), rule, node.value)
    kind = "list" if isinstance(node, yaml.SequenceNode) else "mapping"
    return Fault(file, line, dotted(path), rule, f"a {kind} of {len(node.value)}")


def _syntax_fault(error: yaml.YAMLError, file: str) -> Fault:
    """Turn a YAML syntax error into a fault with its line."""
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        reason = " ".join(part for part in (error.context, error.problem) if part)
        return Fault(file, None if mark is None else mark.line + 1, "", f"is not valid YAML: {reason}")
    return Fault(file, None, "", "is not valid YAML: " + " ".join(str(error).split()))


@dataclass
class _Builder:
    """Turns composed nodes into plain data (the depth is already known to be bounded)."""

    file: str
    line_of: LineMap = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def mapping(self, node: yaml.MappingNode, path: FieldPath) -> dict[str, Any]:
        """Build a mapping, noting each key's line; of a duplicate key the first value stands."""
        self.line_of.setdefault(path, node.start_mark.line + 1)
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag in {_TAG + "bool", _TAG + "null"}:
                rule = "a key must be text (YAML reads a bare yes, no, on, off or null as something else: quote it)"
                self.faults.append(_node_fault(self.file, key_node, path, rule))
                continue
            key = key_node.value
            if key in result:
                first = self.line_of[(*path, key)]
                rule = f"duplicate key, first set on line {first}"
                self.faults.append(Fault(self.file, line, dotted((*path, key)), rule))
                continue
            self.line_of[(*path, key)] = line
            result[key] = self.value(value_node, (*path, key))
        return result

    def value(self, node: yaml.Node, path: FieldPath) -> Any:
        """Build any node."""
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            items = []
            for index, item in enumerate(node.value):
                self.line_of[(*path, index)] = item.start_mark.line + 1
                items.append(self.value(item, (*path, index)))
            return items
        return self.scalar(node, path)

    def scalar(self, node: yaml.Node, path: FieldPath) -> str | int | float | bool | None:
        """Build a scalar; dates and other exotica stay text."""
        text: str = node.value
        if node.tag == _TAG + "null":
            return None
        if node.tag == _TAG + "bool":
            return text.lower() in {"yes", "true", "on"}
        if node.tag == _TAG + "int":
            if _PLAIN_INT.fullmatch(text) and len(text) <= _MAX_DIGITS:
                return int(text.replace("_", ""))
            return self._odd_number(node, path)
        if node.tag == _TAG + "float":
            lowered = text.lower().replace("_", "")
            try:
                return float(_SPECIAL_FLOATS.get(lowered, lowered))
            except ValueError:
                return self._odd_number(node, path)
        return text

    def _odd_number(self, node: yaml.Node, path: FieldPath) -> int:
        """Note a number in base 2, 8, 16 or 60, or of absurd length, and go on with a harmless one."""
        rule = f"numbers must be plain decimal, without leading zeros, at most {_MAX_DIGITS} characters"
        self.faults.append(Fault.of(self.file, node.start_mark.line + 1, dotted(path), rule, node.value))
        return 1
