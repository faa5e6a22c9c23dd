"""Rows of pasta's tables from the records of rocprofiler-sdk, whether they came as JSON, CSV or rocpd.

All three state the same: grids in work-items; a group segment (LDS) that a dispatch was given, of which the kernel's
own static part is known only from its symbol; a size for an allocation and none for its free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pasta.importers.addresses import AddressMap
from pasta.importers.annotations import Annotations
from pasta.importers.base import Report, Sink
from pasta.importers.open_intervals import NEVER
from pasta.importers.rocm.names import api_of, blocks, copy_kind, fault_access, migration


class Where(NamedTuple):
    """Process, time and place of an event; ids as in the schema."""

    pid: int
    start: int
    end: int | None
    thread: int | None = None
    device: int | None = None
    stream: int | None = None
    correlation: int | None = None


@dataclass
class Dispatch:
    """What is known of a kernel's launch: ``grid`` in work-items, ``lds`` and ``scratch`` in bytes."""

    number: int | None
    name: str | None
    mangled: str | None = None
    grid: Sequence[int | None] = (None, None, None)
    block: Sequence[int | None] = (None, None, None)
    lds: int | None = None
    static_lds: int | None = None
    scratch: int | None = None
    registers: int | None = None
    graph: tuple[int | None, int | None] = (None, None)


@dataclass
class _Seen:
    """Identities that events mention."""

    threads: set[tuple[int, int]] = field(default_factory=set)
    devices: set[tuple[int, int]] = field(default_factory=set)
    streams: dict[tuple[int, int], int | None] = field(default_factory=dict)


