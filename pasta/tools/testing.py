"""A trace made by hand in memory, for tests of tools: give only the rows and columns that matter.

trace = trace_of(kernel=[{"name": "axpy", "start_ns": 0, "end_ns": 10}])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from pasta.schema import TABLES
from pasta.trace.frames import conform, empty_frame, find_table, frame_schema


@dataclass(frozen=True)
class MemoryTrace:
    """A `TraceView` of frames in memory."""

    frames: Mapping[str, pl.DataFrame]
    manifest: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()

    @property
    def present(self) -> frozenset[str]:
        """Names of the tables that have rows."""
        return frozenset(name for name, frame in self.frames.items() if frame.height)

    def table(self, name: str) -> pl.LazyFrame:
        """Return the table called ``name``; raises ``PastaError`` when the schema has no such table."""
        frame = self.frames.get(name)
        return (empty_frame(find_table(name)) if frame is None else frame).lazy()


def trace_of(
    manifest: Mapping[str, Any] | None = None, **tables: Sequence[Mapping[str, Any]] | pl.DataFrame
) -> MemoryTrace:
    """Return a trace of these rows. Columns that a row leaves out are null, but its process is 1."""
    frames = {name: _frame(name, rows) for name, rows in tables.items()}
    return MemoryTrace(frames, manifest or {})


def _frame(name: str, rows: Sequence[Mapping[str, Any]] | pl.DataFrame) -> pl.DataFrame:
    table = find_table(name)
    if not isinstance(rows, pl.DataFrame):
        rows = pl.DataFrame([{"pid": 1, **row} for row in rows], schema_overrides=_known(name, rows), strict=True)
    return conform(rows, TABLES[table.name])


def _known(name: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, pl.DataType]:
    given = {column for row in rows for column in row}
    return {column: dtype for column, dtype in frame_schema(TABLES[name]).items() if column in given}
