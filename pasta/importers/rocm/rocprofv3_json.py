"""JSON of rocprofv3 (``*_results.json``): one document with an entry for each process.

Numbers of kinds and operations change with every release, so they are looked up in the document's own ``strings``.
Handles of agents are opaque: a device is its ``node_id``. Records stand after what explains them; where they do not,
the document is read twice. Memory is bounded by the symbols of kernels and the texts of markers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

from pasta.errors import PastaError
from pasta.importers.base import Head, Importer, Kind, Report, Sink, nothing_to_import
from pasta.importers.chrome_events import to_int
from pasta.importers.json_walk import JsonWalk, Path
from pasta.importers.packed import Source
from pasta.importers.rocm.agents import Agent, agent_of, write_devices
from pasta.importers.rocm.rows import Dispatch, RocmRows, Where

_ROOT = "rocprofiler-sdk-tool"
_UNKNOWN = Agent()
_NAMES = ("buffer_records", "callback_records")


class _Symbol(NamedTuple):
    name: str | None
    mangled: str | None
    static_lds: int | None
    registers: int | None


@dataclass
class _Entry:
    """A process, and what its records refer to by number."""

    pid: int = 0
    about: tuple[int | None, int | None, str | None, str | None] = (None, None, None, None)
    #: Number of a kind -> its name and those of its operations.
    kinds: list[tuple[str, list[str]]] = field(default_factory=list)
    agents: dict[int, Agent] = field(default_factory=dict)
    symbols: dict[int, _Symbol] = field(default_factory=dict)
    messages: dict[int, str] = field(default_factory=dict)


class RocprofJsonImporter:
    """The importer of rocprofv3's JSON."""

    kind = Kind.ROCPROFV3_JSON
    label = "rocprofv3 JSON"

    def sniff(self, head: Head) -> bool:
        """Return whether the document has rocprofv3's root."""
        return head.start.lstrip()[:1] == b"{" and b'"rocprofiler-sdk-tool"' in head.start

    def read(self, sources: Sequence[Source], sink: Sink, report: Report) -> None:
        """Import every file; what was whole of a file that is cut is kept."""
        numbers = count(1)
        records = 0
        for source in sources:
            document = _Document(source, sink, report, RocmRows(sink, report, numbers))
            document.read()
            records += document.records
        if not records:
            raise nothing_to_import(
                sources,
                "it has no record",
                "run rocprofv3 with --sys-trace or --kernel-trace, and --output-format json",
            )


