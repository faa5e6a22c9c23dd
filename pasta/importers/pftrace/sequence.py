"""What packets of one Perfetto sequence share: interned names, defaults, and clocks whose times may be differences.

Field numbers are those of Perfetto's ``protos/perfetto/trace``.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from pasta.importers.wire import double, fields, signed, text, varint

#: Number of CLOCK_REALTIME and of CLOCK_BOOTTIME, the clock of a trace unless it says otherwise.
_REALTIME, _BOOTTIME = 1, 6
#: Clocks with these numbers belong to one sequence.
_SEQUENCE_CLOCKS = range(64, 128)
_MAX_DEPTH = 8

#: Fields of InternedData.
CATEGORIES, EVENT_NAMES, ARGUMENT_NAMES, ARGUMENT_TEXTS = 1, 2, 3, 29
GPU_STAGES, COMPUTE_KERNELS, COMPUTE_ARGUMENTS = 24, 1000, 1001


class Message:
    """The fields of a message by number. Fields of another type than expected are as good as missing."""

    def __init__(self, data: bytes) -> None:
        self._values: defaultdict[int, list[int | bytes]] = defaultdict(list)
        for number, value in fields(data):
            self._values[number].append(value)

    def __contains__(self, number: int) -> bool:
        return number in self._values

    def number(self, number: int) -> int | None:
        """Return an unsigned number, None when it is missing."""
        return next((value for value in self._values.get(number, ()) if isinstance(value, int)), None)

    def text(self, number: int) -> str:
        """Return a text, empty when it is missing."""
        return next((text(value) for value in self._values.get(number, ()) if isinstance(value, bytes)), "")

    def parts(self, number: int) -> list[bytes]:
        """Return repeated messages or texts."""
        return [value for value in self._values.get(number, ()) if isinstance(value, bytes)]

    def numbers(self, number: int) -> list[int]:
        """Return repeated numbers, one a field or all in one."""
        numbers: list[int] = []
        for value in self._values.get(number, ()):
            if isinstance(value, int):
                numbers.append(value)
                continue
            position = 0
            while position < len(value):
                one, position = varint(value, position)
                numbers.append(one)
        return numbers


@dataclass
class Clock:
    """A clock: what it said in a snapshot, and what the trace's clock said then."""

    start: int
    at_ns: int
    multiplier: int = 1
    incremental: bool = False
    last: int = 0


@dataclass
class Sequence:
    """State of one sequence of packets."""

    interned: defaultdict[int, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    clocks: dict[int, Clock] = field(default_factory=dict)
    #: Clock and track of packets that name none.
    clock: int | None = None
    track: int | None = None
    #: Packets were lost, and with them perhaps names, since the state was last cleared.
    gap: bool = False

    def clear(self) -> None:
        """Forget what the packets before said."""
        self.interned.clear()
        self.clock = self.track = None
        self.gap = False

    def intern(self, data: bytes) -> None:
        """Take over an InternedData message."""
        for kind, message in fields(data):
            if isinstance(message, bytes):
                number = next((value for name, value in fields(message) if name == 1 and isinstance(value, int)), 0)
                self.interned[kind][number] = message

    def name(self, kind: int, number: int | None) -> str:
        """Return the text (field 2) of interned data, empty when the packet that had it was lost."""
        return Message(self.interned[kind].get(number or 0, b"")).text(2)

    def set_defaults(self, data: bytes) -> None:
        """Take over a TracePacketDefaults message."""
        defaults = Message(data)
        self.clock = defaults.number(58)
        self.track = next((Message(event).number(11) for event in defaults.parts(11)), None)

    def arguments(self, annotations: list[bytes]) -> dict[str, Any]:
        """Return debug annotations: numbers, texts, and lists and dicts of them, by name."""
        return dict(self._annotation(annotation, 0) for annotation in annotations)

    def _annotation(self, data: bytes, depth: int) -> tuple[str, Any]:
        message = Message(data)
        name = message.text(10) or self.name(ARGUMENT_NAMES, message.number(1))
        if depth < _MAX_DEPTH:
            if 11 in message:
                return name, dict(self._annotation(entry, depth + 1) for entry in message.parts(11))
            if 12 in message:
                return name, [self._annotation(entry, depth + 1)[1] for entry in message.parts(12)]
        if 17 in message:
            return name, self.name(ARGUMENT_TEXTS, message.number(17))
        for number in (6, 9):
            if number in message:
                return name, message.text(number)
        for number, convert in ((2, bool), (3, int), (4, signed), (5, double), (7, int)):
            value = message.number(number)
            if value is not None:
                return name, convert(value)
        return name, None


class Clocks:
    """Clocks of the whole trace."""

    def __init__(self) -> None:
        #: UNIX time minus the trace's clock, in ns.
        self.realtime_offset: int | None = None
        self._clocks: dict[int, Clock] = {}

    def snapshot(self, data: bytes, sequence: Sequence) -> None:
        """Note what all clocks said at one moment."""
        readings = [Message(clock) for clock in Message(data).parts(1)]
        said = {reading.number(1): reading.number(2) or 0 for reading in readings}
        if _BOOTTIME not in said:
            return
        now = said[_BOOTTIME]
        if _REALTIME in said and self.realtime_offset is None:
            self.realtime_offset = said[_REALTIME] - now
        for reading in readings:
            number, start = reading.number(1) or 0, reading.number(2) or 0
            clock = Clock(start, now, reading.number(4) or 1, bool(reading.number(3)), start)
            (sequence.clocks if number in _SEQUENCE_CLOCKS else self._clocks)[number] = clock

    def time(self, stamp: int | None, number: int | None, sequence: Sequence) -> int | None:
        """Return a packet's time on the trace's clock in ns, None when it has none or its clock is not known."""
        if stamp is None or number in (None, 0, _BOOTTIME):
            return stamp
        clock = sequence.clocks.get(number) or self._clocks.get(number)
        if clock is None:
            return None
        clock.last = clock.last + stamp if clock.incremental else stamp
        return clock.at_ns + (clock.last - clock.start) * clock.multiplier
