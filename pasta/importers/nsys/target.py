"""What an Nsight Systems export says about processes, devices, contexts, streams and threads.

A *global id* packs where something happened (NVIDIA's exporter documentation)::

    globalTid = hardware (8 bits) | VM (8) | process (24) | thread (24)          globalPid: the same with thread 0

so ``globalTid >> 24`` is one key of a process for every table. Everything here is optional: exports that were trimmed
keep events and drop their descriptions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pasta.importers.base import Sink
from pasta.importers.nsys.nvtx import NvtxNames
from pasta.importers.sqlite import Database, quote

#: Tables whose rows name the device that did something. Those of synchronisations say device 0 whatever the context.
DEVICE_TABLES = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "CUDA_GPU_MEMORY_USAGE_EVENTS",
    "CUDA_UM_GPU_PAGE_FAULT_EVENTS",
)
#: Other tables whose rows belong to a process.
PROCESS_TABLES = ("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "CUDA_UM_CPU_PAGE_FAULT_EVENTS")
#: Tables whose rows belong to a thread.
THREAD_TABLES = ("CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_JIT")

#: Where launchers put rank, rank on the host and number of ranks, in the order in which they are believed.
_RANK_VARIABLES = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_LOCAL_RANK", "PMI_SIZE"),
    ("RANK", "LOCAL_RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"),
)

#: What CUPTI writes for "no stream", "no context".
NO_ID = 0xFFFFFFFF


@dataclass
class Target:
    """The processes that have events, by process key (``globalTid >> 24``), and what is known about them."""

    processes: set[int] = field(default_factory=set)
    #: Rank of a process id; and of a job of which only one process is in the file, its local rank and size.
    ranks: dict[int, int] = field(default_factory=dict)
    local_rank: int | None = None
    world_size: int | None = None
    command: str | None = None
    #: Devices and contexts that are used or described: (process id, device), (process id, context) -> device.
    devices: set[tuple[int, int]] = field(default_factory=set)
    contexts: dict[tuple[int, int], int | None] = field(default_factory=dict)
    streams: dict[tuple[int, int], int | None] = field(default_factory=dict)

    @property
    def sole(self) -> int:
        """The process that owns rows without a global id: the only one of the file, else 0."""
        return next(iter(self.processes)) if len(self.processes) == 1 else 0


def pid_of(key: int) -> int:
    """Return the process id of a process key."""
    return key & 0xFFFFFF


def find_target(db: Database) -> Target:
    """Return the processes that have events, and leave ``temp.context`` for rows that name only their context."""
    target = Target()
    for table in (*DEVICE_TABLES, *PROCESS_TABLES):
        target.processes |= _keys(db, table, "globalPid")
    for table in THREAD_TABLES:
        target.processes |= _keys(db, table, "globalTid")
    if len(target.processes) == 1:  # else these belong to the launcher that nsys started: mpirun, torchrun
        settings = _texts(db, "META_DATA_CAPTURE")
        target.command = _command(settings)
        rank, target.local_rank, target.world_size = _rank(settings)
        if rank is not None:
            target.ranks[pid_of(target.sole)] = rank
    for thread, rank in _rows(db, "MPI_RANKS", "globalTid", "rank"):
        if thread is not None and rank is not None:
            target.ranks[pid_of(thread >> 24)] = rank
    _find_contexts(db, target)
    contexts = db.create("context", "pid INTEGER", "context INTEGER", "device INTEGER", "PRIMARY KEY (pid, context)")
    for key, device in target.contexts.items():
        contexts.add(*key, device)
    contexts.flush()
    return target


def _find_contexts(db: Database, target: Target) -> None:
    for table in DEVICE_TABLES:
        if not db.has(table, "globalPid", "deviceId"):
            continue
        columns = ", ".join(db.column(table, name) for name in ("globalPid", "deviceId", "contextId", "streamId"))
        for key, device, context, stream in db.rows(f"SELECT DISTINCT {columns} FROM {table}"):
            pid = pid_of((key or 0) >> 24)
            if device is not None and 0 <= device < NO_ID:
                target.devices.add((pid, device))
            # Migrations and faults of unified memory carry context 0 and stream 0, which name nothing.
            if context and context != NO_ID:
                target.contexts[pid, context] = device
                if stream and stream != NO_ID:
                    target.streams[pid, stream] = context
    pids = {pid_of(key) for key in target.processes}
    for table in ("TARGET_INFO_CUDA_NULL_STREAM", "TARGET_INFO_CUDA_CONTEXT_INFO"):
        for pid, context, device in _rows(db, table, "processId", "contextId", "deviceId"):
            if pid in pids and context is not None:
                target.contexts.setdefault((pid, context), device)


def read_target(db: Database, sink: Sink, target: Target, names: NvtxNames) -> None:
    """Import the identity tables: process, thread, device, context and stream."""
    system = dict(_texts(db, "TARGET_INFO_SYSTEM_ENV"))
    _processes(db, sink, target, system.get("Hostname"))
    _threads(db, sink, names)
    _contexts_and_streams(db, sink, target)
    _devices(db, sink, target, system)


def _processes(db: Database, sink: Sink, target: Target, host: str | None) -> None:
    executables: dict[int, str] = {}
    if "PROCESSES" in db.tables:
        columns = f"{db.column('PROCESSES', 'globalPid')}, {db.text('PROCESSES', 'name')}"
        executables = {key >> 24: name for key, name in db.rows(f"SELECT {columns} FROM PROCESSES") if key is not None}
    rows = sink.table("process", "pid", "local_rank", "world_size", "host", "command", "executable")
    for key in sorted(target.processes):
        rows.add(pid_of(key), target.local_rank, target.world_size, host, target.command, executables.get(key))


def _command(settings: Iterable[tuple[str, str]]) -> str | None:
    words = {name: value for name, value in settings if re.fullmatch(r"PROCESS_0:(COMMAND|ARGUMENT_\d{1,6})", name)}
    if "PROCESS_0:COMMAND" not in words:
        return None
    arguments = sorted((int(name.rpartition("_")[2]), value) for name, value in words.items() if "ARGUMENT" in name)
    return " ".join([words["PROCESS_0:COMMAND"], *(value for _, value in arguments)])


def _rank(settings: Iterable[tuple[str, str]]) -> tuple[int | None, int | None, int | None]:
    """Return rank, rank on the host and number of ranks from the environment of the launched process.

    A variable is recorded as ``NAME="value"``. A job of one rank, which is what an interactive Slurm session looks
    like, counts as none.
    """
    environment = {}
    for name, value in settings:
        if name == "PROCESS_0:ENVIRONMENT_VARIABLE":
            variable, _, quoted = value.partition("=")
            text = quoted.strip('"')
            if text.isdecimal() and len(text) < 10:
                environment[variable] = int(text)
    for rank, local_rank, size in _RANK_VARIABLES:
        if rank in environment and environment.get(size) != 1:
            return environment[rank], environment.get(local_rank), environment.get(size)
    return None, None, None


def _threads(db: Database, sink: Sink, names: NvtxNames) -> None:
    seen: set[int] = set()
    for table in THREAD_TABLES:
        if db.has(table, "globalTid"):
            found = db.rows(f"SELECT DISTINCT globalTid FROM {table} WHERE typeof(globalTid) = 'integer'")
            seen.update(row[0] for row in found)
    known: dict[int, str] = {}
    if db.has("ThreadNames", "globalTid", "nameId") and db.has("StringIds", "id", "value"):
        query = (
            "SELECT globalTid, CAST(value AS TEXT) FROM ThreadNames JOIN StringIds ON id = nameId"
            " WHERE typeof(globalTid) = 'integer'"
        )
        known = dict(db.rows(query))
    known |= names.threads
    rows = sink.table("thread", "pid", "thread_id", "name")
    for thread in sorted(seen):
        rows.add(pid_of(thread >> 24), thread & 0xFFFFFF, known.get(thread))


def _contexts_and_streams(db: Database, sink: Sink, target: Target) -> None:
    pids = {pid_of(key) for key in target.processes}
    priorities: dict[tuple[int, int], int | None] = {}
    for pid, stream, context, priority in _rows(
        db, "TARGET_INFO_CUDA_STREAM", "processId", "streamId", "contextId", "priority"
    ):
        if pid in pids and stream is not None:
            priorities[pid, stream] = _signed(priority)
            target.streams.setdefault((pid, stream), context)
    named = _stream_names(db)
    rows = sink.table("context", "pid", "context_id", "device_id", "api")
    for (pid, context), device in sorted(target.contexts.items()):
        rows.add(pid, context, device, "cuda_driver")
    rows = sink.table("stream", "pid", "stream_id", "context_id", "device_id", "name", "priority")
    for (pid, stream), of in sorted(target.streams.items()):
        device = None if of is None else target.contexts.get((pid, of))
        rows.add(pid, stream, of, device, named.get((pid, stream)), priorities.get((pid, stream)))


def _stream_names(db: Database) -> dict[tuple[int, int], str]:
    table = "TARGET_INFO_NVTX_CUDA_STREAM"
    if not db.has(table, "name", "processId", "streamId"):
        return {}
    columns = f"{db.column(table, 'processId')}, {db.column(table, 'streamId')}, {db.text(table, 'name')}"
    return {(pid, stream): name for pid, stream, name in db.rows(f"SELECT {columns} FROM {table}")}


def _signed(number: int | None) -> int | None:
    """Return a 32-bit number that was exported as unsigned; a stream's priority is 0 or negative."""
    return number - (1 << 32) if number is not None and number >= 1 << 31 else number


