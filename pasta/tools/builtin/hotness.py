"""Tool `hotness`: which memory is accessed when: blocks hot all the time against short bursts (PASTA, figure 13)."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from pasta.tools import Result, ResultColumn, ResultTable, Tool, ToolOptions, TraceView, option
from pasta.tools.analysis import accesses
from pasta.tools.analysis.accesses import LAUNCH, OBJECT, TENSOR
from pasta.tools.analysis.callstats import shares
from pasta.tools.analysis.launches import add_op
from pasta.tools.analysis.sampling import error_columns, estimate_sums, sampling_note
from pasta.tools.describe import no_data

#: Memory used in at least this share of the windows is worth pinning; less is worth fetching and evicting.
_STEADY = 50.0


class Hotness(Tool):
    name = "hotness"
    summary = "which memory is accessed when"

    @dataclass(frozen=True)
    class Options(ToolOptions):
        windows: int = option(40, "into how many windows the time is divided")

    def run(self, trace: TraceView, options: Options) -> Result:
        accessed = _accesses(trace)
        if accessed is None:
            return no_data(self.name, trace, ["access_block", "access_object"])
        placed = _in_windows(accessed.collect(), max(options.windows, 1))
        tables = [_table(trace, placed, OBJECT, "objects", "Memory objects over time")]
        if accesses.has_tensors(trace):
            of_tensors = accesses.tensor_accesses(trace).filter(pl.col("tensor_id").is_not_null())
            placed_tensors = _in_windows(_at_launch(trace, of_tensors).collect(), max(options.windows, 1))
            tables.append(_table(trace, placed_tensors, TENSOR, "tensors", "Tensors over time"))
        if "access_block" in trace.present:
            tables.append(_table(trace, placed, (*OBJECT, "offset"), "blocks", "Blocks over time"))
        return Result(self.name, tables)


def _accesses(trace: TraceView) -> pl.LazyFrame | None:
    """Return accesses in time: of blocks where they were counted, else of whole objects by each launch."""
    if "access_block" in trace.present:
        rows = trace.table("access_block").join(_launch_times(trace), on=list(LAUNCH), how="left")
        at = pl.coalesce("start_ns", "launch_ns").alias("at")
        return rows.select(*LAUNCH, "object_id", "offset", "bytes", at, "accesses")
    if "access_object" in trace.present:
        return _at_launch(trace, accesses.device_accesses(trace))
    return None


def _launch_times(trace: TraceView) -> pl.LazyFrame:
    begin = pl.coalesce("start_ns", "queued_ns").alias("launch_ns")  # a memory pass takes no times on the device
    return trace.table("kernel").select(*LAUNCH, begin).unique(LAUNCH, keep="first")


def _at_launch(trace: TraceView, rows: pl.LazyFrame) -> pl.LazyFrame:
    """Return accesses of launches to whole objects (tensors) as accesses at the time of the launch."""
    timed = rows.join(_launch_times(trace), on=list(LAUNCH), how="inner")
    count = pl.sum_horizontal("loads", "stores", "atomics").alias("accesses")
    return timed.with_columns(count, pl.lit(None, pl.Int64).alias("offset"), pl.col("launch_ns").alias("at"))


def _in_windows(rows: pl.DataFrame, windows: int) -> pl.DataFrame:
    """Number the window of each access: ``windows`` equal parts of the time from the first access to the last."""
    rows = rows.drop_nulls("at")
    start, end = rows["at"].min(), rows["at"].max()
    width = ((end - start) // windows + 1) if isinstance(start, int) and isinstance(end, int) else 1
    return rows.with_columns(
        ((pl.col("at") - pl.lit(start)) // width).alias("window"), pl.lit(windows).alias("windows")
    )


def _table(trace: TraceView, placed: pl.DataFrame, keys: tuple[str, ...], name: str, title: str) -> ResultTable:
    windows = int(placed["windows"][0]) if placed.height else 1
    columns_of_windows = [f"_{i}" for i in range(windows)]
    by_window = placed.lazy().group_by(*keys, "window").agg(pl.col("accesses").sum())
    counted = "access_block" if name != "tensors" and "access_block" in trace.present else "access_object"
    sums = estimate_sums(trace, counted, placed.lazy(), list(keys), ["accesses"], "accesses")
    series = (
        by_window.group_by(keys)
        .agg(
            (pl.col("accesses") > 0).sum().cast(pl.Int64).alias("active"),
            *(
                pl.col("accesses").filter(pl.col("window") == i).sum().alias(name)
                for i, name in enumerate(columns_of_windows)
            ),
        )
        .with_columns(pl.concat_list(columns_of_windows).alias("over_time"))
        .drop(columns_of_windows)
        .join(sums, on=list(keys), nulls_equal=True)
    )
    if keys == TENSOR:
        made = add_op(trace, accesses.tensors(trace)).select(*TENSOR, "size", pl.col("op").alias("allocator"))
    else:
        made = accesses.objects(trace).select(*OBJECT, "size", "allocator")
    frame = (
        series.join(made, on=list(keys[:2]), how="left")
        .with_columns(shares("accesses").alias("share"), (pl.col("active") * 100 / windows).alias("active"))
        .with_columns(
            pl.when(pl.col("active") >= _STEADY).then(pl.lit("steady")).otherwise(pl.lit("burst")).alias("use")
        )
        .sort("accesses", *keys, descending=[True, *([False] * len(keys))], nulls_last=True)
        .collect()
    )
    columns = [
        ResultColumn("pid", "id", "process"),
        ResultColumn(keys[1], "id", keys[1].removesuffix("_id")),
        ResultColumn("size", "bytes", "size"),
        ResultColumn("accesses", "count"),
        *error_columns(trace),
        ResultColumn("share", "%", "of all"),
        ResultColumn("active", "%", "of the time"),
        ResultColumn("use"),
        ResultColumn("over_time", "series"),
        ResultColumn("allocator", title="made by"),
    ]
    if "offset" in keys:
        columns.insert(2, ResultColumn("offset", "bytes", "at offset"))
    note = "steady: accessed in at least half of the windows, worth keeping near; burst: worth fetching when needed"
    if sampled := sampling_note(trace, counted):
        note += f"; {sampled}; what is over time was measured"
    return ResultTable(name, frame, tuple(columns), title=title, top=20, note=note)
