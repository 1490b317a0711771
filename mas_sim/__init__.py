"""mas_sim: a cycle-approximate simulator and dataflow explorer for attention on edge NPUs.

    Arch + Workload + Tiling --dataflow--> Schedule --simulate--> Timeline --> Report

>>> import mas_sim
>>> arch, bert = mas_sim.load_arch("mas_edge"), mas_sim.load_workload("bert_base")
>>> report = mas_sim.evaluate("mas", arch, bert, mas_sim.Tiling(q_tile=128, kv_tile=128))
>>> report.audit.ok
True
"""

from pathlib import Path
from typing import TYPE_CHECKING

from mas_sim._jit import drop_stale_cache

# Before anything compiled is loaded: machine code of sources that have changed since must not be.
_HERE = Path(__file__).parent
drop_stale_cache([_HERE, _HERE / "dataflows"])

from mas_sim.arch import Arch, load_arch  # noqa: E402
from mas_sim.audit import audit  # noqa: E402
from mas_sim.comparison import Comparison, compare  # noqa: E402
from mas_sim.dataflows import DATAFLOWS, build_schedule  # noqa: E402
from mas_sim.errors import ConfigError, MasSimError, ScheduleError, TilingError  # noqa: E402
from mas_sim.execute import execute  # noqa: E402
from mas_sim.report import Report  # noqa: E402
from mas_sim.report import make_report as evaluate  # noqa: E402
from mas_sim.report import package_version as _version  # noqa: E402
from mas_sim.schedule import Schedule  # noqa: E402
from mas_sim.simulator import Timeline, simulate  # noqa: E402
from mas_sim.store import load_results  # noqa: E402
from mas_sim.sweep import run_sweep  # noqa: E402
from mas_sim.sweep_file import load_sweep  # noqa: E402
from mas_sim.tiling import Tiling  # noqa: E402
from mas_sim.workload import Workload, load_workload  # noqa: E402

if TYPE_CHECKING:
    from mas_sim.search import search as search
else:
    from mas_sim import search  # the package; calling it is calling its `search`

__version__ = _version()

__all__ = [
    "DATAFLOWS",
    "Arch",
    "Comparison",
    "ConfigError",
    "MasSimError",
    "Report",
    "Schedule",
    "ScheduleError",
    "Tiling",
    "TilingError",
    "Timeline",
    "Workload",
    "audit",
    "build_schedule",
    "compare",
    "evaluate",
    "execute",
    "load_arch",
    "load_results",
    "load_sweep",
    "load_workload",
    "run_sweep",
    "search",
    "simulate",
]
