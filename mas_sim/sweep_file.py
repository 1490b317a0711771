"""Sweep files (``sweeps/*.yaml``): what to vary, over which values, and what to keep of it; checked whole.

`load_sweep` reads one and returns a `Sweep`, all of whose points are known to be legal inputs: every machine and
workload of it has been made once, so nothing can turn out to be misspelt after a night of computing.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import Field, StrictStr

from mas_sim._constraints import Constraint, ConstraintError, parse_constraint
from mas_sim._model_version import model_version
from mas_sim._sweep_axes import AxisError, Values, axis_values, crossed
from mas_sim._sweep_fields import Bases, without_seq
from mas_sim.arch import Arch, load_arch
from mas_sim.config import FrozenModel, NameText, ProseText, find_preset, validate
from mas_sim.crossover import OVERWRITES
from mas_sim.dataflows import DATAFLOWS
from mas_sim.errors import ConfigError, Fault, nearest
from mas_sim.sweep_point import Job, SearchSettings, arch_data, digest_of, key_of
from mas_sim.workload import Workload, load_workload
from mas_sim.yaml_source import Document, FieldPath, cap_faults, read_document, read_text

MAX_POINTS = 100_000
ALL = "all"
SWEPT_DATAFLOWS = (*DATAFLOWS, *OVERWRITES)
"""What a sweep can compare: the dataflows, and `mas` held to proactive overwrite, of V, of K or of either."""


class SweepFile(FrozenModel):
    """A sweep file as written; `sweeps/README.md` lists every key."""

    name: NameText = Field(min_length=1, max_length=100)
    question: ProseText = ""
    arch: StrictStr = Field(min_length=1)
    workloads: tuple[StrictStr, ...] = Field(min_length=1, max_length=1000)
    dataflows: tuple[StrictStr, ...] = Field(min_length=1, max_length=100)
    search: SearchSettings = SearchSettings()
    fixed: dict[str, Any] = Field(default_factory=dict)
    axes: dict[str, Any] = Field(default_factory=dict)
    zipped: tuple[dict[str, Any], ...] = ()
    where: tuple[StrictStr, ...] = ()


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


def is_sweep_file(path: str | Path) -> bool:
    """Whether the keys of a YAML file are a sweep's, rather than a machine's, a workload's or an energy table's."""
    return bool({"dataflows", "axes", "zipped"} & read_document(path).data.keys())


def load_sweep(name_or_path: str | Path) -> Sweep:
    """Read a sweep, and check every point of it.

    Parameters
    ----------
    name_or_path
        A shipped sweep's name, or a YAML file. Files that it names are relative to its own folder.

    Raises
    ------
    ConfigError
        With every fault of the file and of the files that it names, and of the inputs of any point.
    """
    path = find_preset("sweeps", name_or_path)
    document = read_document(path)
    faults = list(document.faults)
    try:
        written = validate(SweepFile, document.data, document.line_of, document.file)
    except ConfigError as error:
        raise ConfigError(cap_faults([*faults, *error.faults])) from None
    sweep = _Reader(document, written, path.parent, faults).read(read_text(path, str(path)))
    if faults or sweep is None:
        raise ConfigError(cap_faults(faults))
    return sweep


def _overlap(one: str, other: str) -> bool:
    """Whether two paths are the same field, or one holds the other."""
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


@dataclass
class _Reader:
    """Turns a file as written into a sweep, and collects its faults on the way."""

    document: Document
    written: SweepFile
    folder: Path
    faults: list[Fault]

    def fault(self, where: FieldPath, rule: str, value: object = None, near: str | None = None) -> None:
        """Note a fault of the file."""
        lines, line = self.document.line_of, None
        for length in range(len(where), 0, -1):
            line = line or lines.get(where[:length])
        shown = ".".join(map(str, where))
        if value is None:
            self.faults.append(Fault(self.document.file, line, shown, rule, "", near))
        else:
            self.faults.append(Fault.of(self.document.file, line, shown, rule, value, near))

    def read(self, text: str) -> Sweep | None:
        """Return the sweep; None if there are faults."""
        arch = self._loaded(self.written.arch, ("arch",), Arch)
        names = enumerate(self.written.workloads)
        workloads = [self._loaded(name, ("workloads", place), Workload) for place, name in names]
        self._refuse_twins([w.name for w in workloads if w is not None], "workloads")
        flows = self._dataflows()
        axes = {path: self._axis(("axes", path), axis) for path, axis in self.written.axes.items()}
        zipped = [
            {path: self._axis(("zipped", place, path), axis) for path, axis in group.items()}
            for place, group in enumerate(self.written.zipped)
        ]
        self._check_groups(zipped)
        if arch is None or None in workloads:
            return None
        search, folder = self.written.search, self.folder
        bases = [Bases(arch, workload, search, folder) for workload in workloads if workload is not None]
        where_of = self._check_fields(bases[0])
        constraints = self._constraints(bases[0])
        if self.faults:
            self._check_values(bases[0], [axes, *zipped], where_of)
            return None
        grid = list(self._grid(axes, zipped, len(bases) * len(flows)))
        places, keys = self._points(bases, flows, grid, constraints, where_of)
        if self.faults:
            return None
        paths = tuple(path for group in (axes, *zipped) for path in group)
        return Sweep(
            self.written.name, self.written.question, text, arch, tuple(base.workload for base in bases), flows,
            search, self.written.fixed, paths, tuple(places), tuple(keys), folder,
        )  # fmt: skip

    def _loaded(self, name: str, where: FieldPath, model: type[Any]) -> Any:
        """Load a machine or workload that the file names; None, with the faults noted, if that fails."""
        load = load_arch if model is Arch else load_workload
        is_path = name.endswith((".yaml", ".yml")) or "/" in name
        try:
            return load(self.folder / name if is_path else name)
        except ConfigError as error:
            for fault in error.faults:
                if fault.file == "<python>":
                    self.fault(where, fault.rule, name, fault.suggestion)
                else:
                    self.faults.append(fault)
            return None

    def _dataflows(self) -> tuple[str, ...]:
        """Return the dataflows by name, `all` written out."""
        names: list[str] = []
        for place, name in enumerate(self.written.dataflows):
            if name not in (*SWEPT_DATAFLOWS, ALL):
                rule = f"must be one of {', '.join(SWEPT_DATAFLOWS)}, or {ALL}"
                self.fault(("dataflows", place), rule, name, nearest(name, (*SWEPT_DATAFLOWS, ALL)))
            names += DATAFLOWS if name == ALL else [name]
        self._refuse_twins(names, "dataflows")
        return tuple(names)

    def _refuse_twins(self, names: list[str], where: str) -> None:
        for name in sorted({name for name in names if names.count(name) > 1}):
            self.fault((where,), "must be different; this one is there more than once", name)

    def _axis(self, where: FieldPath, axis: object) -> tuple[Any, ...]:
        """Return the values of an axis, none if it is at fault."""
        try:
            return axis_values(axis)
        except AxisError as error:
            self.fault(where if error.key is None else (*where, error.key), str(error))
            return ()

    def _check_groups(self, zipped: list[dict[str, tuple[Any, ...]]]) -> None:
        """Refuse groups of axes of different lengths."""
        for place, group in enumerate(zipped):
            lengths = {path: len(values) for path, values in group.items()}
            if len(set(lengths.values())) > 1 or not group:
                found = ", ".join(f"{path}: {length}" for path, length in lengths.items()) or "none"
                self.fault(("zipped", place), f"axes that are zipped must be equally long (there are {found})")

    def _check_fields(self, bases: Bases) -> dict[str, FieldPath]:
        """Refuse fields that there are not, or that are set twice or as part of another; return where each stands."""
        places: list[tuple[str, FieldPath]] = [(path, ("fixed", path)) for path in self.written.fixed]
        places += [(path, ("axes", path)) for path in self.written.axes]
        places += [(path, ("zipped", at, path)) for at, group in enumerate(self.written.zipped) for path in group]
        seen: dict[str, FieldPath] = {}
        for path, where in places:
            if path not in bases.fields:
                self.fault(
                    where,
                    "no such field of the machine, energy_table, workload or search",
                    None,
                    nearest(path, bases.fields),
                )
                continue
            own = {path, *without_seq({path: None})}
            clash = next(
                (old for old in seen if any(_overlap(old, new) for new in own)),
                None,
            )
            if clash is not None:
                self.fault(where, f"is set already, by {'.'.join(map(str, seen[clash]))}")
            seen |= dict.fromkeys(own, where)
        return seen

    def _check_values(
        self, bases: Bases, axes: list[dict[str, tuple[Any, ...]]], where_of: Mapping[str, FieldPath]
    ) -> None:
        """Find the values that are illegal by themselves, where other faults keep points from being made."""
        values = [(path, value) for path, value in self.written.fixed.items()]
        values += [(path, value) for group in axes for path, some in group.items() for value in some]
        known: dict[Fault, str] = {}
        for path, value in values:
            if path in bases.fields:
                try:
                    bases.variant(without_seq({path: value}))
                except ConfigError as error:
                    known |= dict.fromkeys(error.faults, f"{path}: {value!r}")
        self._blame(known, where_of)

    def _constraints(self, bases: Bases) -> list[Constraint]:
        """Return the constraints."""
        found = []
        for place, text in enumerate(self.written.where):
            try:
                found.append(parse_constraint(text, bases.fields))
            except ConstraintError as error:
                self.fault(("where", place), str(error), text)
        return found

    def _grid(self, axes: Mapping[str, Any], zipped: list[dict[str, Any]], times: int) -> Iterator[Values]:
        """List the points of the axes, unless there are too many of them."""
        count = times
        for values in (*axes.values(), *(next(iter(group.values())) for group in zipped)):
            count *= len(values)
        if count > MAX_POINTS:
            self.fault((), f"has {count:,} points before constraints, more than {MAX_POINTS:,}")
            return iter(())
        return crossed(axes, zipped)

    def _points(
        self, bases: list[Bases], flows: tuple[str, ...], grid: list[Values], constraints: list[Constraint],
        where_of: Mapping[str, FieldPath],
    ) -> tuple[list[tuple[Values, int]], list[str]]:  # fmt: skip
        """Make the inputs of every point once; return those that are kept, and their keys."""
        places: list[tuple[Values, int]] = []
        keys: list[str] = []
        digests: dict[str, str] = {}  # by content: a machine meets every workload
        known: dict[Fault, str] = {}
        model = model_version()
        for values in grid:
            for number, base in enumerate(bases):
                changes = without_seq(self.written.fixed | values)
                if self.faults or not self._kept(base, changes, constraints):
                    continue
                try:
                    arch, workload, search = base.variant(changes)
                except ConfigError as error:
                    at = ", ".join(f"{path}: {value!r}" for path, value in values.items())
                    known = dict.fromkeys(error.faults, f"{at}; workload {base.workload.name}") | known
                    continue
                places.append((values, number))
                if arch.hash not in digests:
                    digests[arch.hash] = digest_of(arch_data(arch))
                of_workload = digest_of(workload.model_dump(mode="json"))
                keys += [key_of(digests[arch.hash], of_workload, flow, search, model) for flow in flows]
        self._blame(known, where_of)
        if not self.faults and not places:
            self.fault(("where",), "leaves no point")
        return places, keys

    def _kept(self, base: Bases, changes: Values, constraints: list[Constraint]) -> bool:
        """Whether all constraints hold at a point."""
        for place, constraint in enumerate(constraints):
            try:
                if not constraint.holds(lambda path: base.value(path, changes)):
                    return False
            except ConstraintError as error:
                self.fault(("where", place), str(error), constraint.text)
                return False
        return True

    def _blame(self, known: Mapping[Fault, str], where_of: Mapping[str, FieldPath]) -> None:
        """Say of faulty inputs which axis brought them in, or if several did, at which point they were first met."""
        lines = self.document.line_of
        found = []
        for fault, met in known.items():
            parts = fault.path.replace("[", ".").split(".")
            heads = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
            where = next((where_of[head] for head in heads if head in where_of), None)
            if where is None:  # a rule on several fields, or on one that only others make illegal
                rule = f"{fault.rule} (first at {met})"
                found.append(replace(fault, file=self.document.file, line=None, rule=rule))
            else:
                path = ".".join(map(str, where))
                found.append(replace(fault, file=self.document.file, line=lines.get(where), path=path))
        self.faults += sorted(set(found), key=lambda fault: (fault.line or 0, str(fault)))
