"""Events of the Chrome trace format, as Kineto and many others write it: one struct, exact times, tolerant ids.

Times are microseconds with up to three decimals, as a number or as text. A double holds them to the nanosecond up to
2**43 us (101 days; Kineto's are relative to a base at most 92 days back) and not at the scale of the UNIX epoch
(1.7e15 us): a piece of a file with such numbers is decoded again, as decimals.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from operator import attrgetter
from typing import Any, TypeAlias

import msgspec

from pasta.importers.json_stream import JsonStream
from pasta.importers.packed import Source

Time: TypeAlias = int | float | str | Decimal | None
Id: TypeAlias = int | float | str | None

#: Below this many microseconds, a double times 1000 rounds to the nanosecond that was written.
EXACT_DOUBLE_US = 2.0**43
#: Times beyond this many microseconds (year 2096) are damage: with it, sums and differences fit 64 bits in ns.
MAX_US = 4 * 10**15
#: Decimals of more digits are looked at no further: an exponent could make a gigabyte of them.
_MAX_EXPONENT = 15

_TS = attrgetter("ts")


class Event(msgspec.Struct, gc=False):
    """One event; what the format defines and no importer uses is left out."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    ts: int | float | str | None = None
    dur: int | float | str | None = None
    pid: Id = None
    tid: Id = None
    id: Any = None
    args: Any = None


class _ExactEvent(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str = ""
    name: str = ""
    ts: Decimal | None = None
    dur: Decimal | None = None
    pid: Id = None
    tid: Id = None
    id: Any = None
    args: Any = None


class _Decoder:
    """Decodes arrays of events, as decimals from the first array on that needs it."""

    def __init__(self) -> None:
        self._decode: Any = msgspec.json.Decoder(list[Event]).decode
        self._exact = False

    def __call__(self, raw: bytes) -> list[Event]:
        events: list[Event] = self._decode(raw)
        if not self._exact and _needs_decimals(events):
            self._exact = True
            self._decode = msgspec.json.Decoder(list[_ExactEvent]).decode
            return self(raw)
        return events


def _needs_decimals(events: list[Event]) -> bool:
    try:
        if max(map(_TS, events), default=0) < EXACT_DOUBLE_US:
            return False
    except TypeError:  # a time that is text or missing
        pass
    return any(type(event.ts) is float and event.ts >= EXACT_DOUBLE_US for event in events)


def event_stream(source: Source) -> JsonStream[Event]:
    """Return the events of a Chrome trace, whose document is an object with ``traceEvents`` or a list."""
    return JsonStream(source, "traceEvents", _Decoder(), _salvage)


def to_ns(time: Time) -> int | None:
    """Return ``time`` (us) in ns, rounded to the nearest; None for what is not a time."""
    if type(time) is int:
        return time * 1000 if -MAX_US < time < MAX_US else None
    if type(time) is float and -EXACT_DOUBLE_US < time < EXACT_DOUBLE_US:
        return round(time * 1000)
    if time is None or isinstance(time, bool):
        return None
    try:
        decimal = Decimal(time)
    except (InvalidOperation, ValueError):
        return None
    if not decimal.is_finite() or decimal.adjusted() > _MAX_EXPONENT:
        return None
    if decimal.adjusted() < -16:
        return 0
    return int((decimal * 1000).to_integral_value()) if -MAX_US < decimal < MAX_US else None


def to_int(value: Any) -> int | None:
    """Return an id or size that may be a number or its text (``"7"``, ``"stream 7"``, ``"0x1f"``); else None."""
    if type(value) is int:
        return value
    if type(value) is float:
        return int(value) if value.is_integer() and abs(value) < 2.0**63 else None
    if not isinstance(value, str):
        return None
    text = value.removeprefix("stream ")
    try:
        return int(text, 16) if text.startswith(("0x", "0X")) else int(text)
    except ValueError:
        return None


def _salvage(value: Any) -> Event | None:
    """Return the event in a parsed object that has values of unexpected types."""
    if not isinstance(value, dict):
        return None
    return Event(
        ph=_text(value.get("ph")),
        cat=_text(value.get("cat")),
        name=_text(value.get("name")),
        ts=_scalar(value.get("ts")),
        dur=_scalar(value.get("dur")),
        pid=_scalar(value.get("pid")),
        tid=_scalar(value.get("tid")),
        id=_scalar(value.get("id")),
        args=value.get("args"),
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _scalar(value: Any) -> int | str | None:
    return value if isinstance(value, int | str) and not isinstance(value, bool) else None
