"""Trace files: a run, written for Perfetto (https://ui.perfetto.dev, "Open trace file") or chrome://tracing.

A file is written under another name and then renamed, so that a write which fails, or is interrupted, leaves an older
file of that name as it was. Events are written as they are made, one a line, so that their text (some 300 bytes each)
is never in memory as a whole.
"""

import gzip
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from mas_sim.schedule import Schedule
from mas_sim.timeline import Timeline
from mas_sim.trace import unwritable
from mas_sim.trace_events import trace_events

BUFFER_BYTES = 1 << 20
"""Text is handed on in pieces of about this size: compressing line by line takes twice as long."""


@dataclass(frozen=True)
class WrittenTrace:
    """What a trace file holds.

    Attributes
    ----------
    events
        All events, with the names of tracks and the values of counters.
    slices
        Those that show a time on a track. Transfers count twice: on their unit's track, and on the channel's.
    flows
        Arrows between slices.
    """

    path: Path
    events: int
    slices: int
    flows: int


def write_trace(
    schedule: Schedule,
    timeline: Timeline,
    path: str | Path,
    *,
    core: int | None = None,
    first_cycle: int = 0,
    last_cycle: int | None = None,
    flows: bool = True,
) -> WrittenTrace:
    """Write a run to a JSON file that trace viewers open; the same run gives the same bytes.

    Parameters
    ----------
    path
        Compressed if its name ends in `.gz` (viewers open that as well).
    core, first_cycle, last_cycle, flows
        What is shown, as in `trace_events`.

    Raises
    ------
    ConfigError
        If the file cannot be written.
    MasSimError, ScheduleError
        As `trace_events`.
    """
    events = trace_events(schedule, timeline, core=core, first_cycle=first_cycle, last_cycle=last_cycle, flows=flows)
    shown = {"core": core, "first_cycle": first_cycle, "last_cycle": last_cycle, "flows": flows}
    about = {
        "dataflow": schedule.dataflow,
        "arch": schedule.arch.name,
        "workload": schedule.workload.name,
        "tiling": schedule.tiling.as_dict(),
        "clock_ghz": schedule.arch.clock_ghz,
        "cycles": timeline.cycles,
        "shown": shown,
    }
    count = {"X": 0, "s": 0}
    total = 0
    try:
        with _replacing(Path(path)) as raw, _compressing(raw, str(path)) as file:
            lines, size = [f'{{"displayTimeUnit":"ns","otherData":{_json(about)},"traceEvents":['], 0
            for event in events:
                line = ("\n" if total == 0 else ",\n") + _json(event)
                total += 1
                if event["ph"] in count:
                    count[event["ph"]] += 1
                lines.append(line)
                size += len(line)
                if size > BUFFER_BYTES:
                    file.write("".join(lines).encode())
                    lines, size = [], 0
            file.write("".join([*lines, "\n]}\n"]).encode())
    except OSError as error:
        raise unwritable(path, error) from error
    return WrittenTrace(Path(path), total, count["X"], count["s"])


def _json(data: Any) -> str:
    """Return compact, strict JSON in ASCII."""
    return json.dumps(data, allow_nan=False, separators=(",", ":"))


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a file beside `path` that takes its place once all is written; what is no regular file is written as it is.

    Raises
    ------
    OSError
        If it cannot be written.
    """
    target = path.resolve()  # of a link, what it leads to is replaced
    if target.exists() and not target.is_file():  # a device or a pipe must not be replaced; a folder cannot be
        with target.open("wb") as file:
            yield file
        return
    beside = target.with_name(f".{target.name[:200]}.{os.getpid()}.part")
    try:
        with beside.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(target)
    finally:
        with suppress(OSError):
            beside.unlink()


@contextmanager
def _compressing(file: IO[bytes], name: str) -> Iterator[IO[bytes] | gzip.GzipFile]:
    """Compress what is written, if the name says so; with no time or name in it, so that its bytes stay the same."""
    if not name.endswith(".gz"):
        yield file
        return
    with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0) as compressed:
        yield compressed
