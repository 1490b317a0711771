"""Sweep files (``sweeps/*.yaml``): what to vary, over which values, and what to keep of it; checked whole.

`load_sweep` reads one and returns a `Sweep`, all of whose points are known to be legal inputs: every machine and
workload of it has been made once, so nothing can turn out to be misspelt after a night of computing.
"""

from pathlib import Path

from mas_sim._sweep_plan import Point, Sweep
from mas_sim._sweep_reader import MAX_POINTS, SWEPT_DATAFLOWS, Reader, SweepFile, rest_of
from mas_sim.config import find_preset, validate
from mas_sim.errors import ConfigError
from mas_sim.yaml_source import cap_faults, read_document, read_text


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
        faults += error.faults
        written = rest_of(document, error.faults)
    sweep = Reader(document, written, path.parent, faults).read(read_text(path, str(path)))
    if faults or sweep is None:
        raise ConfigError(cap_faults(faults))
    return sweep


__all__ = ["MAX_POINTS", "SWEPT_DATAFLOWS", "Point", "Sweep", "SweepFile", "is_sweep_file", "load_sweep"]
