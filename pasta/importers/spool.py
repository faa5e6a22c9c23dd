"""Rows set aside on disk until the whole source was read, because what completes them may come last."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import polars as pl

from pasta.importers.base import Rows, Schema


class Spool:
    """Tables of any columns, in files of one frame each below ``folder``, which the caller removes."""

    def __init__(self, folder: Path, misfit: Callable[[str, int], None]) -> None:
        folder.mkdir()
        self._folder = folder
        self._misfit = misfit
        self._schemas: dict[str, Schema] = {}
        self._files: dict[str, list[Path]] = {}
        self._rows: list[Rows] = []

    def table(self, name: str, schema: Schema) -> Rows:
        """Return a buffer for rows of the table ``name``."""
        self._schemas[name] = schema
        self._files[name] = []
        rows = Rows(schema, partial(self._write, name), lambda column, count: self._misfit(f"{name}.{column}", count))
        self._rows.append(rows)
        return rows

    def flush_full(self) -> None:
        """Write out the buffers that hold many rows."""
        for rows in self._rows:
            rows.flush_full()

    def flush(self) -> None:
        """Write out what the buffers still hold; call it before reading."""
        for rows in self._rows:
            rows.flush()

    def frames(self, name: str) -> Iterator[pl.DataFrame]:
        """Yield the rows of a table, in the order in which they were added."""
        for file in self._files[name]:
            yield pl.read_ipc(file)

    def columns(self, name: str, columns: Sequence[str]) -> pl.DataFrame:
        """Return some columns of all rows of a table."""
        parts = [pl.read_ipc(file, columns=list(columns)) for file in self._files[name]]
        empty = pl.DataFrame(schema={column: self._schemas[name][column] for column in columns})
        return pl.concat(parts).select(columns) if parts else empty

    def _write(self, name: str, frame: pl.DataFrame) -> None:
        file = self._folder / f"{name}-{len(self._files[name])}.arrow"
        frame.write_ipc(file)
        self._files[name].append(file)
