"""Times of Kineto files are exact to the nanosecond in every notation; expected values are those that were printed."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kineto_maker import BASE_NS, Raw, column, document, dumps, event, imported, kernel, op, rows

#: Starts and durations in ns; Kineto's times are at most 92 days after their base.
SPANS = st.lists(st.tuples(st.integers(0, 92 * 86400 * 10**9), st.integers(0, 10**12)), min_size=1, max_size=20)


@given(spans=SPANS, base=st.sampled_from([0, BASE_NS]))
@settings(max_examples=60)
def test_times_relative_to_a_base_round_trip(spans: list[tuple[int, int]], base: int) -> None:
    check(spans, base, offset=0)


@given(spans=SPANS)
@settings(max_examples=60)
def test_times_at_the_scale_of_the_epoch_round_trip(spans: list[tuple[int, int]]) -> None:
    # 1.7e15 us with three decimals: a double would round to a quarter of a microsecond.
    check(spans, 0, offset=BASE_NS)


def check(spans: list[tuple[int, int]], base: int, offset: int) -> None:
    events = [kernel(f"k{n}", offset + start, offset + start + length, n) for n, (start, length) in enumerate(spans)]
    with (
        tempfile.TemporaryDirectory() as folder,
        imported(Path(folder), document(events, baseTimeNanoseconds=base)) as trace,
    ):
        found = {row["name"]: (row["start_ns"], row["end_ns"]) for row in rows(trace, "kernel")}
        first = min(start for start, _ in spans)
        assert found == {f"k{n}": (a - first, a - first + d) for n, (a, d) in enumerate(spans)}
        epoch = base + offset + first
        assert trace.manifest["import"]["epoch_ns"] == (epoch if epoch > 10**18 else None)


def test_whole_microseconds_of_2021_have_a_stated_resolution(tmp_path: Path) -> None:
    events = [event("Kernel", "k", 0, 0, device=0, stream=7, correlation=1) | {"ts": 1623212388476227, "dur": 2}]
    with imported(tmp_path, document(events)) as trace:
        assert rows(trace, "kernel", "start_ns", "end_ns") == [{"start_ns": 0, "end_ns": 2000}]
        assert trace.manifest["import"]["resolution_ns"] == 1000


def test_base_time_may_stand_behind_the_events(tmp_path: Path) -> None:
    text = dumps({"schemaVersion": 1, "traceEvents": [op("a", 5, 9)], "baseTimeNanoseconds": BASE_NS})
    with imported(tmp_path, text) as trace:
        assert trace.manifest["import"]["epoch_ns"] == BASE_NS + 5
        assert rows(trace, "clock", "source", "source_ns") == [{"source": "realtime", "source_ns": BASE_NS + 5}]


def test_display_in_nanoseconds_does_not_change_the_unit(tmp_path: Path) -> None:
    with imported(tmp_path, document([op("a", 0, 1500)], displayTimeUnit="ns")) as trace:
        assert column(trace, "op", "end_ns") == [1500]


def test_work_that_starts_before_its_call_is_reported_and_not_moved(tmp_path: Path) -> None:
    events = [
        event("cuda_runtime", "cudaLaunchKernel", 1000, 2000, correlation=3),
        kernel("early", 500, 700, 3),
    ]
    with imported(tmp_path, document(events)) as trace:
        assert column(trace, "kernel", "start_ns") == [0]
        assert trace.manifest["import"]["unmatched"] == {"kernel that starts before its launch call": 1}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("NaN", "event without a time"),
        ("null", "event without a time"),
        ('"soon"', "event without a time"),
        ("true", "event without a time"),
        ("1e999999999", "event without a time"),
        ("9e300", "event without a time"),
        ("4e15", "event without a time"),
        ("[1]", "event without a time"),
        ("123456789012345678901234567890", "event without a time"),
    ],
)
def test_what_is_no_time_costs_only_its_event(tmp_path: Path, text: str, reason: str) -> None:
    events = [op("good", 1000, 2000), op("bad", 0, 0) | {"ts": Raw(text)}, op("fine", 3000, 4000)]
    with imported(tmp_path, document(events)) as trace:
        assert column(trace, "op", "name") == ["good", "fine"]
        assert trace.manifest["import"]["skipped"] == {reason: 1}


def test_a_missing_duration_leaves_the_end_unknown_and_a_negative_one_is_refused(tmp_path: Path) -> None:
    events = [op("open", 1000, 2000), op("backwards", 2000, 1000), op("whole", 3000, 3500)]
    del events[0]["dur"]
    with imported(tmp_path, document(events)) as trace:
        assert rows(trace, "op", "name", "end_ns") == [
            {"name": "open", "end_ns": None},
            {"name": "whole", "end_ns": 2500},
        ]
        assert trace.manifest["import"]["skipped"] == {"event that ends before it starts": 1}
