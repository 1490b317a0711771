"""Does the report come out as it was landed, to the byte, and does every cell lead to a schedule?"""

import json
import re
from pathlib import Path

import pytest
from cli_runner import Run

from mas_sim import reproduce as package
from mas_sim.errors import MasSimError
from mas_sim.report import make_report
from mas_sim.reproduce import PARTS, reproduce, searching
from mas_sim.reproduce.book import Book, BookError, markdown_table
from mas_sim.reproduce.claims import Claim, judge, load_claims, load_objections, write
from mas_sim.results import load_result, result_names

ROOT = Path(__file__).parents[2]
LANDED = ROOT / "reports"
LINK = re.compile(r"\]\(([^)#]+)\)")


@pytest.fixture(scope="module")
def part(tmp_path_factory: pytest.TempPathFactory) -> Book:
    """A part of the report that takes seconds: one network, short sequences."""
    with pytest.MonkeyPatch.context() as patched:
        _make_small(patched)
        return reproduce(tmp_path_factory.mktemp("report"), quick=True)


def _make_small(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(package, "QUICK_WORKLOADS", ("vit_b_16",))
    patched.setattr(package, "QUICK_TOKENS", 512)
    patched.setattr(searching, "SEEDS", 1)


# --- Are the figures those of the report that was landed? ---


def test_are_its_figures_those_of_the_landed_report(part: Book) -> None:
    assert part.points
    assert part.differences(LANDED) == []


def test_does_a_changed_figure_show(part: Book, tmp_path: Path) -> None:
    for file in part.points:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text((part.out / file).read_text())
    assert part.differences(tmp_path) == []
    changed = tmp_path / "data" / "tables_latency.csv"
    changed.write_text(changed.read_text().replace("vit_b_16,mas,", "vit_b_16,mas,1"))
    assert len(part.differences(tmp_path)) == 1
    changed.unlink()
    with pytest.raises(BookError, match="cannot be read"):
        part.differences(tmp_path)


def test_does_the_same_command_give_the_same_bytes(part: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    _make_small(monkeypatch)
    before = {file: (part.out / file).read_bytes() for file in part.files}
    again = reproduce(part.out, quick=True, only=["sensitivity", "preemption", "tables", "regimes"])
    assert {file: (part.out / file).read_bytes() for file in again.files} == {
        file: before[file] for file in again.files
    }
    assert len(again.files) > 20


def test_is_the_readme_filled_from_the_landed_report() -> None:
    import runpy

    fill = runpy.run_path(str(ROOT / "docs" / "fill.py"))["filled"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme.count("made by `mas-sim reproduce`") >= 1
    assert fill(readme) == readme
    headline = (LANDED / "blocks" / "headline.md").read_text(encoding="utf-8")
    assert headline in readme


# --- Is the landed report whole? ---


@pytest.mark.parametrize("folder", ["landed", "part"])
def test_does_every_page_lead_only_to_what_is_there(folder: str, part: Book) -> None:
    out = LANDED if folder == "landed" else part.out
    pages = sorted(out.glob("*.md"))
    assert {page.stem for page in pages} == {"README", *(one.name for one in PARTS)}
    for page in pages:
        for target in LINK.findall(page.read_text(encoding="utf-8")):
            assert (out / target).is_file(), f"{page.name}: {target}"


def test_has_every_figure_of_the_landed_report_both_forms() -> None:
    stems = {path.stem for path in (LANDED / "figures").iterdir()}
    assert stems
    assert {path.name for path in (LANDED / "figures").iterdir()} == {f"{s}.{k}" for s in stems for k in ("png", "svg")}


def test_is_there_no_file_that_no_page_speaks_of() -> None:
    told = "".join(page.read_text(encoding="utf-8") for page in LANDED.glob("*.md"))
    files = [f"{path.parent.name}/{path.name}" for path in LANDED.glob("*/*") if path.parent.name != "blocks"]
    assert len(files) > 100
    assert [file for file in files if file not in told] == []


def test_has_every_objection_and_question_an_answer_on_the_first_page() -> None:
    summary = (LANDED / "README.md").read_text(encoding="utf-8")
    assert "Not answered" not in summary
    for one in load_objections():
        head = f"**{one.what}** ([{one.section}]({one.section}.md))\n\n- "
        answer = summary.partition(head)[2].partition("\n")[0]
        assert len(answer) > 40, one.id
        assert answer in (LANDED / f"{one.section}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["l1_size", "paper_hardware", "preemption", "search_quality"])
def test_does_a_point_of_any_sweep_lead_to_its_schedule(name: str) -> None:
    file = LANDED / "results" / f"{name}.json"
    results = json.loads(file.read_text())["results"]
    at = len(results) // 3
    stored = load_result(file, result_names(results)[at])
    report = make_report(stored.dataflow, stored.arch, stored.workload, stored.tiling, check=False)
    assert (report.cycles, report.energy.total) == (stored.cycles, stored.energy_pj)
    assert (stored.cycles, stored.dataflow) == (results[at]["cycles"], results[at]["dataflow"])


def test_is_every_published_figure_compared_with_a_reason() -> None:
    summary = (LANDED / "README.md").read_text(encoding="utf-8")
    for claim in load_claims().values():
        row = next(line for line in summary.splitlines() if line.startswith(f"| {claim.what} |"))
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert cells[1] == claim.text
        assert cells[3] in ("agrees", "differs", "not comparable")
        assert len(cells[4]) > 20
        assert claim.what in (LANDED / f"{claim.section}.md").read_text(encoding="utf-8")


def test_do_the_landed_settings_name_what_made_it() -> None:
    settings = json.loads((LANDED / "settings.json").read_text())
    assert settings["command"] == "mas-sim reproduce"
    assert {name for one in PARTS for name in one.sweeps} == set(settings["sweeps"])
    assert sum(one["points"] for one in settings["sweeps"].values()) > 1500


@pytest.mark.parametrize(("goal", "pick"), [("latency", "t5_mini/mas"), ("energy", "vit_b_16/flash")])
def test_does_a_cell_lead_to_its_schedule(goal: str, pick: str) -> None:
    file = LANDED / "results" / f"{goal}.json"
    stored = load_result(file, pick)
    report = make_report(stored.dataflow, stored.arch, stored.workload, stored.tiling)
    assert (report.cycles, report.energy.total) == (stored.cycles, stored.energy_pj)
    assert report.audit is not None
    assert report.audit.ok
    assert report.execution is not None
    table = (LANDED / "tables.md").read_text(encoding="utf-8")
    assert f"{report.cycles:,}" in table if goal == "latency" else f"{report.energy.total / 1e6:,.0f}" in table


# --- Are verdicts what they say? ---


@pytest.mark.parametrize(
    ("low", "high", "digits", "ours", "agrees"),
    [
        (2.75, 2.75, 0.01, 2.75, True), (2.75, 2.75, 0.01, 2.62, True), (2.75, 2.75, 0.01, 2.6, False),
        (1.3, 1.76, 0.01, 1.5, True), (1.3, 1.76, 0.01, 1.2, False), (1.3, 1.76, 0.01, 1.84, True),
        (0.0002, 0.0002, 0.0001, 0.0003, True), (0.0002, 0.0002, 0.0001, 0.001, False), (2, 12, 1, 0, False),
    ],
)  # fmt: skip
def test_does_a_figure_agree_as_far_as_its_digits_go(
    low: float, high: float, digits: float, ours: float, agrees: bool
) -> None:
    facts = {"id": "x", "section": "s", "what": "w", "where": "t", "unit": "times"}
    claim = Claim(low=low, high=high, digits=digits, **facts)  # type: ignore[arg-type]
    verdict = judge(claim, ours, "because", "so it does")
    assert (verdict.judgement, verdict.why) == (("agrees", "so it does") if agrees else ("differs", "because"))


def test_are_figures_written_with_their_units() -> None:
    assert [write(2.75, "times"), write(0.1855, "share"), write(1e6, "tokens")] == ["2.75x", "18.55 %", "1,000,000"]


def test_is_a_table_markdown() -> None:
    table = markdown_table(["a", "b"], [["x", 1234], [None, float("nan")]])
    assert table == "| a | b |\n| --- | ---: |\n| x | 1,234 |\n| - | - |"


# --- Does the command say what is wrong, and end as it should? ---


def test_is_an_unknown_page_refused(mas_sim: Run, tmp_path: Path) -> None:
    with pytest.raises(MasSimError, match="did you mean 'tables'"):
        reproduce(tmp_path / "r", only=["tabels"])
    done = mas_sim("reproduce", "--out", tmp_path / "r", "--page", "tabels")
    assert done.returncode == 2
    assert "did you mean 'tables'" in done.stderr
    assert not (tmp_path / "r").exists()


def test_does_one_page_alone_come_out_of_the_command(mas_sim: Run, tmp_path: Path) -> None:
    out = tmp_path / "r"
    done = mas_sim("reproduce", "--quick", "--out", out, "--page", "limits", "--jobs", 1, "--against", LANDED)
    assert done.returncode == 0, done.stderr
    assert "differs" in done.stdout
    assert (out / "limits.md").is_file()
    assert not (out / "README.md").exists()
