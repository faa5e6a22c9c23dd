"""NVTX events of an Nsight Systems export: ranges and marks, with the names of their domains and categories."""

from __future__ import annotations

from dataclasses import dataclass, field

from pasta.importers.annotations import Annotations
from pasta.importers.base import Report
from pasta.importers.open_intervals import NEVER
from pasta.importers.sqlite import Database

TABLE = "NVTX_EVENTS"

# Numbers of ENUM_NSYS_EVENT_TYPE.
_CATEGORY, _MARK, _THREAD, _PUSH_POP, _START_END, _DOMAIN, _DOMAIN_END = 33, 34, 39, 59, 60, 75, 76
_KINDS = {_MARK: "mark", _PUSH_POP: "push_pop", _START_END: "start_end"}

_USED = {"start", "end", "eventType", "category", "text", "textId", "globalTid", "endGlobalTid", "domainId", "eventId"}


@dataclass
class NvtxNames:
    """What the number of a domain or of a category of a process stands for, and names of threads."""

    domains: dict[tuple[int, int], str] = field(default_factory=dict)
    categories: dict[tuple[int, int, int], str] = field(default_factory=dict)
    threads: dict[int, str] = field(default_factory=dict)

    def domain(self, process: int, number: int | None) -> str | None:
        """Return the name of a domain; None for the default one."""
        return self.domains.get((process, number), f"domain {number}") if number else None

    def category(self, process: int, domain: int | None, number: int | None) -> str | None:
        """Return the name of a category, its number as text where it has none, or None."""
        return self.categories.get((process, domain or 0, number), str(number)) if number else None


def read_nvtx(db: Database, annotations: Annotations, report: Report) -> NvtxNames:
    """Import all NVTX events and return the names that they define."""
    names = NvtxNames()
    if not db.has(TABLE, "start", "eventType"):
        return names
    _read_names(db, names)
    not_names = f"NOT IN ({_CATEGORY}, {_THREAD}, {_DOMAIN}, {_DOMAIN_END})"
    order = f"c_globalTid, c_start, coalesce(c_end, {NEVER}) DESC"
    for thread, start, end, kind, domain, category, text in db.rows(_query(db, not_names, order)):
        if kind not in _KINDS or start is None:
            report.skipped[f"NVTX event of type {kind} that is no range or mark"] += 1
            continue
        process = (thread or 0) >> 24
        annotations.add(
            *(thread, process & 0xFFFFFF, None if thread is None else thread & 0xFFFFFF),
            *(start, end, _KINDS[kind], text),
            *(names.domain(process, domain), names.category(process, domain, category)),
        )
    report.unplaced.update(db.unplaced(TABLE, _USED))
    return names


def _query(db: Database, types: str, order: str) -> str:
    text = db.text(TABLE, "text", "n")
    join = ""
    if db.has(TABLE, "textId") and db.has("StringIds", "id", "value"):
        text = f"coalesce({text}, {db.text('StringIds', 'value', 's')})"
        join = "LEFT JOIN StringIds s ON s.id = n.textId"
    columns = ", ".join(
        f"{read(TABLE, name, 'n')} AS c_{name}"
        for read, name in (
            *((db.column, "globalTid"), (db.time, "start"), (db.time, "end")),
            *((db.column, "eventType"), (db.column, "domainId"), (db.column, "category")),
        )
    )
    return f"SELECT {columns}, {text} FROM {TABLE} n {join} WHERE coalesce(n.eventType, -1) {types} ORDER BY {order}"


def _read_names(db: Database, names: NvtxNames) -> None:
    query = _query(db, f"IN ({_CATEGORY}, {_THREAD}, {_DOMAIN})", "c_start")
    for thread, _, _, kind, domain, category, text in db.rows(query):
        process = (thread or 0) >> 24
        if text is None:
            continue
        if kind == _DOMAIN and domain is not None:
            names.domains[process, domain] = text
        elif kind == _CATEGORY and category is not None:
            names.categories[process, domain or 0, category] = text
        elif kind == _THREAD and thread is not None:
            names.threads[thread] = text
