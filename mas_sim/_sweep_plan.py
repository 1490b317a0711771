"""A sweep, checked: its points, in their order, and what a worker is given for each."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from mas_sim._model_version import model_version
from mas_sim._sweep_axes import Values
from mas_sim._sweep_fields import Bases, without_seq
from mas_sim.arch import Arch
from mas_sim.sweep_point import Job, SearchSettings, digest_of
from mas_sim.workload import Workload


@dataclass(frozen=True)
class Point:
    """One point of a sweep.

    Attributes
    ----------
    position
        Its place in the sweep: axes in the order of the file, the last fastest; then workloads, then dataflows.
    values
        What the fields on the axes are.
    job
        What a worker is given for it.
    """

    position: int
    values: Values
    job: Job


@dataclass(frozen=True)
class Sweep:
    """A sweep, checked.

    Attributes
    ----------
    text
        The file, as it was read.
    axes
        Paths of the fields that vary, in the order of the file.
    places : tuple of (dict, int)
        Values of the axes, and the place of a workload, of all points that the constraints keep.
    keys
        Content hash of every point (`sweep_point.key_of`); two are equal only where two points have the same inputs.
    """

    name: str
    question: str
    text: str = field(repr=False)
    arch: Arch
    workloads: tuple[Workload, ...]
    dataflows: tuple[str, ...]
    search: SearchSettings
    fixed: Values
    axes: tuple[str, ...]
    places: tuple[tuple[Values, int], ...] = field(repr=False)
    keys: tuple[str, ...] = field(repr=False)
    folder: Path = field(default=Path(), repr=False)

    def __len__(self) -> int:
        """Return the number of points."""
        return len(self.keys)

    @cached_property
    def id(self) -> str:
        """Sixteen hexadecimal digits that identify the sweep: its points and the values of their axes."""
        return digest_of(self.name, self.axes, [values for values, _ in self.places], self.keys)[:16]

    @property
    def model_version(self) -> str:
        """The model that its keys are made for."""
        return model_version()

    def values(self, position: int) -> Values:
        """Return the values of the axes at a point."""
        return self.places[position // len(self.dataflows)][0]

    def only(self, keep: Callable[[Values, str], bool]) -> "Sweep":
        """Return the part of the sweep whose values of the axes, and name of the workload, are kept."""
        flows = len(self.dataflows)
        kept = [at for at, (values, number) in enumerate(self.places) if keep(values, self.workloads[number].name)]
        keys = tuple(key for at in kept for key in self.keys[at * flows : (at + 1) * flows])
        return replace(self, places=tuple(self.places[at] for at in kept), keys=keys)

    def point(self, position: int, threads: int = 1) -> Point:
        """Return a point."""
        place, flow = divmod(position, len(self.dataflows))
        values, number = self.places[place]
        arch, workload, search = self._bases(number).variant(without_seq(self.fixed | values))
        job = Job(position, self.keys[position], arch, workload, self.dataflows[flow], search, threads)
        return Point(position, values, job)

    def _bases(self, number: int) -> Bases:
        return Bases(self.arch, self.workloads[number], self.search, self.folder)
