"""What all tables share: plain text throughout, shares in per cent, and tables of numbers cut to the terminal's width.

Whatever a file may have named is printed as `Text`, never as markup.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from mas_sim.arch import Arch
from mas_sim.costs import FORM_ONLINE, FORM_ROWS, FORM_TILES
from mas_sim.dataflows import get_dataflow
from mas_sim.report import exp_balance
from mas_sim.workload import Workload

MAX_COLUMNS = 100
"""Columns of the terminal that a table may take."""

MAX_NAME_COLUMNS = 24
"""Columns kept for a name in front of the numbers; a longer one is folded."""

_PADDING, _MARGIN = 3, 2  # of each column, with what parts it from the next, and of the table


def plain_table(title: str, caption: str = "") -> Table:
    """Make an empty table; its title and caption are plain text."""
    return Table(
        title=Text(title, style="table.title"), caption=Text(caption, style="table.caption") if caption else None,
        box=box.SIMPLE_HEAD, title_justify="left", caption_justify="left",
    )  # fmt: skip


def percent(share: float) -> str:
    """Write a share in per cent, with one decimal."""
    return f"{round(100 * share, 1) + 0.0:.1f} %"  # the sum makes -0.0 a 0.0


def spaces_in_words(spaces: dict[str, str]) -> str:
    """Describe several spaces: what they have in common, then what each has beside it."""
    clauses = {name: space.split("; ") for name, space in spaces.items()}
    common = [clause for clause in next(iter(clauses.values())) if all(clause in own for own in clauses.values())]
    rest = {name: [clause for clause in own if clause not in common] for name, own in clauses.items()}
    return "; ".join([*common, *(f"{name}: {', '.join(own)}" for name, own in rest.items() if own)])


_FORMS = {FORM_ROWS: "full rows", FORM_TILES: "tiles of rows", FORM_ONLINE: "online"}


def balance_words(arch: Arch, runs: Iterable[tuple[Workload, str, str]]) -> str:
    """Say whether the vector unit keeps up with the MAC unit, by head dimension and by form of softmax.

    Parameters
    ----------
    runs
        Workload, dataflow and the unit of its exp (`vec` or `mac`) of each run; those that have all in common are one.

    Returns
    -------
    str
        One line, however long; rates are per core.
    """
    runs = list(runs)
    several_types = len({workload.dtype for workload, _, _ in runs}) > 1
    needed: dict[str, str] = {}
    given: dict[str, dict[str, dict[str, None]]] = {}  # of each shape, by what VEC gives: the forms
    for workload, dataflow, exp_on in runs:
        balance = exp_balance(arch, workload, dataflow, exp_on)
        qk, v = workload.head_dim_qk, workload.head_dim_v
        shape = (f"E = F = {qk}" if qk == v else f"E = {qk}, F = {v}") + f" {workload.dtype}" * several_types
        needed[shape] = f"{balance.needed_per_cycle:.3g}"
        on_mac = exp_on == "mac"
        gives = "no limit" if on_mac else f"{balance.available_per_cycle:.3g}"
        form = "exp on MAC" if on_mac else _FORMS[get_dataflow(dataflow).form]
        given.setdefault(shape, {}).setdefault(gives, {})[form] = None
    parts = []
    for shape, rates in given.items():
        words = ", ".join(f"{rate} ({', '.join(forms)})" for rate, forms in rates.items())
        parts.append(f"{shape} needs {needed[shape]} to keep MAC busy, VEC gives {words}")
    return f"exp balance in scores a cycle: {'; '.join(parts)}"


def columns_per_table(widths: Sequence[int], room: int) -> list[int]:
    """Cut columns into as few tables as their widths need, of about as many columns each.

    Parameters
    ----------
    widths
        Characters of the widest cell of each column.
    room
        Characters that the columns of one table may take, with their padding.

    Returns
    -------
    list of int
        Columns of each table; at least one, however wide it is.
    """
    tables, used = 1, 0
    for width in widths:
        if used and used + width + _PADDING > room:
            tables, used = tables + 1, 0
        used += width + _PADDING
    even = [len(widths) * (k + 1) // tables - len(widths) * k // tables for k in range(tables)]
    ends = [sum(even[: k + 1]) for k in range(tables)]
    parts = [widths[end - count : end] for count, end in zip(even, ends, strict=True)]
    if all(len(part) <= 1 or sum(part) + _PADDING * len(part) <= room for part in parts):
        return even
    counts, used = [0], 0
    for width in widths:
        if counts[-1] and used + width + _PADDING > room:
            counts.append(0)
            used = 0
        counts[-1], used = counts[-1] + 1, used + width + _PADDING
    return counts


def number_tables(
    title: str,
    lead: Sequence[str],
    columns: Sequence[str],
    rows: Sequence[tuple[Sequence[str], Sequence[str]]],
    *,
    caption: str = "",
    sections: Collection[int] = (),
    lead_right: bool = False,
) -> list[Table]:
    """Make a table of numbers, or several if it would be too wide: a number is never folded or cut.

    Parameters
    ----------
    lead, columns
        Heads of the columns that every one of the tables begins with, and of those that they share out.
    rows
        Cells of each row, under `lead` and under `columns`; a cell may have several lines.
    sections
        Rows behind which a line is drawn.
    lead_right
        Whether the leading columns hold numbers too: then they are not folded.
    """
    heads = [max(_width(row[0][k]) for row in [(lead, ()), *rows]) for k in range(len(lead))]
    heads = heads if lead_right else [min(width, MAX_NAME_COLUMNS) for width in heads]
    widths = [max(_width(row[1][k]) for row in [((), columns), *rows]) for k in range(len(columns))]
    room = MAX_COLUMNS - _MARGIN - sum(width + _PADDING for width in heads)
    tables, at = [], 0
    for count in columns_per_table(widths, room):
        last = at + count == len(columns)
        table = plain_table(f"{title}, continued" if at else title, caption if last else "")
        for name in lead:
            justify, overflow = ("right", "ellipsis") if lead_right else ("left", "fold")
            table.add_column(Text(name), justify=justify, overflow=overflow, no_wrap=lead_right)  # type: ignore[arg-type]
        for name in columns[at : at + count]:
            table.add_column(Text(name), justify="right", no_wrap=True)
        for place, (first, rest) in enumerate(rows):
            cells = (*first, *rest[at : at + count])
            table.add_row(*map(Text, cells), end_section=place in sections)
        tables.append(table)
        at += count
    return tables


def _width(cell: str) -> int:
    """Characters of a cell's longest line."""
    return max(map(len, cell.split("\n")))


def strict_json(value: Any) -> Any:
    """Return plain data as strict JSON has it: a number that it has no word for becomes null."""
    if isinstance(value, dict):
        return {key: strict_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
