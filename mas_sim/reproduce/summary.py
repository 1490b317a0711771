"""The report's first page: every published figure beside ours, and what each page found."""

from mas_sim.reproduce.book import Book, Cell, markdown_table


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
    book.write("README.md", "\n\n".join(lines) + "\n")
