"""Are tables of numbers cut where the terminal ends, and nowhere else?"""

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console, Group

from mas_sim._table_parts import MAX_COLUMNS, columns_per_table, number_tables, percent, spaces_in_words


def printed(*tables: object) -> str:
    """Print tables as the commands do."""
    out = io.StringIO()
    Console(file=out, width=MAX_COLUMNS, markup=False, emoji=False, highlight=False).print(Group(*tables))  # type: ignore[arg-type]
    return out.getvalue()


@given(widths=st.lists(st.integers(1, 120), min_size=1, max_size=12), room=st.integers(10, 100))
@settings(derandomize=True, deadline=None)
def test_has_every_table_room_for_its_columns(widths: list[int], room: int) -> None:
    counts = columns_per_table(widths, room)
    assert sum(counts) == len(widths)
    at = 0
    for count in counts:
        part = widths[at : at + count]
        assert count == 1 or (count > 1 and sum(part) + 3 * count <= room)
        at += count


def test_are_columns_shared_out_evenly() -> None:
    assert columns_per_table([10] * 7, 91) == [7]
    assert columns_per_table([10] * 7, 90) == [3, 4]
    assert columns_per_table([40, 1, 1, 1], 48) == [2, 2]
    assert columns_per_table([1, 1, 1, 40], 46) == [3, 1]


@given(
    cells=st.lists(st.integers(0, 10**14), min_size=1, max_size=9),
    name=st.text("abc_0", min_size=1, max_size=60),
)
@settings(derandomize=True, deadline=None)
def test_is_no_number_cut_or_folded(cells: list[int], name: str) -> None:
    heads = [f"column_{k}" for k in range(len(cells))]
    numbers = [f"{cell:,}" for cell in cells]
    text = printed(*number_tables("Title", ["network"], heads, [([name], numbers)], caption="Caption."))
    assert max(map(len, text.splitlines())) <= MAX_COLUMNS
    words = text.split()
    assert all(word in words for word in (*numbers, *heads))
    assert text.count("Caption.") == 1


def test_is_markup_in_a_cell_printed_as_it_stands() -> None:
    text = printed(*number_tables("[red]", ["[b]"], ["[/b]"], [(["[i]"], [":smile:"])]))
    assert all(word in text for word in ("[red]", "[b]", "[/b]", "[i]", ":smile:"))


@pytest.mark.parametrize(("share", "text"), [(0.1234, "12.3 %"), (-0.0001, "0.0 %"), (-0.051, "-5.1 %")])
def test_are_shares_written_in_per_cent(share: float, text: str) -> None:
    assert percent(share) == text


def test_are_spaces_described_by_what_they_share_and_what_they_do_not() -> None:
    assert spaces_in_words({"a": "q 1; ring 2", "b": "q 1; ring 3; P"}) == "q 1; a: ring 2; b: ring 3, P"
