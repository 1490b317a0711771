"""An attention workload: ``O = softmax(Q K^T) V`` for a batch of heads, as read from ``workloads/*.yaml``.

Symbols as in the attention literature: ``B`` batch, ``H`` heads, ``N_q`` and ``N_kv`` sequence lengths, ``E`` head
dimension of Q and K, ``F`` head dimension of V (usually ``F = E``).

Every mask is a band. Row ``i`` of Q stands at position ``i + N_kv - N_q`` among the keys, so the queries are the last
ones of the keys: the lower-right alignment of FlashAttention (since 2.1) and of PyTorch's ``causal_lower_right``. A row
keeps the keys from ``position - back`` to ``position + ahead``, as far as there are such keys.
"""

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, StrictInt, ValidationInfo, field_validator, model_validator

from mas_sim.config import FrozenModel, NameText, ProseText, broken_rule, content_hash, find_preset, load_model

Dtype = Literal["fp16", "bf16", "int8"]
"""Type of Q, K, V, P and O."""

BYTES_PER_ELEMENT: dict[Dtype, int] = {"fp16": 2, "bf16": 2, "int8": 1}
Mask = Literal["none", "causal", "sliding_window"]
"""Which scores count: all; those of keys up to the row's own position; or those of keys near it."""

Accumulator = Literal["fp32", "int32"]
"""Type of the partial sums of a matrix product."""

ACCUMULATOR_BYTES = 4
"""Bytes of one partial sum of a matrix product, whatever its type."""

UNLIMITED = 2**26
"""The side of a band that has no limit: beyond every key, as sequences have at most ``2**24`` rows."""

MAX_PRODUCT = 2**56
"""Largest ``B * H * N_q * N_kv * max(E, F)``: cycle, byte and operation counts stay within 64-bit integers."""

