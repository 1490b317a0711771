"""Running a sweep: what is missing is computed, and written down as it finishes."""

import os
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from mas_sim._engines import Finished, dask_engine, find_scheduler, local_engine, threads_of
from mas_sim._model_version import model_version
from mas_sim._store_file import refuse
from mas_sim.errors import MasSimError
from mas_sim.store import ANEW, Store
from mas_sim.sweep_file import Sweep, load_sweep
from mas_sim.sweep_point import Job, Outcome, run_point

GOLDEN = 0.6180339887498949
"""Steps of this share of a circle spread evenly over it, however many are taken (Weyl 1916)."""

MOST_TIMED, TIMED_SECONDS = 20, 3.0
"""An estimate times points until they have taken three seconds, and no more of them than this."""

SweepProgress = Callable[["SweepState"], None]


@dataclass(frozen=True)
class SweepState:
    """How far a sweep is.

    Attributes
    ----------
    points
        Of the whole sweep.
    kept
        Points that this run need not compute: finished before it began, or by another process meanwhile.
    finished
        Points that this run has finished.
    failed
        Of these, how many failed by themselves.
    elapsed_seconds
        Since this run began.
    """

    points: int
    kept: int
    finished: int = 0
    failed: int = 0
    elapsed_seconds: float = 0.0

    @property
    def left(self) -> int:
        """Points that are still to do."""
        return self.points - self.kept - self.finished

    @property
    def points_per_second(self) -> float:
        """Rate of this run so far; 0 before its first point."""
        return self.finished / self.elapsed_seconds if self.elapsed_seconds > 0 else 0.0

    @property
    def remaining_seconds(self) -> float | None:
        """How long the rest will take at that rate; None before the first point."""
        return self.left / self.points_per_second if self.points_per_second else None


def spread(count: int) -> list[int]:
    """Return the positions of a sweep in the order in which they are run: spread over it, whatever part is done.

    So the rate of the first points is that of all, and the results of a sweep that was stopped show its whole range.
    """
    return sorted(range(count), key=lambda position: (position * GOLDEN % 1.0, position))


def run_sweep(
    sweep: Sweep | str | Path,
    store: Store | str | Path,
    *,
    jobs: int = 1,
    dask: str | None = None,
    retry_failed: bool = False,
    progress: SweepProgress | None = None,
) -> SweepState:
    """Compute the points of a sweep that a store does not hold, and write each as it finishes.

    Stopped by the user, it ends cleanly: all that was finished is in the store, and the exception goes on.

    Parameters
    ----------
    sweep
        A sweep, or a shipped one's name, or a YAML file.
    store
        A store that is open, or the folder of one, which is made if there is none.
    jobs
        Processes on this machine.
    dask
        Address of a Dask scheduler, whose workers are used instead.
    retry_failed
        Compute points anew that failed by themselves, or whose results are damaged.
    progress
        Called with the state when the run begins and after every point.

    Raises
    ------
    StoreError
        If a row cannot be written; all before it are safe.
    ConfigError
        If the sweep's file or the store is wrong; nothing is computed, or changed, then.
    MasSimError
        If there is no such cluster, its workers run another model, or `jobs` is less than 1.
    """
    if not isinstance(sweep, Sweep):
        sweep = load_sweep(sweep)
    _check_jobs(jobs)
    if isinstance(store, Store):
        return _run(sweep, store, jobs, dask, retry_failed, progress)
    if dask is not None:
        find_scheduler(dask)  # before there is a folder with nothing in it
    with Store.open(store, create_missing=True) as opened:
        return _run(sweep, opened, jobs, dask, retry_failed, progress)


def _run(
    sweep: Sweep, store: Store, jobs: int, dask: str | None, retry_failed: bool, progress: SweepProgress | None
) -> SweepState:
    """Run a sweep into an open store."""
    _begin(sweep, store, retry_failed)
    waiting, began = _waiting(sweep, store.finished(sweep.keys, failed=not retry_failed)), time.perf_counter()
    points = len(set(sweep.keys))
    state = SweepState(points, points - len(waiting))
    if progress is not None:
        progress(state)
    if not waiting:
        return state
    skipped: list[int] = []
    with local_engine(jobs) if dask is None else dask_engine(dask) as engine:
        work = _missing(sweep, store, waiting, threads_of(jobs) if dask is None else 1, retry_failed, skipped)
        with closing(_written(store, engine(work))) as outcomes:
            for outcome in outcomes:
                state = replace(state, finished=state.finished + 1, failed=state.failed + (outcome.status == "failed"))
                if progress is not None:
                    progress(_now(state, skipped, began))
    return _now(state, skipped, began)


def _check_jobs(jobs: int) -> None:
    if jobs < 1:
        raise MasSimError(f"jobs must be at least 1 (got {jobs})")


