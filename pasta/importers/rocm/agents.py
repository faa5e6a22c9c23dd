"""Agents of rocprofiler-sdk: which device an agent is, and what is known about it.

A device's number is the agent's ``node_id``, the number of its node in the kernel driver's topology, which is what the
"Agent 4" of rocprofv3's tables means too. The host's processors are agents as well, and no devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pasta.importers.base import Sink
from pasta.importers.chrome_events import to_int

_GPU = 2


@dataclass(frozen=True)
class Agent:
    """One agent, all None for one that the source does not explain; ``about`` holds columns of ``device``."""

    number: int | None = None
    gpu: bool | None = None
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def device(self) -> int | None:
        """The device, None for the host."""
        return self.number if self.gpu else None


#: Columns of ``device`` that an agent can fill.
COLUMNS = (
    *("vendor", "name", "uuid", "pci", "memory_bytes", "multiprocessors", "warp_size", "line_bytes"),
    *("cache_bytes", "shared_bytes", "clock_khz", "architecture"),
)


def agent_of(value: Any) -> Agent | None:
    """Return the agent that ``value``, rocprofiler-sdk's structure as JSON, describes; None for anything else."""
    if not isinstance(value, dict) or (number := to_int(value.get("node_id"))) is None:
        return None
    caches = [cache for cache in _list(value.get("caches")) if to_int(cache.get("size"))]
    last = max(caches, key=lambda cache: to_int(cache.get("level")) or 0, default={})
    lds, clock = to_int(value.get("lds_size_in_kb")), to_int(value.get("max_engine_clk_fcompute"))
    memory = [to_int(bank.get("size_in_bytes")) or 0 for bank in _list(value.get("mem_banks"))]
    about = {
        "vendor": value.get("vendor_name"),
        "name": value.get("product_name") or value.get("name"),
        "uuid": _uuid(value.get("uuid")),
        "pci": _pci(to_int(value.get("domain")), to_int(value.get("location_id"))),
        "memory_bytes": sum(memory) or None,
        "multiprocessors": to_int(value.get("cu_count")),
        "warp_size": to_int(value.get("wave_front_size")) or None,
        "line_bytes": to_int(last.get("cache_line_size")) or None,
        "cache_bytes": (to_int(last.get("size")) or 0) * 1024 or None,  # the driver counts in KiB
        "shared_bytes": lds * 1024 if lds else None,
        "clock_khz": clock * 1000 if clock else None,
        "architecture": value.get("name"),
    }
    return Agent(number, to_int(value.get("type")) == _GPU, about)


def write_devices(sink: Sink, used: Iterable[tuple[int, int]], agents: Mapping[tuple[int, int], Agent]) -> None:
    """Add a row for each (pid, device) that is used, with what ``agents`` knows about it."""
    rows = sink.table("device", "pid", "device_id", "kind", "timestamps", *COLUMNS)
    for pid, number in sorted(used):
        agent = agents.get((pid, number))
        about = agent.about if agent else {"vendor": "AMD"}
        rows.add(pid, number, "gpu", True, *(about.get(column) for column in COLUMNS))


def _list(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _pci(domain: int | None, location: int | None) -> str | None:
    """Return the PCI address in a location: bus (8 bits), device (5), function (3)."""
    if not location:
        return None
    return f"{domain or 0:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.{location & 7}"


def _uuid(value: Any) -> str | None:
    """Return the unique id, of which the structure holds 16 bytes as ``value0`` to ``value15``."""
    parts = value.get("bytes") if isinstance(value, dict) else None
    numbers = [to_int(part) or 0 for part in parts.values()] if isinstance(parts, dict) else []
    text = bytes(number & 0xFF for number in numbers).rstrip(b"\0").hex()
    return f"GPU-{text}" if text else None
