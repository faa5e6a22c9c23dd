"""Tool `api`: the calls of device runtimes and drivers, by function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from pasta.tools import Result, ResultColumn, ResultTable, Tool, ToolOptions, TraceView
from pasta.tools.analysis import callstats

_KEYS = ("function", "api")


@dataclass(frozen=True)
class Part:
    """What one process adds: durations of each function, and how many of its calls did not return success."""

    durations: pl.DataFrame
    failures: pl.DataFrame


class Api(Tool):
    name = "api"
    summary = "time in calls of the device's runtime and driver"
    needs = frozenset({"api"})

    def run(self, trace: TraceView, options: ToolOptions) -> Result:
        return self.combine([self.partial(trace, options)], options)

    def partial(self, trace: TraceView, options: ToolOptions) -> Part:
        """Count durations and failures of the calls of one process."""
        calls = trace.table("api").with_columns(
            pl.col("name").fill_null("(unnamed)").alias("function"), callstats.duration()
        )
        failed = (pl.col("result") != 0).sum().cast(pl.Int64)
        known = pl.col("result").is_not_null().any()
        failures = calls.group_by(_KEYS).agg(pl.when(known).then(failed).alias("failed"))
        return Part(callstats.histogram(calls, _KEYS), failures.collect())

    def combine(self, parts: Sequence[Part], options: ToolOptions) -> Result:
        """Make the table from the parts of all processes."""
        histograms = [part.durations for part in parts]
        failed = pl.when(pl.col("failed").is_not_null().any()).then(pl.col("failed").sum())
        failures = pl.concat([part.failures for part in parts]).group_by(_KEYS).agg(failed)
        rows = (
            callstats.statistics(histograms, _KEYS)
            .join(failures, on=list(_KEYS), how="left", maintain_order="left", nulls_equal=True)
            .with_columns(callstats.shares("total_ns").alias("share"))
        )
        columns = [ResultColumn("function", key=True), ResultColumn("api", key=True), *callstats.COLUMNS]
        columns.insert(4, ResultColumn("share", "%", "of call time", merge="sum", bar=True))
        columns.append(ResultColumn("failed", "count", "result not 0", merge="sum"))
        samples = callstats.samples(histograms, _KEYS)
        table = ResultTable("api", rows, tuple(columns), title="API calls", top=30, samples=samples)
        return Result(self.name, [table])
