"""Operators as a tree in arrays: who called whom, and sums up and down the chain of callers.

A trace may hold ten million operators, so everything here is a pass over whole arrays, one pass a level of nesting.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from pasta.tools.analysis.intervals import Times
from pasta.tools.base import TraceView


@dataclass(frozen=True)
class OpTree:
    """Operators in the order of (process, id). ``parent[i]`` is the position of the caller of operator i, or -1.

    ``frame`` has a row an operator: ``pid``, ``op_id``, ``name`` (categorical), ``phase`` and ``start_ns``, ``end_ns``.
    """

    frame: pl.DataFrame
    parent: Times

    def __len__(self) -> int:
        return self.frame.height

    def inclusive(self, own: Times) -> Times:
        """Return for each operator its own value and those of all operators below it."""
        total = own.copy()
        moving = own
        for children, parents in self._levels(np.flatnonzero(own)):
            # What every operator got from the level below goes one level up.
            moved = np.bincount(parents, weights=moving[children], minlength=len(self)).astype(np.int64)
            total += moved
            moving = moved
        return total

    def _levels(self, active: npt.NDArray[np.int64]) -> Iterator[tuple[Times, Times]]:
        """Yield (operators that have something to hand up, their callers), level by level until nothing moves."""
        while (active := active[self.parent[active] >= 0]).size:
            parents = self.parent[active]
            yield active, parents
            active = np.unique(parents)

    def less_children(self, values: Times) -> Times:
        """Return for each operator its value less the values of the operators that it called, at least 0."""
        own: Times = np.maximum(values - self.children(values), 0)
        return own

    def children(self, values: Times) -> Times:
        """Return for each operator the sum over the operators that it called itself."""
        called = self.parent >= 0
        sums = np.bincount(self.parent[called], weights=values[called], minlength=len(self))
        return sums.astype(np.int64)

    def outermost(self, group: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
        """Return for each operator whether no operator above it has the same ``group``: recursion counts once."""
        outer = np.ones(len(self), dtype=bool)
        below = np.flatnonzero(self.parent >= 0)
        above = self.parent[below]
        while below.size:
            same = group[above] == group[below]
            outer[below[same]] = False
            above = self.parent[above]
            kept = (above >= 0) & ~same
            below, above = below[kept], above[kept]
        return outer

    def rows_of(self, keys: pl.DataFrame) -> Times:
        """Return the position of each (``pid``, ``op_id``) of ``keys``; -1 for an operator that is not here."""
        positions = self.frame.lazy().select("pid", "op_id").with_row_index("_op")
        used = positions.join(keys.lazy().drop_nulls().unique(), on=["pid", "op_id"], how="semi")
        found = keys.lazy().join(
            used.unique(["pid", "op_id"], keep="first"), on=["pid", "op_id"], how="left", maintain_order="left"
        )
        return found.select(pl.col("_op").cast(pl.Int64).fill_null(-1)).collect()["_op"].to_numpy()


def op_tree(trace: TraceView, *columns: str) -> OpTree:
    """Read the `op` table of ``trace`` as a tree, with more ``columns`` in its frame (texts as categories)."""
    frame = (
        trace.table("op")
        .filter(pl.col("start_ns").is_not_null())
        .select(
            "pid",
            "op_id",
            "parent_id",
            "start_ns",
            pl.coalesce("end_ns", "start_ns").alias("end_ns"),
            pl.col("name").fill_null("(unnamed)").cast(pl.Categorical),
            pl.col("phase").fill_null("other").cast(pl.Categorical),
            *(pl.col(name).cast(pl.Categorical) for name in columns),
        )
        .collect()
    )
    if not _is_sorted(frame):
        frame = frame.sort("pid", "op_id", nulls_last=True, maintain_order=True)
    parent = np.full(frame.height, -1, dtype=np.int64)
    pids = frame["pid"].fill_null(-1).to_numpy()
    bounds = np.flatnonzero(np.diff(pids)) + 1
    for start, stop in zip([0, *bounds], [*bounds, frame.height], strict=True):
        parent[start:stop] = _parents(frame[int(start) : int(stop)], int(start))
    return OpTree(frame.drop("parent_id"), parent)


def _is_sorted(frame: pl.DataFrame) -> bool:
    if frame["op_id"].null_count() or frame["pid"].null_count():
        return False
    pids, ids = frame["pid"].to_numpy(), frame["op_id"].to_numpy()
    return bool(((pids[1:] > pids[:-1]) | ((pids[1:] == pids[:-1]) & (ids[1:] >= ids[:-1]))).all())


def _parents(process: pl.DataFrame, offset: int) -> Times:
    """Find the parent of each operator of one process by bisection in its sorted ids."""
    known = process["op_id"].drop_nulls().to_numpy()  # nulls are last
    if not known.size:
        return np.full(process.height, -1, dtype=np.int64)
    wanted = process["parent_id"].fill_null(-(2**63)).to_numpy()
    found = np.minimum(np.searchsorted(known, wanted), known.size - 1)
    own = np.arange(process.height)
    start, end = process["start_ns"].to_numpy(), process["end_ns"].to_numpy()
    # A caller begins no later and ends no earlier. Asking for that order, strictly, rules out cycles.
    later = start[found] > start
    tied = start[found] == start
    later |= tied & ((end[found] < end) | ((end[found] == end) & (found >= own)))
    return np.where((known[found] == wanted) & ~later, found + offset, -1)
