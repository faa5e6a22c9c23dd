"""Damaged bytes never crash an importer: a trace that opens, or a PastaError and nothing left behind."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kineto_maker import call, document, event, kernel, op
from perfetto_maker import CLEARED, HOST, INSTANT, message, packet, slice_

from pasta.errors import PastaError
from pasta.importers import Kind, import_files
from pasta.trace import Trace

KINETO = document(
    [
        {"ph": "M", "name": "process_name", "pid": 4711, "tid": 0, "ts": 0, "args": {"name": "python"}},
        op("aten::mm", 0, 9000, External_id=1, Input_Dims=[[4, 4]], Sequence_number=3, Fwd_thread_id=0),
        call("cudaLaunchKernel", 1000, 2000, 5, External_id=1),
        kernel("ncclDevKernel_AllReduce", 3000, 4000, 5, grid=[1, 2, 3], block=[4, 5, 6], graph_id=2),
        event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 5000, 6000, device=0, stream=7, bytes=64),
        event("gpu_memset", "Memset (Device)", 5000, 6000, device=0, stream=7, bytes=64),
        event("cuda_sync", "Stream Sync", 6000, 7000, device=0, stream=7),
        event("python_function", "nn.Module: Net_0", 0, 9000, Python_id=1, Python_parent_id=None),
        {"ph": "i", "name": "[memory]", "pid": 4711, "tid": 4711, "ts": 2, "args": {"Bytes": -64, "Device Type": 1}},
    ],
    distributedInfo={"rank": 1, "world_size": 2},
    deviceProperties=[{"id": 0, "name": "NVIDIA H100", "computeMajor": 9, "computeMinor": 0}],
).encode()
CHROME = json.dumps(
    [
        {"ph": "X", "name": "x", "cat": "c", "pid": 1, "tid": 2, "ts": 10, "dur": 5, "args": {"a": 1}},
        {"ph": "B", "name": "b", "pid": 1, "tid": 2, "ts": 20},
        {"ph": "E", "pid": 1, "tid": 2, "ts": 30.5},
        {"ph": "b", "name": "async", "id": "0x1", "pid": 1, "ts": "40"},
        {"ph": "e", "name": "async", "id": "0x1", "pid": 1, "ts": "50"},
    ]
).encode()
MEMORY = b"[[-1, 1, 512, 0], [1000, 2, 64, 7], [1500, 3, -64, 7], [2000, 4, -64, 4]]"
PERFETTO = HOST + packet(f13=CLEARED, f12=message(f2=message(f1=7, f2="n")))
PERFETTO += slice_(2, "aten::mm", 10, 20, "cpu_op", correlation=5) + slice_(
    2, "k", 30, 40, "kernel_dispatch", begin_ns=30
)
PERFETTO += packet(f8=50, f11=message(f9=INSTANT, f11=2, f10=7)) + packet(f8=60, f53=message(f2=5, f17="s", f21=b""))

SAMPLES = {Kind.KINETO: KINETO, Kind.CHROME: CHROME, Kind.TENSORBOARD_MEMORY: MEMORY, Kind.PFTRACE: PERFETTO}
#: What to put where, instead of how many bytes.
EDITS = st.lists(st.tuples(st.integers(0, 10**6), st.binary(max_size=6), st.integers(0, 40)), min_size=1, max_size=4)
WORDS = [b"null", b"{", b"}", b"[", b"]", b'"', b"-1", b"1e999", b"9" * 30, b"NaN", b"true", b"\\", b"\xff", b",", b":"]
INSERTS = st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from(WORDS), st.integers(0, 12)), min_size=1, max_size=4)


@pytest.mark.parametrize("kind", list(SAMPLES), ids=lambda kind: kind.value)
@pytest.mark.parametrize("pack", [False, True], ids=["plain", "gzip"])
@given(edits=EDITS | INSERTS)
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
def test_damaged_files_do_not_crash(kind: Kind, pack: bool, edits: list[tuple[int, bytes, int]]) -> None:
    data = gzip.compress(SAMPLES[kind], mtime=0) if pack else SAMPLES[kind]
    for place, new, removed in edits:
        at = place % (len(data) + 1)
        data = data[:at] + new + data[at + removed :]
    check(kind, data)


@pytest.mark.parametrize("kind", list(SAMPLES), ids=lambda kind: kind.value)
def test_files_cut_anywhere_do_not_crash(kind: Kind) -> None:
    sample = SAMPLES[kind]
    for end in range(0, len(sample), max(1, len(sample) // 40)):
        check(kind, sample[:end])


@pytest.mark.parametrize("kind", list(SAMPLES), ids=lambda kind: kind.value)
@given(data=st.binary(max_size=300))
@settings(max_examples=25)
def test_any_bytes_do_not_crash(kind: Kind, data: bytes) -> None:
    check(kind, data)
    check(kind, SAMPLES[kind] + data)


def check(kind: Kind, data: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "input").write_bytes(data)
        try:
            summary = import_files([folder / "input"], folder / "out.pasta", kind=kind)
        except PastaError:
            summary = None
        if summary is None:
            assert [path.name for path in folder.iterdir()] == ["input"]
            return
        with Trace.open(folder / "out.pasta") as trace:
            for table, count in summary.rows.items():
                assert trace.table(table).collect().height == count
