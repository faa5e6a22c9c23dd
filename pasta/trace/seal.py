"""Seal a recording: the shards of its processes become one trace."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl

from pasta.errors import PastaError
from pasta.schema import TABLES
from pasta.trace.container import cannot_read
from pasta.trace.frames import empty_frame
from pasta.trace.recording import Recording, RootStatus
from pasta.trace.rows import sum_losses
from pasta.trace.writer import Form, TraceWriter

#: Entries of a list in the manifest; the tables have them all.
_MAX_LISTED = 1000


@dataclass(frozen=True)
class Summary:
    """What was sealed. ``bytes`` on the disk; ``rows`` per table; ``losses`` as in the manifest."""

    path: Path
    bytes: int
    rows: dict[str, int]
    time_span_ns: tuple[int, int] | None
    losses: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def seal(
    directory: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    form: Form = "file",
    manifest_extra: dict[str, Any] | None = None,
    root_status: RootStatus | None = None,
) -> Summary:
    """Write the trace of the recording in ``directory`` to ``output``.

    By default the trace takes the place of the directory, which is gone once the trace is whole on the disk; with
    another ``output`` (replaced when it exists) the directory stays. ``manifest_extra`` goes into the manifest, over
    what recording.json says; ``root_status`` is the exit of the program that was started. Raises ``PastaError`` when
    the directory cannot be read or the trace cannot be written.
    """
    directory = Path(directory)
    target = directory if output is None else Path(output)
    return _seal(_read(directory), target, form, manifest_extra or {}, root_status, recovered=False)


def recover(directory: Path) -> tuple[tempfile.TemporaryDirectory[str], Path]:
    """Return the trace of an unsealed recording, in a temporary directory (of ``TMPDIR``) that the caller cleans up.

    It is what ``seal`` would have written, in directory form.
    """
    recording = _read(directory)
    try:
        temporary = tempfile.TemporaryDirectory(prefix="pasta-", ignore_cleanup_errors=True)
    except OSError as error:
        raise _no_room(directory, str(error)) from error
    path = Path(temporary.name, "trace")
    try:
        _seal(recording, path, "dir", {}, None, recovered=True)
    except PastaError as error:
        temporary.cleanup()
        raise _no_room(directory, error.message) from error
    return temporary, path


def _no_room(directory: Path, why: str) -> PastaError:
    return PastaError(f"cannot recover {directory}: {why}", "set TMPDIR to a directory with more room")


def _read(directory: Path) -> Recording:
    try:
        return Recording(directory)
    except OSError as error:
        raise cannot_read(directory, error) from error


def _seal(
    recording: Recording,
    target: Path,
    form: Form,
    extra: dict[str, Any],
    root_status: RootStatus | None,
    *,
    recovered: bool,
) -> Summary:
    described = {name: [empty_frame(TABLES[name])] for name in ("process", "device", "clock", "loss")}
    with TraceWriter(target, form, overwrite=True) as writer:
        for name, frame in recording.tables(root_status):
            writer.append(name, frame)
            if name in described:
                described[name].append(frame)
        tables = {name: pl.concat(frames) for name, frames in described.items()}
        writer.manifest = {
            **_command(tables["process"]),
            **recording.info,
            **extra,
            "clock": _clock(recording, tables["clock"]),
            "devices": distinct_rows(tables["device"].drop("pid", "rank", "device_id")),
            "backends": _backends(tables["process"]),
            **({"instructions": recording.kinds} if recording.kinds else {}),
            "losses": sum_up_losses(tables["loss"]),
            "notes": recording.notes,
            "recovered": recovered,
        }
    return Summary(
        path=target,
        bytes=trace_size(target),
        rows=dict(writer.rows),
        time_span_ns=writer.time_span_ns,
        losses=writer.manifest["losses"],
        notes=recording.notes,
    )


def distinct_rows(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the different rows of ``frame`` as JSON objects, without what is null; at most 1000."""
    rows = frame.unique(maintain_order=True).head(_MAX_LISTED)
    return [{name: value for name, value in row.items() if value is not None} for row in rows.iter_rows(named=True)]


def sum_up_losses(losses: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of `loss`, summed over processes, as JSON objects; `records` is absent when unknown."""
    everywhere = losses.with_columns(pid=pl.lit(None, pl.Int32), rank=pl.lit(None, pl.Int32))
    return distinct_rows(sum_losses(everywhere).select("source", "table", "records", "cause", "remedy"))


def _command(processes: pl.DataFrame) -> dict[str, str]:
    """Return the command line of the first process, for recordings whose own command is not known."""
    commands = processes["command"].drop_nulls()
    return {"command": commands[0]} if len(commands) else {}


def _backends(processes: pl.DataFrame) -> dict[str, str]:
    """Return how each backend that saw something was validated: `process.backends` is "NAME: HOW; NAME: HOW"."""
    entries = (entry for text in processes["backends"].drop_nulls().unique().sort() for entry in text.split("; "))
    named = (entry.partition(": ") for entry in entries if entry)
    return {name: how for name, _, how in islice(named, _MAX_LISTED)}


def _clock(recording: Recording, clocks: pl.DataFrame) -> dict[str, int | None]:
    """Return where time 0 is: on ``CLOCK_MONOTONIC`` and on the clock of the world (nanoseconds since 1970).

    The latter comes from the best pair of readings that a process took, with the bound ``error_ns`` of its error, or
    from recording.json.
    """
    pairs = clocks.filter(pl.col("source") == "realtime").drop_nulls(["start_ns", "source_ns"])
    for pair in pairs.sort("error_ns", nulls_last=True, maintain_order=True).head(1).iter_rows(named=True):
        realtime, error = pair["source_ns"] - pair["start_ns"], pair["error_ns"]
        break
    else:
        told = recording.info.get("anchor_realtime_ns")
        realtime, error = told if isinstance(told, int) else None, None
    return {"anchor_ns": recording.anchor_ns, "realtime_ns": realtime, "error_ns": error}


def trace_size(path: Path) -> int:
    """Return the bytes on the disk of a trace in either form."""
    return path.stat().st_size if path.is_file() else sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
