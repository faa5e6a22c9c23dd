"""rocmProfileData (RPD): SQLite files of ``runTracer.sh`` and ``rpdTracer``, schema version 2.

Calls (``rocpd_api``) and device operations (``rocpd_op``) are joined by ``rocpd_api_ops``; sizes stand in
``rocpd_kernelapi`` and ``rocpd_copyapi``, by call. The tables share their first letters with rocprofiler-sdk's *rocpd*
files, which are another format.

Grids are in blocks in files of roctracer, except for hipExtModuleLaunchKernel, whose arguments are work-items. In files
of rocprofiler-sdk, whose calls have a domain, all are in work-items.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count
from typing import Any

from pasta.importers.addresses import AddressMap
from pasta.importers.annotations import Annotations
from pasta.importers.base import Head, Importer, Kind, Report, Rows, Sink, nothing_to_import
from pasta.importers.ids import Ids
from pasta.importers.open_intervals import NEVER
from pasta.importers.packed import Source
from pasta.importers.rocm.names import blocks, copy_kind, fault_access, migration
from pasta.importers.sqlite import Database, opened

_API, _OP, _KERNEL, _COPY = "rocpd_api", "rocpd_op", "rocpd_kernelapi", "rocpd_copyapi"
_READ = {_API, _OP, _KERNEL, _COPY, "rocpd_api_ops", "rocpd_string", "rocpd_ustring", "rocpd_metadata"}

#: Calls whose grid is in work-items, as their arguments are.
_WORK_ITEM_CALLS = ("hipExtModuleLaunchKernel", "hipHccModuleLaunchKernel")
#: Kinds of memory that calls allocate.
_ALLOCATIONS = {
    **{"hipMalloc": "device", "hipExtMallocWithFlags": "device", "hipMallocManaged": "managed"},
    **{"hipHostMalloc": "pinned", "hipHostAlloc": "pinned", "hipMallocHost": "pinned", "hipMallocAsync": "pool"},
}
_FREES = ("hipFree", "hipHostFree", "hipFreeHost", "hipFreeAsync")
_ARGUMENT = re.compile(r"\b(ptr|size)=(0x[0-9a-fA-F]{1,16}|\d{1,18})\b")


class RpdImporter:
    """The importer of RPD files."""

    kind = Kind.RPD
    label = "rocmProfileData (RPD)"

    def sniff(self, head: Head) -> bool:
        """Return whether the database has RPD's tables of calls and operations."""
        return "apiName_id" in head.tables.get(_API, ()) or "opType_id" in head.tables.get(_OP, ())

    def read(self, sources: Sequence[Source], sink: Sink, report: Report) -> None:
        """Import every file; ``PastaError`` when none has a call or an operation."""
        found = False
        numbers, objects = count(1), AddressMap()
        for source in sources:
            with opened(source) as db:
                if db.has("rocpd_metadata", "tag", "value"):
                    version = db.value("SELECT CAST(value AS TEXT) FROM rocpd_metadata WHERE tag = 'schema_version'")
                    report.version = version or ""
                if db.count(_API) or db.count(_OP):
                    found = True
                    _File(db, sink, report, Annotations(sink, numbers, "roctx"), objects).read()
                sink.flush()
        if not found:
            raise nothing_to_import(sources, "it has no call and no operation", "record the program again")


