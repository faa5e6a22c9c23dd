"""Slices of one lane nest, whatever overlaps in the trace."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from pasta.exporters.perfetto.lanes import Lanes

Interval = tuple[int, int, int]  # group, start, end


def place(intervals: list[Interval]) -> list[int]:
    groups, starts, ends = zip(*intervals, strict=True)
    return Lanes().place(groups, starts, ends)


def test_what_nests_or_follows_shares_a_lane() -> None:
    assert place([(1, 0, 10), (1, 2, 5), (1, 5, 10), (1, 10, 20)]) == [0, 0, 0, 0]


def test_what_outlives_the_one_it_begins_in_gets_another_lane() -> None:
    assert place([(1, 0, 10), (1, 5, 15), (1, 10, 20), (1, 12, 25)]) == [0, 1, 0, 2]


def test_groups_do_not_disturb_each_other() -> None:
    assert place([(1, 0, 10), (2, 5, 15)]) == [0, 0]


def test_what_is_open_is_remembered_between_calls() -> None:
    lanes = Lanes()
    assert lanes.place([1], [0], [10]) == [0]
    assert lanes.place([1], [5], [15]) == [1]


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=12))
def test_no_two_intervals_of_a_lane_cross(spans: list[Interval]) -> None:
    intervals = sorted(((g, a, a + b) for g, a, b in spans), key=lambda i: (i[1], -i[2]))
    placed = list(zip(intervals, place(intervals), strict=True))
    for ((group1, start1, end1), lane1), ((group2, start2, end2), lane2) in combinations(placed, 2):
        if (group1, lane1) == (group2, lane2) and start1 < end1 and start2 < end2:
            assert end1 <= start2 or end2 <= end1  # disjoint, or the second inside the first
