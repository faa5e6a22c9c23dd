"""Perfetto traces for tests, put together from the field numbers of Perfetto's protos."""

from __future__ import annotations

import struct
from typing import Any

BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
CLEARED, NEEDS_STATE = 1, 2


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def message(**parts: Any) -> bytes:
    """Return a message: ``f8=5`` is field 8 as a varint, bytes and text have a length, a list repeats the field."""
    out = b""
    for name, value in parts.items():
        for one in value if isinstance(value, list) else [value]:
            number = int(name[1:])
            if isinstance(one, float):
                out += varint(number << 3 | 1) + struct.pack("<d", one)
            elif isinstance(one, bytes | str):
                raw = one.encode() if isinstance(one, str) else one
                out += varint(number << 3 | 2) + varint(len(raw)) + raw
            else:
                out += varint(number << 3) + varint(one)
    return out


def packet(sequence: int = 1, **parts: Any) -> bytes:
    return message(f1=message(f10=sequence, **parts))


def track(uuid: int, name: str, parent: int | None = None, **parts: Any) -> bytes:
    more = {} if parent is None else {"f5": parent}
    return packet(f60=message(f1=uuid, f2=name, **more, **parts))


def process(uuid: int, pid: int, name: str) -> bytes:
    return packet(f60=message(f1=uuid, f3=message(f1=pid, f6=name)))


def thread(uuid: int, pid: int, tid: int, name: str, parent: int) -> bytes:
    return packet(f60=message(f1=uuid, f5=parent, f4=message(f1=pid, f2=tid, f5=name)))


def annotation(name: str, value: Any) -> bytes:
    number = {bool: "f2", int: "f3", float: "f5", str: "f6"}[type(value)]
    return message(f10=name, **{number: value})


def slice_(uuid: int, name: str, start: int, end: int, category: str = "app", **args: Any) -> bytes:
    notes = [annotation(key.replace("__", " "), value) for key, value in args.items()]
    begin = message(f9=BEGIN, f11=uuid, f22=category, f23=name, f4=notes)
    return packet(f8=start, f11=begin) + packet(f8=end, f11=message(f9=END, f11=uuid))


HOST = process(1, 4711, "python") + thread(2, 4711, 4712, "worker", 1)
