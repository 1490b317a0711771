"""The file of a results store: its layout, making it whole or not at all, and refusing what is not one, untouched.

A store is one SQLite file in WAL mode. Who opens it is told by its header, which is read as bytes: SQLite itself, which
may write to what it opens, never sees a file that is not ours.
"""

import errno
import os
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from mas_sim.errors import ConfigError, Fault, MasSimError

APPLICATION_ID = 0x4D41535F  # "MAS_"
SCHEMA_VERSION = 1
BUSY_SECONDS = 60.0
"""How long a writer waits for others; a row takes milliseconds."""

_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100
_USER_VERSION, _APPLICATION_ID = slice(60, 64), slice(68, 72)  # https://www.sqlite.org/fileformat.html, section 1.3

_SCHEMA = f"""
PRAGMA page_size = 8192;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
CREATE TABLE inputs (digest TEXT PRIMARY KEY, data TEXT NOT NULL) STRICT;
CREATE TABLE points (
    key TEXT PRIMARY KEY,
    status TEXT NOT NULL,
    reason TEXT NOT NULL,
    over_bytes INTEGER NOT NULL,
    dataflow TEXT NOT NULL,
    arch_digest TEXT NOT NULL,
    energy_table_digest TEXT NOT NULL,
    workload_digest TEXT NOT NULL,
    search TEXT NOT NULL,
    result TEXT,
    result_digest TEXT NOT NULL,
    seconds REAL NOT NULL,
    finished_utc TEXT NOT NULL,
    model_version TEXT NOT NULL
) STRICT;
CREATE TABLE sweeps (
    id TEXT PRIMARY KEY,
    number INTEGER NOT NULL UNIQUE,
    name TEXT NOT NULL,
    question TEXT NOT NULL,
    file TEXT NOT NULL,
    axes TEXT NOT NULL,
    points INTEGER NOT NULL,
    model_version TEXT NOT NULL,
    started_utc TEXT NOT NULL
) STRICT;
CREATE TABLE plan (
    sweep TEXT NOT NULL REFERENCES sweeps (id),
    position INTEGER NOT NULL,
    key TEXT NOT NULL,
    workload TEXT NOT NULL,
    dataflow TEXT NOT NULL,
    axes TEXT NOT NULL,
    PRIMARY KEY (sweep, position)
) STRICT, WITHOUT ROWID;
"""


KEPT = "; what was finished before is kept"


class StoreError(MasSimError):
    """A results store cannot be read or written; says what is safe, and what to do."""


@contextmanager
def store_errors(path: Path, what: str, kept: str = KEPT) -> Iterator[None]:
    """Turn SQLite's errors into a `StoreError` that says what could not be done, why, and what is safe."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        why = {
            sqlite3.SQLITE_FULL: "the disk is full",
            sqlite3.SQLITE_BUSY: f"another process has held it for more than {BUSY_SECONDS:.0f} seconds",
            sqlite3.SQLITE_READONLY: "the file or its folder is read-only",
            sqlite3.SQLITE_CANTOPEN: "the file or its folder cannot be opened for writing",
            sqlite3.SQLITE_IOERR: "the disk reports an error, or is full",
            sqlite3.SQLITE_CORRUPT: "the file is corrupt",
            sqlite3.SQLITE_NOTADB: "the file is corrupt",
        }.get(code, str(error))
        raise StoreError(f"{path}: {what}: {why}{kept}") from error


def refuse(path: Path, rule: str) -> ConfigError:
    """Return the error that refuses a file."""
    return ConfigError([Fault(str(path), None, "", rule)])


def check_store(path: Path) -> None:
    """Refuse a file that is no store of this layout, or that is damaged, without changing a byte of it.

    Raises
    ------
    ConfigError
        If it is not there, is something else than a store, was made by a later layout, or is corrupt.
    """
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except FileNotFoundError:
        raise refuse(
            path,
            "no such file: there are no results here (`mas-sim sweep` leaves them, and `mas-sim reproduce`)",
        ) from None
    except OSError as error:
        raise refuse(path, f"cannot be read: {error.strerror or error}") from None
    if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
        raise refuse(path, "is no results store (it is not an SQLite database); it was left as it is")
    if int.from_bytes(header[_APPLICATION_ID], "big") != APPLICATION_ID:
        raise refuse(path, "is an SQLite database of another application, not a results store; it was left as it is")
    layout = int.from_bytes(header[_USER_VERSION], "big")
    if layout != SCHEMA_VERSION:
        rule = f"is a results store of layout {layout}, and this version reads layout {SCHEMA_VERSION}"
        raise refuse(path, f"{rule}; it was left as it is")
    try:
        with closing(_reader(path)) as connection:
            found = [row[0] for row in connection.execute("PRAGMA quick_check(3)")]
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise refuse(path, f"cannot be read: {error}") from None
        found = [str(error)]
    if found != ["ok"]:
        raise refuse(path, f"is a corrupt results store ({'; '.join(found)[:200]}); it was left as it is")


def _reader(path: Path) -> sqlite3.Connection:
    """Connect to read, and leave no file behind.

    A connection that may write clears its side files away when it closes, so such a one is used, and told never to
    write. Not where rows wait in a log (a writer was killed, or is at work): closing would copy them into the file.
    Without a log, and in a folder that cannot be written, the file is read alone: side files could not be made.
    """
    if path.with_name(f"{path.name}-wal").exists():
        mode = "mode=ro"
    else:
        mode = "mode=rw" if os.access(path.parent, os.W_OK) else "immutable=1"
    name = f"{path.absolute().as_uri()}?{mode}"
    connection = sqlite3.connect(name, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA query_only = ON")
    return connection


def connect(path: Path, *, writes: bool) -> sqlite3.Connection:
    """Connect to a store that `check_store` has passed; the caller sees to it that only one thread at a time uses it.

    Parameters
    ----------
    writes
        Whether rows are going to be written. Every commit then reaches the disk before it returns, so that what is
        finished survives a crash of the machine, too.
    """
    if not writes:
        return _reader(path)
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def create(path: Path) -> None:
    """Make an empty store, whole or not at all; if another process is faster, its store stands.

    Raises
    ------
    StoreError
        If it cannot be made.
    """
    what = "the results store cannot be made"
    draft = path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with store_errors(path, what):
            with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
                # The layout stands in the file itself before it becomes a WAL one: `check_store` reads its bytes.
                connection.executescript(_SCHEMA)
                connection.execute("PRAGMA journal_mode = WAL")
            _publish(draft, path)
    except OSError as error:
        raise StoreError(f"{path}: {what}: {error.strerror or error}") from error
    finally:
        for left in path.parent.glob(f"{draft.name}*"):
            left.unlink(missing_ok=True)


def _publish(draft: Path, path: Path) -> None:
    """Give a finished store its name, unless there is one of that name."""
    try:
        os.link(draft, path)
    except FileExistsError:
        return
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        if not path.exists():  # a file system without links
            draft.rename(path)
