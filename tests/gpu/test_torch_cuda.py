"""Tensors and operators on a CUDA device, against the counters of torch's own caching allocator."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))
from torch_runs import PROGRAMS, python, record

from pasta.trace import Trace

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")
def test_cuda_allocations_are_the_allocators(tmp_path: Path) -> None:
    result = record(tmp_path / "trace", *python(PROGRAMS / "train_on_cuda.py"))
    assert result.status == 0, result.stderr
    counted = json.loads(result.stdout)
    trace = Trace.open(tmp_path / "trace")
    tensors = trace.table("tensor").collect().filter(device_type="cuda").sort("start_ns")
    assert Counter(tensors["action"]) == {"alloc": counted["allocations"], "free": counted["frees"]}
    last = tensors.row(-1, named=True)
    assert (last["allocated_bytes"], last["reserved_bytes"]) == (counted["allocated"], counted["reserved"])
    assert set(tensors["device_index"]) == {0}
    # Autograd runs the backward pass of a CUDA graph on a thread of its own.
    ops = trace.table("op").collect()
    assert ops.filter(name="AddmmBackward0").height == 2 * 20
    assert set(ops.filter(name="AddmmBackward0")["phase"]) == {"backward"}
    assert set(ops.filter(name="AddmmBackward0")["thread_id"]).isdisjoint(ops.filter(name="aten::gelu")["thread_id"])
