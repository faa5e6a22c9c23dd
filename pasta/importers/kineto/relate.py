"""Completes the rows of one Kineto file when all of it was read, and writes them: who launched what, whose it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from pasta.importers.base import Report, Sink
from pasta.importers.kineto.names import wait_of
from pasta.importers.kineto.ops import (
    API_COLUMNS,
    MARK_COLUMNS,
    MARKS,
    OP_COLUMNS,
    RANGE_COLUMNS,
    TENSOR_COLUMNS,
    place,
    range_parents,
)
from pasta.importers.spool import Spool

#: Calls whose grid Kineto's ROCm code reads from ``globalWorkSize``: work-items, not blocks.
_WORK_ITEM_CALLS = ("hipExtModuleLaunchKernel", "hipHccModuleLaunchKernel")
_TIMES = ("start_ns", "end_ns", "queued_ns", "submitted_ns")
_AXES = ("x", "y", "z")


@dataclass(frozen=True)
class Owner:
    """Whose the rows of a file are, and what to take off its times."""

    #: New pid of each process in the file.
    pids: Mapping[int, int]
    #: Process of the device work.
    main: int
    rank: int | None
    shift_ns: int


def write(spool: Spool, owner: Owner, sink: Sink, report: Report) -> None:
    """Complete the spooled rows of a file and give them to ``sink``."""
    writer = _Writer(spool, owner, sink)
    placed = place(
        spool.columns("op", *OP_COLUMNS),
        spool.columns("api", *API_COLUMNS),
        spool.columns("tensor", *TENSOR_COLUMNS),
        spool.columns("range", *MARK_COLUMNS, keep=MARKS),
    )
    if placed.renumbered:
        report.unmatched["operators whose id another operator has too (renumbered)"] += placed.renumbered
    writer.table("op", placed.op, module=pl.coalesce("module", "_modules"))
    writer.table("api", placed.api)
    writer.table("tensor", placed.tensor)
    ranges = spool.columns("range", *RANGE_COLUMNS)
    range_ids = pl.select(range_id=pl.int_range(1, ranges.height + 1, dtype=pl.Int64))
    writer.table("range", range_ids.with_columns(range_parents(ranges)), kind=pl.lit("push_pop"))
    _write_device_work(spool, writer, placed.op["op_id"], placed.api["op_id"], report)


def _write_device_work(spool: Spool, writer: _Writer, op_ids: pl.Series, on_apis: pl.Series, report: Report) -> None:
    calls = _calls(spool, on_apis, report)
    externals = _externals(spool, op_ids)
    launches = _launch_ids(spool, calls)
    for table in ("kernel", "memcpy", "memset", "sync", "collective"):
        orphans = early = row = 0
        for frame in spool.frames(table):
            linked = frame.join(calls, on="correlation_id", how="left", maintain_order="left")
            linked = linked.join(externals, on="_external", how="left", maintain_order="left")
            linked = linked.with_columns(op_id=pl.coalesce("op_id", "_named_op"))
            if table == "kernel":
                linked = _in_blocks(linked).with_columns(launches.slice(row, frame.height))
            elif table in ("memcpy", "memset"):
                linked = linked.with_columns(bytes=pl.coalesce("bytes", "_call_bytes"))
            writer.frame(table, linked)
            orphans += linked["_call_start"].null_count()
            early += linked.select((pl.col("start_ns") < pl.col("_call_start")).sum()).item()
            row += frame.height
        if table in ("kernel", "memcpy", "memset"):
            if orphans:
                report.unmatched[f"{table} without its launch call in the file"] += orphans
            if early:
                report.unmatched[f"{table} that starts before its launch call"] += early
    if not any(True for _ in spool.frames("sync")):
        _write_waits(spool, writer, on_apis, report)


def _calls(spool: Spool, on_apis: pl.Series, report: Report) -> pl.DataFrame:
    """Return what device work takes over from the call with its correlation id: one row for each id."""
    columns = ("correlation_id", "start_ns", "thread_id", "name", "_bytes")
    calls = spool.columns("api", *columns).with_columns(op_id=on_apis)
    calls = calls.filter(pl.col("correlation_id").is_not_null())
    unique = calls.unique("correlation_id", keep="first", maintain_order=True)
    if calls.height > unique.height:
        report.unmatched["runtime calls whose correlation id another has too"] += calls.height - unique.height
    return unique.rename({"start_ns": "_call_start", "name": "_call", "_bytes": "_call_bytes"})


def _externals(spool: Spool, op_ids: pl.Series) -> pl.DataFrame:
    """Return the operator that each ``External id`` of device work names; nothing where it is a correlation id."""
    apis = spool.columns("api", "_external", "correlation_id").drop_nulls()
    names = spool.columns("op", "_external").with_columns(_named_op=op_ids).unique("_external", keep="first")
    is_correlation = apis.height and (apis["_external"] == apis["correlation_id"]).all()
    return names.clear() if is_correlation else names.drop_nulls()


def _launch_ids(spool: Spool, calls: pl.DataFrame) -> pl.Series:
    """Number the kernels in the order of their launch calls, those launched before the file began first."""
    kernels = spool.columns("kernel", "correlation_id", "start_ns")
    starts = calls.select("correlation_id", "_call_start")
    linked = kernels.join(starts, on="correlation_id", how="left", maintain_order="left")
    called = linked["_call_start"].is_not_null().to_numpy()
    order = np.lexsort((linked["start_ns"].to_numpy(), linked["_call_start"].fill_null(0).to_numpy(), called))
    numbers = np.empty(len(order), dtype=np.int64)
    numbers[order] = np.arange(1, len(order) + 1)
    return pl.Series("launch_id", numbers)


def _in_blocks(kernels: pl.DataFrame) -> pl.DataFrame:
    """Turn the grids that are counted in work-items into blocks, and say how many work-items there are."""
    items = pl.col("_call").is_in(_WORK_ITEM_CALLS)
    exprs = []
    for axis in _AXES:
        grid, block = pl.col(f"grid_{axis}"), pl.col(f"block_{axis}")
        blocks = (grid.cast(pl.Int64) + block - 1) // block
        exprs.append(pl.when(items & (block > 0)).then(blocks).otherwise(grid).alias(f"grid_{axis}"))
        exprs.append(pl.when(items).then(grid.cast(pl.Int64)).alias(f"global_{axis}"))
    return kernels.with_columns(exprs)


def _write_waits(spool: Spool, writer: _Writer, on_apis: pl.Series, report: Report) -> None:
    """Make `sync` rows of the runtime calls that wait: without ``cuda_sync`` events there are no better ones."""
    count = 0
    for frame, ops in zip(spool.frames("api"), _slices(on_apis.to_frame(), spool.frames("api")), strict=True):
        waits = frame.hstack(ops).with_columns(
            kind=pl.col("name").map_elements(wait_of, return_dtype=pl.String, skip_nulls=True)
        )
        waits = waits.filter(pl.col("kind").is_not_null())
        count += waits.height
        writer.frame("sync", waits.drop("api", "name"))
    if count:
        report.notes.append(f"{count} waits were taken from runtime calls: the file has no cuda_sync events")


def _slices(frame: pl.DataFrame, like: Iterable[pl.DataFrame]) -> Iterable[pl.DataFrame]:
    """Cut ``frame`` into pieces as high as the frames of ``like``."""
    start = 0
    for part in like:
        yield frame.slice(start, part.height)
        start += part.height


class _Writer:
    """Puts the owner on rows, moves their times, and leaves out the columns that only relating needed."""

    def __init__(self, spool: Spool, owner: Owner, sink: Sink) -> None:
        self._spool = spool
        self._owner = owner
        self._sink = sink

    def table(self, table: str, columns: pl.DataFrame, **more: pl.Expr) -> None:
        """Write the rows of ``table`` with more ``columns``, as high as the whole table, and ``more`` from all."""
        for frame, extra in zip(self._spool.frames(table), _slices(columns, self._spool.frames(table)), strict=True):
            self.frame(table, frame.with_columns(*extra.get_columns()).with_columns(**more))

    def frame(self, table: str, frame: pl.DataFrame) -> None:
        """Write ``frame``."""
        owner = self._owner
        own_pid = pl.col("_pid") if "_pid" in frame.columns else pl.lit(None, pl.Int64)
        own_rank = pl.col("_rank") if "_rank" in frame.columns else pl.lit(None, pl.Int64)
        times = [pl.col(name) - owner.shift_ns for name in _TIMES if name in frame.columns]
        pid = own_pid.replace_strict(dict(owner.pids), default=owner.main, return_dtype=pl.Int32)
        rank = pl.coalesce(own_rank, pl.lit(owner.rank, pl.Int64)).cast(pl.Int32, strict=False)
        columns = frame.with_columns(*times, pid=pid, rank=rank)
        self._sink.append(table, columns.select(name for name in columns.columns if not name.startswith("_")))
