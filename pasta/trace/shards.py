"""Read a shard, the file that a recorded process wrote: find its whole chunks, turn them into polars frames.

The layout is in docs/architecture.md. A shard is untrusted and may be cut anywhere, so every length and offset is
checked against the file before it is used, and nothing is allocated that is not in proportion to the bytes of the
file. What cannot be read is skipped and kept as a ``Fault``.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from pasta.schema import SCHEMA_VERSION, Column, Table, Type, table_by_id
from pasta.trace.frames import DTYPES
from pasta.trace.texts import Texts

MAGIC = b"PSTACHNK"
FORMAT_VERSION = 1
#: magic, format version, schema version, table, columns, rows, first string, bytes and CRC-32 of the body, CRC-32.
HEADER = struct.Struct("<8sHHHHIIQII")
#: position in the schema's table, type, 0, offset in the payload.
ENTRY = np.dtype([("position", "<u2"), ("type", "u1"), ("zero", "u1"), ("offset", "<u4")])
#: A chunk of more rows is taken as several. (Sessions write at most 16,384.)
MAX_ROWS = 1 << 17
STRINGS = 0
#: Type of the UTF-8 bytes in a chunk of strings; the other types are those of `csrc/schema/types.h`.
TEXT = 7


class Stored(NamedTuple):
    """How a column type is stored: its code, its values, and the value that means null."""

    code: int
    dtype: np.dtype[Any]
    null: float


STORED: dict[Type, Stored] = {
    Type.I64: Stored(1, np.dtype("<i8"), -(1 << 63)),
    Type.I32: Stored(2, np.dtype("<i4"), -(1 << 31)),
    Type.F64: Stored(3, np.dtype("<f8"), float("nan")),
    Type.BOOL: Stored(4, np.dtype("u1"), 255),
    Type.STR: Stored(5, np.dtype("<u4"), 0),
    Type.ENUM: Stored(6, np.dtype("u1"), 255),
}

UPGRADE = "upgrade pasta: pip install --upgrade pasta-profiler"
CUT = "the shard ends inside a chunk that was being written"
DAMAGED = "a chunk of the shard is damaged"
NEWER = "a newer pasta wrote it in a way that this one does not know"
NO_TEXT = "texts (names) of a damaged chunk are null"


class Fault(NamedTuple):
    """Something in a shard that could not be read; ``table`` and ``rows`` (lost) are None when unknown."""

    table: str | None
    rows: int | None
    cause: str
    remedy: str = ""


class Header(NamedTuple):
    """The header of a chunk, without magic and checksum."""

    offset: int
    format_version: int
    schema_version: int
    table: int
    columns: int
    rows: int
    first_string: int
    body_bytes: int
    body_crc: int

    @property
    def body(self) -> int:
        """Offset of the directory in the file."""
        return self.offset + HEADER.size

    @property
    def end(self) -> int:
        """Offset of what follows the chunk."""
        return self.body + self.body_bytes


@dataclass(frozen=True)
class Chunk:
    """A whole chunk of rows of ``table``: where in the file the data of each column (by position) begins.

    ``first_ns`` and ``last_ns`` are the earliest start and the latest time of its rows, None when it has no times.
    """

    table: Table
    rows: int
    columns: dict[int, int]
    first_ns: int | None
    last_ns: int | None


Bytes = mmap.mmap | bytes


class Shard:
    """What a shard holds: ``chunks`` in file order, ``texts`` and ``faults``.

    The file is mapped only while it is indexed and while rows are read, so that a job of thousands of processes does
    not run out of descriptors. Raises ``OSError`` when the file cannot be read, and nothing else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.chunks: list[Chunk] = []
        self.faults: list[Fault] = []
        self.texts = Texts()
        data = self._map()
        #: Bytes of the file when it was indexed.
        self.size = len(data)
        for header in self._headers(data):
            self._add(data, header)

    def chunks_of(self, table: Table) -> list[Chunk]:
        """Return the chunks of one table, in file order."""
        return [chunk for chunk in self.chunks if chunk.table is table]

    def frame(self, chunks: Sequence[Chunk]) -> pl.DataFrame:
        """Return the rows of ``chunks``, all of one table, with that table's own columns (no `pid`; raw times)."""
        data, table = self._map(), chunks[0].table
        return pl.DataFrame([self._series(data, i, column, chunks) for i, column in enumerate(table.columns)])

    def _map(self) -> Bytes:
        with self.path.open("rb") as file:
            if file.seek(0, 2) == 0:
                return b""
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def _headers(self, data: Bytes) -> Iterator[Header]:
        """Yield the header of each chunk whose bytes are whole, and note what is not."""
        at, in_damage = 0, False
        with memoryview(data) as view:
            while at < self.size:
                header = self._header(data, at)
                if header is not None and header.end <= self.size:
                    in_damage = False
                    if zlib.crc32(view[header.body : header.end]) == header.body_crc:
                        yield header
                    else:
                        self._lose(header, DAMAGED)
                    at = header.end
                    continue
                if header is not None:
                    self._lose(header, CUT)
                elif not in_damage:
                    self.faults.append(Fault(None, None, DAMAGED if self.size - at >= HEADER.size else CUT))
                in_damage = True
                next_magic = data.find(MAGIC, at + 1)
                at = self.size if next_magic < 0 else next_magic

    def _header(self, data: Bytes, at: int) -> Header | None:
        if self.size - at < HEADER.size:
            return None
        magic, *fields, header_crc = HEADER.unpack_from(data, at)
        if magic != MAGIC or zlib.crc32(data[at : at + HEADER.size - 4]) != header_crc:
            return None
        return Header(at, *fields)

    def _lose(self, header: Header, cause: str, remedy: str = "") -> None:
        if header.table == STRINGS:
            self.faults.append(Fault(None, None, NO_TEXT, remedy))
        else:
            table = table_by_id(header.table)
            name = table.name if table else f"table {header.table}"
            self.faults.append(Fault(name, header.rows, cause, remedy))

    def _add(self, data: Bytes, header: Header) -> None:
        table = table_by_id(header.table)
        newer = header.format_version != FORMAT_VERSION or header.schema_version > SCHEMA_VERSION
        if newer or (table is None and header.table != STRINGS):
            self._lose(header, NEWER, UPGRADE)
            return
        payload = header.body + header.columns * ENTRY.itemsize
        if payload > header.end:
            self._lose(header, DAMAGED)
            return
        directory = np.frombuffer(data, ENTRY, header.columns, header.body)
        placed = [(position, code, payload + offset) for position, code, _, offset in directory.tolist()]
        good = self._add_strings(data, header, placed) if table is None else self._add_rows(data, header, table, placed)
        if not good:
            self._lose(header, DAMAGED)

    def _add_rows(self, data: Bytes, header: Header, table: Table, placed: list[tuple[int, int, int]]) -> bool:
        columns: dict[int, int] = {}
        for position, code, offset in placed:
            if position >= len(table.columns):
                self.faults.append(Fault(table.name, None, f"column {position} of the shard: {NEWER}", UPGRADE))
                continue
            stored = STORED[table.columns[position].type]
            inside = offset + header.rows * stored.dtype.itemsize <= header.end
            if position in columns or code != stored.code or not inside:
                return False
            columns[position] = offset
        if not columns and header.rows:  # nothing in the file vouches for that many rows
            return False
        for row in range(0, header.rows, MAX_ROWS):
            rows = min(MAX_ROWS, header.rows - row)
            piece = {i: at + row * STORED[table.columns[i].type].dtype.itemsize for i, at in columns.items()}
            self.chunks.append(Chunk(table, rows, piece, *self._times(data, table, rows, piece)))
        return True

    def _add_strings(self, data: Bytes, header: Header, placed: list[tuple[int, int, int]]) -> bool:
        offsets = {position: offset for position, _, offset in placed}
        if len(placed) != 2 or set(offsets) != {0, 1} or offsets[0] + 4 * header.rows > header.end:
            return False
        ends = np.frombuffer(data, "<u4", header.rows, offsets[0]).astype(np.int64)
        if header.rows == 0:
            return True
        if (np.diff(ends) < 0).any() or offsets[1] + int(ends[-1]) > header.end:
            return False
        self.texts.add(header.first_string, data[offsets[1] : offsets[1] + int(ends[-1])], ends)
        return True

    def _times(self, data: Bytes, table: Table, rows: int, columns: dict[int, int]) -> tuple[int | None, int | None]:
        first = last = None
        for position, column in enumerate(table.columns):
            if column.name in ("start_ns", "end_ns") and position in columns:
                times = np.frombuffer(data, STORED[Type.I64].dtype, rows, columns[position])
                times = times[times != STORED[Type.I64].null]
                if times.size:
                    last = max(int(times.max()), last) if last is not None else int(times.max())
                    first = int(times.min()) if column.name == "start_ns" else first
        return first, last

    def _series(self, data: Bytes, position: int, column: Column, chunks: Sequence[Chunk]) -> pl.Series:
        stored = STORED[column.type]
        values = np.concatenate(
            [
                np.frombuffer(data, stored.dtype, chunk.rows, chunk.columns[position])
                if position in chunk.columns
                else np.full(chunk.rows, stored.null, stored.dtype)
                for chunk in chunks
            ]
        )
        if column.type is Type.STR:
            return self.texts.gather(values).alias(column.name)
        if column.type is Type.ENUM:
            return self._enum(values, column, chunks[0].table)
        if column.type is Type.F64:
            return pl.Series(column.name, values).fill_nan(None)
        null = values > 1 if column.type is Type.BOOL else values == stored.null
        series = pl.Series(column.name, values).cast(DTYPES[column.type])
        if null.all():
            return pl.Series(column.name, [None], DTYPES[column.type]).new_from_index(0, len(values))
        return series.set(pl.Series(null), None) if null.any() else series

    def _enum(self, codes: np.ndarray[Any, Any], column: Column, table: Table) -> pl.Series:
        known = len(column.values)
        if ((codes >= known) & (codes != STORED[Type.ENUM].null)).any():
            self.faults.append(Fault(table.name, None, f"values of `{column.name}`: {NEWER}", UPGRADE))
        names = pl.Series(column.name, [*column.values, None], pl.String)
        return names.gather(np.minimum(codes, known).astype(np.uint32))
