"""Tool `ops`: host and device time of framework operators, by operator, module or phase."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from pasta.tools import Result, ResultColumn, ResultTable, Tool, ToolOptions, TraceView, option
from pasta.tools.analysis import callstats
from pasta.tools.analysis.intervals import Times
from pasta.tools.analysis.optree import OpTree, op_tree
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
    """Return the times of the operators of ``tree``, a row for each of ``by``: op, module or phase.

    Times without ``self`` are those of operators that no operator of the same row called: recursion counts once.
    """
    own = own_times(trace, tree)
    outer = tree.outermost(_codes(_keys(tree, by)))
    duration = (tree.frame["end_ns"] - tree.frame["start_ns"]).to_numpy()
    inclusive = {
        "host_ns": np.where(outer, duration, 0),
        "device_ns": np.where(outer, tree.inclusive(own.device), 0),
    }
    frame = totals(tree, own, by, more=inclusive)
    return ResultTable(
        "ops",
        frame.with_columns(callstats.shares("device_self_ns").alias("device_share")),
        (
            *(ResultColumn(key, key=True) for key in _KEYS[by]),
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
        note=_unattributed(own),
    )


@dataclass(frozen=True)
class OwnTimes:
    """What each operator did itself: host time without what it called, device time and work that it launched."""

    host: Times
    device: Times
    launches: Times
    unattributed_ns: int  # device time that no operator launched
    device_ns: int  # all device time


def own_times(trace: TraceView, tree: OpTree) -> OwnTimes:
    """Charge every kernel, copy and fill to the operator that was running when it was launched."""
    host = tree.less_children((tree.frame["end_ns"] - tree.frame["start_ns"]).to_numpy())
    work = [
        trace.table(name)
        .group_by("pid", "op_id")
        .agg((pl.col("end_ns") - pl.col("start_ns")).sum().alias("time"), pl.len().cast(pl.Int64).alias("launches"))
        for name in DEVICE_TABLES
    ]
    charged = pl.concat(work).collect()
    rows = tree.rows_of(charged.select("pid", "op_id"))
    known = rows >= 0
    device, launches = (
        np.bincount(rows[known], weights=charged[name].to_numpy()[known], minlength=len(tree)).astype(np.int64)
        for name in ("time", "launches")
    )
    total = int(charged["time"].sum())
    return OwnTimes(host, device, launches, total - int(device.sum()), total)


def totals(
    tree: OpTree,
    own: OwnTimes,
    by: str,
    inside: npt.NDArray[np.bool_] | None = None,
    more: Mapping[str, Times] | None = None,
) -> pl.DataFrame:
    """Add up times of operators, and ``more`` values of each, by ``by``; only those marked in ``inside``, if given."""
    keys = list(_KEYS[by])
    columns = {"host_self_ns": own.host, "device_self_ns": own.device, "launches": own.launches, **(more or {})}
    rows = _keys(tree, by).with_columns(pl.Series(name, values) for name, values in columns.items())
    return (
        (rows if inside is None else rows.filter(pl.Series(inside)))
        .lazy()
        .group_by(keys)
        .agg(pl.len().cast(pl.Int64).alias("calls"), *(pl.col(name).sum() for name in columns))
        .with_columns(pl.col(key).cast(pl.String) for key in keys)
        .sort("device_self_ns", "host_self_ns", *keys, descending=[True, True, *([False] * len(keys))])
        .collect()
    )


def _keys(tree: OpTree, by: str) -> pl.DataFrame:
    """Return the columns by which operators are grouped, as categories."""
    if by == "module":
        return tree.frame.select(pl.col("module").cast(pl.String).fill_null("(no module)").cast(pl.Categorical))
    return tree.frame.select(pl.col("name").alias(key) if key == "op" else pl.col(key) for key in _KEYS[by])


def _codes(keys: pl.DataFrame) -> Times:
    """Number the combinations of categories: equal rows get equal numbers."""
    codes = np.zeros(keys.height, dtype=np.int64)
    for column in keys:
        category = column.to_physical().to_numpy().astype(np.int64)
        codes = codes * (int(category.max(initial=0)) + 1) + category
    return codes


def _unattributed(own: OwnTimes) -> str:
    if not own.unattributed_ns:
        return ""
    share = 100 * own.unattributed_ns / own.device_ns
    return f"{share:.1f} % of the device time was launched outside of any recorded operator"
