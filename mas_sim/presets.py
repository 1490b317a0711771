"""Validate a file without being told what it is: an architecture, a workload or an energy table."""

from pathlib import Path

from mas_sim.arch import Arch, load_arch
from mas_sim.config import FrozenModel
from mas_sim.energy_table import EnergyTable, load_energy_table
from mas_sim.errors import ConfigError, Fault, nearest
from mas_sim.workload import Workload, load_workload
from mas_sim.yaml_source import read_document

_KINDS: dict[str, tuple[str, type[FrozenModel]]] = {
    "mac": ("an architecture", Arch),
    "heads": ("a workload", Workload),
    "compute": ("an energy table", EnergyTable),
}
"""The key that tells each kind of file, what to call the kind, and its model."""


def validate_file(path: str | Path) -> Arch | Workload | EnergyTable:
    """Load a file as whatever its keys say that it is.

    Parameters
    ----------
    path : str or Path
        A YAML file. ``mac`` marks an architecture, ``heads`` a workload, ``compute`` an energy table; a file with none
        of them is held against the kind that its other keys resemble most, and reported.

    Returns
    -------
    Arch or Workload or EnergyTable
        The validated model.

    Raises
    ------
    ConfigError
        With every fault of the file.
    """
    path = Path(path)
    keys = list(read_document(path).data)
    sure = next((mark for mark in _KINDS if mark in keys), None)
    mark = sure or max(_KINDS, key=lambda candidate: _resemblance(keys, candidate))
    noun, model_cls = _KINDS[mark]
    try:
        if model_cls is Arch:
            return load_arch(path)
        return load_workload(path) if model_cls is Workload else load_energy_table(path)
    except ConfigError as error:
        if sure:
            raise
        marks = ", ".join(f"{key} ({kind})" for key, (kind, _) in _KINDS.items())
        fault = Fault(str(path), None, "", f"has none of the keys {marks}: taken for {noun}, the closest kind")
        raise ConfigError([fault, *error.faults]) from None


def _resemblance(keys: list[str], mark: str) -> int:
    """Count the keys that are, or nearly are, fields of a kind of file and of no other kind."""
    fields = {name: set(model_cls.model_fields) for name, (_, model_cls) in _KINDS.items()}
    others = set().union(*(names for name, names in fields.items() if name != mark))
    return sum(nearest(key, fields[mark] - others) is not None for key in keys[:100])
