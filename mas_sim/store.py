"""The results store: a row for every finished point of any sweep, in one SQLite file.

A row is written, and on the disk, as soon as its point is finished, under the content hash of its inputs and of the
model that computed it. So re-running does only what is missing; a kill at any moment, a full disk, or two sweeps into
one store at once lose and double nothing; and others may read it while it is written (WAL).
"""

import hashlib
import json
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from mas_sim._store_file import KEPT, check_store, connect, create, refuse, store_errors
from mas_sim.errors import ConfigError, Fault, nearest
from mas_sim.results import inputs_of
from mas_sim.sweep_file import Sweep
from mas_sim.sweep_point import Job, Outcome, digest_of

if TYPE_CHECKING:
    import pandas as pd

STORE_NAME = "results.sqlite"
"""Name of the store in the folder of a sweep."""
SUFFIXES = (".sqlite", ".sqlite3", ".db")
"""What the name of a store may end in, where a file is meant rather than its folder."""

CHUNK = 500
_READING = "the results store cannot be read"

_INPUTS = ("arch", "energy_table", "workload")
_POINT_COLUMNS = (
    "key", "status", "reason", "over_bytes", "dataflow", "arch_digest", "energy_table_digest", "workload_digest",
    "search", "result", "result_digest", "seconds", "finished_utc", "model_version",
)  # fmt: skip


def store_path(path: str | Path) -> Path:
    """Return the file of a store: of a folder, the one in it."""
    if not str(path):
        raise refuse(Path(STORE_NAME), "the name of its folder is empty")
    path = Path(path)
    return path if path.is_file() or path.suffix in SUFFIXES else path / STORE_NAME


def _digest(text: str | None) -> str:
    """Return what tells a stored result from a damaged one: the SHA-256 of its text, in hexadecimal digits."""
    return "" if text is None else hashlib.sha256(text.encode()).hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


ANEW = "`mas-sim sweep` with --resume computes such points anew"


