"""Findings of the workload: what is wrong, with evidence, what it costs and what to do. Each function checks one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from pasta.tools import Finding, Tool, TraceView, describe
from pasta.tools.analysis import activity, timesplit
from pasta.tools.analysis.launches import add_call, add_op
from pasta.tools.analysis.steps import Steps
from pasta.tools.analysis.timesplit import PARTS, DeviceSplit
from pasta.tools.builtin import memory
from pasta.tools.builtin.coalescing import Coalescing
from pasta.tools.builtin.divergence import Divergence
from pasta.tools.builtin.underused import Underused
from pasta.tools.builtin.uvm import Uvm
from pasta.tools.describe import NO_DATA
from pasta.tools.result import Severity, by_severity
from pasta.tools.units import duration, grouped, plural, size

_TINY_KERNEL_NS = 10_000  # about what a launch costs the host; shorter kernels cannot hide it
_SMALL_COPY_BYTES = 64 << 10


@dataclass(frozen=True)
class Evidence:
    """What the checks look at."""

    trace: TraceView
    splits: Sequence[DeviceSplit]
    steps: Steps | None

    @cached_property
    def wall(self) -> int:
        """Wall time of all devices together, ns."""
        return timesplit.wall_total(self.splits)

    @property
    def count(self) -> int:
        """Steps, or 1 where none were found."""
        return len(self.steps) if self.steps else 1

    @property
    def each(self) -> str:
        """What sentences say after numbers that are divided by the steps."""
        return f" a {self.steps.noun}" if self.steps else ""

    def share(self, ns: int) -> float | None:
        """Return ``ns`` as a fraction of the wall time."""
        return min(ns / self.wall, 1.0) if self.wall else None

    def inside(self, rows: pl.LazyFrame) -> pl.DataFrame:
        """Return the rows that begin within the steps, or all where there are none."""
        frame = rows.filter(pl.col("start_ns").is_not_null()).collect()
        return frame.filter(pl.Series(self.steps.contain(frame))) if self.steps else frame


def find(trace: TraceView, splits: Sequence[DeviceSplit], steps: Steps | None) -> list[Finding]:
    """Return all findings about ``trace``, most severe first."""
    evidence = Evidence(trace, splits, steps)
    checks: tuple[Callable[[Evidence], list[Finding]], ...] = (
        _idle, _tiny_kernels, _blocking_syncs, _pageable_copies, _small_copies, _compilations, _failed_calls,
        _other_tools, _growing_memory, _losses,
    )  # fmt: skip
    return by_severity([finding for check in checks for finding in check(evidence)])


def _idle(e: Evidence) -> list[Finding]:
    """The device does nothing for a tenth of the time or more."""
    idle = timesplit.idle_total(e.splits)
    share = e.share(idle) or 0.0
    if share < 0.1:
        return []
    times = dict(zip(PARTS, timesplit.totals(e.splits), strict=True))
    cause = max((part for part in PARTS if part.startswith("idle")), key=lambda part: times[part])
    launches = sum(e.inside(e.trace.table(name).select("pid", "start_ns")).height for name in ("kernel", "memcpy"))
    text = f"the device is idle for {duration(idle / e.count)}{e.each}"
    if times[cause] < idle:
        text += f", {100 * times[cause] / idle:.0f} % of it"
    call = _longest_call(e) if cause == _CALLING else None
    text += f" while the host {_HOST_DOES[cause]}{f', most of all {call}' if call else ''}"
    if launches:
        text += f"; {plural(launches / e.count, 'launch')}{e.each}, {duration(idle / launches)} of idle time for each"
    return [
        Finding(
            "device-idle",
            "high" if share >= 0.3 else "medium",
            text,
            cost_ns=idle,
            share=share,
            remedy=_IDLE_REMEDIES[cause],
            evidence={
                "idle_ns": {part: times[part] for part in PARTS if part.startswith("idle")},
                "launches": launches,
            },
        )
    ]


def _longest_call(e: Evidence) -> str | None:
    """Return the function that took most of the idle time in calls."""
    calls = [activity.during(e.trace, "api", split.device, split.idle) for split in e.splits]
    sums = (
        pl.concat(calls).group_by("name").agg(pl.col("idle_ns").sum()).sort("idle_ns", "name", descending=[True, False])
    )
    return str(sums["name"][0]) if sums.height else None


_CALLING = "idle, host in device API calls"
_HOST_DOES = {
    "idle, host waiting for the device": "waits for it",
    _CALLING: "is in calls of the device API",
    "idle, host in operators": "is in operators",
    "idle, host elsewhere": "does something that was not recorded",
}
_IDLE_REMEDIES = {
    "idle, host waiting for the device": "wait less often: launch the next work before reading results back",
    _CALLING: "make fewer calls: reuse memory instead of allocating it, fuse kernels, enlarge batches, use graphs",
    "idle, host in operators": "the host is slower than the device: larger batches, compiled or captured graphs",
    "idle, host elsewhere": "look at what the program does between launches (input, Python): `--tool gaps`, ranges",
}


def _tiny_kernels(e: Evidence) -> list[Finding]:
    """Most kernels are shorter than what it takes to launch one, and the device waits for the host."""
    if "kernel" not in e.trace.present:
        return []
    time = (pl.col("end_ns") - pl.col("start_ns")).alias("time")
    kernels = e.inside(e.trace.table("kernel").select("pid", "start_ns", time)).drop_nulls("time")
    tiny = kernels.filter(pl.col("time") < _TINY_KERNEL_NS)
    idle = e.share(timesplit.idle_total(e.splits)) or 0.0
    if kernels.height < 20 or tiny.height * 2 < kernels.height or idle < 0.1:
        return []
    return [
        Finding(
            "tiny-kernels",
            "medium" if idle >= 0.3 else "low",
            f"{100 * tiny.height / kernels.height:.0f} % of the kernels run for less than {duration(_TINY_KERNEL_NS)} "
            f"({duration(float(tiny['time'].to_numpy().mean()))} on average): launching them takes longer",
            remedy="fuse kernels, enlarge the batch, or capture a graph and launch it at once",
            evidence={"kernels": kernels.height, "tiny": tiny.height},
        )
    ]


def _blocking_syncs(e: Evidence) -> list[Finding]:
    """The host waits in every step, and the device runs dry meanwhile."""
    dry = sum(timesplit.drained(split) for split in e.splits)
    share = e.share(dry) or 0.0
    if "sync" not in e.trace.present or share < 0.01:
        return []
    waits = e.trace.table("sync").filter(pl.col("kind").is_in(activity.HOST_WAITS))
    rows = e.inside(add_op(e.trace, add_call(e.trace, waits)))
    if rows.height < (e.count if e.steps else 10):
        return []
    places = rows.group_by("op", "function").agg(pl.len().alias("waits"))
    op, function, _ = places.sort("waits", "op", "function", descending=[True, False, False]).row(0)
    often = "once" if rows.height == e.count else f"{rows.height / e.count:.3g} times"
    where = ", most often in " + " of ".join(filter(None, (function, op))) if function or op else ""
    return [
        Finding(
            "blocking-sync",
            "high" if share >= 0.1 else "medium",
            f"the host waits for the device {often}{e.each}{where}; "
            f"the device then runs dry for {duration(dry / e.count)}{e.each}",
            cost_ns=dry,
            share=share,
            remedy="read results back less often, or after the next work has been launched",
            evidence={"waits": rows.height, "op": op, "function": function},
        )
    ]


def _copies(e: Evidence) -> pl.DataFrame:
    time = (pl.col("end_ns") - pl.col("start_ns")).fill_null(0).alias("time")
    moved = e.trace.table("memcpy").filter(~pl.col("kind").is_in(["map", "unmap"]).fill_null(False))
    return e.inside(moved.select("pid", "start_ns", time, "kind", "bytes", "src_kind", "dst_kind"))


def _pageable_copies(e: Evidence) -> list[Finding]:
    """Copies from or to pageable memory go through a staging buffer and hold up the host."""
    pageable = (pl.col("src_kind") == "pageable") | (pl.col("dst_kind") == "pageable")
    copies = _copies(e).filter(pageable, pl.col("kind").is_in(["h2d", "d2h"]))
    cost, moved = int(copies["time"].sum()), int(copies["bytes"].sum())
    share = e.share(cost) or 0.0
    if share < 0.01 or moved < 1 << 20:
        return []
    return [
        Finding(
            "pageable-copies",
            "medium" if share >= 0.05 else "low",
            f"{size(moved / e.count)}{e.each} are copied between the device and pageable memory, "
            f"at {moved / cost:.1f} GB/s",
            cost_ns=cost,
            share=share,
            remedy="pin (page-lock) the host memory, and copy asynchronously",
            evidence={"copies": copies.height, "bytes": moved, "time_ns": cost},
        )
    ]


def _small_copies(e: Evidence) -> list[Finding]:
    """Many copies that are too small to use the link."""
    copies = _copies(e).filter(pl.col("bytes") < _SMALL_COPY_BYTES, pl.col("kind").is_in(["h2d", "d2h", "p2p"]))
    cost = int(copies["time"].sum())
    share = e.share(cost) or 0.0
    if copies.height < max(100, 10 * e.count) or share < 0.005:
        return []
    return [
        Finding(
            "small-copies",
            "medium" if share >= 0.05 else "low",
            f"{grouped(copies.height / e.count)} copies{e.each} of less than {size(_SMALL_COPY_BYTES)} "
            f"({size(int(copies['bytes'].sum()) / e.count)} in all)",
            cost_ns=cost,
            share=share,
            remedy="gather them on the host and copy once, or keep the data on the device",
            evidence={"copies": copies.height, "bytes": int(copies["bytes"].sum()), "time_ns": cost},
        )
    ]


def _compilations(e: Evidence) -> list[Finding]:
    """Programs are compiled while the program should compute."""
    time = (pl.col("end_ns") - pl.col("start_ns")).fill_null(0).alias("time")
    builds = e.inside(e.trace.table("build").filter(pl.col("source") != "binary").select("pid", "start_ns", time))
    waited = e.inside(e.trace.table("kernel").filter(pl.col("compiled")).select("pid", "start_ns"))
    cost = int(builds["time"].sum())
    share = e.share(cost) or 0.0
    if share < 0.02 and not (e.steps and waited.height):
        return []
    when = f"within the {e.steps.noun}s" if e.steps else "in the time measured"
    made, waits = plural(builds.height, "build"), plural(waited.height, "launch")
    text = f"the program compiles {when}: {made}, {waits} that waited"
    return [
        Finding(
            "compilation",
            "medium" if share >= 0.1 else "low",
            text,
            cost_ns=cost or None,
            share=share if cost else None,
            remedy="compile before the timed part, keep the compiler's cache, or measure after warming up",
            evidence={"builds": builds.height, "launches": waited.height, "time_ns": cost},
        )
    ]


def _failed_calls(e: Evidence) -> list[Finding]:
    """Calls that returned an error; a query that says "not ready" is none."""
    failed = (
        e.trace.table("api")
        .filter(pl.col("result") != 0, ~pl.col("name").str.contains("Query"))
        .group_by("name", "result")
        .agg(pl.len().alias("calls"))
        .sort("calls", "name", "result", descending=[True, False, False])
        .collect()
    )
    if failed.is_empty():
        return []
    name, result, calls = failed.row(0)
    return [
        Finding(
            "failed-calls",
            "medium",
            f"{plural(int(failed['calls'].sum()), 'API call')} did not return success: "
            f"{name} returned {result} in {grouped(calls)} of them",
            remedy="look the code up and check the call; `--tool api` lists all functions",
            evidence={"calls": failed.head(10).to_dicts()},
        )
    ]


def _other_tools(e: Evidence) -> list[Finding]:
    """What the tools for accesses and unified memory find on their own."""
    tools: tuple[type[Tool], ...] = (Coalescing, Divergence, Underused, Uvm)
    useful = [tool for tool in tools if all(name in e.trace.present for name in tool.needs)]
    found = [finding for tool in useful for finding in tool().run(e.trace, tool.Options()).findings]
    return [finding for finding in found if finding.id != NO_DATA]


def _growing_memory(e: Evidence) -> list[Finding]:
    return memory.growing(memory.memory_objects(e.trace)) if "alloc" in e.trace.present else []


def _losses(e: Evidence) -> list[Finding]:
    """The trace has holes: numbers above are lower bounds."""
    found = []
    for row in describe.losses(e.trace).iter_rows(named=True):
        count = "an unknown number of" if row["records"] is None else grouped(row["records"])
        severity: Severity = "medium" if row["records"] is None or row["records"] > 0 else "info"
        found.append(
            Finding(
                "lost-data",
                severity,
                f"{row['source'] or 'the recorder'} lost {count} records of {row['table'] or 'the trace'}"
                f"{': ' + row['cause'] if row['cause'] else ''}",
                remedy=row["remedy"] or "",
                evidence={key: row[key] for key in ("source", "table", "records", "cause")},
            )
        )
    return found
