"""Remake the golden file of the main job: `python tests/golden/remake.py`.

The file carries the configuration it was made under; `test_main_job.py` runs the same and compares.
"""

import json
from pathlib import Path
from typing import Any

from mas_sim import compare, load_arch, load_workload
from mas_sim.dataflows import DATAFLOWS

PATH = Path(__file__).with_name("main_job.json")
CONFIGURATION: dict[str, Any] = {
    "arch": "mas_edge",
    "workloads": ["t5_mini", "vit_b_16", "vit_h_16"],
    "dataflows": list(DATAFLOWS),
    "objective": "latency",
}
KEPT = (
    "workload",
    "dataflow",
    "cycles",
    "dram_read_bytes",
    "dram_write_bytes",
    "l1_peak_bytes",
    "instructions",
    "tiling",
    "proven_optimal",
)


def make() -> dict[str, Any]:
    """Run the configuration and keep what is compared."""
    workloads = [load_workload(name) for name in CONFIGURATION["workloads"]]
    result = compare(load_arch("mas_edge"), workloads, CONFIGURATION["dataflows"], "latency", check=True)
    rows = []
    for report in result.reports:
        data = report.as_dict()
        search = {name: data["search"][name] for name in ("space_size", "legal", "simulated", "pruned")}
        energy = {name: round(value, 1) for name, value in data["energy_pj"].items()}
        rows.append(
            {**{name: data[name] for name in KEPT}, "search": search, "energy_pj": energy, "audit": data["audit"]}
        )
    return {"remade_by": "python tests/golden/remake.py", "configuration": CONFIGURATION, "results": rows}


if __name__ == "__main__":
    PATH.write_text(json.dumps(make(), indent=1) + "\n")
