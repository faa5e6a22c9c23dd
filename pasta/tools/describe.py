"""What every result says first: what ran, on what, and what was not recorded."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from pasta.program import program_name
from pasta.tools.base import TraceView
from pasta.tools.result import Finding, Result

_LOSS_COLUMNS = ("start_ns", "end_ns", "source", "table", "records", "cause", "remedy")
#: The finding of a tool that had nothing to look at.
NO_DATA = "no-data"



def header(trace: TraceView) -> list[str]:
    """Return lines that say what ran: program, devices, framework, ranks; then the trace's own notes."""
    parts = [_program(trace), _devices(trace), _framework(trace.manifest), _ranks(trace)]
    line = " · ".join(part for part in parts if part)
    return [line, *trace.notes] if line else list(trace.notes)


def losses(trace: TraceView) -> pl.DataFrame:
    """Return the rows of the `loss` table without ids, in the order of time."""
    return trace.table("loss").select("rank", *_LOSS_COLUMNS).sort("start_ns", "source", "table").collect()


def _program(trace: TraceView) -> str:
    command = trace.manifest.get("command")
    if command is None and "process" in trace.present:
        first = trace.table("process").sort("start_ns").select("command").drop_nulls().head(1).collect()
        command = first.item() if first.height else None
    return program_name(_words(command))


def _words(command: Any) -> list[str]:
    if isinstance(command, str):
        try:
            return shlex.split(command)
        except ValueError:  # a command line that was cut
            return command.split()
    return [str(word) for word in command] if isinstance(command, list | tuple) else []


def _devices(trace: TraceView) -> str:
    """Count devices by name; processes that share one (equal uuid) share its count."""
    if "device" not in trace.present:
        return ""
    one = pl.coalesce("uuid", pl.format("{}/{}", pl.col("pid").fill_null(-1), pl.col("device_id").fill_null(-1)))
    found = (
        trace.table("device")
        .with_columns(pl.coalesce("name", "vendor", pl.lit("unnamed device")).alias("name"), one.alias("one"))
        .group_by("name")
        .agg(pl.col("one").n_unique().alias("devices"))
        .sort("devices", "name", descending=[True, False])
        .collect()
    )
    return ", ".join(f"{count} × {name}" for name, count in found.iter_rows())  # noqa: RUF001


def _framework(manifest: Mapping[str, Any]) -> str:
    versions = manifest.get("versions")
    if not isinstance(versions, dict):
        return ""
    return ", ".join(f"{name} {versions[name]}" for name in ("torch", "jax", "tensorflow") if versions.get(name))


def _ranks(trace: TraceView) -> str:
    if "process" not in trace.present:
        return ""
    counts = trace.table("process").select(pl.col("rank").n_unique(), pl.col("pid").n_unique().alias("pids")).collect()
    ranks, processes = counts.row(0)
    if ranks > 1:
        return f"{ranks} ranks"
    return f"{processes} processes" if processes > 1 else ""


def no_data(tool: str, trace: TraceView, tables: Sequence[str], filtered: str = "") -> Result:
    """Return the result of a tool that found no rows in ``tables``, with how to get them."""
    missing = " or ".join(tables)
    if filtered:
        return nothing(tool, f"{tool} found no {missing} rows in {filtered}", "widen the filters")
    return nothing(tool, f"{tool} needs {missing}, which this trace does not have", _how_to_get(trace.manifest, tables))


def nothing(tool: str, text: str, remedy: str = "") -> Result:
    """Return the result of a tool that has nothing to show, and why."""
    return Result(tool, findings=[Finding(NO_DATA, "info", text, remedy=remedy)])


def _how_to_get(manifest: Mapping[str, Any], tables: Sequence[str]) -> str:
    if "import" in manifest:
        return "the imported files have none"
    options = list(dict.fromkeys(_RECORDED_BY[table] for table in tables if table in _RECORDED_BY))
    recorded = manifest.get("options")
    if options == [_MEMORY] and isinstance(recorded, dict) and recorded.get("memory"):
        return "recorded with --memory, but no backend saw any: `pasta info` says what there is"
    return f"record with {' '.join(options)}" if options else "record it"


_MEMORY = "--memory"
_RECORDED_BY = {
    "access_object": _MEMORY,
    "access_site": _MEMORY,
    "access_block": _MEMORY,
    "access": "--memory=trace",
    "line": _MEMORY,
    "kernel": "-t kernel",
    "memcpy": "-t memory",
    "alloc": "-t memory",
    "api": "-t api",
    "sync": "-t sync",
    "uvm": "-t uvm",
    "op": "-t op",
    "tensor": "-t tensor",
    "range": "-t range",
}
