"""Merge traces, of the ranks of a job or of anything else, into one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl

from pasta.errors import PastaError
from pasta.schema import TABLES
from pasta.trace.container import as_dict, as_list
from pasta.trace.rows import shift_times
from pasta.trace.seal import sum_up_losses
from pasta.trace.trace import Trace
from pasta.trace.writer import Form, TraceWriter

#: Linux gives no pid above this (PID_MAX_LIMIT of include/linux/threads.h), so there is room above it.
PID_LIMIT = 1 << 22
MAX_PID = (1 << 31) - 1


@dataclass
class _Input:
    trace: Trace
    #: Nanoseconds to add to its times; None when the time of day is not known.
    shift_ns: int | None
    #: pids that change.
    pids: dict[int, int]


def merge(
    traces: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    form: Form = "dir",
    *,
    overwrite: bool = False,
) -> Path:
    """Write one trace of all rows of ``traces`` to ``output`` and return its path.

    Times: inputs are placed on one clock by the time of day of each one's time 0 (``clock.realtime_ns`` of its
    manifest); the earliest becomes time 0. An input that does not know the time of day keeps its times, and a note in
    the manifest says so. Between hosts this is as good as their clocks agree.

    Ids: all are scoped by `pid`, so none changes. A pid that an earlier input uses too (another host or container)
    gets the smallest of pid + 2^22, pid + 2*2^22, ... that is unique: pid modulo 2^22 is still the original. Should
    those run out, it gets the lowest free number above 2^22. Ranks stay as they are.

    Rows of one input stay in order, inputs follow one another; memory is bounded. Raises ``PastaError`` as
    ``Trace.open`` and ``TraceWriter`` do, and when an input is given twice.
    """
    paths = [Path(path) for path in traces]
    if not paths:
        raise PastaError("there is nothing to merge", "name at least one trace")
    for i, path in enumerate(paths):
        if path.resolve() in (earlier.resolve() for earlier in paths[:i]):
            raise PastaError(f"{path} is given twice", "name each trace once")
    opened: list[Trace] = []
    try:
        opened.extend(Trace.open(path) for path in paths)
        inputs = _plan(opened)
        with TraceWriter(output, form, overwrite=overwrite) as writer:
            for name in TABLES:
                for part in inputs:
                    for frame in part.trace.batches(name):
                        writer.append(name, shift_times(_renumber(frame, part.pids), part.shift_ns or 0))
            writer.manifest = _manifest(inputs)
    finally:
        for trace in opened:
            trace.close()
    return Path(output)


def _plan(traces: list[Trace]) -> list[_Input]:
    zeros = [realtime_ns(trace) for trace in traces]
    first = min((zero for zero in zeros if zero is not None), default=0)
    used: set[int] = set()
    inputs = []
    for trace, zero in zip(traces, zeros, strict=True):
        pids = all_pids(trace)
        renamed = unique_pids(pids, used)
        used.update(renamed.get(pid, pid) for pid in pids)
        inputs.append(_Input(trace, None if zero is None else zero - first, renamed))
    return inputs


def realtime_ns(trace: Trace) -> int | None:
    """Return the time of day (nanoseconds since 1970) of the trace's time 0, None when it is not known."""
    clock = trace.manifest.get("clock")
    value = clock.get("realtime_ns") if isinstance(clock, dict) else None
    return value if isinstance(value, int) and 0 <= value < 1 << 62 else None


def all_pids(trace: Trace) -> list[int]:
    """Return every pid of the trace, ascending."""
    pids = [trace.table(name).select(pl.col("pid").unique()) for name in sorted(trace.present)]
    if not pids:
        return []
    found: list[int] = pl.concat(pids).collect().to_series().drop_nulls().unique().sort().to_list()
    return found


def unique_pids(pids: Sequence[int], used: Set[int]) -> dict[int, int]:
    """Return the new number of each of ``pids`` that is ``used`` already (see ``merge``)."""
    taken = {*used, *pids}
    renamed = {}
    for pid in pids:
        if pid not in used:
            continue
        shifted = range(pid + PID_LIMIT, MAX_PID + 1, PID_LIMIT)
        new = next((number for number in chain(shifted, range(PID_LIMIT, MAX_PID + 1)) if number not in taken), None)
        if new is None:
            raise PastaError("there are more processes than process ids", "merge fewer traces")
        renamed[pid] = new
        taken.add(new)
    return renamed


def _renumber(frame: pl.DataFrame, pids: dict[int, int]) -> pl.DataFrame:
    """Return ``frame`` with the new pids; a parent that the trace does not hold keeps its number."""
    columns = [name for name in ("pid", "parent_pid") if name in frame.columns]
    return frame.with_columns(pl.col(name).replace(pids) for name in columns) if pids else frame


def _manifest(inputs: list[_Input]) -> dict[str, Any]:
    """Return what the inputs' manifests say alike, and what they say together."""
    manifests = [part.trace.manifest for part in inputs]
    common = {key: value for key, value in manifests[0].items() if all(m.get(key) == value for m in manifests[1:])}
    zeros = [zero for part in inputs if (zero := realtime_ns(part.trace)) is not None]
    notes = [f"{part.trace.path.name}: {note}" for part in inputs for note in part.trace.notes]
    notes += [
        f"{part.trace.path.name} does not know the time of day: its times are not aligned with the others"
        for part in inputs
        if part.shift_ns is None
    ]
    return {
        **common,
        "clock": {"anchor_ns": None, "realtime_ns": min(zeros, default=None), "error_ns": None},
        "devices": _union(as_list(manifest.get("devices")) for manifest in manifests),
        "backends": {name: how for m in manifests for name, how in as_dict(m.get("backends")).items()},
        "losses": sum_up_losses(pl.concat([part.trace.loss.collect() for part in inputs])),
        "notes": notes,
        "recovered": any(manifest.get("recovered") is True for manifest in manifests),
        "merged": [
            {
                "path": str(part.trace.path),
                "command": part.trace.manifest.get("command"),
                "shift_ns": part.shift_ns,
                "renumbered_pids": {str(old): new for old, new in part.pids.items()},
            }
            for part in inputs
        ],
    }


def _union(lists: Iterable[list[Any]]) -> list[Any]:
    union: list[Any] = []
    for entry in chain.from_iterable(lists):
        if entry not in union:
            union.append(entry)
    return union
