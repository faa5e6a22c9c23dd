"""Device planes of XLA profiles.

On a GPU, lines called ``Stream #16(Kernel)`` hold what ran, each event with its sizes as text (``grid:4,64,1
block:256,1,1``, ``size:655360 async:1``); all other lines are derived from them and would count everything twice.

A TPU has no streams: the line *XLA Ops* holds every operation that its core executed. Those that enclose others (loops,
calls) are left out, because their time is that of the others. No undamaged profile of a TPU was at hand: this part
follows the definition of the message alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from heapq import merge
from typing import Any

from pasta.importers.chrome_events import to_int
from pasta.importers.xplane.messages import XEvent, XLine, XPlane
from pasta.importers.xplane.profile import Profile

DEVICE = re.compile(r"/device:(\w+):(\d{1,6})")
_STREAM = re.compile(r"Stream #(\d{1,9})")
_DETAIL = re.compile(r"(\w+):(\S+)")
_DIRECTION = re.compile(r"memcpy_?(h2d|d2h|d2d|h2h|p2p)", re.IGNORECASE)
_USED = ("correlation_id", "kernel_details", "memcpy_details", "memset_details")
_OPERATIONS = "XLA Ops"

#: An event and where it is from: start, end, line, event.
_Found = tuple[int, int, XLine, XEvent]


def read_device(plane: XPlane, profile: Profile) -> None:
    """Import a device plane; one without events is a device that did nothing and is left out."""
    if not any(line.count for line in plane.lines):
        return
    kind, number = DEVICE.match(plane.name).groups()  # type: ignore[union-attr]
    streams = [line for line in plane.lines if _STREAM.search(line.name)]
    operations = [line for line in plane.lines if line.name == _OPERATIONS and not streams]
    for line in plane.lines:
        if line not in streams and line not in operations and line.count:
            profile.report.unplaced[f"event of the derived line {line.name}"] += line.count
    _describe(plane, profile, kind, int(number), streams)
    work = _Work(plane, profile, int(number))
    for found in merge(*(_in_order(line, profile) for line in streams), key=lambda found: found[:2]):
        work.add(*found)
    for line in operations:
        for found in _innermost(line, profile):
            work.add(*found)


def _describe(plane: XPlane, profile: Profile, kind: str, number: int, streams: list[XLine]) -> None:
    about = plane.stats
    major, minor = about.get("compute_cap_major"), about.get("compute_cap_minor")
    profile.sink.table(
        "device",
        *("pid", "device_id", "vendor", "name", "kind", "memory_bytes", "multiprocessors", "clock_khz"),
        *("architecture", "timestamps"),
    ).add(
        *(profile.pid, number, about.get("device_vendor"), about.get("device_type_string")),
        *("gpu" if kind == "GPU" else "cpu" if kind == "CPU" else "accelerator", to_int(about.get("memory_size"))),
        *(to_int(about.get("core_count")), to_int(about.get("clock_rate"))),
        *(None if major is None else f"{major}.{minor or 0}", True),
    )
    rows = profile.sink.table("stream", "pid", "stream_id", "device_id", "name")
    for line in streams:
        rows.add(profile.pid, _stream(line), number, line.name)


def _stream(line: XLine) -> int | None:
    found = _STREAM.search(line.name)
    return int(found[1]) if found else None


def _in_order(line: XLine, profile: Profile) -> Iterator[_Found]:
    for event in line.events():
        if event.aggregated:
            profile.report.skipped["event that sums up others"] += 1
            continue
        yield (*profile.interval(line, event), line, event)


def _innermost(line: XLine, profile: Profile) -> Iterator[_Found]:
    """Yield the events of a line that enclose no other."""
    found = sorted(_in_order(line, profile), key=lambda found: (found[0], -found[1]))
    for event, following in zip(found, [*found[1:], None], strict=True):
        if following is not None and following[0] < event[1] and following[1] <= event[1]:
            profile.report.skipped["XLA operation whose time is that of the operations in it"] += 1
        else:
            yield event


class _Work:
    """Rows of one device. Launches are numbered in the order in which they started there."""

    def __init__(self, plane: XPlane, profile: Profile, device: int) -> None:
        self._plane = plane
        self._profile = profile
        self._device = device
        self._launches = 0
        place = ("pid", "start_ns", "end_ns", "thread_id", "device_id", "stream_id", "correlation_id")
        sizes = (*("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"),)
        self._kernels = profile.sink.table(
            "kernel",
            *(*place, "launch_id", "name", *sizes, "registers"),
            *("static_shared_bytes", "dynamic_shared_bytes", "local_bytes"),
        )
        self._copies = profile.sink.table("memcpy", *place, "kind", "bytes", "asynchronous")
        self._fills = profile.sink.table("memset", *place, "bytes")

    def add(self, start: int, end: int, line: XLine, event: XEvent) -> None:
        """Add an event: what its details say it is, else what its name or its line's does."""
        profile = self._profile
        profile.events += 1
        name = self._plane.event_names.get(event.metadata, "")
        stats = profile.stats(self._plane, event, _USED)
        correlation = to_int(stats.get("correlation_id")) or None
        caller = None if correlation is None else profile.callers.get(correlation)
        if correlation is not None and caller is None:
            profile.report.unmatched["device work whose call is not in the file"] += 1
        where = (profile.pid, start, end, caller, self._device, _stream(line), correlation)
        what = _what(name, line, stats)
        if what == "memcpy":
            details = _details(stats.get("memcpy_details"))
            # A line of several types does not say which of them an event is.
            direction = _DIRECTION.search(name if "," in line.name else f"{name} {line.name}")
            later = {"0": False, "1": True}.get(details.get("async", ""))
            # Tracers that do not know the size write 0.
            size = to_int(details.get("size")) or None
            self._copies.add(*where, direction[1].lower() if direction else "unknown", size, later)
        elif what == "memset":
            details = _details(stats.get("memset_details"))
            self._fills.add(*where, to_int(details.get("num_bytes") or details.get("size")) or None)
        elif what == "kernel":
            self._launches += 1
            self._kernels.add(*where, self._launches, name.removesuffix(".kd") or None, *_sizes(stats))
        else:
            profile.report.unplaced[f"event of type {what} on a stream"] += 1


def _what(name: str, line: XLine, stats: Mapping[str, object]) -> str:
    """Return what an event is: by its details, else its name, else the types of its line (``Stream #1(Kernel)``)."""
    for what in ("kernel", "memcpy", "memset"):
        if f"{what}_details" in stats:
            return what
    text = name.lower()
    types = [kind.lower() for kind in re.findall(r"\w+", line.name.partition("(")[2])]
    for what in ("memcpy", "memset"):
        if text.startswith(what) or (types and all(kind.startswith(what) for kind in types)):
            return what
    return "kernel" if not types or "kernel" in types or "compute" in types else types[0]


def _sizes(stats: dict[str, Any]) -> tuple[int | None, ...]:
    """Return grid, block, registers, static, dynamic and local memory from a kernel's details."""
    details = _details(stats.get("kernel_details"))
    static = to_int(details.get("static_shared") or details.get("group_mem"))
    return (
        *_triple(details.get("grid")),
        *_triple(details.get("block")),
        to_int(details.get("regs")),
        static,
        to_int(details.get("dynamic_shared")),
        to_int(details.get("private_mem")),
    )


def _details(text: Any) -> dict[str, str]:
    return dict(_DETAIL.findall(text)) if isinstance(text, str) else {}


def _triple(text: str | None) -> tuple[int | None, int | None, int | None]:
    parts = [to_int(part) for part in (text or "").split(",")]
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 else (None, None, None)
