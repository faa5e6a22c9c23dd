"""Tool `ops`: host and device time of framework operators, by operator, module or phase."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from pasta.tools.analysis import callstats
from pasta.tools.analysis.intervals import Times
from pasta.tools.analysis.optree import OpTree, op_tree
from pasta.tools.base import Result, ResultColumn, ResultTable, Tool, ToolOptions, TraceView, option
from pasta.tools.filters import DEVICE_TABLES

_KEYS = {"op": ("op", "phase"), "module": ("module",), "phase": ("phase",)}
_TITLES = {"op": "Operators", "module": "Operators by module", "phase": "Phases"}


class Ops(Tool):
    name = "ops"
    summary = "host and device time of framework operators"
    needs = frozenset({"op"})

    @dataclass(frozen=True)
    class Options(ToolOptions):
        by: str = option("op", "what a row is", choices=("op", "module", "phase"))

    def run(self, trace: TraceView, options: Options) -> Result:
        tree = op_tree(trace, *(["module"] if options.by == "module" else []))
        return Result(self.name, [table(trace, tree, options.by)])


def table(trace: TraceView, tree: OpTree, by: str) -> ResultTable:
    """Return the times of the operators of ``tree``, a row for each of ``by``: op, module or phase."""
    keys = _KEYS[by]
    work = device_work(trace, tree)
    frame = times(tree, work, by).with_columns(callstats.shares("device_self_ns").alias("device_share"))
    return ResultTable(
        "ops",
        frame,
        (
            *(ResultColumn(key, key=True) for key in keys),
            ResultColumn("calls", "count", merge="sum"),
            ResultColumn("device_self_ns", "ns", "device self", merge="sum"),
            ResultColumn("device_share", "%", "of device", merge="sum", bar=True),
            ResultColumn("device_ns", "ns", "device total", merge="sum"),
            ResultColumn("host_self_ns", "ns", "host self", merge="sum"),
            ResultColumn("host_ns", "ns", "host total", merge="sum"),
            ResultColumn("launches", "count", merge="sum"),
        ),
        title=_TITLES[by],
        top=30,
        note=_unattributed(work),
    )


def times(tree: OpTree, work: DeviceWork, by: str, inside: npt.NDArray[np.bool_] | None = None) -> pl.DataFrame:
    """Add up host and device times of operators by ``by``; only of those marked in ``inside``, when it is given.

    Times without ``self`` are those of operators that no operator of the same row called: recursion counts once.
    """
    keys = _KEYS[by]
    outer = tree.outermost(_codes(tree.frame.select(_key(key) for key in keys)))
    duration = (tree.frame["end_ns"] - tree.frame["start_ns"]).to_numpy()
    columns = {
        "host_self_ns": tree.less_children(duration),
        "host_ns": np.where(outer, duration, 0),
        "device_self_ns": work.time,
        "device_ns": np.where(outer, tree.inclusive(work.time), 0),
        "launches": work.launches,
    }
    rows = tree.frame.select(_key(key) for key in keys).with_columns(
        pl.Series(name, values) for name, values in columns.items()
    )
    return (
        (rows if inside is None else rows.filter(pl.Series(inside)))
        .lazy()
        .group_by(keys)
        .agg(pl.len().cast(pl.Int64).alias("calls"), *(pl.col(name).sum() for name in columns))
        .with_columns(pl.col(key).cast(pl.String) for key in keys)
        .sort("device_self_ns", "host_self_ns", *keys, descending=[True, True, *([False] * len(keys))])
        .collect()
    )


@dataclass(frozen=True)
class DeviceWork:
    """Device time and pieces of work (kernels, copies, fills) that each operator launched itself, and what none did."""

    time: Times
    launches: Times
    unattributed_ns: int
    total_ns: int


def device_work(trace: TraceView, tree: OpTree) -> DeviceWork:
    """Charge every kernel, copy and fill to the operator that was running when it was launched."""
    present = [name for name in DEVICE_TABLES if name in trace.present]
    work = [
        trace.table(name)
        .group_by("pid", "op_id")
        .agg((pl.col("end_ns") - pl.col("start_ns")).sum().alias("time"), pl.len().cast(pl.Int64).alias("launches"))
        for name in present
    ]
    if not work:
        nothing = np.zeros(len(tree), dtype=np.int64)
        return DeviceWork(nothing, nothing, 0, 0)
    charged = pl.concat(work).collect()
    rows = tree.rows_of(charged.select("pid", "op_id"))
    known = rows >= 0
    sums = [
        np.bincount(rows[known], weights=charged[name].to_numpy()[known], minlength=len(tree)).astype(np.int64)
        for name in ("time", "launches")
    ]
    total = int(charged["time"].sum())
    return DeviceWork(sums[0], sums[1], total - int(sums[0].sum()), total)


def _key(key: str) -> pl.Expr:
    if key == "module":
        return pl.col("module").cast(pl.String).fill_null("(no module)").cast(pl.Categorical)
    return pl.col("name").alias("op") if key == "op" else pl.col(key)


def _codes(keys: pl.DataFrame) -> Times:
    """Number the combinations of categories: equal rows get equal numbers."""
    codes = np.zeros(keys.height, dtype=np.int64)
    for column in keys:
        category = column.to_physical().to_numpy().astype(np.int64)
        codes = codes * (int(category.max(initial=0)) + 1) + category
    return codes


def _unattributed(work: DeviceWork) -> str:
    if not work.unattributed_ns:
        return ""
    share = 100 * work.unattributed_ns / work.total_ns
    return f"{share:.1f} % of the device time was launched outside of any recorded operator"
