"""The filters that all tools share, applied once: a view of a trace that holds only what was asked for."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import polars as pl

from pasta.errors import PastaError
from pasta.schema import TABLES
from pasta.tools.analysis.intervals import Intervals
from pasta.tools.analysis.launches import add_launch
from pasta.tools.analysis.lifetimes import object_lifetimes, tensor_lifetimes
from pasta.tools.base import TraceView

#: Work that a device does; under a range filter it belongs to the time at which the host launched it.
DEVICE_TABLES = ("kernel", "memcpy", "memset")
_HOST_TABLES = ("api", "sync", "uvm", "op", "range", "collective", "build")
_ACCESS_TABLES = ("access_object", "access_site", "access_block", "access")
#: Longer than any trace, and two of it still fit 64 bits.
_FOREVER = 2**61
#: Tables whose events make up the time that a trace covers.
_SPAN_TABLES = (*DEVICE_TABLES, "api", "sync", "op", "range")


@dataclass(frozen=True)
class Filters:
    """What to look at. Everything given must hold; the defaults keep everything.

    ``time``: events that overlap ``[start, end)``, in ns of the trace; None is open. ``range``: NAME or NAME@DOMAIN;
    what the process did, and launched, while a range of that name was open, on whatever thread. ``kernel``: regular
    expression found in the kernel's name. ``ranks`` and ``devices``: numbers; rows that have none are dropped for
    ranks and kept for devices.
    """

    time: tuple[int | None, int | None] = (None, None)
    range: str | None = None
    kernel: str | None = None
    ranks: frozenset[int] = frozenset()
    devices: frozenset[int] = frozenset()

    def describe(self) -> str:
        """Return the filters in words; empty when there are none."""
        start, end = self.time
        parts = [
            f"time {_seconds(start, '0s')} to {_seconds(end, 'the end')}" if self.time != (None, None) else "",
            f"range {self.range}" if self.range else "",
            f"kernels matching {self.kernel}" if self.kernel else "",
            f"rank {', '.join(map(str, sorted(self.ranks)))}" if self.ranks else "",
            f"device {', '.join(map(str, sorted(self.devices)))}" if self.devices else "",
        ]
        return " · ".join(part for part in parts if part)


class FilteredTrace:
    """A `TraceView` of the rows that pass ``filters``, and the time that they cover (`windows`)."""

    def __init__(self, trace: TraceView, filters: Filters | None = None, pid: int | None = None) -> None:
        """View ``trace``; ``pid`` keeps one process only. Raises `PastaError` for a filter that cannot be used."""
        self._trace = trace
        self.filters = filters or Filters()
        self._pid = pid
        _check(self.filters)

    @property
    def manifest(self) -> Mapping[str, Any]:
        """What was recorded, how and on what."""
        return self._trace.manifest

    @property
    def notes(self) -> Sequence[str]:
        """Sentences for the user about this trace."""
        return self._trace.notes

    @cached_property
    def present(self) -> Collection[str]:
        """Names of the tables that have rows left."""
        unfiltered = self.filters == Filters() and self._pid is None
        return self._trace.present if unfiltered else _Present(self)

    @cached_property
    def of_all_kernels(self) -> FilteredTrace:
        """The same view with all kernels: what a device did does not depend on which of them one looks at."""
        return FilteredTrace(self._trace, replace(self.filters, kernel=None), self._pid)

    @cached_property
    def windows(self) -> Intervals:
        """The times that the filters leave: the whole trace, the time window, or the ranges with their device work."""
        start, end = self.filters.time
        window = _between(start, end)
        if self.filters.range:
            work = [Intervals.of(self.table(name)) for name in DEVICE_TABLES]
            return Intervals.join([Intervals.of(self._ranges), *work]) & window
        bounds = [self._of_process(name).select(*_bounds()) for name in _SPAN_TABLES if name in self._trace.present]
        hull = pl.concat(bounds).select(pl.min("low"), pl.max("high")).collect().row(0) if bounds else (None, None)
        return Intervals.single(*hull) & window if None not in hull else Intervals.union([], [])

    def table(self, name: str) -> pl.LazyFrame:
        """Return the rows of a table that pass the filters."""
        rows = self._of_process(name)
        if self.filters.devices and "device_id" in _columns(name) and name != "device":
            wanted = pl.col("device_id").is_in(list(self.filters.devices))
            rows = rows.filter(wanted | pl.col("device_id").is_null())
        if name == "kernel" and self.filters.kernel:
            rows = rows.filter(pl.col("name").str.contains(self.filters.kernel))
        if name in _ACCESS_TABLES:
            return self._of_kept_launches(rows)
        if self.filters.time != (None, None):
            rows = self._in_time(name, rows)
        if self.filters.range:
            rows = self._in_range(name, rows)
        return rows

    def _of_process(self, name: str) -> pl.LazyFrame:
        rows = self._trace.table(name)
        if self._pid is not None:
            rows = rows.filter(pl.col("pid") == self._pid)
        if self.filters.ranks:
            rows = rows.filter(pl.col("rank").is_in(list(self.filters.ranks)))
        return rows

    def _of_kept_launches(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        launches_unfiltered = self.filters in (Filters(), Filters(ranks=self.filters.ranks))
        if launches_unfiltered:
            return rows
        launches = self.table("kernel").select("pid", "launch_id").unique()
        return rows.join(launches, on=["pid", "launch_id"], how="semi", nulls_equal=True)

    def _in_time(self, name: str, rows: pl.LazyFrame) -> pl.LazyFrame:
        start, end = self.filters.time
        if name in ("alloc", "tensor"):
            return self._alive(name, rows, _between(start, end))
        if name not in DEVICE_TABLES + _HOST_TABLES:
            return rows
        if start is not None:
            rows = rows.filter((_end() > start) | (pl.col("start_ns") >= start))
        return rows if end is None else rows.filter(pl.col("start_ns") < end)

    def _in_range(self, name: str, rows: pl.LazyFrame) -> pl.LazyFrame:
        if name in ("alloc", "tensor"):
            return self._alive(name, rows, Intervals.of(self._ranges))
        if name in DEVICE_TABLES:
            calls = self._of_process("api") if "api" in self._trace.present else None
            when = pl.col("launched_ns")
            return _overlapping(add_launch(rows, calls), self._ranges, when, when).drop("launched_ns", "launch_thread")
        if name in _HOST_TABLES:
            return _overlapping(rows, self._ranges, pl.col("start_ns"), _end())
        return rows

    def _alive(self, name: str, rows: pl.LazyFrame, windows: Intervals) -> pl.LazyFrame:
        """Keep whole objects: those that lived at some time of ``windows`` (so their peak lies within them)."""
        lifetimes = (object_lifetimes if name == "alloc" else tensor_lifetimes)(rows)
        first, last = windows.span or (0, 0)
        born, died = pl.col("born_ns").fill_null(first), pl.col("died_ns").fill_null(last)
        lives = lifetimes.select("row_alloc", "row_free", born, died).collect()
        covered = windows.covered(lives["born_ns"].to_numpy(), lives["died_ns"].to_numpy())
        kept = lives.filter(pl.Series(covered > 0))
        wanted = pl.concat([kept["row_alloc"], kept["row_free"]]).drop_nulls().sort()
        return rows.with_row_index("_row").filter(pl.col("_row").is_in(wanted.implode())).drop("_row")

    @cached_property
    def _ranges(self) -> pl.DataFrame:
        """The times during which the range was open: pid, start_ns, end_ns, disjoint and sorted within a process."""
        wanted = self.filters.range or ""
        name, _, domain = wanted.rpartition("@")
        ranges = self._of_process("range").filter(pl.col("kind").ne_missing("mark"))
        in_domain = (pl.col("name") == name) & (pl.col("domain") == domain)
        found = ranges.filter((pl.col("name") == wanted) | in_domain).select("pid", "start_ns", "end_ns").collect()
        if found.is_empty() and self._pid is None:
            raise _no_range(wanted, ranges.select(pl.col("name").drop_nulls().unique().sort()).collect()["name"])
        parts = [_disjoint(pid, group) for (pid,), group in found.partition_by("pid", as_dict=True).items()]
        return pl.concat([_disjoint(None, found.clear()), *parts])


def _disjoint(pid: Any, ranges: pl.DataFrame) -> pl.DataFrame:
    union = Intervals.of(ranges)
    return pl.DataFrame({"start_ns": union.starts, "end_ns": union.ends}).with_columns(pid=pl.lit(pid, pl.Int32))


def _no_range(wanted: str, known: pl.Series) -> PastaError:
    close = difflib.get_close_matches(wanted, known.to_list(), n=3)
    fix = f"did you mean {' or '.join(close)}?" if close else "`--tool ranges` lists the ranges of this trace"
    return PastaError(f"no range is called {wanted!r}", fix)


class _Present(Set[str]):
    """The tables of a view that have rows left. Filters can be costly, so only the tables asked for are read."""

    def __init__(self, view: FilteredTrace) -> None:
        self._view = view
        self._known: dict[str, bool] = {}

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str) or name not in self._view._trace.present:
            return False
        if name not in self._known:
            self._known[name] = not self._view.table(name).head(1).collect().is_empty()
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in sorted(self._view._trace.present) if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @classmethod
    def _from_iterable(cls, names: Iterable[str]) -> Set[str]:  # type: ignore[override]
        return frozenset(names)


def _check(filters: Filters) -> None:
    start, end = filters.time
    if start is not None and end is not None and end <= start:
        raise PastaError(f"the time window {filters.describe()} is empty", "give a later end, for example 5s-9s")
    if filters.kernel:
        try:
            pl.Series([""]).str.contains(filters.kernel)
        except pl.exceptions.PolarsError as error:
            reasons = [line for line in str(error).splitlines() if line.startswith("error: ")]
            reason = f" ({reasons[0].removeprefix('error: ')})" if reasons else ""
            raise PastaError(
                f"{filters.kernel!r} is not a regular expression{reason}",
                "put a backslash before characters that are meant literally",
            ) from error


def _columns(name: str) -> set[str]:
    return {column.name for column in TABLES[name].columns} if name in TABLES else set()


def _end() -> pl.Expr:
    """The end of an event; one that has none is instantaneous."""
    return pl.coalesce("end_ns", "start_ns")


def _bounds() -> tuple[pl.Expr, pl.Expr]:
    return pl.col("start_ns").min().alias("low"), _end().max().alias("high")


def _between(start: int | None, end: int | None) -> Intervals:
    return Intervals.single(-_FOREVER if start is None else start, _FOREVER if end is None else end)


def _overlapping(rows: pl.LazyFrame, ranges: pl.DataFrame, start: pl.Expr, end: pl.Expr) -> pl.LazyFrame:
    """Keep rows whose ``[start, end]`` meets a range of their process, and drop helper columns."""
    last = pl.max_horizontal(end - 1, start).alias("_last")
    opened = ranges.lazy().select("pid", pl.col("start_ns").alias("_opened"), pl.col("end_ns").alias("_closed"))
    return (
        rows.with_columns(last)
        .sort("_last", maintain_order=True)
        .join_asof(
            opened.sort("_opened"),
            left_on="_last",
            right_on="_opened",
            by="pid",
            strategy="backward",
            check_sortedness=False,
        )
        .filter(pl.col("_closed") > start)
        .select(pl.exclude("_last", "_opened", "_closed"))
    )


def _seconds(time: int | None, open_end: str) -> str:
    return open_end if time is None else f"{time / 1e9:g}s"
