"""Rows set aside on disk until the whole source was read, because what completes them may come last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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

    def columns(self, table: str, *columns: str | pl.Expr, keep: pl.Expr | None = None) -> pl.DataFrame:
        """Return columns, or what is computed from them, of all rows of a table that ``keep`` does not leave out."""
        empty = pl.DataFrame(schema=self._schemas[table])
        parts = [empty.select(columns)]
        for file in self._files[table]:
            rows = pl.scan_ipc(file)
            parts.append((rows if keep is None else rows.filter(keep)).select(columns).collect())
        return pl.concat(parts)

    def _write(self, table: str) -> None:
        file = self._folder / f"{table}-{len(self._files[table])}.arrow"
        pl.concat(self._held[table]).write_ipc(file)
        self._held[table].clear()
        self._files[table].append(file)
