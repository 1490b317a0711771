"""Do the bars stand for the energies and cycles that they were given, and can each be read?"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from figure_facts import assert_legible, legend_of, saved_bytes, texts_of
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from mas_sim.arch import load_arch
from mas_sim.comparison import compare
from mas_sim.dataflows import DATAFLOWS
from mas_sim.errors import ConfigError
from mas_sim.plots import energy_figure, time_figure
from mas_sim.plots._style import FLOW_LOOKS, flow_fills, flow_lines
from mas_sim.plots.bars import COMPONENTS
from mas_sim.workload import Workload

NETWORKS = [
    "bert_base", "bert_large", "bert_small", "llama3_8b", "t5_mini", "vit_b_14", "vit_l_14", "vit_h_14", "vit_b_16",
    "vit_l_16", "vit_h_16", "xlm",
]  # fmt: skip
FLOWS = ["layer_wise", "soft_pipe", "flat", "tileflow", "flash", "fusemax", "mas"]


def row(workload: str, dataflow: str, cycles: int = 100, scale: float = 1.0) -> dict[str, Any]:
    """Make the row of a result: its components are 1, 2, ... uJ times a scale."""
    energy = {f"{part}_pj": scale * 1e6 * (k + 1) for k, part in enumerate(COMPONENTS)}
    return {"workload": workload, "dataflow": dataflow, "cycles": cycles, "lower_cycles": cycles // 2, **energy}


ROWS = [
    row("bert", "flat", 400, 2.0), row("bert", "mas", 200, 1.0),
    row("xlm", "flat", 100, 1.0), row("xlm", "mas", 200, 3.0),
]  # fmt: skip


def bars_of(figure: Figure) -> dict[str, list[tuple[float, float, float]]]:
    """Return middle, foot and height of the bars of each kind."""
    found: dict[str, list[tuple[float, float, float]]] = {}
    for axes in figure.axes:
        for container in axes.containers:
            kind = str(container.get_label()).removeprefix("_")
            for bar in container:
                assert isinstance(bar, Rectangle)
                place = (bar.get_x() + bar.get_width() / 2, bar.get_y(), bar.get_height())
                found.setdefault(kind, []).append(place)
    return found


def many(drop: tuple[str, str] | None = None) -> list[dict[str, Any]]:
    """Make the rows of every network and dataflow, but one."""
    return [
        row(name, flow, 1000 - 100 * k + 10 * i, 7.0 - k)
        for i, name in enumerate(NETWORKS)
        for k, flow in enumerate(FLOWS)
        if (name, flow) != drop
    ]


# --- energy ---


def test_are_components_stacked_from_dram_to_leakage() -> None:
    bars = bars_of(energy_figure(ROWS))
    assert list(bars) == list(COMPONENTS)
    for k, part in enumerate(COMPONENTS):
        np.testing.assert_allclose([height for _, _, height in bars[part]], np.array([2, 1, 1, 3]) * (k + 1))
        np.testing.assert_allclose([foot for _, foot, _ in bars[part]], np.array([2, 1, 1, 3]) * sum(range(k + 1)))
    assert [f"{value:.0f}" for value in (42, 21, 21, 63)] == [
        text.split(".")[0] for text in values(energy_figure(ROWS))
    ]


def values(figure: Figure) -> list[str]:
    """Return what is written over the bars."""
    return texts_of(figure, "value")


def test_is_the_baseline_one_in_each_workload() -> None:
    figure = energy_figure(ROWS, baseline="flat")
    assert values(figure) == ["1.00", "0.500", "1.00", "3.00"]
    assert figure.axes[0].get_ylabel() == "energy / flat"
    assert energy_figure(ROWS).axes[0].get_ylabel() == "energy (uJ)"


def test_are_the_bars_named_by_dataflow_and_workload_and_their_parts_by_the_legend() -> None:
    figure = energy_figure(ROWS, title="energy")
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == ["flat", "mas"] * 2
    assert texts_of(figure, "group") == ["bert", "xlm"]
    assert legend_of(figure) == ["DRAM", "L1", "L0", "MAC", "VEC", "leakage"]
    assert figure.get_suptitle() == "energy"


def test_does_a_cross_stand_for_what_does_not_fit() -> None:
    figure = energy_figure(ROWS[1:])
    assert texts_of(figure, "misfit") == ["×"]
    assert legend_of(figure)[-1] == "does not fit, or no result"
    apart = energy_figure(ROWS[1:], baseline="flat")  # of bert nothing can be compared with flat
    assert texts_of(apart, "misfit") == ["×"] * 2
    assert legend_of(apart)[-1] == "no result, or none of flat beside it"


def test_can_bars_be_told_apart_without_colour() -> None:
    for looks in ([(c, h) for _, c, h in COMPONENTS.values()], [FLOW_LOOKS[name][:2] for name in DATAFLOWS]):
        assert len(set(looks)) == len(looks)


def test_has_every_dataflow_one_look_in_whatever_company_and_no_stranger_takes_it() -> None:
    assert set(FLOW_LOOKS) >= set(DATAFLOWS)
    assert len({look[:3] for look in FLOW_LOOKS.values()}) == len(FLOW_LOOKS)
    for part in (0, 1, 2, 3):
        assert len({FLOW_LOOKS[name][part] for name in DATAFLOWS}) >= (5 if part == 1 else len(DATAFLOWS))
    for names in (["mas"], ["flat", "mine", "mas"], [*DATAFLOWS, "a", "b"], ["auto", *reversed(list(DATAFLOWS))]):
        fills, lines = flow_fills(names), flow_lines(names)
        assert list(fills) == list(lines) == names
        assert len({fill for name, fill in fills.items()}) == len(names)
        for name in names:
            if name in FLOW_LOOKS:
                assert fills[name] == FLOW_LOOKS[name][:2]
                assert lines[name]["marker"] == FLOW_LOOKS[name][2]
            elif len(names) < len(DATAFLOWS):
                assert fills[name][0] not in {FLOW_LOOKS[one][0] for one in names if one in FLOW_LOOKS}
                assert lines[name]["color"] not in {lines[one]["color"] for one in names if one in FLOW_LOOKS}


# --- time ---


def test_are_cycles_over_the_baselines_with_their_mean_at_the_right() -> None:
    figure = time_figure(ROWS)
    assert values(figure) == ["1.00", "0.500", "1.00", "2.00", "1.00", "1.00"]
    assert texts_of(figure, "group") == ["bert", "xlm", "geomean"]
    heights = [height for _, _, height in bars_of(figure)["mas"]]
    np.testing.assert_allclose(heights, [0.5, 2.0, 1.0])
    assert figure.axes[0].get_ylabel() == "cycles / flat"
    assert time_figure(ROWS, baseline="mas").axes[0].get_ylabel() == "cycles / mas"


def test_is_the_lower_bound_a_dash_on_its_bar() -> None:
    figure = time_figure(ROWS)
    dashes = [line for line in figure.axes[0].lines if line.get_gid() == "lower bound"]
    assert [float(np.asarray(line.get_ydata())[0]) for line in dashes] == [0.5, 0.25, 0.5, 1.0]
    middles = [float(np.mean(np.asarray(line.get_xdata()))) for line in dashes]
    bars = bars_of(figure)
    assert middles == pytest.approx(sorted(x for flow in bars.values() for x, _, _ in flow)[:4])
    assert legend_of(figure)[-1] == "lower bound"
    unbounded = [{key: value for key, value in one.items() if key != "lower_cycles"} for one in ROWS]
    assert legend_of(time_figure(unbounded)) == ["flat", "mas"]


def test_does_the_mean_leave_out_what_not_every_dataflow_can_run() -> None:
    figure = time_figure(many(drop=("llama3_8b", "flat")))
    header = texts_of(figure, "group")[-1].replace("\n", " ")
    assert header == "geomean of 11"
    assert texts_of(figure, "misfit") == ["×"]
    alone = time_figure([row("bert", "flat"), row("xlm", "mas")], baseline="flat")
    assert texts_of(alone, "group") == ["bert", "xlm"]  # no workload that both can run


def test_is_what_auto_chose_a_bar_of_its_own() -> None:
    chosen = {**row("bert", "mas", 150), "chosen_by": "auto"}
    figure = time_figure([*ROWS[:2], chosen])
    assert legend_of(figure)[:3] == ["flat", "mas", "auto"]
    assert values(figure) == ["1.00", "0.500", "0.375"]


# --- both ---


@pytest.mark.parametrize("rows", [many(), many(("xlm", "flash")), ROWS, ROWS[:1], ROWS[:2]], ids=len)
@pytest.mark.parametrize("make", [energy_figure, time_figure])
def test_is_every_size_of_figure_legible(rows: list[dict[str, Any]], make: Any) -> None:
    figure = make(rows, baseline=rows[0]["dataflow"])
    assert figure.get_figwidth() <= 7.2
    assert_legible(figure)


def test_do_many_networks_take_several_panels_of_bars_of_one_width() -> None:
    figure = energy_figure(many())
    assert len(figure.axes) == 2
    assert len({axes.get_xlim() for axes in figure.axes}) == 1
    assert sum(len(axes.get_xticks()) for axes in figure.axes) == 84


@pytest.mark.parametrize("make", [energy_figure, time_figure])
def test_do_the_same_numbers_give_the_same_bytes_also_from_a_frame(make: Any, tmp_path: Path) -> None:
    first = saved_bytes(make(ROWS), tmp_path, "one")
    assert saved_bytes(make(pd.DataFrame(ROWS)), tmp_path, "two") == first


def test_can_a_comparisons_frame_be_drawn_as_it_is() -> None:
    shape = Workload(name="small", heads=2, n_q=64, n_kv=64, head_dim_qk=32, head_dim_v=32, dtype="fp16")
    found = compare(load_arch("mas_edge"), [shape], ["flat", "mas"])
    for make, quantity in ((energy_figure, "energy"), (time_figure, "cycles")):
        figure = make(found.to_frame(), baseline="flat")
        ratio = found.energy_ratio("small", "flat") if quantity == "energy" else 1 / found.speedup("small", "flat")
        assert values(figure)[0] == "1.00"
        assert float(values(figure)[1]) == pytest.approx(ratio, abs=6e-4)


@pytest.mark.parametrize(
    ("rows", "baseline", "message"),
    [
        ([], None, "rows: must hold at least one row"),
        ([{"workload": "a", "data_flow": "flat"}], None, "must have a column 'dataflow'.*did you mean 'data_flow'"),
        (ROWS, "flta", r"baseline: must be one of flat, mas \(got 'flta'\); did you mean 'flat'"),
        ([*ROWS, ROWS[0]], None, "must hold each workload and dataflow once .*bert/flat"),
        (
            [row("a", "flat") | {"cycles": None, "dram_pj": -1.0}],
            None,
            r"rows\[0\]\.(cycles|dram_pj): must be a number",
        ),
        ([row("a", "flat") | {"cycles": "9", "dram_pj": float("nan")}], None, r"rows\[0\]\.(cycles|dram_pj): must be"),
    ],
)
@pytest.mark.parametrize("make", [energy_figure, time_figure])
def test_is_what_cannot_be_drawn_an_error_that_says_why(
    make: Any, rows: list[dict[str, Any]], baseline: str | None, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make(rows, baseline=baseline)
