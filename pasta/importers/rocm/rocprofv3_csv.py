"""CSV files of rocprofv3: one file for each domain of a run, so an import is a set of them.

Headers drifted over the years; they are matched without regard to case or order. Known forms::

    kernel       Kind, Agent_Id (4 or "Agent 4" or "GPU 0"), Queue_Id, [Stream_Id,] Thread_Id, Dispatch_Id, Kernel_Id,
                 Kernel_Name, Correlation_Id, Start_, End_Timestamp, LDS_Block_Size or Group_Segment_Size,
                 Scratch_Size or Private_Segment_Size, VGPR_Count, ..., Workgroup_Size_X .. Z, Grid_Size_X .. Z
                 (in work-items)
    copy         Kind, Direction, [Stream_Id,] Source_, Destination_Agent_Id, Correlation_Id, times; no size
    allocation   Kind, Operation, Agent_Id, Allocation_Size (0 in a free), Address, Correlation_Id, times
    call, marker Domain, Function, Process_Id, Thread_Id, Correlation_Id, times; a marker's text is its Function

Files of ``rocpd convert`` start each row with a Guid. Kernels name no process: they take the one of their guid, or of
their thread in the calls of the same run, or the run's only one. Files of a run begin alike (``908_kernel_trace.csv``).
"""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count

from pasta.errors import PastaError
from pasta.importers.base import Head, Importer, Kind, Report, Sink, nothing_to_import
from pasta.importers.chrome_events import to_int
from pasta.importers.packed import Source
from pasta.importers.rocm.agents import Agent, agent_of, write_devices
from pasta.importers.rocm.names import number_in
from pasta.importers.rocm.rows import Dispatch, RocmRows, Where

#: Columns that tell the forms apart; forms are read in this order, what explains others first.
_FORMS: Mapping[str, frozenset[str]] = {
    "agent": frozenset({"node_id", "agent_type"}),
    "marker": frozenset({"domain", "function", "start_timestamp"}),
    "call": frozenset({"domain", "function", "start_timestamp"}),
    "counter": frozenset({"dispatch_id", "counter_name", "counter_value"}),
    "kernel": frozenset({"kernel_name", "dispatch_id", "start_timestamp"}),
    "copy": frozenset({"direction", "source_agent_id", "start_timestamp"}),
    "allocation": frozenset({"operation", "allocation_size", "start_timestamp"}),
    "scratch": frozenset({"operation", "alloc_flags"}),
    "sample": frozenset({"sample_timestamp", "exec_mask"}),
    "statistics": frozenset({"name", "calls", "totaldurationns"}),
}
#: Tables that the rows of a form become.
_TABLES = {"kernel": "kernel", "copy": "memcpy", "allocation": "alloc", "call": "api", "marker": "range"}
_UNPLACED = {
    "counter": "value of a hardware counter",
    "scratch": "scratch memory event",
    "sample": "sample of the program counter",
    "statistics": "row of statistics",
}

#: Longest line, and longest field: names of kernels reach some ten thousand characters.
_MAX_LINE = 8 << 20

#: The beginning of a file's name, up to its domain, which names its run.
_RUN = re.compile(
    r"(.*?)_?(?:kernel|hip|hsa|memory|marker|rccl|scratch|counter|agent|pc_samp|roc(?:decode|jpeg)|kfd|out)"
)

Row = Mapping[str, str]


class RocprofCsvImporter:
    """The importer of rocprofv3's CSV files."""

    kind = Kind.ROCPROFV3_CSV
    label = "rocprofv3 CSV"

    def sniff(self, head: Head) -> bool:
        """Return whether the first line is the header of one of rocprofv3's forms."""
        return _form(head.start) is not None

    def read(self, sources: Sequence[Source], sink: Sink, report: Report) -> None:
        """Import the files of all runs."""
        runs = _Runs(sink, report)
        files = [(form, source) for source in sources if (form := _form(source.head())) is not None]
        for form in _FORMS:
            for source in (source for own, source in files if own == form):
                runs.read(form, source)
            if form == "marker":
                runs.rows.place_markers()
        if not runs.placed:
            held = ", ".join(sorted({_UNPLACED.get(form, form) for form, _ in files}))
            raise nothing_to_import(
                sources, f"pasta has no table for it ({held})", "import the kernel_trace.csv and hip_api_trace.csv too"
            )
        runs.finish()


