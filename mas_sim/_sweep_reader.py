"""Turns a sweep file, as it was written, into a sweep; finds all its faults at once, and those of every point."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import Field, StrictStr

from mas_sim._constraints import Constraint, ConstraintError, parse_constraint
from mas_sim._model_version import model_version
from mas_sim._sweep_axes import AxisError, Values, axis_values, crossed
from mas_sim._sweep_fields import Bases, without_seq
from mas_sim._sweep_plan import Sweep
from mas_sim.arch import Arch, load_arch
from mas_sim.config import FrozenModel, NameText, ProseText, validate
from mas_sim.crossover import OVERWRITES
from mas_sim.dataflows import DATAFLOWS
from mas_sim.errors import ConfigError, Fault, nearest
from mas_sim.sweep_point import SearchSettings, arch_data, digest_of, key_of
from mas_sim.workload import Workload, load_workload
from mas_sim.yaml_source import Document, FieldPath

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


STAND_IN = {"name": "stand-in", "arch": "mas_edge", "workloads": ["bert_base"], "dataflows": ["mas"]}
"""What takes the place of faulty keys, so that the others are checked, too."""


def rest_of(document: Document, faults: tuple[Fault, ...]) -> SweepFile:
    """Return a file without its faulty keys, for the faults of the others."""
    wrong = {fault.path.replace("[", ".").partition(".")[0] for fault in faults}
    legal = {key: value for key, value in document.data.items() if key in SweepFile.model_fields and key not in wrong}
    return validate(SweepFile, STAND_IN | legal, {}, document.file)


def _overlap(one: str, other: str) -> bool:
    """Whether two paths are the same field, or one holds the other."""
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


@dataclass
class Reader:
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
        search, folder, there = self.written.search, self.folder, [one for one in workloads if one is not None]
        stands_in = arch is None or not there
        bases = [
            Bases(arch or load_arch("mas_edge"), one, search, folder) for one in there or [load_workload("bert_base")]
        ]
        where_of = self._check_fields(bases[0], rows_unknown=stands_in)
        constraints = self._constraints(bases[0])
        if self.faults:
            if not stands_in:
                self._check_values(bases[0], [axes, *zipped], where_of)
                self._check_constraints(bases[0], constraints, [axes, *zipped])
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
            several = " (all is every dataflow but those that overwrite)" if ALL in self.written.dataflows else ""
            rule = "must be different; this one is there more than once" + (several if where == "dataflows" else "")
            self.fault((where,), rule, name)

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

    def _check_fields(self, bases: Bases, rows_unknown: bool) -> dict[str, FieldPath]:
        """Refuse fields that there are not, or that are set twice or as part of another; return where each stands.

        `rows_unknown`: a machine stands in, so it is not known which rows its energy table has.
        """
        places: list[tuple[str, FieldPath]] = [(path, ("fixed", path)) for path in self.written.fixed]
        places += [(path, ("axes", path)) for path in self.written.axes]
        places += [(path, ("zipped", at, path)) for at, group in enumerate(self.written.zipped) for path in group]
        seen: dict[str, FieldPath] = {}
        for path, where in places:
            if path not in bases.fields:
                if not (rows_unknown and path.startswith("energy_table.")):
                    rule = "no such field of the machine, energy_table, workload or search"
                    self.fault(where, rule, None, nearest(path, bases.fields))
                continue
            own = {path, *without_seq({path: None})}
            clash = next(
                (old for old in seen if any(_overlap(old, new) for new in own)),
                None,
            )
            if clash is not None:
                self.fault(where, f"is set already, by {'.'.join(map(str, seen[clash]))}")
            seen = dict.fromkeys(own, where) | seen
        return seen

    def _check_values(
        self, bases: Bases, axes: list[dict[str, tuple[Any, ...]]], where_of: Mapping[str, FieldPath]
    ) -> None:
        """Find the values that are illegal by themselves, where other faults keep points from being made."""
        places: list[tuple[FieldPath, str, tuple[Any, ...]]]
        places = [(("fixed", path), path, (value,)) for path, value in self.written.fixed.items()]
        names: list[FieldPath] = [("axes",), *(("zipped", at) for at in range(len(axes) - 1))]
        for name, group in zip(names, axes, strict=True):
            places += [((*name, path), path, some) for path, some in group.items()]
        for where, path, some in places:
            known: dict[Fault, str] = {}
            for value in some if path in bases.fields else ():
                try:
                    bases.variant(without_seq({path: value}))
                except ConfigError as error:
                    known |= dict.fromkeys(error.faults, f"{path}: {value!r}")
            self._blame(known, {**where_of, **dict.fromkeys((path, *without_seq({path: None})), where)})

    def _constraints(self, bases: Bases) -> dict[int, Constraint]:
        """Return the constraints by their places in the file."""
        found = {}
        for place, text in enumerate(self.written.where):
            try:
                found[place] = parse_constraint(text, bases.fields)
            except ConstraintError as error:
                self.fault(("where", place), str(error), text)
        return found

    def _check_constraints(
        self, bases: Bases, constraints: Mapping[int, Constraint], axes: list[dict[str, tuple[Any, ...]]]
    ) -> None:
        """Find the constraints that have no answer, where other faults keep points from being made."""
        firsts = {path: values[0] for group in axes for path, values in group.items() if values}
        changes, broken = without_seq(self.written.fixed | firsts), set[int]()
        self._kept(bases, changes, constraints, broken)

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
        self, bases: list[Bases], flows: tuple[str, ...], grid: list[Values], constraints: Mapping[int, Constraint],
        where_of: Mapping[str, FieldPath],
    ) -> tuple[list[tuple[Values, int]], list[str]]:  # fmt: skip
        """Make the inputs of every point once; return those that are kept, and their keys."""
        places: list[tuple[Values, int]] = []
        keys: list[str] = []
        digests: dict[str, str] = {}  # by content: a machine meets every workload
        known: dict[Fault, str] = {}
        model, broken = model_version(), set[int]()
        for values in grid:
            for number, base in enumerate(bases):
                changes = without_seq(self.written.fixed | values)
                # Without an answer of a constraint it is not known whether this point is there.
                if not self._kept(base, changes, constraints, broken) or broken:
                    continue
                try:
                    arch, workload, search = base.variant(changes)
                except ConfigError as error:
                    at = ", ".join(f"{path}: {value!r}" for path, value in values.items())
                    known = dict.fromkeys(error.faults, f"{at}; workload {base.workload.name}") | known
                    continue
                places.append((values, number))
                mark = arch.hash
                if mark not in digests:
                    digests[mark] = digest_of(arch_data(arch))
                of_workload = digest_of(workload.model_dump(mode="json"))
                keys += [key_of(digests[mark], of_workload, flow, search, model) for flow in flows]
        self._blame(known, where_of)
        if not self.faults and not places:
            self.fault(("where",), "leaves no point")
        return places, keys

    def _kept(self, base: Bases, changes: Values, constraints: Mapping[int, Constraint], broken: set[int]) -> bool:
        """Whether all constraints hold at a point; notes those that have no answer, once each."""
        kept = True
        for place, constraint in constraints.items():
            if place in broken:
                continue
            try:
                kept &= constraint.holds(lambda path: base.value(path, changes))
            except ConstraintError as error:
                self.fault(("where", place), str(error), constraint.text)
                broken.add(place)
        return kept

    def _blame(self, known: Mapping[Fault, str], where_of: Mapping[str, FieldPath]) -> None:
        """Say of faulty inputs which axis brought them in, or if several did, at which point they were first met."""
        lines = self.document.line_of
        found = []
        for fault, met in known.items():
            parts = fault.path.replace("[", ".").split(".")
            heads = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
            head = next((head for head in heads if head in where_of), None)
            if head is None:  # a rule on several fields, or on one that only others make illegal
                rule = f"{fault.rule} (first at {met})"
                found.append(replace(fault, file=self.document.file, line=None, rule=rule))
            else:
                where = where_of[head]
                path = ".".join(map(str, where)) + fault.path.replace("[", ".").replace("]", "")[len(head) :]
                found.append(replace(fault, file=self.document.file, line=lines.get(where), path=path))
        self.faults += sorted(set(found), key=lambda fault: (fault.line or 0, str(fault)))
