"""The shared filters: which rows of which table are left."""

from __future__ import annotations

import pytest

from pasta.errors import PastaError
from pasta.tools.filters import FilteredTrace, Filters
from pasta.tools.testing import MemoryTrace, trace_of


def trace() -> MemoryTrace:
    """A range `step` at 10..20 in process 1. Times in ns.

    call    12 (launches kernel `in`)   30 (launches kernel `out`)
    kernel  `before` 0..5      `in` 15..40      `out` 35..45
    object  1: 0..5     2: 5..30     3: 25..
    """
    return trace_of(
        range=[{"name": "step", "domain": "app", "kind": "push_pop", "thread_id": 1, "start_ns": 10, "end_ns": 20}],
        api=[
            {"name": "launch", "correlation_id": 1, "thread_id": 2, "start_ns": 12, "end_ns": 13},
            {"name": "launch", "correlation_id": 2, "thread_id": 2, "start_ns": 30, "end_ns": 31},
        ],
        kernel=[
            {"name": "before", "launch_id": 0, "device_id": 0, "start_ns": 0, "end_ns": 5, "rank": 0},
            {"name": "in", "launch_id": 1, "device_id": 1, "correlation_id": 1, "start_ns": 15, "end_ns": 40,
             "rank": 0},
            {"name": "out", "launch_id": 2, "correlation_id": 2, "start_ns": 35, "end_ns": 45, "rank": 1},
        ],
        alloc=[
            {"action": "alloc", "object_id": 1, "start_ns": 0}, {"action": "free", "object_id": 1, "start_ns": 5},
            {"action": "alloc", "object_id": 2, "start_ns": 5}, {"action": "alloc", "object_id": 3, "start_ns": 25},
            {"action": "free", "object_id": 2, "start_ns": 30},
        ],
        access_object=[{"launch_id": i, "object_id": 2} for i in range(3)],
        device=[{"device_id": 0}],
    )  # fmt: skip


def kernels(**filters: object) -> list[str]:
    view = FilteredTrace(trace(), Filters(**filters))  # type: ignore[arg-type]
    return view.table("kernel").collect()["name"].to_list()


def test_no_filter_keeps_everything() -> None:
    view = FilteredTrace(trace())
    assert view.present == trace().present
    assert view.windows.span == (0, 45)
    assert kernels() == ["before", "in", "out"]


@pytest.mark.parametrize(
    ("window", "left"),
    [
        ((5, 15), []),
        ((5, 16), ["in"]),
        ((4, 36), ["before", "in", "out"]),
        ((40, None), ["out"]),
        ((None, 1), ["before"]),
    ],
)
def test_time_keeps_what_overlaps_it(window: tuple[int | None, int | None], left: list[str]) -> None:
    assert kernels(time=window) == left


def test_a_range_keeps_what_was_launched_in_it_by_any_thread() -> None:
    # `in` began to run within the range and ended after it; its call, by another thread, was at 12.
    assert kernels(range="step") == kernels(range="step@app") == ["in"]
    view = FilteredTrace(trace(), Filters(range="step"))
    assert view.table("api").collect()["correlation_id"].to_list() == [1]
    # The time: the range, 10..20, and the work that it launched, 15..40.
    assert view.windows.span == (10, 40)
    assert len(view.windows) == 1


def test_objects_are_kept_whole_when_they_lived_in_the_window() -> None:
    view = FilteredTrace(trace(), Filters(time=(10, 20)))
    assert view.table("alloc").collect()["object_id"].to_list() == [2, 2]
    assert FilteredTrace(trace(), Filters(range="step")).table("alloc").collect()["object_id"].to_list() == [2, 2]


def test_kernel_filter_keeps_the_accesses_of_these_kernels() -> None:
    view = FilteredTrace(trace(), Filters(kernel="^(in|out)$"))
    assert view.table("kernel").collect()["name"].to_list() == ["in", "out"]
    assert view.table("access_object").collect()["launch_id"].to_list() == [1, 2]
    assert view.table("api").collect().height == 2


def test_rank_and_device() -> None:
    assert kernels(ranks=frozenset({1})) == ["out"]
    # `out` has no device: it cannot be told that it ran elsewhere.
    assert kernels(devices=frozenset({0})) == ["before", "out"]
    assert FilteredTrace(trace(), Filters(devices=frozenset({7}))).table("device").collect().height == 1


def test_tables_without_rows_left_are_not_present() -> None:
    assert "kernel" not in FilteredTrace(trace(), Filters(kernel="nothing")).present


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        (Filters(time=(9, 5)), "time window"),
        (Filters(kernel="(a"), r"'\(a' is not a regular expression \(unclosed group\)"),
        (Filters(range="stepp"), "no range is called 'stepp'; did you mean step"),
        (Filters(range="step@other"), "no range is called"),
    ],
)
def test_filters_that_cannot_be_used_say_why(filters: Filters, message: str) -> None:
    with pytest.raises(PastaError, match=message):
        FilteredTrace(trace(), filters).table("kernel")


def test_filters_in_words() -> None:
    filters = Filters((5_000_000_000, None), "step", "gemm", frozenset({1, 0}), frozenset({2}))
    assert filters.describe() == "time 5s to the end · range step · kernels matching gemm · rank 0, 1 · device 2"
    assert Filters((None, 500_000_000)).describe() == "time 0s to 0.5s"