class _Runs:
    """The files of all runs, on their way into rows."""

    def __init__(self, sink: Sink, report: Report) -> None:
        self.rows = RocmRows(sink, report, count(1))
        self.placed = 0
        self._sink = sink
        self._report = report
        self._guids: dict[str, int] = {}
        self._threads: dict[tuple[str, int], int] = {}
        self._pids: dict[str, set[int]] = {}
        self._agents: dict[int, Agent] = {}

    def read(self, form: str, source: Source) -> None:
        """Import one file."""
        run = _run_of(source)
        read: Callable[[str, Row], None] | None = {
            "agent": self._agent,
            "marker": self._call,
            "call": self._call,
            "kernel": self._kernel,
            "copy": self._copy,
            "allocation": self._allocation,
        }.get(form)
        rows = 0
        for row in _rows(source, _FORMS[form], self._report):
            rows += 1
            if form == "counter":
                self._process(run, row)
            if read is not None:
                read(run, row)
        if form in _UNPLACED and rows:
            self._report.unplaced[_UNPLACED[form]] += rows
        if source.broken:
            self._report.loss(
                _TABLES.get(form), None, f"{source.path.name} is cut: {source.broken}", "fetch the file again"
            )
            self._report.notes.append(f"{source.path.name} is cut: {source.broken}; what came before is imported")

    def finish(self) -> None:
        """Add what events mentioned."""
        self.rows.finish()
        pids = {pid for pids in self._pids.values() for pid in pids}
        self.rows.processes((pid, None, None, None, None) for pid in sorted(pids))
        used = self.rows.seen.devices
        agents = {(pid, device): agent for pid, device in used if (agent := self._agents.get(device)) and agent.gpu}
        write_devices(self._sink, used, agents)

    def _agent(self, run: str, row: Row) -> None:
        agent = agent_of({**row, "type": 2 if row.get("agent_type", "").upper() in ("GPU", "2") else 1})
        if agent is not None and agent.number is not None:
            self._agents[agent.number] = agent

    def _call(self, run: str, row: Row) -> None:
        domain = row["domain"]
        where = self._where(run, row, self._process(run, row))
        if where is None:
            return
        if domain.startswith("MARKER_CORE"):
            # The thread of a range that may end on another thread is written as 0.
            kind = "mark" if where.start == where.end else "push_pop" if where.thread else "start_end"
            self.rows.marker(where, kind, row["function"])
        elif not self.rows.call(where, domain, row["function"]):
            self._report.unplaced[f"{domain} event"] += 1
            return
        self.placed += 1

    def _kernel(self, run: str, row: Row) -> None:
        where = self._where(run, row, self._process_of(run, row))
        if where is None:
            return
        self.placed += 1
        lds = row.get("lds_block_size", row.get("group_segment_size"))
        scratch = row.get("scratch_size", row.get("private_segment_size"))
        self.rows.kernel(
            where._replace(device=number_in(row.get("agent_id"))),
            Dispatch(
                number=to_int(row["dispatch_id"]),
                name=row["kernel_name"] or None,
                grid=[to_int(row.get(f"grid_size_{axis}")) for axis in "xyz"],
                block=[to_int(row.get(f"workgroup_size_{axis}")) for axis in "xyz"],
                lds=to_int(lds),
                scratch=to_int(scratch),
                registers=to_int(row.get("vgpr_count")),
            ),
        )
        for column in ("accum_vgpr_count", "sgpr_count"):
            if to_int(row.get(column)):
                self._report.unplaced[f"{column} of a kernel"] += 1

    def _copy(self, run: str, row: Row) -> None:
        where = self._where(run, row, self._process_of(run, row))
        if where is None:
            return
        self.placed += 1
        source, target = (row.get(f"{end}_agent_id") for end in ("source", "destination"))
        size = to_int(row.get("size", row.get("copy_bytes")))
        self.rows.copy(where, row["direction"], size, number_in(source), number_in(target))

    def _allocation(self, run: str, row: Row) -> None:
        where = self._where(run, row, self._process_of(run, row))
        if where is None:
            return
        self.placed += 1
        label = row.get("agent_id") or ""
        number = number_in(label)
        agent = self._agents.get(-1 if number is None else number)
        on_gpu = agent.gpu if agent else {"GPU": True, "CPU": False}.get(label[:3])
        address, size = to_int(row.get("address")), to_int(row["allocation_size"])
        self.rows.allocation(where._replace(device=number), row["operation"], address, size, on_gpu)

    def _where(self, run: str, row: Row, pid: int) -> Where | None:
        start = to_int(row["start_timestamp"])
        if start is None:
            self._report.skipped["row without a start"] += 1
            return None
        stream = to_int(row.get("stream_id"))
        return Where(
            *(pid, start, to_int(row.get("end_timestamp")), to_int(row.get("thread_id"))),
            *(
                None,
                to_int(row.get("queue_id")) if stream is None else stream,
                to_int(row.get("correlation_id")) or None,
            ),
        )

    def _process(self, run: str, row: Row) -> int:
        """Return the process that a row names, and remember it for rows that name none."""
        pid = to_int(row.get("process_id"))
        if pid is None:
            return self._process_of(run, row)
        self._pids.setdefault(run, set()).add(pid)
        if guid := row.get("guid"):
            self._guids[guid] = pid
        thread = to_int(row.get("thread_id"))
        if thread:
            self._threads[run, thread] = pid
        return pid

    def _process_of(self, run: str, row: Row) -> int:
        """Return the process of a row that names none."""
        pid = self._guids.get(row.get("guid", "")) or self._threads.get((run, to_int(row.get("thread_id")) or 0))
        if pid is None:
            pids = self._pids.get(run, set())
            name = run.rpartition("/")[2]
            named = int(name) if name.isdecimal() and len(name) < 10 else 0
            pid = next(iter(pids)) if len(pids) == 1 else named
        return pid


