"""Device work of an Nsight Systems export: kernels, copies, fills, synchronisations and compilations."""

from __future__ import annotations

from pasta.importers.nsys.rows import RowMaker
from pasta.importers.nsys.target import NO_ID, pid_of
from pasta.importers.sqlite import Texts

_KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
_GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
_MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
_SYNC = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
_JIT = "CUPTI_ACTIVITY_KIND_JIT"

#: NVIDIA's names of copies, in the order of their numbers, and pasta's. 11 to 13 are migrations of unified memory.
COPY_NAMES = (
    *("UNKNOWN", "HTOD", "DTOH", "HTOA", "ATOH", "ATOA", "ATOD", "DTOA", "DTOD", "HTOH", "PTOP"),
    *("UVM_HTOD", "UVM_DTOH", "UVM_DTOD"),
)
_COPIES = {
    **{"UNKNOWN": "unknown", "HTOD": "h2d", "HTOA": "h2d", "DTOH": "d2h", "ATOH": "d2h", "HTOH": "h2h"},
    **{"DTOD": "d2d", "ATOA": "d2d", "ATOD": "d2d", "DTOA": "d2d", "PTOP": "p2p"},
}
MIGRATIONS = {"UVM_HTOD": "migrate_h2d", "UVM_DTOH": "migrate_d2h", "UVM_DTOD": "migrate_d2d"}

#: NVIDIA's names of kinds of memory, in the order of their numbers, and pasta's.
MEMORY_NAMES = ("PAGEABLE", "PINNED", "DEVICE", "ARRAY", "MANAGED", "DEVICE_STATIC", "MANAGED_STATIC", "UNKNOWN")
MEMORIES = {name: name.removesuffix("_STATIC").lower() for name in MEMORY_NAMES}

_SYNC_NAMES = ("UNKNOWN", "EVENT_SYNCHRONIZE", "STREAM_WAIT_EVENT", "STREAM_SYNCHRONIZE", "CONTEXT_SYNCHRONIZE")
_SYNCS = dict(zip(_SYNC_NAMES, ("unknown", "event", "stream_event", "stream", "context"), strict=True))


def copy_codes(make: RowMaker) -> tuple[dict[int, str], dict[int, str]]:
    """Return the numbers of copies and those of migrations, which share one enumeration."""
    codes = make.codes("ENUM_CUDA_MEMCPY_OPER", {**_COPIES, **MIGRATIONS}, COPY_NAMES)
    migrations = {number: kind for number, kind in codes.items() if kind in MIGRATIONS.values()}
    return {number: kind for number, kind in codes.items() if number not in migrations}, migrations


def memory_codes(make: RowMaker) -> dict[int, str]:
    """Return the numbers of kinds of memory."""
    return make.codes("ENUM_CUDA_MEM_KIND", MEMORIES, MEMORY_NAMES)


def read_work(make: RowMaker) -> None:
    """Import all device work that is not about unified memory."""
    _kernels(make)
    _copies(make)
    _fills(make)
    _synchronisations(make)
    make.copy(
        _JIT,
        "build",
        {
            "start_ns": make.time(_JIT, "start"),
            "end_ns": make.time(_JIT, "end"),
            "thread_id": f"{make.number(_JIT, 'globalTid')} & {0xFFFFFF}",
            "device_id": make.identity(_JIT, "deviceId"),
        },
    )
    make.leftovers(_JIT, "globalTid", "eventClass")


