"""Small Kineto files for tests: events as Kineto prints them, and the import of a document."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pasta.importers import import_files
from pasta.trace import Trace

PID = 4711
BASE_NS = 1_767_189_312_000_000_000


class Raw(str):
    """A number as text that goes into the JSON as it is."""


def us(ns: int) -> Raw:
    """Print nanoseconds as Kineto does: microseconds with three decimals."""
    sign = "-" if ns < 0 else ""
    return Raw(f"{sign}{abs(ns) // 1000}.{abs(ns) % 1000:03}")


def event(cat: str, name: str, start: int, end: int, pid: Any = PID, tid: Any = PID, **args: Any) -> dict[str, Any]:
    """Return a complete event; times in ns. ``_`` in names of arguments stands for a space."""
    named = {key.replace("_", " "): value for key, value in args.items()}
    return {
        **{"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": us(start), "dur": us(end - start)},
        "args": named,
    }


def op(name: str, start: int, end: int, **args: Any) -> dict[str, Any]:
    """Return an operator."""
    return event("cpu_op", name, start, end, **args)


def call(name: str, start: int, end: int, correlation: int, **args: Any) -> dict[str, Any]:
    """Return a call of the CUDA runtime."""
    return event("cuda_runtime", name, start, end, correlation=correlation, **args)


def kernel(name: str, start: int, end: int, correlation: int, **args: Any) -> dict[str, Any]:
    """Return a kernel on stream 7 of device 0."""
    given = {"device": 0, "context": 1, "stream": 7, "correlation": correlation} | args
    return event("kernel", name, start, end, pid=0, tid=7, **given)


def document(events: Sequence[dict[str, Any]], **header: Any) -> str:
    """Return a trace with ``events`` as JSON, with Kineto's header unless the test says otherwise."""
    head = {"schemaVersion": 1, "deviceProperties": [], "baseTimeNanoseconds": BASE_NS} | header
    return dumps({**head, "traceEvents": list(events), "traceName": "test.json"})


def dumps(value: Any) -> str:
    """Return JSON in which ``Raw`` text is a number."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)}: {dumps(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(dumps, value)) + "]"
    return json.dumps(value)


def imported(folder: Path, text: str | bytes, *more: str | bytes) -> Trace:
    """Import one file for each text, as one trace, and open it. Bytes may be packed."""
    paths = []
    for number, content in enumerate((text, *more)):
        path = folder / f"rank{number}.json"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        paths.append(path)
    output = folder / "out.pasta"
    import_files(paths, output, overwrite=True)
    return Trace.open(output)


def packed(text: str) -> bytes:
    """Return ``text`` as gzip."""
    return gzip.compress(text.encode(), mtime=0)


def rows(trace: Trace, table: str, *columns: str) -> list[dict[str, Any]]:
    """Return some columns of a table, in order of start where it has one."""
    frame = trace.table(table)
    if "start_ns" in frame.collect_schema().names():
        frame = frame.sort("start_ns", maintain_order=True)
    return frame.select(columns or "*").collect().to_dicts()


def column(trace: Trace, table: str, name: str) -> list[Any]:
    """Return one column of a table."""
    return [row[name] for row in rows(trace, table, name)]
