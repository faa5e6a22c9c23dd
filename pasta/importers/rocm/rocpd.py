"""rocpd: SQLite files of rocprofiler-sdk (rocprofv3's default since ROCm 7.0), schema versions 3 and 4.

Each process writes its tables under a suffix (``rocpd_region_0190...``), and a merge puts the tables of many processes
into one file, with views of the plain names over all of them. The tables are read, not the views; ids count within a
``guid``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from pasta.importers.base import Head, Importer, Kind, Report, Sink, nothing_to_import
from pasta.importers.json_stream import loads
from pasta.importers.packed import Source
from pasta.importers.rocm.agents import Agent, agent_of, write_devices
from pasta.importers.rocm.rocpd_tables import Event, RocpdTables
from pasta.importers.rocm.rows import Dispatch, RocmRows, Where
from pasta.importers.sqlite import Database, opened

_METADATA = "rocpd_metadata"
#: Tables of events that have a place, and tables that describe others.
_EVENTS = ("rocpd_kernel_dispatch", "rocpd_memory_copy", "rocpd_memory_allocate", "rocpd_region", "rocpd_sample")
_DESCRIPTIONS = (
    *("rocpd_info_", "rocpd_string", "rocpd_event", "rocpd_track", "rocpd_timestamp"),
    *(_METADATA, "sqlite_"),
)

_UNKNOWN = Agent()


class RocpdImporter:
    """The importer of rocpd databases."""

    kind = Kind.ROCPD
    label = "rocpd (rocprofiler-sdk SQLite)"

    def sniff(self, head: Head) -> bool:
        """Return whether the database has rocpd's tables, with or without a suffix."""
        return all(any(name.startswith(start) for name in head.tables) for start in (_METADATA, "rocpd_info_agent"))

    def read(self, sources: Sequence[Source], sink: Sink, report: Report) -> None:
        """Import all processes of every file; ``PastaError`` when none has an event."""
        found = False
        numbers = count(1)
        for source in sources:
            with opened(source) as db:
                suffixes = [name[len(_METADATA) :] for name in db.tables if name.startswith(_METADATA)]
                for suffix in suffixes:
                    if any(db.count(f"{table}{suffix}") for table in _EVENTS):
                        found = True
                        tables = RocpdTables(db, suffix)
                        report.version = tables.version or report.version
                        _Process(tables, RocmRows(sink, report, numbers), report).read(sink)
                        sink.flush()
                _report_rest(db, suffixes, report)
        if not found:
            raise nothing_to_import(sources, "it has no event", "run rocprofv3 with --sys-trace or --kernel-trace")


def _report_rest(db: Database, suffixes: Sequence[str], report: Report) -> None:
    for name in db.tables:
        if not name.startswith((*_EVENTS, *_DESCRIPTIONS)) and (rows := db.count(name)):
            suffix = max((suffix for suffix in suffixes if name.endswith(suffix)), key=len, default="")
            report.unplaced[name.removesuffix(suffix)] += rows


