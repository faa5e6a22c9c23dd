"""What sealing does to rows, as functions on frames: shift times, merge identity rows, sum losses, order by time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import polars as pl

from pasta.schema import Table

#: Columns that are points in time (`clock.source_ns` and `error_ns` are of other clocks).
TIME_COLUMNS = ("start_ns", "end_ns", "queued_ns", "submitted_ns")


def shift_times(frame: pl.DataFrame, nanoseconds: int) -> pl.DataFrame:
    """Return ``frame`` with ``nanoseconds`` added to every point in time."""
    return frame.with_columns(pl.col(name) + nanoseconds for name in TIME_COLUMNS if name in frame.columns)


def merge_identity(frame: pl.DataFrame, table: Table) -> pl.DataFrame:
    """Return one row a key of the identity ``table``: of each column the last value that is not null."""
    if frame.is_empty():
        return frame
    others = pl.exclude(*table.key).drop_nulls().last()
    return frame.group_by(table.key, maintain_order=True).agg(others).select(frame.columns)


def sum_losses(frame: pl.DataFrame) -> pl.DataFrame:
    """Return one row for rows of `loss` that tell the same of one process.

    The sum is null where one of them is: rows lost plus an unknown number are an unknown number.
    """
    known = pl.when(pl.col("records").is_null().any()).then(None).otherwise(pl.col("records").sum())
    return (
        frame.group_by("pid", "rank", "source", "table", "cause", "remedy", maintain_order=True)
        .agg(pl.min("start_ns"), pl.max("end_ns"), known.alias("records"))
        .select(frame.columns)
    )


def sort_by_start(frame: pl.DataFrame) -> pl.DataFrame:
    """Return ``frame`` in the order of `start_ns`, rows without one last, equal ones as they were."""
    if "start_ns" not in frame.columns:
        return frame
    return frame.sort("start_ns", nulls_last=True, maintain_order=True)


def merge_by_start(batches: Iterable[tuple[pl.DataFrame, int | None]], limit: int) -> Iterator[pl.DataFrame]:
    """Yield the rows of ``batches`` in the order of `start_ns`, holding few of them.

    With each batch comes the earliest `start_ns` of all batches after it, or None for the last. Batches ordered by
    their earliest start overlap little, so most rows can go as soon as they came. When more than ``limit`` rows
    would have to be held they are yielded all the same, and later rows may then start before them.
    """
    held: list[pl.DataFrame] = []
    for batch, horizon in batches:
        rows = sort_by_start(pl.concat([*held, batch]))
        done = rows.height
        if horizon is not None and done <= limit:
            starts = rows["start_ns"].drop_nulls()  # the nulls stand last
            done = int(starts.search_sorted(horizon, side="left"))
        if done:
            yield rows.head(done)
        held = [rows.slice(done)]
    for rows in held:
        if rows.height:
            yield rows
