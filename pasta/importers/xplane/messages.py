"""XSpace messages (tsl/profiler/protobuf/xplane.proto), decoded where they stand in the file.

Only these fields matter::

    XSpace  1 planes  4 hostnames
    XPlane  2 name  3 lines  4 event_metadata (map)  5 stat_metadata (map)  6 stats
    XLine   1 id  2 name  3 timestamp_ns  4 events  11 display_name
    XEvent  1 metadata_id  2 offset_ps  3 duration_ps  4 stats  5 num_occurrences (instead of an offset)
    XStat   1 metadata_id  2 double  3 uint64  4 int64  5 text  6 bytes  7 reference to the name of a stat_metadata
    XEventMetadata, XStatMetadata   1 id  2 name  4 display_name (events)

Nothing is copied but names and numbers, so memory is bounded by the metadata and by what callers keep. All functions
raise ``WireError`` for a message that is broken.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pasta.importers.wire import double, fields, signed, text


class XEvent(NamedTuple):
    """One event: times in picoseconds, from the start of its line."""

    metadata: int
    offset_ps: int
    duration_ps: int
    aggregated: bool
    stats: tuple[memoryview, ...]


@dataclass
class XLine:
    """One line of a plane; ``events`` decodes its events."""

    number: int
    name: str
    timestamp_ns: int
    count: int
    _message: memoryview

    def events(self) -> Iterator[XEvent]:
        """Yield the events in the order of the file."""
        for number, value in fields(self._message):
            if number == 4 and isinstance(value, memoryview):
                yield _event(value)


@dataclass
class XPlane:
    """One plane: a device, or the host."""

    name: str
    event_names: dict[int, str] = field(default_factory=dict)
    stat_names: dict[int, str] = field(default_factory=dict)
    stats: dict[str, Any] = field(default_factory=dict)
    lines: list[XLine] = field(default_factory=list)

    def stat(self, message: memoryview) -> tuple[str, Any]:
        """Return name and value of a stat; bytes are left out."""
        name = ""
        value: Any = None
        for number, raw in fields(message):
            if number == 1 and isinstance(raw, int):
                name = self.stat_names.get(raw, f"stat {raw}")
            elif number == 5:
                value = text(raw)
            elif isinstance(raw, int):
                if number == 2:
                    value = double(raw)
                elif number == 3:
                    value = raw
                elif number == 4:
                    value = signed(raw)
                elif number == 7:
                    value = self.stat_names.get(raw)
        return name, value


def planes(message: memoryview) -> Iterator[XPlane | str]:
    """Yield the planes of a file, and the names of hosts as text."""
    for number, value in fields(message):
        if number == 1 and isinstance(value, memoryview):
            yield _plane(value)
        elif number == 4:
            yield text(value)


def _plane(message: memoryview) -> XPlane:
    plane = XPlane("")
    own_stats = []
    for number, value in fields(message):
        if not isinstance(value, memoryview):
            continue
        if number == 2:
            plane.name = text(value)
        elif number == 3:
            plane.lines.append(_line(value))
        elif number == 4:
            key, name = _entry(value)
            plane.event_names[key] = name
        elif number == 5:
            key, name = _entry(value)
            plane.stat_names[key] = name
        elif number == 6:
            own_stats.append(value)
    plane.stats = dict(plane.stat(stat) for stat in own_stats)
    return plane


def _entry(message: memoryview) -> tuple[int, str]:
    """Return key and name of an entry of a metadata map; the short name of an event, where it has one."""
    key = 0
    names = {2: "", 4: ""}
    for number, value in fields(message):
        if number == 1 and isinstance(value, int):
            key = value
        elif number == 2 and isinstance(value, memoryview):
            for inner, content in fields(value):
                if inner in names:
                    names[inner] = text(content)
    return key, names[4] or names[2]


def _line(message: memoryview) -> XLine:
    line = XLine(0, "", 0, 0, message)
    for number, value in fields(message):
        if number == 4:
            line.count += 1
        elif number == 2:
            line.name = line.name or text(value)
        elif number == 11:
            line.name = text(value) or line.name
        elif number == 1 and isinstance(value, int):
            line.number = value
        elif number == 3 and isinstance(value, int):
            line.timestamp_ns = signed(value)
    return line


def _event(message: memoryview) -> XEvent:
    metadata = offset = duration = 0
    aggregated = False
    stats = []
    for number, value in fields(message):
        if isinstance(value, memoryview):
            if number == 4:
                stats.append(value)
        elif number == 1:
            metadata = value
        elif number == 2:
            offset = signed(value)
        elif number == 3:
            duration = signed(value)
        elif number == 5:
            aggregated = True
    return XEvent(metadata, offset, duration, aggregated, tuple(stats))
