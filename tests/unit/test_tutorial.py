"""Do the pages of docs/ say what is so: is what the tutorial shows what comes out, and are assumptions as listed?"""

import contextlib
import io
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from mas_sim._sweep_fields import Bases
from mas_sim.arch import load_arch
from mas_sim.cli import main
from mas_sim.config import list_presets
from mas_sim.sweep_point import SearchSettings
from mas_sim.workload import load_workload

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "tutorial.md"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"(?<![\w.,])\d+(?:,\d{3})*(?:\.\d+)?")


@dataclass(frozen=True)
class Block:
    """A fenced block of the page: its language, its text, and the line of the page that it begins on."""

    language: str
    text: str
    line: int


@dataclass(frozen=True)
class Step:
    """Something that is run, and the output that the page shows for it."""

    line: int
    source: str
    shown: str
    is_python: bool = False


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    return [Block(found[1], found[2], page[: found.start()].count("\n") + 2) for found in FENCE.finditer(page)]


def commands(block: Block) -> list[Step]:
    """The commands of a console block, each with the lines up to the next one."""
    parts = re.split(r"^\$ (.*)\n", block.text, flags=re.MULTILINE)
    assert not parts[0], f"line {block.line}: output without a command"
    return [Step(block.line, source, shown) for source, shown in zip(parts[1::2], parts[2::2], strict=True)]


def steps(page: str) -> list[Block | Step]:
    """What the page does, in order: YAML files to write, commands and Python to run."""
    found: list[Block | Step] = []
    every = blocks(page)
    for block, following in zip(every, [*every[1:], Block("", "", 0)], strict=True):
        if block.language == "console":
            found += commands(block)
        elif block.language == "python":
            shown = following.text if following.language == "text" else ""
            found.append(Step(block.line, block.text, shown, is_python=True))
        elif block.language == "yaml":
            found.append(block)
    return found


def agrees(shown: str, got: str) -> bool:
    """Whether output is as shown, but for blanks at the ends of lines; `...` stands for anything."""
    shown, got = ("\n".join(line.rstrip() for line in text.strip().splitlines()) for text in (shown, got))
    return re.fullmatch(re.escape(shown).replace(r"\.\.\.", ".*"), got, re.DOTALL) is not None


def output_of(step: Step, names: dict[str, object]) -> str:
    """Run a step in this process; what it prints, on either stream."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed), contextlib.suppress(SystemExit):
        if step.is_python:
            exec(compile(step.source, f"tutorial.md:{step.line}", "exec"), names)
        else:
            sys.argv = shlex.split(step.source)
            assert sys.argv[0] == "mas-sim"
            main()
    return printed.getvalue()


def write(block: Block) -> None:
    """Write the file that a YAML block names in its first line."""
    name = re.fullmatch(r"# (\w+\.yaml)", block.text.partition("\n")[0])
    assert name, f"line {block.line}: the first line must name the file"
    Path(name[1]).write_text(block.text, encoding="utf-8")


def test_does_the_page_show_what_comes_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", sys.argv)
    names: dict[str, object] = {}
    wrong = []
    for step in steps(PAGE.read_text(encoding="utf-8")):
        if isinstance(step, Block):
            write(step)
            continue
        got = output_of(step, names)
        if not agrees(step.shown, got):
            wrong.append(f"block at line {step.line}: {step.source}\n--- shown\n{step.shown}--- comes out\n{got}")
    assert not wrong, "\n".join(wrong)


def test_is_everything_run_but_what_installs() -> None:
    found = blocks(PAGE.read_text(encoding="utf-8"))
    assert {block.language for block in found} == {"sh", "console", "python", "text", "yaml"}
    assert [block.text for block in found if block.language == "sh"] == ["make run\n. .venv/bin/activate\n"]
    outputs = [at for at, block in enumerate(found) if block.language == "text"]
    assert all(found[at - 1].language == "python" for at in outputs)


def test_is_every_number_of_the_text_shown_by_a_command() -> None:
    page = PAGE.read_text(encoding="utf-8")
    run = set(NUMBER.findall("\n".join(block.text for block in blocks(page))))
    text = re.sub(r"\(\w[\w/.]*\)|Python 3.11|section \d", "", FENCE.sub("", page))
    assert {number for number in NUMBER.findall(text) if number not in run} == set()


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.stem)
def test_do_the_pages_and_pictures_exist_that_a_page_points_to(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    targets = [*re.findall(r"\]\(([^)#]+)", text), *re.findall(r"`(\.\./[\w/.]+)`", text)]
    assert [target for target in targets if not (DOCS / target).exists()] == []


# --- Is the list of assumptions in docs/model.md, section 10, that of the code? ---


def assumptions() -> list[list[str]]:
    """The rows of its tables: assumption, default, where, what it changes, how to ask."""
    section = (DOCS / "model.md").read_text(encoding="utf-8").partition("## 10.")[2].partition("## 11.")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows if row[0] not in ("assumption", "---|---|---|---|---")]


def bases() -> Bases:
    return Bases(load_arch("mas_edge"), load_workload("bert_base"), SearchSettings())


def test_can_a_sweep_ask_what_each_assumption_changes() -> None:
    asked = [row[-1] for row in assumptions()]
    axes = [found for how in asked for found in re.findall(r"ax[ei]s ((?:`[^`]+`(?:, )?)+)", how)]
    fields = [part.partition(":")[0] for axis in axes for part in re.findall(r"`([^`]+)`", axis)]
    assert len(fields) > 15
    assert [field for field in fields if field not in bases().fields] == []
    shipped = list_presets("sweeps")
    sweeps = [name for how in asked for name in re.findall(r"mas-sim sweep (\w+)", how)]
    assert len(sweeps) > 5
    assert [name for name in sweeps if name not in shipped] == []


def test_is_each_default_that_of_the_machine() -> None:
    checked, machine = 0, bases()
    for _, default, where, *_ in assumptions():
        field = re.match(r"`([\w.]+)`", where)
        number = re.match(r"[\d,.]+", default)
        if field and number and field[1] in machine.fields:
            value = machine.value(field[1], {})
            if isinstance(value, int | float):
                assert float(number[0].replace(",", "")) == value, where
                checked += 1
    assert checked > 12


@pytest.mark.parametrize(
    ("shown", "got", "expected"),
    [
        ("cycles  12", "cycles  12   \n", True),
        ("cycles  12", "cycles  13", False),
        ("cycles  12", "cycles 12", False),
        ("a\n...\nd", "a\nb\nc\nd", True),
        ("a\n...", "b\nc", False),
        ("took ... s", "took 1.5 s", True),
        ("", "something", False),
    ],
)
def test_is_other_output_told_from_the_same(shown: str, got: str, expected: bool) -> None:
    assert agrees(shown, got) is expected