class _Document:
    """One file."""

    def __init__(self, source: Source, sink: Sink, report: Report, rows: RocmRows) -> None:
        self.records = 0
        self._source = source
        self._sink = sink
        self._report = report
        self._rows = rows
        self._entries: dict[int, _Entry] = {}
        self._early: set[int] = set()

    def read(self) -> None:
        """Read the document, and once more for records that came before what explains them."""
        broken = self._pass(again=False)
        if self._early:
            self._pass(again=True)
        if broken and not self._entries:
            raise PastaError(f"{self._source.path} is damaged: {broken}", "fetch or record the file again")
        if broken:
            self._report.loss("kernel", None, f"{self._source.path.name} is cut: {broken}", "fetch the file again")
            self._report.notes.append(f"{self._source.path.name} is cut: {broken}; what came before is imported")
        self._rows.finish()
        self._rows.processes((entry.pid, *entry.about) for entry in self._entries.values())
        agents = {
            (entry.pid, agent.number or 0): agent for entry in self._entries.values() for agent in entry.agents.values()
        }
        write_devices(self._sink, self._rows.seen.devices, agents)

    def _pass(self, again: bool) -> str | None:
        walk = JsonWalk(self._source, _enter)
        for path, value in walk.values():
            if len(path) < 3 or path[0] != _ROOT:
                continue
            number = int(path[1])
            entry = self._entries.setdefault(number, _Entry())
            if path[2] == "buffer_records" and len(path) == 5:
                if not again and not entry.kinds:
                    self._early.add(number)
                elif not again or number in self._early:
                    self._record(entry, value)
            elif not again:
                self._header(entry, path, value)
        return walk.broken

    def _header(self, entry: _Entry, path: Path, value: Any) -> None:
        match path[2:]:
            case ("metadata",):
                entry.pid = to_int(_dig(value, "pid")) or 0
                command = _dig(value, "command")
                entry.about = (
                    *(to_int(_dig(value, "init_time")), to_int(_dig(value, "fini_time"))),
                    *(_text(_dig(value, "node", "hostname")),),
                    " ".join(map(str, command)) if isinstance(command, list) else None,
                )
            case ("agents", _):
                agent = agent_of(value)
                handle = to_int(_dig(value, "id", "handle"))
                if agent is not None and handle is not None:
                    entry.agents[handle] = agent
            case ("kernel_symbols", _):
                number = to_int(_dig(value, "kernel_id"))
                if number is not None:
                    entry.symbols[number] = _symbol(value)
            case ("strings", "buffer_records"):
                for kind in value if isinstance(value, list) else ():
                    operations = _dig(kind, "operations")
                    names = list(map(str, operations)) if isinstance(operations, list) else []
                    entry.kinds.append((str(_dig(kind, "kind")), names))
            case ("strings", "marker_api", _):
                key, message = to_int(_dig(value, "key")), _text(_dig(value, "value"))
                if key is not None and message is not None:
                    entry.messages[key] = message
            case ("callback_records", str(name), _):
                self._report.unplaced[f"{name} record"] += 1
            case (str(name), _) if name in ("code_objects", "host_functions", "counters", "summary"):
                self._report.unplaced[f"entry of {name}"] += 1
            case _:
                pass

    def _record(self, entry: _Entry, record: Any) -> None:
        number, operation = to_int(_dig(record, "kind")), to_int(_dig(record, "operation"))
        start = to_int(_dig(record, "start_timestamp"))
        if number is None or not 0 <= number < len(entry.kinds):
            self._report.skipped["record of a kind that the document does not name"] += 1
            return
        kind, operations = entry.kinds[number]
        if start is None:
            self._report.unplaced[f"{kind} record without a start"] += 1
            return
        self.records += 1
        name = operations[operation] if operation is not None and 0 <= operation < len(operations) else None
        correlation = to_int(_dig(record, "correlation_id", "internal"))
        where = Where(
            *(entry.pid, start, to_int(_dig(record, "end_timestamp")), to_int(_dig(record, "thread_id"))),
            *(None, to_int(_dig(record, "stream_id", "handle")), correlation or None),
        )
        if kind == "KERNEL_DISPATCH":
            self._dispatch(entry, where, _dig(record, "dispatch_info"), record)
        elif kind == "MEMORY_COPY":
            source, target = (self._agent(entry, record, f"{end}_agent_id") for end in ("src", "dst"))
            size = to_int(_dig(record, "bytes"))
            self._rows.copy(where, name, size, source.device, target.device)
        elif kind == "MEMORY_ALLOCATION":
            agent = self._agent(entry, record, "agent_id")
            address, size = _address(record, "address"), to_int(_dig(record, "allocation_size"))
            self._rows.allocation(where._replace(device=agent.device), name or "", address, size, agent.gpu)
        elif kind.startswith("MARKER_CORE"):
            self._marker(entry, where, name)
        elif kind in ("KFD_PAGE_MIGRATE", "KFD_PAGE_FAULT"):
            self._unified(entry, where, kind, name or "", record)
        elif not self._rows.call(where._replace(stream=None), kind, name):
            self.records -= 1
            self._report.unplaced[f"{kind} record"] += 1

    def _dispatch(self, entry: _Entry, where: Where, info: Any, record: Any) -> None:
        agent = self._agent(entry, info, "agent_id")
        symbol = entry.symbols.get(to_int(_dig(info, "kernel_id")) or 0)
        if symbol is None:
            self._report.unmatched["kernel whose name is not in the file"] += 1
            symbol = _Symbol(None, None, None, None)
        grid, block = (
            [to_int(_dig(info, name, axis)) for axis in ("x", "y", "z")] for name in ("grid_size", "workgroup_size")
        )
        if where.stream is None:
            where = where._replace(stream=to_int(_dig(info, "queue_id", "handle")))
        self._rows.kernel(
            where._replace(device=agent.number),
            Dispatch(
                number=to_int(_dig(info, "dispatch_id")),
                name=symbol.name,
                mangled=symbol.mangled,
                grid=grid,
                block=block,
                lds=to_int(_dig(info, "group_segment_size")),
                static_lds=symbol.static_lds,
                scratch=to_int(_dig(info, "private_segment_size")),
                registers=symbol.registers,
                graph=(to_int(_dig(record, "graph_exec_id")) or None, to_int(_dig(record, "graph_node_id")) or None),
            ),
        )

    def _marker(self, entry: _Entry, where: Where, operation: str | None) -> None:
        name = operation or ""
        text = entry.messages.get(where.correlation or 0)
        if "Mark" in name:
            kind = "mark"
        elif "Process" in name or "Start" in name or "Stop" in name:
            kind = "start_end"
        elif "Push" in name or "Pop" in name or "ThreadRange" in name:
            kind = "push_pop"
        else:
            self.records -= 1
            self._report.unplaced[f"roctx call {name}"] += 1
            return
        self._rows.marker(where._replace(stream=None), kind, text)

    def _unified(self, entry: _Entry, where: Where, kind: str, operation: str, record: Any) -> None:
        if kind == "KFD_PAGE_FAULT":
            agent = self._agent(entry, record, "agent_id")
            where = where._replace(device=agent.device)
            self._rows.page_fault(where, operation, _address(record, "address"))
            return
        source, target = (self._agent(entry, record, name) for name in ("src_agent", "dst_agent"))
        self._rows.page_migration(
            where,
            operation,
            _address(record, "start_address"),
            _address(record, "end_address"),
            (source.device, source.gpu),
            (target.device, target.gpu),
        )

    def _agent(self, entry: _Entry, record: Any, name: str) -> Agent:
        handle = to_int(_dig(record, name, "handle"))
        return _UNKNOWN if handle is None else entry.agents.get(handle, _UNKNOWN)


def _enter(path: Path) -> bool:
    """Lists of records, symbols and messages are gone through; all else is read whole."""
    if len(path) < 3:
        return True
    if len(path) == 3:
        return path[2] != "metadata"
    return len(path) == 4 and (path[2] in _NAMES or (path[2] == "strings" and path[3] not in _NAMES))


def _symbol(value: Any) -> _Symbol:
    mangled = _text(_dig(value, "kernel_name"))
    mangled = mangled.removesuffix(".kd") if mangled else None
    name = _text(_dig(value, "formatted_kernel_name")) or _text(_dig(value, "demangled_kernel_name")) or mangled
    sizes = (to_int(_dig(value, key)) for key in ("group_segment_size", "arch_vgpr_count"))
    return _Symbol(name, None if mangled == name else mangled, *sizes)


def _dig(value: Any, *names: str) -> Any:
    """Return the member at the end of ``names``, None where there is none."""
    for name in names:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _address(record: Any, name: str) -> int | None:
    """Return an address, which is a number, its hexadecimal text, or an object with either."""
    value = _dig(record, name)
    if isinstance(value, dict):
        value = next(iter(value.values()), None)
    return to_int(value)


IMPORTERS: tuple[Importer, ...] = (RocprofJsonImporter(),)
