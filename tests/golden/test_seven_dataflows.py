"""Do the seven dataflows stand to each other as they should, on the networks of the golden file?

The figures are those of `main_job.json`, which `test_main_job.py` holds equal to what the code gives.
"""

import json
from typing import Any

import pytest
from remake import CONFIGURATION, PATH

from mas_sim.dataflows import DATAFLOWS

OVERLAPPING = ("tileflow", "flash", "fusemax", "mas")


@pytest.fixture(scope="module")
def kept() -> dict[tuple[str, str], dict[str, Any]]:
    """Results by network and dataflow."""
    return {(one["workload"], one["dataflow"]): one for one in json.loads(PATH.read_text())["results"]}


def test_is_every_dataflow_proven_and_legal_on_every_network(kept: dict[tuple[str, str], dict[str, Any]]) -> None:
    assert set(kept) == {(network, flow) for network in CONFIGURATION["workloads"] for flow in DATAFLOWS}
    for one in kept.values():
        assert one["proven_optimal"] is True
        assert one["audit"] == "ok"


@pytest.mark.parametrize("network", CONFIGURATION["workloads"])
def test_are_the_dataflows_that_overlap_all_alike(network: str, kept: dict[tuple[str, str], dict[str, Any]]) -> None:
    """Each at its best tiling keeps the MAC units busy, so their cycles differ by 3 per cent at most."""
    cycles = {flow: kept[network, flow]["cycles"] for flow in OVERLAPPING}
    assert max(cycles.values()) <= 1.03 * min(cycles.values()), cycles


@pytest.mark.parametrize("network", CONFIGURATION["workloads"])
def test_is_none_of_the_others_faster(network: str, kept: dict[tuple[str, str], dict[str, Any]]) -> None:
    fastest = min(kept[network, flow]["cycles"] for flow in OVERLAPPING)
    assert all(kept[network, flow]["cycles"] >= fastest for flow in DATAFLOWS)
