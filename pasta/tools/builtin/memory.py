"""Tool `memory`: how much memory lived when, what held it at the peak, and what was never freed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from pasta.tools import Finding, Result, ResultColumn, ResultTable, Tool, ToolOptions, TraceView, option
from pasta.tools.analysis.activity import device_labels
from pasta.tools.analysis.launches import add_op
from pasta.tools.analysis.lifetimes import Level, alive_at, level, object_lifetimes, tensor_lifetimes
from pasta.tools.describe import no_data
from pasta.tools.units import grouped, size

_POINTS = 40  # of a curve over time
_NOWHERE = "host"
_SUMMARY: dict[str, pl.DataType] = {
    "device": pl.String(),
    "kind": pl.String(),
    "peak_bytes": pl.Int64(),
    "peak_at_ns": pl.Int64(),
    "held_bytes": pl.Int64(),
    "objects": pl.Int64(),
    "kept": pl.Int64(),
    "kept_bytes": pl.Int64(),
    "over_time": pl.List(pl.Int64),
}
_SEEN: dict[str, pl.DataType] = {
    "device_type": pl.String(),
    "device_index": pl.Int32(),
    "seen_bytes": pl.Int64(),
    "tensors": pl.Int64(),
    "kept": pl.Int64(),
    "over_time": pl.List(pl.Int64),
}


class Memory(Tool):
    name = "memory"
    summary = "memory objects and tensors over time: peak, holders, never freed"

    @dataclass(frozen=True)
    class Options(ToolOptions):
        biggest: int = option(20, "how many of the biggest objects to list")

    def run(self, trace: TraceView, options: Options) -> Result:
        tables: list[ResultTable] = []
        findings: list[Finding] = []
        if "alloc" in trace.present:
            objects = memory_objects(trace)
            tables += [_by_kind(objects), _biggest(objects, options.biggest)]
            findings += growing(objects)
        if "tensor" in trace.present:
            tensors = add_op(trace, tensor_lifetimes(trace.table("tensor"))).collect()
            tables += [_by_allocator(trace, tensors), _by_op(tensors)]
        return Result(self.name, tables, findings) if tables else no_data(self.name, trace, ["alloc", "tensor"])


def memory_objects(trace: TraceView) -> pl.DataFrame:
    """Return the memory objects with their lives, ``op`` and ``device``, without parts of other objects."""
    labels = device_labels(trace, ["alloc"]).lazy().rename({"label": "device"})
    whole = object_lifetimes(trace.table("alloc")).filter(pl.col("parent_object_id").is_null())
    return (
        add_op(trace, whole)
        .join(labels, on=["pid", "device_id"], how="left", nulls_equal=True, maintain_order="left")
        .with_columns(
            pl.col("kind").fill_null("unknown"),
            device=pl.when(pl.col("device_id").is_null()).then(pl.lit(_NOWHERE)).otherwise("device"),
        )
        .collect()
    )


def _by_kind(objects: pl.DataFrame) -> ResultTable:
    """Peak of each kind of memory on each device, and what it held when the device's total was at its peak."""
    rows = []
    for (device,), on_device in objects.partition_by("device", as_dict=True).items():
        total = level(on_device)
        peak, at = total.peak
        rows.append(_summary(device, "all", on_device, total, peak))
        for (kind,), part in on_device.partition_by("kind", as_dict=True).items():
            held = 0 if at is None else int(part.filter(alive_at(at))["bytes"].sum())
            rows.append(_summary(device, kind, part, level(part), held))
    frame = pl.DataFrame(rows, schema=_SUMMARY).sort("device", "peak_bytes", "kind", descending=[False, True, False])
    columns = (
        ResultColumn("device", key=True),
        ResultColumn("kind", key=True),
        ResultColumn("peak_bytes", "bytes", "peak", family="size"),
        ResultColumn("peak_at_ns", "ns", "peak at"),
        ResultColumn("held_bytes", "bytes", "at device's peak", family="size"),
        ResultColumn("objects", "count"),
        ResultColumn("kept", "count", "never freed"),
        ResultColumn("kept_bytes", "bytes", "never freed"),
        ResultColumn("over_time", "series"),
    )
    return ResultTable("memory", frame, columns, title="Memory objects")


def _summary(device: object, kind: object, objects: pl.DataFrame, over_time: Level, held: int) -> dict[str, object]:
    peak, at = over_time.peak
    kept = objects.filter(pl.col("died_ns").is_null())
    return {
        "device": device,
        "kind": kind,
        "peak_bytes": peak,
        "peak_at_ns": at,
        "held_bytes": held,
        "objects": objects.height,
        "kept": kept.height,
        "kept_bytes": kept["bytes"].sum(),
        "over_time": curve(over_time),
    }


def curve(over_time: Level, points: int = _POINTS) -> list[int]:
    """Return the highest level within each of ``points`` equal parts of the time."""
    if not over_time.times.size:
        return []
    start, end = int(over_time.times[0]), int(over_time.times[-1]) + 1
    edges = start + (end - start) * np.arange(points + 1) // points
    # What holds at the start of a part was set by the last change before it.
    before = np.searchsorted(over_time.times, edges[:-1], side="right") - 1
    last = np.searchsorted(over_time.times, edges[1:], side="left")
    held = over_time.bytes[before]
    return [int(max(b, over_time.bytes[i + 1 : j].max(initial=0))) for b, i, j in zip(held, before, last, strict=True)]