class _File:
    """One database: calls first, because operations take their process and thread from them."""

    def __init__(self, db: Database, sink: Sink, report: Report, annotations: Annotations, objects: AddressMap) -> None:
        self._db = db
        self._sink = sink
        self._report = report
        self._annotations = annotations
        self._objects = objects
        self._streams = Ids()
        self._devices: set[tuple[int, int]] = set()
        self._used_streams: dict[tuple[int, int], int | None] = {}
        self._threads: set[tuple[int, int]] = set()
        self._launches: dict[int, int] = {}

    def read(self) -> None:
        """Import everything."""
        self._calls()
        if _OP in self._db.tables:
            self._operations()
        self._identities()
        for name in self._db.tables:
            if name not in _READ and not name.startswith("sqlite_") and (rows := self._db.count(name)):
                self._report.unplaced[name] += rows

    def _string(self, table: str, name: str, alias: str) -> str:
        """Return SQL for text that is referred to by its number in ``rocpd_string``."""
        if not (self._db.has(table, name) and self._db.has("rocpd_string", "id", "string")):
            return "NULL"
        return f"(SELECT CAST(string AS TEXT) FROM rocpd_string WHERE id = {alias}.{name})"

    def _numbers(self, table: str, alias: str, *names: str) -> str:
        return ", ".join(f"{self._db.column(table, name, alias)} AS {alias}_{name}" for name in names)

    def _calls(self) -> None:
        """Import calls and markers, and leave ``temp.call`` for the operations that calls started."""
        db = self._db
        calls = db.create(
            "call", "id INTEGER PRIMARY KEY", "pid INTEGER", "thread INTEGER", "op INTEGER", "end INTEGER", "name TEXT"
        )
        links = db.create("link", "operation INTEGER PRIMARY KEY", "call INTEGER")
        if db.has("rocpd_api_ops", "op_id", "api_id"):
            for operation, call in db.rows("SELECT op_id, api_id FROM rocpd_api_ops ORDER BY api_id"):
                links.add(operation, call)
        links.flush()
        if _API not in db.tables:
            return
        texts = ", ".join(self._string(_API, name, "a") for name in ("apiName_id", "args_id", "domain_id"))
        query = (
            f"SELECT {self._numbers(_API, 'a', 'id', 'pid', 'tid', 'start', 'end')}, {texts} FROM {_API} a"
            f" WHERE a_start IS NOT NULL ORDER BY a_pid, a_tid, a_start, coalesce(a_end, {NEVER}) DESC"
        )
        rows = self._sink.table(
            "api", "pid", "start_ns", "end_ns", "thread_id", "api", "name", "correlation_id", "op_id"
        )
        allocations = self._sink.table(
            "alloc",
            *("pid", "start_ns", "thread_id", "correlation_id", "op_id"),
            *("action", "object_id", "address", "bytes", "kind", "allocator"),
        )
        for number, pid, thread, start, end, name, arguments, domain in db.rows(query):
            pid = pid or 0
            if thread is not None:
                self._threads.add((pid, thread))
            if name == "UserMarker" or domain == "roctx":
                kind = "mark" if start == end else "push_pop"
                self._annotations.add((pid, thread), pid, thread, start, end, kind, arguments or name)
                continue
            if domain in ("scratch", "kfd_page_migrate", "kfd_page_fault", "kfd_queue"):
                self._report.unplaced[f"{_API} of domain {domain}"] += 1
                continue
            op = self._annotations.operator_at((pid, thread), start)
            rows.add(pid, start, end, thread, _api_of(name), name, number, op)
            calls.add(number, pid, thread, op, end, name)
            if arguments and name and (name in _ALLOCATIONS or name in _FREES):
                self._allocation(allocations, (pid, start, thread, number, op), name, arguments)
            elif arguments:
                self._report.unplaced["arguments of a call"] += 1
        calls.flush()
        used = {"id", "pid", "tid", "start", "end", "apiName_id", "args_id", "domain_id"}
        self._report.unplaced.update(db.unplaced(_API, used))

    def _allocation(self, rows: Rows, call: tuple[Any, ...], name: str, arguments: str) -> None:
        """A call's arguments are text like ``ptr=0x7f95d3c00000 | size=0xa8200000``."""
        found = {key: int(value, 0) for key, value in _ARGUMENT.findall(arguments)}
        address, size = found.get("ptr"), found.get("size")
        if name in _ALLOCATIONS:
            number: int | None = self._objects.allocate(call[0], address, size)
            rows.add(*call, "alloc", number, address, size, _ALLOCATIONS[name], name)
        elif address:
            number, size = self._objects.free(call[0], address)
            rows.add(*call, "free", number, address, size, None, name)

    def _operations(self) -> None:
        db = self._db
        kernels = self._sink.table(
            "kernel",
            *("pid", "start_ns", "end_ns", "thread_id", "device_id", "stream_id", "correlation_id", "op_id"),
            *("launch_id", "name", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"),
            *("global_x", "global_y", "global_z", "static_shared_bytes", "local_bytes"),
        )
        copies = self._sink.table(
            "memcpy",
            *("pid", "start_ns", "end_ns", "thread_id", "device_id", "stream_id", "correlation_id", "op_id"),
            *("kind", "bytes", "src_device_id", "dst_device_id", "asynchronous"),
        )
        fills = self._sink.table(
            "memset", "pid", "start_ns", "end_ns", "thread_id", "device_id", "stream_id", "correlation_id", "op_id"
        )
        unified = self._sink.table("uvm", "pid", "start_ns", "end_ns", "kind", "cause", "dst_device_id")
        for operation in db.rows(self._operation_query()):
            start, end, device, queue, kind, text, call, pid, thread, op, call_end, name, stream = operation[:13]
            sizes, copied = operation[13:21], operation[21]
            if start is None:
                self._report.skipped[f"row of {_OP} without a start"] += 1
                continue
            if kind is None or kind in ("kfd_page_migrate", "kfd_page_fault"):
                if kind == "kfd_page_migrate":
                    unified.add(pid, start, end, *migration(text or "", None, None), None)
                elif kind == "kfd_page_fault":
                    unified.add(pid, start, end, "fault_gpu", fault_access(text or ""), device)
                else:
                    self._report.skipped[f"row of {_OP} without a type"] += 1
                continue
            where = (pid, start, end, thread, device, self._stream(pid, device, stream, queue), call, op)
            if kind == "KernelExecution":
                kernels.add(*where, self._launch(pid), text, *self._sizes(name, sizes))
            elif "copy" in kind.lower():
                direction = copy_kind(kind)
                direction = direction if direction != "unknown" else copy_kind(text)
                source = device if direction in ("d2h", "d2d") else None
                target = device if direction in ("h2d", "d2d") else None
                later = None if call_end is None or end is None else call_end < end
                copies.add(*where, direction, copied, source, target, later)
            elif kind == "FillBuffer":
                fills.add(*where)
            else:
                self._report.unplaced[f"{_OP} of type {kind}"] += 1
        used = {"id", "gpuId", "queueId", "start", "end", "description_id", "opType_id"}
        self._report.unplaced.update(db.unplaced(_OP, used))
        self._report.unplaced.update(db.unplaced(_COPY, {"api_ptr_id", "stream", "size", "kind"}))

    def _operation_query(self) -> str:
        db = self._db
        kernel, copy = (table if db.has(table, "api_ptr_id") else "" for table in (_KERNEL, _COPY))
        description, kernel_name = self._string(_OP, "description_id", "o"), self._string(kernel, "kernelName_id", "k")
        stream = f"coalesce({db.text(kernel, 'stream', 'k')}, {db.text(copy, 'stream', 'c')})"
        joins = "".join(
            f" LEFT JOIN {table} {alias} ON {alias}.api_ptr_id = l.call"
            for table, alias in ((kernel, "k"), (copy, "c"))
            if table
        )
        pids = {pid for pid, _ in self._threads}
        sole = next(iter(pids)) if len(pids) == 1 else 0
        columns = (
            *(self._numbers(_OP, "o", "start", "end", "gpuId", "queueId"), self._string(_OP, "opType_id", "o")),
            *(f"coalesce(NULLIF({description}, ''), {kernel_name})", "l.call", f"coalesce(a.pid, {sole})"),
            *("a.thread", "a.op", "a.end", "a.name", stream),
            self._numbers(kernel, "k", "gridX", "gridY", "gridZ", "workgroupX", "workgroupY", "workgroupZ"),
            self._numbers(kernel, "k", "groupSegmentSize", "privateSegmentSize"),
            self._numbers(copy, "c", "size"),
        )
        return (
            f"SELECT {', '.join(columns)} FROM {_OP} o LEFT JOIN temp.link l ON l.operation = o.id"
            f" LEFT JOIN temp.call a ON a.id = l.call{joins} GROUP BY o.id ORDER BY l.call, o_start"
        )

    def _launch(self, pid: int) -> int:
        self._launches[pid] = self._launches.get(pid, 0) + 1
        return self._launches[pid]

    def _sizes(self, call: str | None, sizes: Sequence[int | None]) -> tuple[int | None, ...]:
        """Return blocks, block, work-items, shared memory of a block and private memory of a work-item."""
        grid, block, (shared, private) = sizes[:3], sizes[3:6], sizes[6:]
        if self._db.has(_API, "domain_id") or call in _WORK_ITEM_CALLS:
            grids = [blocks(items, size) for items, size in zip(grid, block, strict=True)]
            return (*grids, *block, *grid, shared, private)
        return (*grid, *block, None, None, None, shared, private)

    def _stream(self, pid: int, device: int | None, stream: str | None, queue: int | None) -> int | None:
        number = self._streams(stream) if stream else queue
        if number is not None:
            self._used_streams[pid, number] = device
        if device is not None:
            self._devices.add((pid, device))
        return number

    def _identities(self) -> None:
        rows = self._sink.table("process", "pid")
        for pid in sorted({pid for pid, _ in self._threads}):
            rows.add(pid)
        rows = self._sink.table("thread", "pid", "thread_id")
        for pid, thread in sorted(self._threads):
            rows.add(pid, thread)
        rows = self._sink.table("device", "pid", "device_id", "vendor", "kind", "timestamps")
        for pid, device in sorted(self._devices):
            rows.add(pid, device, "AMD", "gpu", True)
        rows = self._sink.table("stream", "pid", "stream_id", "device_id", "name")
        for (pid, stream), device_of in sorted(self._used_streams.items(), key=lambda item: item[0]):
            rows.add(pid, stream, device_of, self._streams.names.get(stream))


def _api_of(name: str | None) -> str:
    prefixes = {"hip": "hip", "__hip": "hip", "hsa": "hsa", "nccl": "rccl"}
    return next((api for prefix, api in prefixes.items() if (name or "").startswith(prefix)), "other")


IMPORTERS: tuple[Importer, ...] = (RpdImporter(),)
