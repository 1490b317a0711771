"""Run the notebooks from top to bottom, and store their outputs in a form that only changes when a result does.

    python notebooks/remake.py [NAME ...]     # all of them unless named: 01, 02_explore_tiling, ...
    python notebooks/remake.py --check        # run them, change nothing, say which outputs are out of date

Every notebook runs in a kernel of its own, in an empty folder that is removed afterwards, with warnings as errors.
"""

import argparse
import difflib
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError
from nbformat import NotebookNode

untyped: Any = nbformat  # its functions have no types
FOLDER = Path(__file__).parent
SECONDS = 60
"""What a notebook may take, all cells together."""

WIDGET = "application/vnd.jupyter.widget-view+json"
CONTROLS = "(Controls; they work when this notebook runs.)"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
WARNINGS_ARE_ERRORS = """\
import warnings
warnings.simplefilter("error")
# The kernel's own, as it ends:
warnings.filterwarnings("ignore", category=PendingDeprecationWarning, module="ipykernel")
"""
COLOURS = r"\x1b\[[0-9;]*m"
QUIETLY = ["--Application.log_level=ERROR", "--HistoryManager.enabled=False"]


def notebooks(names: Sequence[str] = ()) -> list[Path]:
    """Return the notebooks, or those whose names start so."""
    found = sorted(FOLDER.glob("*.ipynb"))
    return [path for path in found if not names or any(path.name.startswith(name) for name in names)]


@contextmanager
def _empty_place() -> Iterator[Path]:
    """Give an empty folder, in which kernels also keep whatever they and the notebooks put aside."""
    with tempfile.TemporaryDirectory() as place:
        changes = {"TMPDIR": place, "IPYTHONDIR": place, "JUPYTER_RUNTIME_DIR": place, "JUPYTER_CONFIG_DIR": place}
        before = {name: os.environ.get(name) for name in changes}
        os.environ.update(changes)
        try:
            yield Path(place)
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


@contextmanager
def kernel(notebook: NotebookNode) -> Iterator[Callable[[NotebookNode], None]]:
    """Start a kernel for a notebook, in an empty folder; give a function that runs one of its cells in place.

    Raises
    ------
    nbclient.exceptions.CellExecutionError
        From that function, if the cell fails.
    nbclient.exceptions.CellTimeoutError
        From that function, if all cells together take longer than a notebook may.
    """
    first = untyped.v4.new_code_cell(WARNINGS_ARE_ERRORS)
    notebook.cells.insert(0, first)
    end = time.monotonic() + SECONDS
    try:
        with _empty_place() as place:
            client = NotebookClient(
                notebook, timeout_func=lambda _: max(1, int(end - time.monotonic())), kernel_name="python3",
                record_timing=False, extra_arguments=QUIETLY, resources={"metadata": {"path": str(place)}},
            )  # fmt: skip
            with client.setup_kernel():
                client.execute_cell(first, 0)
                yield lambda cell: _run(client, notebook, cell)
    finally:
        notebook.cells.remove(first)


def _run(client: NotebookClient, notebook: NotebookNode, cell: NotebookNode) -> None:
    """Run a cell; what it displays under a name may be updated by later ones, which needs its place."""
    client.execute_cell(cell, next(number for number, other in enumerate(notebook.cells) if other is cell))


def execute(notebook: NotebookNode) -> NotebookNode:
    """Run a notebook in place, and return it. Raises what `kernel` does."""
    with kernel(notebook) as run:
        for cell in notebook.cells[1:]:
            run(cell)
    return notebook


def normalised(notebook: NotebookNode) -> NotebookNode:
    """Return a notebook without what differs from run to run: counters, kernel, ids and states of widgets."""
    result: NotebookNode = untyped.from_dict(notebook)
    result.metadata = untyped.from_dict(METADATA)
    for number, cell in enumerate(cell for cell in result.cells if cell.cell_type == "code"):
        cell.metadata.pop("execution", None)
        cell.execution_count = number + 1
        cell.outputs = _joined(cell.outputs)
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = number + 1
            if WIDGET in output.get("data", {}):
                output.data = untyped.from_dict({"text/plain": CONTROLS})
    return result


def _joined(outputs: list[Any]) -> list[Any]:
    """Join pieces of one stream: where it is cut depends on the clock."""
    joined: list[Any] = []
    for output in outputs:
        last = joined[-1] if joined else None
        if last is not None and output.output_type == last.output_type == "stream" and output.name == last.name:
            last.text += output.text
        else:
            joined.append(output)
    return joined


def text_of(notebook: NotebookNode) -> str:
    """Return what a notebook says, as text: its code, and all outputs but pictures, of which only the kind is named."""
    lines = []
    for number, cell in enumerate(cell for cell in notebook.cells if cell.cell_type == "code"):
        lines.append(f"[{number + 1}] {cell.source}")
        for output in cell.outputs:
            if output.output_type == "stream":
                lines.append(f"{output.name}: {output.text}")
            elif output.output_type == "error":
                lines.append(f"error: {output.ename}: {output.evalue}")
            else:
                data = output.data
                words = data.get("text/markdown", data.get("text/plain", ""))
                lines += [*(f"<{kind}>" for kind in sorted(data) if kind.startswith("image/")), words]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Remake or check notebooks; return the exit code."""
    parser = argparse.ArgumentParser(description="Run the notebooks and store their outputs.")
    parser.add_argument("names", nargs="*", help="beginnings of their names; all unless given")
    parser.add_argument("--check", action="store_true", help="change nothing, and say what is out of date")
    options = parser.parse_args(arguments)
    stale = failed = 0
    for path in notebooks(options.names):
        stored = untyped.read(path, as_version=4)
        before = text_of(stored)
        try:
            fresh = normalised(execute(stored))
        except (CellExecutionError, CellTimeoutError) as error:
            failed += 1
            print(f"{path.name}: failed, and is left as it was\n{re.sub(COLOURS, '', str(error))}")
            continue
        same = text_of(fresh) == before
        if options.check:
            stale += not same
            print(f"{path.name}: {'up to date' if same else 'out of date'}")
            sys.stdout.writelines(difflib.unified_diff(before.splitlines(True), text_of(fresh).splitlines(True)))
        else:
            untyped.write(fresh, path)
            print(f"{path.name}: {'the same text as before' if same else 'remade'}")
    return 1 if stale or failed else 0


if __name__ == "__main__":
    sys.exit(main())
