"""What the tables look like as slices: which rows, under which name, on whose track, with which arguments.

Host rows are on the track of their thread, device work on a track of its stream, which is below its device::

    process ─┬─ thread              range, op, build, api, sync
             ├─ device ── stream    kernel, memcpy, memset, collective
             ├─ unified memory      uvm
             └─ free ranges         ranges that need not nest
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from pasta.tools.base import TraceView

#: Names a process in the whole trace; ids of everything else are unique within it.
PROCESS = ("rank", "pid")

Columns = Mapping[str, pl.Expr]


@dataclass(frozen=True)
class Slices:
    """The slices made of one table: which rows, their name and category, and their arguments."""

    table: str
    name: pl.Expr
    category: pl.Expr
    arguments: Columns
    where: pl.Expr | None = None

    def rows(self, trace: TraceView, owner: tuple[str, ...], level: int) -> pl.LazyFrame:
        """Return ``rank pid``, the columns ``owner``, times, ``level``, name, category, flow and the arguments."""
        frame = trace.table(self.table)
        if self.where is not None:
            frame = frame.filter(self.where)
        flow = pl.col("correlation_id") if self.table in _LINKED else pl.lit(None, pl.Int64)
        return frame.select(
            *PROCESS,
            *owner,
            "start_ns",
            "end_ns",
            level=pl.lit(level, pl.Int32),
            name=self.name.fill_null(f"({self.table})"),
            category=self.category,
            flow=flow,
            **self.arguments,
        )


#: Tables whose rows are joined by arrows where their `correlation_id` is equal.
_LINKED = ("api", "kernel", "memcpy", "memset")


def _dimensions(prefix: str) -> pl.Expr:
    return pl.concat_str([pl.col(f"{prefix}_{axis}") for axis in "xyz"], separator=" x ")


def _ranges(where: pl.Expr) -> Slices:
    category = pl.coalesce("domain", "source")
    return Slices("range", pl.col("name"), category, {"nvtx_category": pl.col("category")}, where)


# In each list, what encloses comes first: of slices with the same times, the earlier one is the outer one.
_HOST = (
    _ranges(pl.col("kind").ne_missing("start_end")),
    Slices("op", pl.col("name"), pl.lit("op"), {"phase": pl.col("phase"), "module": pl.col("module")}),
    Slices("build", pl.lit("build program"), pl.lit("build"), {"result": pl.col("result").cast(pl.Int64)}),
    Slices("api", pl.col("name"), pl.col("api"), {"result": pl.col("result").cast(pl.Int64)}),
    Slices("sync", pl.lit("wait for ") + pl.col("kind"), pl.lit("sync"), {}),
)
_DEVICE = (
    Slices("collective", pl.col("kind"), pl.lit("collective"), {"bytes": pl.col("bytes"), "group": pl.col("group")}),
    Slices(
        "kernel",
        pl.col("name"),
        pl.lit("kernel"),
        {
            "grid": _dimensions("grid"),
            "block": _dimensions("block"),
            "registers": pl.col("registers").cast(pl.Int64),
            "static_shared_bytes": pl.col("static_shared_bytes").cast(pl.Int64),
            "dynamic_shared_bytes": pl.col("dynamic_shared_bytes").cast(pl.Int64),
            "launch_id": pl.col("launch_id"),
            "op_id": pl.col("op_id"),
        },
    ),
    Slices(
        "memcpy",
        pl.lit("memcpy ") + pl.col("kind"),
        pl.lit("memcpy"),
        {"bytes": pl.col("bytes"), "from": pl.col("src_kind"), "to": pl.col("dst_kind"), "op_id": pl.col("op_id")},
    ),
    Slices("memset", pl.lit("memset"), pl.lit("memset"), {"bytes": pl.col("bytes"), "op_id": pl.col("op_id")}),
)
_UVM = (
    Slices(
        "uvm",
        pl.col("kind"),
        pl.lit("uvm"),
        {"bytes": pl.col("bytes"), "cause": pl.col("cause"), "count": pl.col("count"), "address": pl.col("address")},
    ),
)
_FREE_RANGES = (_ranges(pl.col("kind").eq("start_end")),)


@dataclass(frozen=True)
class Timeline:
    """Slices that share tracks: ``owner`` are the columns that tell the tracks of one process apart."""

    kind: str
    owner: tuple[str, ...]
    slices: tuple[Slices, ...]

    def rows(self, trace: TraceView) -> pl.LazyFrame | None:
        """Return the rows of all slices, or None when the trace has none."""
        parts = [s.rows(trace, self.owner, level) for level, s in enumerate(self.slices) if s.table in trace.present]
        return pl.concat(parts, how="diagonal") if parts else None


TIMELINES = (
    Timeline("thread", ("thread_id",), _HOST),
    Timeline("stream", ("device_id", "stream_id"), _DEVICE),
    Timeline("unified memory", (), _UVM),
    Timeline("free ranges", (), _FREE_RANGES),
)


@dataclass(frozen=True)
class Counter:
    """A number of bytes over time: ``owner`` are the columns that, with ``name``, tell the counters apart."""

    table: str
    owner: tuple[str, ...]
    rows: pl.LazyFrame
    #: The value is a change to what was before, rather than the total.
    is_change: bool = False


def counters(trace: TraceView) -> Iterator[Counter]:
    """Yield the counters of memory: rows of ``rank pid``, owner, ``start_ns``, ``name`` and ``value``."""
    if "alloc" in trace.present:
        sign = pl.when(pl.col("action") == "free").then(-1).otherwise(1)
        # A part of an object is no memory of its own.
        whole = trace.table("alloc").filter(pl.col("parent_object_id").is_null() & pl.col("bytes").is_not_null())
        name = pl.col("kind").fill_null("unknown") + " memory"
        rows = whole.select(*PROCESS, "device_id", "start_ns", name=name, value=pl.col("bytes") * sign)
        yield Counter("alloc", ("device_id",), rows, is_change=True)
    if "tensor" in trace.present:
        where = pl.col("device_type").fill_null("device") + pl.col("device_index").cast(pl.String).fill_null("")
        for total, label in (("allocated_bytes", "tensors on "), ("reserved_bytes", "reserved on ")):
            known = trace.table("tensor").filter(pl.col(total).is_not_null())
            rows = known.select(*PROCESS, "start_ns", name=pl.lit(label) + where, value=pl.col(total))
            yield Counter("tensor", (), rows)
