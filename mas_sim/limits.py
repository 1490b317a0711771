"""How long a sequence can be: the longest one whose smallest tiling still fits L1, and what takes the bytes."""

from dataclasses import dataclass
from typing import Any

from mas_sim.arch import Arch
from mas_sim.costs import pack_problem
from mas_sim.dataflows import DATAFLOWS, footprint, legal_tiling
from mas_sim.dataflows._dispatch import span
from mas_sim.errors import MasSimError
from mas_sim.tiling import Tiling
from mas_sim.workload import Dtype, Workload

MAX_SEQUENCE = 1 << 24
"""Longest sequence that a workload may have."""


@dataclass(frozen=True)
class SequenceLimit:
    """The longest self-attention that a dataflow can run.

    Attributes
    ----------
    cores
        Cores that are active, each with its own buffers in L1.
    tokens, tokens_power_of_two
        The longest sequence, exactly and as a power of two; 0 if not even one token fits, `MAX_SEQUENCE` if L1 limits
        nothing.
    l1_bytes, capacity_bytes
        Bytes that it needs, and those there are.
    by_tensor
        Bytes of each tensor's buffers on one core: the greatest is what limits.
    """

    dataflow: str
    cores: int
    tokens: int
    tokens_power_of_two: int
    l1_bytes: int
    capacity_bytes: int
    by_tensor: dict[str, int]

    @property
    def limited_by(self) -> str:
        """The tensor whose buffers take the most bytes."""
        return max(self.by_tensor, key=lambda name: self.by_tensor[name])

    def as_dict(self) -> dict[str, Any]:
        """Return the limit as plain data."""
        return {
            "dataflow": self.dataflow,
            "cores": self.cores,
            "tokens": self.tokens,
            "tokens_power_of_two": self.tokens_power_of_two,
            "l1_bytes": self.l1_bytes,
            "capacity_bytes": self.capacity_bytes,
            "by_tensor": self.by_tensor,
            "limited_by": self.limited_by,
        }


def smallest_tiling(dataflow: str) -> Tiling:
    """Return the tiling that needs the fewest bytes: tiles of one row and column, nothing resident, single buffers.

    In sequence, where a dataflow has the choice: what overlaps needs more buffers.
    """
    flow = DATAFLOWS[dataflow]
    return Tiling(1, 1, 1, 1, 0, 0, 1, 1, 1, flow.score_buffers[0], 1, "items", overlap="none")


def sequence_limit(
    arch: Arch, dataflow: str, *, head_dim: int = 64, dtype: Dtype = "fp16", cores: int = 1
) -> SequenceLimit:
    """Return the longest sequence that a dataflow can run at all, by the bytes of its smallest tiling.

    Parameters
    ----------
    cores
        How many cores are active, at most `arch.cores`; in a shared L1 each needs its own buffers.

    Raises
    ------
    MasSimError
        If the arch has not as many cores, or the head dimension is not a legal one.

    Notes
    -----
    Found by bisection over the footprint, which grows with the sequence. It is a limit of L1 alone: a tiling that small
    is not a good one, and the schedule of a long sequence may be too long to simulate.
    """
    if not 1 <= cores <= arch.cores:
        raise MasSimError(f"cores must be in 1..{arch.cores} (got {cores})")
    machine = arch.with_(cores=cores)
    tiling = smallest_tiling(dataflow)

    def workload(tokens: int) -> Workload:
        # The rows of one tile count, not how many tiles there are: one for each core is enough.
        dims = {"head_dim_qk": head_dim, "head_dim_v": head_dim}
        return Workload(name="limit", heads=1, n_q=cores, n_kv=tokens, dtype=dtype, **dims)

    def fits_l1(tokens: int) -> bool:
        # By the closed form: a footprint lays out every buffer, and there may be one for each token.
        problem = workload(tokens)
        packed = legal_tiling(dataflow, machine, problem, tiling).pack()
        core_bytes = span(DATAFLOWS[dataflow].number, pack_problem(machine, problem), packed, tokens)
        return int(core_bytes) * (cores if machine.l1.shared else 1) <= machine.l1.capacity_bytes

    fits, over = 0, MAX_SEQUENCE + 1
    while over - fits > 1:
        middle = (fits + over) // 2
        fits, over = (middle, over) if fits_l1(middle) else (fits, middle)
    at = footprint(dataflow, machine, workload(max(1, fits)), tiling)
    power = 1 << (fits.bit_length() - 1) if fits else 0
    return SequenceLimit(dataflow, cores, fits, power, at.total_bytes, at.capacity_bytes, at.by_tensor)


def sequence_limits(arch: Arch, *, head_dim: int = 64, dtype: Dtype = "fp16") -> list[SequenceLimit]:
    """Return the limits of every dataflow, with one core active and with all."""
    counts = sorted({1, arch.cores})
    return [
        sequence_limit(arch, name, head_dim=head_dim, dtype=dtype, cores=cores)
        for name in DATAFLOWS
        for cores in counts
    ]
