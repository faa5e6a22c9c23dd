"""Tool `workload`: the first screen: what ran, where the time went, what is worst, what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from pasta.tools import Result, ResultColumn, ResultTable, Samples, Tool, ToolOptions, TraceView, describe, option
from pasta.tools.analysis import accesses, timesplit
from pasta.tools.analysis.accesses import LAUNCH
from pasta.tools.analysis.callstats import shares
from pasta.tools.analysis.intervals import Times
from pasta.tools.analysis.launches import add_op
from pasta.tools.analysis.lifetimes import level
from pasta.tools.analysis.optree import OpTree, op_tree
from pasta.tools.analysis.steps import Steps, find_steps
from pasta.tools.analysis.timesplit import DeviceSplit
from pasta.tools.builtin import workload_findings
from pasta.tools.builtin.memory import memory_objects
from pasta.tools.builtin.ops import OwnTimes, own_times, totals
from pasta.tools.builtin.workingset import device_footprint, finest, working_sets
from pasta.tools.describe import no_data
from pasta.tools.filters import DEVICE_TABLES
from pasta.tools.units import duration, grouped


class Workload(Tool):
    name = "workload"
    summary = "what ran, where the time went, what is worst, what to do"

    @dataclass(frozen=True)
    class Options(ToolOptions):
        top: int = option(5, "how many kernels and operators to show")

    def run(self, trace: TraceView, options: Options) -> Result:
        if not any(name in trace.present for name in (*DEVICE_TABLES, "op", "api")):
            return no_data(self.name, trace, ["kernel", "op"])
        tree = op_tree(trace) if "op" in trace.present else None
        steps = find_steps(trace, tree)
        splits = timesplit.split(trace, steps)
        tables = [*_where(splits, steps), *_kernels(trace, splits, steps, options.top)]
        if tree is not None:
            # Times of kernels do not tell which operators belong to a step: the host had run them before.
            on_host = steps if steps and steps.on_host else None
            tables += _operators(tree, own_times(trace, tree), on_host, options.top)
        tables += _memory(trace)
        found = workload_findings.find(trace, splits, steps)
        return Result(self.name, tables, found, _header(trace, splits, steps))


def _header(trace: TraceView, splits: Sequence[DeviceSplit], steps: Steps | None) -> list[str]:
    lines = describe.header(trace) or [""]
    if steps:
        typical = float(np.median(steps.durations))
        # The median and the deviation around it (MAD, scaled to a standard deviation) ignore single slow steps.
        spread = 1.4826 * float(np.median(np.abs(steps.durations - typical)))
        found = f"{grouped(len(steps))} {steps.noun}s found ({duration(typical)} each, ±{100 * spread / typical:.1f} %)"
        notes = [f"{steps.noun}s: {steps.how}", *_warm_up(steps)]
        return [" · ".join(filter(None, (lines[0], found))), *lines[1:], *notes]
    wall = max((split.wall.measure for split in splits), default=0)
    return [" · ".join(filter(None, (lines[0], duration(wall) if wall else ""))), *lines[1:]]


def _warm_up(steps: Steps) -> list[str]:
    if not steps.warm_up.height:
        return []
    lengths = (steps.warm_up["end_ns"] - steps.warm_up["start_ns"]).to_list()
    total = duration(sum(lengths))
    return [f"left out as warm-up: the first {len(lengths)} {steps.noun}s, {total} in all" if len(lengths) > 1
            else f"left out as warm-up: the first {steps.noun}, {total}"]  # fmt: skip


def _each(steps: Steps | None) -> tuple[int, str]:
    """Return by how many steps numbers are divided, and what their titles say about it."""
    return (len(steps), f" a {steps.noun}") if steps else (1, "")


def _where(splits: Sequence[DeviceSplit], steps: Steps | None) -> list[ResultTable]:
    """Return the parts of the wall time, and the length of the steps."""
    if not splits:
        return []
    _, each = _each(steps)
    sums = timesplit.totals(splits)
    # Every device has all steps of its own process: dividing by steps alone would mix devices with steps.
    runs = sum(len(steps.of(*split.device.pids)) for split in splits) if steps else len(splits)
    frame = (
        pl.DataFrame({"part": timesplit.PARTS, "total_ns": sums})
        .with_columns((pl.col("total_ns") / max(runs, 1)).alias("time_ns"), shares("total_ns").alias("share"))
        .filter((pl.col("total_ns") > 0) | (pl.col("part") == timesplit.PARTS[0]))
    )
    columns = (
        ResultColumn("part", key=True),
        ResultColumn("time_ns", "ns", f"time{each}", merge="sum"),
        ResultColumn("share", "%", merge="sum", bar=True),
    )
    title = f"Where a {steps.noun} goes" if steps else "Where the time goes"
    if len(splits) > 1:
        title += f" (mean of {len(splits)} devices)"
    if steps is None:
        return [ResultTable("where", frame, columns, title=title)]
    samples = Samples("time_ns", timesplit.per_step(splits, steps))
    return [ResultTable("where", frame, columns, title=title, samples=samples), _steps(steps)]


def _steps(steps: Steps) -> ResultTable:
    lengths = steps.durations
    frame = pl.DataFrame(
        {
            "what": [steps.noun],
            "steps": [len(steps)],
            "mean_ns": [float(lengths.mean())],
            "median_ns": [float(np.median(lengths))],
            "min_ns": [int(lengths.min())],
            "max_ns": [int(lengths.max())],
        }
    )
    columns = (
        ResultColumn("what", key=True),
        ResultColumn("steps", "count"),
        *(ResultColumn(f"{name}_ns", "ns", family="step") for name in ("mean", "median", "min", "max")),
    )
    samples = Samples("mean_ns", pl.DataFrame({"value": lengths}).select(pl.lit(steps.noun).alias("what"), "value"))
    return ResultTable("steps", frame, columns, title=f"{steps.noun.title()}s", detail=True, samples=samples)


def _kernels(trace: TraceView, splits: Sequence[DeviceSplit], steps: Steps | None, top: int) -> list[ResultTable]:
    """Return the kernels by their share of the devices' wall time."""
    if "kernel" not in trace.present:
        return []
    count, each = _each(steps)
    name = pl.col("name").fill_null("(unnamed)").cast(pl.Categorical).alias("kernel")
    time = (pl.col("end_ns") - pl.col("start_ns")).alias("time_ns")
    kernels = trace.table("kernel").select("pid", "op_id", "start_ns", name, time).collect()
    samples = None
    if steps:
        kernels = kernels.drop_nulls("start_ns")
        kernels = kernels.with_columns(pl.Series("step", steps.number(kernels))).filter(pl.col("step") >= 0)
        sampled = steps.samples(kernels.rename({"time_ns": "value"}), ["kernel"])
        samples = Samples("time_ns", sampled.with_columns(pl.col("kernel").cast(pl.String)))
    wall = timesplit.wall_total(splits)
    frame = (
        kernels.lazy()
        .group_by("kernel")
        .agg(pl.len().alias("calls"), pl.col("time_ns").sum().alias("total_ns"))
        .with_columns(
            pl.col("kernel").cast(pl.String),
            pl.col("calls") / count,
            (pl.col("total_ns") / count).alias("time_ns"),
            pl.when(wall > 0).then(pl.col("total_ns") * 100 / wall).alias("share"),
        )
        .sort("total_ns", "kernel", descending=[True, False])
        .collect()
    )
    if not steps:
        frame = frame.with_columns(pl.col("calls").cast(pl.Int64))
    shown = frame["kernel"].head(max(top, 20))
    frame = frame.join(_origins(trace, kernels, shown), on="kernel", how="left", maintain_order="left")
    columns = (
        ResultColumn("kernel", key=True),
        ResultColumn("calls", "count", f"calls{each}", merge="sum"),
        ResultColumn("time_ns", "ns", f"time{each}", merge="sum"),
        ResultColumn("share", "%", "of wall", merge="sum"),
        ResultColumn("op"),
        ResultColumn("module"),
    )
    kept = tuple(c for c in columns if c.name not in ("op", "module") or frame[c.name].null_count() < frame.height)
    return [ResultTable("kernels", frame, kept, title="Kernels", top=top, samples=samples)]