def _form(start: bytes) -> str | None:
    """Return the form of a file that begins with ``start``; names of columns have no commas in them."""
    header, _, rest = start.partition(b"\n")
    line = header.decode("utf-8-sig", "replace")
    names = {name.strip().strip('"').lower() for name in line.split(",")}
    form = next((form for form, columns in _FORMS.items() if columns <= names), None)
    if form == "marker" and b"MARKER_" not in rest.partition(b"\n")[0]:
        return "call"
    return form


def _run_of(source: Source) -> str:
    found = _RUN.match(source.path.name)
    return f"{source.path.parent}/{found[1] if found else source.path.stem}"


def _rows(source: Source, columns: frozenset[str], report: Report) -> Iterator[Row]:
    """Yield the rows of a file by the lower-case names of their columns, which ``columns`` must be among."""
    previous = csv.field_size_limit(_MAX_LINE)
    try:
        reader = csv.reader(_lines(source))
        names = [name.strip().lower() for name in next(reader, [])]
        if not columns <= set(names):
            raise PastaError(f"{source.path} is damaged: its first line is no header", "record or fetch the file again")
        for values in reader:
            if len(values) == len(names):
                yield dict(zip(names, values, strict=True))
            elif values:
                report.skipped["row with a wrong number of fields"] += 1
    except csv.Error as error:
        raise PastaError(f"{source.path} is damaged: {error}", "record or fetch the file again") from error
    finally:
        csv.field_size_limit(previous)


def _lines(source: Source) -> Iterator[str]:
    decode = codecs.getincrementaldecoder("utf-8-sig")("replace").decode
    rest = ""
    for piece in source.read():
        *lines, rest = (rest + decode(piece)).split("\n")
        yield from (f"{line}\n" for line in lines)
        if len(rest) > _MAX_LINE:
            raise PastaError(f"{source.path} is no CSV file: a line is longer than {_MAX_LINE} characters")
    if rest:
        yield rest


IMPORTERS: tuple[Importer, ...] = (RocprofCsvImporter(),)
