"""Shards made by the tests' own encoder (shard_encoder.py) decode to the rows that went in; broken ones to fewer."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_encoder import LAYOUT, Row, ShardEncoder, encode_chunk, encode_strings
from shard_rows import rows_of

from pasta.schema import SCHEMA_VERSION, TABLES, Table, Type
from pasta.trace import shards
from pasta.trace.dump import dump
from pasta.trace.shards import Shard

KERNELS: list[Row] = [
    {"start_ns": 100, "end_ns": 180, "name": "scale", "grid_x": 64, "compiled": True, "launch_id": 1},
    {"start_ns": 90, "end_ns": 95, "name": "größe", "compiled": False, "launch_id": 2},
    {"start_ns": None, "name": "", "grid_x": 0, "launch_id": 3},
]
COPIES: list[Row] = [{"start_ns": 200, "kind": "h2d", "bytes": 4096, "src_kind": "pinned"}, {"kind": None}]


def write(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "shard-7-0.pastashard"
    path.write_bytes(data)
    return path


def decoded(shard: Shard, table_name: str) -> list[Row]:
    """Rows of a table without what is null, as dicts."""
    chunks = shard.chunks_of(TABLES[table_name])
    frames = [shard.frame([chunk]) for chunk in chunks]
    return [without_nulls(row) for frame in frames for row in frame.to_dicts()]


def without_nulls(row: Row) -> Row:
    return {name: value for name, value in row.items() if value is not None}


def test_rows_decode_to_what_was_encoded(tmp_path: Path) -> None:
    data = ShardEncoder().add("kernel", KERNELS).add("memcpy", COPIES).data
    shard = Shard(write(tmp_path, data))
    assert decoded(shard, "kernel") == [without_nulls(row) for row in KERNELS]
    assert decoded(shard, "memcpy") == [without_nulls(row) for row in COPIES]
    assert shard.faults == []


def test_a_chunk_knows_the_times_in_it(tmp_path: Path) -> None:
    shard = Shard(write(tmp_path, ShardEncoder().add("kernel", KERNELS).add("stack", [{"stack_id": 1}]).data))
    kernels, stacks = shard.chunks
    assert (kernels.first_ns, kernels.last_ns) == (90, 180)
    assert (stacks.first_ns, stacks.last_ns) == (None, None)


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
@given(data=st.data())
@settings(max_examples=20)
def test_any_rows_of_any_table_round_trip(tmp_path_factory: Any, table: Table, data: st.DataObject) -> None:
    rows = data.draw(st.lists(rows_of(table), max_size=5))
    more = data.draw(st.lists(rows_of(table), min_size=1, max_size=3))
    path = write(tmp_path_factory.mktemp("shard"), ShardEncoder().add(table.name, rows).add(table.name, more).data)
    shard = Shard(path)
    assert shard.faults == []
    assert shard.frame(shard.chunks_of(table)).to_dicts() == rows + more


def test_a_long_chunk_is_taken_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "MAX_ROWS", 2)
    shard = Shard(write(tmp_path, ShardEncoder().add("kernel", KERNELS).data))
    assert [chunk.rows for chunk in shard.chunks] == [2, 1]
    assert decoded(shard, "kernel") == [without_nulls(row) for row in KERNELS]


def test_a_column_that_the_shard_lacks_is_null(tmp_path: Path) -> None:
    older = encode_chunk(TABLES["kernel"].id, 2, [(0, LAYOUT[Type.I64][1], struct.pack("<2q", 5, 6))])
    shard = Shard(write(tmp_path, older))
    assert decoded(shard, "kernel") == [{"start_ns": 5}, {"start_ns": 6}]
    assert shard.faults == []


def test_shards_of_a_newer_pasta_are_read_as_far_as_they_are_known(tmp_path: Path) -> None:
    times = (0, LAYOUT[Type.I64][1], struct.pack("<q", 5))
    kernel = TABLES["kernel"].id
    shard = Shard(
        write(
            tmp_path,
            encode_chunk(999, 4, [times])
            + encode_chunk(kernel, 1, [times, (len(TABLES["kernel"].columns), 9, b"new!")])
            + encode_chunk(kernel, 1, [times], schema_version=SCHEMA_VERSION + 1)
            + encode_chunk(kernel, 1, [times], format_version=2),
        )
    )
    assert decoded(shard, "kernel") == [{"start_ns": 5}]
    assert [(fault.table, fault.rows) for fault in shard.faults] == [
        ("table 999", 4),
        ("kernel", None),
        ("kernel", 1),
        ("kernel", 1),
    ]
    assert all(fault.remedy.startswith("upgrade pasta") for fault in shard.faults)


def test_an_enumerator_of_a_newer_pasta_is_null_and_noted(tmp_path: Path) -> None:
    position = [column.name for column in TABLES["memcpy"].columns].index("kind")
    shard = Shard(write(tmp_path, encode_chunk(TABLES["memcpy"].id, 3, [(position, 6, bytes([1, 200, 255]))])))
    assert shard.frame(shard.chunks)["kind"].to_list() == ["h2d", None, None]
    assert [(fault.table, fault.rows) for fault in shard.faults] == [("memcpy", None)]


def test_text_that_is_not_utf8_is_shown_with_replacement_characters(tmp_path: Path) -> None:
    names = encode_strings(1, [b"caf\xc3", b"ok"])
    position = [column.name for column in TABLES["kernel"].columns].index("name")
    rows = encode_chunk(TABLES["kernel"].id, 3, [(position, 5, struct.pack("<3I", 1, 2, 77))])
    shard = Shard(write(tmp_path, names + rows))
    assert shard.frame(shard.chunks)["name"].to_list() == ["caf\ufffd", "ok", None]


@pytest.mark.parametrize(
    "columns",
    [
        pytest.param([(0, 1, bytes(8))], id="shorter than its rows"),
        pytest.param([(0, 2, bytes(16))], id="wrong type"),
        pytest.param([(0, 1, bytes(16)), (0, 1, bytes(16))], id="column given twice"),
    ],
)
def test_a_chunk_whose_columns_do_not_fit_is_ignored(tmp_path: Path, columns: list[tuple[int, int, bytes]]) -> None:
    bad = encode_chunk(TABLES["kernel"].id, 2, columns)
    shard = Shard(write(tmp_path, bad + ShardEncoder().add("kernel", KERNELS).data))
    assert decoded(shard, "kernel") == [without_nulls(row) for row in KERNELS]
    assert shard.faults == [shards.Fault("kernel", 2, shards.DAMAGED)]


@pytest.mark.parametrize(
    ("ends", "text"),
    [
        pytest.param((5, 3), b"abcde", id="ends that go back"),
        pytest.param((2, 4000), b"abcd", id="end outside the chunk"),
    ],
)
def test_a_chunk_of_strings_that_do_not_fit_is_ignored(tmp_path: Path, ends: tuple[int, int], text: bytes) -> None:
    shard = Shard(write(tmp_path, encode_chunk(0, 2, [(0, 5, struct.pack("<2I", *ends)), (1, 7, text)], 1)))
    assert len(shard.texts) == 0
    assert shard.faults == [shards.Fault(None, None, shards.NO_TEXT)]


@pytest.mark.parametrize("columns", [[], [(0, 1, bytes(64))], [(99, 1, bytes(64))]], ids=["none", "short", "unknown"])
def test_a_huge_count_of_rows_allocates_nothing(tmp_path: Path, columns: list[tuple[int, int, bytes]]) -> None:
    shard = Shard(write(tmp_path, encode_chunk(TABLES["kernel"].id, 2**32 - 1, columns)))
    assert shard.chunks == []
    assert shard.faults[-1] == shards.Fault("kernel", 2**32 - 1, shards.DAMAGED)


def test_strings_may_have_any_number(tmp_path: Path) -> None:
    position = [column.name for column in TABLES["kernel"].columns].index("name")
    numbers = struct.pack("<4I", 4_000_000_000, 4_000_000_001, 5, 1)
    data = encode_strings(4_000_000_000, [b"a", b"b"]) + encode_strings(5, [b"five"])
    shard = Shard(write(tmp_path, data + encode_chunk(TABLES["kernel"].id, 4, [(position, 5, numbers)])))
    assert shard.frame(shard.chunks)["name"].to_list() == ["a", "b", "five", None]


#: Small, so that every byte can be tried: strings, two threads, a stack, one thread.
THREADS: list[Row] = [
    {"thread_id": 1, "name": "main", "start_ns": 5},
    {"thread_id": 2, "name": "größe", "end_ns": 9},
    {"thread_id": 3, "name": "main"},
]
SMALL = ShardEncoder().add("thread", THREADS[:2]).add("stack", [{"stack_id": 4}]).add("thread", THREADS[2:]).data


def test_a_shard_cut_at_any_byte_gives_a_prefix(tmp_path: Path) -> None:
    seen = set()
    for size in range(len(SMALL) + 1):
        shard = Shard(write(tmp_path, SMALL[:size]))
        threads = decoded(shard, "thread")
        assert threads == THREADS[: len(threads)]
        seen.add(len(threads))
        # The cut is noted unless it is between two chunks.
        assert len(shard.faults) <= 1
    assert seen == {0, 2, 3}
    assert shard.faults == []


def test_a_flipped_bit_in_any_byte_loses_at_most_its_chunk(tmp_path: Path) -> None:
    nameless = [{**row, "name": None} for row in THREADS]
    for byte in range(len(SMALL)):
        flipped = bytearray(SMALL)
        flipped[byte] ^= 1 << byte % 8
        shard = Shard(write(tmp_path, bytes(flipped)))
        assert all({**row, "name": None} in nameless for row in decoded(shard, "thread"))
        assert len(shard.chunks) >= 2
        assert len(shard.faults) == 1


@given(st.binary(max_size=200), st.binary(max_size=200))
@settings(max_examples=200)
def test_garbage_around_a_chunk_is_skipped(tmp_path_factory: Any, before: bytes, after: bytes) -> None:
    data = before + shards.MAGIC + ShardEncoder().add("kernel", KERNELS).data + after
    shard = Shard(write(tmp_path_factory.mktemp("shard"), data))
    assert decoded(shard, "kernel") == [without_nulls(row) for row in KERNELS]
    assert shard.faults


@given(
    directory=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 8), st.integers(0, 300)), max_size=6),
    rows=st.integers(0, 40),
    table=st.integers(0, 27),
    payload=st.binary(max_size=256),
)
@settings(max_examples=500)
def test_no_directory_makes_the_reader_fail(
    tmp_path_factory: Any, directory: list[tuple[int, int, int]], rows: int, table: int, payload: bytes
) -> None:
    """Chunks with valid checksums whose directory says anything."""
    body = b"".join(struct.pack("<HBBI", position, code, 0, offset) for position, code, offset in directory) + payload
    header = struct.pack("<8s4H2IQI", shards.MAGIC, 1, 1, table, len(directory), rows, 1, len(body), zlib.crc32(body))
    data = header + struct.pack("<I", zlib.crc32(header)) + body
    shard = Shard(write(tmp_path_factory.mktemp("shard"), data))
    for chunk in shard.chunks:
        assert shard.frame([chunk]).height == rows


def test_a_dump_shows_the_rows_and_the_faults(tmp_path: Path) -> None:
    data = ShardEncoder().add("kernel", KERNELS[:1]).data
    path = write(tmp_path, data + b"junk")
    assert list(dump(path)) == [
        f"shard-7-0.pastashard: {len(data) + 4} bytes, 1 strings, 1 chunks of rows",
        "kernel: 1 rows",
        "  start_ns=100 end_ns=180 launch_id=1 name='scale' grid_x=64 compiled=True",
        "fault: unknown table: the shard ends inside a chunk that was being written",
    ]


def test_an_empty_shard_has_no_rows(tmp_path: Path) -> None:
    shard = Shard(write(tmp_path, b""))
    assert (shard.chunks, shard.faults, shard.size) == ([], [], 0)
    assert isinstance(shard.texts.gather(pl.Series([0, 3], dtype=pl.UInt32).to_numpy()), pl.Series)
