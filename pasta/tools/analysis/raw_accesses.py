"""The raw path: `access_object`, `access_site` and `access_block` computed from the table `access`, row by row.

The patches reduce these on the device; here they come from every single access (``--memory=trace``), with numpy or,
on a GPU, with the same code and CuPy. All three give the same numbers. `RawAccesses` is a trace with the computed
tables in place of the recorded ones, so that every tool works on it.

What it cannot know stays out: TMA copies have no rows in `access`, and lines are not counted, as on the device.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from pasta.errors import PastaError
from pasta.schema import TABLES
from pasta.tools.analysis.address_map import NONE, AddressMap, Pieces
from pasta.tools.analysis.raw_launch import Launch, reduce_launch
from pasta.tools.base import TraceView
from pasta.trace.frames import conform, empty_frame

_COMPUTED = ("access_object", "access_site", "access_block")
_KINDS = {"load": 0, "store": 1, "atomic": 2}
_SPACES = {"global": 0, "shared": 1}
#: Rows of `access` that are read at once, 80 bytes each; a launch is never cut.
_BATCH = 1 << 22


class RawAccesses:
    """A `TraceView` of ``trace`` whose reduced tables are computed from its table `access`."""

    def __init__(self, trace: TraceView, xp: Any = np) -> None:
        """Compute with ``xp``, numpy or CuPy. Raises `PastaError` for a trace without raw accesses."""
        if "access" not in trace.present:
            raise PastaError("this trace holds no single accesses", "record with --memory=trace (CUDA)")
        self._trace, self._xp = trace, xp

    @property
    def manifest(self) -> Mapping[str, Any]:
        """What was recorded, how and on what."""
        return self._trace.manifest

    @property
    def notes(self) -> Sequence[str]:
        """Sentences for the user about this trace."""
        return [*self._trace.notes, "memory accesses: computed from the trace of them"]

    @property
    def present(self) -> frozenset[str]:
        """Names of the tables that have rows."""
        return (frozenset(self._trace.present) - set(_COMPUTED)) | {n for n in _COMPUTED if self._computed[n].height}

    def table(self, name: str) -> pl.LazyFrame:
        """Return a table of the trace, or the computed one."""
        return self._computed[name].lazy() if name in _COMPUTED else self._trace.table(name)

    @cached_property
    def _computed(self) -> dict[str, pl.DataFrame]:
        parts: dict[str, list[pl.DataFrame]] = {name: [] for name in _COMPUTED}
        for pid in self._trace.table("access").select(pl.col("pid").unique(maintain_order=True)).collect()["pid"]:
            for part in self._of_process(pid):
                for name, frame in part.items():
                    parts[name].append(frame)
        return {
            name: conform(pl.concat(found), TABLES[name]) if found else empty_frame(TABLES[name])
            for name, found in parts.items()
        }

    def _of_process(self, pid: int | None) -> Iterator[dict[str, pl.DataFrame]]:
        own = {name: self._trace.table(name).filter(pl.col("pid").eq_missing(pid)) for name in
               ("access", "alloc", "tensor", "kernel")}  # fmt: skip
        memory = AddressMap(own["alloc"].collect(), own["tensor"].collect())
        counts = own["access"].group_by("launch_id").agg(pl.len().alias("rows"))
        launches = own["kernel"].select("launch_id", "rank", "queued_ns").drop_nulls(["launch_id", "queued_ns"])
        measured = launches.unique("launch_id").join(counts, on="launch_id").sort("queued_ns", "launch_id").collect()
        # As many launches at a time as fit.
        batches = measured.with_columns((pl.col("rows").cum_sum() // _BATCH).alias("batch"))
        for batch in batches.partition_by("batch", maintain_order=True):
            rows = own["access"].filter(pl.col("launch_id").is_in(batch["launch_id"].implode())).collect()
            by_launch = rows.partition_by("launch_id", as_dict=True)
            for launch_id, rank, time in batch.select("launch_id", "rank", "queued_ns").iter_rows():
                ids = {"pid": pid, "rank": rank, "launch_id": launch_id}
                found = reduce_launch(_launch(by_launch[(launch_id,)]), memory.at(time), self._xp)
                yield _frames(ids, time, memory.at(time), found)


def array_module(name: str) -> Any:
    """Return numpy or cupy; raises `PastaError` when it is not installed, or has no GPU."""
    try:
        module = importlib.import_module(name)
        if name == "cupy":
            module.zeros(1)  # finds the GPU
    except Exception as error:  # CuPy has its own for a missing driver, device or library
        raise PastaError(f"{name} cannot be used: {error}", "pip install 'pasta-profiler[gpu]', on a GPU") from error
    return module


def _launch(rows: pl.DataFrame) -> Launch:
    coded = rows.sort("execution", maintain_order=True).with_columns(
        pl.col("kind").replace_strict(_KINDS, default=None, return_dtype=pl.Int64),
        pl.col("space").replace_strict(_SPACES, default=None, return_dtype=pl.Int64),
    ).drop_nulls(list(Launch._fields))  # fmt: skip
    return Launch(*(coded[name].to_numpy() for name in Launch._fields))


def _frames(ids: dict[str, Any], time: int, pieces: Pieces, found: dict[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """Name what was found by number: pieces become objects, kinds and spaces words."""
    columns = [pl.lit(value, pl.Int64).alias(name) for name, value in ids.items()]
    owners = pl.DataFrame({"object_id": pieces.object_id, "tensor_id": pieces.tensor_id, "at": pieces.offset})
    owners = owners.with_row_index("piece").with_columns(pl.col("piece").cast(pl.Int64))
    nothing = pl.when(pl.col("tensor_id") != NONE).then(pl.col("tensor_id")).alias("tensor_id")
    objects = found["objects"].join(owners.with_columns(nothing), on="piece", how="left", maintain_order="left")
    pages = [_unless_missing(f"pages_{unit}") for unit in ("4k", "64k", "2m")]
    objects = (
        objects.with_columns(pl.col("first", "end") + pl.col("at"))
        .group_by("object_id", "tensor_id", maintain_order=True)
        .agg(
            pl.col("loads", "stores", "atomics", "load_bytes", "store_bytes", "atomic_bytes").sum(),
            *pages,
            pl.col("first").min().alias("first_offset"),
            (pl.col("end").max() - 1).alias("last_offset"),
        )
        .with_columns(*columns, pl.lit("global").alias("space"))
    )
    blocks = (
        found["blocks"]
        .join(owners, on="piece", how="left", maintain_order="left")
        .select(
            *columns, "object_id", pl.col("offset") + pl.col("at"), "bytes", "accesses",
            pl.lit(time, pl.Int64).alias("start_ns"),
        )
    )  # fmt: skip
    names = {value: name for name, value in _KINDS.items()}, {value: name for name, value in _SPACES.items()}
    sites = found["sites"].with_columns(
        *columns,
        pl.col("kind").replace_strict(names[0], return_dtype=pl.String),
        pl.col("space").replace_strict(names[1], return_dtype=pl.String),
    )
    return {"access_object": objects, "access_site": sites, "access_block": blocks}


def _unless_missing(column: str) -> pl.Expr:
    """Add up, but a sum of which a part is not known is not known."""
    return pl.when(pl.col(column).is_not_null().all()).then(pl.col(column).sum()).alias(column)
