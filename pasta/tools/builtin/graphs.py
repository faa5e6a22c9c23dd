"""Tool `graphs`: executable graphs: how often each ran, how many nodes it has and how long one run takes."""

from __future__ import annotations

import polars as pl

from pasta.tools import Result, ResultColumn, ResultTable, Tool, ToolOptions, TraceView
from pasta.tools.analysis import callstats
from pasta.tools.describe import nothing
from pasta.tools.filters import DEVICE_TABLES

_KEYS = ("pid", "graph")


class Graphs(Tool):
    name = "graphs"
    summary = "launches, nodes and time of executable graphs"
    needs = frozenset({"kernel"})

    def run(self, trace: TraceView, options: ToolOptions) -> Result:
        work = pl.concat([_nodes(trace, name) for name in DEVICE_TABLES])
        # Work of one run shares the correlation id of the graph's launch.
        runs = work.group_by(*_KEYS, "correlation_id").agg(
            (pl.col("end_ns").max() - pl.col("start_ns").min()).alias("duration_ns")
        )
        # --cuda-graph-trace=graph records one row a launch, which is no node: what is in the graph is unknown.
        by_node = pl.col("graph_node_id").is_not_null().any()
        sizes = work.group_by(_KEYS).agg(
            pl.when(by_node).then(pl.col("graph_node_id").drop_nulls().n_unique()).cast(pl.Int64).alias("nodes"),
            pl.when(by_node).then((pl.col("table") == "kernel").sum()).cast(pl.Int64).alias("kernels"),
            pl.when(by_node).then((pl.col("table") != "kernel").sum()).cast(pl.Int64).alias("copies"),
            (pl.col("end_ns") - pl.col("start_ns")).sum().alias("device_ns"),
        )
        histogram = callstats.histogram(runs, _KEYS)
        if histogram.is_empty():
            return nothing(self.name, "no kernel of this trace was launched by an executable graph")
        rows = callstats.statistics([histogram], _KEYS).join(
            sizes.collect(), on=list(_KEYS), how="left", maintain_order="left"
        )
        columns = [
            ResultColumn("pid", "id", "process", key=True),
            ResultColumn("graph", "id", key=True),
            *callstats.COLUMNS,
        ]
        columns[2] = ResultColumn("calls", "count", "launches", merge="sum")
        columns[3:3] = [
            ResultColumn("nodes", "count"),
            ResultColumn("kernels", "count", merge="sum"),
            ResultColumn("copies", "count", "copies and fills", merge="sum"),
            ResultColumn("device_ns", "ns", "device", merge="sum"),
        ]
        note = "a run lasts from the start of its first node to the end of its last"
        return Result(self.name, [ResultTable("graphs", rows, tuple(columns), title="Graphs", top=30, note=note)])


def _nodes(trace: TraceView, name: str) -> pl.LazyFrame:
    return (
        trace.table(name)
        .filter(pl.col("graph_id").is_not_null())
        .select(
            "pid",
            pl.col("graph_id").alias("graph"),
            "graph_node_id",
            "correlation_id",
            "start_ns",
            "end_ns",
            pl.lit(name).alias("table"),
        )
    )
