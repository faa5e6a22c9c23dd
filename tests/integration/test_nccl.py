"""NCCL itself, on any machine: a call that it refuses, for want of a communicator, is annotated before."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from recorded import Trace, record_python

CALLS = """
import ctypes
nccl = ctypes.CDLL({library!r})
pointer, count, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
INT8, FLOAT32, FLOAT64, SUM = 0, 7, 8, 0
nccl.ncclAllReduce.argtypes = [pointer, pointer, count, number, number, pointer, pointer]
nccl.ncclAllGather.argtypes = [pointer, pointer, count, number, pointer, pointer]
nccl.ncclSend.argtypes = [pointer, count, number, number, pointer, pointer]
for n in (1, 1000):
    assert nccl.ncclAllReduce(None, None, n, FLOAT32, SUM, None, None) != 0
assert nccl.ncclAllGather(None, None, 10, FLOAT64, None, None) != 0
assert nccl.ncclSend(None, 500, INT8, 3, None, None) != 0
"""


def library() -> Path:
    for folder in filter(None, sys.path):
        for path in sorted(Path(folder).glob("nvidia/nccl/lib/libnccl.so.2")):
            return path
    pytest.skip("no NCCL: pip install nvidia-nccl-cu13")


def test_bytes_are_counts_of_a_type(tmp_path: Path) -> None:
    result = record_python(CALLS.format(library=str(library())), tmp_path / "t.pasta", ("-t", "cuda"))
    assert result.returncode == 0, result.stderr
    with Trace.open(tmp_path / "t.pasta") as trace:
        rows = trace.table("collective").select("kind", "bytes", "peer", "device_id").collect().rows()
    assert rows == [
        ("all_reduce", 4, None, None),
        ("all_reduce", 4000, None, None),
        ("all_gather", 80, None, None),
        ("send", 500, 3, None),
    ]
