"""Are the figures and formulas in the README and docs/model.md what the code gives?"""

import csv
from pathlib import Path

import pytest

from mas_sim.arch import load_arch
from mas_sim.bounds import closed_form_dram_bytes
from mas_sim.comparison import MAIN_WORKLOADS, Comparison, Spread, compare
from mas_sim.dataflows import DATAFLOWS
from mas_sim.reproduce.claims import load_claims
from mas_sim.tiling import Tiling
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
    saved = f"energy saved against `{baseline}`, both at the optima of latency"
    assert row(saved, main_job.saving_spread(baseline), False) in readme


def test_does_the_model_page_show_the_same_beside_the_published_figures(main_job: Comparison) -> None:
    page = (ROOT / "docs" / "model.md").read_text(encoding="utf-8")
    speedup, saving = main_job.speedup_spread("flat"), main_job.saving_spread("flat")
    assert f"| speedup over FLAT, maximum | 2.75x | {speedup.max:.2f}x (t5_mini) |" in page
    assert f"| speedup over FLAT, geometric mean | not stated here | {speedup.geomean:.2f}x |" in page
    assert f"| energy saving over FLAT, maximum | 54 % | {100 * saving.max:.1f} % (vit_l_16;" in page
    assert f"| energy saving over FLAT, geometric mean | 18.6 % | {100 * saving.geomean:.1f} % |" in page
    three = [100 * (1 - main_job.energy_ratio(name, "flat")) for name in ("llama3_8b", "bert_base", "vit_b_16")]
    assert f"| 0.02 % / 2.0 % / 3.3 % | {' / '.join(f'{value:.1f} %' for value in three)} |" in page


def test_are_the_cycles_by_way_of_normalising_those_of_the_report() -> None:
    with (ROOT / "reports" / "data" / "hardware_latency.csv").open() as file:
        points = list(csv.DictReader(file))
    cycles = {
        (one["workload"], "reciprocal" in one["vec.softmax_passes"], one["dataflow"]): int(one["cycles"])
        for one in points
    }
    page = (ROOT / "docs" / "model.md").read_text(encoding="utf-8")
    table = page.partition("| network | `--normalize` | mas | flash | fusemax | tileflow |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    assert len(rows) == 4
    for network, way, *told in rows:
        flows = ("mas", "flash", "fusemax", "tileflow")
        assert told == [f"{cycles[network, way.startswith('reciprocal'), flow]:,}" for flow in flows]


def test_are_the_figures_of_other_simulators_in_the_validation_page_those_of_the_report() -> None:
    page = (ROOT / "docs" / "validation.md").read_text(encoding="utf-8")
    page = page.partition("## Other simulators")[2].partition("\n## ")[0]
    summary = (ROOT / "reports" / "README.md").read_text(encoding="utf-8")
    for name, claim in load_claims().items():
        if name.startswith("peer_"):
            cells = next(line for line in summary.splitlines() if line.startswith(f"| {claim.what} |")).split(" | ")
            theirs, ours = (cell.split()[0] for cell in cells[1:3])
            for told in (told for told in (theirs, ours) if told != "-"):
                value, unit = float(told.rstrip("x").replace(",", "")), "x" if told.endswith("x") else ""
                written = {f"{value:,.{n}f}{unit}" for n in range(3)}
                assert any(one in page for one in written), (claim.what, told)


def dram_formulas() -> dict[str, str]:
    """The DRAM bytes of each dataflow, as the README's table states them: its last column, by the first one."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = readme.partition("| name | fuses |")[2].partition("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in table]
    return {cells[0]: cells[-1] for cells in rows}


def test_does_the_readme_list_every_dataflow() -> None:
    assert list(dram_formulas()) == list(DATAFLOWS)


@pytest.mark.parametrize("dataflow", DATAFLOWS)
@pytest.mark.parametrize("resident", [(0, 4), (1, 3), (4, 4)])
def test_are_the_dram_formulas_of_the_readme_those_of_the_code(dataflow: str, resident: tuple[int, int]) -> None:
    """BERT-Base in kv tiles of 128, four to a head, and in seven row blocks, the last one ragged."""
    w = load_workload("bert_base")
    for overlap in DATAFLOWS[dataflow].overlaps:
        n = 4 if overlap == "ping_pong" else 7
        k_share, v_share = (tiles / 4 for tiles in resident)
        values = {
            "Q": w.q_bytes, "O": w.o_bytes, "S": w.scores * w.bytes_per_element,
            "K'": w.k_bytes * (k_share + n * (1 - k_share)), "V'": w.v_bytes * (v_share + n * (1 - v_share)),
        }  # fmt: skip
        terms = [term.split(" ") for term in dram_formulas()[dataflow].split(" + ")]
        expected = sum(int(term[0] if len(term) > 1 else 1) * values[term[-1]] for term in terms)
        tiling = Tiling(
            q_tile=80, kv_tile=128, k_resident_tiles=resident[0], v_resident_tiles=resident[1], overlap=overlap
        )
        assert closed_form_dram_bytes(dataflow, w, tiling) == expected
