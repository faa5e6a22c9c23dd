"""Tool `kernels`: which kernels take the device's time, and how often each is launched (PASTA, figure 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from pasta.tools import Result, ResultColumn, ResultTable, Tool, ToolOptions, TraceView, option
from pasta.tools.analysis import callstats
from pasta.tools.analysis.kernel_names import base_names
from pasta.tools.analysis.launches import add_op, innermost_range, launched

_GRID = ("grid_x", "grid_y", "grid_z")
_BLOCK = ("block_x", "block_y", "block_z")
_TITLES = {"name": "Kernels", "op": "Kernel time by operator", "range": "Kernel time by range"}


@dataclass(frozen=True)
class Part:
    """What one process adds: durations, launch shapes and operators of each key, with how often each occurred."""

    durations: pl.DataFrame
    shapes: pl.DataFrame
    ops: pl.DataFrame


class Kernels(Tool):
    name = "kernels"
    summary = "time and launches of each kernel"
    needs = frozenset({"kernel"})

    @dataclass(frozen=True)
    class Options(ToolOptions):
        base: bool = option(False, "join the instances of a template: leave template arguments and parameters out")
        by: str = option("name", "what a row is", choices=("name", "op", "range"))

    def run(self, trace: TraceView, options: Options) -> Result:
        return self.combine([self.partial(trace, options)], options)

    def partial(self, trace: TraceView, options: Options) -> Part:
        """Count durations, shapes and operators of the kernels of one process."""
        key = _key(options)
        kernels = _keyed(trace, options).with_columns(callstats.duration())
        shapes = kernels.drop_nulls("grid_x").group_by(key, *_GRID, *_BLOCK).agg(pl.len().alias("calls"))
        by_op = kernels.group_by(key, "pid", "op_id").agg(pl.len().alias("calls"))
        ops = add_op(trace, by_op.rename({"op": "key"}) if key == "op" else by_op)
        if key == "op":
            ops = ops.drop("op").with_columns(op="key")
        return Part(
            callstats.histogram(kernels, [key]),
            shapes.collect(),
            ops.group_by([key] if key == "op" else [key, "op"]).agg(pl.col("calls").sum()).collect(),
        )

    def combine(self, parts: Sequence[Part], options: Options) -> Result:
        """Make the table from the parts of all processes."""
        key = _key(options)
        histograms = [part.durations for part in parts]
        rows = callstats.statistics(histograms, [key]).with_columns(
            callstats.shares("total_ns").alias("share"), callstats.shares("calls").alias("calls_share")
        )
        columns = [ResultColumn(key, key=True), *callstats.COLUMNS]
        columns.insert(2, ResultColumn("calls_share", "%", "of launches", merge="sum"))
        columns.insert(4, ResultColumn("share", "%", "of time", merge="sum", bar=True))
        if key == "kernel":
            shapes = _most_common(pl.concat([part.shapes for part in parts]), key, [*_GRID, *_BLOCK])
            ops = _most_common(pl.concat([part.ops for part in parts]).drop_nulls("op"), key, ["op"])
            described = shapes.select(key, _dimensions(_GRID, "grid"), _dimensions(_BLOCK, "block"))
            rows = rows.join(described, on=key, how="left", maintain_order="left", nulls_equal=True)
            rows = rows.join(ops, on=key, how="left", maintain_order="left", nulls_equal=True)
            columns += [ResultColumn("grid"), ResultColumn("block"), ResultColumn("op")]
        table = ResultTable(
            "kernels",
            rows,
            tuple(columns),
            title=_TITLES[options.by],
            top=30,
            samples=callstats.samples(histograms, [key]),
        )
        return Result(self.name, [table])


def _key(options: Kernels.Options) -> str:
    return "kernel" if options.by == "name" else options.by


def _keyed(trace: TraceView, options: Kernels.Options) -> pl.LazyFrame:
    """Return the kernels with the column that rows are made by."""
    kernels = trace.table("kernel")
    if options.by == "op":
        return add_op(trace, kernels).with_columns(pl.col("op").fill_null("(no operator)"))
    if options.by == "range":
        rows = launched(trace, kernels).collect()
        return rows.with_columns(innermost_range(trace, rows).fill_null("(no range)")).lazy()
    name = base_names(kernels, "name") if options.base else pl.col("name")
    return kernels.with_columns(name.fill_null("(unnamed)").alias("kernel"))


def _most_common(counts: pl.DataFrame, key: str, values: list[str]) -> pl.DataFrame:
    """Return for each key the values that occurred most often; of equals, the smallest."""
    return (
        counts.group_by(key, *values)
        .agg(pl.col("calls").sum())
        .sort(key, "calls", *values, descending=[False, True, *([False] * len(values))])
        .unique(key, keep="first", maintain_order=True)
        .drop("calls")
    )


def _dimensions(names: Sequence[str], title: str) -> pl.Expr:
    """Write ``x``, ``y`` and ``z`` as one text; null where the source does not know them."""
    return pl.format("{}x{}x{}", *(pl.col(name) for name in names)).alias(title)
