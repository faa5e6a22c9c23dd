"""Read a table in order of time and in bounded memory, although a trace does not store it in that order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import polars as pl

#: Rows that a window aims at. Only rows that start in the same nanosecond can make it much larger.
WINDOW_ROWS = 1 << 17
#: A span of time is divided into this many bins to find windows that hold about as many rows each.
BINS = 4096

_start = pl.col("start_ns")


def in_order(table: pl.LazyFrame, ties: Sequence[pl.Expr] = ()) -> Iterator[pl.DataFrame]:
    """Yield the rows of ``table`` that have a ``start_ns`` as frames, in ascending order of it, then of ``ties``.

    Passes over ``start_ns`` alone find the windows; then each is read and sorted by itself. Parquet statistics let a
    window skip what is far away, since rows are stored nearly in order of time.
    """
    bounds = table.select(_start.min(), _start.max().alias("last"), _start.count().alias("rows"))
    first, last, rows = bounds.collect(engine="streaming").row(0)
    if first is None:
        return
    edges = [first, *_inner_edges(table, first, last + 1, rows), last + 1]
    for low, high in pairwise(edges):
        window = table.filter(_start.is_between(low, high, closed="left")).collect()
        if window.height:
            yield window.sort([_start, *ties], maintain_order=True)


def _inner_edges(table: pl.LazyFrame, low: int, high: int, rows: int) -> Iterator[int]:
    """Yield times between ``low`` and ``high``, ascending, with about ``WINDOW_ROWS`` rows between neighbours."""
    if rows <= WINDOW_ROWS or high - low <= 1:
        return
    width = (high - low) // BINS + 1
    bins = (
        table.filter(_start.is_between(low, high, closed="left"))
        .group_by(((_start - low) // width).alias("bin"))
        .agg(pl.len())
        .sort("bin")
        .collect(engine="streaming")
    )
    held = 0
    for number, count in bins.iter_rows():
        edge = low + number * width
        if held and held + count > WINDOW_ROWS:
            yield edge
            held = 0
        if count > 2 * WINDOW_ROWS:
            yield from _inner_edges(table, edge, min(edge + width, high), count)
        held += count
