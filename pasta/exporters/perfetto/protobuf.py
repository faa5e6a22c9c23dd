"""Encode protocol buffers a whole column at a time: each function makes the bytes of one field for n messages.

A message of n rows is a `Block`: a matrix of bytes, a row a message, and a mask of the bytes that count, since
varints have different lengths and fields may be absent. Blocks are joined side by side; `to_bytes` leaves the masked
bytes out::

    data   08 96 01   08 03 --        keep   1 1 1   1 1 0       to_bytes   08 96 01 08 03

The encoding is https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]

_VARINT, _FIXED64, _BYTES = 0, 1, 2  # wire types


class Block(NamedTuple):
    """The bytes of n messages or parts of messages: ``data`` (uint8) and ``keep`` (bool), both n by width."""

    data: npt.NDArray[np.uint8]
    keep: npt.NDArray[np.bool_]

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Return the bytes of each row, int64 of n."""
        lengths: npt.NDArray[np.int64] = self.keep.sum(axis=1, dtype=np.int64)
        return lengths

    def to_bytes(self) -> bytes:
        """Return all rows, one after the other."""
        return self.data[self.keep].tobytes()


def join(*blocks: Block) -> Block:
    """Return the blocks side by side; all have the same number of rows."""
    return Block(np.hstack([b.data for b in blocks]), np.hstack([b.keep for b in blocks]))


def integer(field: int, values: Array, present: npt.NDArray[np.bool_] | None = None) -> Block:
    """Encode an (u)int32, (u)int64, bool or enum field; absent in the rows where ``present`` is false."""
    return _tagged(field, _VARINT, _varint(values), present)


def fixed64(field: int, values: Array, present: npt.NDArray[np.bool_] | None = None) -> Block:
    """Encode a fixed64 field (little-endian)."""
    data = np.ascontiguousarray(values, dtype="<u8").view(np.uint8).reshape(-1, 8)
    return _tagged(field, _FIXED64, Block(data, np.ones(data.shape, np.bool_)), present)


def message(field: int, content: Block, present: npt.NDArray[np.bool_] | None = None) -> Block:
    """Encode a field that is a message, whose fields are ``content``."""
    return _tagged(field, _BYTES, join(_varint(content.lengths), content), present)


def constant(field: int, value: int, rows: int) -> Block:
    """Encode an integer field with the same value in every row."""
    one = integer(field, np.array([value]))
    return Block(np.repeat(one.data, rows, axis=0), np.repeat(one.keep, rows, axis=0))


def text(field: int, value: str) -> bytes:
    """Encode one string field of one message."""
    return single_message(field, value.encode("utf-8", "replace"))


def single(field: int, value: int) -> bytes:
    """Encode one integer field of one message."""
    return integer(field, np.array([value])).to_bytes()


def single_message(field: int, *content: bytes) -> bytes:
    """Encode one field of one message that is itself a message (or bytes)."""
    body = b"".join(content)
    return _tag(field, _BYTES) + _varint(np.array([len(body)])).to_bytes() + body


def _tagged(field: int, wire: int, payload: Block, present: npt.NDArray[np.bool_] | None) -> Block:
    tag = np.frombuffer(_tag(field, wire), np.uint8)
    rows = len(payload.data)
    data = np.hstack([np.broadcast_to(tag, (rows, len(tag))), payload.data])
    keep = np.hstack([np.ones((rows, len(tag)), np.bool_), payload.keep])
    if present is not None:
        keep &= present[:, None]
    return Block(data, keep)


def _tag(field: int, wire: int) -> bytes:
    return _varint(np.array([field << 3 | wire])).to_bytes()


def _varint(values: Array | Sequence[int]) -> Block:
    """Encode integers, seven bits a byte, lowest first; negative ones as their 64-bit two's complement."""
    numbers = np.asarray(values)
    unsigned = numbers.astype(np.int64).view(np.uint64) if numbers.dtype != np.uint64 else numbers
    largest = int(unsigned.max(initial=0))
    width = max(1, -(-largest.bit_length() // 7))
    shifted = unsigned[:, None] >> (np.arange(width, dtype=np.uint64) * np.uint64(7))
    data = (shifted & np.uint64(0x7F)).astype(np.uint8)
    keep = shifted != 0
    keep[:, 0] = True
    data[:, :-1] |= (keep[:, 1:].astype(np.uint8)) << 7
    return Block(data, keep)
