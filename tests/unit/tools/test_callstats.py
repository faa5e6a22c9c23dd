"""Statistics of durations against numpy on the same numbers."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pasta.tools.analysis import callstats

durations = st.lists(st.integers(0, 40), min_size=1, max_size=60)


def histogram(values: list[int | None], name: str = "a") -> pl.DataFrame:
    events = pl.LazyFrame(
        {"name": [name] * len(values), "duration_ns": values}, schema_overrides={"duration_ns": pl.Int64}
    )
    return callstats.histogram(events, ["name"])


@given(durations, durations)
def test_parts_give_what_all_calls_give(left: list[int], right: list[int]) -> None:
    row = callstats.statistics([histogram(left), histogram(right)], ["name"]).row(0, named=True)
    every = np.sort(left + right)
    assert row["calls"] == len(every)
    assert row["total_ns"] == every.sum()
    assert row["mean_ns"] == pytest.approx(every.mean())
    assert row["median_ns"] == np.median(every)
    assert (row["min_ns"], row["max_ns"]) == (every[0], every[-1])
    # The definition: the smallest duration that at least 99 % of the calls do not exceed.
    assert row["p99_ns"] == every[math.ceil(0.99 * len(every)) - 1]


def test_calls_that_never_ended_count_but_have_no_time() -> None:
    row = callstats.statistics([histogram([4, None, 6])], ["name"]).row(0, named=True)
    assert (row["calls"], row["total_ns"], row["mean_ns"]) == (3, 10, 5.0)


def test_unknown_durations_only_give_no_total() -> None:
    row = callstats.statistics([histogram([None, None])], ["name"]).row(0, named=True)
    assert row == {"name": "a", "calls": 2, "total_ns": None, "mean_ns": None, "median_ns": None, "min_ns": None,
                   "max_ns": None, "p99_ns": None}  # fmt: skip


@given(durations)
def test_few_samples_are_all_kept(values: list[int]) -> None:
    kept = callstats.samples([histogram(values)], ["name"]).frame["value"].to_list()
    assert kept == sorted(values)


def test_many_samples_keep_their_distribution() -> None:
    # 10 000 calls of 0..9999 ns: 500 evenly spaced quantiles are the upper ends of runs of 20 calls.
    kept = callstats.samples([histogram(list(range(10_000)))], ["name"]).frame["value"].to_list()
    assert kept == list(range(19, 10_000, 20))
