"""A Perfetto trace as a stream of slices, tracks and GPU stages; what a slice means is for ``pftrace`` to say.

A trace is a list of packets (field 1). Field numbers are those of Perfetto's ``protos/perfetto/trace``.
"""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pasta.errors import PastaError
from pasta.importers.packed import FREE_UNPACKED_BYTES, MAX_RATIO, Source
from pasta.importers.pftrace.sequence import CATEGORIES, EVENT_NAMES, Clocks, Message, Sequence
from pasta.importers.wire import WireError, fields, signed, varint

#: A packet longer than this is taken for damage.
_MAX_PACKET = 64 << 20
#: Slices that are open at a time, tracks, sequences; more are taken for damage.
_MOST = 1 << 20

_STATE_CLEARED, _STATE_NEEDED = 1, 2
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4


@dataclass
class Slice:
    """One slice or instant; ``end_ns`` is None when it was never ended."""

    start_ns: int
    name: str
    category: str
    track: int | None
    arguments: dict[str, Any]
    #: Numbers of the slice and of the one that it is in, in the order of their starts, from 1.
    number: int
    parent: int | None
    end_ns: int | None = None
    instant: bool = False


@dataclass
class Stage:
    """One GpuRenderStageEvent, and the sequence whose names it uses."""

    start_ns: int
    message: Message
    sequence: Sequence


@dataclass
class Track:
    """A track descriptor: ``pid`` and ``tid`` where it is a process or a thread."""

    name: str = ""
    parent: int | None = None
    pid: int | None = None
    tid: int | None = None