class RocmRows:
    """Adds rows to ``sink``.

    Give markers first, then calls, then device work, where the source allows it: calls take their operator from the
    markers and device work takes its own from the calls. Markers are held, because they come in the order in which
    they ended, until ``place_markers`` or ``finish``.
    """

    def __init__(self, sink: Sink, report: Report, numbers: Iterator[int]) -> None:
        self.report = report
        self.seen = _Seen()
        self._sink = sink
        self._objects = AddressMap()
        self._annotations = Annotations(sink, numbers, "roctx")
        self._markers: list[tuple[int, int, int, int, str, str | None, str | None]] = []
        self._operators: dict[tuple[int, int | None], int] = {}
        place = ("pid", "start_ns", "end_ns", "thread_id", "device_id", "stream_id", "correlation_id", "op_id")
        self._kernels = sink.table(
            "kernel",
            *(*place, "launch_id", "name", "mangled", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"),
            *("global_x", "global_y", "global_z", "static_shared_bytes", "dynamic_shared_bytes", "local_bytes"),
            *("registers", "graph_id", "graph_node_id"),
        )
        self._copies = sink.table("memcpy", *place, "kind", "bytes", "src_device_id", "dst_device_id")
        self._calls = sink.table("api", *place[:4], "api", "name", "correlation_id", "op_id")
        self._allocations = sink.table(
            "alloc",
            *("pid", "start_ns", "thread_id", "device_id", "correlation_id"),
            *("action", "object_id", "address", "bytes", "kind", "allocator"),
        )
        self._unified = sink.table(
            "uvm", "pid", "start_ns", "end_ns", "kind", "cause", "address", "bytes", "src_device_id", "dst_device_id"
        )

    def kernel(self, where: Where, dispatch: Dispatch) -> None:
        """Add a kernel."""
        self._see(where)
        dynamic = None
        static = dispatch.static_lds
        if dispatch.lds is not None and static is not None:
            dynamic = max(dispatch.lds - static, 0)
        elif static is None:
            static = dispatch.lds  # the whole of it: what is static in it is not known
        self._kernels.add(
            *(*where, self._operator(where), dispatch.number, dispatch.name, dispatch.mangled),
            *(blocks(items, size) for items, size in zip(dispatch.grid, dispatch.block, strict=True)),
            *(*dispatch.block, *dispatch.grid, static, dynamic, dispatch.scratch, dispatch.registers, *dispatch.graph),
        )

    def copy(self, where: Where, name: str | None, size: int | None, source: int | None, target: int | None) -> None:
        """Add a copy between two agents; the host is none."""
        kind = copy_kind(name)
        source = None if kind in ("h2d", "h2h") else source
        target = None if kind in ("d2h", "h2h") else target
        where = where._replace(device=source if target is None else target)
        self._see(where)
        self._copies.add(*where, self._operator(where), kind, size, source, target)

    def call(self, where: Where, domain: str, name: str | None) -> bool:
        """Add a call of an API; return False for a domain that is not about one."""
        api = api_of(domain)
        if api is None:
            return False
        self._see(where)
        op = self._annotations.operator_at((where.pid, where.thread or 0), where.start)
        if op is not None:
            self._operators[where.pid, where.correlation] = op
        self._calls.add(*where[:4], api, name, where.correlation, op)
        return True

    def allocation(
        self, where: Where, operation: str, address: int | None, size: int | None, on_gpu: bool | None
    ) -> None:
        """Add an allocation or a free of this name; a free states no size and takes that of its allocation."""
        if on_gpu is None and (where.pid, where.device) in self.seen.devices:
            on_gpu = True
        kind = {True: "device", False: "pinned", None: "unknown"}[on_gpu]
        where = where._replace(device=where.device if on_gpu else None)
        if "VMEM" in operation or "VIRTUAL" in operation:
            kind = "virtual"
        number: int | None
        if "FREE" not in operation:
            number = self._objects.allocate(where.pid, address, size)
            action = "alloc"
        else:
            if not address:
                self.report.skipped["free of a null pointer"] += 1
                return
            number, size = self._objects.free(where.pid, address)
            action = "free"
            if number is None:
                self.report.unmatched["free of memory whose allocation is not in the source"] += 1
        self._see(where)
        self._allocations.add(
            *(where.pid, where.start, where.thread, where.device, where.correlation),
            *(action, number, address, size or None, kind, "hsa"),
        )

    def marker(self, where: Where, kind: str, text: str | None, category: str | None = None) -> None:
        """Add a marker or range: of roctx, or of whatever other tool wrote the ``category``."""
        self._see(where)
        end = NEVER if where.end is None else where.end
        self._markers.append((where.pid, where.thread or 0, where.start, -end, kind, text, category))

    def page_migration(
        self, where: Where, operation: str, first: int | None, last: int | None,
        source: tuple[int | None, bool | None], target: tuple[int | None, bool | None],
    ) -> None:  # fmt: skip
        """Add a migration of the bytes from ``first`` up to ``last``; an agent is its id and whether it is a GPU."""
        kind, cause = migration(operation, source[1], target[1])
        size = None if first is None or last is None or last < first else last - first
        devices = (source[0] if source[1] else None, target[0] if target[1] else None)
        self._unified.add(where.pid, where.start, where.end, kind, cause, first, size, *devices)

    def page_fault(self, where: Where, operation: str, address: int | None) -> None:
        """Add a page fault of the device ``where.device``."""
        self._unified.add(
            *(where.pid, where.start, where.end, "fault_gpu", fault_access(operation), address, None, None),
            where.device,
        )

    def place_markers(self) -> None:
        """Add the markers that were given, in order; the rows that follow find their operators."""
        self._markers.sort(key=lambda marker: marker[:4])
        for pid, thread, start, negative_end, kind, text, category in self._markers:
            end = None if negative_end == -NEVER else -negative_end
            source = None if category is None else "unknown"
            where = ((pid, thread), pid, thread or None, start, end)
            self._annotations.add(*where, kind, text, category=category, source=source)
        self._markers.clear()

    def finish(
        self,
        thread_names: Mapping[tuple[int, int], str] | None = None,
        stream_names: Mapping[tuple[int, int], str] | None = None,
    ) -> None:
        """Add what had to wait: markers, and the threads and streams that events mentioned, by (pid, id)."""
        self.place_markers()
        threads = self._sink.table("thread", "pid", "thread_id", "name")
        for pid, thread in sorted(self.seen.threads):
            threads.add(pid, thread, (thread_names or {}).get((pid, thread)))
        streams = self._sink.table("stream", "pid", "stream_id", "device_id", "name")
        for (pid, stream), device in sorted(self.seen.streams.items(), key=lambda item: item[0]):
            streams.add(pid, stream, device, (stream_names or {}).get((pid, stream)))

    def processes(self, rows: Iterable[tuple[int, int | None, int | None, str | None, str | None]]) -> None:
        """Add processes: pid, start, end, host and command."""
        table = self._sink.table("process", "pid", "start_ns", "end_ns", "host", "command")
        for row in rows:
            table.add(*row)

    def _operator(self, where: Where) -> int | None:
        return self._operators.get((where.pid, where.correlation)) if self._operators else None

    def _see(self, where: Where) -> None:
        if where.thread:
            self.seen.threads.add((where.pid, where.thread))
        if where.device is not None:
            self.seen.devices.add((where.pid, where.device))
        if where.stream is not None:
            self.seen.streams[where.pid, where.stream] = where.device
