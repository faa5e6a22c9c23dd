"""Where device work came from: when the host launched it, the operator and the range that were open then."""

from __future__ import annotations

import numpy as np
import polars as pl

from pasta.tools.base import TraceView


def add_launch(rows: pl.LazyFrame, calls: pl.LazyFrame | None) -> pl.LazyFrame:
    """Add ``launched_ns`` and ``launch_thread`` to device rows; ``calls`` is the `api` table, when there is one.

    The launch is when the row was queued, else when its API call began, else when the device began.
    """
    if calls is None:
        return rows.with_columns(pl.coalesce("queued_ns", "start_ns").alias("launched_ns"), launch_thread="thread_id")
    first = (
        calls.filter(pl.col("correlation_id").is_not_null())
        .group_by("pid", "correlation_id")
        .agg(pl.col("start_ns").min().alias("_call"), pl.col("thread_id").first().alias("_thread"))
    )
    return (
        rows.join(first, on=["pid", "correlation_id"], how="left")
        .with_columns(
            pl.coalesce("queued_ns", "_call", "start_ns").alias("launched_ns"),
            pl.coalesce("thread_id", "_thread").alias("launch_thread"),
        )
        .drop("_call", "_thread")
    )


def launched(trace: TraceView, rows: pl.LazyFrame) -> pl.LazyFrame:
    """Add ``launched_ns`` and ``launch_thread`` to rows of a device table of ``trace``."""
    return add_launch(rows, trace.table("api") if "api" in trace.present else None)


def add_op(trace: TraceView, rows: pl.LazyFrame, *columns: str) -> pl.LazyFrame:
    """Add to ``rows`` the operator that launched each: ``op`` (its name) and more ``columns`` of the op table."""
    if "op" not in trace.present:
        return rows.with_columns(pl.lit(None, pl.String).alias(name) for name in ("op", *columns))
    # The op table may be far longer than the rows: keep what they use before joining.
    used = rows.select("pid", "op_id").drop_nulls().unique()
    wanted = ["pid", "op_id", pl.col("name").alias("op"), *columns]
    ops = trace.table("op").join(used, on=["pid", "op_id"], how="semi").select(wanted)
    return rows.join(ops.unique(["pid", "op_id"], keep="first", maintain_order=True), on=["pid", "op_id"], how="left")


def add_call(trace: TraceView, rows: pl.LazyFrame) -> pl.LazyFrame:
    """Add to ``rows`` the API call that made each: ``function`` (its name)."""
    if "api" not in trace.present:
        return rows.with_columns(pl.lit(None, pl.String).alias("function"))
    ids = ["pid", "correlation_id"]
    used = rows.select(ids).drop_nulls().unique()
    calls = trace.table("api").join(used, on=ids, how="semi").select(*ids, pl.col("name").alias("function"))
    return rows.join(calls.unique(ids, keep="first", maintain_order=True), on=ids, how="left")


def innermost_range(trace: TraceView, launches: pl.DataFrame) -> pl.Series:
    """Return the name of the innermost push/pop range open at each launch, null where none was.

    ``launches`` has ``pid``, ``launch_thread`` and ``launched_ns``. A thread that opens no range itself, as the
    backward threads of PyTorch, takes those of its process: the one opened last and, if closed, its parents.
    """
    ranges = (
        trace.table("range")
        .filter(pl.col("kind") == "push_pop")
        .select("pid", "thread_id", "range_id", "parent_id", "name", "start_ns", pl.col("end_ns").fill_null(2**62))
        .sort("start_ns", maintain_order=True)
        .with_row_index("_range")
        .collect()
    )
    if ranges.is_empty():
        return pl.Series("range", [None] * launches.height, dtype=pl.String)
    opened = ranges.select("pid", "thread_id", "_range", pl.col("start_ns").alias("_opened"))
    rows = launches.with_row_index("_row").sort("launched_ns")
    threads = opened.select("pid", "thread_id").unique()
    own = rows.join(
        threads, left_on=["pid", "launch_thread"], right_on=["pid", "thread_id"], how="semi", maintain_order="left"
    )
    others = rows.join(own, on="_row", how="anti", maintain_order="left")
    by_thread = own.join_asof(
        opened,
        left_on="launched_ns",
        right_on="_opened",
        by_left=["pid", "launch_thread"],
        by_right=["pid", "thread_id"],
        check_sortedness=False,
    )
    by_process = others.join_asof(opened, left_on="launched_ns", right_on="_opened", by="pid", check_sortedness=False)
    columns = ["_row", "launched_ns", "_range"]
    found = pl.concat([by_thread.select(columns), by_process.select(columns)]).sort("_row")
    index = found["_range"].cast(pl.Int64).fill_null(-1).to_numpy().copy()
    times, ends, parents = found["launched_ns"].to_numpy(), ranges["end_ns"].to_numpy(), _parents(ranges)
    closed = np.flatnonzero((index >= 0) & (ends[index] <= times))
    for _ in range(ranges.height):  # a cycle of parents in a damaged trace must end
        if not closed.size:
            break
        index[closed] = parents[index[closed]]
        closed = closed[(index[closed] >= 0) & (ends[index[closed]] <= times[closed])]
    return pl.Series("range", ranges["name"].gather(pl.Series(index).replace(-1, None)))


def _parents(ranges: pl.DataFrame) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return for each range the position of its parent, -1 where it has none."""
    ids = ranges.select("pid", parent_id="range_id", _parent="_range").unique(["pid", "parent_id"])
    joined = ranges.select("pid", "parent_id").join(ids, on=["pid", "parent_id"], how="left", maintain_order="left")
    return joined["_parent"].cast(pl.Int64).fill_null(-1).to_numpy()
