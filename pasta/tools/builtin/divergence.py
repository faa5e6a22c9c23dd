"""Tool `divergence`: how many lanes of a warp (sub-group) take part in memory accesses, by source line."""

from __future__ import annotations

import polars as pl

from pasta.tools import Finding, Result, ResultColumn, ResultTable, Tool, ToolOptions, TraceView
from pasta.tools.analysis.sampling import error_columns, estimate_sums
from pasta.tools.analysis.sites import KEY_COLUMNS, KEYS, place, site_accesses, site_note
from pasta.tools.describe import nothing

#: A line is worth a finding when less than half of its lanes are active in this share of all executions.
_LEAST_SHARE = 0.05
_LEAST_ACTIVE = 50.0


class Divergence(Tool):
    name = "divergence"
    summary = "lanes active in memory accesses, by source line"
    needs = frozenset({"access_site", "device"})

    def run(self, trace: TraceView, options: ToolOptions) -> Result:
        warps = trace.table("device").select("pid", "device_id", "warp_size").unique(["pid", "device_id"], keep="last")
        sites = (
            site_accesses(trace)
            .join(warps, on=["pid", "device_id"], how="left", nulls_equal=True)
            .filter(pl.col("executions") > 0, pl.col("lanes").is_not_null(), pl.col("warp_size").is_not_null())
            .with_columns((pl.col("executions") * pl.col("warp_size")).alias("possible"))
        )
        rows = (
            estimate_sums(trace, "access_site", sites, KEYS, ["executions", "lanes", "possible"], "executions")
            .join(
                sites.group_by(KEYS).agg(pl.col("text").first(), pl.col("min_lanes").min(), pl.col("max_lanes").max()),
                on=list(KEYS),
                nulls_equal=True,
            )
            .with_columns(
                (pl.col("lanes") * 100 / pl.col("possible")).alias("active"),
                (pl.col("possible") - pl.col("lanes")).alias("idle"),
                (pl.col("executions") * 100 / pl.col("executions").sum()).alias("share"),
            )
            .sort("idle", *KEYS, descending=[True, *([False] * len(KEYS))])
            .collect()
        )
        if rows.is_empty():
            return nothing(self.name, "the devices of this trace have no warps of a known width, or none were counted")
        columns = (
            *KEY_COLUMNS,
            ResultColumn("executions", "count", "executions of a warp", merge="sum"),
            *error_columns(trace),
            ResultColumn("share", "%", "of all", merge="sum"),
            ResultColumn("active", "%", "active lanes", bar=True),
            ResultColumn("idle", "count", "idle lanes", merge="sum"),
            ResultColumn("min_lanes", "count", "fewest active", merge="min"),
            ResultColumn("max_lanes", "count", "most active", merge="max"),
            ResultColumn("text", title="instruction"),
        )
        title = "Active lanes by source line"
        table = ResultTable("divergence", rows, columns, title=title, top=20, note=site_note(trace))
        return Result(self.name, [table], _findings(rows))


def _findings(rows: pl.DataFrame) -> list[Finding]:
    worst = rows.filter(pl.col("active") < _LEAST_ACTIVE, pl.col("share") >= 100 * _LEAST_SHARE)
    return [
        Finding(
            "divergent",
            "medium",
            f"{place(row)}: on average {row['active']:.0f} % of the lanes take part in the {row['kind']}s of "
            f"{row['kernel']}",
            remedy="let the threads of a warp take the same branch, and size blocks in whole warps",
            evidence={key: row[key] for key in (*KEYS, "executions", "active", "text")},
        )
        for row in worst.head(3).iter_rows(named=True)
    ]
