"""Put intervals of time on lanes so that those of one lane nest: a Perfetto track closes what was opened last.

Commands of an out-of-order queue, or ranges that one thread opens and another closes, overlap without nesting::

    lane 0   |---- A ----|      |- D -|
               |- B -|
    lane 1          |---- C ----|           C outlives A, in which it begins
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence


class Lanes:
    """Assigns lanes, group by group. Intervals come in ascending order of start, longer ones first."""

    def __init__(self) -> None:
        # For each group, for each lane: ends of the intervals that are open, innermost last.
        self._open: defaultdict[int, list[list[int]]] = defaultdict(list)

    def place(self, groups: Sequence[int], starts: Sequence[int], ends: Sequence[int]) -> list[int]:
        """Return the lane of each interval, counted from 0 in its group.

        An interval that has no length nests anywhere: it is given lane 0 and keeps nothing open.
        """
        lanes = []
        for group, start, end in zip(groups, starts, ends, strict=True):
            lanes.append(self._lane(self._open[group], start, end) if end > start else 0)
        return lanes

    @staticmethod
    def _lane(lanes: list[list[int]], start: int, end: int) -> int:
        for number, open_ends in enumerate(lanes):
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            if not open_ends or end <= open_ends[-1]:
                open_ends.append(end)
                return number
        lanes.append([end])
        return len(lanes) - 1
