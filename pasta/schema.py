"""The list of tables and columns of a trace: the one place where they are declared.

The C++ record structs (``csrc/schema``), the Parquet schema, ``pasta schema`` and ``docs/schema.md`` are
derived from this module; ``scripts/codegen.py`` regenerates them and a test fails when they are stale.

Conventions, for every table:

* Times are ``int64`` nanoseconds since the trace's clock anchor (see the ``clock`` table and the manifest).
* A value that the source cannot know is null, never 0.
* Ids are unique within one ``pid``; ``pid`` and ``rank`` are added when a trace is sealed.
* Sizes are in bytes, addresses are ``int64``.
* In the *identity* tables (``key`` set), rows with an equal key describe the same thing: the last
  non-null value of each column wins, so a backend may fill in an end time later.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

#: Incremented when a table or column changes meaning. Readers accept any trace with an equal or lower
#: version; columns may be added without a new version.
SCHEMA_VERSION = 1


class Type(Enum):
    """Column types: the C++ type, and the size in bytes in a shard."""

    I64 = "int64"
    I32 = "int32"
    F64 = "float64"
    BOOL = "bool"
    STR = "string"
    ENUM = "enum"


@dataclass(frozen=True)
class Column:
    """One column: its name, type, unit (``ns``, ``bytes``, ``count``, ``id`` or ``""``) and meaning."""

    name: str
    type: Type
    unit: str
    meaning: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """One table: ``id`` is its number in shards and never changes; ``key`` makes it an identity table."""

    id: int
    name: str
    meaning: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()

    def column(self, name: str) -> Column:
        """Return the column called ``name``; raises ``KeyError`` when there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(f"table {self.name} has no column {name}")


def _i64(name: str, unit: str, meaning: str) -> Column:
    return Column(name, Type.I64, unit, meaning)


def _i32(name: str, unit: str, meaning: str) -> Column:
    return Column(name, Type.I32, unit, meaning)


def _bool(name: str, meaning: str) -> Column:
    return Column(name, Type.BOOL, "", meaning)


def _str(name: str, meaning: str) -> Column:
    return Column(name, Type.STR, "", meaning)


def _enum(name: str, values: tuple[str, ...], meaning: str) -> Column:
    return Column(name, Type.ENUM, "", meaning, values)


_START = _i64("start_ns", "ns", "begin")
_END = _i64("end_ns", "ns", "end")
_AT = _i64("start_ns", "ns", "when it happened")
_THREAD = _i32("thread_id", "id", "OS thread that issued it")
_DEVICE = _i32("device_id", "id", "row of `device`")
_CONTEXT = _i32("context_id", "id", "row of `context`")
_STREAM = _i32("stream_id", "id", "row of `stream` (CUDA/HIP stream, OpenCL command queue)")
_CORRELATION = _i64("correlation_id", "id", "joins an `api` call with the device work it started")
_OP = _i64("op_id", "id", "row of `op` that was running on the launching thread")
_GRAPH = (
    _i64("graph_id", "id", "executable graph that launched it"),
    _i64("graph_node_id", "id", "node within that graph"),
)
_QUEUED = (
    _i64("queued_ns", "ns", "when the host enqueued it"),
    _i64("submitted_ns", "ns", "when the runtime handed it to the device"),
)
_WHERE = (_THREAD, _DEVICE, _CONTEXT, _STREAM, _CORRELATION, _OP)

#: Kinds of memory, for `alloc.kind` and the two sides of a copy.
MEMORY_KINDS = (
    "unknown",
    "pageable",
    "pinned",
    "device",
    "array",
    "managed",
    "pool",
    "virtual",
    "image",
    "sub_buffer",
    "svm",
    "pipe",
    "host_usm",
    "device_usm",
    "shared_usm",
)
SPACES = ("unknown", "global", "shared", "local", "constant", "image", "pipe", "generic")
APIS = ("unknown", "cuda_runtime", "cuda_driver", "hip", "hsa", "opencl", "level_zero", "rccl", "nccl", "other")
SOURCES = ("unknown", "nvtx", "roctx", "itt", "record_function", "pasta", "jax")

