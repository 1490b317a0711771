"""The one place where compiled code is declared: a typed `numba.njit` with the project's options.

Numba keys its on-disk cache on the file of the compiled function alone, so a caller keeps the machine code of an *old*
callee when only the callee's file changed, and would return last week's numbers. `drop_stale_cache` therefore
compares a stamp of all our sources with the one the cache was made under, and empties the cache when they differ.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., object])

_STAMP = "sources.stamp"
_CONSTANTS = ("schedule.py", "tiling.py")


def _without_literals(dispatcher: Any) -> Any:
    """Let compiled callers share one version of a function, instead of one for each combination of constant arguments.

    Numba types the constant 3 as `Literal[int](3)` and compiles the callee anew for it; our callees take operation and
    unit numbers, so that was two thirds of all compilation.
    """
    original = dispatcher.get_call_template

    def get_call_template(args: Any, kws: Any) -> Any:
        plain = tuple(numba.types.unliteral(arg) for arg in args)
        return original(plain, {name: numba.types.unliteral(arg) for name, arg in kws.items()})

    dispatcher.get_call_template = get_call_template
    return dispatcher


def jit(function: F) -> F:
    """Compile `function` with numba: cached on disk, releasing the GIL, no fastmath.

    Parameters
    ----------
    function
        A function of numbers, arrays and named tuples only.

    Returns
    -------
    F
        The compiled dispatcher, typed as the plain function.
    """
    return _compiled(function, {})


def leaf(function: F) -> F:
    """Compile `function` like `jit`, without reference counting of its arrays.

    Every array argument of a compiled function costs two atomic operations per call; where calls are as short as one
    instruction's timing, they are nine tenths of the time (316 against 14 ns an instruction in the event kernel). A
    leaf may read and write the arrays it is given, and slice them, but must neither allocate nor return one.
    """
    return _compiled(function, {"_nrt": False})


def inlined(function: F) -> F:
    """Compile `function` like `leaf`, into each of its callers, which must be leaves.

    For parts of a hot loop, split off to be read: as calls, their array arguments would cost as much as they do.
    """
    return _compiled(function, {"_nrt": False, "inline": "always"})


def _compiled(function: F, options: dict[str, Any]) -> F:
    dispatcher = numba.njit(cache=True, nogil=True, **options)(function)
    return cast(F, function if numba.config.DISABLE_JIT else _without_literals(dispatcher))


def _source_stamp(folders: list[Path]) -> str:
    """Digest of the sources that compiled code is made of: those that use this module, and the constants they share."""
    digest = hashlib.sha256(numba.__version__.encode())
    for folder in folders:
        for path in sorted(folder.glob("*.py")):
            text = path.read_bytes()
            if b"mas_sim._jit import" in text or path.name in _CONSTANTS:
                digest.update(path.name.encode() + text)
    return digest.hexdigest()


def drop_stale_cache(folders: list[Path]) -> bool:
    """Remove the compiled cache of `folders` if any of their sources changed since it was written.

    Parameters
    ----------
    folders
        Package folders that hold compiled functions; the stamp lives in the first one's `__pycache__`.

    Returns
    -------
    bool
        True if a stale cache was dropped. A folder that cannot be written is left alone: numba then keeps its cache
        elsewhere, and its own per-file check is all there is.
    """
    stamp_file = folders[0] / "__pycache__" / _STAMP
    stamp = _source_stamp(folders)
    try:
        if stamp_file.is_file() and stamp_file.read_text() == stamp:
            return False
        for folder in folders:
            for pattern in ("*.nbi", "*.nbc"):
                for cached in (folder / "__pycache__").glob(pattern):
                    cached.unlink(missing_ok=True)
        stamp_file.parent.mkdir(exist_ok=True)
        stamp_file.write_text(stamp)
    except OSError:
        return False
    return True
