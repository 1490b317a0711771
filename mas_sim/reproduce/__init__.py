"""`mas-sim reproduce`: the published tables and figures beside ours, and every objection answered with a figure.

One command runs the sweeps that it rests on (resumable, as any sweep is), and writes the report: pages of Markdown,
figures, a CSV file of every number, and the exact settings. The same model gives the same bytes.
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mas_sim._model_version import model_version
from mas_sim.errors import MasSimError, nearest
from mas_sim.reproduce import (
    bands,
    masks,
    memory,
    networks,
    objectives,
    questions,
    regimes,
    searching,
    sensitivity,
)
from mas_sim.reproduce.assumptions import SWEEPS
from mas_sim.reproduce.behind import how_to_run, write_results
from mas_sim.reproduce.book import Book, Page
from mas_sim.reproduce.data import Data
from mas_sim.reproduce.summary import headline, summary
from mas_sim.results_frame import plain_rows, results_frame
from mas_sim.store import STORE_NAME, Store
from mas_sim.sweep import SweepState, run_sweep
from mas_sim.sweep_file import Sweep, load_sweep
from mas_sim.sweep_point import digest_of

QUICK_WORKLOADS = ("vit_b_16", "t5_mini")
QUICK_TOKENS = 2048

ReproduceProgress = Callable[[str, SweepState | None], None]
"""Called with what is being done, and how far a sweep is; None while a page is written."""


@dataclass(frozen=True)
class Part:
    """A page of the report.

    Attributes
    ----------
    name
        Of its file.
    sweeps
        Sweeps whose results it shows.
    write
        Writes it.
    """

    name: str
    title: str
    question: str
    sweeps: tuple[str, ...]
    write: Callable[[Page, Data], None]


PARTS = (
    Part("tables", "Tables 2 and 3, figures 5 and 6", "What do the dataflows take on the paper's twelve networks?",
         ("paper_networks",), networks.tables),
    Part("hardware", "Beside silicon", "What would a phone NPU gain?", ("paper_hardware",), networks.hardware),
    Part("convergence", "Figure 7: how search converges", "How soon does a search find the optimum?",
         ("paper_networks",), searching.convergence),
    Part("traffic", "DRAM accesses", "Who moves more bytes, and what does overwrite add?",
         ("paper_networks", "preemption"), memory.traffic),
    Part("limits", "Longest sequences", "How long a sequence can each dataflow run at all?",
         (), memory.longest),
    Part("preemption", "Objection: preemption", "What does stopping a product cost, and is MAS faster without it?",
         ("preemption",), memory.preemption),
    Part("sensitivity", "Objection: sensitivity", "Which assumption does the conclusion hang on?",
         SWEEPS, sensitivity.tornado),
    Part("bands", "Energy bands", "Does the ranking survive what is not known of energies?",
         ("paper_networks", "fusemax_without_exp"), bands.bands),
    Part("ratio", "The MAC:VEC ratio, and 2.75x", "Does the speedup follow the ratio, and what would reach 2.75x?",
         ("mac_vec_ratio", "exp_cost", "paper_networks"), questions.ratio),
    Part("masks", "Causal masks, layer norm, GeLU", "Does the speedup carry over to masks and other layers?",
         ("masks", "paper_networks"), masks.masks),
    Part("objectives", "Latency or energy", "Does an energy objective widen the energy lead?",
         ("paper_networks", "fusemax_without_exp"), objectives.objectives),
    Part("regimes", "Regime map", "Which dataflow wins at which length and cost of softmax?",
         ("regime_map", "regime_without_exp", "paper_networks"), regimes.regimes),
    Part("quality", "Quality of search", "Would a weak search have changed the ranking?",
         ("search_quality", "paper_networks"), searching.quality),
)  # fmt: skip


def reproduce(
    out: str | Path,
    *,
    quick: bool = False,
    jobs: int = 1,
    only: Iterable[str] = (),
    progress: ReproduceProgress | None = None,
) -> Book:
    """Run what the report rests on and is not there yet, and write the report.

    Parameters
    ----------
    out
        Its folder; results are kept in a store in it, so that an interrupted run goes on where it was.
    quick
        Two networks, short sequences and the ends of each axis only: each case as in the whole, means and findings of
        the part.
    jobs
        Processes.
    only
        Names of pages to write; all unless given. The summary and the settings are only written with all.

    Raises
    ------
    MasSimError
        If there is no such page, or a file cannot be written.
    """
    chosen, names = list(only), [part.name for part in PARTS]
    for name in chosen:
        if name not in names:
            near = nearest(name, names)
            hint = f"; did you mean {near!r}?" if near else ""
            raise MasSimError(f"no page is called {name!r} (there are {', '.join(names)}){hint}")
    parts = [part for part in PARTS if not chosen or part.name in chosen]
    folder = Path(out)
    with Store.open(folder / STORE_NAME, create_missing=True) as store:
        data = _data(store, parts, quick, jobs, progress)
        book = Book(folder)
        for part in parts:
            if progress is not None:
                progress(f"writing {part.name}", None)
            page = book.page(part.name, part.title, part.question)
            part.write(page, data)
            how_to_run(page, data, part.sweeps)
            page.close()
        write_results(book, data)
        if not chosen:
            summary(book, quick)
            headline(book, data)
            book.write_json("settings.json", _settings(data, quick))
    return book


def _data(store: Store, parts: list[Part], quick: bool, jobs: int, progress: ReproduceProgress | None) -> Data:
    """Run the sweeps that pages rest on, and return their results."""
    data = Data(store, quick, {}, {})
    for name in dict.fromkeys(name for part in parts for name in part.sweeps):
        sweep = load_sweep(name)
        if quick:
            sweep = quick_part(sweep)

        def step(state: SweepState, name: str = name) -> None:
            if progress is not None:
                progress(f"sweep {name}", state)

        run_sweep(sweep, store, jobs=jobs, retry_failed=True, progress=step)
        data.sweeps[name] = sweep
        data.rows[name] = plain_rows(results_frame(store.rows(sweep.id)))
    return data


def quick_part(sweep: Sweep) -> Sweep:
    """Return the part of a sweep that takes seconds: two of its networks, short sequences, the ends of other axes."""
    names = [workload.name for workload in sweep.workloads]
    small = [name for name in QUICK_WORKLOADS if name in names] or names[:1]
    ends: dict[str, list[Any]] = {}  # lists, since a value may be one
    for path in sweep.axes:
        every = [values[path] for values, _ in sweep.places]
        seen = [value for at, value in enumerate(every) if value not in every[:at]]
        numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in seen)
        if path == "workload.seq":
            ends[path] = [value for value in seen if value <= QUICK_TOKENS]
        elif path == "search.evaluations":
            ends[path] = seen[:2]
        else:
            ends[path] = [seen[0], seen[-1], _own(sweep, path)] if numbers else seen

    def keep(values: dict[str, Any], workload: str) -> bool:
        return workload in small and all(values[path] in kept for path, kept in ends.items())

    return sweep.only(keep)


def _own(sweep: Sweep, path: str) -> Any:
    """Return what a field is on the machine itself; None for fields of other things."""
    found: Any = sweep.arch
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def _settings(data: Data, quick: bool) -> dict[str, Any]:
    """Return the exact settings that the report was made with."""
    return {
        "command": "mas-sim reproduce" + (" --quick" if quick else ""),
        "model_version": model_version(),
        "sweeps": {
            name: {
                "question": sweep.question,
                "points": len(sweep),
                "file_sha256": hashlib.sha256(sweep.text.encode()).hexdigest(),
                "arch": sweep.arch.name,
                "arch_hash": sweep.arch.hash,
                "workloads": {workload.name: workload.hash for workload in sweep.workloads},
                "points_digest": digest_of([values for values, _ in sweep.places])[:16],
            }
            for name, sweep in data.sweeps.items()
        },
    }
