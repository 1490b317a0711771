"""Sweep files for tests: small enough that a point takes milliseconds, and what is wrong with bad ones."""

from pathlib import Path

TINY = """\
name: tiny
heads: 2
n_q: 32
n_kv: 32
head_dim_qk: 16
head_dim_v: 16
"""

SWEEP = """\
name: small
question: Does anything matter?
arch: mas_edge
workloads: [tiny.yaml]
dataflows: [flat, mas]
search: {limit: 2}
axes:
  l1.capacity_kib: [16, 64, 5120]
  dram.bandwidth_gb_per_s: {from: 8, to: 32, factor: 2}
"""
"""18 points, of some milliseconds each."""


def write_sweep(folder: Path, text: str = SWEEP, name: str = "small.yaml") -> Path:
    """Write a sweep, and the workload that it names, into a folder."""
    folder.mkdir(exist_ok=True)
    (folder / "tiny.yaml").write_text(TINY, encoding="utf-8")
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path
