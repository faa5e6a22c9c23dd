"""What every importer shares: the source files, the rows on their way to a trace, the report of what was left out.

An importer is one object with a ``kind``, a ``label``, ``sniff(head)`` and ``read(sources, sink, report)``;
``pasta.importers.detect`` lists them. It never opens a trace itself: it gives rows to the ``Sink`` and says to the
``Report`` what the source held that no table has a place for, and what it had to skip.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from pasta.errors import PastaError
from pasta.importers.packed import Source
from pasta.schema import TABLES
from pasta.trace.frames import frame_schema

#: Rows that are turned into one frame.
BATCH_ROWS = 65536

#: Names and types of the columns of a frame.
Schema = Mapping[str, pl.DataType]

#: Progress of an import: bytes read so far, bytes in all (both of the files as they are on disk).
Progress = Callable[[int, int], None]


class Kind(str, Enum):
    """Formats that can be imported; the value is what ``--from`` takes."""

    KINETO = "kineto"
    TENSORBOARD_MEMORY = "tensorboard-memory"
    CHROME = "chrome"
    PFTRACE = "pftrace"
    NSYS = "nsys"
    ROCPROFV3_JSON = "rocprofv3-json"
    ROCPROFV3_CSV = "rocprofv3-csv"
    ROCPD = "rocpd"
    RPD = "rpd"
    XPLANE = "xplane"


@dataclass(frozen=True)
class Head:
    """What detection may look at: content only, never the name.

    ``start`` is the first 64 KiB after unpacking; ``tables`` maps each SQLite table and view to its columns and is
    empty when the file is not a SQLite database.
    """

    start: bytes
    tables: Mapping[str, frozenset[str]] = field(default_factory=dict)


class Importer(Protocol):
    """One format. ``read`` gets every file of one import: a set of ranks or of CSV files is one call."""

    kind: Kind
    label: str

    def sniff(self, head: Head) -> bool:
        """Return whether ``head`` is the beginning of a file of this format. Never raises."""

    def read(self, sources: Sequence[Source], sink: Sink, report: Report) -> None:
        """Give all rows of ``sources`` to ``sink``; raise ``PastaError`` when nothing can be made of them."""


class Appender(Protocol):
    """The part of ``pasta.trace.TraceWriter`` that an import needs."""

    def append(self, table: str, frame: pl.DataFrame) -> None:
        """Add the rows of ``frame`` to ``table``."""


@dataclass
class Report:
    """What an import has to say besides its rows; all of it ends up in the manifest, losses also in ``loss``."""

    version: str = ""
    #: What the source had and pasta has no place for: description -> number of events or values.
    unplaced: Counter[str] = field(default_factory=Counter)
    #: Events that could not be used at all: reason -> number.
    skipped: Counter[str] = field(default_factory=Counter)
    #: Rows kept although what they refer to is not in the source: description -> number.
    unmatched: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    losses: list[dict[str, Any]] = field(default_factory=list)
    #: Anything else worth keeping from the source's header (versions, options), JSON-able.
    source: dict[str, Any] = field(default_factory=dict)
    #: UNIX time in ns of time 0 of the trace; None when the source does not say.
    epoch_ns: int | None = None
    #: Resolution of the source's times in ns, where it is coarser than 1.
    resolution_ns: int = 1

    def loss(
        self, table: str | None, records: int | None, cause: str, remedy: str = "", start_ns: int | None = None
    ) -> None:
        """Add a row to the ``loss`` table: ``records`` rows of ``table`` are missing (None: any, unknown how many)."""
        self.losses.append({"start_ns": start_ns, "table": table, "records": records, "cause": cause, "remedy": remedy})

    def incomplete(self, source: Source, why: str) -> None:
        """Say that a file ended early and that what was whole before was kept."""
        self.notes.append(f"{source.path.name} is incomplete: {why}; what was whole before is here")
        self.loss(None, None, f"{source.path.name}: {why}", "copy the file again, or profile again")


class Sink:
    """Where importers put rows. Checks columns against the schema, completes them with nulls, counts."""

    def __init__(self, writer: Appender, report: Report) -> None:
        self._writer = writer
        self._report = report
        self._open: list[Rows] = []
        self.rows: Counter[str] = Counter()

    def append(self, table: str, frame: pl.DataFrame) -> None:
        """Add ``frame``: any subset of the columns of ``table``; ``pid`` is 0 and all else null where missing.

        Values that the column's type cannot hold (an id of 2**40, text in a number) become null and are reported.
        """
        if not frame.height:
            return
        schema = frame_schema(TABLES[table])
        unknown = [name for name in frame.columns if name not in schema]
        if unknown:
            raise KeyError(f"table {table} has no column {', '.join(unknown)}")
        columns = []
        for name, kind in schema.items():
            if name not in frame.columns:
                columns.append(pl.lit(0 if name == "pid" else None, dtype=kind).alias(name))
            elif frame.schema[name] == kind:
                columns.append(pl.col(name))
            else:
                columns.append(pl.col(name).cast(kind, strict=False))
        complete = frame.select(columns)
        for name in frame.columns:
            self._misfits(table, name, complete[name].null_count() - frame[name].null_count())
        self._writer.append(table, complete)
        self.rows[table] += frame.height

    def table(self, table: str, *columns: str) -> Rows:
        """Return a buffer for rows of ``table`` that gives the values of ``columns``, in that order."""
        schema = frame_schema(TABLES[table])
        give, misfit = partial(self.append, table), partial(self._misfits, table)
        rows = Rows({name: schema[name] for name in columns}, give, misfit)
        self._open.append(rows)
        return rows

    def flush(self) -> None:
        """Write out what the buffers still hold."""
        for rows in self._open:
            rows.flush()

    def _misfits(self, table: str, column: str, count: int) -> None:
        if count:
            self._report.skipped[f"value of {table}.{column} does not fit its type (null instead)"] += count


class Rows:
    """A buffer of tuples that becomes a frame every ``BATCH_ROWS`` rows."""

    def __init__(
        self, schema: Schema, give: Callable[[pl.DataFrame], None], misfit: Callable[[str, int], None]
    ) -> None:
        self._pending: list[tuple[Any, ...]] = []
        self._schema = schema
        self._give = give
        self._misfit = misfit

    def add(self, *values: Any) -> None:
        """Add one row: one value for each column of the buffer, None for unknown."""
        self._pending.append(values)
        if len(self._pending) >= BATCH_ROWS:
            self.flush()

    def flush(self) -> None:
        """Pass the rows on."""
        if not self._pending:
            return
        columns = zip(*self._pending, strict=True)
        series = [self._series(name, values) for name, values in zip(self._schema, columns, strict=True)]
        self._pending.clear()
        self._give(pl.DataFrame(series))

    def _series(self, name: str, values: tuple[Any, ...]) -> pl.Series:
        kind = self._schema[name]
        try:
            return pl.Series(name, values, dtype=kind, strict=True)
        except (TypeError, OverflowError, pl.exceptions.PolarsError):
            series = pl.Series(name, values, dtype=kind, strict=False)
            self._misfit(name, series.null_count() - values.count(None))
            return series


@dataclass(frozen=True)
class ImportSummary:
    """What ``import_files`` did: the trace it wrote, rows of each table, and everything that was not kept."""

    output: Path
    kind: Kind
    version: str
    rows: Mapping[str, int]
    unplaced: Mapping[str, int]
    skipped: Mapping[str, int]
    unmatched: Mapping[str, int]
    notes: tuple[str, ...]


def nothing_to_import(sources: Sequence[Source], why: str, fix: str, report: Report | None = None) -> PastaError:
    """Return the error for files that hold no event that pasta has a table for.

    The reason is ``why``, unless ``report`` says that a file ended early.
    """
    for loss in () if report is None else report.losses:
        return PastaError(f"nothing to import: {loss['cause']}", loss["remedy"])
    names = ", ".join(source.path.name for source in sources[:3]) + (", ..." if len(sources) > 3 else "")
    return PastaError(f"nothing to import from {names}: {why}", fix)
