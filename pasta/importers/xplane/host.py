"""Host planes of XLA profiles: calls of the device's API, ranges of the runtime and of Python, the BFC allocator.

``Host Threads/1083`` holds the calls that the device tracer saw, with the correlation ids of what they started. Every
other line is a thread with what the program's own tracer (TraceMe) wrote. The allocator's events are ``tensor`` rows,
as those of PyTorch's allocator are.
"""

from __future__ import annotations

import re

from pasta.importers.chrome_events import to_int
from pasta.importers.xplane.messages import XLine, XPlane
from pasta.importers.xplane.profile import Profile

_CALLS = re.compile(r"Host Threads/(\d{1,9})$")
_ALLOCATOR_OF_GPU = re.compile(r"GPU_(\d{1,4})_")
_MEMORY = {"MemoryAllocation": "alloc", "MemoryDeallocation": "free"}
_USED_OF_MEMORY = ("allocator_name", "addr", "allocation_bytes", "bytes_allocated", "bytes_reserved")
_CALL_PREFIXES = {"hip": "hip", "hsa": "hsa", "cuda": "cuda_runtime", "cu": "cuda_driver", "nccl": "nccl"}


def read_host(plane: XPlane, profile: Profile, framework: str) -> None:
    """Import a host plane; ``framework`` is what memory of its GPUs is called (``cuda``, ``hip``)."""
    for line in plane.lines:
        calls = _CALLS.match(line.name)
        if calls:
            _read_calls(plane, line, profile, int(calls[1]))
        else:
            _read_ranges(plane, line, profile, framework)


def _read_calls(plane: XPlane, line: XLine, profile: Profile, thread_id: int) -> None:
    rows = profile.sink.table("api", "pid", "start_ns", "end_ns", "thread_id", "api", "name", "correlation_id")
    thread = profile.thread(line, thread_id)
    for event in line.events():
        profile.events += 1
        stats = profile.stats(plane, event, ("correlation_id", "device_id"))
        correlation = to_int(stats.get("correlation_id"))
        if correlation is not None:
            profile.callers[correlation] = thread_id
        name = plane.event_names.get(event.metadata)
        api = next((api for prefix, api in _CALL_PREFIXES.items() if (name or "").startswith(prefix)), "other")
        rows.add(profile.pid, *profile.interval(line, event), thread, api, name, correlation)


def _read_ranges(plane: XPlane, line: XLine, profile: Profile, framework: str) -> None:
    tensors = profile.sink.table(
        "tensor",
        *("pid", "start_ns", "thread_id", "action", "address", "bytes", "allocated_bytes", "reserved_bytes"),
        *("device_type", "device_index"),
    )
    thread = profile.thread(line)
    found: list[tuple[int, int, str]] = []
    for event in line.events():
        if event.aggregated:
            profile.report.skipped["event that sums up others"] += 1
            continue
        profile.events += 1
        name = plane.event_names.get(event.metadata, "")
        start, end = profile.interval(line, event)
        if name not in _MEMORY:
            profile.stats(plane, event, ())
            found.append((start, -end, name))
            continue
        stats = profile.stats(plane, event, _USED_OF_MEMORY)
        gpu = _ALLOCATOR_OF_GPU.match(str(stats.get("allocator_name")))
        tensors.add(
            *(profile.pid, start, thread, _MEMORY[name]),
            *(to_int(stats.get(key)) for key in ("addr", "allocation_bytes", "bytes_allocated", "bytes_reserved")),
            *((framework, int(gpu[1])) if gpu else ("cpu", None)),
        )
    found.sort()
    for start, negative_end, name in found:
        kind = "mark" if start == -negative_end else "push_pop"
        category = "python" if name.startswith("$") else None
        where = (profile.pid, line.number, line.name)
        profile.annotations.add(where, profile.pid, thread, start, -negative_end, kind, name, category=category)
