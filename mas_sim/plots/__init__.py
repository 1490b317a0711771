"""Figures of runs, comparisons, sweeps and searches; the only package that imports matplotlib.

Every figure has a function `X_figure(...)` that returns a matplotlib `Figure`, to be shown in a notebook, and either
`plot_X(..., path)`, which saves it, or `save_figure(figure, path)`, which saves any. Figures are made for print: 7.2
inches wide at most, in a palette that colour-blind readers can tell apart, and no meaning rests on colour alone.
"""

from matplotlib.figure import Figure as Figure

from mas_sim.plots._labels import axis_name as axis_name
from mas_sim.plots._labels import label_with as label_with
from mas_sim.plots._style import check_figure_path as check_figure_path
from mas_sim.plots._style import save_figure as save_figure
from mas_sim.plots.bars import energy_figure as energy_figure
from mas_sim.plots.bars import time_figure as time_figure
from mas_sim.plots.crossover import crossover_figure as crossover_figure
from mas_sim.plots.crossover import plot_crossover as plot_crossover
from mas_sim.plots.heatmap import heatmap_figure as heatmap_figure
from mas_sim.plots.ratio import ratio_figure as ratio_figure
from mas_sim.plots.roofline import RooflinePoint as RooflinePoint
from mas_sim.plots.roofline import roofline_figure as roofline_figure
from mas_sim.plots.search import FrontPoint as FrontPoint
from mas_sim.plots.search import best_so_far as best_so_far
from mas_sim.plots.search import convergence_figure as convergence_figure
from mas_sim.plots.search import pareto_figure as pareto_figure
from mas_sim.plots.search import plot_convergence as plot_convergence
from mas_sim.plots.search import plot_pareto as plot_pareto
from mas_sim.plots.spread import distribution_figure as distribution_figure
from mas_sim.plots.sweep import sweep_figure as sweep_figure
from mas_sim.plots.timeline import plot_timeline as plot_timeline
from mas_sim.plots.timeline import timeline_figure as timeline_figure
from mas_sim.plots.tornado import TornadoBar as TornadoBar
from mas_sim.plots.tornado import tornado_figure as tornado_figure
from mas_sim.plots.winners import WinnerCell as WinnerCell
from mas_sim.plots.winners import winners_figure as winners_figure