class Store:
    """A results store, open; a context that closes it.

    Order of calls: `Store.open`, `begin` (a sweep), then `finished` and `write` in any order. Methods raise a
    `StoreError` where the file cannot be read or written; what was written before is kept.
    """

    def __init__(self, path: Path, *, writes: bool) -> None:
        self.path = path
        self._lock = threading.RLock()  # joblib asks for the next job from threads of its own
        with store_errors(path, "the results store cannot be opened"):
            self._connection = connect(path, writes=writes)

    @classmethod
    def open(cls, path: str | Path, *, create_missing: bool = False, writes: bool = True) -> Self:
        """Open a store.

        Parameters
        ----------
        path
            The file, or the folder that holds it.
        create_missing
            Make an empty one if there is none.
        writes
            Whether rows will be written.

        Raises
        ------
        ConfigError
            If the file is no store, was made by a later layout, or is corrupt; it is left as it is.
        StoreError
            If it cannot be made or opened.
        """
        file = store_path(path)
        if create_missing and not file.exists():
            create(file)
        check_store(file)
        return cls(file, writes=writes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._connection.close()

    @contextmanager
    def _use(self, what: str) -> Iterator[None]:
        """Let one thread at a time use the connection, and say of its errors what could not be done."""
        with self._lock, store_errors(self.path, what, "" if what == _READING else KEPT):
            yield

    def begin(self, sweep: Sweep) -> None:
        """Write down what a sweep consists of; of one that is known already, nothing."""
        facts = (sweep.name, sweep.question, sweep.text, json.dumps(sweep.axes), len(sweep))
        with self._use("the sweep cannot be written"), self._connection as connection:
            connection.execute("BEGIN IMMEDIATE")
            known = connection.execute("SELECT number FROM sweeps WHERE id = ?", (sweep.id,)).fetchone()
            number = connection.execute("SELECT coalesce(max(number), 0) + 1 FROM sweeps").fetchone()[0]
            if known is None:
                row = (sweep.id, number, *facts, sweep.model_version, _now())
                connection.execute("INSERT INTO sweeps VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
                connection.executemany("INSERT INTO plan VALUES (?, ?, ?, ?, ?, ?)", _plan(sweep))
            elif known[0] != number - 1:  # the last one started is the one that is meant where none is named
                connection.execute("UPDATE sweeps SET number = ? WHERE id = ?", (number, sweep.id))

    def finished(self, keys: Iterable[str], *, failed: bool = True) -> set[str]:
        """Return which of the keys have a row; with `failed=False` without those that failed by themselves."""
        found: set[str] = set()
        asked = list(keys)
        rule = "" if failed else " AND status != 'failed'"
        with self._use(_READING):
            for start in range(0, len(asked), CHUNK):
                some = asked[start : start + CHUNK]
                marks = ", ".join("?" * len(some))
                rows = self._connection.execute(f"SELECT key FROM points WHERE key IN ({marks}){rule}", some)
                found |= {row[0] for row in rows}
        return found

    def damaged(self, keys: Iterable[str]) -> set[str]:
        """Return which of the keys have a result that is not what was written."""
        found: set[str] = set()
        asked = list(keys)
        with self._use(_READING):
            for start in range(0, len(asked), CHUNK):
                some = asked[start : start + CHUNK]
                query = f"SELECT key, result, result_digest FROM points WHERE key IN ({', '.join('?' * len(some))})"
                rows = self._connection.execute(query, some)
                found |= {key for key, text, digest in rows if text is not None and _digest(text) != digest}
        return found

    def discard(self, keys: Iterable[str]) -> None:
        """Note of points that their results are damaged: as points that failed by themselves, to be computed anew."""
        query = "UPDATE points SET status = 'failed', reason = ?, result = NULL, result_digest = ? WHERE key = ?"
        with self._use("a damaged result cannot be discarded"), self._connection as connection:
            connection.executemany(query, [("its result was damaged", _digest(None), key) for key in keys])

    def write(self, job: Job, outcome: Outcome) -> bool:
        """Write the row of a finished point; it is on the disk when this returns.

        A row that is there stays, unless it says that the point failed by itself.

        Returns
        -------
        bool
            Whether it was written.
        """
        given = inputs_of(job.arch, job.workload)
        inputs = [(digest_of(given[name]), json.dumps(given[name])) for name in _INPUTS]  # once, whoever shares them
        result = None if outcome.result is None else json.dumps(outcome.result)
        row = (
            job.key, outcome.status, outcome.reason, outcome.over_bytes, job.dataflow,
            *(digest for digest, _ in inputs), json.dumps(job.search.model_dump(mode="json")), result,
            _digest(result), outcome.seconds, _now(), outcome.model_version,
        )  # fmt: skip
        marks = ", ".join("?" * len(_POINT_COLUMNS))
        changes = ", ".join(f"{name} = excluded.{name}" for name in _POINT_COLUMNS[1:])
        with self._use("a finished point cannot be written"), self._connection as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT OR IGNORE INTO inputs VALUES (?, ?)", inputs)
            done = connection.execute(
                f"INSERT INTO points VALUES ({marks}) ON CONFLICT (key) "
                f"DO UPDATE SET {changes} WHERE points.status = 'failed'",
                row,
            )
            return done.rowcount > 0

    def sweeps(self) -> list[dict[str, Any]]:
        """Return the sweeps that were begun, the last one started last: id, name, question, points, finished, ..."""
        query = (
            "SELECT id, name, question, points, model_version, started_utc, axes, "
            "(SELECT count(*) FROM plan JOIN points USING (key) WHERE plan.sweep = sweeps.id) "
            "FROM sweeps ORDER BY number"
        )
        names = ("id", "name", "question", "points", "model_version", "started_utc", "axes", "finished")
        with self._use(_READING):
            rows = [dict(zip(names, row, strict=True)) for row in self._connection.execute(query)]
        return [row | {"axes": json.loads(row["axes"])} for row in rows]

    def rows(self, sweep_id: str) -> Iterator[dict[str, Any]]:
        """Give the points of a sweep in its order: axes, workload, dataflow, and what became of each.

        A point that is not finished has `status` `missing`.
        """
        names = ("position", "key", "workload", "dataflow", "axes", *_ROW)
        query = (
            f"SELECT position, plan.key, plan.workload, plan.dataflow, plan.axes, {', '.join(_ROW)} FROM plan"
            " LEFT JOIN points USING (key) WHERE plan.sweep = ? ORDER BY position"
        )
        with self._use(_READING):
            for row in self._connection.execute(query, (sweep_id,)):
                found = dict(zip(names, row, strict=True))
                found["axes"] = json.loads(found["axes"])
                found["result"] = self._sound(found["key"], found["result"], found.pop("result_digest"))
                yield found | ({"status": "missing", "reason": ""} if found["status"] is None else {})

    def _sound(self, key: str, text: str | None, digest: str | None) -> dict[str, Any] | None:
        """Return a stored result, if there is one, and if it is what was written."""
        if text is None:
            return None
        if _digest(text) != digest:
            raise refuse(self.path, f"is corrupt: the result of point {key} is not what was written; {ANEW}")
        result: dict[str, Any] = json.loads(text)
        return result

    def seconds_per_point(self, sweep_id: str) -> float | None:
        """Return how long the finished points of a sweep took on average; None if there are none."""
        query = "SELECT avg(seconds) FROM plan JOIN points USING (key) WHERE plan.sweep = ?"
        with self._use(_READING):
            found: float | None = self._connection.execute(query, (sweep_id,)).fetchone()[0]
        return found

    def result(self, key: str) -> dict[str, Any]:
        """Return the whole result of a point, inputs included: what `run --json` prints, for `run --from`.

        Raises
        ------
        ConfigError
            If no point begins with that key, several do, or it has no result; says why.
        """
        digests = ", ".join(f"{name}_digest" for name in _INPUTS)
        query = f"SELECT key, status, reason, result, result_digest, {digests} FROM points WHERE key >= ? AND key < ?"
        with self._use(_READING):
            found = self._connection.execute(query, (key, key + "g")).fetchmany(2) if key else []
            if len(found) != 1:
                many = "several points whose keys begin" if found else "no finished point whose key begins"
                raise refuse(self.path, f"holds {many} with {key!r}")
            full, status, reason, text, digest, *places = found[0]
            result = self._sound(full, text, digest)
            if result is None:
                raise refuse(self.path, f"point {full} has no result: {status.replace('_', ' ')}: {reason}")
            query = "SELECT data FROM inputs WHERE digest = ?"
            data = [json.loads(self._connection.execute(query, (place,)).fetchone()[0]) for place in places]
        return {**result, "inputs": dict(zip(_INPUTS, data, strict=True))}


_ROW = ("status", "reason", "over_bytes", "result", "result_digest", "seconds", "finished_utc", "model_version")


def _plan(sweep: Sweep) -> Iterator[tuple[str, int, str, str, str, str]]:
    """Give the rows that say what a sweep consists of."""
    for position, key in enumerate(sweep.keys):
        values, number = sweep.places[position // len(sweep.dataflows)]
        flow = sweep.dataflows[position % len(sweep.dataflows)]
        yield sweep.id, position, key, sweep.workloads[number].name, flow, json.dumps(values)


def load_results(path: str | Path, sweep: str | None = None) -> "pd.DataFrame":
    """Return the results of a sweep as a table.

    Parameters
    ----------
    path
        A store, or the folder of a sweep.
    sweep
        Name or id of one of its sweeps; the one started last unless given.

    Returns
    -------
    pandas.DataFrame
        A row a point, in the order of the sweep, as `results_frame.results_frame` describes: axes, `workload`,
        `dataflow`, `status`, `cycles`, energies in pJ, bytes, bounds, tiling. A point without a result has a reason.

    Raises
    ------
    ConfigError
        If it is no path or no store, or is corrupt, or holds no such sweep.
    """
    if not isinstance(path, str | Path):
        raise ConfigError([Fault.of("<python>", None, "path", "must be a path, as text or Path", repr(path))])
    from mas_sim.results_frame import results_frame  # pandas is slow to import

    with Store.open(path, writes=False) as store:
        return results_frame(store.rows(chosen_sweep(store, sweep)["id"]))


def chosen_sweep(store: Store, name: str | None) -> dict[str, Any]:
    """Return the sweep of a store that is meant: the last started of that name or id, or of all."""
    sweeps = store.sweeps()
    chosen = [one for one in sweeps if name in (None, one["name"], one["id"])]
    if chosen:
        return chosen[-1]
    names = list(dict.fromkeys(one["name"] for one in sweeps))
    rule = f"has no such sweep, but {', '.join(names)}" if names else "holds no sweep yet"
    raise ConfigError([Fault.of(str(store.path), None, "", rule, name, nearest(str(name), names))])
