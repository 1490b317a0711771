"""Is overwrite only chosen where it is needed, refused where it cannot be, and worth what the report says?"""

from dataclasses import replace

import pytest

from mas_sim import Tiling, TilingError, build_schedule, evaluate, load_arch, load_workload, simulate
from mas_sim.dataflows import footprint

ARCH = load_arch("mas_edge")
WORKLOAD = load_workload("bert_base").with_(heads=2, kv_heads=2)
WHOLE = Tiling(q_tile=32, kv_tile=128, k_resident_tiles=4, v_resident_tiles=4, softmax_in_place=False)
ONCE = replace(WHOLE, q_buffers=1, k_buffers=1, v_buffers=1, o_buffers=1)


def test_does_auto_overwrite_nothing_on_a_machine_with_room_and_equal_none_to_the_cycle() -> None:
    auto = build_schedule("mas", ARCH, WORKLOAD, replace(WHOLE, overwrite="auto"))
    none = build_schedule("mas", ARCH, WORKLOAD, replace(WHOLE, overwrite="none"))
    assert auto.tiling.overwrite == "none"
    assert not auto.overwrites
    assert simulate(auto).cycles == simulate(none).cycles
    assert (auto.instructions == none.instructions).all()


def test_does_auto_overwrite_v_where_there_is_no_room_for_p() -> None:
    none, v = (footprint("mas", ARCH, WORKLOAD, replace(ONCE, overwrite=name)) for name in ("none", "v"))
    assert v.total_bytes < none.total_bytes
    cramped = ARCH.with_(**{"l1.capacity_kib": (none.total_bytes - 1024) / 1024})
    with pytest.raises(TilingError, match="does not fit L1 by 1,024 bytes"):
        build_schedule("mas", cramped, WORKLOAD, replace(ONCE, overwrite="none"))
    auto = build_schedule("mas", cramped, WORKLOAD, replace(ONCE, overwrite="auto"))
    assert auto.tiling.overwrite == "v"
    assert auto.overwrites
    assert auto.l1_peak_bytes <= cramped.l1.capacity_bytes


def test_does_the_report_say_what_overwrite_cost() -> None:
    report = evaluate("mas", ARCH, WORKLOAD, replace(ONCE, overwrite="v"))
    facts = report.as_dict()["overwrite"]
    # 16 row blocks a core. The first two softmaxes come before V is there; each of the others is followed by a load
    # of the two tiles that P covers, 32 KiB.
    assert facts["overwrites"] == 2 * 14
    assert facts["reloaded_bytes"] == facts["overwrites"] * 2 * 128 * 64 * 2
    assert facts["lost_mac_cycles"] == facts["redone_mac_cycles"]
    assert facts["energy_pj"] > facts["reloaded_bytes"] * 60
    plain = evaluate("mas", ARCH, WORKLOAD, replace(ONCE, overwrite="none"))
    assert plain.as_dict()["overwrite"] is None
    assert report.dram_bytes == plain.dram_bytes + facts["reloaded_bytes"]
    assert report.cycles > plain.cycles


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"overwrite": "w"}, "must be one of none, v, k, auto"),
        ({"overwrite": "v", "softmax_in_place": True}, "softmax_in_place false"),
        ({"overwrite": "v", "score_buffers": 3}, "score_buffers 2"),
        ({"overwrite": "v", "v_resident_tiles": 3}, "all 4 tiles of V resident"),
        ({"overwrite": "k", "q_tile": 128}, "larger than all tiles of K"),
    ],
)
def test_is_an_impossible_overwrite_refused_with_its_reason(changes: dict[str, object], message: str) -> None:
    with pytest.raises(TilingError, match=message):
        build_schedule("mas", ARCH, WORKLOAD, replace(WHOLE, **changes))  # type: ignore[arg-type]


def test_does_no_other_dataflow_overwrite() -> None:
    with pytest.raises(TilingError, match="only mas overwrites"):
        build_schedule("flat", ARCH, WORKLOAD, replace(WHOLE, overwrite="v"))
