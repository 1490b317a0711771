"""Where the points of a sweep are computed: in this process, in local ones (joblib), or on a Dask cluster.

Each engine takes jobs as they come and gives outcomes as they finish, with never more jobs out than keep the workers
busy, so that memory does not grow with the sweep.
"""

import asyncio
import importlib
import itertools
import os
import signal
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from typing import Any

from joblib import Parallel, delayed
from joblib.externals.loky.process_executor import BrokenProcessPool

from mas_sim.errors import MasSimError
from mas_sim.sweep_point import Job, Outcome, run_point

CONNECT_SECONDS = 10
WATCH_SECONDS = 1.0
POLL_SECONDS, ALONE_SECONDS = 5.0, 60.0
"""How often a cluster is asked whether it has workers, and how long it may have none."""

Finished = tuple[Job, Outcome]
Engine = Callable[[Iterable[Job]], Iterator[Finished]]
"""Takes jobs, gives each with its outcome; in any order."""

KILLED = "the process that computed it was killed (out of memory?), twice"


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_of(jobs: int) -> int:
    """Return the threads that each of several processes may use."""
    return max(1, processors() // jobs)


@contextmanager
def local_engine(jobs: int) -> Iterator[Engine]:
    """Give the engine of this machine: `jobs` processes, or this process alone for 1."""
    yield _here if jobs == 1 else lambda work: _in_processes(work, jobs)


def _here(work: Iterable[Job]) -> Iterator[Finished]:
    for job in work:
        yield job, run_point(job)


def _run_in_child(job: Job) -> Finished:
    _be_a_child()
    return job, run_point(job)


@cache
def _be_a_child() -> None:
    """Once in a process that joblib started: leave Ctrl-C to the parent, and end when it is gone.

    The terminal sends Ctrl-C to all processes; the parent ends the others. A parent that is killed cannot: they would
    wait for more work, with their memory, for minutes.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _in_processes(work: Iterable[Job], jobs: int) -> Iterator[Finished]:
    """Run jobs in processes of this machine; those that were out when one was killed, again, each alone.

    Which of them it was that its process did not survive cannot be told, so each gets a process of its own; one that is
    killed there too has failed.
    """
    queue = iter(work)
    while True:
        out: dict[str, Job] = {}
        try:
            yield from _parallel(_noting(queue, out), jobs, out)
            return
        except BrokenProcessPool:
            suspects = list(out.values())
        for job in suspects:
            try:
                yield from _parallel([job], 1, {})
            except BrokenProcessPool:
                yield job, Outcome(job.key, "failed", KILLED)


def _noting(queue: Iterator[Job], out: dict[str, Job]) -> Iterator[Job]:
    """Pass jobs on, and note which are out."""
    for job in queue:
        out[job.key] = job
        yield job


def _parallel(work: Iterable[Job], jobs: int, out: dict[str, Job]) -> Iterator[Finished]:
    """Give outcomes as joblib's workers finish them; what is finished is no longer out."""
    # One process for one job is still a process of its own: n_jobs=1 would run it here.
    parallel = Parallel(n_jobs=max(2, jobs), return_as="generator_unordered", batch_size=1, pre_dispatch=2 * jobs)
    found = parallel(delayed(_run_in_child)(job) for job in work)
    try:
        for job, outcome in found:
            out.pop(job.key, None)
            yield job, outcome
    finally:
        with warnings.catch_warnings():  # of an early end, which is what is wanted here
            warnings.simplefilter("ignore")
            found.close()


def _knock(address: str) -> None:
    """Refuse an address at which nothing answers; a client that fails to connect leaves warnings behind."""
    comm: Any = importlib.import_module("distributed.comm")

    async def connect() -> None:
        (await comm.connect(address, timeout=CONNECT_SECONDS)).abort()

    try:
        asyncio.run(connect())
    except (OSError, ValueError, TimeoutError) as error:
        raise MasSimError(f"no Dask scheduler answers at {address!r}: {error}") from None


def find_scheduler(address: str) -> Any:
    """Return the module of Dask, once a scheduler has answered at that address.

    Raises
    ------
    MasSimError
        If Dask is not installed, or nothing answers.
    """
    try:
        distributed: Any = importlib.import_module("distributed")  # slow to import, and may not be there
    except ImportError:
        raise MasSimError('--dask needs Dask, which is not installed: pip install "mas_sim[dask]"') from None
    _knock(address)
    return distributed


def dask_engine(address: str) -> AbstractContextManager[Engine]:
    """Give the engine of a Dask cluster, by the address of its scheduler.

    A worker that dies costs nothing: Dask computes what it had elsewhere. All workers must have this version.

    Raises
    ------
    MasSimError
        If Dask is not installed, or there is no scheduler or no worker at that address.
    """
    distributed = find_scheduler(address)

    @contextmanager
    def connected() -> Iterator[Engine]:
        with distributed.Client(address, timeout=CONNECT_SECONDS) as client:
            if not client.ncores():
                raise MasSimError(f"the Dask scheduler at {address} has no workers")
            yield lambda work: _on_cluster(distributed, client, work)

    return connected()


def _on_cluster(distributed: Any, client: Any, work: Iterable[Job]) -> Iterator[Finished]:
    """Give outcomes as the cluster's workers finish them.

    Through Dask's own client: joblib's backend for it waits for ever where a worker cannot run a job, or dies of it.
    """
    queue = iter(work)
    out: dict[Any, Job] = {}
    try:
        while True:
            room = 2 * sum(client.ncores().values()) - len(out)
            for job in itertools.islice(queue, max(room, not out)):
                out[client.submit(run_point, job, key=f"mas_sim-{job.key}-{uuid.uuid4().hex}", pure=False)] = job
            if not out:
                return
            for future in _finished(distributed, client, list(out)):
                try:
                    finished = _outcome(distributed, future, out[future])
                except TimeoutError:  # its worker died before the result was fetched: Dask computes it again
                    continue
                del out[future]
                yield finished
    except (OSError, distributed.client.FutureCancelledError, distributed.CancelledError) as error:
        raise MasSimError(f"the Dask scheduler is gone: {error}; what was finished is kept") from None
    finally:
        with suppress(Exception):  # they may be gone with the cluster
            client.cancel(list(out))


def _finished(distributed: Any, client: Any, futures: list[Any]) -> list[Any]:
    """Wait until at least one is done, or the cluster has had no worker for too long."""
    alone_since: float | None = None
    while True:
        try:
            return list(distributed.wait(futures, timeout=POLL_SECONDS, return_when="FIRST_COMPLETED").done)
        except TimeoutError:
            now = time.monotonic()
            if client.ncores():
                alone_since = None
            elif alone_since is None:
                alone_since = now
            elif now - alone_since > ALONE_SECONDS:
                raise MasSimError(
                    f"the Dask cluster has had no worker for {ALONE_SECONDS:.0f} seconds; what was finished is kept"
                ) from None


def _outcome(distributed: Any, future: Any, job: Job) -> Finished:
    """Return what a worker made of a job; that of one whose workers died of it has failed.

    The status is not asked first: the worker may die after it was done and before it is fetched; then Dask computes the
    job elsewhere, and the same future may yet be finished, killed, or take too long (`TimeoutError`).
    """
    try:
        return job, future.result(timeout=POLL_SECONDS)
    except distributed.KilledWorker as error:
        return job, Outcome(
            job.key, "failed", f"{error.allowed_failures + 1} workers died computing it (out of memory?)"
        )
    except Exception as error:
        if future.status != "error":  # not the job's: of the cluster, or of the time that it takes
            raise
        # `run_point` raises nothing, so it could not even be called.
        raise MasSimError(f"a Dask worker cannot compute points: {type(error).__name__}: {error}") from None
