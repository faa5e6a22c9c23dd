"""Column-wise encoding equals the encoding of one message after the other, as protobuf's guide describes it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pasta.exporters.perfetto.protobuf import (
    Block,
    constant,
    fixed64,
    integer,
    join,
    message,
    single,
    single_message,
    text,
)

INT64 = st.integers(-(2**63), 2**63 - 1)


def varint(value: int) -> bytes:
    """Encode one integer, a byte at a time."""
    value %= 2**64
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "08 00"), (1, "08 01"), (127, "08 7f"), (128, "08 80 01"), (150, "08 96 01"), (-1, "08" + " ff" * 9 + " 01")],
)
def test_one_integer(value: int, encoded: str) -> None:
    assert single(1, value) == bytes.fromhex(encoded)  # 150 is the example of the encoding guide


def test_text() -> None:
    assert text(2, "testing") == bytes.fromhex("12 07 74 65 73 74 69 6e 67")  # the guide's example of a string


def test_large_field_numbers_take_two_bytes() -> None:
    assert single(87, 1) == varint(87 << 3) + b"\x01"


@given(st.lists(INT64, min_size=1))
def test_a_column_of_integers(values: list[int]) -> None:
    assert integer(3, np.array(values)).to_bytes() == b"".join(b"\x18" + varint(value) for value in values)


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1))
def test_a_column_of_unsigned_integers(values: list[int]) -> None:
    column = integer(3, np.array(values, np.uint64))
    assert column.to_bytes() == b"".join(b"\x18" + varint(value) for value in values)


@given(st.lists(st.tuples(INT64, st.booleans(), st.booleans()), min_size=1))
def test_messages_with_absent_fields_have_the_right_lengths(rows: list[tuple[int, bool, bool]]) -> None:
    values = np.array([value for value, _, _ in rows])
    has_value = np.array([present for _, present, _ in rows])
    is_sent = np.array([sent for _, _, sent in rows])
    body = join(integer(1, values, has_value), fixed64(2, values.view(np.uint64)))
    expected = b""
    for value, present, sent in rows:
        fields = (b"\x08" + varint(value) if present else b"") + b"\x11" + (value % 2**64).to_bytes(8, "little")
        expected += b"\x0a" + varint(len(fields)) + fields if sent else b""
    assert message(1, body, is_sent).to_bytes() == expected


def test_a_constant_is_the_same_in_every_row() -> None:
    assert constant(9, 300, 3).to_bytes() == single(9, 300) * 3


def test_nested_messages() -> None:
    assert single_message(1, single_message(2, single(3, 4))) == bytes.fromhex("0a 04 12 02 18 04")


def test_no_rows_are_no_bytes() -> None:
    empty: Block = message(1, integer(2, np.array([], np.int64)))
    assert empty.to_bytes() == b""
