"""Do the notebooks run from top to bottom, and say what they are stored with?"""

import base64
import copy
import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nbclient", reason="needs the extra `notebooks`")
pytest.importorskip("ipywidgets", reason="needs the extra `notebooks`")

SCRIPT = Path(__file__).parents[2] / "notebooks" / "remake.py"
NAMES = ("01_first_look", "02_explore_tiling", "03_architecture_sweep", "04_your_own_npu")
PNG_BYTES = 150_000
FOREIGN = re.compile(r"/(?:tmp|home|root|work|Users)/|\b20\d\d-\d\d-\d\d|\b\d\d:\d\d:\d\d\b|\x1b")
"""A path of some machine, a date, a time of day, a terminal's colours."""


def load_script() -> Any:
    """Import `notebooks/remake.py`, which is no part of the package."""
    spec = importlib.util.spec_from_file_location("remake", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


remake = load_script()
remake.SECONDS = 180  # so that a busy machine fails no test; `notebooks/remake.py` itself holds them to 60


def stored(name: str) -> Any:
    """Read a notebook as it is in the repository."""
    return remake.untyped.read(SCRIPT.with_name(f"{name}.ipynb"), as_version=4)


def outputs(notebook: Any) -> list[Any]:
    """Return all outputs of a notebook."""
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def picture(cell: Any) -> str | None:
    """Return the picture that a cell shows, in base64; None if there is none."""
    found = [output.data["image/png"] for output in cell.outputs if "image/png" in output.get("data", {})]
    assert len(found) <= 1
    return found[0] if found else None


def test_are_these_the_notebooks_that_there_are() -> None:
    assert tuple(path.stem for path in remake.notebooks()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_does_a_fresh_run_say_what_is_stored(name: str) -> None:
    """Does it run in a kernel of its own, in an empty folder, within its time, to the same texts and pictures?"""
    before = stored(name)
    fresh = remake.normalised(remake.execute(copy.deepcopy(before)))
    assert remake.text_of(fresh) == remake.text_of(before)


@pytest.mark.parametrize("name", NAMES)
def test_is_what_is_stored_small_free_of_its_machine_and_the_same_every_time(name: str) -> None:
    notebook = stored(name)
    text = SCRIPT.with_name(f"{name}.ipynb").read_text(encoding="utf-8")
    assert remake.untyped.writes(remake.normalised(copy.deepcopy(notebook))) + "\n" == text
    assert not FOREIGN.search(remake.text_of(notebook))
    kinds = {kind for output in outputs(notebook) for kind in output.get("data", {})}
    assert "image/png" in kinds
    assert remake.WIDGET not in kinds
    assert not any(output.output_type == "error" or output.get("name") == "stderr" for output in outputs(notebook))
    for output in outputs(notebook):
        assert len(base64.b64decode(output.get("data", {}).get("image/png", ""))) < PNG_BYTES


def test_do_the_knobs_change_words_and_timeline() -> None:
    """Does each turn show in the explorer's own place: another timeline, a sentence for what does not fit, and back?"""
    notebook = stored("02_explore_tiling")
    tags = [cell.metadata.get("tags", []) for cell in notebook.cells]
    explorer = notebook.cells[tags.index(["explorer"])]
    del notebook.cells[tags.index(["explorer"]) + 1 :]
    turn = remake.untyped.v4.new_code_cell()
    notebook.cells.append(turn)
    seen = []
    with remake.kernel(notebook) as run:
        for cell in notebook.cells[1:-1]:
            run(cell)
        for change in ({}, {"dataflow": "flat"}, {"q_tile": 512}, {"dataflow": "mas", "q_tile": 64}):
            turn.source = "\n".join(f"knobs[{name!r}].value = {value!r}" for name, value in change.items())
            run(turn)
            assert not turn.outputs
            seen.append((remake.text_of(remake.untyped.v4.new_notebook(cells=[explorer])), picture(explorer)))
    default, flat, too_large, again = seen
    assert "lower bound of `mas`" in default[0]
    assert "lower bound of `flat`" in flat[0]
    assert default[1] != flat[1]
    assert "This is not legal" in too_large[0]
    assert "flat does not fit L1 by" in too_large[0]
    assert "Traceback" not in too_large[0]
    assert too_large[1] is None
    assert again == default


def test_would_a_changed_result_or_a_lost_picture_be_noticed() -> None:
    notebook = stored("01_first_look")
    text = remake.text_of(notebook)
    number = copy.deepcopy(notebook)
    stream = next(output for output in outputs(number) if output.output_type == "stream")
    stream.text = stream.text.replace("512", "513", 1)
    lost = copy.deepcopy(notebook)
    del next(output for output in outputs(lost) if "image/png" in output.get("data", {})).data["image/png"]
    assert text != remake.text_of(number)
    assert text != remake.text_of(lost)
