"""Pair allocations with frees: when each memory object and each tensor lived, and how much lived at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from pasta.tools.analysis.intervals import Times

#: Kinds of memory that lie on the host: they are no part of a device's footprint.
HOST_KINDS = ("pageable", "pinned", "host_usm")

_TENSOR_KEYS = ("pid", "device_type", "device_index", "address")


def object_lifetimes(alloc: pl.LazyFrame) -> pl.LazyFrame:
    """Return one row a memory object: the `alloc` row that made it and when it lived; see `_pair`."""
    return _pair(alloc, ("pid", "object_id"))


def tensor_lifetimes(tensor: pl.LazyFrame) -> pl.LazyFrame:
    """Return one row a tensor: the `tensor` row that made it and when it lived; see `_pair`."""
    return _pair(tensor, _TENSOR_KEYS)


def _pair(rows: pl.LazyFrame, keys: Sequence[str]) -> pl.LazyFrame:
    """Join each ``alloc`` row with the next row of the same key, which ends the life of what it made.

    Adds ``born_ns`` (null: made before the recording, known from its free only), ``died_ns`` (null: never freed),
    and the positions ``row_alloc`` and ``row_free`` in ``rows`` (null where there is no such row).
    """

    def same(step: int) -> pl.Expr:
        return pl.all_horizontal(pl.col(key).eq_missing(pl.col(key).shift(step)) for key in keys)

    is_alloc = pl.col("action") == "alloc"
    follows, precedes = same(-1), same(1)
    freed_next = follows & (pl.col("action").shift(-1) == "free")
    orphan = ~is_alloc & ~(precedes & (pl.col("action").shift(1) == "alloc"))
    return (
        rows.with_row_index("_row")
        .sort(*keys, "start_ns", maintain_order=True)
        .with_columns(
            born_ns=pl.when(is_alloc).then("start_ns"),
            died_ns=pl.when(~is_alloc).then("start_ns").when(follows).then(pl.col("start_ns").shift(-1)),
            bytes=pl.coalesce("bytes", pl.when(is_alloc & freed_next).then(pl.col("bytes").shift(-1))),
            row_alloc=pl.when(is_alloc).then("_row"),
            row_free=pl.when(~is_alloc).then("_row").when(freed_next).then(pl.col("_row").shift(-1)),
            _kept=is_alloc | orphan,
        )
        .filter("_kept")
        .drop("_row", "_kept")
    )


@dataclass(frozen=True)
class Level:
    """How much memory lived over time: ``bytes[i]`` from ``times[i]`` until ``times[i + 1]``."""

    times: Times
    bytes: Times

    @property
    def peak(self) -> tuple[int, int | None]:
        """The most bytes that lived at once, and since when (None when nothing ever lived)."""
        if not self.bytes.size or self.bytes.max() <= 0:
            return 0, None
        index = int(self.bytes.argmax())
        return int(self.bytes[index]), int(self.times[index])


def level(lifetimes: pl.DataFrame) -> Level:
    """Add up the lives of objects. What was made before the recording lived since time 0 or its first event."""
    sizes = lifetimes["bytes"].fill_null(0).to_numpy()
    born, died = lifetimes["born_ns"], lifetimes["died_ns"]
    start = min((time for time in (0, born.min(), died.min()) if isinstance(time, int)), default=0)
    ended = died.is_not_null().to_numpy()
    times = np.concatenate((born.fill_null(start).to_numpy(), died.drop_nulls().to_numpy()))
    deltas = np.concatenate((sizes, -sizes[ended]))
    # A free and an alloc at the same time: the free comes first, lives are half-open.
    order = np.lexsort((deltas, times))
    return Level(times[order], np.cumsum(deltas[order]))


def alive_at(time: int) -> pl.Expr:
    """Which rows of a lifetimes frame lived at ``time``."""
    born = pl.col("born_ns").is_null() | (pl.col("born_ns") <= time)
    return born & (pl.col("died_ns").is_null() | (pl.col("died_ns") > time))
