"""The report as files: pages of Markdown with their tables and figures, and a CSV file for every table of numbers.

The same numbers give the same bytes: nothing here writes a date, a duration or a path of the machine.
"""

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mas_sim._table_parts import strict_json
from mas_sim.errors import MasSimError
from mas_sim.reproduce.claims import Verdict
from mas_sim.results import share_inputs

if TYPE_CHECKING:
    from mas_sim.plots import Figure

Cell = str | int | float | None


class BookError(MasSimError):
    """A file of the report cannot be written."""


def cell_text(cell: Cell) -> str:
    """Write a cell of a table."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    return f"{cell:.4g}" if isinstance(cell, float) else cell


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """Write a table in Markdown; columns of numbers are set flush right."""
    written = [[cell_text(cell) for cell in row] for row in rows]
    numeric = [all(row[k][:1].isdigit() or row[k][:1] in "-+" for row in written) for k in range(len(head))]
    rule = ["---:" if right else "---" for right in numeric]
    return "\n".join(f"| {' | '.join(row)} |" for row in [list(head), rule, *written])


def _lines(items: Iterable[tuple[str, Any]]) -> str:
    """Write JSON values, each behind its name, one a line."""
    return ",\n".join(name + json.dumps(item, separators=(",", ":"), allow_nan=False) for name, item in items)


def atomically(path: Path, data: bytes) -> None:
    """Write a file, whole or not at all; one that is the same already is left alone.

    Raises
    ------
    BookError
        If it cannot be written.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if path.is_file() and path.read_bytes() == data:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(data)
        draft.replace(path)
    except OSError as error:
        raise BookError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        draft.unlink(missing_ok=True)


@dataclass
class Page:
    """A page of the report while it is written.

    Attributes
    ----------
    name
        Of its file, without the suffix; files of its own begin with it.
    findings
        Sentences for the summary.
    answers
        Those of them that answer an objection or an open question, by its id in `published.yaml`.
    verdicts
        Published figures that it compares.
    """

    book: "Book"
    name: str
    title: str
    question: str
    findings: list[str] = field(default_factory=list)
    answers: dict[str, list[str]] = field(default_factory=dict)
    verdicts: list[Verdict] = field(default_factory=list)
    _parts: list[str] = field(default_factory=list)

    def heading(self, text: str) -> None:
        """Begin a section."""
        self._parts.append(f"## {text}")

    def text(self, text: str) -> None:
        """Add a paragraph."""
        self._parts.append(" ".join(text.split()))

    def code(self, text: str) -> None:
        """Add commands."""
        self._parts.append("\n".join(f"    {line}" for line in text.splitlines()))

    def finding(self, text: str, *, answers: str | None = None) -> None:
        """Add a sentence that the summary shows, too; `answers` an objection or question, by its id."""
        self.findings.append(" ".join(text.split()))
        if answers is not None:
            self.answers.setdefault(answers, []).append(self.findings[-1])

    def table(self, head: Sequence[str], rows: Sequence[Sequence[Cell]], caption: str = "") -> None:
        """Add a table."""
        self._parts += ([f"**{caption}**"] if caption else []) + [markdown_table(head, rows)]

    def figure(self, figure: "Figure", name: str, caption: str) -> None:
        """Add a figure, as PNG and SVG."""
        from mas_sim.plots import save_figure  # matplotlib is slow to import

        stem = f"{self.name}_{name}"
        folder = self.book.out / "figures"
        folder.mkdir(parents=True, exist_ok=True)
        save_figure(figure, folder / stem)
        self.book.files += [f"figures/{stem}.svg", f"figures/{stem}.png"]
        self._parts.append(f"![{caption}](figures/{stem}.png)\n\n*{caption}* ([SVG](figures/{stem}.svg))")

    def data(self, rows: Sequence[Mapping[str, Any]], columns: Sequence[str], name: str, what: str) -> None:
        """Write some columns of results to a CSV file, and name it on the page."""
        self.rows(columns, [[row[column] for column in columns] for row in rows], name, what, cases=True)

    def rows(
        self, head: Sequence[str], rows: Sequence[Sequence[Cell]], name: str, what: str, *, cases: bool = False
    ) -> None:
        """Write rows of numbers, not rounded, to a CSV file, and name it on the page.

        Parameters
        ----------
        cases
            Each row is of one case, the same whatever other rows there are: a part of the report has rows of the whole.
        """
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows([head, *rows])
        file = f"data/{self.name}_{name}.csv"
        self.book.write(file, text.getvalue())
        if cases:
            self.book.points.append(file)
        self._parts.append(f"{what}: [{file}]({file}), {len(rows):,} rows.")

    def compare(self, *verdicts: Verdict) -> None:
        """Add published figures beside ours."""
        self.verdicts += verdicts
        head = ("published figure", "where", "published", "mas_sim", "verdict", "why")
        self.table(head, [(v.claim.what, v.claim.where, v.claim.text, v.ours, v.judgement, v.why) for v in verdicts])

    def close(self) -> None:
        """Write the page."""
        found = "\n".join(f"- {one}" for one in self.findings)
        top = [f"# {self.title}", f"*{self.question}*", *([found] if found else [])]
        foot = "[Summary](README.md)"
        self.book.write(f"{self.name}.md", "\n\n".join([*top, *self._parts, foot]) + "\n")


@dataclass
class Book:
    """The report while it is written.

    Attributes
    ----------
    files
        Every file of it, by path in `out`.
    points
        Those whose rows are of one case each, whatever other rows there are.
    """

    out: Path
    pages: list[Page] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    points: list[str] = field(default_factory=list)

    def differences(self, whole: Path) -> list[str]:
        """Say what rows of points another report, of which this is a part, does not have, in words; none if none.

        Raises
        ------
        BookError
            If there is no such report.
        """
        found: list[str] = []
        for file in self.points:
            try:
                theirs = (whole / file).read_text(encoding="utf-8").splitlines()
            except OSError as error:
                raise BookError(f"{whole / file}: cannot be read: {error.strerror or error}") from error
            ours = (self.out / file).read_text(encoding="utf-8").splitlines()
            known = set(theirs[1:])
            missing = [row for row in ours[1:] if row not in known] if ours[0] == theirs[0] else ours[:1]
            found += [f"{file}: not in {whole}: {row}" for row in missing]
        return found

    def page(self, name: str, title: str, question: str) -> Page:
        """Begin a page."""
        self.pages.append(Page(self, name, title, question))
        return self.pages[-1]

    def write(self, file: str, text: str) -> None:
        """Write a file of text."""
        atomically(self.out / file, text.encode())
        self.files.append(file)

    def write_results(self, file: str, results: list[dict[str, Any]]) -> None:
        """Write results, one a line, their inputs once, as a file that `mas-sim run --from` reads."""
        shared = strict_json(share_inputs(results))
        parts = []
        for name, items in shared["shared_inputs"].items():
            parts.append(f'"{name}": {{\n{_lines((f"{json.dumps(key)}: ", item) for key, item in items.items())}\n}}')
        inputs = ",\n".join(parts)
        told = _lines(("", one) for one in shared["results"])
        self.write(file, f'{{"shared_inputs": {{\n{inputs}\n}},\n"results": [\n{told}\n]}}\n')

    def write_json(self, file: str, data: Any) -> None:
        """Write a file of JSON."""
        self.write(file, json.dumps(data, indent=1, allow_nan=False) + "\n")
