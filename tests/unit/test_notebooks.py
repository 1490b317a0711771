"""Do the notebooks run from top to bottom?"""

import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


def run(path: Path) -> dict[str, Any]:
    """Run a notebook's cells, in order, in one namespace; return that."""
    namespace: dict[str, Any] = {}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{path.name}:{cell['id']}", "exec"), namespace)
    return namespace


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_does_it_run_and_carry_no_output_of_an_earlier_run(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") for cell in cells)
    assert run(path)


def test_does_overlap_gain_most_where_both_units_have_equal_work() -> None:
    rows = run(NOTEBOOKS[0])["rows"]
    gains = [gain for _, gain in rows]
    assert all(0.99 < gain < 2 for gain in gains)
    assert max(gains) not in (gains[0], gains[-1])
