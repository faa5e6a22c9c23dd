"""XSpace messages written by hand, after tsl/profiler/protobuf/xplane.proto and the encoding of protocol buffers."""

from __future__ import annotations

import struct
from pathlib import Path

Value = int | float | str


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def content(field: int, value: bytes | str) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(raw)) + raw


class Plane:
    """One plane; lines and events are added in the order of the file."""

    def __init__(self, name: str, **stats: Value) -> None:
        self._name = name
        self._stats = stats
        self._events: dict[str, int] = {}
        self._stat_names: dict[str, int] = {}
        self._lines: list[bytes] = []
        self._line: list[bytes] = []

    def line(self, name: str, timestamp_ns: int = 0, identity: int = 1) -> None:
        """Begin a line; events follow."""
        self.end()
        self._line = [number(1, identity), content(2, name), number(3, timestamp_ns)]

    def event(self, name: str, offset_ps: int, duration_ps: int, display: str = "", **stats: Value) -> None:
        """Add an event to the line; a text that starts with "&" is written as a reference to a name."""
        key = self._events.setdefault(f"{name}\0{display}", len(self._events) + 1)
        parts = [number(1, key), number(2, offset_ps), number(3, duration_ps)]
        parts += [content(4, self._stat(*stat)) for stat in stats.items()]
        self._line.append(content(4, b"".join(parts)))

    def end(self) -> None:
        if self._line:
            self._lines.append(b"".join(self._line))
            self._line = []

    def encode(self) -> bytes:
        self.end()
        own = [content(6, self._stat(*stat)) for stat in self._stats.items()]
        lines = [content(3, line) for line in self._lines]
        names = []
        for both, key in self._events.items():
            name, _, display = both.partition("\0")
            metadata = number(1, key) + content(2, name) + (content(4, display) if display else b"")
            names.append(content(4, number(1, key) + content(2, metadata)))
        for name, key in self._stat_names.items():
            names.append(content(5, number(1, key) + content(2, number(1, key) + content(2, name))))
        return b"".join([content(2, self._name), *lines, *names, *own])

    def _stat(self, name: str, value: Value) -> bytes:
        head = number(1, self._name_of(name))
        if isinstance(value, float):
            return head + varint(2 << 3 | 1) + struct.pack("<d", value)
        if isinstance(value, int):
            return head + number(3 if value >= 0 else 4, value)
        if value.startswith("&"):
            return head + number(7, self._name_of(value[1:]))
        return head + content(5, value)

    def _name_of(self, name: str) -> int:
        return self._stat_names.setdefault(name, len(self._stat_names) + 1)


def write(path: Path, *planes: Plane, host: str = "node1") -> Path:
    path.write_bytes(b"".join(content(1, plane.encode()) for plane in planes) + content(4, host))
    return path
