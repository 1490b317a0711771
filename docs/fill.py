"""Fill the tables that `mas-sim reproduce` makes into the README: `python docs/fill.py`, after a new report."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"(<!-- made by `mas-sim reproduce`: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(text: str) -> str:
    """Return a page with every marked block as the report has it."""

    def block(match: re.Match[str]) -> str:
        made = (ROOT / "reports" / "blocks" / f"{match[2]}.md").read_text(encoding="utf-8")
        return f"{match[1]}{made}{match[3]}"

    return BLOCK.sub(block, text)


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(filled(readme.read_text(encoding="utf-8")), encoding="utf-8")
