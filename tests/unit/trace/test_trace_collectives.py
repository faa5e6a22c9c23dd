"""NCCL's calls find the kernels that carry them out."""

from __future__ import annotations

import polars as pl

from pasta.schema import TABLES
from pasta.trace.collectives import join_calls
from pasta.trace.frames import empty_frame

SCHEMA = empty_frame(TABLES["collective"]).schema


def call(start: int, end: int, kind: str, size: int, thread: int = 7, **more: object) -> dict[str, object]:
    return {"thread_id": thread, "start_ns": start, "end_ns": end, "kind": kind, "bytes": size, **more}


def joined(calls: list[dict[str, object]], kernels: list[tuple[int, int, int]]) -> list[tuple[object, ...]]:
    """Join ``calls`` with ``kernels`` (thread, launched at, device); the n-th runs from 1000 n to 1000 n + 500."""
    rows = [
        {"thread_id": thread, "device_id": device, "correlation_id": n, "kind": "by name",
         "start_ns": 1000 * n, "end_ns": 1000 * n + 500}
        for n, (thread, _, device) in enumerate(kernels)
    ]  # fmt: skip
    frame = pl.DataFrame([{"pid": 1} | row for row in calls + rows], schema=SCHEMA)
    launches = pl.DataFrame(
        [{"pid": 1, "correlation_id": n, "called_ns": at} for n, (_, at, _) in enumerate(kernels)],
        schema={"pid": pl.Int32, "correlation_id": pl.Int64, "called_ns": pl.Int64},
    )
    result = join_calls(frame, launches).sort("start_ns", "bytes")
    assert result.schema == SCHEMA
    return result.select("correlation_id", "kind", "bytes", "start_ns").rows()


def test_a_call_launches_its_kernel() -> None:
    calls = [call(10, 20, "all_reduce", 400), call(30, 40, "broadcast", 80, group="c0ffee", group_size=2)]
    assert joined(calls, [(7, 15, 0), (7, 35, 0)]) == [(0, "all_reduce", 400, 0), (1, "broadcast", 80, 1000)]


def test_threads_do_not_mix() -> None:
    calls = [call(10, 20, "send", 1, thread=7), call(10, 20, "recv", 2, thread=8)]
    assert joined(calls, [(8, 15, 0), (7, 15, 1)]) == [(0, "recv", 2, 0), (1, "send", 1, 1000)]


def test_a_group_of_calls_in_one_kernel_keeps_a_row_each() -> None:
    calls = [call(10, 11, "send", 100, peer=1), call(12, 13, "recv", 200, peer=1)]
    assert joined(calls, [(7, 20, 0)]) == [(0, "send", 100, 0), (0, "recv", 200, 0)]


def test_a_group_over_devices_has_a_kernel_for_each() -> None:
    calls = [call(10, 11, "all_reduce", 100), call(12, 13, "all_reduce", 200)]
    assert joined(calls, [(7, 20, 0), (7, 21, 1)]) == [(0, "all_reduce", 100, 0), (1, "all_reduce", 200, 1000)]


def test_a_call_without_a_kernel_does_not_take_the_next_ones() -> None:
    # A communicator of one rank copies instead.
    calls = [call(10, 20, "all_reduce", 1), call(30, 40, "broadcast", 2)]
    assert joined(calls, [(7, 35, 0)]) == [(0, "broadcast", 2, 0), (None, "all_reduce", 1, 10)]


def test_kernels_without_calls_stay() -> None:
    assert joined([], [(7, 5, 0)]) == [(0, "by name", None, 0)]
    # Launched before the first call: by a CUDA graph, or before annotations were on.
    assert joined([call(10, 20, "send", 4)], [(7, 5, 0), (7, 15, 0)]) == [(0, "by name", None, 0), (1, "send", 4, 1000)]


def test_calls_alone_stay() -> None:
    assert joined([call(10, 20, "send", 4)], []) == [(None, "send", 4, 10)]
