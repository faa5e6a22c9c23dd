"""Accesses by source line: the instructions of kernels joined with the lines that they came from."""

from __future__ import annotations

import polars as pl

from pasta.tools.analysis import accesses
from pasta.tools.analysis.accesses import LAUNCH
from pasta.tools.analysis.sampling import sampling_note
from pasta.tools.base import TraceView
from pasta.tools.result import ResultColumn

#: What instructions are added up by: the source line, or the offset in the kernel where no line is known.
KEYS = ("kernel", "file", "line", "pc", "kind", "space")
KEY_COLUMNS = tuple(
    ResultColumn(key, {"line": "id", "pc": "id"}.get(key, ""), "offset" if key == "pc" else "", key=True)
    for key in KEYS
)


def site_accesses(trace: TraceView, *more: str) -> pl.LazyFrame:
    """Return the rows of `access_site` with ``kernel``, ``file``, ``line``, ``text`` and ``device_id``.

    ``pc`` is the offset of the instruction where its line is not known, else null.
    """
    lines = trace.table("line").select(
        "pid", "site_id", pl.col("kernel").alias("_kernel"), "file", "line", "text",
        pl.when(pl.col("line").is_null()).then("pc").alias("pc"),
    ).unique(["pid", "site_id"], keep="last")  # fmt: skip
    launches = accesses.launches(trace).select(*LAUNCH, "kernel", "device_id").unique(LAUNCH, keep="first")
    return (
        trace.table("access_site")
        .join(lines, on=["pid", "site_id"], how="left")
        .join(launches, on=list(LAUNCH), how="left")
        .with_columns(
            pl.coalesce("_kernel", "kernel", pl.lit("(unknown kernel)")).alias("kernel"),
            pl.col("kind", "space").fill_null("unknown"),
        )
        .drop("_kernel")
    )


def site_note(trace: TraceView) -> str:
    """Say under a table of sites what was measured, and what its sums are."""
    return accesses.coverage(trace, "access_site", sampling_note(trace, "access_site"))


def place(row: dict[str, object]) -> str:
    """Name the source line of a row; its kernel, and offset in that, where the line is not known."""
    if row["file"] is None:
        return str(row["kernel"]) if row["pc"] is None else f"{row['kernel']}+0x{row['pc']:x}"
    return f"{row['file']}:{row['line']}" if row["line"] is not None else str(row["file"])
