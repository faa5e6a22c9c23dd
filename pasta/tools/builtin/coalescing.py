"""Tool `coalescing`: how much more memory moves than is asked for, by source line; and conflicts of shared memory."""

from __future__ import annotations

import polars as pl

from pasta.tools import Finding, Result, ResultColumn, ResultTable, Tool, ToolOptions, TraceView
from pasta.tools.analysis import accesses
from pasta.tools.analysis.sampling import error_columns, estimate_sums
from pasta.tools.analysis.sites import KEY_COLUMNS, KEYS, place, site_accesses, site_note

#: A site is worth a finding when it causes this share of all excess sectors and moves this often what it needs.
_LEAST_SHARE = 0.05
_LEAST_FACTOR = 1.25


class Coalescing(Tool):
    name = "coalescing"
    summary = "memory sectors moved against sectors needed, by source line"
    needs = frozenset({"access_site"})

    def run(self, trace: TraceView, options: ToolOptions) -> Result:
        sites = site_accesses(trace).collect()
        table = _sectors(trace, sites)
        tables = [table, *([_conflicts(trace, sites)] if (sites["bank_conflicts"] > 0).any() else [])]
        return Result(self.name, tables, findings(table.frame))


def _sectors(trace: TraceView, sites: pl.DataFrame) -> ResultTable:
    """Add up the sectors of accesses to device memory, the most wasteful lines first."""
    measured = sites.filter(
        ~pl.col("space").is_in(accesses.ON_CHIP), pl.col("sectors", "ideal_sectors").is_not_null().name.keep()
    )
    counts = ["executions", "lanes", "bytes", "sectors", "ideal_sectors"]
    frame = (
        estimate_sums(trace, "access_site", measured.lazy(), KEYS, counts, "sectors")
        .join(measured.lazy().group_by(KEYS).agg(pl.col("text").first()), on=list(KEYS), nulls_equal=True)
        .with_columns((pl.col("sectors") - pl.col("ideal_sectors")).alias("excess"))
        .with_columns(
            (pl.col("ideal_sectors") * 100 / pl.col("sectors")).alias("efficiency"),
            pl.when(pl.col("excess").sum() > 0).then(pl.col("excess") * 100 / pl.col("excess").sum()).alias("share"),
            _each("sectors").alias("sectors_each"),
            _each("ideal_sectors").alias("ideal_each"),
        )
        .sort("excess", *KEYS, descending=[True, *([False] * len(KEYS))])
        .collect()
    )
    columns = (
        *KEY_COLUMNS,
        ResultColumn("sectors", "count", merge="sum"),
        *error_columns(trace),
        ResultColumn("ideal_sectors", "count", "needed", merge="sum"),
        ResultColumn("excess", "count", merge="sum"),
        ResultColumn("share", "%", "of excess", merge="sum", bar=True),
        ResultColumn("efficiency", "%"),
        ResultColumn("sectors_each", "ratio", "sectors a request"),
        ResultColumn("ideal_each", "ratio", "needed"),
        ResultColumn("bytes", "bytes", "asked for", merge="sum"),
        ResultColumn("lanes", "count", "accesses", merge="sum"),
        ResultColumn("text", title="instruction"),
    )
    note = site_note(trace)
    return ResultTable("sites", frame, columns, title="Device memory accesses by source line", top=20, note=note)


def _each(column: str) -> pl.Expr:
    """Sectors for each execution by a warp (sub-group); null where the device has none."""
    return pl.when(pl.col("executions") > 0).then(pl.col(column) / pl.col("executions"))


def _conflicts(trace: TraceView, sites: pl.DataFrame) -> ResultTable:
    rows = sites.lazy().filter(pl.col("bank_conflicts").is_not_null())
    counts = ["executions", "lanes", "bank_conflicts"]
    frame = (
        estimate_sums(trace, "access_site", rows, KEYS, counts, "bank_conflicts")
        .filter(pl.col("bank_conflicts") > 0)
        .with_columns(_each("bank_conflicts").alias("conflicts_each"))
        .sort("bank_conflicts", *KEYS, descending=[True, *([False] * len(KEYS))])
        .collect()
    )
    columns = (
        *KEY_COLUMNS,
        ResultColumn("bank_conflicts", "count", "extra passes", merge="sum"),
        *error_columns(trace),
        ResultColumn("conflicts_each", "ratio", "a request"),
        ResultColumn("lanes", "count", "accesses", merge="sum"),
    )
    return ResultTable("conflicts", frame, columns, title="Bank conflicts of shared memory", top=20)


def findings(sites: pl.DataFrame) -> list[Finding]:
    """Name the lines whose accesses waste most (``sites`` are the rows of this tool's table)."""
    worst = sites.filter(
        pl.col("share") >= 100 * _LEAST_SHARE, pl.col("sectors") >= _LEAST_FACTOR * pl.col("ideal_sectors")
    )
    return [
        Finding(
            "uncoalesced",
            "medium",
            f"{place(row)}: {100 - row['efficiency']:.0f} % of what the {row['kind']}s of {row['kernel']} move "
            f"is waste: {_requests(row)}",
            remedy="let neighbouring threads access neighbouring addresses, or stage the data in shared memory",
            evidence={key: row[key] for key in (*KEYS, "sectors", "ideal_sectors", "text")},
        )
        for row in worst.head(3).iter_rows(named=True)
    ]


def _requests(row: dict[str, float]) -> str:
    if row["sectors_each"] is not None:
        return f"{row['sectors_each']:.1f} sectors a request, {row['ideal_each']:.1f} needed"
    return f"{row['sectors'] / max(row['ideal_sectors'], 1):.1f} times the sectors that it needs"
