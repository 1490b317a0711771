"""The fields that a sweep may vary: of the machine, of its energy table, of the workload, and of the search.

Paths without a root are the machine's (``l1.capacity_kib``); ``energy_table.``, ``workload.`` and ``search.`` name the
others. ``workload.seq`` stands for both sequence lengths. `Bases.variant` makes the inputs of a point.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from mas_sim._sweep_axes import Values
from mas_sim.arch import Arch
from mas_sim.config import FrozenModel, validate
from mas_sim.energy_table import EnergyTable, load_energy_table
from mas_sim.errors import ConfigError, Fault, nearest
from mas_sim.sweep_point import SearchSettings
from mas_sim.workload import Workload

ModelT = TypeVar("ModelT", bound=FrozenModel)

ROOTS = ("energy_table", "workload", "search")
SEQ = "workload.seq"
SEQ_FIELDS = ("workload.n_q", "workload.n_kv")
_PROSE = {"name", "description", "source", "energy_table.name", "energy_table.description", "workload.name"}
_PROSE |= {"workload.description", "workload.source"}


def without_seq(values: Mapping[str, Any]) -> Values:
    """Return the values with `workload.seq` written out."""
    plain = {path: value for path, value in values.items() if path != SEQ}
    return plain | (dict.fromkeys(SEQ_FIELDS, values[SEQ]) if SEQ in values else {})


def _paths(data: Mapping[str, Any], prefix: str) -> Iterator[str]:
    """List the paths of plain data: of every value, and of the parts that hold them."""
    for name, value in data.items():
        path = f"{prefix}{name}"
        yield path
        if isinstance(value, Mapping):
            yield from _paths(value, f"{path}.")


@dataclass(frozen=True)
class Bases:
    """What a sweep varies: a machine, one of its workloads, and the settings of the search.

    Attributes
    ----------
    folder
        Where the file of an energy table that `energy` names is looked for.
    """

    arch: Arch
    workload: Workload
    search: SearchSettings
    folder: Path = Path()

    @cached_property
    def _data(self) -> dict[str, Any]:
        """Return all fields as plain data."""
        rooted = {"energy_table": self.arch.energy_table, "workload": self.workload, "search": self.search}
        return self.arch.model_dump(mode="json") | {
            root: model.model_dump(mode="json") for root, model in rooted.items()
        }

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """Paths of all fields that may vary."""
        paths = [path for path in _paths(self._data, "") if path not in {*_PROSE, *ROOTS}]
        return (*paths, SEQ)

    def value(self, path: str, values: Mapping[str, Any]) -> Any:
        """Return a field at a point where some fields have other values than the bases."""
        path = SEQ_FIELDS[0] if path == SEQ else path
        parts = path.split(".")
        for length in range(len(parts), -1, -1):  # the field itself may be varied, or a part that holds it
            head = ".".join(parts[:length])
            if head in values or not head:
                found = values[head] if head else self._data
                for part in parts[length:]:
                    found = found.get(part) if isinstance(found, Mapping) else None
                return found
        raise AssertionError("unreachable: the empty path is always there")

    def _table(self, arch: Arch, faults: list[Fault]) -> EnergyTable | None:
        """Return the table that a variant of the machine names; None, with the faults noted, if there is none."""
        if arch.energy == self.arch.energy:
            return self.arch.energy_table
        try:
            return load_energy_table(arch.energy, self.folder)
        except ConfigError as error:
            faults += [Fault(f.file, f.line, "energy", f.rule, f.value, f.suggestion) for f in error.faults]
            return None

    def variant(self, values: Mapping[str, Any]) -> tuple[Arch, Workload, SearchSettings]:
        """Return the inputs of a point, validated.

        Parameters
        ----------
        values
            The fields that differ from the bases, without `workload.seq`.

        Raises
        ------
        ConfigError
            With every fault of these values; their paths have their roots.
        """
        parts: dict[str, Values] = {"": {}, **{root: {} for root in ROOTS}}
        for path, value in values.items():
            root, _, rest = path.partition(".")
            if root in ROOTS:
                parts[root][rest] = value
            else:
                parts[""][path] = value
        faults: list[Fault] = []
        arch = _attempt(self.arch, parts[""], "", faults)
        table = _attempt_table(self._table(arch, faults), parts["energy_table"], faults)
        workload = _attempt(self.workload, parts["workload"], "workload.", faults)
        search = _attempt(self.search, parts["search"], "search.", faults)
        if table is not None and arch.dram.kind not in table.dram:
            rule = f"must be a kind of DRAM in energy table {table.name}: {', '.join(table.dram)}"
            near = nearest(arch.dram.kind, table.dram)
            faults.append(Fault.of("<python>", None, "dram.kind", rule, arch.dram.kind, near))
        if faults:
            raise ConfigError(faults)
        assert table is not None
        return arch.with_energy_table(table), workload, search


def _attempt(base: ModelT, changes: Values, root: str, faults: list[Fault]) -> ModelT:
    """Vary a model; where that is not legal, note the faults and return it as it was."""
    if not changes:
        return base
    try:
        return base.with_(**changes)
    except ConfigError as error:
        faults += [Fault(f.file, f.line, root + f.path, f.rule, f.value, f.suggestion) for f in error.faults]
        return base


def _attempt_table(table: EnergyTable | None, changes: Values, faults: list[Fault]) -> EnergyTable | None:
    """Vary an energy table, whose rows are keys of mappings; None if that is not legal, or there is none."""
    if table is None or not changes:
        return table
    data = table.model_dump()
    for path, value in changes.items():
        *parents, key = path.split(".")
        target = data
        for parent in parents:
            target = target[parent]
        target[key] = value
    try:
        return validate(EnergyTable, data, {}, "<python>")
    except ConfigError as error:
        root = "energy_table."
        faults += [Fault(f.file, f.line, root + f.path, f.rule, f.value, f.suggestion) for f in error.faults]
        return None
