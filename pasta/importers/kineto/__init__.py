"""PyTorch's profiler traces (Kineto JSON, 2021 to now; CUDA, ROCm, XPU, MTIA), one file or one a rank."""

from __future__ import annotations

import gc
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

from pasta.importers.base import Head, Kind, Report, Sink, nothing_to_import
from pasta.importers.chrome_events import MAX_US, event_stream, to_int
from pasta.importers.ids import MADE
from pasta.importers.kineto.events import COLUMNS, PLACED, KinetoEvents, spool_schema
from pasta.importers.kineto.identity import write_identity
from pasta.importers.kineto.relate import Owner, write
from pasta.importers.packed import Source
from pasta.importers.spool import Spool

_HEADER = re.compile(rb'"(?:deviceProperties|computeProperties|distributedInfo|baseTimeNanoseconds)"\s*:')
_CATEGORY = re.compile(
    rb'"cat"\s*:\s*"(?:cpu_op|user_annotation|python_function|cuda_runtime|cuda_driver|xpu_runtime|mtia_runtime'
    rb"|privateuse1_runtime|gpu_memcpy|gpu_memset|gpu_user_annotation|ac2g|async_cpu_to_gpu"
    rb'|kernel|Kernel|Operator|Runtime|Memcpy|Memset)"'
)
#: Intel's unitrace calls its host calls ``cpu_op`` too.
_UNITRACE = re.compile(rb'"cat"\s*:\s*"(?:gpu_op|Flow_[HD]2[HD]|CL_Flow_)')
_EVENTS = re.compile(rb'"traceEvents"\s*:|^\s*\[')

#: Header values that go into the manifest as they are, when they are not longer than this as text.
_MAX_HEADER_TEXT = 4096
#: UNIX time of the year 2001 in ns: times before it are not those of a clock that says the date.
_EPOCH = 10**18


@dataclass
class _File:
    source: Source
    spool: Spool
    events: KinetoEvents
    header: Mapping[str, Any]
    base_ns: int
    first_ns: int
    #: All times are whole microseconds.
    coarse: bool


class Kineto:
    """The importer; see the module's docstring."""

    kind = Kind.KINETO
    label = "PyTorch profiler trace (Kineto)"

    def sniff(self, head: Head) -> bool:
        """A Chrome trace with Kineto's header or its categories."""
        start = head.start
        is_kineto = _has_header(start) or (_CATEGORY.search(start) and not _UNITRACE.search(start))
        return bool(_EVENTS.search(start) and is_kineto)

    def read(self, sources: Sequence[Source], sink: Sink, report: Report) -> None:
        """Read every file, then write them on one time line, each under a pid of its own."""
        scanned = [self._scan(number, source, report) for number, source in enumerate(sources)]
        files = [file for file in scanned if file is not None]
        if not files:
            raise nothing_to_import(sources, "no event that pasta knows", "record with activities=[CPU, CUDA]", report)
        anchor = min(file.first_ns for file in files)
        report.epoch_ns = anchor if anchor > _EPOCH else None
        if all(file.coarse for file in files):
            report.resolution_ns = 1000
        taken: set[int] = set()
        for file in files:
            owner = _owner(file, anchor, taken, report)
            write_identity(file.events, file.header, owner, sink, report)
            write(file.spool, owner, sink, report)
        report.version = ", ".join(sorted({_version(file.header) for file in files}))
        report.source = _header_of(files)

    def _scan(self, number: int, source: Source, report: Report) -> _File | None:
        spool = Spool(source.folder / f"kineto-{number}", {table: spool_schema(table) for table in COLUMNS})
        events = KinetoEvents(spool)
        stream = event_stream(source)
        with _no_cycles():
            for batch in stream.batches():
                events.take(batch)
        spool.flush()
        _tell(events, stream.skipped, report)
        if stream.broken:
            report.incomplete(source, stream.broken)
        times = [spool.columns(table, "start_ns")["start_ns"] for table in COLUMNS]
        first = min((start for start in (column.min() for column in times) if isinstance(start, int)), default=None)
        if first is None:
            report.notes.append(f"{source.path.name} has no event that pasta knows")
            return None
        base = to_int(stream.header.get("baseTimeNanoseconds")) or 0
        if not 0 <= base < MAX_US * 1000:
            report.skipped["baseTimeNanoseconds that is no time"] += 1
            base = 0
        coarse = not any((column % 1000 != 0).any() for column in times)
        return _File(source, spool, events, stream.header, base, base + first, coarse)


def _has_header(start: bytes) -> bool:
    return b'"schemaVersion"' in start and bool(_HEADER.search(start))


@contextmanager
def _no_cycles() -> Iterator[None]:
    """Pause the collector: the batches make millions of objects and no cycle (a third of the time otherwise)."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _tell(events: KinetoEvents, skipped: Counter[str], report: Report) -> None:
    report.skipped += skipped + events.skipped
    report.unplaced += events.unplaced
    for (table, *names), having in events.shapes.items():
        for name in names:
            if name not in PLACED[table]:
                report.unplaced[f"{table}: {name}"] += having


def _owner(file: _File, anchor: int, taken: set[int], report: Report) -> Owner:
    """Decide under which pids a file's rows go: its own, unless a file before it has them."""
    pids: Counter[int] = Counter()
    for table in ("op", "api", "range", "tensor", "kernel"):
        pids.update(dict(file.spool.columns(table, "_pid")["_pid"].drop_nulls().value_counts().iter_rows()))
    found = [pid for pid, _ in pids.most_common()] or [0]
    new = {}
    for pid in found:
        free = pid if pid not in taken else next(number for number in count(MADE) if number not in taken)
        if free != pid:
            report.notes.append(
                f"{file.source.path.name}: process {pid} is called {free}, as another file has {pid} too"
            )
        taken.add(free)
        new[pid] = free
    distributed = file.header.get("distributedInfo")
    rank = to_int(distributed.get("rank")) if isinstance(distributed, dict) else None
    known_rank = rank if rank is not None and 0 <= rank < MADE else None
    return Owner(new, new[found[0]], known_rank, anchor - file.base_ns)


def _version(header: Mapping[str, Any]) -> str:
    """Return what the header says of versions: of its schema, the runtime, driver and tracer."""
    versions = [f"schema {header['schemaVersion']}"] if "schemaVersion" in header else []
    named = sorted(key for key in header if key.endswith("_version"))
    return ", ".join([*versions, *(f"{key.removesuffix('_version')} {str(header[key])[:40]}" for key in named)])


def _header_of(files: Sequence[_File]) -> dict[str, Any]:
    """Return the files' headers for the manifest, without their long values, and the profiler's own spans."""
    result: dict[str, Any] = {}
    for file in files:
        short = {key: value for key, value in file.header.items() if len(str(value)) <= _MAX_HEADER_TEXT}
        spans = [{"name": name, "start_ns": start, "ns": duration} for name, start, duration in file.events.spans]
        result[file.source.path.name] = short | ({"spans": spans} if spans else {})
    return result


IMPORTERS = (Kineto(),)
