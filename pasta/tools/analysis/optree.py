"""Operators as a tree in arrays: who called whom, and sums up and down the chain of callers.

A trace may hold ten million operators, so everything here is a pass over whole arrays, one pass a level of nesting.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import polars as pl

from pasta.tools.analysis.intervals import Times
from pasta.tools.base import TraceView

#: Operators of a call path that are named.
_LONGEST_PATH = 8


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
        total, moving = own, own
        while (below := np.flatnonzero((moving != 0) & (self.parent >= 0))).size:
            # What every operator got from the level below goes one level up.
            moving = np.bincount(self.parent[below], weights=moving[below], minlength=len(self)).astype(np.int64)
            total = total + moving
        return total

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
        rows = np.full(keys.height, -1, dtype=np.int64)
        processes = _processes(self.frame)
        for (pid,), part in keys.with_row_index("row").drop_nulls().partition_by("pid", as_dict=True).items():
            if pid in processes:
                start, stop = processes[pid]
                rows[part["row"].to_numpy()] = _find(self.frame[start:stop], part["op_id"].to_numpy(), start)
        return rows


def call_paths(trace: TraceView, rows: pl.DataFrame) -> pl.Series:
    """Return for each row (``pid``, ``op_id``) the operators that were running, the outermost first: `step > mm`.

    Null for a row without an operator. Of a long chain the innermost eight are named.
    """
    if "op" not in trace.present:
        return pl.Series("called", [None] * rows.height, dtype=pl.String)
    tree = op_tree(trace)
    names = tree.frame["name"]
    paths: dict[int, str] = {}
    positions = tree.rows_of(rows.select("pid", "op_id")).tolist()
    for position in positions:
        chain: list[str] = []
        at = position
        while at >= 0 and len(chain) < _LONGEST_PATH and position not in paths:
            chain.append(str(names[at]))
            at = int(tree.parent[at])
        if chain:
            paths[position] = " > ".join(["...", *chain[::-1]] if at >= 0 else chain[::-1])
    return pl.Series("called", [paths.get(position) for position in positions], dtype=pl.String)


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
    for start, stop in _processes(frame).values():
        parent[start:stop] = _parents(frame[start:stop], start)
    return OpTree(frame.drop("parent_id"), parent)


def _processes(frame: pl.DataFrame) -> dict[int | None, tuple[int, int]]:
    """Return where the rows of each process begin and end, in a frame that is sorted by process."""
    pids = frame["pid"].fill_null(-1).to_numpy()
    bounds = [0, *(np.flatnonzero(np.diff(pids)) + 1).tolist(), frame.height]
    return {frame["pid"][start]: (start, stop) for start, stop in pairwise(bounds) if stop > start}


def _is_sorted(frame: pl.DataFrame) -> bool:
    if frame["op_id"].null_count() or frame["pid"].null_count():
        return False
    pids, ids = frame["pid"].to_numpy(), frame["op_id"].to_numpy()
    return bool(((pids[1:] > pids[:-1]) | ((pids[1:] == pids[:-1]) & (ids[1:] >= ids[:-1]))).all())


def _parents(process: pl.DataFrame, offset: int) -> Times:
    """Find the parent of each operator of one process; a caller begins no later and ends no earlier.

    Asking for that order, strictly, rules out cycles of parents in a damaged trace.
    """
    found = _find(process, process["parent_id"].fill_null(-(2**63)).to_numpy(), 0)
    own = np.arange(process.height)
    start, end = process["start_ns"].to_numpy(), process["end_ns"].to_numpy()
    later = start[found] > start
    tied = start[found] == start
    later |= tied & ((end[found] < end) | ((end[found] == end) & (found >= own)))
    return np.where((found >= 0) & ~later, found + offset, -1)


def _find(process: pl.DataFrame, wanted: Times, offset: int) -> Times:
    """Return ``offset`` + the position of each id in the sorted ids of one process, -1 where it is not there."""
    known = process["op_id"].drop_nulls().to_numpy()  # nulls are last
    if not known.size:
        return np.full(wanted.size, -1, dtype=np.int64)
    if int(known[-1]) - int(known[0]) == known.size - 1 and (known[1:] > known[:-1]).all():
        at = np.clip(wanted, known[0], known[-1]) - known[0]  # ids without holes need no search
    else:
        at = np.minimum(np.searchsorted(known, wanted), known.size - 1)
    return np.where(known[at] == wanted, at + offset, -1)
