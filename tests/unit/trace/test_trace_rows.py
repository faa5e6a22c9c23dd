"""What sealing does to rows, on small frames that can be worked out by hand."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pasta.schema import TABLES
from pasta.trace.frames import conform
from pasta.trace.rows import merge_by_start, merge_identity, shift_times, sum_losses


def test_only_points_in_time_shift() -> None:
    kernel = pl.DataFrame({"start_ns": [10], "end_ns": [None], "queued_ns": [4], "grid_x": [3]})
    shifted = shift_times(conform(kernel, TABLES["kernel"]), -4)
    shifted = shifted.select("start_ns", "end_ns", "queued_ns", "submitted_ns", "grid_x")
    assert shifted.rows() == [(6, None, 0, None, 3)]


def test_the_other_clock_of_a_pair_does_not_shift() -> None:
    clock = conform(pl.DataFrame({"start_ns": [10], "source_ns": [99], "error_ns": [2]}), TABLES["clock"])
    assert shift_times(clock, -4).select("start_ns", "source_ns", "error_ns").rows() == [(6, 99, 2)]


def test_identity_rows_of_one_key_keep_the_last_value_that_is_known() -> None:
    rows = pl.DataFrame(
        {
            "pid": [1, 1, 2, 1],
            "stream_id": [7, 7, 7, 8],
            "name": [None, "copies", "other", "x"],
            "priority": [3, None, 0, None],
            "start_ns": [10, None, 20, 30],
            "end_ns": [None, 90, None, None],
        }
    )
    merged = merge_identity(conform(rows, TABLES["stream"]), TABLES["stream"])
    assert merged.select("pid", "stream_id", "name", "priority", "start_ns", "end_ns").rows() == [
        (1, 7, "copies", 3, 10, 90),
        (2, 7, "other", 0, 20, None),
        (1, 8, "x", None, 30, None),
    ]


def test_equal_losses_are_summed_and_an_unknown_count_stays_unknown() -> None:
    rows = pl.DataFrame(
        {
            "pid": [1, 1, 1, 1, 2],
            "table": ["kernel", "kernel", "api", "api", "kernel"],
            "start_ns": [5, 2, 3, 4, 1],
            "end_ns": [6, 9, None, 4, 1],
            "records": [10, 20, 1, None, 7],
            "cause": ["full"] * 5,
        }
    )
    summed = sum_losses(conform(rows, TABLES["loss"])).select("pid", "table", "start_ns", "end_ns", "records")
    assert summed.rows() == [(1, "kernel", 2, 9, 30), (1, "api", 3, 4, None), (2, "kernel", 1, 1, 7)]


def batches_of(chunks: list[list[int | None]]) -> list[tuple[pl.DataFrame, int | None]]:
    """Chunks of starts, ordered by their earliest, each with the earliest start after it (null counts as never)."""
    never = 2**63 - 1
    firsts = [min((start for start in chunk if start is not None), default=never) for chunk in chunks]
    ordered = [chunk for _, chunk in sorted(zip(firsts, chunks, strict=True), key=lambda entry: entry[0])]
    horizons = [*sorted(firsts)[1:], None]
    frames = [pl.DataFrame({"start_ns": chunk}, {"start_ns": pl.Int64}) for chunk in ordered]
    return list(zip(frames, horizons, strict=True))


STARTS = st.lists(st.lists(st.none() | st.integers(0, 50), min_size=1, max_size=5), min_size=1, max_size=8)


@given(STARTS)
def test_overlapping_chunks_come_out_in_the_order_of_their_starts(chunks: list[list[int | None]]) -> None:
    merged = [start for frame in merge_by_start(batches_of(chunks), 1000) for start in frame["start_ns"]]
    flat = [start for chunk in chunks for start in chunk]
    known = sorted(start for start in flat if start is not None)
    assert merged == known + [None] * (len(flat) - len(known))


@given(STARTS)
def test_no_row_is_lost_when_too_many_would_be_held(chunks: list[list[int | None]]) -> None:
    merged = [start for frame in merge_by_start(batches_of(chunks), 2) for start in frame["start_ns"]]
    assert sorted(map(repr, merged)) == sorted(repr(start) for chunk in chunks for start in chunk)


def test_rows_are_given_as_soon_as_none_can_come_before_them() -> None:
    merging = merge_by_start(batches_of([[1, 5, 2], [4, 9], [20]]), 1000)
    assert next(merging)["start_ns"].to_list() == [1, 2]
    assert next(merging)["start_ns"].to_list() == [4, 5, 9]
    assert next(merging)["start_ns"].to_list() == [20]
    with pytest.raises(StopIteration):
        next(merging)
