"""The report's first page: every published figure beside ours, and what each page found; and blocks for the README."""

from mas_sim.reproduce.book import Book, Cell, markdown_table
from mas_sim.reproduce.data import SUBJECT, Data, geomean, ratios, values_of
from mas_sim.reproduce.networks import main_rows

HEADLINE = ("layer_wise", "flat", "tileflow", "flash", "fusemax")
"""Dataflows that the README compares `mas` with."""


def headline(book: Book, data: Data) -> None:
    """Write the README's table: speedups, and energy saved, over the twelve networks at the optima of latency."""
    rows: list[list[Cell]] = []
    points = main_rows(data, "latency")
    cycles, energy = values_of(points, "cycles"), values_of(points, "total_pj")
    for flow in HEADLINE:
        found = list(ratios(cycles, flow, SUBJECT).values())
        ends = (geomean(found), min(found), max(found))
        rows.append([f"speedup of `mas` over `{flow}`", *(f"{value:.2f}x" for value in ends)])
    for flow in HEADLINE:
        found = list(ratios(energy, SUBJECT, flow).values())
        ends = (1 - geomean(found), 1 - max(found), 1 - min(found))
        rows.append([f"energy `mas` saves against `{flow}`", *(f"{100 * value:.1f} %" for value in ends)])
    machine = data.sweeps["paper_networks"].arch
    units = f"{machine.mac.rows} x {machine.mac.cols} MACs and {machine.vec.lanes} lanes each"
    memory = f"{machine.l1.capacity_kib / 1024:g} MiB, {machine.dram.bandwidth_gb_per_s:g} GB/s"
    head = f"on `{machine.name}` ({machine.cores} cores, {units}, {memory})"
    table = markdown_table([head, "geometric mean", "minimum", "maximum"], rows)
    book.write("blocks/headline.md", table + "\n")


def summary(book: Book, quick: bool) -> None:
    """Write the first page, from the verdicts and findings of the others."""
    verdicts = [(page, verdict) for page in book.pages for verdict in page.verdicts]
    counts = dict.fromkeys(("agrees", "differs", "not comparable"), 0)
    for _, verdict in verdicts:
        counts[verdict.judgement] += 1
    lines = [
        "# MAS-Attention, reproduced",
        "Published figures (arXiv 2411.17720v2, MLSys 2025) beside those of mas_sim, agreeing or not. Every number is "
        "written by `mas-sim reproduce`; every dataflow stands at its proven best tiling; nothing was tuned to agree.",
    ]
    if quick:
        lines.append("**This is the quick part: two networks, short sequences and the ends of the axes only.**")
    told = ", ".join(f"{count} {judgement}" for judgement, count in counts.items())
    lines.append(f"## Published figures: {told}")
    rows: list[list[Cell]] = [
        [v.claim.what, v.claim.text, v.ours, v.judgement, f"{v.why} ([{page.name}]({page.name}.md))"]
        for page, v in verdicts
    ]
    lines.append(markdown_table(["published figure", "published", "mas_sim", "verdict", "why"], rows))
    short = [[v.claim.what, v.claim.text, v.ours, v.judgement] for _, v in verdicts]
    head = ["MAS-Attention (arXiv 2411.17720v2)", "published", "mas_sim", "verdict"]
    book.write("blocks/claims.md", markdown_table(head, short) + "\n")
    lines.append("## What was found")
    for page in book.pages:
        lines.append(f"**[{page.title}]({page.name}.md).** *{page.question}*")
        lines += ["\n".join(f"- {one}" for one in page.findings)] if page.findings else []
    lines.append("## Files")
    lines.append(
        "Pages link their figures (`figures/`, PNG and SVG) and tables of every number (`data/`, CSV). `results/` "
        "holds the results of tables 2 and 3 themselves: `mas-sim run --from reports/results/latency.json "
        "--pick bert_base/mas` builds the schedule behind a cell again, audits and executes it. `settings.json` names "
        "the model, the sweeps and their inputs. `mas-sim reproduce` remakes all of it."
    )
    lines.append(
        "Any other cell: the command leaves its results in `reports/results.sqlite`. `mas-sim results reports "
        "--sweep l1_size --csv points.csv` lists every point of a sweep with its key, and `mas-sim results reports "
        "--key KEY > point.json` gives what `mas-sim run --from point.json --figure timeline.svg` builds, audits and "
        "draws."
    )
    book.write("README.md", "\n\n".join(lines) + "\n")
