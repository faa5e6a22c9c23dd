"""Nesting of intervals against a search through all pairs."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pasta.importers.nesting import enclosing, nearest

#: (thread, start, length, opens) on few ticks, so that many are equal, touch or overlap.
INTERVALS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 8), st.integers(0, 6), st.booleans()), max_size=12)


def ints(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.int64)


@given(intervals=INTERVALS)
@settings(max_examples=500)
def test_the_parent_is_the_latest_opened_interval_that_is_still_open(
    intervals: list[tuple[int, int, int, bool]],
) -> None:
    thread, start, length, opens = zip(*intervals, strict=True) if intervals else ((), (), (), ())
    end = [a + n for a, n in zip(start, length, strict=True)]
    order = list(range(len(intervals)))

    def rank(index: int) -> tuple[int, bool, int, int]:
        return start[index], not opens[index], -end[index], order[index]

    expected = []
    for child in order:
        open_then = [
            parent
            for parent in order
            if opens[parent]
            and thread[parent] == thread[child]
            and rank(parent) < rank(child)
            and end[parent] > start[child]
        ]
        expected.append(max(open_then, key=rank, default=-1))
    found = enclosing(ints(list(thread)), ints(list(start)), ints(end), np.array(opens, dtype=bool), ints(order))
    assert found.tolist() == expected


@given(intervals=INTERVALS, marks=st.lists(st.booleans(), min_size=12, max_size=12))
@settings(max_examples=300)
def test_the_nearest_marked_ancestor_is_found_by_walking_up(
    intervals: list[tuple[int, int, int, bool]], marks: list[bool]
) -> None:
    parents = [index - 1 - length if length < index else -1 for index, (_, _, length, _) in enumerate(intervals)]
    marked = np.array(marks[: len(parents)], dtype=bool)
    expected = []
    for index in range(len(parents)):
        at = parents[index]
        while at >= 0 and not marked[at]:
            at = parents[at]
        expected.append(at)
    assert nearest(ints(parents), marked).tolist() == expected


def test_a_chain_of_a_million_takes_few_rounds() -> None:
    count = 1_000_000
    parents = np.arange(-1, count - 1, dtype=np.int64)
    marked = np.zeros(count, dtype=bool)
    marked[0] = True
    assert (nearest(parents, marked)[1:] == 0).all()


def test_intervals_of_many_batches_keep_their_parents() -> None:
    # More than are objects at a time: every second one lies in the one before it.
    count = 200_000
    start = np.repeat(np.arange(count // 2, dtype=np.int64) * 10, 2)
    start[1::2] += 1
    end = start + np.tile(ints([8, 2]), count // 2)
    thread, opens = np.zeros(count, dtype=np.int64), np.ones(count, dtype=bool)
    found = enclosing(thread, start, end, opens, np.arange(count))
    assert (found[::2] == -1).all()
    assert (found[1::2] == np.arange(0, count, 2)).all()
