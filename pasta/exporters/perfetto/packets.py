"""Write the packets of a Perfetto trace: track descriptors, interned text, slices and counters.

The messages are those of https://github.com/google/perfetto/tree/main/protos/perfetto/trace (``trace_packet.proto``,
``track_event/*.proto``, ``interned_data/interned_data.proto``); the numbers below are their field numbers. Readers
sort packets by time and keep the file's order for equal times.
"""

from __future__ import annotations

from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import polars as pl

from pasta.exporters.perfetto.protobuf import (
    Block,
    constant,
    fixed64,
    integer,
    join,
    message,
    single,
    single_message,
    text,
)

# Trace
_PACKET = 1
# TracePacket
_TIMESTAMP, _SEQUENCE_ID, _TRACK_EVENT, _INTERNED_DATA, _SEQUENCE_FLAGS = 8, 10, 11, 12, 13
_TRACK_DESCRIPTOR, _FIRST_ON_SEQUENCE = 60, 87
_STATE_CLEARED, _NEEDS_STATE = 1, 2
# TrackEvent
_CATEGORY_IID, _ANNOTATION, _TYPE, _NAME_IID, _TRACK, _COUNTER_VALUE, _FLOW_ID = 3, 4, 9, 10, 11, 30, 47
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
# DebugAnnotation
_ANNOTATION_NAME_IID, _INT_VALUE, _STRING_IID = 1, 4, 17
# InternedData
_CATEGORIES, _EVENT_NAMES, _ANNOTATION_NAMES, _STRINGS = 1, 2, 3, 29
# TrackDescriptor, ProcessDescriptor, ThreadDescriptor, CounterDescriptor
_UUID, _TRACK_NAME, _PROCESS, _THREAD, _PARENT, _TRACK_COUNTER = 1, 2, 3, 4, 5, 8
_PROCESS_PID, _PROCESS_COMMAND, _PROCESS_NAME = 1, 2, 6
_THREAD_PID, _THREAD_TID, _THREAD_NAME = 1, 2, 5
_COUNTER_UNIT, _UNIT_BYTES = 3, 3

#: All packets are of one writer, whose interned text they share.
_SEQUENCE = single(_SEQUENCE_ID, 1)

#: Columns of a frame of slices; every other column becomes an argument of the slice.
SLICE_COLUMNS = ("track", "start_ns", "end_ns", "name", "category", "flow")


