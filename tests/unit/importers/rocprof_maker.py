"""Documents as rocprofv3 writes them: one process with two processors and two GPUs, and records by kind name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

#: Numbers of kinds as one release happened to have them.
KINDS = {
    "NONE": [],
    "HIP_RUNTIME_API_EXT": ["hipApiName", "hipMalloc", "hipLaunchKernel"],
    "HSA_CORE_API": ["hsa_init", "hsa_queue_create"],
    "KERNEL_DISPATCH": ["KERNEL_DISPATCH_NONE", "KERNEL_DISPATCH_ENQUEUE", "KERNEL_DISPATCH_COMPLETE"],
    "MEMORY_COPY": ["NONE", *(f"MEMORY_COPY_{a}_TO_{b}" for a, b in (("HOST", "DEVICE"), ("DEVICE", "HOST")))],
    "MEMORY_ALLOCATION": [f"MEMORY_ALLOCATION_{name}" for name in ("NONE", "ALLOCATE", "VMEM_ALLOCATE", "FREE")],
    "MARKER_CORE_RANGE_API": ["roctxMarkA", "roctxThreadRangeA", "roctxProcessRangeA", "roctxGetThreadId"],
    "KFD_PAGE_MIGRATE": [
        f"ROCPROFILER_KFD_PAGE_MIGRATE_{name}" for name in ("PREFETCH", "PAGEFAULT_GPU", "TTM_EVICTION")
    ],
    "KFD_PAGE_FAULT": [
        "ROCPROFILER_KFD_PAGE_FAULT_READ_FAULT_MIGRATED",
        "ROCPROFILER_KFD_PAGE_FAULT_WRITE_FAULT_UPDATED",
    ],
    "SCRATCH_MEMORY": ["SCRATCH_MEMORY_NONE", "SCRATCH_MEMORY_ALLOC"],
}

#: Opaque handles of the agents: node 0 is a processor, node 4 and node 5 are GPUs.
HOST, GPU, OTHER_GPU = 37944, 37946, 37947


def agent(handle: int, node: int, gpu: bool) -> dict[str, Any]:
    about = {"id": {"handle": handle}, "node_id": node, "type": 2 if gpu else 1, "vendor_name": "AMD" if gpu else "CPU"}
    if gpu:
        about |= {"name": "gfx942", "product_name": "AMD Instinct MI300X", "cu_count": 304, "wave_front_size": 64}
        about |= {"mem_banks": [{"size_in_bytes": 192 << 30}], "max_engine_clk_fcompute": 2100, "lds_size_in_kb": 64}
        about |= {
            "caches": [
                {"level": 1, "size": 32, "cache_line_size": 128},
                {"level": 2, "size": 4096, "cache_line_size": 64},
            ]
        }
        about |= {"location_id": 29952, "domain": 0}
    return about


class RocprofDocument:
    """One process; records are added by name and written under the numbers of ``kinds``."""

    def __init__(self, pid: int = 908, kinds: dict[str, list[str]] | None = None) -> None:
        self._kinds = kinds or KINDS
        self.entry: dict[str, Any] = {
            "metadata": {
                "pid": pid,
                "init_time": 5,
                "fini_time": 9000,
                "command": ["./app", "-n"],
                "node": {"hostname": "mi300"},
            },
            "agents": [agent(HOST, 0, False), agent(GPU, 4, True), agent(OTHER_GPU, 5, True)],
            "strings": {
                "buffer_records": [{"kind": kind, "operations": names} for kind, names in self._kinds.items()],
                "marker_api": [],
                "correlation_id": {"external": []},
            },
            "kernel_symbols": [
                {"kernel_id": 7, "kernel_name": "_Z4axpyi.kd", "formatted_kernel_name": "axpy(int)"}
                | {"group_segment_size": 1024, "arch_vgpr_count": 24}
            ],
            "callback_records": {"counter_collection": []},
            "buffer_records": {},
        }

    def add(self, kind: str, operation: int, start: int, end: int, correlation: int = 1, **more: Any) -> None:
        """Add a record; its operation is the position in its kind's list."""
        record = {"kind": list(self._kinds).index(kind), "operation": operation, "thread_id": 77}
        record |= {"correlation_id": {"internal": correlation, "external": 0}}
        record |= {"start_timestamp": start, "end_timestamp": end}
        self.entry["buffer_records"].setdefault(kind.lower(), []).append(record | more)

    def dispatch(
        self, start: int, end: int, grid: tuple[int, int, int], block: tuple[int, int, int], **more: Any
    ) -> None:
        """Add a kernel of ``grid`` work-items on the first GPU."""
        info = {"agent_id": {"handle": GPU}, "queue_id": {"handle": 3}, "kernel_id": 7, "dispatch_id": 12}
        info |= {"private_segment_size": 16, "group_segment_size": 3072}
        info |= {
            "grid_size": dict(zip("xyz", grid, strict=True)),
            "workgroup_size": dict(zip("xyz", block, strict=True)),
        }
        self.add("KERNEL_DISPATCH", 2, start, end, dispatch_info=info, stream_id={"handle": 2}, **more)

    def write(self, path: Path, *others: RocprofDocument) -> Path:
        """Write the document with the entries of ``others`` after this one's."""
        path.write_text(json.dumps({"rocprofiler-sdk-tool": [self.entry, *(other.entry for other in others)]}))
        return path
