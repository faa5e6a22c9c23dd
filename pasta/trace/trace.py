"""Open a trace, in any of its forms, and read its tables lazily."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import polars as pl

from pasta.errors import PastaError
from pasta.schema import TABLES
from pasta.trace.container import Container, Directory, as_list, broken, find_unsealed, open_container
from pasta.trace.frames import empty_frame, find_table, frame_schema, full_schema
from pasta.trace.seal import recover


class Trace:
    """A trace that is open for reading.

    ``trace.kernel`` or ``trace.table("kernel")`` is a ``polars.LazyFrame`` with every column of the schema, whatever
    version of pasta wrote the trace and whether or not it has rows. A table is not touched before it is asked for.
    Close the trace, or use it in a ``with`` block; frames must be collected before that.
    """

    def __init__(self, path: Path, container: Container) -> None:
        #: What the user opened.
        self.path = path
        #: Contents of manifest.json.
        self.manifest = container.manifest
        #: What a reader should know about how the trace was made and read, as sentences; usually none.
        self.notes: list[str] = [str(note) for note in as_list(self.manifest.get("notes"))]
        self._container = container
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._tables: dict[str, pl.LazyFrame] = {}

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Trace:
        """Open ``path``: a trace file, a trace directory, or the directory of a recording that was not sealed.

        Raises ``PastaError`` when there is no trace, it is damaged, or its schema is newer than this pasta's.
        """
        path = Path(path)
        unsealed = find_unsealed(path)
        if unsealed is None:
            return cls(path, open_container(path))
        temporary, recovered = recover(unsealed)
        trace = cls(path, Directory(recovered))
        trace._temporary = temporary
        trace.notes.append(f"{unsealed} was not sealed: its tables were recovered from what its processes had written")
        return trace

    @property
    def present(self) -> frozenset[str]:
        """Names of the tables that have rows."""
        return frozenset(self._container.parts) & TABLES.keys()

    def table(self, name: str) -> pl.LazyFrame:
        """Return the table called ``name``; raises ``PastaError`` when the schema has no such table."""
        if name not in self._tables:
            self._tables[name] = self._scan(name)
        return self._tables[name]

    def batches(self, name: str) -> Iterator[pl.DataFrame]:
        """Yield the rows of a table in order, at most about half a million at a time, to copy it in bounded memory."""
        for part in self._parts(name):
            yield part.collect()

    def __getattr__(self, name: str) -> pl.LazyFrame:
        if name in TABLES:
            return self.table(name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def close(self) -> None:
        """Let go of the file. Frames that were not collected can no longer be."""
        self._tables.clear()
        self._container.close()
        if self._temporary is not None:
            self._temporary.cleanup()

    def __enter__(self) -> Trace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _scan(self, name: str) -> pl.LazyFrame:
        return pl.concat(list(self._parts(name)) or [empty_frame(find_table(name)).lazy()])

    def _parts(self, name: str) -> Iterator[pl.LazyFrame]:
        """Yield each part of a table, with the full schema."""
        table = find_table(name)
        for member in self._container.parts.get(name, []):
            try:
                part = pl.scan_parquet(self._container.part(member), hive_partitioning=False)
                schema = part.collect_schema()
            except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
                raise broken(self.path, f"{member} is not Parquet ({error})") from error
            extra = sorted(schema.keys() - frame_schema(table).keys())
            note = f"columns of `{name}` that this pasta does not know were left out: {', '.join(extra)}"
            if extra and note not in self.notes:
                self.notes.append(note)
            try:
                complete = full_schema(part, schema, table)
            except PastaError as error:
                raise broken(self.path, f"{member}: {error.message}") from error
            yield complete
