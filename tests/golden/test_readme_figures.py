"""Are the figures in the README and docs/model.md what the main job gives?"""

from pathlib import Path

import pytest

from mas_sim.arch import load_arch
from mas_sim.sweep import MAIN_WORKLOADS, Comparison, Spread, compare
from mas_sim.workload import load_workload

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def main_job() -> Comparison:
    return compare(load_arch("mas_edge"), [load_workload(name) for name in MAIN_WORKLOADS])


def row(label: str, spread: Spread, times: bool) -> str:
    """A row of the README's table."""
    values = (spread.geomean, spread.min, spread.max)
    cells = [f"{value:.2f}x" if times else f"{100 * value:.1f} %" for value in values]
    return f"| {label} | {' | '.join(cells)} |"


@pytest.mark.parametrize("baseline", ["layer_wise", "flat"])
def test_does_the_readme_show_what_the_main_job_gives(main_job: Comparison, baseline: str) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert row(f"speedup of `mas` over `{baseline}`", main_job.speedup_spread(baseline), True) in readme
    assert row(f"energy `mas` saves against `{baseline}`", main_job.saving_spread(baseline), False) in readme


def test_does_the_model_page_show_the_same_beside_the_published_figures(main_job: Comparison) -> None:
    page = (ROOT / "docs" / "model.md").read_text(encoding="utf-8")
    speedup, saving = main_job.speedup_spread("flat"), main_job.saving_spread("flat")
    assert f"| speedup over FLAT, maximum | 2.75x | {speedup.max:.2f}x (t5_mini) |" in page
    assert f"| speedup over FLAT, geometric mean | not stated here | {speedup.geomean:.2f}x |" in page
    assert f"| energy saving over FLAT, maximum | 54 % | {100 * saving.max:.1f} % (vit_l_16;" in page
    assert f"| energy saving over FLAT, geometric mean | 18.6 % | {100 * saving.geomean:.1f} % |" in page
    three = [100 * (1 - main_job.energy_ratio(name, "flat")) for name in ("llama3_8b", "bert_base", "vit_b_16")]
    assert f"| 0.02 % / 2.0 % / 3.3 % | {' / '.join(f'{value:.1f} %' for value in three)} |" in page
