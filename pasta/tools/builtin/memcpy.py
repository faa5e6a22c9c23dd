"""Tool `memcpy`: copies and fills of memory by direction and by the kinds of memory at both ends."""

from __future__ import annotations

import polars as pl

from pasta.tools import Result, ResultColumn, ResultTable, Tool, ToolOptions, TraceView
from pasta.tools.analysis import callstats
from pasta.tools.describe import no_data

_KEYS = ("kind", "src", "dst")


class Memcpy(Tool):
    name = "memcpy"
    summary = "count, bytes, time and throughput of copies and fills"

    def run(self, trace: TraceView, options: ToolOptions) -> Result:
        if "memcpy" not in trace.present and "memset" not in trace.present:
            return no_data(self.name, trace, ["memcpy"])
        moves = pl.concat([_copies(trace), _fills(trace)])
        sizes = moves.group_by(_KEYS).agg(
            pl.when(pl.col("bytes").is_not_null().any()).then(pl.col("bytes").sum()).alias("bytes"),
            pl.col("bytes").filter(pl.col("duration_ns") > 0).sum().alias("timed_bytes"),
            pl.col("bytes").mean().alias("mean_bytes"),
            pl.when(pl.col("asynchronous").is_not_null().any())
            .then(pl.col("asynchronous").mean() * 100)
            .alias("asynchronous"),
        )
        seconds = pl.when(pl.col("total_ns") > 0).then(pl.col("total_ns") / 1e9)
        histogram = callstats.histogram(moves, _KEYS)
        rows = (
            callstats.statistics([histogram], _KEYS)
            .join(sizes.collect(), on=list(_KEYS), how="left", maintain_order="left", nulls_equal=True)
            .with_columns((pl.col("timed_bytes") / seconds).alias("throughput"))
        )
        columns = [
            ResultColumn("kind", key=True),
            ResultColumn("src", title="from", key=True),
            ResultColumn("dst", title="to", key=True),
            *callstats.COLUMNS,
        ]
        columns[4:4] = [
            ResultColumn("bytes", "bytes", "moved", merge="sum"),
            ResultColumn("throughput", "bytes/s"),
            ResultColumn("mean_bytes", "bytes", "mean size", merge="mean:calls"),
        ]
        columns.append(ResultColumn("asynchronous", "%", "asynchronous"))
        samples = callstats.samples([histogram], _KEYS)
        table = ResultTable("memcpy", rows, tuple(columns), title="Copies and fills", samples=samples)
        return Result(self.name, [table])


def _copies(trace: TraceView) -> pl.LazyFrame:
    return trace.table("memcpy").select(
        pl.col("kind").fill_null("unknown"),
        _memory("src_kind").alias("src"),
        _memory("dst_kind").alias("dst"),
        "bytes",
        "asynchronous",
        callstats.duration(),
    )


def _fills(trace: TraceView) -> pl.LazyFrame:
    return trace.table("memset").select(
        pl.lit("fill").alias("kind"),
        pl.lit(None, pl.String).alias("src"),
        _memory("memory_kind").alias("dst"),
        "bytes",
        pl.lit(None, pl.Boolean).alias("asynchronous"),
        callstats.duration(),
    )


def _memory(column: str) -> pl.Expr:
    return pl.when(pl.col(column) != "unknown").then(pl.col(column))
