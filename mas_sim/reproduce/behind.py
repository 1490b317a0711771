"""From a cell to its schedule: the results behind the pages, as files that `mas-sim run --from` builds again."""

import shlex
from typing import Any

from mas_sim.reproduce.book import Book, Page
from mas_sim.reproduce.data import Data
from mas_sim.results import result_names

SPLIT = {"paper_networks": "search.objective"}
"""Sweeps whose results stand in a file for each value of an axis, named by it."""


def results_of(data: Data, name: str) -> dict[str, list[dict[str, Any]]]:
    """Return the results of a sweep by the file that they stand in, each with its place in the sweep."""
    axes = list(data.sweeps[name].axes)
    split = SPLIT.get(name)
    found: dict[str, list[dict[str, Any]]] = {}
    for row in data.done(name):
        place = {axis: _plain(row[axis]) for axis in axes if axis != split}
        result = data.result(row["key"])
        file = f"results/{row[split] if split else name}.json"
        found.setdefault(file, []).append({**result, "place": place} if place else result)
    return found


def _plain(value: Any) -> Any:
    """Return a value of an axis as it is named: of a list, which a row holds as JSON, without blanks and quotes."""
    return value.replace('"', "").replace(" ", "") if isinstance(value, str) and value.startswith("[") else value


def write_results(book: Book, data: Data) -> None:
    """Write the results of every sweep, inputs and all."""
    for name in data.sweeps:
        for file, results in results_of(data, name).items():
            book.write_results(file, results)


def how_to_run(page: Page, data: Data, sweeps: tuple[str, ...]) -> None:
    """Say how a reader comes from a cell of a page to its schedule, timeline and audit."""
    if not sweeps:
        return
    page.heading("From a cell to its schedule")
    page.text(
        "Every point can be built, timed, metered, audited and executed again from its file, which holds its inputs; "
        "`--figure` draws its timeline, `--trace` writes it for Perfetto. `--pick` takes network/dataflow, and behind "
        "`@` the place in the sweep:"
    )
    lines = []
    for name in sweeps:
        for file, results in results_of(data, name).items():
            pick = shlex.quote(result_names(results)[len(results) // 2])
            lines.append(f"mas-sim run --from reports/{file} --pick {pick} --figure t.svg --trace t.json")
    page.code("\n".join(lines))
