"""Tool `sync`: how long the host waited for the device, what for, and which operator or call made it wait."""

from __future__ import annotations

import polars as pl

from pasta.tools import Result, ResultColumn, ResultTable, Tool, ToolOptions, TraceView
from pasta.tools.analysis import activity, callstats
from pasta.tools.analysis.launches import add_call, add_op

_KEYS = ("kind", "function", "op")


class Sync(Tool):
    name = "sync"
    summary = "waits of the host for the device"
    needs = frozenset({"sync"})

    def run(self, trace: TraceView, options: ToolOptions) -> Result:
        waits = add_op(trace, add_call(trace, trace.table("sync").with_columns(pl.col("kind").fill_null("unknown"))))
        histogram = callstats.histogram(waits.with_columns(callstats.duration()), _KEYS)
        wall = activity.windows(trace).measure
        share = pl.when(wall > 0).then(pl.col("total_ns") * 100 / wall).alias("share")
        rows = callstats.statistics([histogram], _KEYS).with_columns(share)
        columns = [*(ResultColumn(key, key=True) for key in _KEYS), *callstats.COLUMNS]
        columns.insert(5, ResultColumn("share", "%", "of wall", merge="sum", bar=True))
        note = "stream_event is a wait of a stream, not of the host" if "stream_event" in rows["kind"] else ""
        table = ResultTable("sync", rows, tuple(columns), title="Waits", note=note,
                            samples=callstats.samples([histogram], _KEYS))  # fmt: skip
        return Result(self.name, [table])
