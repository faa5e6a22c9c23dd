"""The Chrome trace format in general (``chrome://tracing``, Perfetto's JSON): slices of any program become ranges.

Kineto's files, which are in this format too, have an importer that knows what their events mean.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import polars as pl

from pasta.importers.base import Head, Kind, Report, Schema, Sink, nothing_to_import
from pasta.importers.chrome_events import Event, event_stream, to_ns
from pasta.importers.detect import Refusal
from pasta.importers.event_group import EventGroup, as_ids
from pasta.importers.ids import Ids
from pasta.importers.nesting import enclosing
from pasta.importers.packed import Source
from pasta.importers.spool import Spool

_EVENT = re.compile(rb'"ph"\s*:\s*"')
_LIST = re.compile(rb"\s*\[\s*\{")
_OBJECT = re.compile(rb'\s*\{.*"traceEvents"\s*:\s*\[', re.DOTALL)

_SCHEMA: Schema = {
    **dict.fromkeys(("start_ns", "end_ns", "pid", "thread_id"), pl.Int64()),
    **dict.fromkeys(("name", "category", "kind"), pl.String()),
}
#: Slices that were begun and not ended that are remembered. More of them are taken for damage.
_MOST_OPEN = 1 << 20
_MOST_NAMES = 100_000


class Chrome:
    """The importer; see the module's docstring."""

    kind = Kind.CHROME
    label = "Chrome trace"

    def sniff(self, head: Head) -> bool:
        """A list of objects, or an object with ``traceEvents``, where events have a phase."""
        start = head.start
        return bool((_LIST.match(start) or _OBJECT.match(start)) and _EVENT.search(start))

    def read(self, sources: Sequence[Source], sink: Sink, report: Report) -> None:
        """Write the slices and instants of all files as ranges on one time line."""
        spool = Spool(sources[0].folder / "chrome", {"range": _SCHEMA})
        slices = _Slices(spool)
        for source in sources:
            stream = event_stream(source)
            for batch in stream.batches():
                slices.take(batch)
            slices.close()
            report.skipped += stream.skipped
            if stream.broken:
                report.incomplete(source, stream.broken)
        spool.flush()
        report.skipped += slices.skipped
        report.unplaced += slices.unplaced
        report.unmatched += slices.unmatched
        where = spool.columns("range", "start_ns", "end_ns", "pid", "thread_id", "kind")
        if where.is_empty():
            raise nothing_to_import(sources, "no slice with a time", "", report)
        first = where["start_ns"].min()
        assert isinstance(first, int)
        _write(spool, sink, first, _parents(where))
        slices.write_identity(sink, where["pid"].unique().sort().to_list())


def _parents(where: pl.DataFrame) -> pl.Series:
    """Return the ``range_id`` (row number, from 1) of the nested slice that encloses each, null where none does."""
    start = where["start_ns"].to_numpy()
    end = where["end_ns"].fill_null(np.iinfo(np.int64).max).to_numpy()
    thread = (where["pid"].fill_null(0).to_numpy() << 32) | where["thread_id"].fill_null(0).to_numpy()
    nests = (where["kind"] == "push_pop").to_numpy()
    inner = enclosing(thread, start, end, nests, np.arange(len(start)))
    return pl.Series("parent_id", inner + 1).set(pl.Series(inner < 0), None)


def _write(spool: Spool, sink: Sink, first: int, parents: pl.Series) -> None:
    row = 0
    for frame in spool.frames("range"):
        times = [pl.col("start_ns") - first, pl.col("end_ns") - first]
        ids = pl.int_range(row + 1, row + frame.height + 1, dtype=pl.Int64).alias("range_id")
        frame = frame.with_columns(*times, ids, parents.slice(row, frame.height), source=pl.lit("unknown"))
        sink.append("range", frame)
        row += parents.slice(row, frame.height).len()


