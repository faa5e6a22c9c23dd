"""Events of one kind as columns: what makes the import of JSON fast enough.

A loop that makes a row of each event spends its time on calls. Here every column is one list comprehension and one
conversion, which takes the careful way, value by value, only for a column that holds something unusual.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import repeat
from operator import attrgetter
from types import NoneType
from typing import Any

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from pasta.importers.chrome_events import Event, to_int, to_ns
from pasta.importers.ids import MADE, Ids

_encoder = msgspec.json.Encoder()
_ts, _dur, _name, _pid, _tid = map(attrgetter, ("ts", "dur", "name", "pid", "tid"))


class EventGroup:
    """Events that have a time; columns have one value an event. ``problems`` counts what could not be used."""

    def __init__(self, events: Sequence[Event], problems: Counter[str]) -> None:
        self._problems = problems
        start, duration = times(map(_ts, events)), times(map(_dur, events))
        usable = start.is_not_null() & ~(duration < 0).fill_null(False)
        if not usable.all():
            untimed, backwards = start.null_count(), len(events) - int(usable.sum()) - start.null_count()
            problems["event without a time"] += untimed
            problems["event that ends before it starts"] += backwards
            events = [event for event, use in zip(events, usable, strict=True) if use]
            start, duration = start.filter(usable), duration.filter(usable)
        self.events = events
        self.args: list[dict[str, Any]] = [event.args if type(event.args) is dict else {} for event in events]
        self.start = start
        self.end = start + duration

    def __len__(self) -> int:
        return len(self.events)

    @property
    def names(self) -> list[str]:
        """The events' names."""
        return list(map(_name, self.events))

    def get(self, name: str, other: str | None = None) -> list[Any]:
        """Return an argument of each event as it is, None where it is missing; ``other`` is a second spelling."""
        values = list(map(dict.get, self.args, repeat(name)))
        if other is not None and None in values:
            second = map(dict.get, self.args, repeat(other))
            return [b if a is None else a for a, b in zip(values, second, strict=True)]
        return values

    def ints(self, name: str, other: str | None = None) -> pl.Series:
        """Return an argument as integers."""
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
        values = [value or None for value in self.get(name)]
        try:
            return pl.Series(values, dtype=pl.String, strict=True)
        except (TypeError, pl.exceptions.PolarsError):
            return pl.Series([None if value is None else str(value) for value in values], dtype=pl.String)

    def documents(self, name: str) -> pl.Series:
        """Return an argument that is a list or an object as JSON text."""
        lines = _encoder.encode_lines(self.get(name)).decode("utf-8", "replace").split("\n")[:-1]
        return pl.Series([None if line in ("null", "[]") else line for line in lines], dtype=pl.String)

    def times(self, name: str) -> pl.Series:
        """Return an argument that is a time (us) in ns."""
        return times(self.get(name))

    def axes(self, name: str, columns: str) -> dict[str, pl.Series]:
        """Return an argument that is a list of three as the columns ``<columns>_x``, ``_y`` and ``_z``."""
        triples = [value if type(value) is list and len(value) == 3 else (None,) * 3 for value in self.get(name)]
        parts = zip(*triples, strict=True) if triples else ((), (), ())
        return {f"{columns}_{axis}": self.as_ints(part, name) for axis, part in zip("xyz", parts, strict=True)}

    def pids(self, ids: Ids) -> pl.Series:
        """Return the processes, null for 0: what Kineto writes for Python frames of a thread that it does not know."""
        return without(as_ids(map(_pid, self.events), ids), 0)

    def threads(self, ids: Ids) -> pl.Series:
        """Return the threads, null for 0."""
        return without(as_ids(map(_tid, self.events), ids), 0)

    def _count_lost(self, what: str, values: Sequence[Any], series: pl.Series) -> None:
        lost = series.null_count() - sum(value is None for value in values)
        if lost:
            self._problems[f"value of {what} is not a number (null instead)"] += lost


def as_ids(values: Iterable[Any], ids: Ids) -> pl.Series:
    """Return raw ids as the schema's numbers."""
    values = list(values)
    with suppress(TypeError, OverflowError, pl.exceptions.PolarsError):
        if len(set(values)) == 1:
            return pl.Series([ids(values[0])], dtype=pl.Int64).new_from_index(0, len(values))
        series = pl.Series(values, dtype=pl.Int64, strict=True)
        if series.is_between(0, MADE - 1).all():
            return series
    return pl.Series([ids(value) for value in values], dtype=pl.Int64)


def without(series: pl.Series, value: int) -> pl.Series:
    """Return ``series`` with null for ``value``, by which a profiler says that there is none."""
    hits = (series == value).fill_null(False)
    return series.set(hits, None) if hits.any() else series


def times(values: Iterable[Any]) -> pl.Series:
    """Return times (us, see ``chrome_events``) in ns; null for what is none."""
    values = list(values)
    exact: NDArray[np.float64] | None = None
    types = set(map(type, values))
    if types == {NoneType}:
        return pl.Series([None], dtype=pl.Int64).new_from_index(0, len(values))
    if types <= {float, int}:
        with suppress(OverflowError):
            exact = np.array(values, dtype=np.float64)
    if exact is None or not (np.abs(exact) < _EXACT_NUMBERS).all():
        return pl.Series([to_ns(value) for value in values], dtype=pl.Int64, strict=False)
    whole = np.floor(exact)
    return pl.Series(whole.astype(np.int64) * 1000 + np.rint((exact - whole) * 1000).astype(np.int64))


#: Whole microseconds below this are exact as doubles; the decoder sees to it that larger fractions come as decimals.
_EXACT_NUMBERS = 2.0**53
