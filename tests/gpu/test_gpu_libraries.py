"""Programs in CuPy, Triton and torch.distributed with known numbers of launches, copies and collectives."""

from __future__ import annotations

import sys
from pathlib import Path

import polars as pl
import pytest
from recorded import Trace, record

PROGRAMS = Path(__file__).parent / "programs"
MIB = 1 << 20


def _launched_by(trace: Trace, kernels: pl.DataFrame) -> dict[str, int]:
    """Return how many launches each call made of ``kernels``; those of the driver are the program's own here."""
    calls = trace.table("api").collect().join(kernels, on=["pid", "correlation_id"], how="semi")
    return dict(calls.group_by("name").len().rows())


def test_cupy(tmp_path: Path) -> None:
    pytest.importorskip("cupy")
    result = record([sys.executable, PROGRAMS / "cupy_scale.py"], tmp_path / "t.pasta")
    assert (result.returncode, float(result.stdout)) == (0, MIB), result.stderr
    with Trace.open(tmp_path / "t.pasta") as trace:
        scale = trace.kernel.filter(pl.col("name").str.starts_with("scale")).collect()
        copies = trace.memcpy.group_by("kind").agg(pl.col("bytes").sum()).sort("kind").collect()
        calls = _launched_by(trace, scale)
    assert scale.height == 25
    assert calls == {"cuLaunchKernel": 25}
    assert scale.select("grid_x", "block_x").unique().rows() == [(64, 128)]
    assert copies.rows() == [("d2h", 4 * MIB), ("h2d", 4 * MIB)]


def test_triton(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    result = record([sys.executable, PROGRAMS / "triton_add.py"], tmp_path / "t.pasta")
    assert result.returncode == 0, result.stderr
    with Trace.open(tmp_path / "t.pasta") as trace:
        add = trace.kernel.filter(pl.col("name") == "add_kernel").collect()
        calls = _launched_by(trace, add)
    assert add.height == 30
    assert sum(calls.values()) == 30
    assert all(name.startswith("cuLaunchKernel") for name in calls)  # cuLaunchKernelEx since Triton 3
    assert add.select("grid_x", "grid_y", "block_x").unique().rows() == [(1024, 1, 128)]
    assert add["thread_id"].null_count() == 0


def test_collectives_of_two_ranks(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    result = record([*launcher, PROGRAMS / "all_reduce.py"], tmp_path / "t.pasta", NCCL_NVLS_ENABLE="0")
    assert result.returncode == 0, result.stderr
    with Trace.open(tmp_path / "t.pasta") as trace:
        collective, kernel = trace.table("collective").collect(), trace.kernel.collect()
    counted = collective.group_by("rank", "kind", "bytes", "group_size").len().sort("rank", "kind").rows()
    assert counted == [
        (rank, kind, size, 2, count)
        for rank in (0, 1)
        for kind, size, count in (("all_reduce", 4 * MIB, 5), ("broadcast", MIB, 3))
    ]
    assert collective["group"].n_unique() == 1
    # Each is at the time of its kernel.
    nccl = kernel.filter(pl.col("name").str.starts_with("ncclDevKernel"))
    key = ["pid", "correlation_id", "start_ns", "end_ns", "device_id"]
    assert nccl.height == 16
    assert collective.join(nccl, on=key).height == 16
