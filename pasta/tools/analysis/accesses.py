"""Device memory accesses joined with what was accessed: the objects, their sizes and the kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from pasta.tools.analysis.lifetimes import HOST_KINDS, object_lifetimes, tensor_lifetimes
from pasta.tools.base import TraceView
from pasta.tools.units import grouped, plural

#: Spaces that are no device memory: every block (work-group) or thread has its own.
ON_CHIP = ("shared", "local")
#: Columns of `access_object` that count distinct pieces of memory, and the bytes of a piece.
GRANULES = {"lines": 64, "pages_4k": 4 << 10, "pages_64k": 64 << 10, "pages_2m": 2 << 20}

#: Columns of `access_object` that count accesses.
COUNTS = ("loads", "stores", "atomics", "load_bytes", "store_bytes", "atomic_bytes")

LAUNCH = ("pid", "launch_id")
OBJECT = ("pid", "object_id")
TENSOR = ("pid", "tensor_id")


def objects(trace: TraceView) -> pl.LazyFrame:
    """Return all memory objects, parts of others too, as ``pid``, ``object_id``, ``size`` and what made them."""
    return object_lifetimes(trace.table("alloc")).select(
        *OBJECT, pl.col("bytes").alias("size"), "kind", "allocator", "op_id", "born_ns", "died_ns", "parent_object_id"
    ).unique(OBJECT, keep="last", maintain_order=True)  # fmt: skip


def tensors(trace: TraceView) -> pl.LazyFrame:
    """Return the tensors that accesses may be attributed to: ``pid``, ``tensor_id``, ``size``, who made them, when."""
    return tensor_lifetimes(trace.table("tensor")).filter(pl.col("tensor_id").is_not_null()).select(
        *TENSOR, pl.col("bytes").alias("size"), "device_type", "device_index", "op_id", "born_ns", "died_ns"
    ).unique(TENSOR, keep="last", maintain_order=True)  # fmt: skip


def has_tensors(trace: TraceView) -> bool:
    """Return whether accesses were attributed to tensors: the framework's hooks were on."""
    known = trace.table("tensor").select(pl.col("tensor_id").is_not_null().any()).collect().item()
    return bool(known) and "access_object" in trace.present


def on_device(kind: str = "kind") -> pl.Expr:
    """Which objects are device memory; one of unknown kind is."""
    return ~pl.col(kind).is_in(HOST_KINDS).fill_null(False)


def device_accesses(trace: TraceView) -> pl.LazyFrame:
    """Return the accesses of launches to device memory, a row a launch and object, with the object's ``size``.

    Distinct lines and pages become bytes, columns named as in `GRANULES`: at most the size of the object, since its
    first and last page may belong to others too. ``touched_bytes`` is the most exact of them that was measured.
    """
    sizes = objects(trace).select(*OBJECT, "size")
    return _touched(_add_up(tensor_accesses(trace), "object_id").join(sizes, on=list(OBJECT), how="left"))


def tensor_accesses(trace: TraceView) -> pl.LazyFrame:
    """Return the accesses of launches to tensors, a row a launch, tensor and object, as ``device_accesses``.

    ``size`` is the tensor's, ``tensor_id`` and ``size`` are null for what is in no known tensor. Offsets are those in
    the object.
    """
    rows = trace.table("access_object").filter(~pl.col("space").is_in(ON_CHIP).fill_null(False))
    in_bytes = rows.with_columns(pl.col(name) * granule for name, granule in GRANULES.items())
    sizes = tensors(trace).select(*TENSOR, "size")
    return _touched(_add_up(in_bytes, "object_id", "tensor_id").join(sizes, on=list(TENSOR), how="left"))


def _add_up(rows: pl.LazyFrame, *of: str) -> pl.LazyFrame:
    # An object reached through several arguments is counted for each; the sum bounds their union from above. With an
    # unknown part it is unknown.
    pieces = [pl.when(pl.col(name).is_not_null().all()).then(pl.col(name).sum()).alias(name) for name in GRANULES]
    extent = (pl.col("first_offset").min(), pl.col("last_offset").max())
    return rows.group_by(*LAUNCH, *of).agg(pl.col(COUNTS).sum(), *pieces, *extent)


def _touched(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Bound the bytes of distinct pieces by ``size``, and say which of them are the most exact."""
    bounded = [
        pl.when(pl.col(name).is_not_null()).then(pl.min_horizontal(name, "size")).alias(name) for name in GRANULES
    ]  # min_horizontal ignores a size that is not known
    return rows.with_columns(bounded).with_columns(pl.coalesce(*GRANULES, "size").alias("touched_bytes"))


def launches(trace: TraceView) -> pl.LazyFrame:
    """Return the launches as ``pid``, ``launch_id``, ``kernel`` and when they ran."""
    return trace.table("kernel").select(
        *LAUNCH, pl.col("name").fill_null("(unnamed)").alias("kernel"), "start_ns", "end_ns", "device_id"
    ).filter(pl.col("launch_id").is_not_null())  # fmt: skip


def coverage(trace: TraceView, table: str, others: str = "") -> str:
    """Say how many launches were measured, when it is not all of them, and whether in a run of their own.

    ``others`` says what became of the other launches; by default, that they are not in the numbers.
    """
    measured = trace.table(table).select(LAUNCH).unique().select(pl.len()).collect().item()
    total = trace.table("kernel").select(pl.len()).collect().item()
    if not total or measured >= total:
        text = f"{plural(measured, 'launch')} measured"
    else:
        text = f"{grouped(measured)} of {plural(total, 'launch')} were measured; "
        text += others or "the others are not in these numbers"
    return "; ".join(filter(None, (text, passes(trace.manifest))))


def passes(manifest: Mapping[str, Any]) -> str:
    """Say how a trace of two passes came together; empty for one of a single run."""
    counts = manifest.get("passes")
    launches = counts.get("launches") if isinstance(counts, dict) else None
    if not isinstance(launches, dict):
        return ""
    both, timing, memory = (launches.get(name) for name in ("both", "timing_only", "memory_only"))
    if not timing and not memory:
        return f"times and accesses are of two runs, which agree in all {both} launches"
    return (
        f"times and accesses are of two runs, which agree in {both} launches; "
        f"{timing} of the timing pass and {memory} of the memory pass have no equal"
    )
