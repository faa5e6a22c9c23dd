"""Tool `ranges`: host time of annotated ranges, and the device time of what was launched within them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from pasta.tools import Result, ResultColumn, ResultTable, Tool, ToolOptions, TraceView
from pasta.tools.analysis import callstats
from pasta.tools.analysis.intervals import Times
from pasta.tools.analysis.launches import launched
from pasta.tools.filters import DEVICE_TABLES

_KEYS = ("range", "domain")


class Ranges(Tool):
    name = "ranges"
    summary = "host and device time of annotated ranges"
    needs = frozenset({"range"})

    def run(self, trace: TraceView, options: ToolOptions) -> Result:
        ranges = (
            trace.table("range")
            .filter(pl.col("kind").ne_missing("mark"), pl.col("start_ns").is_not_null())
            .select(
                "pid",
                "thread_id",
                "start_ns",
                "end_ns",
                "domain",
                callstats.duration(),
                pl.col("name").fill_null("(unnamed)").alias("range"),
            )
            .collect()
        )
        work = _launches(trace)
        own, launches = within(ranges, work, ["pid", "thread_id"])
        process, _ = within(ranges, work, ["pid"])
        ranges = ranges.with_columns(
            pl.Series("device_ns", own), pl.Series("process_ns", process), pl.Series("launches", launches)
        )
        histogram = callstats.histogram(ranges.lazy(), _KEYS)
        sums = ranges.group_by(_KEYS).agg(pl.col("device_ns", "process_ns", "launches").sum())
        rows = callstats.statistics([histogram], _KEYS).join(
            sums, on=list(_KEYS), how="left", maintain_order="left", nulls_equal=True
        )
        columns = [ResultColumn("range", key=True), ResultColumn("domain", key=True), *callstats.COLUMNS]
        columns[4:4] = [
            ResultColumn("device_ns", "ns", "device, own thread", merge="sum"),
            ResultColumn("process_ns", "ns", "device, all threads", merge="sum"),
            ResultColumn("launches", "count", merge="sum"),
        ]
        table = ResultTable(
            "ranges",
            rows,
            tuple(columns),
            title="Ranges",
            top=30,
            note="device time is that of all work launched while the range was open; nested ranges each count it",
            samples=callstats.samples([histogram], _KEYS),
        )
        return Result(self.name, [table])


def _launches(trace: TraceView) -> pl.DataFrame:
    """Return when and by which thread each piece of device work was launched, and how long it took."""
    work = [
        launched(trace, trace.table(name)).select(
            "pid", pl.col("launch_thread").alias("thread_id"), "launched_ns", callstats.duration().fill_null(0)
        )
        for name in DEVICE_TABLES
        if name in trace.present
    ]
    schema = {"pid": pl.Int32, "thread_id": pl.Int32, "launched_ns": pl.Int64, "duration_ns": pl.Int64}
    return pl.concat([pl.LazyFrame(schema=schema), *work]).collect()


def within(ranges: pl.DataFrame, work: pl.DataFrame, by: Sequence[str]) -> tuple[Times, Times]:
    """Return for each range the device time and the number of the launches in it by the same process or thread.

    A running total of the work, in the order of launches, is read at both ends of each range.
    """
    time, count = np.zeros(ranges.height, dtype=np.int64), np.zeros(ranges.height, dtype=np.int64)
    groups = work.sort("launched_ns").partition_by(by, as_dict=True)
    for key, part in ranges.with_row_index("_row").partition_by(by, as_dict=True).items():
        if key not in groups:
            continue
        launches = groups[key]["launched_ns"].to_numpy()
        total = np.concatenate(([0], np.cumsum(groups[key]["duration_ns"].to_numpy())))
        first = np.searchsorted(launches, part["start_ns"].to_numpy(), side="left")
        last = np.searchsorted(launches, part["end_ns"].fill_null(2**62).to_numpy(), side="left")
        rows = part["_row"].to_numpy()
        time[rows], count[rows] = total[last] - total[first], last - first
    return time, count
