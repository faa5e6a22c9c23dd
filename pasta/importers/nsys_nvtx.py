"""NVTX events of an Nsight Systems export: operators written by PyTorch's ``emit_nvtx``, and all other ranges.

``emit_nvtx`` pushes one range an operator, whose text is its only payload::

    aten::mm, seq = 46174, op_id = 993406, sizes = [[8, 16], [16, 4]], input_op_ids = [(12, 0), (13, 0)]

``seq`` is there when autograd records the operator, ``op_id`` since torch 1.10, ``sizes`` on request. Operators are
numbered anew: ids in the text repeat when a program is profiled twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from pasta.importers.base import Report, Sink
from pasta.importers.open_intervals import NEVER, OpenIntervals
from pasta.importers.sqlite import Database

TABLE = "NVTX_EVENTS"

# Numbers of ENUM_NSYS_EVENT_TYPE.
_CATEGORY, _MARK, _THREAD, _PUSH_POP, _START_END, _DOMAIN, _DOMAIN_END = 33, 34, 39, 59, 60, 75, 76
_KINDS = {_MARK: "mark", _PUSH_POP: "push_pop", _START_END: "start_end"}

_NUMBER = re.compile(r"\d{1,18}")
_BACKWARD = re.compile(r"autograd::engine::evaluate_function|\w*Backward\d*$")
_OPTIMIZER = re.compile(r"Optimizer\.(?:step|zero_grad)#")

_USED = {"start", "end", "eventType", "category", "text", "textId", "globalTid", "endGlobalTid", "domainId", "eventId"}


@dataclass
class NvtxNames:
    """What the number of a domain or of a category of a process stands for."""

    domains: dict[tuple[int, int], str] = field(default_factory=dict)
    categories: dict[tuple[int, int, int], str] = field(default_factory=dict)
    threads: dict[int, str] = field(default_factory=dict)

    def domain(self, process: int, number: int | None) -> str | None:
        """Return the name of a domain; None for the default one."""
        return self.domains.get((process, number), f"domain {number}") if number else None

    def category(self, process: int, domain: int | None, number: int | None) -> str | None:
        """Return the name of a category, its number as text where it has none, or None."""
        return self.categories.get((process, domain or 0, number), str(number)) if number else None


class Operator(NamedTuple):
    """What the text of an ``emit_nvtx`` range says."""

    name: str
    sequence: int | None
    sizes: str | None


def operator(text: str) -> Operator | None:
    """Return what ``text`` says when ``emit_nvtx`` wrote it, else None."""
    rest, _, _ = text.partition(", input_op_ids = ")
    rest, _, sizes = rest.partition(", sizes = ")
    rest, _, op_id = rest.partition(", op_id = ")
    name, _, sequence = rest.partition(", seq = ")
    numbered = _NUMBER.fullmatch(sequence) or _NUMBER.fullmatch(op_id)
    if not name or not (numbered or name.startswith("aten::")):
        return None
    return Operator(name, int(sequence) if _NUMBER.fullmatch(sequence) else None, sizes or None)


def phase_of(op: Operator, outer: str | None) -> str | None:
    """Return the phase of training of an operator inside one of phase ``outer``; None where nothing tells it."""
    if outer in ("backward", "optimizer"):
        return outer
    if _BACKWARD.match(op.name):
        return "backward"
    if _OPTIMIZER.match(op.name):
        return "optimizer"
    return "forward" if op.sequence is not None else outer


def read_nvtx(db: Database, sink: Sink, report: Report, numbers: Iterator[int]) -> NvtxNames:
    """Import all NVTX events, numbered by ``numbers``.

    Leaves the operators of each thread in ``temp.operator``, from which calls take their ``op_id``.
    """
    db.create("operator", "thread INTEGER, start INTEGER, end INTEGER, number INTEGER")
    names = NvtxNames()
    if not db.has(TABLE, "start", "eventType"):
        return names
    _read_names(db, names)
    _read_events(db, sink, report, names, numbers)
    report.unplaced.update(db.unplaced(TABLE, _USED))
    return names


def _query(db: Database, types: str, order: str) -> str:
    text = db.text(TABLE, "text", "n")
    join = ""
    if db.has(TABLE, "textId") and db.has("StringIds", "id", "value"):
        text = f"coalesce({text}, s.value)"
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


def _read_events(db: Database, sink: Sink, report: Report, names: NvtxNames, numbers: Iterator[int]) -> None:
    ops = sink.table(
        "op", "pid", "start_ns", "end_ns", "thread_id", "op_id", "parent_id", "name", "phase", "sequence", "shapes"
    )
    ranges = sink.table(
        "range",
        *("pid", "start_ns", "end_ns", "thread_id", "range_id", "parent_id"),
        *("name", "domain", "category", "kind", "source"),
    )
    open_ops, open_ranges = OpenIntervals(), OpenIntervals()
    phases: dict[int, str | None] = {}
    found: list[tuple[int, int, int | None, int]] = []
    skip = f"NOT IN ({_CATEGORY}, {_THREAD}, {_DOMAIN}, {_DOMAIN_END})"
    for thread, start, end, kind, domain, category, text in db.rows(
        _query(db, skip, f"c_globalTid, c_start, coalesce(c_end, {NEVER}) DESC")
    ):
        if kind not in _KINDS or start is None:
            report.skipped[f"NVTX event of type {kind} that is no range or mark"] += 1
            continue
        number = next(numbers)
        process = (thread or 0) >> 24
        pid, thread_id = process & 0xFFFFFF, None if thread is None else thread & 0xFFFFFF
        op = operator(text) if kind == _PUSH_POP and text and not domain else None
        if op:
            parent = open_ops.push(thread, start, end, number)
            if parent is None:
                phases.clear()
            phase = phases[number] = phase_of(op, phases.get(parent) if parent else None)
            ops.add(pid, start, end, thread_id, number, parent, op.name, phase, op.sequence, op.sizes)
            found.append((thread, start, end, number))
            if len(found) >= 8192:
                db.insert("operator", found, 4)
                found.clear()
        else:
            parent = open_ranges.push(thread, start, end, number) if kind == _PUSH_POP else None
            ranges.add(
                *(pid, start, start if kind == _MARK else end, thread_id, number, parent, text),
                *(names.domain(process, domain), names.category(process, domain, category), _KINDS[kind], "nvtx"),
            )
    db.insert("operator", found, 4)
