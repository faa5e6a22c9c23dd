"""Nsight Systems exports (``nsys export --type sqlite``), from before schemas had numbers to schema 3.25.

An export has a table for each kind of event that occurred. The order of reading matters: operators come from NVTX,
calls get the operator around them, and device work gets thread and operator from the call that started it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from pasta.importers.addresses import AddressMap
from pasta.importers.annotations import Annotations
from pasta.importers.base import Head, Importer, Kind, Report, Sink, nothing_to_import
from pasta.importers.nsys.calls import TABLE as CALLS
from pasta.importers.nsys.calls import read_calls
from pasta.importers.nsys.memory import read_memory
from pasta.importers.nsys.nvtx import TABLE as NVTX
from pasta.importers.nsys.nvtx import read_nvtx
from pasta.importers.nsys.rows import RowMaker
from pasta.importers.nsys.target import DEVICE_TABLES, PROCESS_TABLES, find_target, read_target
from pasta.importers.nsys.work import read_work
from pasta.importers.packed import Source
from pasta.importers.ranks import WithRanks
from pasta.importers.sqlite import Database, opened

#: Tables of events that have a place in pasta.
EVENT_TABLES = (*DEVICE_TABLES, *PROCESS_TABLES, CALLS, NVTX, "CUPTI_ACTIVITY_KIND_JIT")

#: Tables that describe others, or the capture; nobody misses them.
_DESCRIPTIONS = ("ENUM_", "META_DATA_", "EXPORT_META_DATA", "TARGET_INFO_", "ANALYSIS_", "sqlite_")
_DESCRIPTION_TABLES = {"StringIds", "PROCESSES", "ThreadNames", "ProcessStreams", "MPI_RANKS", "DIAGNOSTIC_EVENT"}

#: Warnings of Nsight that mean lost events, and the table that misses them.
_INCOMPLETE = {
    "Not all CUDA events might have been collected": "kernel",
    "Not all NVTX events might have been collected": "range",
}


class NsysImporter:
    """The importer of Nsight Systems exports; several files are the ranks of one job."""

    kind = Kind.NSYS
    label = "Nsight Systems SQLite export"

    def sniff(self, head: Head) -> bool:
        """Return whether the database has tables that only this exporter writes."""
        names = head.tables.keys()
        described = {"META_DATA_EXPORT", "EXPORT_META_DATA", "TARGET_INFO_SESSION_START_TIME"} & names
        events = any("start" in head.tables.get(name, ()) for name in EVENT_TABLES)
        return events or (bool(described) and "StringIds" in names)

    def read(self, sources: Sequence[Source], sink: Sink, report: Report) -> None:
        """Import every file; ``PastaError`` when none has an event with a place."""
        found = False
        numbers, objects = count(1), AddressMap()
        for source in sources:
            with opened(source) as db:
                _describe(db, report)
                if not any(db.value(f"SELECT 1 FROM {name} LIMIT 1") for name in EVENT_TABLES if name in db.tables):
                    continue
                found = True
                epoch = _epoch(db)
                if report.epoch_ns is None:
                    report.epoch_ns = epoch
                elif epoch is not None:
                    db.shift_ns = epoch - report.epoch_ns
                target = find_target(db)
                ranked = Sink(WithRanks(sink, target.ranks), report)
                annotations = Annotations(ranked, numbers, "nvtx")
                names = read_nvtx(db, annotations, report)
                read_calls(db, ranked, report, annotations)
                make = RowMaker(db, ranked, report, target.sole)
                read_work(make)
                read_memory(make, objects)
                read_target(db, ranked, target, names)
                ranked.flush()
        if not found:
            raise nothing_to_import(
                sources,
                "it has no table of CUDA or NVTX events",
                "profile with nsys profile --trace=cuda,nvtx and check its warnings; the program may not use the GPU",
            )


def _epoch(db: Database) -> int | None:
    table = "TARGET_INFO_SESSION_START_TIME"
    number = db.value(f"SELECT {db.column(table, 'utcEpochNs')} FROM {table}") if table in db.tables else None
    return None if number is None else int(number)


def _describe(db: Database, report: Report) -> None:
    """Report the versions, everything that has no place, and what Nsight itself says is missing."""
    for table in ("EXPORT_META_DATA", "META_DATA_EXPORT"):
        if db.has(table, "name", "value"):
            about = {str(name): str(value) for name, value in db.rows(f"SELECT name, value FROM {table}")}
            report.version = about.get("EXPORT_SCHEMA_VERSION", report.version)
            report.source["nsys_version"] = about.get("EXPORT_PRODUCT_VERSION")
            report.source["host"] = about.get("EXPORT_HOST")
    for name in db.tables:
        known = name in EVENT_TABLES or name in _DESCRIPTION_TABLES or name.startswith(_DESCRIPTIONS)
        if not known and (rows := db.count(name)):
            report.unplaced[name] += rows
    if not db.has("DIAGNOSTIC_EVENT", "text", "severity"):
        return
    query = f"SELECT DISTINCT {db.text('DIAGNOSTIC_EVENT', 'text')} FROM DIAGNOSTIC_EVENT WHERE severity IN (2, 3)"
    for (text,) in db.rows(query):
        for warning, table in _INCOMPLETE.items():
            if warning in (text or ""):
                report.loss(table, None, f"nsys: {warning}", "profile a shorter part, or see nsys's own diagnostics")
        if text and text.startswith(("CUDA", "Installed CUDA")):
            report.notes.append(f"nsys: {' '.join(text.split())[:300]}")


IMPORTERS: tuple[Importer, ...] = (NsysImporter(),)
