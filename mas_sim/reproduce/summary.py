"""The report's first page: every published figure beside ours, and what each page found; and blocks for the README."""

from mas_sim.reproduce.book import Book, Cell, markdown_table
from mas_sim.reproduce.claims import NEAR, SOURCES, Verdict, load_objections
from mas_sim.reproduce.data import SUBJECT, Data, geomean, ratios, values_of
from mas_sim.reproduce.networks import main_rows

HEADLINE = ("layer_wise", "flat", "tileflow", "flash", "fusemax")
"""Dataflows that the README compares `mas` with."""


def headline(book: Book, data: Data) -> None:
    """Write the README's table: speedups at the optima of latency, and energy saved at those of either objective."""
    rows: list[list[Cell]] = []
    points = {goal: main_rows(data, goal) for goal in ("latency", "energy")}
    cycles = values_of(points["latency"], "cycles")
    for flow in HEADLINE:
        found = list(ratios(cycles, flow, SUBJECT).values())
        ends = (geomean(found), min(found), max(found))
        rows.append([f"speedup of `mas` over `{flow}`", *(f"{value:.2f}x" for value in ends)])
    for goal, part in points.items():
        energy = values_of(part, "total_pj")
        for flow in HEADLINE:
            found = list(ratios(energy, SUBJECT, flow).values())
            ends = (1 - geomean(found), 1 - max(found), 1 - min(found))
            name = f"energy saved against `{flow}`, both at the optima of {goal}"
            rows.append([name, *(f"{100 * value:.1f} %" for value in ends)])
    machine = data.sweeps["paper_networks"].arch
    units = f"{machine.mac.rows} x {machine.mac.cols} MACs and {machine.vec.lanes} lanes each"
    memory = f"{machine.l1.capacity_kib / 1024:g} MiB, {machine.dram.bandwidth_gb_per_s:g} GB/s"
    head = f"on `{machine.name}` ({machine.cores} cores, {units}, {memory})"
    table = markdown_table([head, "geometric mean", "minimum", "maximum"], rows)
    book.write("blocks/headline.md", table + "\n")


def _counted(verdicts: list[Verdict]) -> str:
    """Say how many verdicts there are of each kind."""
    counts = {kind: sum(one.judgement == kind for one in verdicts) for kind in ("agrees", "differs", "not comparable")}
    return f"{counts['agrees']} agree, {counts['differs']} differ, {counts['not comparable']} are not comparable"


def summary(book: Book, quick: bool) -> None:
    """Write the first page, from the verdicts and findings of the others."""
    verdicts = [(page, verdict) for page in book.pages for verdict in page.verdicts]
    lines = [
        "# MAS-Attention, reproduced",
        "Published figures (arXiv 2411.17720v2, MLSys 2025, and two of STOF) beside those of mas_sim, agreeing or not. "
        "Every number is written by `mas-sim reproduce`; tables compare dataflows at their proven "
        "best tilings, over the space that each result names, and other pages say where they do not; nothing was tuned "
        "to agree.",
    ]
    if quick:
        lines.append("**This is the quick part: two networks, short sequences and the ends of the axes only.**")
    lines.append("## Published figures, and those of other simulators")
    lines.append(
        "\n".join(f"- {source}: {_counted([v for _, v in verdicts if v.claim.source == source])}" for source in SOURCES)
    )
    lines.append(
        f"A figure of ours agrees if it is within {100 * NEAR:g} % of the published one, or within its last digit."
    )
    rows: list[list[Cell]] = [
        [v.claim.what, v.claim.text, v.ours, v.judgement, f"{v.why} ([{page.name}]({page.name}.md))"]
        for page, v in verdicts
    ]
    lines.append(markdown_table(["published figure", "published", "mas_sim", "verdict", "why"], rows))
    short = [[v.claim.what, v.claim.text, v.ours, v.judgement] for _, v in verdicts]
    head = ["published figure", "published", "mas_sim", "verdict"]
    book.write("blocks/claims.md", markdown_table(head, short) + "\n")
    lines.append("## Objections of a review, and questions that the paper leaves open")
    answers: set[str] = set()
    for one in load_objections():
        found = [text for page in book.pages for text in page.answers.get(one.id, [])] or ["Not answered."]
        answers.update(found)
        lines += [f"**{one.what}** ([{one.section}]({one.section}.md))", "\n".join(f"- {text}" for text in found)]
    lines.append("## What else was found")
    for page in book.pages:
        others = [text for text in page.findings if text not in answers]
        lines.append(f"**[{page.title}]({page.name}.md).** *{page.question}*")
        lines += ["\n".join(f"- {text}" for text in others)] if others else []
    lines.append("## Files")
    lines.append(
        "Pages link their figures (`figures/`, PNG and SVG) and tables of every number (`data/`, CSV). `results/` "
        "holds the result of every point of every sweep, with its inputs: `mas-sim run --from "
        "reports/results/latency.json --pick bert_base/mas --figure timeline.svg` builds the schedule behind a cell "
        "again, audits, executes and draws it; each page says how for its own. `settings.json` names the model, the "
        "sweeps and their inputs. `mas-sim reproduce` remakes all of it, and leaves its store, `results.sqlite`, for "
        "`mas-sim results reports --sweep NAME`."
    )
    book.write("README.md", "\n\n".join(lines) + "\n")
