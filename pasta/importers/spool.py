"""Rows set aside on disk until the whole source was read, because what completes them may come last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import polars as pl

from pasta.importers.base import BATCH_ROWS, Schema


class Spool:
    """Tables of any columns, in files of about ``BATCH_ROWS`` rows below ``folder``, which the caller removes."""

    def __init__(self, folder: Path, schemas: Mapping[str, Schema]) -> None:
        folder.mkdir()
        self._folder = folder
        self._schemas = schemas
        self._files: dict[str, list[Path]] = {table: [] for table in schemas}
        self._held: dict[str, list[pl.DataFrame]] = {table: [] for table in schemas}

    def append(self, table: str, columns: Mapping[str, pl.Series]) -> None:
        """Add rows: a series of the right type for every column of the table."""
        frame = pl.DataFrame({name: columns[name] for name in self._schemas[table]})
        held = self._held[table]
        held.append(frame)
        if sum(part.height for part in held) >= BATCH_ROWS:
            self._write(table)

    def flush(self) -> None:
        """Write out what is held in memory; call it before reading."""
        for table, held in self._held.items():
            if held:
                self._write(table)

    def frames(self, table: str) -> Iterator[pl.DataFrame]:
        """Yield the rows of a table, in the order in which they were added."""
        for file in self._files[table]:
            yield pl.read_ipc(file)

    def columns(self, table: str, columns: Sequence[str]) -> pl.DataFrame:
        """Return some columns of all rows of a table."""
        parts = [pl.read_ipc(file, columns=list(columns)) for file in self._files[table]]
        empty = pl.DataFrame(schema={column: self._schemas[table][column] for column in columns})
        return pl.concat(parts).select(columns) if parts else empty

    def _write(self, table: str) -> None:
        file = self._folder / f"{table}-{len(self._files[table])}.arrow"
        pl.concat(self._held[table]).write_ipc(file)
        self._held[table].clear()
        self._files[table].append(file)
