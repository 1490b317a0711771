"""Objectives: what a search minimises."""

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from mas_sim._batch import EDP, ENERGY, LATENCY
from mas_sim.errors import MasSimError, nearest

ObjectiveName = Literal["latency", "energy", "edp"]
OBJECTIVES: tuple[str, ...] = get_args(ObjectiveName)

FloatArray = npt.NDArray[np.float64]


def objective_value(name: str, cycles: FloatArray, energy_pj: FloatArray) -> FloatArray:
    """Return the objective of tilings from their cycles and energies; of lower bounds of these, a lower bound of it.

    Parameters
    ----------
    name
        `latency` (cycles), `energy` (pJ) or `edp` (energy-delay product, pJ cycles).
    cycles, energy_pj : float64[n]

    Raises
    ------
    MasSimError
        If there is no such objective; names the nearest.
    """
    code = objective_code(name)
    if code == LATENCY:
        return cycles
    return energy_pj if code == ENERGY else cycles * energy_pj


def objective_code(name: str) -> int:
    """Return an objective's number in compiled code.

    Raises
    ------
    MasSimError
        If there is no such objective; names the nearest.
    """
    if name in OBJECTIVES:
        return (LATENCY, ENERGY, EDP)[OBJECTIVES.index(name)]
    near = nearest(name, OBJECTIVES)
    hint = f"; did you mean {near!r}?" if near else ""
    raise MasSimError(f"no objective is called {name!r} (there are {', '.join(OBJECTIVES)}){hint}")
