"""What slices of a Perfetto trace mean: kernels, copies and calls of rocprofv3 and of GPU stages; ranges otherwise.

rocprofv3 says what a slice is by its category and the rest in debug annotations. The sizes of its launches are products
of three, which no column can hold.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

import polars as pl

from pasta.importers.base import Rows, Schema
from pasta.importers.chrome_events import to_int
from pasta.importers.ids import Ids
from pasta.importers.kineto.names import copy_kinds
from pasta.importers.pftrace.packets import Packets, Slice, Stage
from pasta.importers.pftrace.sequence import (
    COMPUTE_ARGUMENTS,
    COMPUTE_KERNELS,
    EVENT_NAMES,
    GPU_STAGES,
    Message,
    Sequence,
)
from pasta.importers.spool import Spool
from pasta.importers.wire import signed
from pasta.schema import TABLES
from pasta.trace.frames import frame_schema

_TIMES = ("start_ns", "end_ns")
_WORK = ("thread_id", "device_id", "stream_id", "correlation_id")
_AXES = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
_COLUMNS = {
    "kernel": (
        *("pid", *_TIMES, *_WORK, "name", "mangled", "registers", "local_bytes"),
        *("static_shared_bytes", "dynamic_shared_bytes", *_AXES),
    ),
    "memcpy": ("pid", *_TIMES, *_WORK, "kind", "bytes", "src_kind", "dst_kind"),
    "api": ("pid", *_TIMES, "thread_id", "api", "name", "correlation_id"),
    "range": ("pid", *_TIMES, "thread_id", "range_id", "parent_id", "name", "category", "kind", "source"),
}

#: rocprofv3's categories of API calls.
_APIS = {"hip_api": "hip", "hsa_api": "hsa", "rccl_api": "rccl", "rocdecode_api": "other", "rocjpeg_api": "other"}
_COPIES = {"HOST_TO_DEVICE": "h2d", "DEVICE_TO_HOST": "d2h", "DEVICE_TO_DEVICE": "d2d", "HOST_TO_HOST": "h2h"}
#: Annotations that have a place or say what another says that has.
_PLACED = {"begin_ns", "end_ns", "delta_ns", "tid", "kind", "operation", "corr_id", "agent", "agent_type", "queue"}
_PLACED |= {"stream_ID", "VGPR_Count", "Scratch_Size", "copy_bytes", "src_agent", "dst_agent"}
_LAST_NUMBER = re.compile(r"(\d+)\D*$")
_COMPUTE = 2
#: How far up a track's process is looked for.
_MAX_PARENTS = 16
_MOST_STREAMS = 1 << 16


def schemas() -> dict[str, Schema]:
    """Return the columns that the rows have; ``pid`` is null where the trace does not say."""
    types = {table: frame_schema(TABLES[table]) for table in _COLUMNS}
    return {table: {name: types[table][name] for name in columns} for table, columns in _COLUMNS.items()}


class SliceRows:
    """Turns slices and stages into rows of ``spool``; the attributes say what the rows refer to."""

    def __init__(self, packets: Packets, spool: Spool) -> None:
        self.skipped: Counter[str] = Counter()
        self.unplaced: Counter[str] = Counter()
        self.threads = Ids()
        #: (pid, stream) -> device and name.
        self.streams: dict[tuple[int | None, int], tuple[int | None, str | None]] = {}
        #: A device of each vendor's flavour: (pid, device) -> vendor.
        self.devices: dict[tuple[int | None, int], str | None] = {}
        self._stream_ids = Ids()
        self._stream_device: dict[tuple[int | None, int], int | None] = {}
        self._packets = packets
        self._rows = {
            table: Rows(schema, partial(self._give, spool, table), partial(self._misfit, table))
            for table, schema in schemas().items()
        }

    def take(self, event: Slice | Stage) -> None:
        """Add one slice or stage."""
        if isinstance(event, Stage):
            self._stage(event)
        elif "begin_ns" not in event.arguments:
            self._range(event, "unknown")
        elif event.category == "kernel_dispatch":
            self._kernel(event)
        elif event.category == "memory_copy":
            self._copy(event)
        elif event.category in _APIS:
            self._call(event)
        else:
            self._range(event, "roctx" if event.category == "marker_api" else "unknown")

    def flush(self) -> None:
        """Put what is held into the spool."""
        for rows in self._rows.values():
            rows.flush()

    def where(self, track: int | None) -> tuple[int | None, int | None]:
        """Return process and thread of a track, from itself or the tracks that it is in."""
        tracks = self._packets.tracks
        pid = tid = None
        for _ in range(_MAX_PARENTS):
            found = tracks.get(track) if track is not None else None
            if found is None:
                break
            pid, tid = (found.pid if pid is None else pid), (found.tid if tid is None else tid)
            track = found.parent
        return pid, self.threads(tid)

    def _kernel(self, event: Slice) -> None:
        args = self._arguments(event, "kernel")
        pid, _ = self.where(event.track)
        work = self._work(pid, args, args.get("agent"), "AMD")
        values = (event.name, None, args.get("VGPR_Count"), args.get("Scratch_Size"), *(None,) * (2 + len(_AXES)))
        self._rows["kernel"].add(pid, event.start_ns, event.end_ns, *work, *values)

    def _copy(self, event: Slice) -> None:
        args = self._arguments(event, "memcpy")
        pid, _ = self.where(event.track)
        kind = next((kind for words, kind in _COPIES.items() if words in event.name), "unknown")
        agent = args.get("src_agent") if kind == "d2h" else args.get("dst_agent")
        work = self._work(pid, args, agent, "AMD")
        values = (kind, args.get("copy_bytes"), None, None)
        self._rows["memcpy"].add(pid, event.start_ns, event.end_ns, *work, *values)

    def _call(self, event: Slice) -> None:
        args = self._arguments(event, "api")
        pid, thread = self.where(event.track)
        thread = self.threads(args.get("tid")) or thread
        values = (_APIS[event.category], event.name, args.get("corr_id"))
        self._rows["api"].add(pid, event.start_ns, event.end_ns, thread, *values)

    def _range(self, event: Slice, source: str) -> None:
        args = self._arguments(event, "range")
        pid, thread = self.where(event.track)
        thread = self.threads(args.get("tid")) or thread
        kind = "mark" if event.instant else "push_pop"
        values = (event.number, event.parent, event.name, event.category or None, kind, source)
        self._rows["range"].add(pid, event.start_ns, event.end_ns, thread, *values)

    def _stage(self, stage: Stage) -> None:
        """Add work of a GPU: a kernel when it is one, a copy when it is called so, else a range."""
        message, sequence = stage.message, stage.sequence
        kernel = Message(sequence.interned[COMPUTE_KERNELS].get(message.number(19) or 0, b""))
        kind = Message(sequence.interned[GPU_STAGES].get(message.number(14) or 0, b""))
        name = message.text(17) or sequence.name(EVENT_NAMES, message.number(20))
        name = name or kernel.text(3) or kernel.text(2) or kind.text(2)
        duration = message.number(2)
        end = stage.start_ns if duration is None else stage.start_ns + duration
        device, queue = message.number(11), message.number(13)
        queue_name = sequence.name(GPU_STAGES, queue) or None
        args = {"queue": queue, "stream_name": queue_name}
        if name.startswith("Memcpy"):
            direction, source, target = copy_kinds(name)
            work = self._work(None, args, device, None)
            self._rows["memcpy"].add(None, stage.start_ns, end, *work, direction, None, source, target)
        elif 19 in message or 21 in message or kind.number(4) == _COMPUTE:
            launch = Message(next(iter(message.parts(21)), b""))
            more = {**_compute_arguments(kernel, 5, sequence), **_compute_arguments(launch, 3, sequence)}
            shared = (more.get("shared_mem_static"), more.get("shared_mem_dynamic"))
            values = (name, kernel.text(2) if kernel.text(3) else None, more.get("registers_per_thread"), None)
            work = self._work(None, args, device, None)
            shape = (*_axes(launch, 1), *_axes(launch, 2))
            self._rows["kernel"].add(None, stage.start_ns, end, *work, *values, *shared, *shape)
        else:
            self.unplaced["GPU stages that are neither kernels nor copies"] += 1

    def _work(
        self, pid: int | None, args: Mapping[str, Any], agent: Any, vendor: str | None
    ) -> tuple[int | None, int | None, int | None, Any]:
        """Return thread, device, stream and correlation id of work on a device."""
        number = _LAST_NUMBER.search(str(agent))  # an agent is called by its number or, say, "Agent-4"
        device = int(number.group(1)) if number and len(number.group(1)) < 10 else None
        if device is not None and len(self.devices) < _MOST_STREAMS:
            self.devices.setdefault((pid, device), vendor)
        return self.threads(args.get("tid")), device, self._stream(pid, device, args), args.get("corr_id")

    def _stream(self, pid: int | None, device: int | None, args: Mapping[str, Any]) -> int | None:
        """Return the number of a stream or queue: its own, unless another device's has it already."""
        raw = to_int(args.get("stream_ID", args.get("queue")))
        stream = self._stream_ids(raw)
        name = args.get("stream_name")
        if stream is not None and self._stream_device.setdefault((pid, stream), device) != device:
            name = f"{raw} of device {device}"
            stream = self._stream_ids.named(name)
        if stream is not None and len(self.streams) < _MOST_STREAMS:
            self.streams.setdefault((pid, stream), (device, name))
        return stream

    def _arguments(self, event: Slice, table: str) -> Mapping[str, Any]:
        placed = _PLACED if "begin_ns" in event.arguments else ()
        for name in event.arguments:
            if name not in placed:
                self.unplaced[f"{table}: {name}" if placed else "annotations of slices"] += 1
        return event.arguments

    def _give(self, spool: Spool, table: str, frame: pl.DataFrame) -> None:
        spool.append(table, frame.to_dict())

    def _misfit(self, table: str, column: str, count: int) -> None:
        self.skipped[f"value of {table}.{column} does not fit its type (null instead)"] += count


def _axes(message: Message, number: int) -> tuple[int | None, int | None, int | None]:
    """Return a Dim3 message."""
    axes = Message(next(iter(message.parts(number)), b""))
    return axes.number(1), axes.number(2), axes.number(3)


def _compute_arguments(message: Message, number: int, sequence: Sequence) -> dict[str, Any]:
    """Return the integers among ExtraComputeArg messages by name."""
    values: dict[str, Any] = {}
    for data in message.parts(number):
        argument = Message(data)
        name = argument.text(2) or sequence.name(COMPUTE_ARGUMENTS, argument.number(1))
        whole = argument.number(3)
        values[name] = argument.number(4) if whole is None else signed(whole)
    return values
