"""Memory in an Nsight Systems export: migrations and faults of unified memory, allocations.

The tables of faults and allocations exist only when ``nsys profile`` ran with ``--cuda-um-gpu-page-faults``,
``--cuda-um-cpu-page-faults`` and ``--cuda-memory-usage``. No public file has them: they are read as NVIDIA's exporter
documentation describes them.
"""

from __future__ import annotations

from pasta.importers.addresses import AddressMap
from pasta.importers.nsys.rows import RowMaker
from pasta.importers.nsys.target import pid_of
from pasta.importers.nsys.work import copy_codes, memory_codes

_MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
_GPU_FAULT = "CUDA_UM_GPU_PAGE_FAULT_EVENTS"
_CPU_FAULT = "CUDA_UM_CPU_PAGE_FAULT_EVENTS"
_USAGE = "CUDA_GPU_MEMORY_USAGE_EVENTS"

_CAUSE_NAMES = ("UNKNOWN", "USER", "COHERENCE", "PREFETCH", "EVICTION", "ACCESS_COUNTERS")
_CAUSES = dict(
    zip(_CAUSE_NAMES, ("unknown", "prefetch", "fault", "speculative", "eviction", "access_counter"), strict=True)
)
_ACCESS_NAMES = ("UNKNOWN", "READ", "WRITE", "ATOMIC", "PREFETCH")
_ACCESSES = {name: name.lower() for name in _ACCESS_NAMES}


def read_memory(make: RowMaker, objects: AddressMap) -> None:
    """Import everything about unified memory and, with ``objects`` for their numbers, about allocations."""
    _migrations(make)
    _faults(make)
    _allocations(make, objects)


def _migrations(make: RowMaker) -> None:
    """Migrations share a table with copies, but no stream ran them and no call started them."""
    _, migrations = copy_codes(make)
    kind = make.decode(_MEMCPY, "copyKind", migrations)
    device = make.identity(_MEMCPY, "deviceId")
    make.copy(
        _MEMCPY,
        "uvm",
        {
            "start_ns": make.time(_MEMCPY, "start"),
            "end_ns": make.time(_MEMCPY, "end"),
            "kind": kind,
            "address": make.number(_MEMCPY, "virtualAddress"),
            "bytes": make.number(_MEMCPY, "bytes"),
            "cause": make.decode(
                _MEMCPY, "migrationCause", make.codes("ENUM_CUDA_UNIF_MEM_MIGRATION", _CAUSES, _CAUSE_NAMES)
            ),
            "src_device_id": f"CASE {kind} WHEN 'migrate_d2h' THEN {device}"
            f" WHEN 'migrate_d2d' THEN coalesce({make.identity(_MEMCPY, 'srcDeviceId')}, {device}) END",
            "dst_device_id": f"CASE {kind} WHEN 'migrate_h2d' THEN {device}"
            f" WHEN 'migrate_d2d' THEN {make.identity(_MEMCPY, 'dstDeviceId')} END",
        },
        where=f"{kind} IS NOT NULL",
    )


def _faults(make: RowMaker) -> None:
    access = make.codes("ENUM_CUDA_UNIF_MEM_ACCESS_TYPE", _ACCESSES, _ACCESS_NAMES)
    make.copy(
        _GPU_FAULT,
        "uvm",
        {
            "start_ns": make.time(_GPU_FAULT, "start"),
            "end_ns": make.time(_GPU_FAULT, "end"),
            "kind": "'fault_gpu'",
            "address": make.number(_GPU_FAULT, "address"),
            "cause": make.decode(_GPU_FAULT, "faultAccessType", access),
            "dst_device_id": make.identity(_GPU_FAULT, "deviceId"),
            "count": make.number(_GPU_FAULT, "numberOfPageFaults"),
        },
    )
    make.leftovers(_GPU_FAULT, "address", "numberOfPageFaults", "faultAccessType")
    make.copy(
        _CPU_FAULT,
        "uvm",
        {
            "start_ns": make.time(_CPU_FAULT, "start"),
            "kind": "'fault_cpu'",
            "address": make.number(_CPU_FAULT, "address"),
            "count": "1",
        },
    )
    make.leftovers(_CPU_FAULT, "address")


def _allocations(make: RowMaker, objects: AddressMap) -> None:
    if _USAGE not in make.db.tables:
        return
    memories = memory_codes(make)
    pooled = f"NULLIF({make.number(_USAGE, 'localMemoryPoolAddress')}, 0) IS NOT NULL"
    columns = {
        "start_ns": make.time(_USAGE, "start"),
        "thread_id": "l.thread",
        **{f"{name}_id": make.identity(_USAGE, f"{name}Id") for name in ("device", "context", "stream")},
        "correlation_id": f"NULLIF({make.number(_USAGE, 'correlationId')}, 0)",
        "op_id": "l.op",
        "kind": f"CASE WHEN {pooled} THEN 'pool' ELSE {make.decode(_USAGE, 'memKind', memories)} END",
        "address": make.number(_USAGE, "address"),
        "bytes": make.number(_USAGE, "bytes"),
        "operation": make.number(_USAGE, "memoryOperationType"),
    }
    rows = make.sink.table("alloc", "pid", "action", "object_id", "bytes", *list(columns)[:-2])
    for process, *values, address, size, operation in make.db.rows(f"{make.select(_USAGE, columns)} ORDER BY start_ns"):
        if operation not in (0, 1):
            make.report.skipped[f"row of {_USAGE} that is neither an allocation nor a free"] += 1
            continue
        number: int | None
        if operation == 0:
            number = objects.allocate(process, address, size)
        else:
            number, known = objects.free(process, address)
            size = size or known
            if number is None:
                make.report.unmatched["free of memory whose allocation is not in the file"] += 1
        rows.add(pid_of(process), ("alloc", "free")[operation], number, size, *values, address)
    make.leftovers(_USAGE, "address", "bytes", "memKind", "memoryOperationType", "localMemoryPoolAddress")
