"""Tool `workingset`: the memory that each kernel really touches against all that lives (PASTA, table V)."""

from __future__ import annotations

import numpy as np
import polars as pl

from pasta.tools import Result, ResultColumn, ResultTable, Tool, ToolOptions, TraceView
from pasta.tools.analysis import accesses
from pasta.tools.analysis.accesses import LAUNCH, OBJECT, TENSOR
from pasta.tools.analysis.launches import add_op
from pasta.tools.analysis.lifetimes import Level, level, object_lifetimes
from pasta.tools.analysis.sampling import error_columns, estimate_sums, sampling_note
from pasta.tools.describe import no_data

#: How exactly memory is said to be touched. `objects` counts an object whole when one byte of it is touched.
_UNITS = {
    "lines": "64 B lines",
    "pages_4k": "4 KiB pages",
    "pages_64k": "64 KiB pages",
    "pages_2m": "2 MiB pages",
    "size": "whole objects",
}
_ACCESSES = ("loads", "stores", "atomics")
_BYTES = ("load_bytes", "store_bytes", "atomic_bytes")
#: Of the tables of objects and tensors.
_OF_EACH = (
    ResultColumn("size", "bytes", "size"),
    ResultColumn("launches", "count", "touched by"),
    ResultColumn("touched_bytes", "bytes", "most at once"),
    ResultColumn("touched", "%", "of it"),
    ResultColumn("loads", "count"),
    ResultColumn("stores", "count"),
    ResultColumn("atomics", "count"),
    ResultColumn("load_bytes", "bytes", "loaded", family="traffic"),
    ResultColumn("store_bytes", "bytes", "stored", family="traffic"),
)


class WorkingSet(Tool):
    name = "workingset"
    summary = "memory that kernels touch against memory that lives"

    def run(self, trace: TraceView, options: ToolOptions) -> Result:
        footprint = device_footprint(trace)
        if "access_object" not in trace.present:
            result = no_data(self.name, trace, ["access_object"])
            return Result(self.name, [_footprint(footprint)], result.findings) if "alloc" in trace.present else result
        rows = accesses.device_accesses(trace).collect()
        sets = working_sets(rows)
        note = accesses.coverage(trace, "access_object", "sets of the others are not known")
        tables = [_summary(sets, footprint, trace, note), _by_kernel(trace, sets), _by_object(trace, rows)]
        if accesses.has_tensors(trace):
            tables.append(_by_tensor(trace))
        return Result(self.name, tables)


def device_footprint(trace: TraceView) -> Level:
    """Return how much device memory lived over time."""
    whole = pl.col("parent_object_id").is_null()
    return level(object_lifetimes(trace.table("alloc")).filter(whole, accesses.on_device()).collect())


def working_sets(rows: pl.DataFrame) -> pl.DataFrame:
    """Add up what each launch touched, in bytes: ``pid``, ``launch_id`` and a column for each of the units."""
    sums = [pl.when(pl.col(name).is_not_null().any()).then(pl.col(name).sum()).alias(name) for name in _UNITS]
    return rows.group_by(LAUNCH).agg(*sums, pl.col(*_ACCESSES, *_BYTES).sum())


def finest(sets: pl.DataFrame) -> str:
    """Return the most exact unit that was measured."""
    return next((name for name in _UNITS if sets[name].null_count() < sets.height), "size")


def _summary(sets: pl.DataFrame, footprint: Level, trace: TraceView, note: str) -> ResultTable:
    peak = footprint.peak[0]
    mean = _mean_footprint(trace, footprint)
    rows = []
    for name, title in _UNITS.items():
        values = np.sort(sets[name].drop_nulls().to_numpy())
        if values.size:
            largest = int(values[-1])
            rows.append(
                {
                    "unit": title,
                    "launches": values.size,
                    "footprint_bytes": peak,
                    "mean_footprint_bytes": mean,
                    "max_bytes": largest,
                    "min_bytes": int(values[0]),
                    "avg_bytes": float(values.mean()),
                    "median_bytes": float(np.median(values)),
                    "p90_bytes": float(np.percentile(values, 90)),
                    "ratio": peak / largest if largest else None,
                }
            )
    schema = {"unit": pl.String, "launches": pl.Int64, "footprint_bytes": pl.Int64, "mean_footprint_bytes": pl.Float64,
              "max_bytes": pl.Int64, "min_bytes": pl.Int64, "avg_bytes": pl.Float64, "median_bytes": pl.Float64,
              "p90_bytes": pl.Float64, "ratio": pl.Float64}  # fmt: skip
    columns = (
        ResultColumn("unit", title="counted in", key=True),
        ResultColumn("launches", "count"),
        ResultColumn("footprint_bytes", "bytes", "footprint", family="size"),
        ResultColumn("mean_footprint_bytes", "bytes", "mean footprint", family="size"),
        ResultColumn("max_bytes", "bytes", "working set", family="size"),
        ResultColumn("min_bytes", "bytes", "min", family="size"),
        ResultColumn("avg_bytes", "bytes", "mean", family="size"),
        ResultColumn("median_bytes", "bytes", "median", family="size"),
        ResultColumn("p90_bytes", "bytes", "p90", family="size"),
        ResultColumn("ratio", "ratio", "footprint / working set"),
    )
    return ResultTable("workingset", pl.DataFrame(rows, schema=schema), columns, title="Working set", note=note)