_BY_OTHERS: Any = None  # the default of a field whose value follows from the fields before it


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
    accumulator : {"fp32", "int32"}
        Type of the partial sums: ``int32`` for int8 and ``fp32`` for the others unless given. ``int32`` needs int8.
    mask : {"none", "causal", "sliding_window"}
        Which scores count. Causal: those of keys up to the row's own position. Sliding window: those of keys from
        ``window_back`` before it to ``window_ahead`` after it. Every row must keep at least one key.
    window_back, window_ahead : int or None
        Keys that a sliding window reaches back and ahead, the row's own position not counted. ``window_back`` is
        required with ``sliding_window``, ``window_ahead`` is then 0 unless given; both are None for other masks.
    """

    name: NameText = Field(min_length=1, max_length=100)
    description: ProseText = ""
    source: ProseText = ""
    batch: StrictInt = Field(default=1, ge=1, le=65536)
    heads: StrictInt = Field(ge=1, le=4096)
    kv_heads: StrictInt = Field(default=_BY_OTHERS, ge=1, le=4096)
    n_q: StrictInt = Field(ge=1, le=2**24)
    n_kv: StrictInt = Field(ge=1, le=2**24)
    head_dim_qk: StrictInt = Field(ge=1, le=4096)
    head_dim_v: StrictInt = Field(ge=1, le=4096)
    dtype: Dtype = "fp16"
    accumulator: Accumulator = _BY_OTHERS
    mask: Mask = "none"
    window_back: StrictInt | None = Field(default=None, ge=0, le=2**24)
    window_ahead: StrictInt | None = Field(default=None, ge=0, le=2**24)

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

    @field_validator("accumulator", mode="before")
    @classmethod
    def _default_accumulator(cls, value: object, info: ValidationInfo) -> object:
        """Fill in the accumulator that goes with the element type."""
        by_dtype = "int32" if info.data.get("dtype") == "int8" else "fp32"
        return by_dtype if value is None else value

    @field_validator("accumulator")
    @classmethod
    def _check_accumulator(cls, value: Accumulator, info: ValidationInfo) -> Accumulator:
        """Refuse whole-numbered sums of products that are not whole."""
        dtype = info.data.get("dtype", "int8")
        if value == "int32" and dtype != "int8":
            raise broken_rule(f"int32 sums need dtype int8, not {dtype}", value, "fp32")
        return value

    @field_validator("mask")
    @classmethod
    def _check_mask(cls, value: Mask, info: ValidationInfo) -> Mask:
        """Refuse a causal mask that leaves a row without keys."""
        if value == "causal":
            _check_every_row_keeps_a_key(info, 0, value)
        return value

    @field_validator("window_back", mode="before")
    @classmethod
    def _check_window_back(cls, value: object, info: ValidationInfo) -> object:
        """Refuse a window without its mask, and the mask without its window."""
        if value is None and info.data.get("mask") == "sliding_window":
            raise broken_rule("is required with mask sliding_window", value)
        return _refuse_without_window(value, info)

    @field_validator("window_ahead", mode="before")
    @classmethod
    def _default_window_ahead(cls, value: object, info: ValidationInfo) -> object:
        """Fill in that a sliding window looks no key ahead, and refuse a window without its mask."""
        if value is None and info.data.get("mask") == "sliding_window":
            return 0
        return _refuse_without_window(value, info)

    @field_validator("window_ahead")
    @classmethod
    def _check_window_ahead(cls, value: int | None, info: ValidationInfo) -> int | None:
        """Refuse a sliding window that leaves a row without keys."""
        if value is not None:
            _check_every_row_keeps_a_key(info, value, value)
        return value

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        """Refuse a workload whose counts would not fit 64-bit integers."""
        product = self.scores * max(self.head_dim_qk, self.head_dim_v)
        if product > MAX_PRODUCT:
            rule = "batch * heads * n_q * n_kv * head_dim must be at most 2**56, or cycle counts would overflow"
            raise broken_rule(rule, product)
        return self

    def with_(self, **changes: Any) -> Self:
        """Make a variant of this workload, validated anew, as :meth:`FrozenModel.with_` does.

        A new ``dtype`` brings its own default ``accumulator``, a mask that is no sliding window drops the window, and
        where there are as many K/V heads as heads, they follow a new number of ``heads``; unless the changes name them.

        Parameters
        ----------
        **changes
            New values by name.

        Returns
        -------
        Self
            The variant; this workload stays as it is.

        Raises
        ------
        ConfigError
            If a name does not exist or a value is illegal.
        """
        follow: dict[str, Any] = {}
        if changes.get("dtype", self.dtype) != self.dtype:
            follow["accumulator"] = None
        if changes.get("mask", self.mask) != "sliding_window":
            follow |= {"window_back": None, "window_ahead": None}
        if "heads" in changes and self.kv_heads == self.heads:
            follow["kv_heads"] = None
        return super().with_(**(follow | changes))

    @property
    def band(self) -> tuple[int, int]:
        """Keys that a row keeps before and after its own position; ``UNLIMITED`` where the mask sets no limit."""
        if self.mask == "none":
            return UNLIMITED, UNLIMITED
        if self.window_back is None or self.window_ahead is None:
            return UNLIMITED, 0
        return self.window_back, self.window_ahead

    def key_range(self, row: int) -> tuple[int, int]:
        """Find the keys that a row of Q keeps.

        Parameters
        ----------
        row : int
            The row, from 0 to ``n_q - 1``.

        Returns
        -------
        tuple of int
            The first key kept and the last one plus 1; the same for every head.

        Raises
        ------
        IndexError
            If there is no such row.
        """
        if not 0 <= row < self.n_q:
            raise IndexError(f"row {row} is not in 0..{self.n_q - 1}")
        back, ahead = self.band
        position = row + self.n_kv - self.n_q
        return max(0, position - back), min(self.n_kv, position + ahead + 1)

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
        """Elements of C (and of P), masked ones included: ``B * H * N_q * N_kv``."""
        return self.batch * self.heads * self.n_q * self.n_kv

    @property
    def kept_scores(self) -> int:
        """Elements of C that the mask keeps: ``scores`` less two corners of the band, in closed form.

        Row ``i`` loses ``max(0, i + N_kv - N_q - back)`` keys at the front and ``max(0, N_q - 1 - i - ahead)`` at the
        end. Sums of such terms over the rows are differences of triangular numbers.
        """
        back, ahead = self.band
        in_front = _triangle(self.n_kv - 1 - back) - _triangle(self.n_kv - self.n_q - 1 - back)
        behind = _triangle(self.n_q - 1 - ahead)
        return self.batch * self.heads * (self.n_q * self.n_kv - in_front - behind)

    @property
    def keys_used(self) -> int:
        """Keys of each K/V head that any row keeps: all but those that the first row has left behind.

        The last row stands at the last key, and the ranges of neighbouring rows touch, so nothing else is missing.
        """
        return self.n_kv - self.key_range(0)[0]

    @property
    def macs(self) -> int:
        """Multiply-accumulates of both products, ``C = Q K^T`` and ``O = P V``: ``kept_scores * (E + F)``."""
        return self.kept_scores * (self.head_dim_qk + self.head_dim_v)

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
        """Bytes that any dataflow must move through DRAM: Q and the used rows of K and V in once, O out once."""
        kv_row_bytes = (self.k_bytes + self.v_bytes) // self.n_kv
        return self.q_bytes + kv_row_bytes * self.keys_used + self.o_bytes

    @property
    def hash(self) -> str:
        """Twelve hexadecimal digits that identify the content."""
        return content_hash(self)


def _triangle(n: int) -> int:
    """Sum of 1, 2, ... n; nothing for ``n`` below 1."""
    return n * (n + 1) // 2 if n > 0 else 0


def _refuse_without_window(value: object, info: ValidationInfo) -> object:
    """Refuse one side of a window where the mask (if it is legal at all) has no window."""
    mask = info.data.get("mask", "sliding_window")
    if value is not None and mask != "sliding_window":
        raise broken_rule(f"is only legal with mask sliding_window, not {mask}", value)
    return value


def _check_every_row_keeps_a_key(info: ValidationInfo, ahead: int, value: object) -> None:
    """Refuse a band under which the first row, which stands at ``n_kv - n_q``, ends before the first key."""
    if "n_q" not in info.data or "n_kv" not in info.data:
        return  # at fault themselves
    keyless = info.data["n_q"] - info.data["n_kv"] - ahead
    if keyless > 0:
        rule = (
            f"must leave every row a key, but the first {keyless} rows have none: row i of Q stands at key "
            f"i + n_kv - n_q and looks {ahead} ahead, so n_kv + {ahead} must be at least n_q ({info.data['n_q']})"
        )
        raise broken_rule(rule, value)


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
