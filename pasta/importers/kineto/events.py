"""Kineto's events, batch by batch, as rows to be completed later.

Each category has one method that turns the events of a batch into columns of its table. Columns that start with ``_``
are for ``relate``, which knows the whole file: which operator ran, which call launched a kernel, whose it was.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

import polars as pl

from pasta.importers.base import Schema
from pasta.importers.chrome_events import Event, to_ns
from pasta.importers.event_group import EventGroup, without
from pasta.importers.ids import Ids
from pasta.importers.kineto.names import (
    api_of,
    collective_kind,
    copy_kinds,
    device_type,
    is_collective_kernel,
    item_bytes,
    set_kinds,
    sync_kind,
)
from pasta.importers.spool import Spool
from pasta.schema import TABLES
from pasta.trace.frames import frame_schema

#: Different argument lists, names and categories that are told apart. More of them are taken for damage.
_MOST_KINDS = 10_000
#: Different streams that are remembered.
_MOST_STREAMS = 1 << 20

_phase = attrgetter("ph")

_TIMES = ("start_ns", "end_ns")
_HOST = (*_TIMES, "_pid", "thread_id")
_DEVICE = (*_TIMES, "device_id", "context_id", "stream_id", "correlation_id", "_external", "_pid", "_rank")
_QUEUED = ("queued_ns", "submitted_ns")
_GRAPH = ("graph_id", "graph_node_id")

#: The spooled tables and their columns. ``_pid`` and ``_rank`` are null where the process is the file's own.
COLUMNS: dict[str, tuple[str, ...]] = {
    "op": (*_HOST, "_external", "_order", "name", "sequence", "_fwd", "module", "shapes"),
    "api": (*_HOST, "_external", "correlation_id", "api", "name", "_bytes"),
    "kernel": (
        *(*_DEVICE, *_QUEUED, *_GRAPH, "name", "registers"),
        *("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"),
    ),
    "memcpy": (
        *(*_DEVICE, *_QUEUED, *_GRAPH, "kind", "bytes"),
        *("src_kind", "dst_kind", "src_device_id", "dst_device_id"),
    ),
    "memset": (*_DEVICE, *_QUEUED, *_GRAPH, "bytes", "value", "memory_kind"),
    "sync": (*_DEVICE, "kind"),
    "collective": (*_DEVICE, "kind", "bytes", "group", "group_size", "peer"),
    "tensor": (
        *("start_ns", "_pid", "thread_id", "action", "address", "bytes", "allocated_bytes", "reserved_bytes"),
        *("device_type", "device_index"),
    ),
    "range": (*_HOST, "_order", "name", "category", "source", "_python", "_python_parent"),
}

#: Arguments that have a place, by table; any other is counted as unplaced.
_ON_DEVICE = {"device", "context", "stream", "sycl queue", "correlation", "External id", "external id", "external ts"}
_ON_DEVICE |= {"kind", "rank", "pid_raw", "appended", "submitted", "graph id", "graph node id"}
_OF_COLLECTIVE = {"Collective name", "In msg nelems", "dtype", "Process Group Name", "Group size"}
_OF_COLLECTIVE |= {"Src Rank", "Dst Rank"}
_OF_RECORD = {"External id", "Record function id", "Ev Idx"}
PLACED: dict[str, set[str]] = {
    "op": _OF_RECORD | {"Sequence number", "Fwd thread id", "Input Dims", "Module Hierarchy", "Device"},
    "api": {"External id", "external id", "external ts", "correlation", "cbid", "cid", "size", "bytes"},
    "kernel": _ON_DEVICE | _OF_COLLECTIVE | {"grid", "block", "registers per thread"},
    "memcpy": _ON_DEVICE | {"bytes", "fromDevice", "toDevice"},
    "memset": _ON_DEVICE | {"bytes"},
    "sync": _ON_DEVICE | {"cuda_sync_kind"},
    "collective": _ON_DEVICE | _OF_COLLECTIVE,
    "tensor": {"Addr", "Bytes", "Total Allocated", "Total Reserved", "Device Type", "Device Id", "Ev Idx"},
    "range": _OF_RECORD | {"Python id", "Python parent id"},
}

#: Categories of complete events, of every year and vendor, and their tables.
CATEGORIES: dict[str, str] = {
    **dict.fromkeys(("cpu_op", "Operator"), "op"),
    **dict.fromkeys(("cuda_runtime", "cuda_driver", "Runtime", "Driver", "xpu_runtime", "xpu_driver"), "api"),
    **dict.fromkeys(("mtia_runtime", "glow_runtime", "privateuse1_runtime", "privateuse1_driver"), "api"),
    **dict.fromkeys(("kernel", "Kernel"), "kernel"),
    **dict.fromkeys(("gpu_memcpy", "Memcpy"), "memcpy"),
    **dict.fromkeys(("gpu_memset", "Memset"), "memset"),
    "cuda_sync": "sync",
    "collective_comm": "collective",
    **dict.fromkeys(("user_annotation", "python_function"), "range"),
}


def spool_schema(table: str) -> Schema:
    """Return the columns of a spooled table with their types; numbers are wide until they are written."""
    own = frame_schema(TABLES[table])
    wide = pl.Int64()
    return {name: own[name] if own.get(name) == pl.String else wide for name in COLUMNS[table]}


class KinetoEvents:
    """Takes the events of one file and fills ``spool``; what it learns beside the rows is in its attributes."""

    def __init__(self, spool: Spool) -> None:
        #: Names of arguments, with the table in front -> events that had them.
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
        self._stream_owner: dict[int, tuple[int | None, int | None, Any]] = {}
        makers = {
            "op": self._op,
            "api": self._api,
            "kernel": self._kernel,
            "memcpy": self._memcpy,
            "memset": self._memset,
            "sync": self._sync,
            "collective": self._collective,
            "range": self._range,
        }
        self._tables = {category: (table, makers[table]) for category, table in CATEGORIES.items()}

    def take(self, events: Iterable[Event]) -> None:
        """Add ``events``."""
        groups: defaultdict[str, list[Event]] = defaultdict(list)
        for event in events:
            groups[event.cat].append(event)
        for category, group in groups.items():
            phases = set(map(_phase, group))
            if len(phases) == 1:
                self._take_group(category, phases.pop(), group)
            else:
                for phase in phases:
                    self._take_group(category, phase, [event for event in group if event.ph == phase])

    def _take_group(self, category: str, phase: str, group: list[Event]) -> None:
        if phase == "X" and category in self._tables:
            table, columns = self._tables[category]
            self._add(table, columns, EventGroup(group, self.skipped), category)
        elif phase == "i" and category in ("cpu_instant_event", ""):
            memory = [event for event in group if event.name == "[memory]"]
            self._add("tensor", self._tensor, EventGroup(memory, self.skipped), category)
            if len(memory) < len(group):
                self._unplace("instants, such as the starts of iterations", len(group) - len(memory))
        elif phase in ("s", "t", "f"):
            self._unplace(f"arrows of category {category}; the events' own ids say the same", len(group))
        elif category == "gpu_user_annotation":
            self._unplace("gpu_user_annotation, derived from user_annotation and kernels", len(group))
        elif phase == "M" or category == "Trace":
            self._describe(group)
        else:
            self._unplace(f"events of category {category!r}, phase {phase!r}", len(group))

    @property
    def stream_names(self) -> dict[int, str]:
        """Names of streams whose number was made here."""
        return self._stream_ids.names

    def _add(
        self, table: str, columns: Callable[[EventGroup, str], dict[str, pl.Series]], group: EventGroup, category: str
    ) -> None:
        if not group:
            return
        self._spool.append(table, columns(group, category))
        for names, count in group.shapes.items():
            shape = (table, *names)
            if len(self.shapes) < _MOST_KINDS or shape in self.shapes:
                self.shapes[shape] += count

    def _op(self, group: EventGroup, category: str) -> dict[str, pl.Series]:
        return self._host(group) | {
            "_external": group.ints("External id"),
            "_order": group.ints("Ev Idx"),
            "name": pl.Series(group.names),
            "sequence": group.ints("Sequence number"),
            "_fwd": group.ints("Fwd thread id"),
            "module": group.texts("Module Hierarchy"),
            "shapes": group.documents("Input Dims"),
        }

    def _api(self, group: EventGroup, category: str) -> dict[str, pl.Series]:
        names = group.names
        return self._host(group) | {
            "_external": group.ints("External id", "external id"),
            "correlation_id": without(group.ints("correlation"), 0),
            "_bytes": group.ints("size", "bytes"),
            "api": pl.Series([api_of(category, name) for name in names]),
            "name": pl.Series(names),
        }

    def _kernel(self, group: EventGroup, category: str) -> dict[str, pl.Series]:
        names = group.names
        device = self._device(group)
        chosen = [
            "Collective name" in args or is_collective_kernel(n) for args, n in zip(group.args, names, strict=True)
        ]
        if any(chosen):
            rows = pl.DataFrame(device | self._of_collective(group)).filter(pl.Series(chosen))
            self._spool.append("collective", {column.name: column for column in rows})
        return device | {
            **self._queued(group),
            "name": pl.Series(names),
            "registers": group.ints("registers per thread"),
            **group.axes("grid", "grid"),
            **group.axes("block", "block"),
        }

    def _collective(self, group: EventGroup, category: str) -> dict[str, pl.Series]:
        return self._device(group) | self._of_collective(group)

    def _of_collective(self, group: EventGroup) -> dict[str, pl.Series]:
        names = zip(group.get("Collective name"), group.names, strict=True)
        kinds = [collective_kind(str(stated)) or collective_kind(name) for stated, name in names]
        sizes = pl.Series([item_bytes(dtype) for dtype in group.get("dtype")], dtype=pl.Int64)
        peers = zip(kinds, group.get("Src Rank"), group.get("Dst Rank"), strict=True)
        peer = [target if kind == "send" else source if kind == "recv" else None for kind, source, target in peers]
        return {
            "kind": pl.Series(kinds, dtype=pl.String),
            "bytes": group.ints("In msg nelems") * sizes,
            "group": group.texts("Process Group Name"),
            "group_size": group.ints("Group size"),
            "peer": group.as_ints(peer, "peer rank"),
        }

    def _memcpy(self, group: EventGroup, category: str) -> dict[str, pl.Series]:
        kinds = pl.DataFrame(
            [copy_kinds(name) for name in group.names],
            schema={"kind": pl.String, "src_kind": pl.String, "dst_kind": pl.String},
            orient="row",
        )
        return {
            **self._device(group),
            **self._queued(group),
            **kinds.to_dict(),
            "bytes": group.ints("bytes"),
            "src_device_id": group.ints("fromDevice"),
            "dst_device_id": group.ints("toDevice"),
        }

    def _memset(self, group: EventGroup, category: str) -> dict[str, pl.Series]:
        kinds = pl.DataFrame(
            [set_kinds(name) for name in group.names],
            schema={"value": pl.Int64, "memory_kind": pl.String},
            orient="row",
        )
        return {**self._device(group), **self._queued(group), **kinds.to_dict(), "bytes": group.ints("bytes")}

    def _sync(self, group: EventGroup, category: str) -> dict[str, pl.Series]:
        return self._device(group) | {"kind": pl.Series([sync_kind(name) for name in group.names])}

    def _range(self, group: EventGroup, category: str) -> dict[str, pl.Series]:
        source = "unknown" if category == "python_function" else "record_function"
        return self._host(group) | {
            "_order": group.ints("Ev Idx"),
            "name": pl.Series(group.names),
            "category": pl.Series([category] * len(group)),
            "source": pl.Series([source] * len(group)),
            "_python": group.ints("Python id"),
            "_python_parent": group.ints("Python parent id"),
        }

    def _tensor(self, group: EventGroup, category: str) -> dict[str, pl.Series]:
        size = group.ints("Bytes")
        kinds = group.ints("Device Type")
        return self._host(group) | {
            "action": pl.Series(["free" if value < 0 else "alloc" for value in size.fill_null(0)]),
            "address": group.ints("Addr"),
            "bytes": size.abs(),
            "allocated_bytes": group.ints("Total Allocated"),
            "reserved_bytes": group.ints("Total Reserved"),
            "device_type": pl.Series([device_type(kind) for kind in kinds], dtype=pl.String),
            "device_index": without(group.ints("Device Id"), -1),
        }

    def _host(self, group: EventGroup) -> dict[str, pl.Series]:
        return {
            "start_ns": group.start,
            "end_ns": group.end,
            "_pid": group.pids(self.processes),
            "thread_id": group.threads(self.threads),
        }

    def _device(self, group: EventGroup) -> dict[str, pl.Series]:
        """Return the columns ``_DEVICE``."""
        ranks, raw = group.get("rank"), group.get("stream", "sycl queue")
        devices = group.devices(self.devices)
        rank, pid = group.as_ints(ranks, "rank"), None
        if rank.null_count() < len(rank):
            # A tool that fused the files of several ranks gave each a pid of its own, and work on it a rank.
            pid = group.pids(self.processes)
            for number, process in zip(rank, pid, strict=True):
                self.fused_pids.setdefault(number, process)
        keys = zip(rank, devices, raw, group.get("context"), strict=True)
        found = [self._stream(rank, device, stream, context) for rank, device, stream, context in keys]
        streams, contexts = zip(*found, strict=True)
        return {
            "start_ns": group.start,
            "end_ns": group.end,
            "device_id": devices,
            "context_id": pl.Series(contexts, dtype=pl.Int64),
            "stream_id": pl.Series(streams, dtype=pl.Int64),
            "correlation_id": without(group.ints("correlation"), 0),
            "_external": group.ints("External id", "external id"),
            "_pid": pl.Series([None] * len(group), dtype=pl.Int64) if pid is None else pid,
            "_rank": rank,
        }

    def _queued(self, group: EventGroup) -> dict[str, pl.Series]:
        graph = without(group.ints("graph id"), 0)
        node = group.ints("graph node id")
        return {
            "queued_ns": group.times("appended"),
            "submitted_ns": group.times("submitted"),
            "graph_id": graph,
            "graph_node_id": node.zip_with(graph.is_not_null(), graph),
        }

    def _stream(self, rank: int | None, device: int | None, raw: Any, context: Any) -> tuple[int | None, int | None]:
        """Return the number of a stream, its own unless another device's has it already, and of its context."""
        key = (rank, device, raw)
        try:
            return self.streams[key]
        except KeyError:
            stream = self._stream_ids(raw)
            if stream is not None and self._stream_owner.setdefault(stream, key) != key:
                stream = self._stream_ids.named(
                    f"{raw} of device {device}" + ("" if rank is None else f", rank {rank}")
                )
            if len(self.streams) < _MOST_STREAMS:
                self.streams[key] = stream, self.contexts(context)
            return stream, self.contexts(context)
        except TypeError:  # a list or an object
            return None, None

    def _describe(self, group: list[Event]) -> None:
        """Keep what metadata events and the profiler's own spans say."""
        for event in group:
            name = event.args.get("name") if type(event.args) is dict else None
            if event.ph == "X" and len(self.spans) < 100:
                self.spans.append((event.name, to_ns(event.ts), to_ns(event.dur)))
            elif event.name == "thread_name" and isinstance(name, str) and len(self.thread_names) < _MOST_KINDS:
                self.thread_names[event.pid, event.tid] = name
            elif event.name == "process_name" and isinstance(name, str) and len(self.process_names) < _MOST_KINDS:
                self.process_names[event.pid] = name

    def _unplace(self, what: str, count: int) -> None:
        known = len(self.unplaced) < _MOST_KINDS or what in self.unplaced
        self.unplaced[what if known else "events of other categories"] += count
