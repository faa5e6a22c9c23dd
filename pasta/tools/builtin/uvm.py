"""Tool `uvm`: what unified memory did: migrations, faults and thrashing, by kind, cause and direction."""

from __future__ import annotations

import polars as pl

from pasta.tools import Finding, Result, ResultColumn, ResultTable, Tool, ToolOptions, TraceView
from pasta.tools.analysis import callstats
from pasta.tools.units import grouped, size

_KEYS = ("kind", "cause")


class Uvm(Tool):
    name = "uvm"
    summary = "migrations and faults of unified memory"
    needs = frozenset({"uvm"})

    def run(self, trace: TraceView, options: ToolOptions) -> Result:
        events = trace.table("uvm").with_columns(callstats.duration(), pl.col("kind").fill_null("unknown"))
        moved = events.group_by(_KEYS).agg(
            pl.when(pl.col("bytes").is_not_null().any()).then(pl.col("bytes").sum()).alias("bytes"),
            pl.col("bytes").mean().alias("mean_bytes"),
            pl.col("count").fill_null(1).sum().alias("count"),
        )
        histogram = callstats.histogram(events, _KEYS)
        seconds = pl.when(pl.col("total_ns") > 0).then(pl.col("total_ns") / 1e9)
        rows = (
            callstats.statistics([histogram], _KEYS)
            .join(moved.collect(), on=list(_KEYS), how="left", maintain_order="left", nulls_equal=True)
            .with_columns((pl.col("bytes") / seconds).alias("throughput"))
        )
        columns = [ResultColumn("kind", key=True), ResultColumn("cause", key=True), *callstats.COLUMNS]
        columns[2] = ResultColumn("calls", "count", "records", merge="sum")
        columns[3:3] = [
            ResultColumn("count", "count", "faults or events", merge="sum"),
            ResultColumn("bytes", "bytes", "moved", merge="sum"),
            ResultColumn("mean_bytes", "bytes", "mean size", merge="mean:calls"),
            ResultColumn("throughput", "bytes/s"),
        ]
        return Result(self.name, [ResultTable("uvm", rows, tuple(columns), title="Unified memory")], findings(rows))


def findings(rows: pl.DataFrame) -> list[Finding]:
    """Say what the migrations of a summary (rows of this tool's table) call for."""
    found = []
    faults = rows.filter(pl.col("kind") == "fault_gpu")
    moved = rows.filter(pl.col("kind").is_in(["migrate_h2d", "migrate_d2h"]))
    if faults.height and moved.height:
        count, moved_bytes = int(faults["count"].sum()), int(moved["bytes"].sum())
        mean = moved_bytes / int(moved["calls"].sum())
        found.append(
            Finding(
                "uvm-faults",
                "medium",
                f"kernels faulted {grouped(count)} times on unified memory; "
                f"{size(moved_bytes)} moved in pieces of {size(mean)}",
                cost_ns=int(faults["total_ns"].sum()) or None,
                remedy="prefetch what a kernel reads before launching it, or advise where the memory should live",
                evidence={"faults": count, "bytes": moved_bytes, "mean_bytes": round(mean)},
            )
        )
    thrash = rows.filter(pl.col("kind").is_in(["thrash", "throttle"]))
    if thrash.height:
        count = int(thrash["count"].sum())
        found.append(
            Finding(
                "uvm-thrash",
                "high",
                f"pages went back and forth between host and device: {grouped(count)} thrashing or throttling events",
                cost_ns=int(thrash["total_ns"].sum()) or None,
                remedy="use the memory on one side at a time, or keep read-only data on both with a read-mostly advice",
                evidence={"events": count},
            )
        )
    return found
