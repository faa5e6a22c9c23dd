"""Exact arithmetic on sets of times: union, intersection, difference, and how much of an event a set covers.

A set is a sorted list of disjoint, non-empty half-open intervals ``[start, end)`` in integer nanoseconds, so lengths
add up without rounding. Building one from n events sorts them once; every operation after that is linear, or
n log m for n events against a set of m intervals.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

Times = npt.NDArray[np.int64]

_NONE: Times = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Intervals:
    """A set of times. ``starts[i] < ends[i] < starts[i + 1]``; make one with `union` or `of`."""

    starts: Times
    ends: Times

    @classmethod
    def union(cls, starts: npt.ArrayLike, ends: npt.ArrayLike) -> Intervals:
        """Return the union of events, in any order and overlapping; an event that ends before it starts is empty."""
        starts, ends = np.asarray(starts, dtype=np.int64), np.asarray(ends, dtype=np.int64)
        real = ends > starts
        if not real.all():
            starts, ends = starts[real], ends[real]
        if not starts.size:
            return cls(_NONE, _NONE)
        if (starts[1:] < starts[:-1]).any():
            order = np.argsort(starts, kind="stable")
            starts, ends = starts[order], ends[order]
        reach = np.maximum.accumulate(ends)
        opens = np.concatenate(([True], starts[1:] > reach[:-1]))
        closes = np.concatenate((opens[1:], [True]))
        return cls(starts[opens], reach[closes])

    @classmethod
    def of(cls, frame: pl.DataFrame | pl.LazyFrame) -> Intervals:
        """Return the union of the rows of ``frame``, by ``start_ns`` and ``end_ns``; rows without both are left out."""
        pair = frame.lazy().select("start_ns", "end_ns").drop_nulls().collect()
        return cls.union(pair["start_ns"].to_numpy(), pair["end_ns"].to_numpy())

    @classmethod
    def single(cls, start: int, end: int) -> Intervals:
        """Return the set of the times from ``start`` up to ``end``."""
        return cls.union([start], [end])

    @classmethod
    def join(cls, sets: Iterable[Intervals]) -> Intervals:
        """Return the union of several sets."""
        every = list(sets)
        return cls.union(
            np.concatenate([_NONE, *(s.starts for s in every)]), np.concatenate([_NONE, *(s.ends for s in every)])
        )

    def __len__(self) -> int:
        return int(self.starts.size)

    @property
    def measure(self) -> int:
        """Total length in nanoseconds."""
        return int((self.ends - self.starts).sum())

    @property
    def span(self) -> tuple[int, int] | None:
        """First start and last end; None for the empty set."""
        return (int(self.starts[0]), int(self.ends[-1])) if len(self) else None

    def __or__(self, other: Intervals) -> Intervals:
        return Intervals.join((self, other))

    def __and__(self, other: Intervals) -> Intervals:
        """Return the times in both sets: between two neighbouring bounds, everything is in or out."""
        if not len(self) or not len(other):
            return Intervals(_NONE, _NONE)
        # For each interval of self, the run of intervals of other that overlap it.
        first = np.searchsorted(other.ends, self.starts, side="right")
        last = np.searchsorted(other.starts, self.ends, side="left")
        counts = np.maximum(last - first, 0)
        mine = np.repeat(np.arange(len(self)), counts)
        theirs = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(first, counts)
        return Intervals(
            np.maximum(self.starts[mine], other.starts[theirs]), np.minimum(self.ends[mine], other.ends[theirs])
        )

    def __sub__(self, other: Intervals) -> Intervals:
        """Return the times in this set and not in ``other``."""
        span = self.span
        return self & other.complement(*span) if span else self

    def complement(self, start: int, end: int) -> Intervals:
        """Return the times from ``start`` up to ``end`` that are not in this set: its gaps."""
        inside = self & Intervals.single(start, end)
        return Intervals.union(np.concatenate(([start], inside.ends)), np.concatenate((inside.starts, [end])))

    def covered(self, starts: npt.ArrayLike, ends: npt.ArrayLike) -> Times:
        """Return for each event how many of its nanoseconds are in this set."""
        starts, ends = np.asarray(starts, dtype=np.int64), np.asarray(ends, dtype=np.int64)
        return self._before(np.maximum(starts, ends)) - self._before(starts)

    def contains(self, times: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Return for each time whether it is in this set."""
        times = np.asarray(times, dtype=np.int64)
        index = np.searchsorted(self.starts, times, side="right") - 1
        found = index >= 0
        found[found] = times[found] < self.ends[index[found]]
        return found

    def _before(self, times: Times) -> Times:
        """Return for each time the length of the part of the set that lies before it."""
        if not len(self):
            return np.zeros_like(times)
        total = np.concatenate(([0], np.cumsum(self.ends - self.starts)))
        index = np.searchsorted(self.starts, times, side="right")
        last = np.maximum(index - 1, 0)
        # Whole intervals that began before the time, less what of the last one lies after it.
        after = np.where(index > 0, np.maximum(self.ends[last] - times, 0), 0)
        return total[index] - after
