"""Tool `events`: everything that happened, in the order of time."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from pasta.errors import PastaError
from pasta.schema import TABLES
from pasta.tools import Result, ResultColumn, ResultTable, Tool, ToolOptions, TraceView, option
from pasta.tools.describe import no_data

#: How each table names its events; tables that describe things rather than events are not listed.
_NAMES: dict[str, pl.Expr] = {
    "api": pl.col("name"),
    "kernel": pl.col("name"),
    "memcpy": pl.col("kind"),
    "memset": pl.lit("fill"),
    "sync": pl.col("kind"),
    "alloc": pl.format("{} {}", pl.col("action"), pl.col("kind").fill_null("")).str.strip_chars(),
    "uvm": pl.col("kind"),
    "op": pl.col("name"),
    "tensor": pl.col("action"),
    "range": pl.col("name"),
    "collective": pl.col("kind"),
    "build": pl.lit("build"),
    "loss": pl.col("cause"),
}
_OPTIONAL = ("end_ns", "device_id", "stream_id", "thread_id", "bytes")


class Events(Tool):
    name = "events"
    summary = "everything in the order of time"

    @dataclass(frozen=True)
    class Options(ToolOptions):
        only: str = option("", "tables to list, separated by commas, for example kernel,memcpy")
        rows: int = option(1000, "at most so many events, the earliest")

    def run(self, trace: TraceView, options: Options) -> Result:
        wanted = [name.strip() for name in options.only.split(",") if name.strip()] or list(_NAMES)
        for name in wanted:
            if name not in _NAMES:
                raise PastaError(f"events cannot list {name!r}", f"use some of {', '.join(_NAMES)}")
        listed = [_listed(trace, name) for name in wanted if name in trace.present]
        if not listed:
            return no_data(self.name, trace, wanted)
        events = pl.concat(listed).sort("start_ns", "end_ns", descending=[False, True], nulls_last=True)
        frame = events.head(max(options.rows, 0)).drop("end_ns").collect()
        columns = (
            ResultColumn("start_ns", "ns", "at"),
            ResultColumn("duration_ns", "ns"),
            ResultColumn("table"),
            ResultColumn("name"),
            ResultColumn("bytes", "bytes"),
            ResultColumn("device_id", "id", "device"),
            ResultColumn("stream_id", "id", "stream"),
            ResultColumn("thread_id", "id", "thread"),
            ResultColumn("pid", "id", "process"),
            ResultColumn("rank", "id"),
        )
        note = f"the first {frame.height}; --rows lists more" if frame.height == options.rows else ""
        return Result(self.name, [ResultTable("events", frame, columns, title="Events", top=50, note=note)])


def _listed(trace: TraceView, name: str) -> pl.LazyFrame:
    own = {column.name for column in TABLES[name].columns}
    dtypes = {"end_ns": pl.Int64, "bytes": pl.Int64}
    columns = [
        pl.col(column) if column in own else pl.lit(None, dtypes.get(column, pl.Int32)).alias(column)
        for column in _OPTIONAL
    ]
    duration = (pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns")
    return (
        trace.table(name)
        .select("start_ns", *columns, pl.lit(name).alias("table"), _NAMES[name].alias("name"), "pid", "rank")
        .with_columns(duration)
    )
