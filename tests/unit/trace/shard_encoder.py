"""An encoder of shards in plain Python, written from the layout in docs/architecture.md: the tests' own twin of the
C++ writer. Rows are dicts of column names and Python values; what is missing or None is null."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

from pasta.schema import SCHEMA_VERSION, TABLES, Column, Type

#: struct code, type code and null of each column type.
LAYOUT = {
    Type.I64: ("q", 1, -(2**63)),
    Type.I32: ("i", 2, -(2**31)),
    Type.F64: ("d", 3, float("nan")),
    Type.BOOL: ("B", 4, 255),
    Type.STR: ("I", 5, 0),
    Type.ENUM: ("B", 6, 255),
}

Row = dict[str, Any]


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


def encode_chunk(
    table: int,
    rows: int,
    columns: list[tuple[int, int, bytes]],
    first_string: int = 0,
    schema_version: int = SCHEMA_VERSION,
    format_version: int = 1,
) -> bytes:
    """One chunk of columns (position, type code, data)."""
    directory, payload = b"", b""
    for position, code, data in columns:
        directory += struct.pack("<HBBI", position, code, 0, len(payload))
        payload += padded(data)
    body = directory + payload
    header = struct.pack("<8s4H", b"PSTACHNK", format_version, schema_version, table, len(columns))
    header += struct.pack("<2IQI", rows, first_string, len(body), zlib.crc32(body))
    return header + struct.pack("<I", zlib.crc32(header)) + body


class ShardEncoder:
    """Chunks in the order in which they were added, strings in front of the chunk that first uses them."""

    def __init__(self) -> None:
        self.data = b""
        self._numbers: dict[str, int] = {}

    def add(self, table_name: str, rows: list[Row]) -> ShardEncoder:
        table = TABLES[table_name]
        names = [column.name for column in table.columns if column.type is Type.STR]
        self._add_strings([row[name] for name in names for row in rows if row.get(name) is not None])
        columns = [(i, LAYOUT[c.type][1], self._column(c, rows)) for i, c in enumerate(table.columns)]
        self.data += encode_chunk(table.id, len(rows), columns)
        return self

    def write(self, directory: Path, pid: int, generation: int = 0) -> Path:
        directory.mkdir(exist_ok=True)
        path = directory / f"shard-{pid}-{generation}.pastashard"
        path.write_bytes(self.data)
        return path

    def _add_strings(self, texts: list[str]) -> None:
        new = [text for text in dict.fromkeys(texts) if text not in self._numbers]
        if not new:
            return
        first = len(self._numbers) + 1
        self._numbers.update((text, first + i) for i, text in enumerate(new))
        self.data += encode_strings(first, [text.encode() for text in new])

    def _column(self, column: Column, rows: list[Row]) -> bytes:
        code, _, null = LAYOUT[column.type]
        return struct.pack(f"<{len(rows)}{code}", *(self._value(column, row.get(column.name), null) for row in rows))

    def _value(self, column: Column, value: Any, null: float) -> Any:
        if value is None:
            return null
        if column.type is Type.STR:
            return self._numbers[value]
        return column.values.index(value) if column.type is Type.ENUM else value


def encode_strings(first: int, texts: list[bytes]) -> bytes:
    ends = [sum(len(text) for text in texts[: i + 1]) for i in range(len(texts))]
    columns = [(0, 5, struct.pack(f"<{len(ends)}I", *ends)), (1, 7, b"".join(texts))]
    return encode_chunk(0, len(texts), columns, first)
