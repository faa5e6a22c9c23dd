"""Formats that pasta knows and cannot read, each with what to do instead."""

from __future__ import annotations

from pasta.importers.base import Head
from pasta.importers.detect import Refusal

_RECORD_AGAIN = "record again with rocprofv3 --sys-trace (ROCm 6.2 or later) and import its rocpd or JSON output"
_NO_TIMELINE = (
    "it has counters of single kernels and no time line; record one with rocprofv3 --sys-trace and import that"
)


def _header(head: Head) -> set[str]:
    """Return the column names of a CSV file, in lower case."""
    line = head.start.partition(b"\n")[0].decode("utf-8", "replace")
    return {name.strip().strip('"').lower() for name in line.split(",")} if "," in line else set()


def _rocprof_v1_database(head: Head) -> bool:
    return any("BeginNs" in head.tables.get(table, ()) for table in ("HIP", "HSA", "OPS", "COPY", "KERN"))


def _rocprof_v1_table(head: Head) -> bool:
    return {"index", "kernelname", "gpu-id"} <= _header(head)


def _rocprof_compute(head: Head) -> bool:
    return "compute_workload" in head.tables or {"dispatch_id", "gpu_id", "kernel_name"} <= _header(head)


#: A file of Nsight Compute starts with these four bytes (Nsight Compute, ProfilerReport: "NVR" and a zero).
_NSIGHT_COMPUTE = b"NVR\0"

REFUSALS = (
    Refusal(
        "an Nsight Compute report, a private format",
        lambda head: head.start.startswith(_NSIGHT_COMPUTE),
        "record the program with pasta record --memory, or read it with ncu --import FILE --csv",
    ),
    Refusal("a database of rocprof v1", _rocprof_v1_database, _RECORD_AGAIN),
    Refusal("a table of rocprof v1", _rocprof_v1_table, _RECORD_AGAIN),
    Refusal("a result of rocprof-compute (Omniperf)", _rocprof_compute, _NO_TIMELINE),
)
