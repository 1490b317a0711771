"""An attention workload: ``O = softmax(Q K^T) V`` for a batch of heads, as read from ``workloads/*.yaml``.

Symbols as in the attention literature: ``B`` batch, ``H`` heads, ``N_q`` and ``N_kv`` sequence lengths, ``E`` head
dimension of Q and K, ``F`` head dimension of V (usually ``F = E``).
"""

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, StrictInt, ValidationInfo, field_validator, model_validator

from mas_sim.config import FrozenModel, NameText, ProseText, broken_rule, content_hash, find_preset, load_model

Dtype = Literal["fp16", "bf16", "int8"]
"""Type of Q, K, V, P and O."""

BYTES_PER_ELEMENT: dict[Dtype, int] = {"fp16": 2, "bf16": 2, "int8": 1}
ACCUMULATOR_BYTES = 4
"""Bytes of one partial sum of a matrix product (fp32 or int32), whatever the dtype."""

MAX_PRODUCT = 2**56
"""Largest ``B * H * N_q * N_kv * max(E, F)``: cycle, byte and operation counts stay within 64-bit integers."""

_AS_HEADS: Any = None  # the default of kv_heads, replaced by the value of heads


class Workload(FrozenModel):
    """One attention layer.

    Attributes
    ----------
    name : str
        Short name, such as ``bert_base``.
    description : str
        What it is.
    source : str
        Where the numbers come from.
    batch : int
        Sequences in the batch, ``B``.
    heads : int
        Query heads, ``H``.
    kv_heads : int
        Key and value heads; must divide ``heads``, and is ``heads`` unless given (fewer: grouped-query attention).
    n_q : int
        Query rows of a sequence, ``N_q``.
    n_kv : int
        Key and value rows of a sequence, ``N_kv``.
    head_dim_qk : int
        Head dimension of Q and K, ``E``.
    head_dim_v : int
        Head dimension of V and O, ``F``.
    dtype : {"fp16", "bf16", "int8"}
        Element type of every tensor in memory; partial sums take ``accumulator_bytes``.
    mask : {"none"}
        Which scores count. Masks are not supported yet, so only ``none`` is legal.
    """

    name: NameText = Field(min_length=1, max_length=100)
    description: ProseText = ""
    source: ProseText = ""
    batch: StrictInt = Field(default=1, ge=1, le=65536)
    heads: StrictInt = Field(ge=1, le=4096)
    kv_heads: StrictInt = Field(default=_AS_HEADS, ge=1, le=4096)
    n_q: StrictInt = Field(ge=1, le=2**24)
    n_kv: StrictInt = Field(ge=1, le=2**24)
    head_dim_qk: StrictInt = Field(ge=1, le=4096)
    head_dim_v: StrictInt = Field(ge=1, le=4096)
    dtype: Dtype = "fp16"
    mask: Literal["none"] = "none"

    @field_validator("kv_heads", mode="before")
    @classmethod
    def _default_kv_heads(cls, value: object, info: ValidationInfo) -> object:
        """Fill in as many K/V heads as heads (or 1, unseen, when ``heads`` is itself at fault)."""
        return info.data.get("heads", 1) if value is None else value

    @field_validator("kv_heads")
    @classmethod
    def _check_kv_heads(cls, value: int, info: ValidationInfo) -> int:
        """Refuse a number of K/V heads that does not share the heads out evenly."""
        heads = info.data.get("heads", value)
        if heads % value:
            raise broken_rule(f"must divide heads ({heads})", value)
        return value

    @field_validator("mask", mode="before")
    @classmethod
    def _check_mask(cls, value: object) -> object:
        """Say of other masks that they are not supported, rather than that they are misspelt."""
        if isinstance(value, str) and value != "none":
            raise broken_rule("masks other than 'none' are not supported yet", value)
        return value

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        """Refuse a workload whose counts would not fit 64-bit integers."""
        product = self.scores * max(self.head_dim_qk, self.head_dim_v)
        if product > MAX_PRODUCT:
            rule = "batch * heads * n_q * n_kv * head_dim must be at most 2**56, or cycle counts would overflow"
            raise broken_rule(rule, product)
        return self

    @property
    def bytes_per_element(self) -> int:
        """Bytes of one element of Q, K, V, P or O."""
        return BYTES_PER_ELEMENT[self.dtype]

    @property
    def accumulator_bytes(self) -> int:
        """Bytes of one partial sum."""
        return ACCUMULATOR_BYTES

    @property
    def scores(self) -> int:
        """Elements of C (and of P): ``B * H * N_q * N_kv``."""
        return self.batch * self.heads * self.n_q * self.n_kv

    @property
    def macs(self) -> int:
        """Multiply-accumulates of both products, ``C = Q K^T`` and ``O = P V``: ``scores * (E + F)``."""
        return self.scores * (self.head_dim_qk + self.head_dim_v)

    @property
    def q_bytes(self) -> int:
        """Bytes of Q."""
        return self.batch * self.heads * self.n_q * self.head_dim_qk * self.bytes_per_element

    @property
    def k_bytes(self) -> int:
        """Bytes of K, counting each K/V head once however many heads share it."""
        return self.batch * self.kv_heads * self.n_kv * self.head_dim_qk * self.bytes_per_element

    @property
    def v_bytes(self) -> int:
        """Bytes of V, counting each K/V head once however many heads share it."""
        return self.batch * self.kv_heads * self.n_kv * self.head_dim_v * self.bytes_per_element

    @property
    def o_bytes(self) -> int:
        """Bytes of O."""
        return self.batch * self.heads * self.n_q * self.head_dim_v * self.bytes_per_element

    @property
    def compulsory_bytes(self) -> int:
        """Bytes that any dataflow must move through DRAM: Q, K and V in once, O out once."""
        return self.q_bytes + self.k_bytes + self.v_bytes + self.o_bytes

    @property
    def hash(self) -> str:
        """Twelve hexadecimal digits that identify the content."""
        return content_hash(self)


def load_workload(name_or_path: str | Path) -> Workload:
    """Load a shipped workload by name, or any by path.

    Parameters
    ----------
    name_or_path : str or Path
        Such as ``bert_base``, or the path of a YAML file.

    Returns
    -------
    Workload
        The validated workload.

    Raises
    ------
    ConfigError
        With every fault of the file, or if the name is unknown.
    """
    return load_model(Workload, find_preset("workloads", name_or_path))
