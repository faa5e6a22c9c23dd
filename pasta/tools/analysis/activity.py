"""When devices and the host were busy: unions of events, for each device and each process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from pasta.tools.analysis.intervals import Intervals, Times
from pasta.tools.base import TraceView
from pasta.tools.filters import DEVICE_TABLES, FilteredTrace

#: Waits of the host; a `stream_event` is a wait of the device and keeps no host busy.
HOST_WAITS = ("unknown", "device", "context", "stream", "event")


@dataclass(frozen=True)
class Device:
    """One physical device and when it worked. ``ids`` has its (``pid``, ``device_id``) in each process that used it."""

    label: str
    ids: pl.DataFrame
    kernels: Intervals
    copies: Intervals
    fills: Intervals

    @cached_property
    def busy(self) -> Intervals:
        """When the device did anything."""
        return Intervals.join((self.kernels, self.copies, self.fills))

    @property
    def pids(self) -> tuple[int, ...]:
        """Processes that used the device."""
        return tuple(self.ids["pid"].drop_nulls().unique().sort())

    def rows(self, work: pl.LazyFrame) -> pl.LazyFrame:
        """Keep the rows of a device table that this device did."""
        return work.join(self.ids.lazy(), on=["pid", "device_id"], how="semi", nulls_equal=True)


def windows(trace: TraceView) -> Intervals:
    """Return the times that ``trace`` covers (see `FilteredTrace.windows`)."""
    view = trace if isinstance(trace, FilteredTrace) else FilteredTrace(trace)
    return view.windows


def devices(trace: TraceView) -> list[Device]:
    """Return the devices that worked, by label: the device's number, after its rank or process when there are several.

    Processes that share a device (equal uuid on one host) share its row; its label is then that of the first. A filter
    of kernels does not make a device idle.
    """
    trace = trace.of_all_kernels if isinstance(trace, FilteredTrace) else trace
    labels = device_labels(trace, DEVICE_TABLES)
    times = {name: _times(trace, name, labels) for name in DEVICE_TABLES}
    known = labels.partition_by("label", as_dict=True, maintain_order=True)
    return [
        Device(
            str(label),
            ids.select("pid", "device_id"),
            *(times[name].get(str(label), Intervals.of(_NOTHING)) for name in DEVICE_TABLES),
        )
        for (label,), ids in known.items()
        if any(label in times[name] for name in DEVICE_TABLES)
    ]


_NOTHING = pl.DataFrame(schema={"start_ns": pl.Int64, "end_ns": pl.Int64})


def device_labels(trace: TraceView, tables: Sequence[str]) -> pl.DataFrame:
    """Return ``pid``, ``device_id`` and the ``label`` of the physical device, for all in ``tables``."""
    used = pl.concat([trace.table(name).select("pid", "rank", "device_id").unique() for name in tables])
    known = trace.table("device").select("pid", "device_id", "uuid").unique(["pid", "device_id"], keep="last")
    hosts = trace.table("process").select("pid", "host").unique("pid", keep="last")
    ids = ["pid", "device_id"]
    found = (
        used.unique(ids, keep="first", maintain_order=False)
        .join(known, on=ids, how="left", nulls_equal=True)
        .join(hosts, on="pid", how="left")
        .sort("rank", *ids)
        .collect()
    )
    number = pl.col("device_id").cast(pl.String).fill_null("?")
    if found["pid"].n_unique() > 1:
        owner = "rank" if found["rank"].null_count() == 0 and found["rank"].n_unique() > 1 else "pid"
        number = pl.format("{} {}:{}", pl.lit(owner), pl.col(owner), number)
    # A device without a uuid is one of its own.
    physical = pl.when(pl.col("uuid").is_not_null()).then(pl.struct("host", "uuid").rank("dense"))
    return found.with_columns(label=number, _physical=physical).select(
        *ids,
        pl.when(pl.col("_physical").is_null())
        .then("label")
        .otherwise(pl.col("label").first().over("_physical"))
        .alias("label"),
    )


def _times(trace: TraceView, name: str, labels: pl.DataFrame) -> dict[str, Intervals]:
    if name not in trace.present:
        return {}
    events = trace.table(name).select("pid", "device_id", "start_ns", "end_ns").drop_nulls(["start_ns", "end_ns"])
    if labels["label"].n_unique() == 1:
        return {labels["label"][0]: Intervals.of(events)}
    named = labels.lazy().select("pid", "device_id", pl.col("label").cast(pl.Categorical))
    rows = events.join(named, on=["pid", "device_id"], nulls_equal=True).select("label", "start_ns", "end_ns").collect()
    return {str(label): Intervals.of(part) for (label,), part in rows.partition_by("label", as_dict=True).items()}


@dataclass(frozen=True)
class Host:
    """When the host of some processes waited for a device, was in a call of its API, and in an operator."""

    waiting: Intervals
    calling: Intervals
    operating: Intervals


def host(trace: TraceView, pids: tuple[int, ...]) -> Host:
    """Return what the host of the processes ``pids`` was doing, on any thread."""

    def of(name: str, *conditions: pl.Expr) -> Intervals:
        if name not in trace.present:
            return Intervals.of(_NOTHING)
        return Intervals.of(trace.table(name).filter(pl.col("pid").is_in(list(pids)), *conditions))

    return Host(of("sync", pl.col("kind").is_in(HOST_WAITS)), of("api"), of("op"))


def split_idle(idle: Intervals, host: Host) -> list[Intervals]:
    """Split idle time by what the host did, each nanosecond once: waiting, calling, operating, nothing recorded."""
    parts = []
    for busy in (host.waiting, host.calling, host.operating):
        parts.append(idle & busy)
        idle = idle - busy
    return [*parts, idle]


def during(trace: TraceView, table: str, device: Device, idle: Intervals) -> pl.DataFrame:
    """Return how much of ``idle`` the events of ``table`` (api or sync) of the device's processes covered, by name.

    Columns: ``name``, ``idle_ns``, ``events``. Calls nest and threads run side by side, so rows may overlap.
    """
    name = pl.col("kind" if table == "sync" else "name").alias("name")
    own = trace.table(table).filter(pl.col("pid").is_in(list(device.pids)))
    events = own.select(name, "start_ns", "end_ns").drop_nulls().collect()
    return by_name(events["name"], idle.covered(events["start_ns"].to_numpy(), events["end_ns"].to_numpy()))


def by_name(names: pl.Series, covered: Times) -> pl.DataFrame:
    """Add up what events covered, most first: ``name``, ``idle_ns``, ``events``."""
    return (
        pl.DataFrame({"name": names, "idle_ns": covered})
        .lazy()
        .filter(pl.col("idle_ns") > 0)
        .group_by("name")
        .agg(pl.col("idle_ns").sum(), pl.len().cast(pl.Int64).alias("events"))
        .sort("idle_ns", "name", descending=[True, False])
        .collect()
    )
