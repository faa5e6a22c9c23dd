"""Attribute device work to the call and operator that started it, when a recording is sealed.

CUPTI's records of kernels and copies say neither thread nor operator, only a correlation id; the call with
that id says its thread and time, and the operators of the thread say which one was running then. Joining
them here costs the recorded program nothing. Rows of backends that know (OpenCL) stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

#: Tables whose rows a call starts.
ATTRIBUTED = frozenset({"kernel", "memcpy", "memset", "sync", "alloc", "collective"})

#: Those that cannot start before that call, unless the clocks of host and device disagree.
_LAUNCHED = ("kernel", "memcpy", "memset")

_KEY = ["pid", "correlation_id"]
_THREAD = ["pid", "thread_id"]


def operators_at(operators: pl.DataFrame, moments: pl.DataFrame) -> pl.DataFrame:
    """Return ``moments`` (pid, thread_id, start_ns, ...) with `op_id`: the innermost operator running then, or null.

    ``operators`` are rows of `op`. An operator covers its start and not its end.
    """
    starts = operators.select(
        *_THREAD, pl.col("start_ns"), running=pl.col("op_id"), begins=pl.lit(1), depth_order=pl.col("op_id")
    )
    # Where one ends, its caller goes on. At equal times ends come before starts, inner ends before outer ones.
    ends = operators.select(
        *_THREAD, start_ns=pl.col("end_ns"), running=pl.col("parent_id"), begins=pl.lit(0), depth_order=-pl.col("op_id")
    )
    changes = (
        pl.concat([starts, ends])
        .drop_nulls(["thread_id", "start_ns"])
        .sort("start_ns", "begins", "depth_order")
        .select(*_THREAD, "start_ns", "running")
    )
    return (
        moments.sort("start_ns")
        .join_asof(changes, on="start_ns", by=_THREAD, strategy="backward", check_sortedness=False)
        .rename({"running": "op_id"})
    )


class Attribution:
    """Fills `thread_id` and `op_id` of device work; reads calls and operators at the first row that needs them."""

    def __init__(self, rows: Callable[[str], pl.DataFrame]) -> None:
        """``rows`` returns all rows of a table, times on one clock."""
        self._rows = rows
        self._calls: pl.DataFrame | None = None
        self._early: dict[str, list[int]] = {}  # of a table: how many rows, by how much at most

    def fill(self, table: str, frame: pl.DataFrame) -> pl.DataFrame:
        """Return ``frame``, rows of ``table``, with the null `thread_id` and `op_id` filled where a call tells them."""
        if table not in ATTRIBUTED:
            return frame
        needs = pl.col("correlation_id").is_not_null() & pl.col("thread_id").is_null()
        if not frame.select(needs.any()).item():
            return frame
        filled = frame.join(self.started(), on=_KEY, how="left", maintain_order="left", suffix="_call")
        if table in _LAUNCHED:
            self._count_early(table, filled)
        return filled.with_columns(
            pl.coalesce(name, f"{name}_call").alias(name) for name in ("thread_id", "op_id")
        ).select(frame.columns)

    def notes(self) -> list[str]:
        """Return a line for each table with rows that start before their call: they stay where they are."""
        return [
            f"{count} rows of {table} start before the call that launched them, by up to {most} ns: the clocks of host"
            " and device are that far apart"
            for table, (count, most) in self._early.items()
        ]

    def _count_early(self, table: str, filled: pl.DataFrame) -> None:
        by = filled.select(by=pl.col("called_ns") - pl.col("start_ns")).filter(pl.col("by") > 0)["by"]
        if len(by):
            count, most = self._early.get(table, [0, 0])
            self._early[table] = [count + len(by), max(most, int(by.max()))]  # type: ignore[arg-type]

    def started(self) -> pl.DataFrame:
        """Return what the calls tell of the work that they started: key, thread, operator and `called_ns`."""
        if self._calls is None:
            calls = self._rows("api").filter(pl.col("correlation_id").is_not_null())
            # A runtime call and the driver call inside it share an id; the outer one began first.
            calls = calls.sort("start_ns").unique(_KEY, keep="first", maintain_order=True)
            at = operators_at(self._rows("op"), calls.select(*_KEY, "thread_id", "start_ns"))
            self._calls = at.select(*_KEY, "thread_id", "op_id", called_ns="start_ns")
        return self._calls
