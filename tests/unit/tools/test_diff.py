"""Comparison of two results: rows, sides, significance, and the threshold for CI."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import polars as pl
import pytest
from golden import MS, US, shown, table
from hypothesis import given
from hypothesis import strategies as st

from pasta.errors import PastaError
from pasta.tools.analysis.significance import holm, mann_whitney
from pasta.tools.builtin.kernels import Kernels
from pasta.tools.diff import Diff, diff, diff_traces
from pasta.tools.result import Result, ResultColumn, ResultTable, Samples
from pasta.tools.testing import MemoryTrace, trace_of

COLUMNS = (
    ResultColumn("kernel", key=True),
    ResultColumn("calls", "count", merge="sum"),
    ResultColumn("total_ns", "ns", merge="sum"),
    ResultColumn("mean_ns", "ns", merge="mean:calls"),
)


def result(rows: dict[str, tuple[int, int]], samples: dict[str, list[int]] | None = None) -> Result:
    """A result with kernels of (calls, total ns)."""
    frame = pl.DataFrame(
        [(name, calls, total, total / calls) for name, (calls, total) in rows.items()],
        schema={"kernel": pl.String, "calls": pl.Int64, "total_ns": pl.Int64, "mean_ns": pl.Float64},
        orient="row",
    )
    explained = None
    if samples is not None:
        values = [(name, value) for name, many in samples.items() for value in many]
        explained = Samples("total_ns", pl.DataFrame(values, schema=["kernel", "value"], orient="row"))
    return Result(
        "kernels", [ResultTable("kernels", frame, COLUMNS, title="Kernels", samples=explained)], header=["app"]
    )


BEFORE = {"gemm<4>": (2, 40 * MS), "gemm<8>": (1, 10 * MS), "relu": (1, 5 * MS), "old": (1, 3 * MS)}
AFTER = {"gemm<4>": (2, 50 * MS), "gemm<8>": (3, 4 * MS), "relu": (1, 5 * MS), "new": (1, 2 * MS)}


def test_rows_are_sorted_by_change_and_sides_are_apart() -> None:
    # +10 ms (1.25 times), -6 ms (0.4 times), 0. Only A has `old`, only B `new`.
    compared = diff(result(BEFORE), result(AFTER), labels=("before.pasta", "after.pasta"))
    assert compared.header == ["B - A", "A: before.pasta · app", "B: after.pasta · app"]
    assert shown(compared.result()) == table("""
        Kernels: total
          kernel   A ms   B ms  delta ms  ratio
          gemm<4>  40.00  50.00     10.00  1.250
          gemm<8>  10.00   4.00     -6.00  0.400
          relu      5.00   5.00      0.00  1.000

        Kernels: total, only in A
          kernel  total ms
          old         3.00

        Kernels: total, only in B
          kernel  total ms
          new         2.00
    """).replace("kernel   A ms   B ms", "kernel    A ms   B ms")


def test_base_names_merge_rows() -> None:
    # gemm: 40 + 10 against 50 + 4.
    (comparison,) = diff(result(BEFORE), result(AFTER), match="base").comparisons
    assert comparison.both.select("kernel", "base", "new").rows() == [
        ("gemm", 50 * MS, 54 * MS),
        ("relu", 5 * MS, 5 * MS),
    ]


def test_means_merge_by_their_weights() -> None:
    # Mean of gemm: (2 x 20 + 1 x 10) / 3 ms against (2 x 25 + 3 x 4/3) / 5 ms.
    (comparison,) = diff(result(BEFORE), result(AFTER), match="base", column="mean_ns").comparisons
    row = comparison.both.filter(kernel="gemm").row(0, named=True)
    assert row["base"] == pytest.approx(50 / 3 * MS)
    assert row["new"] == pytest.approx(54 / 5 * MS)


def test_samples_tell_a_change_from_chance() -> None:
    steady, slower = [100 + i % 7 for i in range(40)], [120 + i % 7 for i in range(40)]
    a = result({"same": (1, 100), "slow": (1, 100)}, {"same": steady, "slow": steady})
    b = result({"same": (1, 101), "slow": (1, 120)}, {"same": steady[::-1], "slow": slower})
    rows = {row["kernel"]: row["verdict"] for row in diff(a, b).comparisons[0].both.iter_rows(named=True)}
    assert rows == {"same": "no significant change", "slow": "significant (p < 0.001)"}


@pytest.mark.parametrize(
    ("threshold", "message"),
    [
        ("10%", None),  # 58 ms against 61 ms in all: +5.2 %
        ("5%", "total_ns of kernels grew by 5.2 %, more than 5 %"),
        ("5%:kernels", "total_ns of kernels grew by 5.2 %, more than 5 %"),
        ("20 %:gemm<4>", "gemm<4> grew by 25.0 %, more than 20 %"),
        ("25%:gemm<4>", None),
        ("0%:relu", None),
    ],
)
def test_fail_above(threshold: str, message: str | None) -> None:
    assert diff(result(BEFORE), result(AFTER)).exceeds(threshold) == message


@pytest.mark.parametrize(
    ("threshold", "message"),
    [("five", "is no threshold"), ("-5%", "is no threshold"), ("5%:gem<4>", "no row or table 'gem<4>'; use gemm<4>")],
)
def test_thresholds_that_make_no_sense(threshold: str, message: str) -> None:
    with pytest.raises(PastaError, match=message):
        diff(result(BEFORE), result(AFTER)).exceeds(threshold)


def test_growth_by_chance_does_not_fail() -> None:
    values = list(range(100, 140))
    a = result({"k": (1, 100)}, {"k": values})
    b = result({"k": (1, 110)}, {"k": values[::-1]})
    assert diff(a, b).exceeds("5%:k") is None


def test_unknown_matches_and_columns() -> None:
    with pytest.raises(PastaError, match="cannot be matched by 'colour'; use name, base, op, range"):
        diff(result(BEFORE), result(AFTER), match="colour")
    with pytest.raises(PastaError, match="no table has a number 'weight'"):
        diff(result(BEFORE), result(AFTER), column="weight")
    with pytest.raises(PastaError, match="no table of both results has op rows"):
        diff(result(BEFORE), result(AFTER), match="op")


def test_a_peak_is_compared_by_its_size_and_not_by_its_moment() -> None:
    columns = (
        ResultColumn("what", key=True),
        ResultColumn("bytes", "bytes", merge="max"),
        ResultColumn("at_ns", "ns", "reached at"),
    )
    results = [
        Result("x", [ResultTable("memory", pl.DataFrame({"what": ["peak"], "bytes": [size], "at_ns": [at]}), columns)])
        for size, at in ((100, 9), (150, 5))
    ]
    (comparison,) = diff(*results).comparisons
    assert comparison.column.name == "bytes"
    assert comparison.both["delta"].to_list() == [50]


def test_a_table_of_one_side_only_is_said() -> None:
    other = Result("x", [ResultTable("other", pl.DataFrame({"op": ["a"]}), (ResultColumn("op", key=True),))])
    assert [finding.text for finding in diff(result(BEFORE), other).findings] == [
        "only A has kernels",
        "only B has other",
    ]


def kernels_by(op_of: dict[str, int]) -> MemoryTrace:
    kernels = [
        {"name": name, "op_id": op, "start_ns": 0, "end_ns": (i + 1) * US} for i, (name, op) in enumerate(op_of.items())
    ]
    return trace_of(kernel=kernels, op=[{"op_id": 1, "name": "mm"}, {"op_id": 2, "name": "add"}])


def both(compared: Diff) -> list[tuple[str, int, int]]:
    return sorted(compared.comparisons[0].both.select(pl.first(), "base", "new").rows())


def test_traces_are_matched_by_operator_exactly() -> None:
    # The kernels have other names on the other machine; their operators have not.
    a, b = kernels_by({"volta_mm": 1, "add": 2}), kernels_by({"sm90_mm": 1, "add": 2, "sm90_mm2": 1})
    assert both(diff_traces(Kernels, a, b, match="op")) == [("add", 2 * US, 2 * US), ("mm", 1 * US, 4 * US)]
    assert both(diff_traces(Kernels, a, b)) == [("add", 2 * US, 2 * US)]


def exact_p(left: list[int], right: list[int]) -> float:
    """The exact two-sided test: how many ways to deal the ranks are as far from the middle as this one."""
    size, total = len(left), len(left) + len(right)
    middle = size * len(right) / 2

    def distance(chosen: tuple[int, ...]) -> float:
        return abs(sum(chosen) - size * (size - 1) / 2 - middle)

    order = np.argsort(np.argsort(left + right))
    seen = distance(tuple(int(rank) for rank in order[:size]))
    ways = [distance(chosen) for chosen in combinations(range(total), size)]
    return sum(way >= seen - 1e-9 for way in ways) / len(ways)


@pytest.mark.parametrize("shift", [0, 2, 5, 9])
def test_mann_whitney_is_near_the_exact_test(shift: int) -> None:
    left, right = [10 * i for i in range(8)], [10 * i + 3 + 10 * shift for i in range(8)]
    assert mann_whitney(left, right) == pytest.approx(exact_p(left, right), abs=0.02)


def test_mann_whitney_needs_enough_and_takes_equal_values() -> None:
    assert mann_whitney([1] * 7, [2] * 100) is None
    assert mann_whitney([5] * 10, [5] * 10) == 1.0


@given(st.lists(st.integers(0, 9), min_size=8, max_size=30), st.lists(st.integers(0, 9), min_size=8, max_size=30))
def test_mann_whitney_does_not_depend_on_order_or_side(left: list[int], right: list[int]) -> None:
    p = mann_whitney(left, right)
    assert p is not None
    assert 0 <= p <= 1
    assert math.isclose(p, mann_whitney(right[::-1], sorted(left)) or 0.0, abs_tol=1e-12)


def test_holm_by_hand() -> None:
    # Sorted: 0.01 x 3, 0.02 x 2, 0.04 x 1, and never less than the one before.
    assert holm([0.04, None, 0.01, 0.02]) == [pytest.approx(0.04), None, pytest.approx(0.03), pytest.approx(0.04)]
