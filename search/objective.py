"""Objectives: what a search minimises, and what it must keep to.

Every objective rises with cycles and with energy. So lower bounds of those give a lower bound of it, and a tiling whose
bounds break a limit breaks it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from mas_sim.errors import MasSimError, nearest

ObjectiveName = Literal["latency", "energy", "edp"]
OBJECTIVES: tuple[str, ...] = get_args(ObjectiveName)

FloatArray = npt.NDArray[np.float64]

LIMITS = ("cycles", "energy_uj")
"""What a constraint may limit."""

_WEIGHTED = re.compile(r"weighted(?::([0-9]*\.?[0-9]+))?")


@dataclass(frozen=True)
class Objective:
    """What a search minimises: `cycles ** latency_power * energy ** energy_power`, under limits.

    Attributes
    ----------
    latency_power, energy_power
        1 and 0 for latency, 0 and 1 for energy, 1 and 1 for their product (EDP). Weighted: `w` and `1 - w`, a weighted
        sum of their logarithms, so that neither unit matters.
    max_cycles, max_energy_pj
        Limits; tilings beyond them do not count.
    """

    name: str = "latency"
    latency_power: float = 1.0
    energy_power: float = 0.0
    max_cycles: float = float("inf")
    max_energy_pj: float = float("inf")

    @staticmethod
    def parse(text: "str | Objective", limits: Mapping[str, float] | None = None) -> "Objective":
        """Return the objective that a text names: `latency`, `energy`, `edp`, `weighted` or `weighted:0.7`.

        Parameters
        ----------
        text
            Weighted: the weight of latency, 0 to 1; that of energy is the rest. Half and half without a number.
        limits
            `cycles` and `energy_uj` (microjoules) at most.

        Raises
        ------
        MasSimError
            If there is no such objective or limit (names the nearest), or a number makes no sense.
        """
        if isinstance(text, Objective):
            return text
        bounds = _limits(limits or {})
        if text in OBJECTIVES:
            powers = ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0))[OBJECTIVES.index(text)]
            return Objective(text, *powers, *bounds)
        match = _WEIGHTED.fullmatch(text)
        if match is None:
            known = (*OBJECTIVES, "weighted")
            near = nearest(text, known)
            hint = f"; did you mean {near!r}?" if near else ""
            raise MasSimError(f"no objective is called {text!r} (there are {', '.join(known)}){hint}")
        weight = float(match[1]) if match[1] else 0.5
        if not 0 <= weight <= 1:
            raise MasSimError(f"the weight of latency in {text!r} must be in 0..1")
        return Objective(f"weighted:{weight:g}", weight, 1 - weight, *bounds)

    def values(self, cycles: FloatArray, energy_pj: FloatArray) -> FloatArray:
        """Return the objective of tilings; infinite for those beyond a limit.

        Parameters
        ----------
        cycles, energy_pj : float64[n]
            Or lower bounds of them: the result is then a lower bound.
        """
        value: FloatArray
        if self.energy_power == 0:
            value = cycles.copy()
        elif self.latency_power == 0:
            value = energy_pj.copy()
        elif self.latency_power == self.energy_power == 1:
            value = cycles * energy_pj
        else:
            value = cycles**self.latency_power * energy_pj**self.energy_power
        value[(cycles > self.max_cycles) | (energy_pj > self.max_energy_pj)] = np.inf
        return value

    @property
    def constrained(self) -> bool:
        """Whether there is any limit."""
        return min(self.max_cycles, self.max_energy_pj) < float("inf")

    def describe(self) -> str:
        """Return the objective in words."""
        words = self.name
        if np.isfinite(self.max_cycles):
            words += f", cycles <= {self.max_cycles:,.0f}"
        if np.isfinite(self.max_energy_pj):
            words += f", energy <= {self.max_energy_pj / 1e6:,g} uJ"
        return words


def _limits(limits: Mapping[str, float]) -> tuple[float, float]:
    """Return the limits in cycles and pJ."""
    for name, value in limits.items():
        if name not in LIMITS:
            near = nearest(name, LIMITS)
            hint = f"; did you mean {near!r}?" if near else ""
            raise MasSimError(f"no limit is called {name!r} (there are {', '.join(LIMITS)}){hint}")
        if not value > 0 or not np.isfinite(value):
            raise MasSimError(f"the limit of {name} must be a positive number (got {value:g})")
    return limits.get("cycles", float("inf")), limits.get("energy_uj", float("inf")) * 1e6


def objective_value(name: str, cycles: FloatArray, energy_pj: FloatArray) -> FloatArray:
    """Return the objective of that name, of tilings from their cycles and energies; see `Objective`.

    Raises
    ------
    MasSimError
        If there is no such objective; names the nearest.
    """
    return Objective.parse(name).values(cycles, energy_pj)
