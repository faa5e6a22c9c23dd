"""Sums over all launches, estimated from those that were measured (``pasta record --sample``), and how exact they are.

Launches of one kernel, grid and block are a stratum. Of the N launches of a stratum n were measured; with x the values
of the measured ones and s their standard deviation, the sum over all N is estimated as N * mean(x), and its standard
error is N * s * sqrt((1 - n/N) / n), as if the n had been drawn at random. Errors of strata add up as squares.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from pasta.tools.analysis.accesses import LAUNCH
from pasta.tools.base import TraceView
from pasta.tools.result import ResultColumn
from pasta.tools.units import plural

_STRATUM = ("rank", "name", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "global_x", "global_y",
            "global_z")  # fmt: skip


def is_sampled(trace: TraceView) -> bool:
    """Return whether the recording measured only some launches because it was told to."""
    options = trace.manifest.get("options")
    return isinstance(options, dict) and bool(options.get("sample"))


def estimate_sums(
    trace: TraceView, table: str, rows: pl.LazyFrame, keys: Sequence[str], columns: Sequence[str], error_of: str
) -> pl.LazyFrame:
    """Add up ``columns`` of ``rows`` (of measured launches) by ``keys``.

    In a sampled recording the sums are estimates for all launches, ``table`` telling which were measured. The column
    ``error`` is the standard error of the sum of ``error_of`` in percent of it: 0 where everything was measured, null
    where one measurement of several launches leaves it open.
    """
    if not is_sampled(trace):
        return rows.group_by(keys).agg(pl.col(columns).sum()).with_columns(error=pl.lit(0.0))
    by_launch = rows.group_by(list(dict.fromkeys((*LAUNCH, *keys)))).agg(pl.col(columns).sum())
    in_strata = (
        by_launch.with_columns(x=pl.col(error_of).cast(pl.Float64))
        .join(_strata(trace, table), on=list(LAUNCH), how="left")
        .group_by(*keys, "_stratum", "_ran", "_measured")
        .agg(pl.col(columns).sum(), x=pl.sum("x"), squares=(pl.col("x") ** 2).sum())
    )
    ran, measured = pl.col("_ran"), pl.col("_measured")
    scaled = [
        pl.when(ran > measured).then((pl.col(name) * (ran / measured)).round()).otherwise(pl.col(name)).cast(pl.Int64)
        .alias(name)
        for name in columns
    ]  # fmt: skip
    spread = (pl.col("squares") - pl.col("x") ** 2 / measured) / (measured - 1)
    variance = (
        pl.when(ran <= measured).then(0.0).when(measured > 1).then(ran**2 * (1 - measured / ran) * spread / measured)
    )
    total = pl.col(error_of).sum()
    unknown = pl.col("_variance").null_count() > 0
    error = pl.when(~unknown & (total > 0)).then(pl.max_horizontal("_variance", 0.0).sum().sqrt() * 100 / total)
    return (
        in_strata.with_columns(*scaled, _variance=variance)
        .group_by(keys)
        .agg(pl.col(columns).sum(), error=error)
        .with_columns(error=pl.when(pl.col(error_of) == 0).then(0.0).otherwise("error"))
    )


def error_columns(trace: TraceView) -> tuple[ResultColumn, ...]:
    """Return the column that shows ``error``, for tables of a sampled recording."""
    return (ResultColumn("error", "%", "± sampling error"),) if is_sampled(trace) else ()


def sampling_note(trace: TraceView, table: str) -> str:
    """Say what sums are estimates of; empty when the recording was not sampled."""
    if not is_sampled(trace):
        return ""
    strata = _launches(trace, table).group_by(_STRATUM).agg(pl.len().alias("ran"), pl.col("measured").any())
    missing = strata.filter(~pl.col("measured")).select(pl.col("ran").sum()).collect().item()
    text = "sums are estimates for all launches of the measured kernels and grids, ± is their standard error"
    return f"{text}; {plural(missing, 'launch')} of others not in them" if missing else text


def _launches(trace: TraceView, table: str) -> pl.LazyFrame:
    measured = trace.table(table).select(LAUNCH).unique().with_columns(measured=pl.lit(True))
    kernels = trace.table("kernel").filter(pl.col("launch_id").is_not_null()).unique(LAUNCH, keep="first")
    return kernels.select(*LAUNCH, *_STRATUM).join(measured, on=list(LAUNCH), how="left").with_columns(
        pl.col("measured").fill_null(False)
    )  # fmt: skip


def _strata(trace: TraceView, table: str) -> pl.LazyFrame:
    """Return each launch with a number of its stratum, and how many launches of that ran and were measured."""
    return _launches(trace, table).select(
        *LAUNCH,
        pl.struct(_STRATUM).rank("dense").alias("_stratum"),
        pl.len().over(_STRATUM).alias("_ran"),
        pl.col("measured").sum().over(_STRATUM).alias("_measured"),
    )
