"""Processes, threads, devices, contexts and streams of one Kineto file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pasta.importers.base import Report, Sink
from pasta.importers.chrome_events import to_int
from pasta.importers.kineto.events import KinetoEvents
from pasta.importers.kineto.names import is_rocm, vendor_of
from pasta.importers.kineto.relate import Owner

#: Properties of a device that become columns: column -> names that Kineto gave it over the years.
_PROPERTIES: Mapping[str, tuple[str, ...]] = {
    "name": ("name",),
    "memory_bytes": ("totalGlobalMem",),
    "multiprocessors": ("numSms", "maxComputeUnits"),
    "warp_size": ("warpSize",),
    "shared_bytes": ("sharedMemPerMultiprocessor", "maxSharedMemoryPerMultiProcessor", "localMemSize"),
    "driver": ("driverVersion",),
    "vendor": ("vendor",),
}


def write_identity(events: KinetoEvents, header: Mapping[str, Any], owner: Owner, sink: Sink, report: Report) -> None:
    """Write what the rows of a file refer to."""
    distributed = header.get("distributedInfo")
    world = to_int(distributed.get("world_size")) if isinstance(distributed, dict) else None
    _write_processes(events, owner, world, sink)
    _write_threads(events, owner, sink)
    _write_devices(events, header, owner, sink, report)
    _write_streams(events, owner, sink)


def _write_processes(events: KinetoEvents, owner: Owner, world_size: int | None, sink: Sink) -> None:
    rows = sink.table("process", "pid", "rank", "world_size", "command", "backends")
    names = {events.processes(raw): name for raw, name in events.process_names.items()}
    ranks = {pid: rank for rank, pid in events.fused_pids.items()}
    for raw, pid in owner.pids.items():
        rows.add(pid, ranks.get(raw, owner.rank), world_size, names.get(raw), "kineto (imported)")
    rows.flush()


def _write_threads(events: KinetoEvents, owner: Owner, sink: Sink) -> None:
    rows = sink.table("thread", "pid", "rank", "thread_id", "name")
    for (raw_pid, raw_tid), name in events.thread_names.items():
        pid, thread = owner.pids.get(events.processes(raw_pid) or 0), events.threads(raw_tid)
        if pid is not None and thread is not None:
            rows.add(pid, owner.rank, thread, name)
    rows.flush()


def _write_devices(events: KinetoEvents, header: Mapping[str, Any], owner: Owner, sink: Sink, report: Report) -> None:
    listed = header.get("deviceProperties") or header.get("computeProperties")
    listed = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    keys = frozenset(header)
    by_id = {to_int(entry.get("id")): entry for entry in listed}
    used = sorted({(rank, device) for rank, device, _ in events.streams if device is not None}, key=str)
    rows = sink.table(*("device", "pid", "rank", "device_id", "kind", "architecture", "timestamps", *_PROPERTIES))
    # ROCm numbers devices by agent, CPUs first, in events and from 0 in the list: only what all listed
    # devices share is true of any of them.
    agents = is_rocm(keys) and bool(used)
    if agents and listed:
        report.notes.append("ROCm numbers devices by agent: their properties are those that all listed devices share")
    for rank, device in used or [(None, device) for device in by_id if device is not None]:
        candidates = listed if agents else [by_id[device]] if device in by_id else []
        values = {column: _common(candidates, names) for column, names in _PROPERTIES.items()}
        name = values["name"] or None  # some ROCm versions write ""
        vendor = values["vendor"] or vendor_of(str(name or ""), keys)
        major, minor = _common(candidates, ("computeMajor", "major")), _common(candidates, ("computeMinor", "minor"))
        capability = f"{major}.{minor}" if vendor == "NVIDIA" and major is not None and minor is not None else None
        values.update(name=name, vendor=vendor)
        rows.add(*_owner_of(owner, events, rank), device, "gpu", capability, True, *values.values())
    rows.flush()


def _write_streams(events: KinetoEvents, owner: Owner, sink: Sink) -> None:
    streams = sink.table("stream", "pid", "rank", "stream_id", "context_id", "device_id", "name")
    contexts = sink.table("context", "pid", "rank", "context_id", "device_id")
    seen = set()
    for (rank, device, _), (stream, context) in events.streams.items():
        whose = _owner_of(owner, events, rank)
        if stream is not None:
            streams.add(*whose, stream, context, device, events.stream_names.get(stream))
        if context is not None and (whose, context) not in seen:
            seen.add((whose, context))
            contexts.add(*whose, context, device)
    streams.flush()
    contexts.flush()


def _owner_of(owner: Owner, events: KinetoEvents, rank: int | None) -> tuple[int, int | None]:
    if rank is None:
        return owner.main, owner.rank
    return owner.pids.get(events.fused_pids.get(rank) or 0, owner.main), rank


def _common(entries: list[dict[str, Any]], names: tuple[str, ...]) -> Any:
    """Return the value that all entries have under the first of ``names`` that they have, None when they differ."""
    values = {str(value): value for entry in entries for value in [_first(entry, names)]}
    return next(iter(values.values())) if len(values) == 1 else None


def _first(entry: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((entry[name] for name in names if name in entry), None)
