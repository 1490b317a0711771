"""Fields that are swept in words, with their units: what stands on the axes of figures."""

from collections.abc import Sequence

LABELS: dict[str, tuple[str, str]] = {
    "workload.seq": ("sequence length N", "tokens"),
    "workload.n_q": ("queries", "tokens"),
    "workload.n_kv": ("keys and values", "tokens"),
    "workload.heads": ("heads", ""),
    "workload.batch": ("batch", ""),
    "workload.head_dim": ("head dimension E", "elements"),
    "workload.mask": ("mask", ""),
    "workload.window_back": ("keys before its own that a query sees", "tokens"),
    "workload.window_ahead": ("keys after its own that a query sees", "tokens"),
    "clock_ghz": ("clock", "GHz"),
    "cores": ("cores", ""),
    "mac.rows": ("rows of the MAC array", ""),
    "mac.cols": ("columns of the MAC array", ""),
    "mac.l1_port_bytes_per_cycle": ("port between MAC and L1", "bytes/cycle"),
    "mac.exp_steps": ("exp on the MAC array", "steps"),
    "vec.lanes": ("vector lanes", ""),
    "vec.l1_port_bytes_per_cycle": ("port between VEC and L1", "bytes/cycle"),
    "vec.op_lane_cycles.exp": ("cost of exp", "lane-cycles"),
    "vec.op_lane_cycles.divide": ("cost of a division", "lane-cycles"),
    "vec.softmax_passes": ("passes of softmax", ""),
    "l0.operand_kib": ("L0 of operands", "KiB"),
    "l0.accumulator_kib": ("L0 of accumulators", "KiB"),
    "l1.capacity_kib": ("L1 capacity", "KiB"),
    "l1.shared": ("L1 shared by the cores", ""),
    "dram.bandwidth_gb_per_s": ("DRAM bandwidth", "GB/s"),
    "dram.latency_cycles": ("DRAM latency", "cycles"),
    "dram.setup_cycles": ("set-up of a DRAM transfer", "cycles"),
    "issue_cycles": ("start of an instruction", "cycles"),
    "sync_cycles": ("synchronisation of two units", "cycles"),
    "preemption.supported": ("products can be stopped", ""),
    "preemption.drain_cycles": ("drain of a stopped product", "cycles"),
    "search.evaluations": ("tilings simulated", ""),
    "search.objective": ("objective", ""),
}
"""Of each field that figures are often drawn over: what it is, and its unit (none where there is none)."""

UNITS = {
    "_kib": "KiB", "_gb_per_s": "GB/s", "_bytes": "bytes", "_cycles": "cycles", "_ghz": "GHz",
    "_bytes_per_cycle": "bytes/cycle", "_pj": "pJ", "_nm": "nm", "_us": "us",
}  # fmt: skip
"""Units by the ending of a field's name."""


def axis_name(column: str) -> str:
    """Write the name of a swept column for an axis, and its unit in brackets; an unknown field as files have it."""
    if column in LABELS:
        words, unit = LABELS[column]
        return f"{words} ({unit})" if unit else words
    words, unit = name_and_unit(column)
    return f"{words} ({unit})" if unit else words


def name_and_unit(field: str) -> tuple[str, str]:
    """Return a field's name in words and the unit that it ends in; without a name where it is nothing but a unit."""
    for ending, unit in sorted(UNITS.items(), key=lambda item: -len(item[0])):
        if field.endswith(ending):
            return _spelt(field.removesuffix(ending)), unit
        if field == ending.removeprefix("_"):
            return "", unit
    return _spelt(field), ""


def label_with(column: str, partners: Sequence[str]) -> str:
    """Write what stands on an axis: its field in words, and those that always change with it."""
    return ", with ".join(
        [axis_name(column), " and ".join(map(axis_name, partners))] if partners else [axis_name(column)]
    )


def _spelt(name: str) -> str:
    """Write a name in words; that of a field, which has dots, as it stands in files."""
    return name if "." in name else name.replace("_", " ")
