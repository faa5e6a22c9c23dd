"""Tool `underused`: memory that kernels never or hardly touch, and memory that lives long before or after its use."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from pasta.tools import Finding, Result, ResultColumn, ResultTable, Tool, ToolOptions, TraceView, option
from pasta.tools.analysis import accesses
from pasta.tools.analysis.accesses import LAUNCH, OBJECT, TENSOR
from pasta.tools.analysis.launches import add_op
from pasta.tools.analysis.optree import call_paths
from pasta.tools.units import grouped, size

#: Less untouched memory than this is not worth a finding.
_LEAST_WASTE = 1 << 20
#: Percentage of which no more counts as hardly touched.
_HARDLY = 10.0
#: Tensors that are listed: a training run makes millions.
_TENSORS_SHOWN = 1000


class Underused(Tool):
    name = "underused"
    summary = "memory that is never or hardly touched"
    needs = frozenset({"access_object", "alloc"})

    @dataclass(frozen=True)
    class Options(ToolOptions):
        below: float = option(50.0, "list objects of which less than this percentage is touched")
        smallest: int = option(4096, "leave out objects of fewer bytes")

    def run(self, trace: TraceView, options: Options) -> Result:
        used = usage(trace)
        low = used.filter(pl.col("size") >= options.smallest, pl.col("touched") < options.below)
        frame = low.sort("unused_bytes", "object_id", descending=[True, False])
        columns = (
            ResultColumn("pid", "id", "process"),
            ResultColumn("object_id", "id", "object"),
            ResultColumn("size", "bytes", "size", family="size"),
            ResultColumn("unused_bytes", "bytes", "untouched", family="size"),
            ResultColumn("touched", "%", "touched at most"),
            ResultColumn("launches", "count", "touched by"),
            ResultColumn("copies", "count", "copies and fills"),
            ResultColumn("early_ns", "ns", "before first use"),
            ResultColumn("late_ns", "ns", "after last use"),
            ResultColumn("kind"),
            ResultColumn("allocator"),
            ResultColumn("op"),
        )
        note = f"{accesses.coverage(trace, 'access_object')}; early and late times only where begin and end are known"
        tables = [ResultTable("underused", frame, columns, title="Underused memory", top=30, note=note)]
        found = findings(trace, used)
        if accesses.has_tensors(trace):
            tensors = tensor_usage(trace)
            tables.append(_tensors(trace, tensors, options))
            found += tensor_findings(trace, tensors)
        return Result(self.name, tables, found)


def _tensors(trace: TraceView, used: pl.DataFrame, options: Underused.Options) -> ResultTable:
    low = used.filter(pl.col("size") >= options.smallest, pl.col("touched") < options.below)
    shown = low.sort("unused_bytes", "tensor_id", descending=[True, False]).head(_TENSORS_SHOWN)
    frame = shown.with_columns(call_paths(trace, shown).alias("called"))
    columns = (
        ResultColumn("pid", "id", "process"),
        ResultColumn("tensor_id", "id", "tensor"),
        ResultColumn("size", "bytes", "size", family="size"),
        ResultColumn("unused_bytes", "bytes", "untouched", family="size"),
        ResultColumn("touched", "%", "touched at most"),
        ResultColumn("launches", "count", "touched by"),
        ResultColumn("early_ns", "ns", "before first use"),
        ResultColumn("late_ns", "ns", "after last use"),
        ResultColumn("op", title="made by"),
        ResultColumn("called", title="operators around it"),
    )
    note = f"{accesses.coverage(trace, 'access_object')}; copies and fills are not attributed to tensors"
    if low.height > frame.height:
        note += f"; the {grouped(frame.height)} largest of {grouped(low.height)}"
    return ResultTable("tensors", frame, columns, title="Underused tensors", top=30, note=note)


def _by_kernels(trace: TraceView, rows: pl.LazyFrame, key: tuple[str, str]) -> pl.LazyFrame:
    """Return how much of each object (tensor) the launches used, at most, and when first and last."""
    known = pl.col("first_offset").null_count() + pl.col("last_offset").null_count() == 0
    extent = pl.when(known).then(pl.col("last_offset").max() - pl.col("first_offset").min() + 1)
    return (
        rows.join(accesses.launches(trace).unique(LAUNCH, keep="first"), on=list(LAUNCH), how="left")
        .group_by(key)
        .agg(
            pl.len().cast(pl.Int64).alias("launches"),
            pl.min_horizontal(pl.col("touched_bytes").sum(), extent).alias("touched_bytes"),
            pl.col("start_ns").min().alias("first_ns"),
            pl.col("end_ns").max().alias("last_ns"),
        )
    )


def tensor_usage(trace: TraceView) -> pl.DataFrame:
    """Return each tensor in device memory as ``usage`` does objects, with ``op``: the operator that made it."""
    rows = accesses.tensor_accesses(trace).filter(pl.col("tensor_id").is_not_null())
    touched = pl.min_horizontal(pl.col("touched_bytes").fill_null(0), "size")
    return (
        add_op(trace, accesses.tensors(trace))
        .join(_by_kernels(trace, rows, TENSOR), on=list(TENSOR), how="left")
        .with_columns(
            pl.col("launches").fill_null(0),
            (touched * 100 / pl.col("size")).alias("touched"),
            (pl.col("size") - touched).alias("unused_bytes"),
            (pl.col("first_ns") - pl.col("born_ns")).alias("early_ns"),
            (pl.col("died_ns") - pl.col("last_ns")).alias("late_ns"),
        )
        .collect()
    )


def usage(trace: TraceView) -> pl.DataFrame:
    """Return each device memory object with how much of it was used, and when first and last.

    ``touched`` is an upper bound, so that nothing is called unused that may be used: launches may touch different
    parts, and their sum, the extent from first to last byte and the size all bound the union.
    """
    by_kernels = _by_kernels(trace, accesses.device_accesses(trace), OBJECT)
    by_copies = _copies(trace).group_by(OBJECT).agg(
        pl.len().cast(pl.Int64).alias("copies"),
        pl.col("start_ns").min().alias("first_copy_ns"),
        pl.col("end_ns").max().alias("last_copy_ns"),
    )  # fmt: skip
    whole = accesses.objects(trace).filter(accesses.on_device(), pl.col("parent_object_id").is_null())
    touched = pl.min_horizontal(pl.col("touched_bytes").fill_null(0), "size")
    return (
        add_op(trace, whole)
        .join(by_kernels, on=list(OBJECT), how="left")
        .join(by_copies, on=list(OBJECT), how="left")
        .with_columns(
            pl.col("launches", "copies").fill_null(0),
            (touched * 100 / pl.col("size")).alias("touched"),
            (pl.col("size") - touched).alias("unused_bytes"),
            (pl.min_horizontal("first_ns", "first_copy_ns") - pl.col("born_ns")).alias("early_ns"),
            (pl.col("died_ns") - pl.max_horizontal("last_ns", "last_copy_ns")).alias("late_ns"),
        )
        .collect()
    )


def _copies(trace: TraceView) -> pl.LazyFrame:
    """Return copies and fills as a row for each object at one of their ends."""
    times = ("pid", "start_ns", "end_ns")
    ends = [
        trace.table("memcpy").select(*times, pl.col("src_object_id").alias("object_id")),
        trace.table("memcpy").select(*times, pl.col("dst_object_id").alias("object_id")),
        trace.table("memset").select(*times, "object_id"),
    ]
    return pl.concat(ends).filter(pl.col("object_id").is_not_null())


def tensor_findings(trace: TraceView, used: pl.DataFrame) -> list[Finding]:
    """Say how much tensors take of which kernels touch hardly anything (``used``: from `tensor_usage`)."""
    low = used.filter(pl.col("touched") <= _HARDLY)
    unused = int(low["unused_bytes"].sum())
    if unused < _LEAST_WASTE:
        return []
    by_op = low.group_by("op").agg(pl.col("unused_bytes").sum()).sort("unused_bytes", "op", descending=[True, False])
    op, most = by_op.row(0)
    maker = f", {size(int(most))} of it made by {op}" if op is not None else ""
    return [
        Finding(
            "hardly-touched-tensors",
            "medium",
            f"kernels touch at most a tenth of {grouped(low.height)} tensors: {size(unused)} untouched{maker} "
            f"({accesses.coverage(trace, 'access_object')})",
            remedy="make tensors where and when they are used, and no larger",
            evidence={"unused_bytes": unused, "tensors": low.height, "op": op},
        )
    ]


def findings(trace: TraceView, used: pl.DataFrame) -> list[Finding]:
    """Say how much memory is never touched by a kernel, and how much is hardly touched (``used``: from `usage`)."""
    some = pl.col("touched") > 0
    classes = (
        ("untouched-memory", "no kernel touches", pl.col("touched") == 0),
        ("hardly-touched-memory", "kernels touch less than a tenth of", some & (pl.col("touched") < _HARDLY)),
    )
    found = []
    for id, text, condition in classes:
        objects = used.filter(condition).sort("size", descending=True)
        unused = int(objects["unused_bytes"].sum())
        if unused >= _LEAST_WASTE:
            biggest = objects.row(0, named=True)
            found.append(
                Finding(
                    id,
                    "medium",
                    f"{text} {grouped(objects.height)} objects of {size(int(objects['size'].sum()))} in all "
                    f"({accesses.coverage(trace, 'access_object')})",
                    remedy="allocate only what is used, where it is used",
                    evidence={
                        "unused_bytes": unused,
                        "objects": objects.height,
                        "biggest": {key: biggest[key] for key in ("pid", "object_id", "size", "allocator", "op")},
                    },
                )
            )
    return found
