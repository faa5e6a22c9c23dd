"""Join NCCL's calls with the kernels that carry them out, when a recording is sealed.

`collective` is recorded in two halves. A kernel says when and where it ran, and by its name what it is; a call, which
NCCL annotates with NVTX, says what it sends: kind, bytes, communicator, peer. They meet on the thread: a call launches
its kernel before it returns, or, within a group, leaves that to the end of the group.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

_CALL = ("kind", "bytes", "group", "group_size", "peer")


def join_calls(collectives: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """Return ``collectives`` with a row for each call, at the time and place of its kernel.

    Calls are the rows without `correlation_id` and device; ``launches`` has `pid`, `correlation_id` and `called_ns`,
    when each kernel was launched. Calls without a kernel stay at the time of the call, kernels without a call as they
    are.
    """
    rows = collectives.with_row_index("row")
    calls = rows.filter(pl.col("correlation_id").is_null(), pl.col("device_id").is_null())
    kernels = rows.filter(pl.col("correlation_id").is_not_null()).join(
        launches, on=["pid", "correlation_id"], how="left", maintain_order="left"
    )
    if calls.is_empty() or kernels.is_empty():
        return collectives
    pairs = pl.DataFrame(list(_pairs(calls, kernels)), schema={"row": pl.UInt32, "call": pl.UInt32}, orient="row")
    if pairs.is_empty():
        return collectives
    said = calls.select(pl.col("row").alias("call"), *_CALL)
    joined = (
        pairs.join(rows.drop(_CALL), on="row", how="left", maintain_order="left")
        .join(said, on="call", how="left", maintain_order="left")
        .select(collectives.columns)
    )
    matched = pl.concat([pairs["row"], pairs["call"]]).unique()
    rest = rows.filter(~pl.col("row").is_in(matched.implode())).drop("row")
    return pl.concat([joined, rest])


def _pairs(calls: pl.DataFrame, kernels: pl.DataFrame) -> Iterator[tuple[int, int]]:
    """Yield the rows of a kernel and of a call that it carries out."""
    key = ["pid", "thread_id"]
    columns = [*key, "at", "end_ns", "row", "is_kernel"]  # `at`: when it was called, or launched
    events = pl.concat(
        [
            calls.with_columns(at="start_ns", is_kernel=False).select(columns),
            kernels.with_columns(at="called_ns", is_kernel=True).select(columns),
        ]
    )
    events = events.drop_nulls([*key, "at", "end_ns"]).sort(*key, "at", maintain_order=True)
    for _, thread in events.group_by(key, maintain_order=True):
        waiting: list[tuple[int, int]] = []  # calls without a kernel yet: row, end
        group: list[int] = []  # kernels launched after them, at the end of a group
        for at, end, row, is_kernel in thread.select("at", "end_ns", "row", "is_kernel").iter_rows():
            if not is_kernel:
                if group:
                    yield from _carry_out(group, waiting)
                    waiting, group = [], []
                waiting.append((row, end))
            elif not group and waiting and at <= waiting[-1][1]:  # launched by the call itself
                yield row, waiting[-1][0]
                waiting = []
            else:
                group.append(row)
        yield from _carry_out(group, waiting)


def _carry_out(kernels: list[int], calls: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield kernels and calls of one group: one each, as on several devices, or all calls in the first kernel."""
    if not kernels:
        return
    if len(kernels) != len(calls):
        kernels = kernels[:1] * len(calls)
    for kernel, (call, _) in zip(kernels, calls, strict=True):
        yield kernel, call
