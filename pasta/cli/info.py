"""pasta info: what a trace is, what it holds, what it lost and what it could not see."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from pasta.cli.options import FormatOption, OutputOption, TraceArgument
from pasta.cli.output import write_results
from pasta.cli.progress import progress
from pasta.schema import TABLES

if TYPE_CHECKING:

    from pasta.tools.result import Result, ResultTable
    from pasta.trace import Trace

#: The group of ``pasta record --trace`` that fills a table; tables that are not named here need no option.
_GROUP = {
    "kernel": "kernel",
    "collective": "kernel",
    "api": "api",
    "memcpy": "memory",
    "memset": "memory",
    "alloc": "memory",
    "sync": "sync",
    "uvm": "uvm",
    "op": "op",
    "tensor": "tensor",
    "range": "range",
}
_DEVICE_SIDE = ("access_object", "access_site", "access_block", "access", "line")


def command(trace: TraceArgument, format: FormatOption = None, output: OutputOption = None) -> None:
    """Show what a trace holds, what it lost and what it could not see."""
    from pasta.trace import Trace

    with Trace.open(trace) as opened:
        with progress("counting rows"):
            result = describe(opened)
        write_results(result, format, output)


def describe(trace: Trace) -> Result:
    """Return everything that is known about ``trace`` itself."""
    from pasta.tools.describe import header, losses
    from pasta.tools.instructions import instruction_kinds
    from pasta.tools.result import Result

    tables = [
        _pairs("trace", "Trace", _facts(trace)),
        _counts(trace),
        _pairs("absent", "Not in this trace", _absent(trace), ("table", "why")),
        _devices(trace),
        _processes(trace),
        _pairs("backends", "Backends and how each was validated", _backends(trace), ("backend", "validation")),
        *filter(None, [instruction_kinds(trace)]),
        _pairs("passes", "Two passes", _passes(trace), ("what", "matched")),
        _pairs("left_out", "Left out by the import", _left_out(trace), ("what", "how_many")),
    ]
    shown = [table for table in tables if table.frame.height]
    return Result(str(trace.path), shown, header=header(trace), loss=losses(trace))


def _facts(trace: Trace) -> Iterator[tuple[str, Any]]:
    """Yield what the manifest says, in the order in which a reader asks."""
    said = trace.manifest
    clock = _mapping(said.get("clock"))
    source = _mapping(said.get("import"))
    yield "path", str(trace.path)
    yield "command", _joined(said.get("command"))
    yield "directory", said.get("directory")
    yield "host", said.get("host")
    yield "time 0", _utc(clock.get("realtime_ns") or source.get("epoch_ns"))
    yield "length", _length(said.get("time_span_ns"))
    yield "imported from", " ".join(str(source.get(key) or "") for key in ("label", "version")).strip()
    yield "files", ", ".join(str(_mapping(file).get("name")) for file in _list(source.get("files")))
    yield "merged from", ", ".join(str(_mapping(part).get("path")) for part in _list(said.get("merged")))
    yield "recovered", "yes: it was not sealed when its recording ended" if said.get("recovered") else None
    yield "options", _settings(said.get("options"))
    yield "versions", _settings(said.get("versions"))
    yield "schema version", said.get("schema_version")
    yield "written by", f"pasta {said['pasta_version']}" if "pasta_version" in said else None


def _counts(trace: Trace) -> ResultTable:
    """Return how many rows each table has, and the time they cover."""
    import polars as pl

    from pasta.tools.result import ResultColumn, ResultTable

    nothing = pl.lit(None, pl.Int64)
    rows = []
    for name in TABLES:
        if name not in trace.present:
            continue
        own = {column.name for column in TABLES[name].columns}
        first = pl.col("start_ns").min() if "start_ns" in own else nothing
        ends = [column for column in ("start_ns", "end_ns") if column in own]
        last = pl.max_horizontal(pl.max(column) for column in ends) if ends else nothing
        counts = trace.table(name).select(pl.len(), first=first, last=last).collect(engine="streaming")
        rows.append((name, *counts.row(0)))
    schema = {"table": pl.String, "rows": pl.Int64, "first_ns": pl.Int64, "last_ns": pl.Int64}
    units = {"table": "", "rows": "count", "first_ns": "ns", "last_ns": "ns"}
    columns = tuple(ResultColumn(name, unit, key=name == "table") for name, unit in units.items())
    return ResultTable("tables", pl.DataFrame(rows, schema=schema, orient="row"), columns, title="Tables")


def _absent(trace: Trace) -> Iterator[tuple[str, str]]:
    """Yield the tables that have no rows, and why as far as the trace tells."""
    options = _mapping(trace.manifest.get("options"))
    asked = options.get("trace")
    lost = dict(trace.table("loss").select("table", "cause").unique("table", keep="first").collect().iter_rows())
    for name in TABLES:
        if name in trace.present or name == "loss":
            continue
        if name in lost:
            yield name, f"lost: {lost[name] or 'the cause is not known'}"
        elif "import" in trace.manifest:
            yield name, "the imported files have none"
        elif name in _GROUP and not _was_asked(_GROUP[name], asked):
            yield name, f"not asked for: recorded with --trace={asked}"
        elif name in _DEVICE_SIDE and not options.get("memory"):
            yield name, "needs pasta record --memory"
        else:
            yield name, "the program did nothing of this kind that a backend could see"


def _was_asked(group: str, asked: Any) -> bool:
    from pasta.errors import PastaError
    from pasta.inject.options import expand_trace

    if not isinstance(asked, str):
        return True
    try:
        return any(name.split("=")[0] == group for name in expand_trace(asked))
    except PastaError:  # a trace by another version of pasta
        return True


def _devices(trace: Trace) -> ResultTable:
    names = ("device_id", "vendor", "name", "kind", "platform", "driver", "memory_bytes", "multiprocessors")
    return _selected(trace, "device", "Devices", (*names, "architecture", "timestamps"))


def _processes(trace: Trace) -> ResultTable:
    names = ("host", "start_ns", "end_ns", "how_ended", "exit_status", "exit_signal", "command")
    return _selected(trace, "process", "Processes", names)


def _selected(trace: Trace, table: str, title: str, names: Sequence[str]) -> ResultTable:
    """Return these columns of an identity table, without those that are null in every row."""
    from pasta.schema import sealed_columns
    from pasta.tools.result import ResultColumn, ResultTable

    units = {column.name: column.unit for column in sealed_columns(TABLES[table])}
    frame = trace.table(table).select("rank", "pid", *names).sort("rank", "pid").collect()
    frame = frame[[column.name for column in frame if column.null_count() < frame.height]]
    columns = tuple(ResultColumn(name, units[name]) for name in frame.columns)
    return ResultTable(table, frame, columns, title=title)


def _backends(trace: Trace) -> Iterator[tuple[str, Any]]:
    yield from _mapping(trace.manifest.get("backends")).items()


def _passes(trace: Trace) -> Iterator[tuple[str, Any]]:
    for what, matched in _mapping(trace.manifest.get("passes")).items():
        counts = _mapping(matched)
        if not counts:
            continue
        text = f"{counts.get('both')} in both"
        for name in ("timing", "memory"):
            if counts.get(f"{name}_only"):
                text += f", {counts[f'{name}_only']} of the {name} pass only"
        yield what, text


def _left_out(trace: Trace) -> Iterator[tuple[str, Any]]:
    source = _mapping(trace.manifest.get("import"))
    for kind in ("skipped", "unplaced", "unmatched"):
        for what, count in _mapping(source.get(kind)).items():
            yield f"{kind}: {what}", count


def _pairs(
    name: str, title: str, pairs: Iterator[tuple[str, Any]], names: tuple[str, str] = ("fact", "value")
) -> ResultTable:
    """Return a table of two text columns; pairs without a value are left out."""
    import polars as pl

    from pasta.tools.result import ResultColumn, ResultTable

    rows = [(str(key), str(value)) for key, value in pairs if value not in (None, "")]
    frame = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")
    return ResultTable(name, frame, (ResultColumn(names[0], key=True), ResultColumn(names[1])), title=title)


def _mapping(value: Any) -> Mapping[str, Any]:
    """Return ``value`` where it is an object: a manifest is untrusted."""
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else []


def _joined(command: Any) -> str:
    return shlex.join(map(str, command)) if isinstance(command, list) else str(command or "")


def _settings(values: Any) -> str:
    return ", ".join(f"{name} {value}" for name, value in _mapping(values).items())


def _utc(nanoseconds: Any) -> str | None:
    """Return a time of day; None for what is not one."""
    try:
        return datetime.fromtimestamp(nanoseconds / 1e9, tz=timezone.utc).isoformat(sep=" ", timespec="milliseconds")
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def _length(span: Any) -> str | None:
    from pasta.tools.units import duration

    if isinstance(span, list) and len(span) == 2 and all(isinstance(value, int) for value in span):
        return duration(span[1] - span[0])
    return None