class _Slices:
    """Turns events into rows of ``range``; slices that have two events wait for the second."""

    def __init__(self, spool: Spool) -> None:
        self.skipped: Counter[str] = Counter()
        self.unplaced: Counter[str] = Counter()
        self.unmatched: Counter[str] = Counter()
        self._spool = spool
        self._processes = Ids()
        self._threads = Ids()
        self._process_names: dict[Any, str] = {}
        self._thread_names: dict[tuple[Any, Any], str] = {}
        self._begun: defaultdict[tuple[Any, ...], list[Event]] = defaultdict(list)
        self._waiting = 0

    def take(self, events: Sequence[Event]) -> None:
        """Add ``events``, in the order of the file."""
        complete = [event for event in events if event.ph == "X"]
        self._add(EventGroup(complete, self.skipped), "push_pop")
        marks = [event for event in events if event.ph in ("i", "I", "R", "n")]
        self._add(EventGroup(marks, self.skipped), "mark")
        for kind, pairs in (("push_pop", self._nested), ("start_end", self._spans)):
            ended = list(pairs(events))
            self._add(EventGroup(ended, self.skipped), kind)
        for event in events:
            if event.ph == "M":
                self._name(event)
            elif event.ph not in ("X", "i", "I", "R", "n", "B", "E", "b", "e", "S", "F"):
                self.unplaced[f"events of phase {event.ph[:8]!r}"] += 1

    def close(self) -> None:
        """Keep the slices that a file began and did not end, with an unknown end."""
        for key, begun in self._begun.items():
            self.unmatched["slices that were begun and not ended"] += len(begun)
            self._add(EventGroup(begun, self.skipped), "push_pop" if key[0] == "nested" else "start_end")
        self._begun.clear()
        self._waiting = 0

    def write_identity(self, sink: Sink, pids: Sequence[int]) -> None:
        """Write processes and threads with the names that metadata events gave them."""
        names = {self._processes(raw) or 0: name for raw, name in self._process_names.items()}
        rows = sink.table("process", "pid", "command", "backends")
        for pid in dict.fromkeys([*pids, *names]):
            rows.add(pid, names.get(pid, self._processes.names.get(pid)), "chrome (imported)")
        rows.flush()
        rows = sink.table("thread", "pid", "thread_id", "name")
        for (pid, thread), name in self._thread_names.items():
            rows.add(self._processes(pid) or 0, self._threads(thread), name)
        rows.flush()

    def _add(self, group: EventGroup, kind: str) -> None:
        if not len(group):
            return
        columns = {
            "start_ns": group.start,
            "end_ns": group.start if kind == "mark" else group.end,
            "pid": as_ids(attrgetter("pid"), group.events, self._processes).fill_null(0),
            "thread_id": as_ids(attrgetter("tid"), group.events, self._threads),
            "name": pl.Series(group.names),
            "category": pl.Series([event.cat or None for event in group.events], dtype=pl.String),
            "kind": pl.Series([kind]).new_from_index(0, len(group)),
        }
        self._spool.append("range", columns)
        for args in group.args:
            if args:
                self.unplaced["arguments of slices"] += 1

    def _nested(self, events: Sequence[Event]) -> Iterator[Event]:
        """Yield the slices of ``B`` and ``E`` events: an end ends what its thread began last."""
        return self._pairs(events, "B", "E", lambda event: ("nested", event.pid, event.tid))

    def _spans(self, events: Sequence[Event]) -> Iterator[Event]:
        """Yield the slices of asynchronous events (``b`` and ``e``; ``S`` and ``F`` before 2014) by category and id."""
        yield from self._pairs(events, "b", "e", lambda event: ("span", event.pid, event.cat, str(event.id)))
        yield from self._pairs(events, "S", "F", lambda event: ("span", event.pid, event.cat, str(event.id)))

    def _pairs(
        self, events: Sequence[Event], begin: str, end: str, key: Callable[[Event], tuple[Any, ...]]
    ) -> Iterator[Event]:
        for event in events:
            if event.ph == begin:
                if self._waiting < _MOST_OPEN:
                    self._begun[key(event)].append(event)
                    self._waiting += 1
                else:
                    self.skipped["slice begun while a million others were open"] += 1
            elif event.ph == end:
                begun = self._begun[key(event)]
                if not begun:
                    del self._begun[key(event)]
                    self.unmatched["ends of slices that were not begun"] += 1
                    continue
                slice_ = begun.pop()
                if not begun:
                    del self._begun[key(event)]
                self._waiting -= 1
                start, finish = to_ns(slice_.ts), to_ns(event.ts)
                if start is not None and finish is not None:
                    # Events carry microseconds: whole nanoseconds survive as text.
                    slice_.dur = f"{finish - start}e-3"
                if slice_.args is None:
                    slice_.args = event.args
                yield slice_

    def _name(self, event: Event) -> None:
        name = event.args.get("name") if type(event.args) is dict else None
        if not isinstance(name, str):
            return
        if event.name == "process_name" and len(self._process_names) < _MOST_NAMES:
            self._process_names[event.pid] = name
        elif event.name == "thread_name" and len(self._thread_names) < _MOST_NAMES:
            self._thread_names[event.pid, event.tid] = name


_EXECUTION_TRACE = re.compile(rb'"schema"\s*:\s*"\d.*"nodes"\s*:\s*\[', re.DOTALL)

IMPORTERS = (Chrome(),)
REFUSALS = (
    Refusal(
        "a rocprof v1 trace",
        lambda head: b'"BeginNs"' in head.start and b'"DurationNs"' in head.start and b'"ph"' in head.start,
        "record again with rocprofv3 --sys-trace (ROCm 6.2 or later) and import its rocpd or JSON output",
    ),
    Refusal(
        "a PyTorch execution trace: operators and tensors without device work or times",
        lambda head: bool(_EXECUTION_TRACE.search(head.start[:4096])) and b'"rf_id"' in head.start,
        "import the trace that torch.profiler exports with export_chrome_trace",
    ),
)