class _Process:
    """The tables under one suffix, which usually are those of one process."""

    def __init__(self, tables: RocpdTables, rows: RocmRows, report: Report) -> None:
        self._tables = tables
        self._rows = rows
        self._report = report
        self._processes = tables.descriptions("rocpd_info_process", ("pid", "start", "end", "nid"), ("command",))
        self._threads = tables.descriptions("rocpd_info_thread", ("tid", "pid"), ("name",))
        self._symbols = tables.descriptions(
            "rocpd_info_kernel_symbol", ("group_segment_size", "arch_vgpr_count"), ("display_name", "kernel_name")
        )
        agents = tables.descriptions(
            "rocpd_info_agent", ("absolute_index",), ("type", "extdata", "product_name", "name")
        )
        self._agents = {key: _agent(key[1], *values) for key, values in agents.items()}

    def read(self, sink: Sink) -> None:
        """Import everything, in the order that ``RocmRows`` asks for."""
        for event in self._tables.events("rocpd_region", (), ("name_id",), where="category LIKE 'MARKER%'"):
            name = event.texts[0] or ""
            kind = "start_end" if "Process" in name or "Start" in name else "push_pop"
            self._rows.marker(self._where(event), kind, _message(event.details) or name)
        for event in self._tables.events("rocpd_sample", (), ("name_id",), where="category LIKE 'MARKER%'"):
            self._rows.marker(self._where(event)._replace(end=event.start), "mark", _message(event.details))
        self._rows.place_markers()
        self._regions()
        self._device_work()
        self._allocations()
        self._identities(sink)

    def _regions(self) -> None:
        """Calls, driver events, and ranges of other tools that write rocpd, such as rocprof-sys."""
        other = "coalesce(category, '') NOT LIKE 'MARKER%'"
        for event in self._tables.events("rocpd_region", (), ("name_id",), where=other):
            name, category = event.texts[0], event.category or ""
            where = self._where(event)
            if category in ("KFD_PAGE_MIGRATE", "KFD_PAGE_FAULT"):
                self._unified(where, event, name or "")
            elif category.startswith("KFD_"):
                self._report.unplaced[f"{category} event"] += 1
            elif not self._rows.call(where, category, name):
                self._rows.marker(where, "push_pop", name, category=category or "region")
        for event in self._tables.events("rocpd_sample", (), ("name_id",), where=other):
            category = event.category or ""
            name = event.texts[0] if event.texts[0] != category else None
            where = self._where(event)._replace(end=event.start)
            if not category or not self._rows.call(where, category, name):
                self._report.unplaced["sample"] += 1

    def _device_work(self) -> None:
        sizes = [f"{what}_size_{axis}" for what in ("grid", "workgroup") for axis in "xyz"]
        graph = ("graph_exec_id", "graph_node_id")
        segments = ("group_segment_size", "private_segment_size")
        columns = ("dispatch_id", "kernel_id", *sizes, *segments, *graph)
        for event in self._tables.events("rocpd_kernel_dispatch", columns):
            number, kernel, *rest = event.numbers
            symbol = self._symbols.get((event.guid, kernel or 0))
            if symbol is None:
                self._report.unmatched["kernel whose name is not in the file"] += 1
            static_lds, registers, name, mangled = symbol or (None, None, None, None)
            mangled = mangled.removesuffix(".kd") if mangled else None
            self._rows.kernel(
                self._where(event)._replace(device=self._agent(event, event.agent).number),
                Dispatch(
                    number=number,
                    name=name or mangled,
                    mangled=None if mangled == name or not name else mangled,
                    grid=rest[0:3],
                    block=rest[3:6],
                    lds=rest[6],
                    static_lds=static_lds,
                    scratch=rest[7],
                    registers=registers,
                    graph=(rest[8] or None, rest[9] or None),
                ),
            )
        for event in self._tables.events("rocpd_memory_copy", ("size", "src_agent_id", "dst_agent_id"), ("name_id",)):
            size, source, target = event.numbers
            devices = (self._agent(event, agent).device for agent in (source, target))
            self._rows.copy(self._where(event), event.texts[0], size, *devices)

    def _allocations(self) -> None:
        for event in self._tables.events("rocpd_memory_allocate", ("address", "size"), plain=("type", "level")):
            address, size = event.numbers
            action, level = event.texts
            if level == "SCRATCH" or action not in ("ALLOC", "FREE"):
                self._report.unplaced[f"{level} {action} of memory"] += 1
                continue
            agent = self._agent(event, event.agent)
            where = self._where(event)._replace(device=agent.number)
            self._rows.allocation(where, f"{level}_{action}", address, size, agent.gpu)

    def _unified(self, where: Where, event: Event, operation: str) -> None:
        record = _innermost(_json(event.details))
        if event.category == "KFD_PAGE_FAULT":
            device = self._agent(event, _number(record, "agent_id")).device
            self._rows.page_fault(where._replace(device=device), operation, _number(record, "address"))
            return
        source, target = (self._agent(event, _number(record, f"{end}_agent_id")) for end in ("src", "dst"))
        first, last = (_number(record, f"{end}_address") for end in ("start", "end"))
        self._rows.page_migration(
            where, operation, first, last, (source.device, source.gpu), (target.device, target.gpu)
        )

    def _where(self, event: Event) -> Where:
        thread = self._threads.get((event.guid, event.thread or 0))
        return Where(
            *(self._pid(event.guid, event.process), event.start, event.end, thread[0] if thread else event.thread),
            *(None, event.queue if event.stream is None else event.stream, event.correlation or None),
        )

    def _pid(self, guid: str, process: int | None) -> int:
        """Return the process id for the number of a process, which rocprofv3 makes the same."""
        known = self._processes.get((guid, process or 0))
        return (known[0] if known else process) or 0

    def _agent(self, event: Event, number: int | None) -> Agent:
        return self._agents.get((event.guid, -1 if number is None else number), _UNKNOWN)

    def _identities(self, sink: Sink) -> None:
        threads = {
            (self._pid(guid, process), thread): name
            for (guid, _), (thread, process, name) in self._threads.items()
            if name
        }
        streams = {
            (self._pid(guid, process), number): name
            for (guid, number), (process, name) in self._tables.descriptions(
                "rocpd_info_stream", ("pid",), ("name",)
            ).items()
            if name
        }
        self._rows.finish(threads, streams)
        hosts = self._tables.descriptions("rocpd_info_node", (), ("hostname",))
        self._rows.processes(
            (pid or 0, start or None, end or None, hosts.get((guid, node), (None,))[0], command)
            for (guid, _), (pid, start, end, node, command) in self._processes.items()
        )
        used = self._rows.seen.devices
        agents = {agent.number: agent for agent in self._agents.values()}
        write_devices(sink, used, {key: agents[key[1]] for key in used if key[1] in agents})


def _agent(
    number: int, index: int | None, kind: str | None, details: str | None, product: str | None, name: str | None
) -> Agent:
    described = agent_of(_json(details))
    about: Mapping[str, Any] = described.about if described else {"vendor": "AMD", "name": product or name}
    gpu = {"GPU": True, "CPU": False, "NIC": False}.get(kind or "")
    return Agent(number if index is None else index, gpu, about)


def _json(text: str | None) -> Any:
    if not text or text == "{}":
        return None
    try:
        return loads(text.encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


def _message(details: str | None) -> str | None:
    """Return the text of a marker, which stands in the extra data of its event."""
    value = _json(details)
    message = value.get("message") if isinstance(value, dict) else None
    return message if isinstance(message, str) and message else None


def _innermost(value: Any) -> Mapping[str, Any]:
    """Return the record of a driver event, which newer versions wrap (``kfd``, ``record``, ``data``)."""
    for _ in range(8):
        inner = (
            next((item for item in value.values() if isinstance(item, dict)), None) if isinstance(value, dict) else None
        )
        if inner is None:
            break
        value = inner
    return value if isinstance(value, dict) else {}


def _number(record: Mapping[str, Any], name: str) -> int | None:
    value = record.get(name)
    return value if type(value) is int and value >= 0 else None


IMPORTERS: tuple[Importer, ...] = (RocpdImporter(),)
