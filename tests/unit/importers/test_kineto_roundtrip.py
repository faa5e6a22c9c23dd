"""Generated Kineto files come back whole: every event is a row with its name and times, whatever its arguments."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kineto_maker import document, event, imported, rows

from pasta.importers import json_stream

#: Category -> table and names that events of it have.
CATEGORIES = {
    "cpu_op": ("op", ["aten::mm", "autograd::engine::evaluate_function: MmBackward0", "Optimizer.step#SGD.step"]),
    "cuda_runtime": ("api", ["cudaLaunchKernel", "hipExtModuleLaunchKernel"]),
    "kernel": ("kernel", ["gemm<float, 4>(float*)", "ncclDevKernel_AllReduce_Sum"]),
    "gpu_memcpy": ("memcpy", ["Memcpy HtoD (Pinned -> Device)", "Memcpy"]),
    "gpu_memset": ("memset", ["Memset (Device)", "Memset"]),
    "cuda_sync": ("sync", ["Stream Sync", "Nothing known"]),
    "user_annotation": ("range", ["step", "Optimizer.step#Adam.step"]),
    "python_function": ("range", ["nn.Module: Net_0", "a.py(1): f"]),
}
IDS = st.integers(-1, 5) | st.none() | st.sampled_from(["3", "stream 7", "0x10", "", 2.0, 2**40, 2**70, [1], {"a": 1}])
ARGS = st.dictionaries(
    st.sampled_from(
        (
            *("device", "stream", "context", "correlation", "External id", "external id", "Ev Idx", "bytes", "grid"),
            *("block", "graph id", "Sequence number", "Fwd thread id", "Input Dims", "Python id", "Python parent id"),
            *("registers per thread", "Collective name", "dtype", "In msg nelems", "Group size", "rank", "size"),
        )
    ),
    IDS | st.lists(IDS, min_size=3, max_size=3),
    max_size=6,
)


@st.composite
def events(draw: st.DrawFn) -> dict[str, Any]:
    category = draw(st.sampled_from(sorted(CATEGORIES)))
    name = draw(st.sampled_from(CATEGORIES[category][1]))
    start = draw(st.integers(0, 50))
    pid, tid = draw(st.sampled_from([4711, 0, "4711", 12])), draw(st.sampled_from([1, 2, "1", "stream 7", -1, 2**40]))
    made = event(category, name, start, start + draw(st.integers(0, 20)), pid=pid, tid=tid)
    return made | {"args": draw(ARGS)}


@given(generated=st.lists(events(), min_size=1, max_size=25), batch=st.sampled_from([1, 2 << 20]))
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_every_event_is_a_row_with_its_name_and_times(generated: list[dict[str, Any]], batch: int) -> None:
    def ns(text: str) -> int:
        return int(text.replace(".", ""))

    first = min(ns(made["ts"]) for made in generated)
    expected: dict[str, Counter[Any]] = {}
    for made in generated:
        table, _ = CATEGORIES[made["cat"]]
        start = ns(made["ts"]) - first
        name = made["name"] if table in ("op", "api", "kernel", "range") else None
        expected.setdefault(table, Counter())[name, start, start + ns(made["dur"])] += 1
    with (
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory() as folder,
    ):
        patch.setattr(json_stream, "BATCH_BYTES", batch)
        with imported(Path(folder), document(generated)) as trace:
            for table, want in expected.items():
                found = Counter((row.get("name"), row["start_ns"], row["end_ns"]) for row in rows(trace, table))
                assert found == want, table
            check_ids(trace)


def check_ids(trace: Any) -> None:
    """Whatever a row refers to within the trace is there."""
    ops = {row["op_id"] for row in rows(trace, "op")}
    assert len(ops) == len(rows(trace, "op"))
    for table in ("api", "kernel", "memcpy", "memset", "sync", "collective", "tensor"):
        assert {row["op_id"] for row in rows(trace, table)} <= ops | {None}
    assert {row["parent_id"] for row in rows(trace, "op")} <= ops | {None}
    ranges = {row["range_id"] for row in rows(trace, "range")}
    assert {row["parent_id"] for row in rows(trace, "range")} <= ranges | {None}
    launches = [row["launch_id"] for row in rows(trace, "kernel")]
    assert sorted(launches) == list(range(1, len(launches) + 1))
    streams = {(row["pid"], row["stream_id"]) for row in rows(trace, "stream")}
    assert len(streams) == len(rows(trace, "stream"))
    for row in rows(trace, "kernel"):
        assert row["stream_id"] is None or (row["pid"], row["stream_id"]) in streams
