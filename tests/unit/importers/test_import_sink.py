"""The sink that importers write to completes rows, keeps what fits and counts what does not."""

from __future__ import annotations

import polars as pl
import pytest

from pasta.importers import base
from pasta.importers.base import Report, Sink
from pasta.schema import TABLES, sealed_columns


class Written:
    """Keeps what a trace would be given."""

    def __init__(self) -> None:
        self.frames: dict[str, list[pl.DataFrame]] = {}

    def append(self, table: str, frame: pl.DataFrame) -> None:
        self.frames.setdefault(table, []).append(frame)

    def table(self, name: str) -> pl.DataFrame:
        return pl.concat(self.frames[name])


def test_frames_get_all_columns_of_their_table() -> None:
    written = Written()
    Sink(written, Report()).append("memset", pl.DataFrame({"bytes": [4], "start_ns": [1]}))
    frame = written.table("memset")
    assert frame.columns == [column.name for column in sealed_columns(TABLES["memset"])]
    assert frame.select("pid", "rank", "start_ns", "bytes", "value").row(0) == (0, None, 1, 4, None)


def test_values_that_do_not_fit_are_null_and_counted() -> None:
    written, report = Written(), Report()
    sink = Sink(written, report)
    sink.append("memset", pl.DataFrame({"device_id": [1, 2**40, None]}))
    rows = sink.table("memset", "stream_id", "memory_kind", "bytes")
    rows.add(7, "device", 2**70)
    rows.add("seven", 5, 3.5)
    sink.flush()
    frame = written.table("memset").select("device_id", "stream_id", "memory_kind", "bytes")
    assert frame.rows() == [
        *((1, None, None, None), (None, None, None, None), (None, None, None, None)),
        *((None, 7, "device", None), (None, None, "5", 3)),
    ]
    assert report.skipped == {
        "value of memset.device_id does not fit its type (null instead)": 1,
        "value of memset.stream_id does not fit its type (null instead)": 1,
        "value of memset.bytes does not fit its type (null instead)": 1,
    }
    assert sink.rows == {"memset": 5}


def test_a_column_that_the_table_does_not_have_is_a_mistake_of_the_importer() -> None:
    with pytest.raises(KeyError, match="colour"):
        Sink(Written(), Report()).append("memset", pl.DataFrame({"colour": ["red"]}))


def test_rows_become_frames_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "BATCH_ROWS", 10)
    written = Written()
    sink = Sink(written, Report())
    rows = sink.table("memset", "start_ns")
    for number in range(25):
        rows.add(number)
    assert [frame.height for frame in written.frames["memset"]] == [10, 10]
    sink.flush()
    assert written.table("memset")["start_ns"].to_list() == list(range(25))
