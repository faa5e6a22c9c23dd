"""Accesses to each 2 MiB of an object: closed forms, and the trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from spirv_harness import Kernel, Svm, buffer, context, native, open_cl
from test_spirv_trace import EVERYTHING, assert_trace_agrees

pytestmark = pytest.mark.usefixtures("device")

BLOCK = 2 << 20
#: Every way to add up what the work-items counted.
DEVICE_KINDS = [{}, {"sub_groups": False}, {"int64_atomics": False}]


@pytest.mark.parametrize("reducers", DEVICE_KINDS)
def test_a_stream_counts_each_block_alike(reducers: dict[str, bool]) -> None:
    source = """
    kernel void copy(global const float *in, global float *out) { size_t i = get_global_id(0); out[i] = in[i]; }"""
    size = 3 * BLOCK + 4096
    n = size // 4
    kernel = Kernel(source, "copy", blocks=True, **reducers)
    result = kernel.run((n,), None, buffer(size), buffer(size))
    sizes = [BLOCK, BLOCK, BLOCK, 4096]
    assert result.blocks == [(k, b * BLOCK, sizes[b], sizes[b] // 4) for k in range(2) for b in range(4)]


@pytest.mark.parametrize("reducers", DEVICE_KINDS)
def test_a_work_item_that_goes_from_block_to_block(reducers: dict[str, bool]) -> None:
    source = """
    kernel void hop(global int *p, uint blocks, global int *small) {
      for (uint k = 0; k < 3 * blocks; ++k) {
        if (get_global_id(0) % 3 == 0) p[(k % blocks) * (2 << 18) + get_global_id(0)] += 1;
        small[0] = k;
      }
    }"""
    n, blocks = 96, 5
    result = Kernel(source, "hop", blocks=True, **reducers).run(
        (n,), (32,), buffer(blocks * BLOCK), np.uint32(blocks), buffer(64))
    # A third of the work-items load and store each block three times; the small object has one block.
    hops = [(0, b * BLOCK, BLOCK, 2 * 3 * n // 3) for b in range(blocks)]
    assert result.blocks == [*hops, (2, 0, 64, 3 * blocks * n)]


@pytest.mark.parametrize("sub_groups", [True, False])
def test_objects_found_at_run_time(sub_groups: bool) -> None:
    source = """
    kernel void through(global ulong *pointers, global int *a, global int *b) {
      int i = get_global_id(0);
      *(global int *)pointers[i] = i;
      global int *p = i & 1 ? a : b;
      p[i * (1 << 18)] = 1;
    }"""
    cl = open_cl()
    assert cl is not None
    n = 8
    pool = cl.svm_empty(context(), cl.svm_mem_flags.READ_WRITE, n * BLOCK // 4, np.int32)
    ranges = [native().AddressRange(100, pool.ctypes.data, pool.nbytes)]
    pointers = buffer(pool.ctypes.data + np.arange(n, dtype=np.uint64) // 2 * BLOCK)
    kernel = Kernel(source, "through", blocks=True, trace=True, extents=True, sub_groups=sub_groups)
    result = kernel.run((n,), (4,), pointers, buffer(n << 20), buffer(n << 20), ranges=ranges, trace_records=100)
    assert_blocks_as_traced(result)
    assert [block for block in result.blocks if block[0] == 100] == [(100, k * BLOCK, BLOCK, 2) for k in range(4)]
    # Work-item i goes to byte i MiB of one of the two.
    assert [b for b in result.blocks if b[0] == 1] == [(1, k * BLOCK, BLOCK, 1) for k in range(n // 2)]


def assert_blocks_as_traced(result: Any) -> None:
    assert_trace_agrees(result)
    assert result.blocks == result.from_trace()["blocks"]


def test_one_object_given_twice_and_a_pointer_into_one() -> None:
    source = "kernel void both(global int *p, global int *q) { size_t i = get_global_id(0); q[i] = p[i]; }"
    cl = open_cl()
    assert cl is not None
    pool = cl.svm_empty(context(), cl.svm_mem_flags.READ_WRITE, 3 * BLOCK // 4, np.int32)
    n = 1024
    kernel = Kernel(source, "both", blocks=True)
    result = kernel.run((n,), None, Svm(pool), Svm(pool, BLOCK // 4 - n // 2), same_object={1: 0})
    assert result.blocks == [(0, 0, BLOCK, n + n // 2), (0, BLOCK, BLOCK, n // 2)]


def test_everything_is_as_traced() -> None:
    cl = open_cl()
    assert cl is not None
    n = 192
    kernel = Kernel(EVERYTHING, "everything", trace=True, blocks=True, extents=True)
    result = kernel.run((n,), (64,), buffer(3 * BLOCK), buffer(4 * n), buffer(24 * n), cl.LocalMemory(64), buffer(64),
                        np.int32(n), trace_records=100000)
    assert_blocks_as_traced(result)
