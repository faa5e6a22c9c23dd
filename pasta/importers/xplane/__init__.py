"""XLA profiles (``*.xplane.pb``) of JAX and TensorFlow: a file is a host, a plane of it the host or a device.

Times are picoseconds from the start of their line, and are cut to nanoseconds: a duration may be off by one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count
from mmap import ACCESS_READ, mmap

from pasta.errors import PastaError
from pasta.importers.base import Head, Importer, Kind, Report, Sink, nothing_to_import
from pasta.importers.packed import Source
from pasta.importers.wire import WireError
from pasta.importers.xplane.device import DEVICE, read_device
from pasta.importers.xplane.host import read_host
from pasta.importers.xplane.messages import XPlane, planes
from pasta.importers.xplane.profile import Profile

#: The first plane's name, near the start of the file, is all that tells this format from other protobuf.
_START = re.compile(rb"\n.{1,40}?/(?:host|device):\w", re.DOTALL)
#: What a conversion to text makes of every byte above 0x7f.
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}".encode()

#: Times above this (1973) are UNIX times; below it they count from the start of the profile.
_UNIX_NS = 10**17


class XplaneImporter:
    """The importer of XLA profiles; several files are the hosts of one job."""

    kind = Kind.XPLANE
    label = "XLA profile (XSpace)"

    def sniff(self, head: Head) -> bool:
        """Return whether the bytes begin like a message whose first plane is a host or a device."""
        return _START.match(head.start) is not None

    def read(self, sources: Sequence[Source], sink: Sink, report: Report) -> None:
        """Import every file, as process 0, 1, ...; whole planes of a file that is cut are kept."""
        events = 0
        numbers = count(1)
        report.notes.append("times are cut from picoseconds to nanoseconds: a duration may be off by 1 ns")
        for pid, source in enumerate(sources):
            if not source.size:
                continue
            with open(source.plain, "rb") as file:
                # Not closed here: views of it live as long as the planes.
                message = memoryview(mmap(file.fileno(), 0, access=ACCESS_READ))
            found, hosts = _planes(source, message, report)
            profile = Profile(pid, sink, report, numbers, _shift(found, report))
            sink.table("process", "pid", "host").add(pid, hosts[0] if hosts else None)
            try:
                _read(found, profile)
            except WireError as error:
                raise _damaged(source, str(error)) from error
            events += profile.events
            if source.plain == source.path:
                source.tick(source.size)
            sink.flush()
        if not events:
            raise nothing_to_import(sources, "it has no event", "profile while the program computes")


def _read(found: Sequence[XPlane], profile: Profile) -> None:
    """Host planes come first: device work takes its thread from their calls."""
    vendors = {plane.stats.get("device_vendor") for plane in found if DEVICE.match(plane.name)}
    for plane in found:
        if plane.name == "/host:metadata":
            profile.report.unplaced["HLO module"] += len(plane.event_names)
        elif plane.name.startswith("/host:"):
            read_host(plane, profile, "hip" if "AMD" in vendors else "cuda")
    for plane in found:
        if DEVICE.match(plane.name):
            read_device(plane, profile)
        elif not plane.name.startswith("/host:") and (events := sum(line.count for line in plane.lines)):
            profile.report.unplaced[f"event of the plane {plane.name}"] += events
    profile.finish()


def _planes(source: Source, message: memoryview, report: Report) -> tuple[list[XPlane], list[str]]:
    """Return the planes of a file, and its host names."""
    found: list[XPlane] = []
    hosts: list[str] = []
    try:
        for item in planes(message):
            if isinstance(item, str):
                hosts.append(item)
            else:
                found.append(item)
    except WireError as error:
        if not any(line.count for plane in found for line in plane.lines):
            damage = str(error)
            if bytes(message[:4096]).count(_REPLACEMENT) > 3:
                damage = "a copy as text has replaced its bytes by U+FFFD"
            raise _damaged(source, damage) from error
        where = f"{source.path.name} breaks in its plane number {len(found) + 1}: {error}"
        report.loss("kernel", None, where, "fetch the file again")
        report.notes.append(f"{where}; the planes before it are imported")
    return found, hosts


def _damaged(source: Source, damage: str) -> PastaError:
    return PastaError(f"{source.path} is a damaged XLA profile: {damage}", "fetch the original file again, as binary")


def _shift(found: Sequence[XPlane], report: Report) -> int:
    """Return what to add to times in ns, so that all files are on the clock of the first, and note what its 0 is.

    The plane "Task Environment" has the start of the profile as UNIX time; older profiles have UNIX times everywhere.
    """
    start = next((plane.stats.get("profile_start_time") for plane in found if plane.name == "Task Environment"), None)
    times = [line.timestamp_ns for plane in found for line in plane.lines if line.count]
    epoch = 0 if times and min(times) > _UNIX_NS else start if type(start) is int else None
    if epoch is None:
        return 0
    if report.epoch_ns is None:
        report.epoch_ns = epoch
    return epoch - report.epoch_ns


IMPORTERS: tuple[Importer, ...] = (XplaneImporter(),)
