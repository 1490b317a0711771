"""Which model made a result: the version of the package, and a digest of the sources that make its numbers.

Results of different models must not be mixed in one table, and a version number is easily forgotten to be raised. So
the digest covers every source that a point of a sweep needs, found by following imports from
:mod:`mas_sim.sweep_point`: a change there, even of a comment, makes a new model; one of a table or a figure does not.
"""

import hashlib
import re
from functools import cache
from pathlib import Path

from mas_sim.results import package_version
from mas_sim.search.evaluator import __file__ as evaluator_file

_IMPORT = re.compile(
    r"^[ \t]*(?:from (mas_sim[\w.]*) import (?:\(([^)]*)\)|([^\n(]*))|import (mas_sim[\w.]*))", re.MULTILINE
)
_ROOT = "mas_sim.sweep_point"


def sources() -> dict[str, Path]:
    """Return the modules that a point of a sweep needs, by name, in the order of their names."""
    found: dict[str, Path] = {}
    waiting = [_ROOT]
    while waiting:
        name = waiting.pop()
        path = _path_of(name) if name.startswith("mas_sim.") and name not in found else None
        if path is None:
            continue
        found[name] = path
        for source, inside, plainly, module in _IMPORT.findall(path.read_text(encoding="utf-8")):
            names = [part.split()[0] for part in (inside or plainly).split(",") if part.split()]
            waiting += [source or module, *(f"{source}.{one}" for one in names), name.rpartition(".")[0]]
    return dict(sorted(found.items()))


def _path_of(name: str) -> Path | None:
    """Return the file of one of our modules; None if there is none of that name."""
    parts, root = name.split(".")[1:], Path(__file__).parent
    if parts[:1] == ["search"]:  # its folder stands beside the package's in a source tree, in it once installed
        root, parts = Path(evaluator_file).parent, parts[1:]
    path = root.joinpath(*parts)
    return next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file()), None)


@cache
def model_version() -> str:
    """Return the version of the model: `0.1.0+` and eight hexadecimal digits of the SHA-256 of its sources."""
    digest = hashlib.sha256()
    for name, path in sources().items():
        digest.update(name.encode() + b"\0" + path.read_bytes().replace(b"\r\n", b"\n") + b"\0")
    return f"{package_version()}+{digest.hexdigest()[:8]}"
