"""A trace written in either form reads back as it was appended."""

from __future__ import annotations

import os
import random
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from pasta.errors import PastaError
from pasta.trace import Trace, TraceWriter
from pasta.trace.writer import Form

FORMS: list[Form] = ["file", "dir"]


@pytest.mark.parametrize("form", FORMS)
def test_rows_read_back_with_every_column_of_the_schema(tmp_path: Path, form: Form) -> None:
    path = tmp_path / "t.pasta"
    with TraceWriter(path, form) as writer:
        writer.append("kernel", pl.DataFrame({"pid": [7, 7], "name": ["scale", "größe"], "start_ns": [10, 30]}))
        writer.append("kernel", pl.DataFrame({"pid": [8], "rank": [3], "name": ["scale"], "end_ns": [25]}))
        writer.manifest["command"] = ["./program"]
    with Trace.open(path) as trace:
        kernels = trace.kernel.select("pid", "rank", "name", "start_ns", "grid_x").collect()
        assert kernels.rows() == [
            (7, None, "scale", 10, None),
            (7, None, "größe", 30, None),
            (8, 3, "scale", None, None),
        ]
        assert trace.present == {"kernel"}
        assert trace.memcpy.collect().is_empty()
        assert "bytes" in trace.memcpy.collect().columns
        assert trace.manifest["command"] == ["./program"]
        assert trace.manifest["rows"] == {"kernel": 3}
        assert trace.manifest["time_span_ns"] == [10, 30]


@pytest.mark.parametrize("form", FORMS)
def test_an_exception_leaves_nothing_behind(tmp_path: Path, form: Form) -> None:
    def fail_half_way() -> None:
        with TraceWriter(tmp_path / "t.pasta", form) as writer:
            writer.append("kernel", pl.DataFrame({"pid": [1]}))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_half_way()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("form", FORMS)
def test_an_existing_trace_is_replaced_only_on_request(tmp_path: Path, form: Form) -> None:
    path = tmp_path / "t.pasta"
    with TraceWriter(path, form) as writer:
        writer.append("memset", pl.DataFrame({"pid": [1]}))
    with pytest.raises(PastaError, match=r"exists.*--force-overwrite"):
        TraceWriter(path, form)
    with TraceWriter(path, form, overwrite=True) as writer:
        writer.append("memset", pl.DataFrame({"pid": [1, 2]}))
    assert os.listdir(tmp_path) == ["t.pasta"]
    with Trace.open(path) as trace:
        assert_frame_equal(trace.memset.select("pid").collect(), pl.DataFrame({"pid": [1, 2]}, {"pid": pl.Int32}))


def test_an_unknown_table_suggests_the_nearest(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "t.pasta") as writer, pytest.raises(PastaError, match="did you mean `kernel`"):
        writer.append("kernels", pl.DataFrame({"pid": [1]}))
    with Trace.open(tmp_path / "t.pasta") as trace, pytest.raises(PastaError, match="did you mean `memcpy`"):
        trace.table("memcopy")


def test_a_launch_and_its_call_take_at_most_12_bytes(tmp_path: Path) -> None:
    """Launches are 8 us apart and scatter by a microsecond, as in a loop of torch; GPUs count in steps of 32 ns."""
    launches, chance = 1 << 17, random.Random(1)
    called = [8000 * i + chance.randrange(1000) for i in range(launches)]
    began = [(call + 3000 + chance.randrange(500)) // 32 * 32 for call in called]
    ids = pl.int_range(11, 11 + launches, eager=True)
    api = {"start_ns": called, "end_ns": [call + 2500 + chance.randrange(500) for call in called], "name": "launch"}
    kernel = {"start_ns": began, "end_ns": [begin + 32 * chance.randrange(40, 60) for begin in began], "name": "add"}
    with TraceWriter(tmp_path / "t.pasta") as writer:
        writer.append("api", pl.DataFrame(api).with_columns(pid=7, thread_id=7, correlation_id=ids))
        writer.append("kernel", pl.DataFrame(kernel).with_columns(pid=7, grid_x=64, correlation_id=ids, launch_id=ids))
    assert (tmp_path / "t.pasta").stat().st_size <= 12 * launches
