"""Is the balance of MAC and VEC that of the dataflow shown, and do the tables that compare dataflows say it?"""

import math

import pytest
from builders import small_arch, small_workload

from mas_sim._compare_tables import checks_words
from mas_sim._table_parts import balance_words
from mas_sim.costs import FORM_TILES, S_LANE_CYCLES, S_WRITES, pack_softmax
from mas_sim.dataflows import DATAFLOWS
from mas_sim.errors import ScheduleError, TilingError
from mas_sim.report import ExpBalance, exp_balance, make_report
from mas_sim.tiling import Tiling

ARCH, WORKLOAD = small_arch(), small_workload()
WHOLE = ("layer_wise", "soft_pipe", "flat", "mas")
TILING = Tiling(q_tile=16, kv_tile=16)


def test_do_dataflows_over_whole_rows_have_one_balance_and_online_ones_a_better() -> None:
    """Online softmax leaves the division to the output, so VEC spends less on a score."""
    by_flow = {name: exp_balance(ARCH, WORKLOAD, name) for name in DATAFLOWS}
    assert {by_flow[name] for name in WHOLE} == {exp_balance(ARCH, WORKLOAD)}
    assert by_flow["flash"] == by_flow["fusemax"]
    assert by_flow["flash"].available_per_cycle > by_flow["flat"].available_per_cycle
    assert len({balance.needed_per_cycle for balance in by_flow.values()}) == 1


PASSES = (
    [["max"], ["subtract", "exp", "sum", "divide"]],
    [["max", "subtract", "exp", "sum"], ["divide"]],
)


@pytest.mark.parametrize("passes", PASSES)
def test_is_the_balance_of_tiles_that_of_the_passes_they_need(passes: list[list[str]]) -> None:
    """A pass is cut where it needs what the whole row gives; each piece reads the scores again."""
    arch = small_arch(**{"vec.softmax_passes": passes})
    cycles = 0.0
    for row in pack_softmax(arch, FORM_TILES).tolist():
        port = (1 + row[S_WRITES]) * WORKLOAD.bytes_per_element / arch.vec.l1_port_bytes_per_cycle
        cycles += max(row[S_LANE_CYCLES] / arch.vec.lanes, port if arch.mac_vec_path.kind == "l1" else 0.0)
    assert exp_balance(arch, WORKLOAD, "tileflow").available_per_cycle == pytest.approx(1 / cycles)
    whole, tiles = (exp_balance(arch, WORKLOAD, name).available_per_cycle for name in ("flat", "tileflow"))
    assert tiles <= whole


def test_does_the_vector_unit_not_limit_exp_on_the_array() -> None:
    assert math.isinf(exp_balance(ARCH, WORKLOAD, "fusemax", "mac").available_per_cycle)
    with pytest.raises(TilingError, match="exp_on of flat must be vec"):
        exp_balance(ARCH, WORKLOAD, "flat", "mac")
    with pytest.raises(ScheduleError, match="did you mean 'flash'"):
        exp_balance(ARCH, WORKLOAD, "flsh")


@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_does_a_report_give_the_balance_of_its_own_dataflow(dataflow: str) -> None:
    report = make_report(dataflow, ARCH, WORKLOAD, TILING, check=False)
    assert report.as_dict()["exp_balance"] == exp_balance(ARCH, WORKLOAD, dataflow).as_dict()


def rate(balance: ExpBalance) -> str:
    return f"{balance.available_per_cycle:.3g}"


def test_does_one_line_tell_shapes_forms_and_types_apart() -> None:
    other = WORKLOAD.with_(head_dim_v=WORKLOAD.head_dim_qk * 2)
    e = WORKLOAD.head_dim_qk
    runs = [(w, name, "vec") for w in (WORKLOAD, other) for name in ("flat", "mas", "flash")]
    words = balance_words(ARCH, [*runs, (WORKLOAD, "fusemax", "mac")])
    first, second = words.removeprefix("exp balance in scores a cycle: ").split("; ")
    rows, online = (rate(exp_balance(ARCH, WORKLOAD, name)) for name in ("flat", "flash"))
    needed = f"{exp_balance(ARCH, WORKLOAD).needed_per_cycle:.3g}"
    gives = f"{rows} (full rows), {online} (online), no limit (exp on MAC)"
    assert first == f"E = F = {e} needs {needed} to keep MAC busy, VEC gives {gives}"
    assert second.startswith(f"E = {e}, F = {2 * e} needs ")
    assert second.endswith(f"{rows} (full rows), {online} (online)")
    types = balance_words(ARCH, [(WORKLOAD, "flat", "vec"), (WORKLOAD.with_(dtype="fp16"), "flat", "vec")])
    assert f"E = F = {e} {WORKLOAD.dtype} needs" in types
    assert f"E = F = {e} fp16 needs" in types


def test_does_the_line_of_checks_count_what_was_checked() -> None:
    checked = [make_report(name, ARCH, WORKLOAD, TILING) for name in ("flat", "mas")]
    worst = max(one.execution.max_abs_error for one in checked if one.execution is not None)
    assert checks_words(checked) == f"audited and executed: 2 of 2 legal, largest error {worst:.1e}"
    mixed = [checked[0], make_report("mas", ARCH, WORKLOAD, TILING, check=False)]
    assert checks_words(mixed).startswith("audited: 1 of 2 legal; executed: 1 of 2, largest error ")
