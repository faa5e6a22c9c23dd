"""Protocol buffers read without a schema: the fields of a message, one after the other.

The encoding is that of https://protobuf.dev/programming-guides/encoding: a tag (field number and wire type) and a
varint, 8 bytes, 4 bytes, or a length with that many bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TypeVar

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10

#: A message that is in memory, or a view of one that is mapped from a file: its fields are views then, and not copied.
Data = TypeVar("Data", bytes, memoryview)


class WireError(ValueError):
    """The bytes are not a message, or are cut."""


def varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return the varint at ``position`` and where it ends; raises ``WireError``."""
    value = 0
    for index in range(_MAX_VARINT_BYTES):
        if position >= len(data):
            raise WireError("a number is cut")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position
    raise WireError("a number is too long")


def fields(data: Data) -> Iterator[tuple[int, int | Data]]:
    """Yield number and value of each field: bytes for messages and text, else the bits as an unsigned number.

    Raises ``WireError`` where the message is broken, after the fields before.
    """
    position = 0
    end = len(data)
    while position < end:
        tag, position = varint(data, position)
        wire = tag & 7
        if wire == _VARINT:
            value, position = varint(data, position)
            yield tag >> 3, value
            continue
        size = 8 if wire == _FIXED64 else 4
        if wire == _BYTES:
            size, position = varint(data, position)
        elif wire not in (_FIXED64, _FIXED32):
            raise WireError(f"a field has the wire type {wire}")
        if size > end - position:
            raise WireError("a field is cut")
        content = data[position : position + size]
        position += size
        yield tag >> 3, content if wire == _BYTES else int.from_bytes(content, "little")


def signed(bits: int) -> int:
    """Return an ``int32`` or ``int64`` from its bits as ``fields`` gives them."""
    return bits - (1 << 64) if bits >> 63 else bits


def double(bits: int) -> float:
    """Return a ``double`` from its bits."""
    return float(struct.unpack("<d", bits.to_bytes(8, "little"))[0])


def text(value: int | bytes | memoryview) -> str:
    """Return a ``string``; bytes that are not UTF-8 are replaced."""
    return str(value) if isinstance(value, int) else bytes(value).decode("utf-8", "replace")
