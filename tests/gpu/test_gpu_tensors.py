"""The memory pass on torch: accesses belong to the tensor that they went to, inside the allocator's segments.

The tensors are so large that torch's allocator puts several into one segment of 20 MiB, and element-wise kernels load
and store each element once, so that the bytes follow from the tensors' sizes.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from recorded import Trace, record_python
from test_gpu_memory import pages, sanitizer_libraries

from pasta.tools.registry import find
from pasta.tools.runner import run

pytest.importorskip("torch")

MIB = 1 << 20
N = MIB  # floats of the largest tensor

PROGRAM = f"""
import torch
n = {N}
x = torch.rand(n, device="cuda")
y = x[: n // 2] + 1
z = y.neg()
z.add_(x[n // 2 :])
never = torch.empty(3 * {MIB}, dtype=torch.uint8, device="cuda")
for _ in range(3):
    again = z.abs()
    del again
torch.cuda.synchronize()
"""


@pytest.fixture(scope="module", params=["", "expandable_segments:True"], ids=["segments", "expandable"])
def trace(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    output = tmp_path_factory.mktemp("tensors") / "t.pasta"
    variables = {"PASTA_MEMORY": "objects,blocks", "PASTA_SANITIZER_HINTS": sanitizer_libraries()}
    result = record_python(PROGRAM, output, **variables, PYTORCH_CUDA_ALLOC_CONF=request.param)
    assert result.returncode == 0, result.stderr
    return Trace.open(output)


def made(trace: Trace) -> pl.DataFrame:
    """Return the tensors of the GPU in the order in which they were made, with the operator that made each."""
    rows = trace.tensor.filter(pl.col("action") == "alloc", pl.col("device_type") == "cuda").collect()
    ops = trace.op.collect().select("pid", "op_id", op="name")
    return rows.sort("start_ns").join(ops, on=["pid", "op_id"], how="left", maintain_order="left")


def accesses(trace: Trace) -> pl.DataFrame:
    """Return the accesses to tensors in the order of the launches, with what launched them and where the tensor is."""
    tensors = made(trace).select("pid", "tensor_id", tensor_address="address", tensor_bytes="bytes")
    objects = trace.alloc.filter(pl.col("action") == "alloc").collect()
    objects = objects.select("pid", "object_id", object_address="address", object_bytes="bytes")
    kernels = trace.kernel.collect().join(trace.op.collect().select("pid", "op_id", op="name"), on=["pid", "op_id"])
    return (
        trace.access_object.filter(pl.col("tensor_id").is_not_null()).collect()
        .join(tensors, on=["pid", "tensor_id"], how="left")
        .join(objects, on=["pid", "object_id"], how="left")
        .join(kernels.select("pid", "launch_id", "op"), on=["pid", "launch_id"], how="left")
        .sort("launch_id", "load_bytes", "store_bytes")
    )  # fmt: skip


def test_each_allocation_has_a_number_and_ends_with_it(trace: Trace) -> None:
    rows = trace.tensor.filter(pl.col("device_type") == "cuda").collect()
    assert rows["tensor_id"].null_count() == 0
    allocs, frees = (rows.filter(pl.col("action") == action)["tensor_id"].to_list() for action in ("alloc", "free"))
    assert len(set(allocs)) == len(allocs)
    assert set(frees) <= set(allocs)


def test_half_of_x_is_read_and_y_is_written(trace: Trace) -> None:
    x, y = (made(trace).filter(pl.col("bytes") == size).row(0, named=True) for size in (4 * N, 2 * N))
    assert y["op"] == "aten::add"
    rows = accesses(trace).filter(pl.col("op") == "aten::add")
    (read,) = rows.filter(pl.col("load_bytes") > 0).iter_rows(named=True)
    (written,) = rows.filter(pl.col("store_bytes") > 0).iter_rows(named=True)
    assert (read["tensor_id"], written["tensor_id"]) == (x["tensor_id"], y["tensor_id"])
    assert (read["load_bytes"], read["store_bytes"]) == (2 * N, 0)
    assert (written["load_bytes"], written["store_bytes"]) == (0, 2 * N)
    for row in (read, written):
        at = row["tensor_address"] - row["object_address"]
        assert (row["first_offset"] - at, row["last_offset"] - at) == (0, 2 * N - 1)
        assert row["pages_4k"] == pages(row["tensor_address"], 2 * N, 4096)
        assert row["object_bytes"] > row["tensor_bytes"]


def test_in_place_reads_and_writes_one_tensor(trace: Trace) -> None:
    rows = accesses(trace).filter(pl.col("op") == "aten::add_")
    sums = rows.group_by("tensor_id").agg(pl.col("load_bytes", "store_bytes").sum()).sort("store_bytes")
    assert sums.select("load_bytes", "store_bytes").rows() == [(2 * N, 0), (2 * N, 2 * N)]  # half of x; z


def test_a_block_that_is_given_out_again_is_another_tensor(trace: Trace) -> None:
    rows = accesses(trace).filter(pl.col("op") == "aten::abs", pl.col("store_bytes") > 0)
    assert rows["store_bytes"].to_list() == [2 * N] * 3
    assert rows["tensor_id"].n_unique() == 3
    assert rows["tensor_address"].n_unique() == 1


def test_nothing_of_the_tensors_is_lost(trace: Trace) -> None:
    """Bytes of an operator that went to no tensor: none."""
    others = trace.access_object.filter(pl.col("tensor_id").is_null()).collect()
    kernels = trace.kernel.collect().join(trace.op.collect().select("pid", "op_id", op="name"), on=["pid", "op_id"])
    named = others.join(kernels, on=["pid", "launch_id"]).filter(pl.col("op").is_in(["aten::add", "aten::abs"]))
    assert named.select(pl.col("load_bytes", "store_bytes").sum()).row(0) == (0, 0), named


def test_what_is_never_touched_names_the_operator(trace: Trace) -> None:
    frame = run("underused", trace, find("underused").Options()).table("tensors").frame
    row = frame.filter(pl.col("size") == 3 * MIB).row(0, named=True)
    assert (row["op"], row["launches"], row["unused_bytes"]) == ("aten::empty", 0, 3 * MIB)
    assert row["called"] == "aten::empty"


def test_two_passes_of_training_agree(tmp_path: Path) -> None:
    """Times of one run and accesses of another: every launch has both, and the tensors are those of the timing pass."""
    code = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
data = torch.rand(128, 256, device="cuda")
for _ in range(3):
    optimizer.zero_grad()
    model(data).square().mean().backward()
    optimizer.step()
torch.cuda.synchronize()
"""
    output = tmp_path / "t.pasta"
    variables = {"PASTA_SANITIZER_HINTS": sanitizer_libraries()}
    result = record_python(code, output, ["--passes", "timing,memory", "--memory=objects"], **variables)
    assert result.returncode == 0, result.stderr
    with Trace.open(output) as trace:
        kernels = trace.kernel.collect()
        assert trace.manifest["passes"]["launches"] == {"both": kernels.height, "timing_only": 0, "memory_only": 0}
        assert kernels["start_ns"].null_count() == kernels["end_ns"].null_count() == 0
        rows = trace.access_object.collect()
        measured = kernels.join(rows, on=["pid", "launch_id"], how="semi")
        assert measured.height > 0.9 * kernels.height
        tensors = trace.manifest["passes"]["tensors"]
        assert tensors["timing_only"] == tensors["memory_only"] == 0
        known = set(trace.tensor.collect()["tensor_id"])
        assert set(rows["tensor_id"].drop_nulls()) <= known
