"""Device memory accesses joined with what was accessed: the objects, their sizes and the kernels."""

from __future__ import annotations

import polars as pl

from pasta.tools.analysis.lifetimes import HOST_KINDS, object_lifetimes
from pasta.tools.base import TraceView
from pasta.tools.units import grouped, plural

#: Spaces that are no device memory: every block (work-group) or thread has its own.
ON_CHIP = ("shared", "local")
#: Columns of `access_object` that count distinct pieces of memory, and the bytes of a piece.
GRANULES = {"lines": 64, "pages_4k": 4 << 10, "pages_64k": 64 << 10, "pages_2m": 2 << 20}

LAUNCH = ("pid", "launch_id")
OBJECT = ("pid", "object_id")


def objects(trace: TraceView) -> pl.LazyFrame:
    """Return all memory objects, parts of others too, as ``pid``, ``object_id``, ``size`` and what made them."""
    return object_lifetimes(trace.table("alloc")).select(
        *OBJECT, pl.col("bytes").alias("size"), "kind", "allocator", "op_id", "born_ns", "died_ns", "parent_object_id"
    ).unique(OBJECT, keep="last", maintain_order=True)  # fmt: skip


def on_device(kind: str = "kind") -> pl.Expr:
    """Which objects are device memory; one of unknown kind is."""
    return ~pl.col(kind).is_in(HOST_KINDS).fill_null(False)


def device_accesses(trace: TraceView) -> pl.LazyFrame:
    """Return the accesses of launches to device memory, a row a launch and object, with the object's ``size``.

    Distinct lines and pages become bytes, columns named as in `GRANULES`: at most the size of the object, since its
    first and last page may belong to others too. ``touched_bytes`` is the most exact of them that was measured.
    """
    sizes = objects(trace).select(*OBJECT, "size")
    rows = trace.table("access_object").filter(~pl.col("space").is_in(ON_CHIP).fill_null(False))
    sums = [pl.col(name).sum() for name in ("loads", "stores", "atomics", "load_bytes", "store_bytes", "atomic_bytes")]
    # An object reached through several arguments is counted for each; the sum bounds their union from above.
    pieces = [pl.when(pl.col(name).is_not_null().any()).then(pl.col(name).sum()).alias(name) for name in GRANULES]
    return (
        rows.group_by(*LAUNCH, "object_id")
        .agg(*sums, *pieces, pl.col("first_offset").min(), pl.col("last_offset").max())
        .join(sizes, on=list(OBJECT), how="left", nulls_equal=False)
        .with_columns(_bytes(name, granule) for name, granule in GRANULES.items())
        .with_columns(pl.coalesce(*GRANULES, "size").alias("touched_bytes"))
    )


def _bytes(name: str, granule: int) -> pl.Expr:
    touched = pl.min_horizontal(pl.col(name) * granule, "size")  # which ignores a size that is not known
    return pl.when(pl.col(name).is_not_null()).then(touched).alias(name)


def launches(trace: TraceView) -> pl.LazyFrame:
    """Return the launches as ``pid``, ``launch_id``, ``kernel`` and when they ran."""
    return trace.table("kernel").select(
        *LAUNCH, pl.col("name").fill_null("(unnamed)").alias("kernel"), "start_ns", "end_ns", "device_id"
    ).filter(pl.col("launch_id").is_not_null())  # fmt: skip


def coverage(trace: TraceView, table: str) -> str:
    """Say how many launches were measured, when it is not all of them."""
    measured = trace.table(table).select(LAUNCH).unique().select(pl.len()).collect().item()
    total = trace.table("kernel").select(pl.len()).collect().item()
    if not total or measured >= total:
        return f"{plural(measured, 'launch')} measured"
    return f"{grouped(measured)} of {plural(total, 'launch')} were measured; the others are not in these numbers"