def _origins(trace: TraceView, kernels: pl.DataFrame, wanted: pl.Series) -> pl.DataFrame:
    """Return the operator and module that launched each of the ``wanted`` kernels most often."""
    used = (
        kernels.lazy().with_columns(pl.col("kernel").cast(pl.String)).filter(pl.col("kernel").is_in(wanted.implode()))
    )
    counts = used.group_by("kernel", "pid", "op_id").agg(pl.len().alias("launches"))
    return (
        add_op(trace, counts, "module")
        .with_columns(pl.col("module").str.replace_all(r"\d+", "*"))
        .group_by("kernel", "op", "module")
        .agg(pl.col("launches").sum())
        .filter(pl.col("op").is_not_null())
        .sort("launches", "op", "module", descending=[True, False, False])
        .unique("kernel", keep="first", maintain_order=True)
        .drop("launches")
        .collect()
    )


def _operators(tree: OpTree, own: OwnTimes, steps: Steps | None, top: int) -> list[ResultTable]:
    """Return the operators, and the phases of training where there are any."""
    number = steps.number(tree.frame) if steps else None
    inside = None if number is None else number >= 0
    count, each = _each(steps)

    def per_step(frame: pl.DataFrame) -> pl.DataFrame:
        names = ("calls", "device_self_ns", "host_self_ns")
        return frame.with_columns(pl.col(name) / count for name in names) if steps else frame

    numbers = (
        ResultColumn("calls", "count", f"calls{each}", merge="sum"),
        ResultColumn("device_self_ns", "ns", f"device{each}", merge="sum"),
        ResultColumn("host_self_ns", "ns", f"host{each}", merge="sum"),
    )
    ops = per_step(totals(tree, own, "op", inside))
    samples = None if steps is None or number is None else _operator_samples(tree, own.device, number, steps)
    keys = (ResultColumn("op", key=True), ResultColumn("phase", key=True))
    tables = [
        ResultTable("ops", ops, (*keys, *numbers), title="Operators, without what they call", top=top, samples=samples)
    ]
    phases = per_step(totals(tree, own, "phase", inside))
    if (phases["phase"] != "other").any():
        tables.append(ResultTable("phases", phases, (ResultColumn("phase", key=True), *numbers), title="Phases"))
    return tables


