"""Statistics of durations by name: calls, total, mean, median, extremes and 99th percentile, exact in parts too.

The parts of a trace are reduced to how often each duration occurred, which adds up; a percentile of a percentile
would not.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from pasta.tools.result import ResultColumn, Samples

#: What `statistics` adds to the keys, as columns of a result; the median and p99 of merged rows cannot be told.
COLUMNS: tuple[ResultColumn, ...] = (
    ResultColumn("calls", "count", merge="sum"),
    ResultColumn("total_ns", "ns", merge="sum"),
    ResultColumn("mean_ns", "ns", merge="mean:calls", family="call"),
    ResultColumn("median_ns", "ns", family="call"),
    ResultColumn("min_ns", "ns", merge="min", family="call"),
    ResultColumn("max_ns", "ns", merge="max", family="call"),
    ResultColumn("p99_ns", "ns", family="call"),
)
#: Most single durations of one key kept for the comparison of two traces.
_MOST_SAMPLES = 500


def duration() -> pl.Expr:
    """How long an event took; null when its end is unknown."""
    return (pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns")


def histogram(events: pl.LazyFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Count how often each ``duration_ns`` occurred for each key: a frame of ``keys``, ``duration_ns``, ``calls``."""
    return events.group_by(*keys, "duration_ns").agg(pl.len().cast(pl.Int64).alias("calls")).collect()


def statistics(histograms: Sequence[pl.DataFrame], keys: Sequence[str]) -> pl.DataFrame:
    """Add up histograms and return a row a key, most total time first.

    The median of an even number of calls is the mean of the middle two; p99 is the smallest duration that at least
    99 % of the calls do not exceed. Calls without a duration count as calls only.
    """
    merged = pl.concat(histograms).lazy().group_by(*keys, "duration_ns").agg(pl.col("calls").sum())
    ordered = merged.sort(*keys, "duration_ns", nulls_last=True)
    timed = pl.col("calls").filter(pl.col("duration_ns").is_not_null())
    count = timed.sum()
    rank = timed.cum_sum()
    known = pl.col("duration_ns").drop_nulls()
    total = pl.when(count > 0).then((pl.col("duration_ns") * pl.col("calls")).sum())
    middle = known.filter(rank >= (count + 1) // 2).first() + known.filter(rank >= count // 2 + 1).first()
    return (
        ordered.group_by(*keys, maintain_order=True)
        .agg(
            pl.col("calls").sum(),
            total.alias("total_ns"),
            (total / count).alias("mean_ns"),
            (middle / 2).alias("median_ns"),
            known.first().alias("min_ns"),
            known.last().alias("max_ns"),
            known.filter(rank >= (99 * count + 99) // 100).first().alias("p99_ns"),
        )
        .sort("total_ns", "calls", *keys, descending=[True, True, *([False] * len(keys))], nulls_last=True)
        .collect()
    )


def samples(histograms: Sequence[pl.DataFrame], keys: Sequence[str], column: str = "mean_ns") -> Samples:
    """Return durations that stand for the distribution of each key: all of them, or evenly spaced quantiles."""
    merged = pl.concat(histograms).lazy().filter(pl.col("duration_ns").is_not_null())
    rank = pl.col("calls").cum_sum()
    total = pl.col("calls").sum()
    kept = pl.min_horizontal(total, pl.lit(_MOST_SAMPLES))
    # Each duration stands for as many of the kept samples as there are sampled ranks up to its own.
    upto = (rank * kept) // total
    return Samples(
        column,
        merged.sort(*keys, "duration_ns")
        .group_by(*keys, maintain_order=True)
        .agg(pl.col("duration_ns").alias("value"), (upto - upto.shift(1, fill_value=0)).alias("times"))
        .explode("value", "times")
        .with_columns(pl.col("value").repeat_by("times"))
        .drop("times")
        .filter(pl.col("value").list.len() > 0)
        .explode("value")
        .collect(),
    )


def shares(column: str) -> pl.Expr:
    """A column as a percentage of its sum; null when the sum is 0."""
    total = pl.col(column).sum()
    return pl.when(total > 0).then(pl.col(column) * 100 / total)
