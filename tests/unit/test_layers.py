"""Whether imports point one way, from higher layers to lower ones."""

import ast
from pathlib import Path

import pytest

from mas_sim._model_version import sources

ROOT = Path(__file__).parents[2]

LAYERS = """
_jit errors _hf_families
yaml_source
config _json_source
energy_table _arch_units
arch workload
presets tiling _hf_reader
_hf_model
hf_config
schedule
costs
kind_costs dataflows._numbers
dataflows._slots
dataflows._plan
dataflows._emission
dataflows._window
dataflows._blocks
dataflows._online
dataflows.flat dataflows.layer_wise dataflows.mas dataflows.soft_pipe dataflows.tileflow
dataflows.flash dataflows.fusemax
dataflows._dispatch
dataflows
_kernels timeline results
meter _tally
_work simulator reference bounds energy fusemax_forms
geometry
overwrites access_rules
accesses malformed
hazards completeness occupancy _execute_machine
_execute_products _execute_softmax
execute
audit _legal trace waits
_batch _trace_facts
report search.base trace_events
search.objective search.candidates perfetto
search.space
search.joint
search.evaluator
search.searcher search.exhaustive search.pareto
search.random_search search.genetic search.mcts search.optuna_adapter
search
comparison limits
crossover
_model_version _constraints _sweep_axes
sweep_point
_sweep_fields
_sweep_plan
_sweep_reader
sweep_file _store_file results_frame
store
_engines
sweep
_table_parts _search_outcome _plot_files
tables _compare_tables plots._style
plots._labels
plots._frames plots._lanes
plots.bars plots.crossover plots.heatmap plots.ratio plots.roofline plots.search plots.spread plots.sweep
plots.timeline plots.tornado plots.winners
plots
reproduce.claims
reproduce.book reproduce.data
reproduce.networks reproduce.behind reproduce.overwriting
reproduce.assumptions
reproduce.memory reproduce.bands reproduce.regimes reproduce.sensitivity reproduce.masks
reproduce.questions reproduce.objectives reproduce.searching reproduce.summary
reproduce
_search_tables
_sweep_tables _cli_plot_frames
_cli_options
_cli_workload _cli_search _cli_rerun _cli_plot_parts _cli_sweep _cli_reproduce
_cli_run _cli_plot_sweeps
_cli_trace _cli_plot
cli
__init__
"""
"""Lowest first; a module may import those of lower lines only, so those of one line are independent of each other."""

RANK = {
    f"mas_sim.{name}".removesuffix(".__init__"): rank
    for rank, line in enumerate(LAYERS.split("\n"))
    for name in line.split()
}
FILES = {
    ".".join((prefix, *path.relative_to(ROOT / folder).with_suffix("").parts)).removesuffix(".__init__"): path
    for prefix, folder in (("mas_sim", "mas_sim"), ("mas_sim.search", "search"))
    for path in (ROOT / folder).rglob("*.py")
}


def imports_of(module: str) -> set[str]:
    """Modules that a module names in any import, also inside functions and for types only."""
    found = set()
    for node in ast.walk(ast.parse(FILES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            found |= {full if full in FILES else str(node.module) for full in names.values()}
    return found


def reached_from(module: str) -> set[str]:
    """Our modules that a module needs, directly or not, with their packages; but not the whole of `mas_sim`."""
    reached, waiting = set(), [module]
    while waiting:
        current = waiting.pop()
        if current in FILES and current not in reached and current != "mas_sim":
            reached.add(current)
            waiting += [*imports_of(current), current.rpartition(".")[0]]
    return reached


def test_is_every_module_in_exactly_one_layer() -> None:
    assert len(RANK) == len(LAYERS.split())
    assert sorted(RANK) == sorted(FILES)


@pytest.mark.parametrize("module", sorted(FILES))
def test_does_a_module_import_lower_layers_only(module: str) -> None:
    ours = {name for name in imports_of(module) if name.partition(".")[0] == "mas_sim"}
    assert not [name for name in sorted(ours) if RANK.get(name, len(RANK)) >= RANK[module]]


def test_does_the_kernel_import_numpy_and_numba_only() -> None:
    assert imports_of("mas_sim._kernels") <= {"numpy", "numpy.typing", "numba", "mas_sim._jit"}


def test_is_the_twin_independent_of_the_kernel() -> None:
    assert "mas_sim._kernels" in reached_from("mas_sim.simulator")
    assert "mas_sim._kernels" not in reached_from("mas_sim.reference")


def test_do_the_modules_of_plots_alone_import_matplotlib() -> None:
    drawing = {m for m in FILES if any(name.partition(".")[0] == "matplotlib" for name in imports_of(m))}
    assert drawing
    assert {m for m in drawing if not f"{m}.".startswith("mas_sim.plots.")} == set()


def test_does_the_version_of_the_model_cover_all_that_a_point_needs_and_no_more() -> None:
    needed = {name for name in reached_from("mas_sim.sweep_point") if name != "mas_sim"}
    assert needed == set(sources())
    assert {"mas_sim._kernels", "mas_sim.dataflows.mas", "mas_sim.search.mcts", "mas_sim.costs"} <= needed
    assert not {name for name in needed if name.startswith(("mas_sim.plots", "mas_sim.cli", "mas_sim.tables"))}
