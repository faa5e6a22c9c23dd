"""A table is read in order of time, in windows of a bounded number of rows."""

from __future__ import annotations

import random

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pasta.exporters.perfetto import windows


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "WINDOW_ROWS", 8)
    monkeypatch.setattr(windows, "BINS", 4)


@given(st.lists(st.one_of(st.none(), st.integers(-(10**12), 10**12)), max_size=60))
def test_every_row_comes_once_and_in_order(starts: list[int | None]) -> None:
    table = pl.LazyFrame({"start_ns": starts}, schema={"start_ns": pl.Int64})
    read = [start for window in windows.in_order(table) for start in window["start_ns"]]
    assert read == sorted(start for start in starts if start is not None)


def test_windows_are_small_even_where_times_are_crowded() -> None:
    # One far outlier: 200 rows lie in one bin of the first division.
    starts = [*range(200), 10**15]
    random.Random(0).shuffle(starts)
    sizes = [window.height for window in windows.in_order(pl.LazyFrame({"start_ns": starts}))]
    assert sum(sizes) == 201
    assert max(sizes) <= 2 * windows.WINDOW_ROWS


def test_equal_times_are_in_order_of_the_ties() -> None:
    table = pl.LazyFrame({"start_ns": [5, 5, 1], "level": [2, 1, 3]})
    (window,) = windows.in_order(table, [pl.col("level")])
    assert window.rows() == [(1, 3), (5, 1), (5, 2)]
