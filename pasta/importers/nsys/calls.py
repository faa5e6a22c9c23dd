"""CUDA API calls of an Nsight Systems export, and what later joins device work with the call that started it."""

from __future__ import annotations

import re

from pasta.importers.annotations import Annotations
from pasta.importers.base import Report, Sink
from pasta.importers.sqlite import Database, Texts

TABLE = "CUPTI_ACTIVITY_KIND_RUNTIME"
_USED = {"start", "end", "eventClass", "globalTid", "correlationId", "nameId", "returnValue"}

#: ENUM_NSYS_EVENT_CLASS of a call of the runtime and of the driver.
_CLASSES = {0: "cuda_runtime", 1: "cuda_driver"}
#: Beginnings of names, for exports without classes.
_APIS = {"cuda": "cuda_runtime", "cu": "cuda_driver"}

#: Nsight writes ``cudaLaunchKernel_v7000``: the version of CUDA that introduced this form. ``cuMemAlloc_v2`` is a name.
_VERSION = re.compile(r"_v\d{4,5}$")

#: What a call of this name waits for. CUPTI's own record of a synchronisation is wrong before Nsight Systems 2025.2,
#: which marks its older column as deprecated: cudaDeviceSynchronize is an event there, one without an event.
_WAITS = {
    "cudaDeviceSynchronize": "device",
    "cudaStreamSynchronize": "stream",
    "cudaEventSynchronize": "event",
    "cudaStreamWaitEvent": "stream_event",
    "cuCtxSynchronize": "context",
    "cuStreamSynchronize": "stream",
    "cuEventSynchronize": "event",
    "cuStreamWaitEvent": "stream_event",
}


def read_calls(db: Database, sink: Sink, report: Report, annotations: Annotations) -> None:
    """Import all API calls, each with the operator that was running on its thread.

    Leaves ``temp.launch``, one row a (process key, correlation id): thread id, operator, end of the call, and what it
    waits for. Of nested calls with one id, a driver call within a runtime call, the outer one counts.
    """
    launches = db.create(
        "launch",
        *("process INTEGER", "correlation INTEGER", "thread INTEGER", "op INTEGER", "end INTEGER", "wait TEXT"),
        "PRIMARY KEY (process, correlation)",
    )
    if not db.has(TABLE, "start"):
        return
    rows = sink.table(
        "api", "pid", "start_ns", "end_ns", "thread_id", "api", "name", "result", "correlation_id", "op_id"
    )
    names = _Names(Texts(db, "StringIds", "value"))
    for thread, start, end, kind, correlation, number, result in db.rows(_query(db)):
        process = (thread or 0) >> 24
        thread_id = None if thread is None else thread & 0xFFFFFF
        op = annotations.operator_at(thread, start)
        name, api, wait = names(number)
        rows.add(process & 0xFFFFFF, start, end, thread_id, _CLASSES.get(kind, api), name, result, correlation, op)
        if correlation:
            launches.add(process, correlation, thread_id, op, end, wait)
    launches.flush()
    report.unplaced.update(db.unplaced(TABLE, _USED))


class _Names:
    """What the number of a call's name stands for: the name, its API by that name, and what the call waits for."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        self._known: dict[int | None, tuple[str | None, str, str | None]] = {}

    def __call__(self, number: int | None) -> tuple[str | None, str, str | None]:
        if number not in self._known:
            name = self._texts(number)
            name = name and _VERSION.sub("", name)
            api = next((api for prefix, api in _APIS.items() if (name or "").startswith(prefix)), "unknown")
            wait = _WAITS.get(name.removesuffix("_ptsz").removesuffix("_v2")) if name else None
            self._known[number] = (name, api, wait)
        return self._known[number]


def _query(db: Database) -> str:
    columns = ", ".join(
        read(TABLE, column)
        for read, column in (
            *((db.column, "globalTid"), (db.time, "start"), (db.time, "end"), (db.column, "eventClass")),
            *((db.column, "correlationId"), (db.column, "nameId"), (db.column, "returnValue")),
        )
    )
    return f"SELECT {columns} FROM {TABLE} WHERE typeof(start) = 'integer' ORDER BY start"
