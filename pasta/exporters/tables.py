"""Tables as Parquet or CSV files, one file a table, for programs that know nothing of pasta."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl

from pasta.schema import TABLES
from pasta.tools.base import TraceView


def write(trace: TraceView, folder: Path, format: str, names: Sequence[str], advance: Callable[[int], None]) -> int:
    """Write the tables ``names`` (empty: all with rows) to ``folder/TABLE.FORMAT``; returns the number of rows.

    ``format`` is ``parquet`` or ``csv``. polars streams the rows from the trace to the file.
    """
    total = 0
    for name in names or [name for name in TABLES if name in trace.present]:
        frame = trace.table(name)
        file = folder / f"{name}.{format}"
        if format == "parquet":
            frame.sink_parquet(file, compression="zstd")
        else:
            frame.sink_csv(file)
        rows = int(frame.select(pl.len()).collect().item())
        total += rows
        advance(rows)
    return total
