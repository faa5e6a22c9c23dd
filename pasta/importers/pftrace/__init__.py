"""Perfetto traces: rocprofv3's (``--output-format pftrace``), with Kineto's categories, and slices of any program."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from pasta.importers.base import Head, Kind, Report, Sink, nothing_to_import
from pasta.importers.chrome_events import Event
from pasta.importers.kineto.events import CATEGORIES, COLUMNS, KinetoEvents, spool_schema
from pasta.importers.kineto.identity import write_identity
from pasta.importers.kineto.relate import Owner, write
from pasta.importers.packed import Source
from pasta.importers.pftrace.packets import Packets, Slice
from pasta.importers.pftrace.rows import SliceRows, schemas
from pasta.importers.spool import Spool
from pasta.importers.wire import WireError, fields, varint

#: Slices with Kineto's categories that become columns at a time.
_BATCH = 8192
#: Annotations of which Kineto's slices have at least one; a category alone ("kernel") may mean anything.
_KINETO_MARKS = {"External id", "correlation", "Ev Idx", "Python id", "Record function id"}


class PerfettoTrace:
    """The importer; see the module's docstring."""

    kind = Kind.PFTRACE
    label = "Perfetto trace"

    def sniff(self, head: Head) -> bool:
        """A packet (field 1) with fields from 8 on: what else begins with field 1 (XSpace) has none."""
        if head.start[:1] != b"\x0a":
            return False
        try:
            size, position = varint(head.start, 1)
            for number, _ in fields(head.start[position : position + size]):
                if number >= 8:
                    return True
        except WireError:
            pass
        return False

    def read(self, sources: Sequence[Source], sink: Sink, report: Report) -> None:
        """Write every file's slices on one time line; processes keep the pids that the files state."""
        files = [_File(number, source, report) for number, source in enumerate(sources)]
        starts = [file.first_ns for file in files if file.first_ns is not None]
        if not starts:
            raise nothing_to_import(sources, "no slice with a time", "", report)
        anchor = min(starts)
        offset = files[0].realtime_offset
        report.epoch_ns = None if offset is None else anchor + offset
        for file in files:
            file.write(anchor, sink, report)


class _File:
    """One file: its rows on disk, and what they refer to."""

    def __init__(self, number: int, source: Source, report: Report) -> None:
        packets = Packets(source)
        self._packets = packets
        self._spool = Spool(source.folder / f"pftrace-{number}", schemas())
        self._kineto_spool = Spool(source.folder / f"pftrace-{number}-kineto", {t: spool_schema(t) for t in COLUMNS})
        self._rows = SliceRows(packets, self._spool)
        self._kineto = KinetoEvents(self._kineto_spool)
        self._read()
        for counter in (packets.skipped, self._rows.skipped, self._kineto.skipped):
            report.skipped += counter
        for counter in (packets.unplaced, self._rows.unplaced, self._kineto.unplaced):
            report.unplaced += counter
        if packets.broken:
            report.incomplete(source, packets.broken)
        if any(vendor == "AMD" for vendor in self._rows.devices.values()):
            report.notes.append("rocprofv3 moved the times of kernels that overlapped on a queue before it wrote them")
        starts = [self._spool.columns(table, "start_ns") for table in schemas()]
        starts += [self._kineto_spool.columns(table, "start_ns") for table in COLUMNS]
        first = pl.concat(starts)["start_ns"].min()
        self.first_ns = first if isinstance(first, int) else None
        self.realtime_offset = packets.clocks.realtime_offset

    def _read(self) -> None:
        events: list[Event] = []
        for event in self._packets.events():
            if (
                isinstance(event, Slice)
                and event.category in CATEGORIES
                and not _KINETO_MARKS.isdisjoint(event.arguments)
            ):
                events.append(self._kineto_event(event))
                if len(events) >= _BATCH:
                    self._kineto.take(events)
                    events = []
            else:
                self._rows.take(event)
        self._kineto.take(events)
        self._rows.flush()
        self._spool.flush()
        self._kineto_spool.flush()

    def _kineto_event(self, event: Slice) -> Event:
        pid, thread = self._rows.where(event.track)
        duration = None if event.end_ns is None else f"{event.end_ns - event.start_ns}e-3"
        # Events carry microseconds; as text they keep their nanoseconds.
        return Event(
            ph="X",
            cat=event.category,
            name=event.name,
            ts=f"{event.start_ns}e-3",
            dur=duration,
            pid=pid,
            tid=thread,
            args=event.arguments,
        )

    def write(self, anchor: int, sink: Sink, report: Report) -> None:
        """Write all rows, with ``anchor`` (ns) as time 0."""
        known = [track.pid for track in self._packets.tracks.values() if track.pid is not None]
        main = next(iter([*known, *self._packets.process_names]), 0)
        if any(True for table in COLUMNS for _ in self._kineto_spool.frames(table)):
            owner = Owner({main: main}, main, None, anchor)
            write_identity(self._kineto, {}, owner, sink, report)
            write(self._kineto_spool, owner, sink, report)
        else:
            self._write_processes(main, sink)
        self._write_identity(main, sink)
        for table in schemas():
            for frame in self._spool.frames(table):
                times = [pl.col("start_ns") - anchor, pl.col("end_ns") - anchor]
                sink.append(table, frame.with_columns(*times, pl.col("pid").fill_null(main)))

    def _write_processes(self, main: int, sink: Sink) -> None:
        rows = sink.table("process", "pid", "command", "backends")
        for pid in dict.fromkeys([main, *self._packets.process_names]):
            rows.add(pid, self._packets.process_names.get(pid), "perfetto (imported)")
        rows.flush()

    def _write_identity(self, main: int, sink: Sink) -> None:
        threads = sink.table("thread", "pid", "thread_id", "name")
        for track in self._packets.tracks.values():
            if track.tid is not None:
                threads.add(main if track.pid is None else track.pid, self._rows.threads(track.tid), track.name or None)
        threads.flush()
        devices = sink.table("device", "pid", "device_id", "vendor", "kind", "timestamps")
        for (pid, device), vendor in self._rows.devices.items():
            devices.add(main if pid is None else pid, device, vendor, "gpu", True)
        devices.flush()
        streams = sink.table("stream", "pid", "stream_id", "device_id", "name")
        for (pid, stream), (owner, name) in self._rows.streams.items():
            streams.add(main if pid is None else pid, stream, owner, name)
        streams.flush()


IMPORTERS = (PerfettoTrace(),)