def _operator_samples(tree: OpTree, device: Times, number: Times, steps: Steps) -> Samples:
    busy = device > 0
    events = tree.frame.select(pl.col("name").alias("op"), "phase").filter(pl.Series(busy))
    events = events.with_columns(pl.Series("value", device[busy]), pl.Series("step", number[busy]))
    sampled = steps.samples(events, ["op", "phase"])
    return Samples("device_self_ns", sampled.with_columns(pl.col("op", "phase").cast(pl.String)))


def _memory(trace: TraceView) -> list[ResultTable]:
    """Return peaks of memory, and the largest working set where accesses were recorded."""
    rows: list[tuple[str, int, int | None]] = []
    if "alloc" in trace.present:
        for (device,), objects in memory_objects(trace).sort("device").partition_by("device", as_dict=True).items():
            where = "host memory objects" if device == "host" else f"memory objects of device {device}"
            rows.append((f"peak of {where}", *level(objects).peak))
    if "tensor" in trace.present:
        rows += _tensor_peaks(trace)
    if "access_object" in trace.present:
        sets = working_sets(accesses.device_accesses(trace).collect())
        largest = sets.sort(finest(sets), descending=True, nulls_last=True).head(1)
        launch = accesses.launches(trace).join(largest.lazy().select(LAUNCH), on=list(LAUNCH), how="semi").collect()
        if largest.height and largest[finest(sets)][0] is not None:
            kernel = launch["kernel"][0] if launch.height else "a launch"
            rows.append((f"footprint of device memory, against {kernel}", *device_footprint(trace).peak))
            at = launch["start_ns"][0] if launch.height else None
            rows.append((f"largest working set: {kernel}", int(largest[finest(sets)][0]), at))
    if not rows:
        return []
    frame = pl.DataFrame(rows, schema={"what": pl.String, "bytes": pl.Int64, "at_ns": pl.Int64}, orient="row")
    columns = (
        ResultColumn("what", key=True),
        ResultColumn("bytes", "bytes", "size", merge="max"),
        ResultColumn("at_ns", "ns", "reached at"),
    )
    measured = "access_object" in trace.present
    note = accesses.coverage(trace, "access_object", "sets of the others are not known") if measured else ""
    return [ResultTable("memory", frame, columns, title="Memory", note=note)]


def _tensor_peaks(trace: TraceView) -> list[tuple[str, int, int | None]]:
    peaks = (
        trace.table("tensor")
        .group_by("device_type", "device_index")
        .agg(
            pl.col("allocated_bytes").max(),
            pl.col("start_ns").sort_by("allocated_bytes", descending=True, nulls_last=True).first(),
            pl.col("reserved_bytes").max(),
        )
        .sort("device_type", "device_index")
        .collect()
    )
    rows: list[tuple[str, int, int | None]] = []
    for kind, index, allocated, at, reserved in peaks.iter_rows():
        where = f"{kind or 'unknown'}:{index}" if index is not None and index >= 0 else str(kind or "unknown")
        if allocated is not None:
            rows.append((f"peak of tensors on {where}", allocated, at))
        if reserved:
            rows.append((f"reserved for tensors on {where}", reserved, None))
    return rows
