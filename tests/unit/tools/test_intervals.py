"""Interval arithmetic against an oracle that colours every nanosecond of a short time line."""

from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from pasta.tools.analysis.intervals import Intervals

LENGTH = 60
#: Events on the time line, in any order; some are empty and some end before they start.
events = st.lists(st.tuples(st.integers(0, LENGTH - 1), st.integers(0, LENGTH - 1)), max_size=12)


def colour(pairs: list[tuple[int, int]]) -> np.ndarray:
    """The oracle: which nanoseconds are in the union."""
    line = np.zeros(LENGTH, dtype=bool)
    for start, end in pairs:
        line[start:end] = True
    return line


def build(pairs: list[tuple[int, int]]) -> Intervals:
    return Intervals.union([start for start, _ in pairs], [end for _, end in pairs])


def check(found: Intervals, expected: np.ndarray) -> None:
    """The set has exactly these nanoseconds, as the fewest intervals that touch nowhere."""
    assert (colour(list(zip(found.starts, found.ends, strict=True))) == expected).all()
    assert (found.starts < found.ends).all()
    assert (found.ends[:-1] < found.starts[1:]).all()
    assert found.measure == expected.sum()


@given(events)
def test_union(pairs: list[tuple[int, int]]) -> None:
    check(build(pairs), colour(pairs))


@given(events, events)
def test_operations(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> None:
    a, b = build(left), build(right)
    check(a | b, colour(left) | colour(right))
    check(a & b, colour(left) & colour(right))
    check(a - b, colour(left) & ~colour(right))


@given(events, st.integers(0, LENGTH - 1), st.integers(0, LENGTH - 1))
def test_complement(pairs: list[tuple[int, int]], start: int, end: int) -> None:
    check(build(pairs).complement(start, end), ~colour(pairs) & colour([(start, end)]))


@given(events, events)
def test_covered_counts_the_nanoseconds_of_each_event(
    pairs: list[tuple[int, int]], asked: list[tuple[int, int]]
) -> None:
    line = colour(pairs)
    found = build(pairs).covered([start for start, _ in asked], [end for _, end in asked])
    assert found.tolist() == [line[start:end].sum() for start, end in asked]


@given(events)
def test_contains(pairs: list[tuple[int, int]]) -> None:
    assert (build(pairs).contains(np.arange(LENGTH)) == colour(pairs)).all()


def test_rows_without_an_end_are_left_out() -> None:
    frame = pl.DataFrame(
        {"start_ns": [0, 5, None], "end_ns": [3, None, 9]}, schema={"start_ns": pl.Int64, "end_ns": pl.Int64}
    )
    assert Intervals.of(frame).span == (0, 3)


def test_touching_events_are_one_interval() -> None:
    assert Intervals.union([3, 0], [5, 3]).span == (0, 5)
    assert len(Intervals.union([3, 0], [5, 3])) == 1
