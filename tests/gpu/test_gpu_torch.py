"""torch programs on a GPU: beside torch.profiler, and with operators that own their kernels."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from recorded import Trace, environment, record, record_python

PROFILED = Path(__file__).parent / "programs" / "profiled.py"

pytest.importorskip("torch")


def test_torch_profiler_sees_the_same_and_so_does_pasta(tmp_path: Path) -> None:
    """The program's own profile is as without pasta, and pasta has all 300 launches, at the right times."""
    alone = subprocess.run([sys.executable, PROFILED], capture_output=True, text=True, env=environment(), check=True)
    recorded = record([sys.executable, PROFILED], tmp_path / "t.pasta")
    assert recorded.returncode == 0, recorded.stderr
    expected, seen = json.loads(alone.stdout), json.loads(recorded.stdout)
    assert seen["counts"] == expected["counts"]
    assert seen["result"] == expected["result"]
    with Trace.open(tmp_path / "t.pasta") as trace:
        adds = trace.kernel.filter(pl.col("name").str.contains("CUDAFunctorOnSelf_add")).collect().sort("start_ns")
        api = trace.api.filter(pl.col("name") == "cudaLaunchKernel").collect()
    assert adds.height == 300
    # torch.profiler gives CUPTI another clock in the middle: launches still precede their kernels, and the kernels of
    # all three parts take about as long.
    launched = adds.join(api, on=["pid", "correlation_id"], suffix="_api")
    assert launched.height == 300
    assert launched.filter(pl.col("start_ns") < pl.col("start_ns_api")).height == 0
    times = adds["end_ns"] - adds["start_ns"]
    parts = [times[i : i + 100].median() for i in (0, 100, 200)]
    assert max(parts) < 3 * min(parts)  # type: ignore[type-var,operator]


def test_kernels_belong_to_operators(tmp_path: Path) -> None:
    code = """
import torch
x = torch.ones(64, 64, device="cuda", requires_grad=True)
for _ in range(5):
    y = (x @ x).relu().sum()
    y.backward()
torch.cuda.synchronize()
"""
    result = record_python(code, tmp_path / "t.pasta")
    assert result.returncode == 0, result.stderr
    with Trace.open(tmp_path / "t.pasta") as trace:
        kernel, op = trace.kernel.collect(), trace.op.collect()
        tensor = trace.tensor.collect()
    assert kernel["op_id"].null_count() == 0
    owned = kernel.join(op.select("op_id", op="name"), on="op_id")
    # 5 forward products, and 2 of each backward.
    gemms = owned.filter(pl.col("op") == "aten::mm")
    assert gemms.height >= 15
    assert {"aten::mm", "aten::sum"} <= set(owned["op"])
    cuda = tensor.filter(pl.col("device_type") == "cuda")
    assert cuda.filter(pl.col("action") == "alloc").height >= 15


@pytest.mark.parametrize("enter", ["pasta.range('step')", "torch.cuda.nvtx.range('step')"])
def test_kernels_of_a_range(enter: str, tmp_path: Path) -> None:
    """What is launched inside is recorded though it may run, and is read, after the range."""
    code = f"""
import pasta, torch
x = torch.zeros(1024, device="cuda")
for _ in range(10): x += 1
torch.cuda.synchronize()
with {enter}:
    for _ in range(2000): x += 1
for _ in range(30): x += 1
print(float(x[0]))
"""
    result = record_python(code, tmp_path / "t.pasta", ("-c", "range", "-p", "step"))
    assert (result.returncode, result.stdout) == (0, "2040.0\n"), result.stderr
    with Trace.open(tmp_path / "t.pasta") as trace:
        assert trace.kernel.filter(pl.col("name").str.contains("CUDAFunctorOnSelf_add")).collect().height == 2000
