"""What is collected can be narrowed; what memory objects there are is known all the same."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from opencl_run import need_intel, rows, run_recorded

from pasta.trace import Trace

_DEMO = [sys.executable, "-m", "pasta.demo.opencl_kernels", "--size", "48", "--repeat", "3", "--device", "intel"]

_RANGES = """
import numpy as np
import pyopencl as cl
import pasta

device = next(p for p in cl.get_platforms() if "Intel" in p.name).get_devices()[0]
context = cl.Context([device])
queue = cl.CommandQueue(context)
kernel = cl.Kernel(cl.Program(context, "kernel void f(global int *a) { *a += 1; }").build(), "f")
buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=np.zeros(1, np.int32))
result = np.empty(1, np.int32)

def step():
    kernel(queue, (1,), (1,), buffer)
    cl.enqueue_copy(queue, result, buffer)

step()
with pasta.range("measured"):
    step()
    step()
inside = cl.Buffer(context, cl.mem_flags.READ_WRITE, 64)
step()
print(result[0])
"""

_SUB_DEVICES = """
import pyopencl as cl

device = next(p for p in cl.get_platforms() if "Intel" in p.name).get_devices()[0]
parts = device.create_sub_devices([cl.device_partition_property.EQUALLY, 1])[:2]
context = cl.Context(parts)
kernel = cl.Kernel(cl.Program(context, "kernel void f(global int *a) { *a += 1; }").build(), "f")
buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4)
for part, launches in zip(parts, (2, 3)):
    queue = cl.CommandQueue(context, part)
    for _ in range(launches):
        kernel(queue, (1,), (1,), buffer)
    queue.finish()
print(len(parts))
"""


def test_kernels_by_name(tmp_path: Path) -> None:
    output = tmp_path / "t.pasta"
    assert run_recorded(need_intel(), output, *_DEMO, options=("-k", "^transpose_")).returncode == 0
    names = rows(Trace.open(output), "kernel")["name"]
    assert sorted(names) == ["transpose_naive"] * 3 + ["transpose_tiled"] * 3


def test_launches_by_number(tmp_path: Path) -> None:
    output = tmp_path / "t.pasta"
    options = ("-k", "bfs_level", "--launch-skip", "6", "--launch-count", "5")
    assert run_recorded(need_intel(), output, *_DEMO, options=options).returncode == 0
    trace = Trace.open(output)
    assert rows(trace, "kernel")["name"].to_list() == ["bfs_level"] * 5
    # 6 levels a search, a flag read for each: the first launch that is kept belongs to the second search.
    everything = rows(trace, "api")
    launches = everything.filter(everything["name"] == "clEnqueueNDRangeKernel")["correlation_id"].to_list()
    searches = [launch for launch in launches if launch in set(rows(trace, "kernel")["correlation_id"])]
    assert len(launches) == 3 * (5 + 6)
    assert launches.index(searches[0]) == 5 * 3 + 6


def test_capture_range(tmp_path: Path) -> None:
    pytest.importorskip("pyopencl")
    output = tmp_path / "t.pasta"
    options = ("--capture-range", "range", "-p", "measured")
    result = run_recorded(need_intel(), output, sys.executable, "-c", _RANGES, options=options)
    assert (result.returncode, result.stdout) == (0, "4\n"), result.stderr
    trace = Trace.open(output)
    assert rows(trace, "kernel").height == 2
    assert rows(trace, "memcpy").height == 2
    # A range gates what is collected, not what an object is: both buffers are known, made outside of it.
    allocs = trace.table("alloc").collect()
    assert allocs.filter(allocs["action"] == "alloc")["bytes"].to_list() == [4, 64]
    assert rows(trace, "memcpy")["src_object_id"].null_count() == 0


def test_sub_devices(tmp_path: Path) -> None:
    pytest.importorskip("pyopencl")
    output = tmp_path / "t.pasta"
    result = run_recorded(need_intel(), output, sys.executable, "-c", _SUB_DEVICES)
    if result.stdout != "2\n":
        pytest.skip("the device has one compute unit")
    trace = Trace.open(output)
    assert dict(rows(trace, "kernel").group_by("device_id").len().rows()) == {0: 2, 1: 3}
    assert trace.table("device").collect().height == 2
    assert trace.table("context").collect()["device_id"].to_list() == [None]  # it has both
    assert set(trace.table("build").collect()["device_id"]) == {0, 1}