def _mean_footprint(trace: TraceView, footprint: Level) -> float | None:
    """Return the mean over all launches of the device memory that lived when each began."""
    starts = trace.table("kernel").select(pl.col("start_ns").drop_nulls()).collect()["start_ns"].to_numpy()
    if not starts.size or not footprint.times.size:
        return None
    index = np.searchsorted(footprint.times, starts, side="right") - 1
    return float(np.where(index >= 0, footprint.bytes[index], 0).mean())


def _footprint(footprint: Level) -> ResultTable:
    peak, at = footprint.peak
    frame = pl.DataFrame({"footprint_bytes": [peak], "peak_at_ns": [at]}, schema_overrides={"peak_at_ns": pl.Int64})
    columns = (
        ResultColumn("footprint_bytes", "bytes", "footprint", merge="max"),
        ResultColumn("peak_at_ns", "ns", "reached at"),
    )
    return ResultTable("footprint", frame, columns, title="Footprint")


def _by_kernel(trace: TraceView, sets: pl.DataFrame) -> ResultTable:
    unit = finest(sets)
    touched = pl.col(unit)
    kernels = accesses.launches(trace).unique(LAUNCH, keep="first").select(*LAUNCH, "kernel")
    rows = (
        sets.lazy()
        .join(kernels, on=list(LAUNCH), how="left")
        .with_columns(pl.col("kernel").fill_null("(launch not recorded)"), pl.sum_horizontal(_BYTES).alias("bytes"))
    )
    each = rows.group_by("kernel").agg(
        pl.len().cast(pl.Int64).alias("launches"),
        touched.max().alias("max_bytes"),
        touched.mean().alias("mean_bytes"),
        (pl.col("bytes").sum() / pl.when(touched.sum() > 0).then(touched.sum())).alias("reuse"),
    )
    sums = estimate_sums(trace, "access_object", rows, ["kernel"], ["bytes", *_BYTES], "bytes")
    frame = (
        each.join(sums, on="kernel", how="left")
        .sort("max_bytes", "kernel", descending=[True, False], nulls_last=True)
        .collect()
    )
    columns = (
        ResultColumn("kernel", key=True),
        ResultColumn("launches", "count", "measured", merge="sum"),
        ResultColumn("max_bytes", "bytes", "working set", merge="max"),
        ResultColumn("mean_bytes", "bytes", "mean", merge="mean:launches"),
        ResultColumn("bytes", "bytes", "accessed", merge="sum", family="traffic"),
        *error_columns(trace),
        ResultColumn("load_bytes", "bytes", "loaded", merge="sum", family="traffic"),
        ResultColumn("store_bytes", "bytes", "stored", merge="sum", family="traffic"),
        ResultColumn("atomic_bytes", "bytes", "by atomics", merge="sum", family="traffic"),
        ResultColumn("reuse", "ratio", "accessed / touched"),
    )
    title = f"Working set by kernel ({_UNITS[unit]})"
    note = sampling_note(trace, "access_object")
    return ResultTable("kernels", frame, columns, title=title, top=20, note=note)


def _used(rows: pl.LazyFrame, key: tuple[str, str]) -> pl.LazyFrame:
    """Return for each object (tensor) how it was used by the measured launches."""
    return (
        rows.group_by(key)
        .agg(
            pl.col("size").first(),
            pl.col("launch_id").n_unique().cast(pl.Int64).alias("launches"),
            pl.col("touched_bytes").max(),
            pl.col(*_ACCESSES, *_BYTES).sum(),
        )
        .with_columns((pl.col("touched_bytes") * 100 / pl.col("size")).alias("touched"))
    )


def _by_object(trace: TraceView, rows: pl.DataFrame) -> ResultTable:
    made = accesses.objects(trace).select(*OBJECT, "kind", "allocator")
    frame = (
        _used(rows.lazy(), OBJECT)
        .join(made, on=list(OBJECT), how="left")
        .sort("size", "object_id", descending=[True, False], nulls_last=True)
        .collect()
    )
    columns = (
        ResultColumn("pid", "id", "process"), ResultColumn("object_id", "id", "object"), ResultColumn("kind"),
        ResultColumn("allocator"), *_OF_EACH,
    )  # fmt: skip
    note = "an object of no number is memory that no known object holds" if frame["object_id"].null_count() else ""
    return ResultTable("objects", frame, columns, title="Objects that kernels touched", top=20, note=note)


def _by_tensor(trace: TraceView) -> ResultTable:
    made = add_op(trace, accesses.tensors(trace)).select(*TENSOR, "op")
    frame = (
        _used(accesses.tensor_accesses(trace).filter(pl.col("tensor_id").is_not_null()), TENSOR)
        .join(made, on=list(TENSOR), how="left")
        .sort("size", "tensor_id", descending=[True, False], nulls_last=True)
        .collect()
    )
    columns = (
        ResultColumn("pid", "id", "process"), ResultColumn("tensor_id", "id", "tensor"),
        ResultColumn("op", title="made by"), *_OF_EACH,
    )  # fmt: skip
    return ResultTable("tensors", frame, columns, title="Tensors that kernels touched", top=20)
