"""Kineto's events, one by one, as rows to be completed later: the hot path of the import.

Each category has one method that appends a tuple to its table's buffer. Columns that start with ``_`` are for
``kineto_relate``, which knows the whole file: which operator ran, which call launched a kernel, whose process it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import polars as pl

from pasta.importers.base import Schema
from pasta.importers.chrome_events import Event, arguments, to_int, to_ns
from pasta.importers.ids import Ids
from pasta.importers.kineto_names import (
    api_of,
    collective_kind,
    copy_kinds,
    is_collective_kernel,
    item_bytes,
    set_kinds,
    sync_kind,
)
from pasta.importers.spool import Spool
from pasta.schema import TABLES
from pasta.trace.frames import frame_schema

#: Different argument lists that are counted apart. More of them are taken for damage.
_MOST_SHAPES = 10_000
#: Different streams that are remembered.
_MOST_STREAMS = 1 << 20

_TIMES = ("start_ns", "end_ns")
_HOST = (*_TIMES, "_pid", "thread_id")
_DEVICE = (*_TIMES, "device_id", "context_id", "stream_id", "correlation_id", "_external")

#: The spooled tables and their columns. ``_pid`` and ``_rank`` are null where the process is the file's own.
COLUMNS: dict[str, tuple[str, ...]] = {
    "op": (*_HOST, "_external", "_order", "name", "sequence", "_fwd", "module", "shapes"),
    "api": (*_HOST, "_external", "correlation_id", "api", "name"),
    "kernel": (
        *_DEVICE,
        *("_pid", "_rank", "queued_ns", "submitted_ns", "name"),
        *("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers", "graph_id", "graph_node_id"),
    ),
    "memcpy": (
        *_DEVICE,
        *("queued_ns", "submitted_ns", "kind", "bytes", "src_kind", "dst_kind", "src_device_id", "dst_device_id"),
        *("graph_id", "graph_node_id"),
    ),
    "memset": (
        *_DEVICE,
        *("queued_ns", "submitted_ns", "bytes", "value", "memory_kind", "graph_id", "graph_node_id"),
    ),
    "sync": (*_DEVICE, "kind"),
    "collective": (*_DEVICE, "_pid", "_rank", "kind", "bytes", "group", "group_size", "peer"),
    "tensor": (
        *("start_ns", "_pid", "thread_id", "action", "address", "bytes", "allocated_bytes", "reserved_bytes"),
        *("device_type", "device_index"),
    ),
    "range": (*_HOST, "_external", "_order", "name", "category", "source", "_python", "_python_parent"),
}

#: Arguments that have a place, by table; any other is counted as unplaced.
_PLACED_DEVICE = frozenset(
    ("device", "context", "stream", "sycl queue", "correlation", "External id", "external id", "external ts", "kind")
)
_GRAPH = frozenset(("graph id", "graph node id"))
PLACED: dict[str, frozenset[str]] = {
    "op": frozenset(
        (
            "External id",
            "Record function id",
            "Sequence number",
            "Fwd thread id",
            "Input Dims",
            "Module Hierarchy",
            "Ev Idx",
        )
    )
    | {"Device"},
    "api": frozenset(("External id", "external id", "external ts", "correlation", "cbid", "cid")),
    "kernel": _PLACED_DEVICE
    | _GRAPH
    | {"grid", "block", "registers per thread", "rank", "pid_raw", "appended", "submitted"}
    | {"Collective name", "In msg nelems", "dtype", "Process Group Name", "Group size", "Src Rank", "Dst Rank"},
    "memcpy": _PLACED_DEVICE | _GRAPH | {"bytes", "fromDevice", "toDevice", "appended", "submitted"},
    "memset": _PLACED_DEVICE | _GRAPH | {"bytes", "appended", "submitted"},
    "sync": _PLACED_DEVICE | {"cuda_sync_kind"},
    "collective": frozenset(),
    "tensor": frozenset(("Addr", "Bytes", "Total Allocated", "Total Reserved", "Device Type", "Device Id", "Ev Idx")),
    "range": frozenset(("External id", "Record function id", "Ev Idx", "Python id", "Python parent id")),
}

#: c10's numbers of device types.
_DEVICE_TYPES = {
    0: "cpu",
    1: "cuda",
    6: "hip",
    9: "xla",
    12: "xpu",
    13: "mps",
    15: "hpu",
    18: "mtia",
    20: "privateuse1",
}

_encode = msgspec.json.Encoder().encode


def _schema(table: str) -> Schema:
    own = frame_schema(TABLES[table])
    return {name: own.get(name, pl.Int64()) for name in COLUMNS[table]}


class KinetoEvents:
    """Takes the events of one file and fills ``spool``; what it learns beside the rows is in its attributes."""

    def __init__(self, spool: Spool) -> None:
        #: (category, argument names) of the events that became rows of a table, with the table in front.
        self.shapes: Counter[tuple[str, ...]] = Counter()
        #: Events that no table has a place for.
        self.unplaced: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        #: Names from metadata events: (raw pid, raw tid) and raw pid.
        self.thread_names: dict[tuple[Any, Any], str] = {}
        self.process_names: dict[Any, str] = {}
        #: Profiler spans: name, start and duration in ns.
        self.spans: list[tuple[str, int | None, int | None]] = []
        #: Streams and contexts of the device work: (rank, device, raw stream) -> (stream, context).
        self.streams: dict[tuple[int | None, int | None, Any], tuple[int | None, int | None]] = {}
        #: Ranks of a file that a tool fused from several, with the process that it gave to each.
        self.fused_pids: dict[int, int | None] = {}
        self.processes = Ids()
        self.threads = Ids()
        self.devices = Ids()
        self.contexts = Ids()
        self._spool = spool
        self._stream_ids = Ids()
        self._stream_owner: dict[int | None, tuple[int | None, int | None, Any]] = {}
        self._rows = {table: spool.table(table, _schema(table)).pending for table in COLUMNS}
        self._handlers: dict[str, Callable[[Event, int, int | None], None]] = {
            **dict.fromkeys(("cpu_op", "Operator"), self._op),
            **dict.fromkeys(("cuda_runtime", "cuda_driver", "Runtime", "Driver"), self._api),
            **dict.fromkeys(("xpu_runtime", "xpu_driver", "mtia_runtime", "glow_runtime"), self._api),
            **dict.fromkeys(("privateuse1_runtime", "privateuse1_driver"), self._api),
            **dict.fromkeys(("kernel", "Kernel"), self._kernel),
            **dict.fromkeys(("gpu_memcpy", "Memcpy"), self._memcpy),
            **dict.fromkeys(("gpu_memset", "Memset"), self._memset),
            "cuda_sync": self._sync,
            "collective_comm": self._collective,
            **dict.fromkeys(("user_annotation", "python_function"), self._range),
        }

    def take(self, events: Iterable[Event]) -> None:
        """Add ``events``."""
        handlers = self._handlers
        for event in events:
            if event.ph == "X":
                handler = handlers.get(event.cat)
                if handler is None:
                    self._other(event)
                    continue
                start, duration = to_ns(event.ts), to_ns(event.dur)
                if start is None:
                    self.skipped["event without a time"] += 1
                elif duration is None:
                    handler(event, start, None)
                elif duration < 0:
                    self.skipped["event that ends before it starts"] += 1
                else:
                    handler(event, start, start + duration)
            elif event.ph in "sft":
                self._unplace(f"arrows ({event.cat}); ids of the events say the same")
            elif event.name == "[memory]":
                self._tensor(event)
            else:
                self._other(event)
        self._spool.flush_full()

    def _op(self, event: Event, start: int, end: int | None) -> None:
        args = arguments(event)
        self._count("op", args)
        dims = args.get("Input Dims")
        self._rows["op"].append(
            (
                *(start, end, self._pid(event.pid), self.threads(event.tid)),
                *(to_int(args.get("External id")), to_int(args.get("Ev Idx")), event.name),
                *(to_int(args.get("Sequence number")), to_int(args.get("Fwd thread id"))),
                args.get("Module Hierarchy") or None,
                _encode(dims).decode() if dims else None,
            )
        )

    def _api(self, event: Event, start: int, end: int | None) -> None:
        args = arguments(event)
        self._count("api", args)
        self._rows["api"].append(
            (
                *(start, end, self._pid(event.pid), self.threads(event.tid)),
                *(_external(args), to_int(args.get("correlation")), api_of(event.cat, event.name), event.name),
            )
        )

    def _kernel(self, event: Event, start: int, end: int | None) -> None:
        args = arguments(event)
        self._count("kernel", args)
        rank = to_int(args.get("rank"))
        # A tool that fused the files of several ranks gave each a pid of its own, and work on it a rank.
        pid = None if rank is None else self.fused_pids.setdefault(rank, self._pid(event.pid))
        device = self._device(args, start, end, rank)
        self._rows["kernel"].append(
            (
                *device,
                *(pid, rank, to_ns(args.get("appended")), to_ns(args.get("submitted")), event.name),
                *_three(args.get("grid")),
                *_three(args.get("block")),
                args.get("registers per thread"),
                *_graph(args),
            )
        )
        if "Collective name" in args or is_collective_kernel(event.name):
            self._add_collective(event.name, args, device, pid, rank)

    def _collective(self, event: Event, start: int, end: int | None) -> None:
        args = arguments(event)
        self._add_collective(event.name, args, self._device(args, start, end), None, None)

    def _add_collective(self, name: str, args: Any, device: tuple[Any, ...], pid: int | None, rank: int | None) -> None:
        elements, size = to_int(args.get("In msg nelems")), item_bytes(args.get("dtype"))
        kind = collective_kind(str(args.get("Collective name", ""))) or collective_kind(name)
        peer = args.get("Dst Rank") if kind == "send" else args.get("Src Rank") if kind == "recv" else None
        self._rows["collective"].append(
            (
                *device,
                *(pid, rank, kind, None if elements is None or size is None else elements * size),
                *(args.get("Process Group Name"), args.get("Group size"), peer),
            )
        )

    def _memcpy(self, event: Event, start: int, end: int | None) -> None:
        args = arguments(event)
        self._count("memcpy", args)
        kind, source, target = copy_kinds(event.name)
        self._rows["memcpy"].append(
            (
                *self._device(args, start, end),
                *(to_ns(args.get("appended")), to_ns(args.get("submitted"))),
                *(kind, to_int(args.get("bytes")), source, target),
                *(to_int(args.get("fromDevice")), to_int(args.get("toDevice"))),
                *_graph(args),
            )
        )

    def _memset(self, event: Event, start: int, end: int | None) -> None:
        args = arguments(event)
        self._count("memset", args)
        value, memory = set_kinds(event.name)
        self._rows["memset"].append(
            (
                *self._device(args, start, end),
                *(to_ns(args.get("appended")), to_ns(args.get("submitted"))),
                *(to_int(args.get("bytes")), value, memory),
                *_graph(args),
            )
        )

    def _sync(self, event: Event, start: int, end: int | None) -> None:
        args = arguments(event)
        self._count("sync", args)
        kind = sync_kind(str(args.get("cuda_sync_kind", event.name)))
        self._rows["sync"].append((*self._device(args, start, end), kind))

    def _range(self, event: Event, start: int, end: int | None) -> None:
        args = arguments(event)
        self._count("range", args)
        python = event.cat == "python_function"
        self._rows["range"].append(
            (
                *(start, end, self._pid(event.pid), self.threads(event.tid) or None),
                *(to_int(args.get("External id")), to_int(args.get("Ev Idx")), event.name),
                *(event.cat, "unknown" if python else "record_function"),
                *(to_int(args.get("Python id")), to_int(args.get("Python parent id"))),
            )
        )

    def _tensor(self, event: Event) -> None:
        args = arguments(event)
        start, size = to_ns(event.ts), to_int(args.get("Bytes"))
        if start is None or size is None:
            self.skipped["memory event without a time or a size"] += 1
            return
        self._count("tensor", args)
        kind = to_int(args.get("Device Type"))
        index = to_int(args.get("Device Id"))
        self._rows["tensor"].append(
            (
                *(start, self._pid(event.pid), self.threads(event.tid), "free" if size < 0 else "alloc"),
                *(to_int(args.get("Addr")), abs(size)),
                *(to_int(args.get("Total Allocated")), to_int(args.get("Total Reserved"))),
                None if kind is None else _DEVICE_TYPES.get(kind, f"type {kind}"),
                None if index == -1 else index,
            )
        )

    def _other(self, event: Event) -> None:
        if event.ph == "M":
            name = arguments(event).get("name")
            if event.name == "thread_name" and isinstance(name, str):
                self._keep(self.thread_names, (event.pid, event.tid), name)
            elif event.name == "process_name" and isinstance(name, str):
                self._keep(self.process_names, event.pid, name)
        elif event.cat == "Trace":
            if len(self.spans) < 100:
                self.spans.append((event.name, to_ns(event.ts), to_ns(event.dur)))
        elif event.cat == "gpu_user_annotation":
            self._unplace("gpu_user_annotation; derived from user_annotation and kernels")
        elif event.ph or event.cat or event.name:
            self._unplace(f"events of category {event.cat!r}, phase {event.ph!r}")

    def _unplace(self, what: str) -> None:
        known = len(self.unplaced) < _MOST_SHAPES or what in self.unplaced
        self.unplaced[what if known else "events of other categories"] += 1

    @staticmethod
    def _keep(names: dict[Any, str], key: Any, name: str) -> None:
        if len(names) < _MOST_SHAPES:
            names[key] = name

    def _count(self, table: str, args: Any) -> None:
        shape = (table, *args)
        if len(self.shapes) < _MOST_SHAPES or shape in self.shapes:
            self.shapes[shape] += 1

    def _pid(self, raw: Any) -> int | None:
        return self.processes(raw) or None  # Kineto writes 0 for Python frames of a thread that it does not know

    def _device(self, args: Any, start: int, end: int | None, rank: int | None = None) -> tuple[Any, ...]:
        """Return the values of the columns ``_DEVICE``."""
        device = self.devices(args.get("device"))
        raw = args.get("stream", args.get("sycl queue"))
        key = (rank, device, raw)
        try:
            stream, context = self.streams[key]
        except KeyError:
            context = self.contexts(args.get("context"))
            stream = self._new_stream(key)
            if len(self.streams) < _MOST_STREAMS:
                self.streams[key] = stream, context
        except TypeError:
            stream = context = None
        return start, end, device, context, stream, to_int(args.get("correlation")), _external(args)

    def _new_stream(self, key: tuple[int | None, int | None, Any]) -> int | None:
        """Return the number of a stream: its own, unless another device's has it already."""
        stream = self._stream_ids(key[2])
        if stream is not None and self._stream_owner.setdefault(stream, key) != key:
            stream = self._stream_ids(f"{key[2]} of device {key[1]}, rank {key[0]}")
        return stream

    @property
    def stream_names(self) -> dict[int, str]:
        """Names of streams whose number was made here."""
        return self._stream_ids.names


def _external(args: Any) -> int | None:
    value = args.get("External id")
    if value is None:
        value = args.get("external id")
    return value if type(value) is int else to_int(value)


def _three(value: Any) -> tuple[Any, Any, Any]:
    if type(value) is list and len(value) == 3:
        return value[0], value[1], value[2]
    return None, None, None


def _graph(args: Any) -> tuple[int | None, int | None]:
    graph = to_int(args.get("graph id"))
    return (graph, to_int(args.get("graph node id"))) if graph else (None, None)
