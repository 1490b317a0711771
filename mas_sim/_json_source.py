"""Read a JSON file that may be wrong or hostile, and remember on which line every field stood.

The counterpart of :mod:`mas_sim.yaml_source` for what the commands print; YAML reads JSON's ``1e-05`` as text.
"""

import json
import re
from pathlib import Path
from typing import Any, NoReturn

from mas_sim.errors import ConfigError, Fault
from mas_sim.yaml_source import FieldPath, LineMap, dotted

MAX_JSON_BYTES = 2**26
MAX_JSON_DEPTH = 64

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"(\s*:)?|[{}\[\],]|\n')


def read_json(path: str | Path) -> tuple[dict[str, Any], LineMap, list[Fault]]:
    """Read a JSON file that must hold one object.

    Parameters
    ----------
    path : str or Path
        At most 64 MiB.

    Returns
    -------
    data : dict
        The object.
    line_of : dict
        One-based line of every field path.
    faults : list of Fault
        Keys that are set twice; the last value stands.

    Raises
    ------
    ConfigError
        If the file cannot be read, is not JSON, or holds something else than an object.
    """
    file = str(path)
    text = _read_text(Path(path), file)

    def refuse(rule: str, line: int | None = None) -> NoReturn:
        raise ConfigError([Fault(file, line, "", rule)])

    def no_number(word: str) -> NoReturn:
        refuse(f"is not valid JSON: {word} is no number")

    try:
        data = json.loads(text, parse_constant=no_number)
    except RecursionError:
        refuse("is nested too deeply")
    except json.JSONDecodeError as error:
        refuse(f"is not valid JSON: {error.msg}", error.lineno)
    except ValueError:  # an integer of thousands of digits
        refuse("is not valid JSON: a number is absurdly long")
    if not isinstance(data, dict):
        raise ConfigError([Fault.of(file, 1, "", "must hold an object of keys and values", data)])
    line_of, faults = _lines(text, file)
    return data, line_of, faults


def _read_text(path: Path, file: str) -> str:
    """Read a regular UTF-8 file of bounded size."""
    try:
        if not path.exists():
            rule = "no such file"
        elif not path.is_file():
            rule = "is not a regular file"
        elif path.stat().st_size > MAX_JSON_BYTES:
            rule = f"is too large: {path.stat().st_size} bytes, the limit is {MAX_JSON_BYTES}"
        else:
            return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        rule = f"is not UTF-8 text (byte {error.start})"
    except (OSError, ValueError) as error:
        rule = f"cannot be read: {getattr(error, 'strerror', None) or error}"
    raise ConfigError([Fault(file, None, "", rule)])


def _lines(text: str, file: str) -> tuple[LineMap, list[Fault]]:
    """Find the line of every key and item of JSON text that is known to be valid, and the keys that are set twice."""
    line_of: LineMap = {(): 1}
    faults: list[Fault] = []
    path: list[str | int] = []  # of the innermost container, its current key or index last
    line = 1
    for token in _TOKEN.finditer(text):
        sign = token.group()
        if sign == "\n":
            line += 1
        elif sign in "{[":
            if len(path) == MAX_JSON_DEPTH:
                raise ConfigError([Fault(file, line, "", f"is nested more than {MAX_JSON_DEPTH} levels deep")])
            path.append("" if sign == "{" else 0)
            if sign == "[":
                line_of[tuple(path)] = line
        elif sign in "}]":
            path.pop()
        elif sign == "," and isinstance(path[-1], int):
            path[-1] += 1
            line_of[tuple(path)] = line
        elif token.group(1) is not None:
            path[-1] = json.loads(sign[: -len(token.group(1))])
            key: FieldPath = tuple(path)
            if key in line_of:
                faults.append(Fault(file, line, dotted(key), f"duplicate key, first set on line {line_of[key]}"))
            line_of.setdefault(key, line)
            line += token.group(1).count("\n")
    return line_of, faults