def _devices(db: Database, sink: Sink, target: Target, system: Mapping[str, str]) -> None:
    """``TARGET_INFO_CUDA_DEVICE`` maps what a process calls device N to a GPU; without it both numbers are equal."""
    gpus = {row["id"]: row for row in _gpus(db)}
    ordinals = {
        (pid, device): gpu for gpu, device, pid in _rows(db, "TARGET_INFO_CUDA_DEVICE", "gpuId", "cudaId", "pid")
    }
    number = system.get("CudaDriverVersion", "")
    version = int(number) if number.isdecimal() and len(number) < 7 else 0
    platform = f"CUDA {version // 1000}.{version % 1000 // 10}" if version else None
    rows = sink.table(
        "device",
        *("pid", "device_id", "vendor", "name", "kind", "platform", "driver", "uuid", "pci", "memory_bytes"),
        *("multiprocessors", "warp_size", "cache_bytes", "shared_bytes", "clock_khz", "architecture", "timestamps"),
    )
    for pid, device in sorted(target.devices):
        gpu = gpus.get(ordinals.get((pid, device), device), {})
        hertz, major, minor = gpu.get("clockRate"), gpu.get("computeMajor"), gpu.get("computeMinor")
        rows.add(
            *(pid, device, "NVIDIA", gpu.get("name"), "gpu", platform, system.get("NvDriverVersion")),
            *(gpu.get("uuid"), gpu.get("busLocation"), gpu.get("totalMemory"), gpu.get("smCount")),
            *(gpu.get("threadsPerWarp"), gpu.get("l2CacheSize"), gpu.get("maxShmemPerSm")),
            *(None if hertz is None else hertz // 1000, None if major is None else f"{major}.{minor or 0}", True),
        )


def _gpus(db: Database) -> list[dict[str, Any]]:
    table = "TARGET_INFO_GPU"
    numbers = (
        *("id", "totalMemory", "smCount", "threadsPerWarp", "l2CacheSize", "maxShmemPerSm", "clockRate"),
        *("computeMajor", "computeMinor"),
    )
    texts = ("name", "uuid", "busLocation")
    if table not in db.tables:
        return []
    columns = [db.column(table, name) for name in numbers] + [db.text(table, name) for name in texts]
    return [
        dict(zip((*numbers, *texts), row, strict=True)) for row in db.rows(f"SELECT {', '.join(columns)} FROM {table}")
    ]


def _keys(db: Database, table: str, column: str) -> set[int]:
    if not db.has(table, column):
        return set()
    found = db.rows(f"SELECT DISTINCT {column} >> 24 FROM {quote(table)} WHERE typeof({column}) = 'integer'")
    return {row[0] for row in found}


def _rows(db: Database, table: str, *columns: str) -> list[tuple[Any, ...]]:
    """Return whole numbers of a small table; no rows when the table is not there."""
    if table not in db.tables:
        return []
    return list(db.rows(f"SELECT {', '.join(db.column(table, name) for name in columns)} FROM {quote(table)}"))


def _texts(db: Database, table: str) -> list[tuple[str, str]]:
    """Return a table of names and values; no rows when the table is not there."""
    if not db.has(table, "name", "value"):
        return []
    return [(str(name), str(value)) for name, value in db.rows(f"SELECT name, value FROM {quote(table)}")]