class Packets:
    """Reads one file; the attributes are filled meanwhile."""

    def __init__(self, source: Source) -> None:
        self.tracks: dict[int, Track] = {}
        self.process_names: dict[int, str] = {}
        self.skipped: Counter[str] = Counter()
        self.unplaced: Counter[str] = Counter()
        #: Where and why the file ended early.
        self.broken: str | None = None
        self.clocks = Clocks()
        self._source = source
        self._unpacked = 0
        self._sequences: defaultdict[int, Sequence] = defaultdict(Sequence)
        self._open: defaultdict[tuple[int, int], list[Slice]] = defaultdict(list)
        self._open_count = 0
        self._numbers = 0

    def events(self) -> Iterator[Slice | Stage]:
        """Yield slices when they end, those that never do at the end, and GPU stages."""
        for packet in self._packets():
            try:
                yield from self._packet(packet)
            except WireError:
                self.skipped["packet that is not a message"] += 1
        for stack in self._open.values():
            yield from stack

    def _packets(self) -> Iterator[bytes]:
        """Yield the packets of the file, and those within compressed ones."""
        buffer = b""
        consumed = 0
        for piece in self._source.read():
            buffer += piece
            position = 0
            while (span := self._next(buffer, position)) is not None:
                start, position = span
                packet = buffer[start:position]
                yield packet
                yield from self._compressed(packet)
            consumed += position
            buffer = buffer[position:]
            if len(buffer) > _MAX_PACKET:
                self.broken = f"a packet of more than {_MAX_PACKET} bytes at byte {consumed}"
            if self.broken:
                return
        if buffer or self._source.broken:
            self.broken = self._source.broken or f"the packet at byte {consumed} is cut"

    def _next(self, buffer: bytes, position: int) -> tuple[int, int] | None:
        """Return where the packet at ``position`` begins and ends, None when it is not in the buffer whole."""
        if position == len(buffer):
            return None
        if buffer[position] != 0x0A:  # field 1, bytes
            self.broken = "what follows the last packet is not one"
            return None
        try:
            size, start = varint(buffer, position + 1)
        except WireError:
            return None
        return (start, start + size) if start + size <= len(buffer) else None

    def _compressed(self, packet: bytes) -> Iterator[bytes]:
        """Yield the packets that a packet holds with zlib; in all, they may unpack to ``MAX_RATIO`` times the file."""
        try:
            message = Message(packet)
            if 133 in message:
                raise PastaError(
                    f"{self._source.path} has packets compressed with zstd",
                    "unpack it with Perfetto's traceconv decompress_packets and import the result",
                )
            for data in message.parts(50):
                limit = max(FREE_UNPACKED_BYTES, MAX_RATIO * self._source.size) - self._unpacked
                unpacked = zlib.decompressobj().decompress(data, min(limit, _MAX_PACKET) + 1)
                self._unpacked += len(unpacked)
                if len(unpacked) > min(limit, _MAX_PACKET):
                    raise PastaError(f"{self._source.path} unpacks to too much for its size")
                yield from (inner for number, inner in fields(unpacked) if number == 1 and isinstance(inner, bytes))
        except (WireError, zlib.error):
            self.skipped["compressed packets that do not unpack"] += 1

    def _packet(self, data: bytes) -> Iterator[Slice | Stage]:
        packet = Message(data)
        number = packet.number(10) or 0
        if number not in self._sequences and len(self._sequences) >= _MOST:
            number = 0
        sequence = self._sequences[number]
        flags = packet.number(13) or 0
        if flags & _STATE_CLEARED or packet.number(41):
            sequence.clear()
        elif packet.number(42):
            self.skipped["gap in a sequence: packets were dropped while recording"] += 1
            sequence.gap = True
        for snapshot in packet.parts(6):
            self.clocks.snapshot(snapshot, sequence)
        for defaults in packet.parts(59):
            sequence.set_defaults(defaults)
        for interned in packet.parts(12):
            sequence.intern(interned)
        for process in packet.parts(43):
            self._process(process)
        for descriptor in packet.parts(60):
            self._describe(Message(descriptor))
        if 11 not in packet and 53 not in packet:
            if not any(known in packet for known in (6, 12, 36, 43, 44, 50, 59, 60)):
                self.unplaced["packets without slices (configuration, system data)"] += 1
            return
        if flags & _STATE_NEEDED and sequence.gap:
            self.skipped["event whose names were lost with dropped packets"] += 1
            return
        clock = packet.number(58) or sequence.clock
        time = self.clocks.time(packet.number(8), clock, sequence)
        if time is None:
            self.skipped["event without a time on a known clock"] += 1
            return
        for event in packet.parts(11):
            yield from self._track_event(Message(event), time, number, sequence)
        for stage in packet.parts(53):
            yield Stage(time, Message(stage), sequence)

    def _describe(self, descriptor: Message) -> None:
        """Take over a TrackDescriptor message."""
        track = Track(name=next((name for name in map(descriptor.text, (2, 10, 13)) if name), ""))
        track.parent = descriptor.number(5)
        for process in descriptor.parts(3):
            track.pid, name = self._process(process)
            track.name = track.name or name
        for data in descriptor.parts(4):
            thread = Message(data)
            track.pid, tid = thread.number(1), thread.number(2)
            track.tid = None if tid is None else signed(tid)
            track.name = track.name or thread.text(5)
        if len(self.tracks) < _MOST:
            self.tracks[descriptor.number(1) or 0] = track

    def _process(self, data: bytes) -> tuple[int | None, str]:
        process = Message(data)
        pid, name = process.number(1), process.text(6)
        if pid is not None and name and len(self.process_names) < _MOST:
            self.process_names[pid] = name
        return pid, name

    def _track_event(self, event: Message, time: int, number: int, sequence: Sequence) -> Iterator[Slice]:
        track = event.number(11)
        track = sequence.track if track is None else track
        key = (0, number) if track is None else (1, track)
        kind = event.number(9)
        if kind == _END:
            stack = self._open.get(key)
            if not stack:
                self.skipped["end of a slice that was not begun"] += 1
                return
            ended = stack.pop()
            if not stack:
                del self._open[key]
            self._open_count -= 1
            ended.end_ns = time
            ended.arguments |= sequence.arguments(event.parts(4))
            yield ended
        elif kind in (_BEGIN, _INSTANT):
            self._numbers += 1
            categories = event.parts(22)
            names = [category.decode("utf-8", "replace") for category in categories]
            names += [sequence.name(CATEGORIES, category) for category in event.numbers(3)]
            name = event.text(23) or sequence.name(EVENT_NAMES, event.number(10))
            stack = self._open.get(key)
            parent = stack[-1].number if stack else None
            arguments = sequence.arguments(event.parts(4))
            begun = Slice(time, name, ",".join(names), track, arguments, self._numbers, parent)
            if kind == _INSTANT:
                begun.instant, begun.end_ns = True, time
                yield begun
            elif self._open_count < _MOST:
                self._open[key].append(begun)
                self._open_count += 1
            else:
                self.skipped["slice begun while a million others were open"] += 1
        else:
            self.unplaced["counter values" if kind == _COUNTER else "events of the time before tracks"] += 1
