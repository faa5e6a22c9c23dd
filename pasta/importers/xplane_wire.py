"""The wire format of XSpace messages (tsl/profiler/protobuf/xplane.proto), decoded where they stand in the file.

A message is a sequence of fields: a tag (number of the field << 3 | wire type) and a value. Only these fields matter::

    XSpace  1 planes  4 hostnames
    XPlane  1 id  2 name  3 lines  4 event_metadata (map)  5 stat_metadata (map)  6 stats
    XLine   1 id  2 name  3 timestamp_ns  4 events  11 display_name
    XEvent  1 metadata_id  2 offset_ps  3 duration_ps  4 stats  5 num_occurrences (instead of an offset)
    XStat   1 metadata_id  2 double  3 uint64  4 int64  5 text  6 bytes  7 reference to the name of a stat_metadata
    XEventMetadata, XStatMetadata   1 id  2 name  4 display_name (events)

Nothing is copied but names and numbers, so memory is bounded by the metadata and by what callers keep.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from mmap import mmap
from typing import Any, NamedTuple

Buffer = bytes | mmap

#: Where a nested message or text stands.
Span = tuple[int, int]

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


class Damaged(Exception):
    """The bytes are not such a message; ``args[0]`` is the offset in the file."""


def fields(data: Buffer, span: Span) -> Iterator[tuple[int, int | Span]]:
    """Yield number and value of each field: a number, or the span of a text or message. Raises ``Damaged``."""
    at, end = span
    while at < end:
        tag, at = varint(data, at, end)
        number, wire = tag >> 3, tag & 7
        value: int | Span
        if wire == _VARINT:
            value, at = varint(data, at, end)
        elif wire == _LENGTH:
            size, at = varint(data, at, end)
            value = (at, at + size)
            at += size
        elif wire == _FIXED64:
            value = (at, at + 8)
            at += 8
        elif wire == _FIXED32:
            value = (at, at + 4)
            at += 4
        else:
            raise Damaged(at)
        if at > end or number == 0:
            raise Damaged(min(at, end))
        yield number, value


def varint(data: Buffer, at: int, end: int) -> tuple[int, int]:
    """Return the number at ``at``, of at most 64 bits, and where the next value begins."""
    result = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
    raise Damaged(at)


def signed(number: int) -> int:
    """Return an int64 field's value: negative ones are written as large ones."""
    return number - (1 << 64) if number >> 63 else number


class XEvent(NamedTuple):
    """One event: times in picoseconds, from the start of its line."""

    metadata: int
    offset_ps: int
    duration_ps: int
    aggregated: bool
    stats: tuple[Span, ...]


@dataclass
class XLine:
    """One line of a plane; ``events`` decodes its events."""

    number: int
    name: str
    timestamp_ns: int
    count: int
    _data: Buffer
    _span: Span

    def events(self) -> Iterator[XEvent]:
        """Yield the events in the order of the file."""
        for number, value in fields(self._data, self._span):
            if number == 4 and isinstance(value, tuple):
                yield _event(self._data, value)


@dataclass
class XPlane:
    """One plane: a device, or the host."""

    name: str
    _data: Buffer
    _span: Span
    event_names: dict[int, str] = field(default_factory=dict)
    stat_names: dict[int, str] = field(default_factory=dict)
    stats: dict[str, Any] = field(default_factory=dict)
    lines: list[XLine] = field(default_factory=list)

    def load(self) -> None:
        """Decode the names and the heads of the lines."""
        own_stats = []
        for number, value in fields(self._data, self._span):
            if not isinstance(value, tuple):
                continue
            if number == 3:
                self.lines.append(_line(self._data, value))
            elif number == 4:
                key, name = self._entry(value)
                self.event_names[key] = name
            elif number == 5:
                key, name = self._entry(value)
                self.stat_names[key] = name
            elif number == 6:
                own_stats.append(value)
        self.stats = dict(self.stat(span) for span in own_stats)

    def stat(self, span: Span) -> tuple[str, Any]:
        """Return name and value of a stat."""
        name, value = "", None
        for number, raw in fields(self._data, span):
            if number == 1 and isinstance(raw, int):
                name = self.stat_names.get(raw, f"stat {raw}")
            elif number == 2 and isinstance(raw, tuple) and raw[1] - raw[0] == 8:
                value = struct.unpack_from("<d", self._data, raw[0])[0]
            elif number == 3 and isinstance(raw, int):
                value = raw
            elif number == 4 and isinstance(raw, int):
                value = signed(raw)
            elif number == 5 and isinstance(raw, tuple):
                value = _text(self._data, raw)
            elif number == 7 and isinstance(raw, int):
                value = self.stat_names.get(raw)
        return name, value

    def _entry(self, span: Span) -> tuple[int, str]:
        """Return key and name of an entry of a metadata map; the short name of an event, where it has one."""
        key = 0
        names = {2: "", 4: ""}
        for number, value in fields(self._data, span):
            if number == 1 and isinstance(value, int):
                key = value
            elif number == 2 and isinstance(value, tuple):
                for inner, text in fields(self._data, value):
                    if inner in names and isinstance(text, tuple):
                        names[inner] = _text(self._data, text)
        return key, names[4] or names[2]


def planes(data: Buffer) -> Iterator[XPlane | str]:
    """Yield the planes of a file, not loaded, and the names of hosts. Raises ``Damaged`` where the file is cut."""
    for number, value in fields(data, (0, len(data))):
        if not isinstance(value, tuple):
            continue
        if number == 1:
            name = next(
                (_text(data, span) for n, span in fields(data, value) if n == 2 and isinstance(span, tuple)), ""
            )
            yield XPlane(name, data, value)
        elif number == 4:
            yield _text(data, value)


def _line(data: Buffer, span: Span) -> XLine:
    line = XLine(0, "", 0, 0, data, span)
    for number, value in fields(data, span):
        if number == 4:
            line.count += 1
        elif number == 1 and isinstance(value, int):
            line.number = value
        elif number == 3 and isinstance(value, int):
            line.timestamp_ns = signed(value)
        elif number == 2 and isinstance(value, tuple):
            line.name = _text(data, value)
        elif number == 11 and isinstance(value, tuple):
            line.name = _text(data, value) or line.name
    return line


def _event(data: Buffer, span: Span) -> XEvent:
    metadata = offset = duration = 0
    aggregated = False
    stats = []
    for number, value in fields(data, span):
        if number == 4:
            if isinstance(value, tuple):
                stats.append(value)
        elif isinstance(value, int):
            if number == 1:
                metadata = value
            elif number == 2:
                offset = signed(value)
            elif number == 3:
                duration = signed(value)
            elif number == 5:
                aggregated = True
    return XEvent(metadata, offset, duration, aggregated, tuple(stats))


def _text(data: Buffer, span: Span) -> str:
    return bytes(data[span[0] : span[1]]).decode("utf-8", "replace")