def _biggest(objects: pl.DataFrame, count: int) -> ResultTable:
    frame = objects.sort("bytes", "born_ns", "object_id", descending=[True, False, False], nulls_last=True).head(count)
    frame = frame.with_columns((pl.col("died_ns") - pl.col("born_ns")).alias("life_ns"))
    columns = (
        ResultColumn("object_id", "id", "object"),
        ResultColumn("bytes", "bytes"),
        ResultColumn("kind"),
        ResultColumn("device"),
        ResultColumn("allocator"),
        ResultColumn("op"),
        ResultColumn("born_ns", "ns", "made at"),
        ResultColumn("life_ns", "ns", "lived"),
    )
    return ResultTable(
        "objects", frame, columns, title="Biggest objects", note="an object that was never freed has no life"
    )


def growing(objects: pl.DataFrame) -> list[Finding]:
    """Find allocations that look like a leak: many of one size by one allocator, and not one of them freed."""
    groups = (
        objects.filter(pl.col("born_ns").is_not_null())
        .group_by("device", "kind", "allocator", "op", "bytes")
        .agg(pl.len().alias("objects"), pl.col("died_ns").is_null().all().alias("kept"))
        .filter(pl.col("kept") & (pl.col("objects") >= 10))
        .with_columns((pl.col("objects") * pl.col("bytes")).alias("total"))
        .sort("total", descending=True)
    )
    peak = level(objects).peak[0]
    found = []
    for row in groups.filter(pl.col("total") * 10 >= peak).head(3).iter_rows(named=True):
        where = f" by {row['op'] or row['allocator']}" if row["op"] or row["allocator"] else ""
        found.append(
            Finding(
                "never-freed",
                "medium",
                f"{grouped(row['objects'])} objects of {size(row['bytes'])} were made{where} and none was freed: "
                f"{size(row['total'])}",
                remedy="free them when they are done, or reuse one",
                evidence={key: row[key] for key in ("device", "kind", "allocator", "op", "bytes", "objects")},
            )
        )
    return found


def _by_allocator(trace: TraceView, tensors: pl.DataFrame) -> ResultTable:
    """Peaks of the framework's allocators: what they said, and the sum of the tensors that were seen."""
    keys = ["device_type", "device_index"]
    said = (
        trace.table("tensor")
        .sort("allocated_bytes", "start_ns", descending=[True, False], nulls_last=True)
        .group_by(keys)
        .agg(
            pl.col("allocated_bytes").first(),
            pl.when(pl.col("allocated_bytes").is_not_null().any()).then(pl.col("start_ns").first()).alias("peak_at_ns"),
            pl.col("reserved_bytes").max(),
        )
        .collect()
    )
    seen = pl.DataFrame(
        [
            {
                **dict(zip(keys, key, strict=True)),
                "seen_bytes": (over_time := level(part)).peak[0],
                "tensors": part.height,
                "kept": part["died_ns"].null_count(),
                "over_time": curve(over_time),
            }
            for key, part in tensors.partition_by(keys, as_dict=True).items()
        ],
        schema=_SEEN,
    )
    frame = said.join(seen, on=keys, how="full", nulls_equal=True, coalesce=True).sort(keys)
    columns = (
        ResultColumn("device_type", title="allocator", key=True),
        ResultColumn("device_index", "id", "device", key=True),
        ResultColumn("allocated_bytes", "bytes", "peak in use", family="size"),
        ResultColumn("peak_at_ns", "ns", "peak at"),
        ResultColumn("reserved_bytes", "bytes", "peak reserved", family="size"),
        ResultColumn("seen_bytes", "bytes", "peak of tensors", family="size"),
        ResultColumn("tensors", "count"),
        ResultColumn("kept", "count", "never freed"),
        ResultColumn("over_time", "series"),
    )
    return ResultTable("tensors", frame, columns, title="Tensors")


def _by_op(tensors: pl.DataFrame) -> ResultTable:
    made = tensors.filter(pl.col("born_ns").is_not_null())
    at_peak = [
        part.filter(alive_at(at))
        for part in tensors.partition_by("device_type", "device_index")
        if (at := level(part).peak[1]) is not None
    ]
    held = pl.concat([made.clear(), *at_peak]).group_by("op").agg(pl.col("bytes").sum().alias("held_bytes"))
    frame = (
        made.group_by("op")
        .agg(pl.len().alias("tensors"), pl.col("bytes").sum(), pl.col("bytes").max().alias("largest_bytes"))
        .join(held, on="op", how="left", nulls_equal=True)
        .with_columns(pl.col("op").fill_null("(no operator)"), pl.col("held_bytes").fill_null(0))
        .sort("held_bytes", "bytes", "op", descending=[True, True, False])
    )
    columns = (
        ResultColumn("op", key=True),
        ResultColumn("held_bytes", "bytes", "at peak", merge="sum"),
        ResultColumn("tensors", "count", merge="sum"),
        ResultColumn("bytes", "bytes", "allocated", merge="sum"),
        ResultColumn("largest_bytes", "bytes", "largest", merge="max"),
    )
    return ResultTable("tensor_ops", frame, columns, title="Tensors by the operator that made them", top=15)