_TABLES: tuple[Table, ...] = (
    Table(
        1,
        "process",
        "one process image that was recorded",
        (
            _START,
            _END,
            _i32("parent_pid", "id", "parent process"),
            _i32("rank", "id", "rank in the job, from the launcher's environment"),
            _i32("local_rank", "id", "rank on this host"),
            _i32("world_size", "count", "ranks in the job"),
            _str("host", "host name"),
            _str("command", "command line"),
            _str("executable", "path of the program"),
            _i32("exit_status", "", "exit status, when the process ended by exit"),
            _i32("exit_signal", "", "signal that ended the process"),
            _str("how_ended", "exit, _exit, exec or killed; null while running"),
            _str("backends", "backends that saw a device or framework, each with how it was validated"),
        ),
        key=("pid", "start_ns"),
    ),
    Table(
        2,
        "thread",
        "host threads that issued work",
        (_THREAD, _str("name", "thread name"), _START, _END),
        key=("pid", "thread_id"),
    ),
    Table(
        3,
        "device",
        "accelerators seen",
        (
            _DEVICE,
            _str("vendor", "vendor name"),
            _str("name", "device name"),
            _enum("kind", ("unknown", "gpu", "cpu", "accelerator"), "kind of device"),
            _str("platform", "driver stack and its version"),
            _str("driver", "driver version"),
            _str("uuid", "unique id"),
            _str("pci", "PCI address"),
            _i64("memory_bytes", "bytes", "global memory"),
            _i32("multiprocessors", "count", "SMs, CUs or compute units"),
            _i32("warp_size", "count", "lanes executed together, or compared where that is no fixed number; or null"),
            _i32("line_bytes", "bytes", "cache line"),
            _i64("cache_bytes", "bytes", "last-level cache of the device"),
            _i64("shared_bytes", "bytes", "shared (local) memory of one multiprocessor"),
            _i32("clock_khz", "kHz", "maximum core clock"),
            _str("architecture", "compute capability, gfx name or OpenCL version"),
            _bool("timestamps", "the device reports start and end times"),
        ),
        key=("pid", "device_id"),
    ),
    Table(
        4,
        "context",
        "contexts created",
        (_CONTEXT, _DEVICE, _enum("api", APIS, "API that owns it"), _START, _END),
        key=("pid", "context_id"),
    ),
    Table(
        5,
        "stream",
        "streams and command queues",
        (
            _STREAM,
            _CONTEXT,
            _DEVICE,
            _str("name", "name, where the program gave one"),
            _i32("priority", "", "priority, lower is more urgent"),
            _bool("out_of_order", "commands may overlap and reorder"),
            _START,
            _END,
        ),
        key=("pid", "stream_id"),
    ),
    Table(
        6,
        "api",
        "calls of a device runtime or driver",
        (
            _START,
            _END,
            _THREAD,
            _enum("api", APIS, "which API"),
            _str("name", "function name"),
            _i32("result", "", "return code; 0 is success"),
            _CORRELATION,
            _OP,
        ),
    ),
    Table(
        7,
        "kernel",
        "one kernel launch",
        (
            _START,
            _END,
            *_QUEUED,
            *_WHERE,
            _i64("launch_id", "id", "number of the launch, in launch order"),
            _str("name", "readable name"),
            _str("mangled", "name in the binary, where it differs"),
            _i32("grid_x", "count", "thread blocks (work-groups) in x"),
            _i32("grid_y", "count", "in y"),
            _i32("grid_z", "count", "in z"),
            _i32("block_x", "count", "threads (work-items) of a block in x; null where the runtime chose it"),
            _i32("block_y", "count", "in y"),
            _i32("block_z", "count", "in z"),
            _i64("global_x", "count", "work-items in x, where the API states them (OpenCL, HSA)"),
            _i64("global_y", "count", "in y"),
            _i64("global_z", "count", "in z"),
            _i32("cluster_x", "count", "blocks of a cluster in x"),
            _i32("cluster_y", "count", "in y"),
            _i32("cluster_z", "count", "in z"),
            _i32("registers", "count", "registers a thread"),
            _i32("static_shared_bytes", "bytes", "static shared memory a block"),
            _i32("dynamic_shared_bytes", "bytes", "dynamic shared memory a block"),
            _i64("local_bytes", "bytes", "local (private) memory a thread"),
            *_GRAPH,
            _bool("compiled", "the launch waited for a just-in-time compilation"),
        ),
    ),
    Table(
        8,
        "memcpy",
        "copies, and mappings of device memory into the host",
        (
            _START,
            _END,
            *_QUEUED,
            *_WHERE,
            _enum(
                "kind",
                ("unknown", "h2d", "d2h", "d2d", "h2h", "p2p", "map", "unmap"),
                "direction; map/unmap make device memory visible to the host and may move nothing",
            ),
            _i64("bytes", "bytes", "bytes copied or mapped"),
            _enum("src_kind", MEMORY_KINDS, "source memory"),
            _enum("dst_kind", MEMORY_KINDS, "destination memory"),
            _i32("src_device_id", "id", "source device"),
            _i32("dst_device_id", "id", "destination device"),
            _i64("src_object_id", "id", "source `alloc.object_id`"),
            _i64("dst_object_id", "id", "destination `alloc.object_id`"),
            _bool("asynchronous", "the call returned before the copy was done"),
            *_GRAPH,
        ),
    ),
    Table(
        9,
        "memset",
        "fills of device memory",
        (
            _START,
            _END,
            *_QUEUED,
            *_WHERE,
            _i64("bytes", "bytes", "bytes written"),
            _i64("value", "", "value, where it fits 8 bytes"),
            _i64("object_id", "id", "`alloc.object_id` written"),
            _enum("memory_kind", MEMORY_KINDS, "memory written"),
            *_GRAPH,
        ),
    ),
    Table(
        10,
        "sync",
        "the host or a stream waited for the device",
        (
            _START,
            _END,
            *_WHERE,
            _enum("kind", ("unknown", "device", "context", "stream", "event", "stream_event"), "what was waited for"),
        ),
    ),
    Table(
        11,
        "alloc",
        "memory objects created and freed",
        (
            _AT,
            _THREAD,
            _DEVICE,
            _CONTEXT,
            _STREAM,
            _CORRELATION,
            _OP,
            _enum("action", ("alloc", "free"), "created or freed"),
            _i64("object_id", "id", "the object: equal in its alloc and its free"),
            _i64("parent_object_id", "id", "object that this is a part of (sub-buffer, pool block)"),
            _i64("address", "", "device address; null where the API hides it"),
            _i64("bytes", "bytes", "size (also in the free)"),
            _enum("kind", MEMORY_KINDS, "kind of memory"),
            _str("allocator", "function or allocator that made it"),
        ),
    ),
    Table(
        12,
        "uvm",
        "unified memory: page migrations, faults and hints",
        (
            _START,
            _END,
            _enum(
                "kind",
                (
                    "unknown",
                    "migrate_h2d",
                    "migrate_d2h",
                    "migrate_d2d",
                    "fault_cpu",
                    "fault_gpu",
                    "thrash",
                    "throttle",
                    "remote_map",
                ),
                "what happened",
            ),
            _i64("address", "", "first byte"),
            _i64("bytes", "bytes", "bytes concerned"),
            _str("cause", "prefetch, fault, speculative, eviction, access_counter, ..."),
            _i32("src_device_id", "id", "device that gave the pages; null is the host"),
            _i32("dst_device_id", "id", "device that took the pages; null is the host"),
            _i64("count", "count", "faults or events in this record"),
            _STREAM,
        ),
    ),
    Table(
        13,
        "op",
        "framework operators",
        (
            _START,
            _END,
            _THREAD,
            _OP,
            _i64("parent_id", "id", "`op_id` of the operator that called it"),
            _str("name", "operator name"),
            _enum(
                "phase",
                ("other", "forward", "backward", "optimizer"),
                "backward: inside autograd's engine; optimizer: inside an optimizer's step or zero_grad; "
                "forward: elsewhere with gradients on when the outermost operator began; other: gradients off",
            ),
            _i64("sequence", "id", "number that joins a backward operator with its forward one"),
            _str("module", "module path, for example `layers.0.attention`"),
            _str("shapes", "input shapes as text"),
        ),
    ),
    Table(
        14,
        "tensor",
        "framework allocations",
        (
            _AT,
            _THREAD,
            _enum("action", ("alloc", "free"), "created or freed"),
            _i64("address", "", "address"),
            _i64("bytes", "bytes", "size (also in the free)"),
            _i64("allocated_bytes", "bytes", "allocator's total in use after this, on this device"),
            _i64("reserved_bytes", "bytes", "allocator's total reserved after this, on this device"),
            _str("device_type", "cpu, cuda, hip, xpu, ..."),
            _i32("device_index", "id", "framework's device number"),
            _OP,
            _i64("tensor_id", "id", "this allocation, in its free too; device memory in a memory pass only"),
        ),
    ),
    Table(
        15,
        "range",
        "annotations",
        (
            _START,
            _END,
            _THREAD,
            _i64("range_id", "id", "this range"),
            _i64("parent_id", "id", "`range_id` of the enclosing range of the thread"),
            _str("name", "text"),
            _str("domain", "NVTX domain"),
            _str("category", "NVTX category"),
            _enum("kind", ("push_pop", "start_end", "mark"), "nested, free or instantaneous"),
            _enum("source", SOURCES, "who wrote it"),
        ),
    ),
    Table(
        16,
        "stack",
        "interned call stacks: each row is one frame and its caller",
        (
            _i64("stack_id", "id", "this stack"),
            _i64("parent_stack_id", "id", "stack of the caller"),
            _i64("frame_id", "id", "row of `frame`"),
        ),
        key=("pid", "stack_id"),
    ),
    Table(
        17,
        "frame",
        "functions in call stacks",
        (
            _i64("frame_id", "id", "this frame"),
            _str("function", "function"),
            _str("file", "source file or library"),
            _i32("line", "", "line"),
            _enum("kind", ("unknown", "python", "native"), "language"),
        ),
        key=("pid", "frame_id"),
    ),
    Table(
        18,
        "access_object",
        "device memory accesses of one launch to one memory object",
        (
            _i64("launch_id", "id", "`kernel.launch_id`"),
            _i64("object_id", "id", "`alloc.object_id`; null when no known object holds the address"),
            _i32("argument", "", "kernel argument through which it was reached, where known"),
            _enum("space", SPACES, "memory space"),
            _i64("loads", "count", "load instructions, a lane each"),
            _i64("stores", "count", "stores"),
            _i64("atomics", "count", "atomics"),
            _i64("load_bytes", "bytes", "bytes loaded"),
            _i64("store_bytes", "bytes", "bytes stored"),
            _i64("atomic_bytes", "bytes", "bytes of atomics"),
            _i64("lines", "count", "distinct 64-byte lines touched"),
            _i64("pages_4k", "count", "distinct 4 KiB pages touched"),
            _i64("pages_64k", "count", "distinct 64 KiB pages touched"),
            _i64("pages_2m", "count", "distinct 2 MiB pages touched"),
            _i64("first_offset", "bytes", "first byte touched, from the object's start"),
            _i64("last_offset", "bytes", "last byte touched"),
            _i64("tensor_id", "id", "`tensor.tensor_id` of the object's part that they went to; null: no known tensor"),
        ),
    ),
    Table(
        19,
        "access_site",
        "device memory accesses of one launch at one instruction",
        (
            _i64("launch_id", "id", "`kernel.launch_id`"),
            _i64("site_id", "id", "instruction, row of `line`"),
            _enum("kind", ("unknown", "load", "store", "atomic", "copy"), "kind of access"),
            _enum("space", SPACES, "memory space"),
            _i64("executions", "count", "executions by a warp or sub-group; null where none is defined"),
            _i64("lanes", "count", "executions by a thread (work-item)"),
            _i64("bytes", "bytes", "bytes accessed"),
            _i64("sectors", "count", "sectors (or cache lines) that these accesses needed"),
            _i64("ideal_sectors", "count", "sectors that a perfectly coalesced pattern needs"),
            _i64("bank_conflicts", "count", "extra passes through shared memory"),
            _i32("min_lanes", "count", "fewest threads that took part in an execution"),
            _i32("max_lanes", "count", "most threads that took part in an execution"),
        ),
    ),
    Table(
        20,
        "access_block",
        "accesses per time window and block of addresses (hotness over time)",
        (
            _START,
            _END,
            _i64("launch_id", "id", "launch, when the window is one launch"),
            _i64("object_id", "id", "`alloc.object_id`"),
            _i64("offset", "bytes", "start of the block in the object"),
            _i64("bytes", "bytes", "size of the block"),
            _i64("accesses", "count", "accesses, a lane each"),
        ),
    ),
    Table(
        21,
        "line",
        "instruction to source line",
        (
            _i64("site_id", "id", "instruction"),
            _str("kernel", "kernel that holds it"),
            _i64("pc", "bytes", "offset of the instruction in the kernel"),
            _str("file", "source file"),
            _i32("line", "", "line"),
            _str("function", "function, when inlined"),
            _str("text", "instruction text, where known"),
            _str("symbol", "name of the kernel in the binary"),
            _str("binary", "binary that holds the kernel, by the hash of its content"),
        ),
        key=("pid", "site_id"),
    ),
    Table(
        22,
        "collective",
        "communication operations (NCCL, RCCL)",
        (
            _START,
            _END,
            *_WHERE,
            _str("kind", "all_reduce, all_gather, send, ..."),
            _i64("bytes", "bytes", "payload of this rank"),
            _str("group", "communicator"),
            _i32("group_size", "count", "ranks in the communicator"),
            _i32("peer", "id", "peer rank of a send or receive"),
        ),
    ),
    Table(
        23,
        "build",
        "programs compiled or loaded at run time",
        (
            _START,
            _END,
            _THREAD,
            _CONTEXT,
            _DEVICE,
            _i64("program_id", "id", "program or module"),
            _enum("source", ("unknown", "text", "il", "binary", "linked"), "what it was made from"),
            _str("options", "compiler options"),
            _str("log", "compiler output"),
            _i32("result", "", "return code; 0 is success"),
        ),
    ),
    Table(
        24,
        "clock",
        "pairs of clock readings, to place one clock on another",
        (
            _AT,
            _str("source", "clock: realtime, monotonic_raw, opencl:<device>, cupti, ..."),
            _i64("source_ns", "ns", "what that clock said at `start_ns`"),
            _i64("error_ns", "ns", "bound of the error of this pair"),
        ),
    ),
    Table(
        25,
        "loss",
        "what was not recorded, and why",
        (
            _START,
            _END,
            _str("source", "backend or part that lost it"),
            _str("table", "table that misses rows"),
            _i64("records", "count", "rows lost; null when unknown"),
            _str("cause", "why, in words"),
            _str("remedy", "what to do about it"),
        ),
    ),
    Table(
        26,
        "access",
        "every memory access, unreduced (`--memory=trace`): lanes of a warp that are evenly spaced share a row",
        (
            _i64("launch_id", "id", "`kernel.launch_id`"),
            _i64("site_id", "id", "instruction, row of `line`"),
            _i64("execution", "id", "rows of a launch with equal numbers are one execution by a warp or sub-group"),
            _enum("kind", ("unknown", "load", "store", "atomic", "copy"), "kind of access"),
            _enum("space", SPACES, "memory space"),
            _i64("lanes", "", "threads of the warp that take part, a bit each"),
            _i64("address", "", "of the first of them; within the block's memory where the space is shared"),
            _i64("stride", "bytes", "from the address of one of them to that of the next"),
            _i64("bytes", "bytes", "bytes that each accesses"),
        ),
    ),
)

#: All tables by name, in the order of their ids.
TABLES: dict[str, Table] = {table.name: table for table in _TABLES}

#: Columns that sealing adds in front of every table's own.
SEALED_COLUMNS: tuple[Column, ...] = (
    _i32("pid", "id", "process that wrote the row"),
    _i32("rank", "id", "rank of that process; null outside a distributed job"),
)


def table_by_id(number: int) -> Table | None:
    """Return the table whose id is ``number``, or None when this version of pasta does not know it."""
    return next((table for table in _TABLES if table.id == number), None)


def sealed_columns(table: Table) -> tuple[Column, ...]:
    """Return the columns of ``table`` as they appear in a sealed trace (``process`` has its own rank)."""
    own = {column.name for column in table.columns}
    return tuple(c for c in SEALED_COLUMNS if c.name not in own) + table.columns