def _kernels(make: RowMaker) -> None:
    """Kernels, and whole graphs where ``--cuda-graph-trace=graph`` recorded these instead of their kernels."""
    own = {
        **{name: make.number(_KERNEL, name) for name in ("demangledName", "shortName", "mangledName")},
        **{f"grid_{axis}": make.number(_KERNEL, f"grid{axis.upper()}") for axis in "xyz"},
        **{f"block_{axis}": make.number(_KERNEL, f"block{axis.upper()}") for axis in "xyz"},
        **{f"cluster_{axis}": f"NULLIF({make.number(_KERNEL, f'cluster{axis.upper()}')}, 0)" for axis in "xyz"},
        "registers": make.number(_KERNEL, "registersPerThread"),
        "static_shared_bytes": make.number(_KERNEL, "staticSharedMemory"),
        "dynamic_shared_bytes": make.number(_KERNEL, "dynamicSharedMemory"),
        "local_bytes": make.number(_KERNEL, "localMemoryPerThread"),
        "graph_id": f"NULLIF({make.number(_KERNEL, 'graphId')}, 0)",
        "graph_node_id": f"NULLIF({make.number(_KERNEL, 'graphNodeId')}, 0)",
    }
    graph_id = f"coalesce({make.number(_GRAPH, 'graphExecId')}, {make.number(_GRAPH, 'graphId')})"
    graph = {**dict.fromkeys(own, "NULL"), "graph_id": graph_id}
    selects = [
        make.select(source, {"whole_graph": whole, **make.work(source), **columns})
        for source, columns, whole in ((_KERNEL, own, "0"), (_GRAPH, graph, "1"))
        if source in make.db.tables
    ]
    if not selects:
        return
    common = list(make.work(_KERNEL))
    thread, sizes = common.index("thread_id"), list(own)[3:]
    rows = make.sink.table("kernel", "pid", "launch_id", *common, "name", "mangled", *sizes)
    texts = Texts(make.db, "StringIds", "value")
    launches: dict[int, int] = {}
    orphans = 0
    for row in make.db.rows(f"{' UNION ALL '.join(selects)} ORDER BY process, correlation_id, start_ns"):
        process, whole, *work = row[: 2 + len(common)]
        demangled, short, mangled = map(texts, row[2 + len(common) : 5 + len(common)])
        own_sizes = row[5 + len(common) :]
        launches[process] = launches.get(process, 0) + 1
        name = f"CUDA graph {own_sizes[sizes.index('graph_id')]}" if whole else demangled or short or mangled
        rows.add(pid_of(process), launches[process], *work, name, None if mangled == name else mangled, *own_sizes)
        orphans += work[thread] is None
    if orphans:
        make.report.unmatched["kernel whose launching call is not in the file"] += orphans
    if count := make.db.count(_GRAPH):
        make.report.notes.append(
            f"{count} rows of kernel are whole CUDA graphs, which nsys recorded as one;"
            " nsys profile --cuda-graph-trace=node records their kernels"
        )
    make.leftovers(
        _KERNEL,
        *("demangledName", "shortName", "mangledName", "registersPerThread", "staticSharedMemory"),
        *("dynamicSharedMemory", "localMemoryPerThread", "graphNodeId", "graphId"),
        *(f"{part}{axis}" for part in ("grid", "block", "cluster") for axis in "XYZ"),
    )
    make.leftovers(_GRAPH, "graphId", "graphExecId")


def _copies(make: RowMaker) -> None:
    copies, migrations = copy_codes(make)
    memories = memory_codes(make)
    kind = make.decode(_MEMCPY, "copyKind", copies)
    device = make.identity(_MEMCPY, "deviceId")
    make.copy(
        _MEMCPY,
        "memcpy",
        {
            **make.work(_MEMCPY),
            "kind": f"coalesce({kind}, 'unknown')",
            "bytes": make.number(_MEMCPY, "bytes"),
            "src_kind": make.decode(_MEMCPY, "srcKind", memories),
            "dst_kind": make.decode(_MEMCPY, "dstKind", memories),
            # Nsight fills these in for copies between devices only.
            "src_device_id": f"coalesce({make.identity(_MEMCPY, 'srcDeviceId')},"
            f" CASE WHEN {kind} IN ('d2h', 'd2d') THEN {device} END)",
            "dst_device_id": f"coalesce({make.identity(_MEMCPY, 'dstDeviceId')},"
            f" CASE WHEN {kind} IN ('h2d', 'd2d') THEN {device} END)",
            "asynchronous": f"l.end < {make.time(_MEMCPY, 'end')}",
            "graph_node_id": f"NULLIF({make.number(_MEMCPY, 'graphNodeId')}, 0)",
        },
        where=_not_among(make.number(_MEMCPY, "copyKind"), migrations),
    )
    make.leftovers(
        _MEMCPY,
        *("bytes", "copyKind", "srcKind", "dstKind", "srcDeviceId", "dstDeviceId", "graphNodeId"),
        *("migrationCause", "virtualAddress"),
    )


def _not_among(number: str, codes: dict[int, str]) -> str:
    return f"coalesce({number}, -1) NOT IN ({', '.join(map(str, codes))})"


def _fills(make: RowMaker) -> None:
    make.copy(
        _MEMSET,
        "memset",
        {
            **make.work(_MEMSET),
            "bytes": make.number(_MEMSET, "bytes"),
            "value": make.number(_MEMSET, "value"),
            "memory_kind": make.decode(_MEMSET, "memKind", memory_codes(make)),
            "graph_node_id": f"NULLIF({make.number(_MEMSET, 'graphNodeId')}, 0)",
        },
    )
    make.leftovers(_MEMSET, "bytes", "value", "memKind", "graphNodeId")


def _synchronisations(make: RowMaker) -> None:
    """The call's name says what was waited for; the record alone does only when it names that event."""
    kind = make.decode(_SYNC, "syncType", make.codes("ENUM_CUPTI_SYNC_TYPE", _SYNCS, _SYNC_NAMES))
    no_event = f"coalesce({make.number(_SYNC, 'eventId')}, {NO_ID}) = {NO_ID}"
    make.copy(
        _SYNC,
        "sync",
        {
            **make.work(_SYNC),
            "device_id": f"(SELECT device FROM temp.context WHERE pid = ({make.process(_SYNC)}) & {0xFFFFFF}"
            f" AND context = {make.number(_SYNC, 'contextId')})",
            "kind": f"coalesce(l.wait, CASE WHEN {kind} = 'event' AND {no_event} THEN 'unknown' ELSE {kind} END,"
            " 'unknown')",
        },
    )
    make.leftovers(_SYNC, "syncType", "deprecatedSyncType")
