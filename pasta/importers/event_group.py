"""Events of one kind as columns: what makes the import of JSON fast enough.

A loop that makes a row of each event spends its time on calls. Here every column is one list comprehension and one
conversion, which takes the careful way, value by value, only for a column that holds something unusual.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import repeat
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import polars as pl

from pasta.importers.chrome_events import EXACT_DOUBLE_US, MAX_US, Event, to_int, to_ns
from pasta.importers.ids import MADE, Ids

_encoder = msgspec.json.Encoder()
_ts, _dur, _name, _pid, _tid = map(attrgetter, ("ts", "dur", "name", "pid", "tid"))


class EventGroup:
    """Events that have a time; columns have one value an event. ``problems`` counts what could not be used."""

    def __init__(self, events: Sequence[Event], problems: Counter[str]) -> None:
        self._problems = problems
        start, duration = times(_ts, events), times(_dur, events)
        if start.null_count() or (duration < 0).any():
            usable = start.is_not_null() & ~(duration < 0).fill_null(False)
            problems["event without a time"] += start.null_count()
            problems["event that ends before it starts"] += len(events) - int(usable.sum()) - start.null_count()
            events = [event for event, use in zip(events, usable, strict=True) if use]
            start, duration = start.filter(usable), duration.filter(usable)
        self.events = events
        self.args: list[dict[str, Any]] = [event.args if type(event.args) is dict else {} for event in events]
        self.start = start
        self.end = start + duration
        #: Names of arguments -> events that have these.
        self.shapes: Counter[tuple[str, ...]] = Counter(map(tuple, self.args))
        self._present = set().union(*self.shapes)

    def __len__(self) -> int:
        return len(self.events)

    @property
    def names(self) -> list[str]:
        """The events' names."""
        return list(map(_name, self.events))

    def get(self, name: str, other: str | None = None) -> list[Any]:
        """Return an argument of each event as it is, None where it is missing; ``other`` is a second spelling."""
        if name not in self._present:
            return [None] * len(self) if other is None else self.get(other)
        values = list(map(dict.get, self.args, repeat(name)))
        if other in self._present:
            return [b if a is None else a for a, b in zip(values, self.get(other), strict=True)]
        return values

    def ints(self, name: str, other: str | None = None) -> pl.Series:
        """Return an argument as integers."""
        if self._present.isdisjoint((name, other)):
            return self._nulls(pl.Int64())
        return self.as_ints(self.get(name, other), name)

    def as_ints(self, values: Sequence[Any], what: str) -> pl.Series:
        """Return ``values`` as integers; what is none (text, a list, 2**70) becomes null and a problem."""
        try:
            return pl.Series(values, dtype=pl.Int64, strict=True)
        except (TypeError, OverflowError, pl.exceptions.PolarsError):
            series = pl.Series([to_int(value) for value in values], dtype=pl.Int64, strict=False)
            self._count_lost(what, values, series)
            return series

    def texts(self, name: str) -> pl.Series:
        """Return an argument as text; empty text is null."""
        if name not in self._present:
            return self._nulls(pl.String())
        values = [value or None for value in self.get(name)]
        try:
            return pl.Series(values, dtype=pl.String, strict=True)
        except (TypeError, pl.exceptions.PolarsError):
            return pl.Series([None if value is None else str(value) for value in values], dtype=pl.String)

    def documents(self, name: str) -> pl.Series:
        """Return an argument that is a list or an object as JSON text."""
        if name not in self._present:
            return self._nulls(pl.String())
        lines = _encoder.encode_lines(self.get(name)).decode("utf-8", "replace").split("\n")[:-1]
        return pl.Series([None if line in ("null", "[]") else line for line in lines], dtype=pl.String)

    def times(self, name: str) -> pl.Series:
        """Return an argument that is a time (us) in ns."""
        if name not in self._present:
            return self._nulls(pl.Int64())
        return pl.Series([to_ns(value) for value in self.get(name)], dtype=pl.Int64, strict=False)

    def axes(self, name: str, columns: str) -> dict[str, pl.Series]:
        """Return an argument that is a list of three as the columns ``<columns>_x``, ``_y`` and ``_z``."""
        if name not in self._present:
            return {f"{columns}_{axis}": self._nulls(pl.Int64()) for axis in "xyz"}
        triples = [value if type(value) is list and len(value) == 3 else (None,) * 3 for value in self.get(name)]
        parts = zip(*triples, strict=True)
        return {f"{columns}_{axis}": self.as_ints(part, name) for axis, part in zip("xyz", parts, strict=True)}

    def pids(self, ids: Ids) -> pl.Series:
        """Return the processes, null for 0: what Kineto writes for Python frames of a thread that it does not know."""
        return without(as_ids(_pid, self.events, ids), 0)

    def threads(self, ids: Ids) -> pl.Series:
        """Return the threads, null for 0."""
        return without(as_ids(_tid, self.events, ids), 0)

    def devices(self, ids: Ids) -> pl.Series:
        """Return the devices that the arguments name."""
        return as_ids(lambda args: args.get("device"), self.args, ids)

    def _nulls(self, dtype: pl.DataType) -> pl.Series:
        return pl.Series([None], dtype=dtype).new_from_index(0, len(self))

    def _count_lost(self, what: str, values: Sequence[Any], series: pl.Series) -> None:
        lost = series.null_count() - sum(value is None for value in values)
        if lost:
            self._problems[f"value of {what} is not a number (null instead)"] += lost


def as_ids(get: Callable[[Any], Any], items: Sequence[Any], ids: Ids) -> pl.Series:
    """Return the raw id that ``get`` finds in each item as one of the schema's numbers."""
    with suppress(TypeError, OverflowError, pl.exceptions.PolarsError):
        different = set(map(get, items))
        if len(different) == 1:
            return pl.Series([ids(different.pop())], dtype=pl.Int64).new_from_index(0, len(items))
        series = pl.Series(list(map(get, items)), dtype=pl.Int64, strict=True)
        if series.is_between(0, MADE - 1).all():
            return series
    return pl.Series([ids(get(item)) for item in items], dtype=pl.Int64)


def without(series: pl.Series, value: int) -> pl.Series:
    """Return ``series`` with null for ``value``, by which a profiler says that there is none."""
    hits = (series == value).fill_null(False)
    return series.set(hits, None) if hits.any() else series


def times(get: Callable[[Event], Any], events: Sequence[Event]) -> pl.Series:
    """Return the time (us, see ``chrome_events``) that ``get`` finds in each event in ns; null for what is none."""
    with suppress(TypeError, ValueError, OverflowError):
        us = np.fromiter(map(get, events), np.float64, len(events))
        largest = np.abs(us).max(initial=0)  # NaN, which is below nothing, for what is missing
        if largest < EXACT_DOUBLE_US or (largest < MAX_US and set(map(type, map(get, events))) == {int}):
            whole = np.floor(us)
            return pl.Series(whole.astype(np.int64) * 1000 + np.rint((us - whole) * 1000).astype(np.int64))
    return pl.Series([to_ns(get(event)) for event in events], dtype=pl.Int64, strict=False)