class PacketWriter:
    """Writes packets to ``file``; what it keeps in memory is the distinct text and the number of tracks."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._tracks = 0
        self._iids: dict[int, dict[str, int]] = {}
        self.events = 0
        flags = single(_SEQUENCE_FLAGS, _STATE_CLEARED) + single(_FIRST_ON_SEQUENCE, 1)
        self._packet(_SEQUENCE, flags)

    def process(self, name: str, pid: int, command: str) -> int:
        """Add a process and return its track."""
        body = single(_PROCESS_PID, pid) + text(_PROCESS_NAME, name)
        return self._track(single_message(_PROCESS, body, text(_PROCESS_COMMAND, command) if command else b""))

    def thread(self, name: str, pid: int, tid: int) -> int:
        """Add a thread and return its track."""
        body = single(_THREAD_PID, pid) + single(_THREAD_TID, tid)
        return self._track(single_message(_THREAD, body, text(_THREAD_NAME, name) if name else b""))

    def track(self, name: str, parent: int) -> int:
        """Add a track for slices below ``parent`` and return it. Neighbours of one name are shown as one."""
        return self._track(text(_TRACK_NAME, name) + single(_PARENT, parent))

    def counter(self, name: str, parent: int) -> int:
        """Add a track for a number of bytes below ``parent`` and return it."""
        unit = single_message(_TRACK_COUNTER, single(_COUNTER_UNIT, _UNIT_BYTES))
        return self._track(text(_TRACK_NAME, name) + single(_PARENT, parent) + unit)

    def slices(self, frame: pl.DataFrame) -> None:
        """Write a slice a row, an instant where ``end_ns`` is null or not after ``start_ns``; see `SLICE_COLUMNS`.

        ``track``, ``start_ns`` and ``name`` are never null. Rows of equal ``flow`` are joined by arrows.
        """
        rows = frame.height
        start = frame["start_ns"].to_numpy()
        ended = (frame["end_ns"] > frame["start_ns"]).fill_null(False).to_numpy()
        end = frame["end_ns"].fill_null(0).to_numpy()
        track = integer(_TRACK, frame["track"].to_numpy())
        category, flow = frame["category"], frame["flow"]
        fields = [
            integer(_TYPE, np.where(ended, _BEGIN, _INSTANT)),
            track,
            integer(_NAME_IID, self._interned(_EVENT_NAMES, frame["name"])),
            integer(_CATEGORY_IID, self._interned(_CATEGORIES, category), category.is_not_null().to_numpy()),
            fixed64(_FLOW_ID, flow.fill_null(0).to_numpy(), flow.is_not_null().to_numpy()),
            *(self._argument(frame[name]) for name in frame.columns if name not in SLICE_COLUMNS),
        ]
        begins = _event_packets(start, join(*fields))
        ends = _event_packets(end, join(constant(_TYPE, _END, rows), track), ended)
        # Begin and end of a row stand together, in order of start: so at equal times every end precedes the begins
        # of what follows it, and an outer begin the inner ones.
        self._write(join(begins, ends))
        self.events += rows

    def values(self, track: pl.Series, at: pl.Series, value: pl.Series) -> None:
        """Write values of counters: ``track``, time in ns and value of each, without nulls."""
        fields = [constant(_TYPE, _COUNTER, len(track)), integer(_TRACK, track.to_numpy())]
        self._write(_event_packets(at.to_numpy(), join(*fields, integer(_COUNTER_VALUE, value.to_numpy()))))
        self.events += len(track)

    def _argument(self, values: pl.Series) -> Block:
        name = self._iid(_ANNOTATION_NAMES, values.name)
        if values.dtype == pl.String:
            value = integer(_STRING_IID, self._interned(_STRINGS, values))
        else:
            value = integer(_INT_VALUE, values.fill_null(0).to_numpy())
        named = join(constant(_ANNOTATION_NAME_IID, name, len(values)), value)
        return message(_ANNOTATION, named, values.is_not_null().to_numpy())

    def _interned(self, kind: int, values: pl.Series) -> npt.NDArray[np.uint64]:
        """Return the ids of texts, 0 for null; writes the definitions of new ones."""
        distinct = values.unique(maintain_order=True).drop_nulls()
        ids = pl.Series([self._iid(kind, value) for value in distinct], dtype=pl.UInt64)
        return values.replace_strict(distinct, ids, default=0, return_dtype=pl.UInt64).to_numpy()

    def _iid(self, kind: int, value: str) -> int:
        known = self._iids.setdefault(kind, {})
        if value not in known:
            known[value] = len(known) + 1
            entry = single_message(kind, single(1, known[value]), text(2, value))
            self._packet(_SEQUENCE, single(_SEQUENCE_FLAGS, _NEEDS_STATE), single_message(_INTERNED_DATA, entry))
        return known[value]

    def _track(self, body: bytes) -> int:
        self._tracks += 1
        self._packet(_SEQUENCE, single_message(_TRACK_DESCRIPTOR, single(_UUID, self._tracks), body))
        return self._tracks

    def _packet(self, *fields: bytes) -> None:
        self._file.write(single_message(_PACKET, *fields))

    def _write(self, packets: Block) -> None:
        self._file.write(packets.to_bytes())


def _event_packets(at: npt.NDArray[np.int64], event: Block, present: npt.NDArray[np.bool_] | None = None) -> Block:
    rows = len(at)
    fields = [
        integer(_TIMESTAMP, at),
        constant(_SEQUENCE_ID, 1, rows),
        constant(_SEQUENCE_FLAGS, _NEEDS_STATE, rows),
        message(_TRACK_EVENT, event),
    ]
    return message(_PACKET, join(*fields), present)
