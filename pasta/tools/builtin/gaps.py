"""Tool `gaps`: when devices did nothing between their first and last work, and what the host did meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from pasta.tools import Result, ResultColumn, ResultTable, Tool, ToolOptions, TraceView, option
from pasta.tools.analysis import activity, callstats
from pasta.tools.analysis.intervals import Intervals
from pasta.tools.analysis.optree import OpTree, op_tree
from pasta.tools.filters import DEVICE_TABLES

_STATES = ("waiting for the device", "in a device API call", "in an operator", "nothing recorded")


class Gaps(Tool):
    name = "gaps"
    summary = "idle time of each device, and what the host was doing"
    needs = frozenset({"kernel"})

    @dataclass(frozen=True)
    class Options(ToolOptions):
        longest: int = option(20, "how many of the longest gaps to list")

    def run(self, trace: TraceView, options: Options) -> Result:
        devices = activity.devices(trace)
        idle = {device.label: idle_times(trace, device) for device in devices}
        return Result(
            self.name,
            [
                _by_device(trace, devices, idle),
                _by_state(trace, devices, idle),
                _by_name(trace, devices, idle),
                _longest(trace, devices, idle, options.longest),
            ],
        )


def idle_times(trace: TraceView, device: activity.Device) -> Intervals:
    """Return the gaps of a device: the times within its first and last work in which it did nothing."""
    span = device.busy.span
    return device.busy.complement(*span) & activity.windows(trace) if span else device.busy


def _by_device(trace: TraceView, devices: Sequence[activity.Device], idle: dict[str, Intervals]) -> ResultTable:
    rows = [
        {
            "device": device.label,
            "busy_ns": (device.busy & activity.windows(trace)).measure,
            "idle_ns": idle[device.label].measure,
            "gaps": len(idle[device.label]),
            "longest_ns": int((idle[device.label].ends - idle[device.label].starts).max(initial=0)),
        }
        for device in devices
    ]
    names = ("busy_ns", "idle_ns", "gaps", "longest_ns")
    span = (pl.col("busy_ns") + pl.col("idle_ns")).alias("span_ns")
    frame = (
        pl.DataFrame(rows, schema={"device": pl.String, **dict.fromkeys(names, pl.Int64)})
        .with_columns(span)
        .with_columns((pl.col("idle_ns") * 100 / pl.col("span_ns")).alias("idle"))
    )
    columns = (
        ResultColumn("device", key=True),
        ResultColumn("span_ns", "ns", "first to last work"),
        ResultColumn("busy_ns", "ns"),
        ResultColumn("idle_ns", "ns"),
        ResultColumn("idle", "%", bar=True),
        ResultColumn("gaps", "count"),
        ResultColumn("longest_ns", "ns"),
    )
    return ResultTable("devices", frame, columns, title="Idle time by device")


def _by_state(trace: TraceView, devices: Sequence[activity.Device], idle: dict[str, Intervals]) -> ResultTable:
    totals = [0] * len(_STATES)
    for device in devices:
        parts = activity.split_idle(idle[device.label], activity.host(trace, device.pids))
        totals = [total + part.measure for total, part in zip(totals, parts, strict=True)]
    frame = pl.DataFrame({"host": _STATES, "idle_ns": totals}).with_columns(callstats.shares("idle_ns").alias("share"))
    columns = (
        ResultColumn("host", key=True),
        ResultColumn("idle_ns", "ns", merge="sum"),
        ResultColumn("share", "%", "of idle", merge="sum", bar=True),
    )
    return ResultTable("host", frame, columns, title="What the host did while a device was idle")


def _by_name(trace: TraceView, devices: Sequence[activity.Device], idle: dict[str, Intervals]) -> ResultTable:
    tree = op_tree(trace) if "op" in trace.present else None
    parts = [part for device in devices for part in _overlaps(trace, device, idle[device.label], tree)]
    schema = {"what": pl.String, "name": pl.String, "idle_ns": pl.Int64, "events": pl.Int64}
    frame = (
        pl.concat([pl.DataFrame(schema=schema), *parts])
        .group_by("what", "name")
        .agg(pl.col("idle_ns", "events").sum())
        .filter(pl.col("idle_ns") > 0)
        .sort("idle_ns", "what", "name", descending=[True, False, False])
    )
    columns = (
        ResultColumn("what", key=True),
        ResultColumn("name", key=True),
        ResultColumn("idle_ns", "ns", merge="sum"),
        ResultColumn("events", "count", "times", merge="sum"),
    )
    note = "operators without those that they called; calls nest and threads run side by side, so rows may overlap"
    return ResultTable("during", frame, columns, title="Calls and operators during idle time", top=15, note=note)


def _overlaps(trace: TraceView, device: activity.Device, idle: Intervals, tree: OpTree | None) -> list[pl.DataFrame]:
    """Return for one device how much of its idle time fell into each function, wait and operator."""
    found = [
        activity.during(trace, table, device, idle).with_columns(what=pl.lit(what))
        for table, what in (("sync", "wait"), ("api", "call"))
        if table in trace.present
    ]
    if tree is not None:
        covered = tree.less_children(idle.covered(tree.frame["start_ns"].to_numpy(), tree.frame["end_ns"].to_numpy()))
        own = tree.frame["pid"].is_in(list(device.pids)).fill_null(False)
        operators = activity.by_name(tree.frame["name"].cast(pl.String), np.where(own.to_numpy(), covered, 0))
        found.append(operators.with_columns(what=pl.lit("operator")))
    return [frame.select("what", "name", "idle_ns", "events") for frame in found]


def _longest(
    trace: TraceView, devices: Sequence[activity.Device], idle: dict[str, Intervals], count: int
) -> ResultTable:
    schema = {"device": pl.String, "start_ns": pl.Int64, "duration_ns": pl.Int64, "host": pl.String,
              "after": pl.String, "before": pl.String}  # fmt: skip
    every = pl.concat([pl.DataFrame(schema=schema), *(_described(trace, d, idle[d.label], count) for d in devices)])
    frame = every.sort("duration_ns", "start_ns", "device", descending=[True, False, False]).head(count)
    columns = (
        ResultColumn("device"),
        ResultColumn("start_ns", "ns", "at"),
        ResultColumn("duration_ns", "ns"),
        ResultColumn("host", title="host (half the gap or more)"),
        ResultColumn("after"),
        ResultColumn("before"),
    )
    return ResultTable("gaps", frame, columns, title="Longest gaps")


def _described(trace: TraceView, device: activity.Device, idle: Intervals, count: int) -> pl.DataFrame:
    """List the longest gaps of a device with the work before and after, and what the host did."""
    order = np.argsort(idle.starts - idle.ends, kind="stable")[:count]
    gaps = pl.DataFrame({"start_ns": idle.starts[order], "end_ns": idle.ends[order]})
    work = pl.concat([_work(device.rows(trace.table(name)), name) for name in DEVICE_TABLES])
    ended = work.select("end_ns", after="what").join(gaps.lazy(), left_on="end_ns", right_on="start_ns", how="semi")
    begun = work.select("start_ns", before="what").join(gaps.lazy(), left_on="start_ns", right_on="end_ns", how="semi")
    last = ended.unique("end_ns", keep="first", maintain_order=True)
    following = begun.unique("start_ns", keep="first", maintain_order=True)
    return (
        gaps.with_columns(pl.Series("host", _doing(trace, device, gaps), dtype=pl.String))
        .lazy()
        .join(last, left_on="start_ns", right_on="end_ns", how="left", maintain_order="left")
        .join(following, left_on="end_ns", right_on="start_ns", how="left", maintain_order="left")
        .select(
            pl.lit(device.label).alias("device"),
            "start_ns",
            (pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns"),
            "host",
            "after",
            "before",
        )
        .collect()
    )


def _work(rows: pl.LazyFrame, table: str) -> pl.LazyFrame:
    what = pl.col("name") if table == "kernel" else pl.lit("fill" if table == "memset" else "copy")
    if table == "memcpy":
        what = pl.format("copy {}", pl.col("kind").fill_null("unknown"))
    return rows.select(what.alias("what"), "start_ns", "end_ns")


def _doing(trace: TraceView, device: activity.Device, gaps: pl.DataFrame) -> list[str]:
    """Name for each gap the innermost wait, else call, else operator that filled at least half of it."""
    shortest = gaps.select((pl.col("end_ns") - pl.col("start_ns")).min()).item() or 0
    long_enough = pl.col("end_ns") - pl.col("start_ns") >= shortest / 2
    own = pl.col("pid").is_in(list(device.pids))
    texts = {"sync": pl.format("waiting for {}", "kind"), "api": pl.col("name"), "op": pl.col("name")}
    events = {
        name: trace.table(name).filter(own, long_enough).select(text.alias("text"), "start_ns", "end_ns").collect()
        for name, text in texts.items()
        if name in trace.present
    }
    return [_filling(events, start, end) for start, end in gaps.iter_rows()]


def _filling(events: dict[str, pl.DataFrame], start: int, end: int) -> str:
    overlap = pl.min_horizontal("end_ns", pl.lit(end)) - pl.max_horizontal("start_ns", pl.lit(start))
    for table in ("sync", "api", "op"):
        if table in events:
            found = events[table].filter(2 * overlap >= end - start).drop_nulls("text")
            if found.height:
                return str(found.sort("start_ns", "end_ns", descending=[False, True])["text"][-1])
    return _STATES[-1]