def _begin(sweep: Sweep, store: Store, retry_failed: bool) -> None:
    """Write down that a sweep is run; refuse a store with damaged results of it, or have those computed anew."""
    damaged = store.damaged(dict.fromkeys(sweep.keys))
    if damaged and not retry_failed:
        raise refuse(store.path, f"is corrupt: {len(damaged):,} results are not what was written; {ANEW}")
    store.discard(damaged)
    store.begin(sweep)


def _waiting(sweep: Sweep, kept: set[str]) -> list[int]:
    """Return the positions that are to be computed, in the order in which they are run; of twins only the first.

    Every process begins somewhere else, so that two which run the same sweep into one store share the work.
    """
    first = {key: position for position, key in reversed(list(enumerate(sweep.keys)))}
    found = [at for at in spread(len(sweep)) if first[sweep.keys[at]] == at and sweep.keys[at] not in kept]
    start = int(os.getpid() * GOLDEN % 1.0 * len(found))
    return found[start:] + found[:start]


def _written(store: Store, found: Iterator[Finished]) -> Generator[Outcome, None, None]:
    """Write outcomes as an engine finds them, and pass them on; end the engine when nobody listens any more."""
    with closing(found) as open_one:  # type: ignore[type-var]
        for job, outcome in open_one:
            if outcome.model_version not in ("", model_version()):
                raise MasSimError(
                    f"a worker computes with model {outcome.model_version}, not {model_version()} as here: its results "
                    "would not be comparable. Install the same version everywhere, and do not change it meanwhile"
                )
            store.write(job, replace(outcome, model_version=model_version()))
            yield outcome


def _now(state: SweepState, skipped: list[int], began: float) -> SweepState:
    """Return a state with what others did, and the time."""
    elapsed = time.perf_counter() - began
    return replace(state, kept=state.kept + len(skipped), elapsed_seconds=elapsed)


def _missing(
    sweep: Sweep, store: Store, waiting: list[int], threads: int, retry_failed: bool, skipped: list[int]
) -> Iterator[Job]:
    """Give the jobs of positions, but for those that another process has finished meanwhile."""
    for position in waiting:
        if store.finished([sweep.keys[position]], failed=not retry_failed):
            skipped.append(position)
        else:
            yield sweep.point(position, threads).job


@dataclass(frozen=True)
class Estimate:
    """How long the rest of a sweep will take.

    Attributes
    ----------
    missing
        Points that are still to do.
    seconds_per_point
        Mean time of a point in one process.
    timed
        Points that were timed for it, just now; 0 if their times were known.
    jobs
        Processes that will share the work.
    overhead_seconds
        What a point takes besides: to make its inputs and to write its row.
    """

    missing: int
    seconds_per_point: float
    timed: int
    jobs: int
    overhead_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """The wall time of what is missing; one process alone makes inputs and writes rows."""
        shared = (self.seconds_per_point + self.overhead_seconds) / self.jobs
        return self.missing * max(shared, self.overhead_seconds)


def estimate(
    sweep: Sweep,
    store: Store | None = None,
    *,
    jobs: int = 1,
    retry_failed: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Estimate:
    """Estimate how long the points of a sweep take that a store does not hold.

    From the times of those that it holds; if there are none, some are computed here and now, spread over the sweep,
    until they have taken three seconds. Where there is a store they are written to it: nothing is computed in vain.

    Parameters
    ----------
    progress
        Called with the number of points timed so far, before each.

    Raises
    ------
    MasSimError
        As `run_sweep`.
    """
    _check_jobs(jobs)
    keys = list(dict.fromkeys(sweep.keys))
    there: set[str] = set()
    if store is not None:
        _begin(sweep, store, retry_failed)
        there = store.finished(keys, failed=not retry_failed)
        known = store.seconds_per_point(sweep.id)
        if known is not None or len(there) == len(keys):
            return Estimate(len(keys) - len(there), known or 0.0, 0, jobs)
    times: list[float] = []
    began = time.perf_counter()
    for position in spread(len(sweep)):
        if len(times) == MOST_TIMED or sum(times) > TIMED_SECONDS:
            break
        if progress is not None:
            progress(len(times))
        job = sweep.point(position, threads_of(jobs)).job
        if job.key in there:  # a twin
            continue
        outcome = run_point(job)
        there.add(job.key)
        times.append(outcome.seconds)
        if store is not None:
            store.write(job, outcome)
    spent, mean = time.perf_counter() - began, sum(times) / len(times)
    missing = len(keys) - (len(times) if store is not None else 0)
    return Estimate(missing, mean, len(times), jobs, spent / len(times) - mean)


__all__ = ["Estimate", "Outcome", "SweepState", "estimate", "run_sweep", "spread"]
