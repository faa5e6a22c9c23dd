"""Coalescing, divergence and bank conflicts, counted on the device: equal to closed forms, and to the trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from spirv_harness import Kernel, Result, buffer, open_cl
from test_spirv_trace import EVERYTHING, assert_trace_agrees

pytestmark = pytest.mark.usefixtures("device")

COMPARED = {"extents": True, "divergence": True, "coalescing": True, "bank_conflicts": True}
_COLUMNS = ("executions", "sectors", "ideal_sectors", "bank_conflicts")


def assert_as_traced(result: Result, width: int = 32, banks: int = 32) -> None:
    """The device, which sees each access once, says what the trace says, which sees all of them together."""
    assert_trace_agrees(result)
    traced = result.from_trace(width, banks)
    assert [[s[c] for c in _COLUMNS] for s in result.sites] == [[s[c] for c in _COLUMNS] for s in traced["sites"]]


def site_of(result: Result, kind: str, space: str = "global") -> dict[str, Any]:
    found = [s for s in result.sites if (s["kind"], s["space"]) == (kind, space)]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("stride", [1, 2, 4, 8, 16, 32, 64])
@pytest.mark.parametrize("width", [8, 32])
def test_sectors_of_strided_reads(stride: int, width: int) -> None:
    source = """
    kernel void strided(global const float *in, uint stride) {
      float x = in[get_global_id(0) * stride];
      if (x > 1) return;
    }"""
    n = 256
    kernel = Kernel(source, "strided", trace=True, width=width, **COMPARED)
    result = kernel.run((n,), (64,), buffer(4 * n * stride), np.uint32(stride), trace_records=n)
    site = site_of(result, "load")
    # A sub-group spans width * stride * 4 bytes, from a line's start; its bytes would fill width * 4 / 64 lines.
    assert site["executions"] == n // width
    assert site["sectors"] == n // width * min(width, -(-width * stride * 4 // 64))
    assert site["ideal_sectors"] == n // width * -(-width * 4 // 64)
    assert_as_traced(result, width)


def test_divergent_lanes() -> None:
    source = """
    kernel void triangle(global int *out) {
      int i = get_global_id(0);
      for (int k = 0; k <= i % 8; ++k) out[i * 8 + k] = k;
    }"""
    n, width = 64, 8
    kernel = Kernel(source, "triangle", trace=True, width=width, **COMPARED)
    result = kernel.run((n,), (32,), buffer(4 * 8 * n), trace_records=n * 8)
    site = site_of(result, "store")
    assert site["executions"] == n // width * 8  # the longest lane runs 8 times
    assert site["lanes"] == n // width * (8 * 9 // 2)
    assert_as_traced(result, width)


@pytest.mark.parametrize("stride", [1, 2, 3, 4, 8, 16, 32, 33])
def test_bank_conflicts_of_strided_local_memory(stride: int) -> None:
    source = """
    kernel void banks(uint stride, global int *sink) {
      local int tile[32 * 33];
      int k = get_local_id(0);
      tile[k * stride] = k;
      barrier(CLK_LOCAL_MEM_FENCE);
      if (stride == 1000) sink[0] = tile[k];
    }"""
    kernel = Kernel(source, "banks", trace=True, **COMPARED)
    result = kernel.run((64,), (32,), np.uint32(stride), buffer(64), trace_records=1000)
    # 32 lanes hit 32 / gcd(32, stride) banks, gcd times each: gcd - 1 passes too many in each of two groups.
    assert site_of(result, "store", "local")["bank_conflicts"] == 2 * (int(np.gcd(32, stride)) - 1)
    assert_as_traced(result)


@pytest.mark.parametrize("sub_groups", [True, False])
@pytest.mark.parametrize("local", [64, 24])
def test_everything_is_as_traced(sub_groups: bool, local: int) -> None:
    cl = open_cl()
    assert cl is not None
    n = 192
    kernel = Kernel(EVERYTHING, "everything", trace=True, sub_groups=sub_groups, **COMPARED)
    for _ in range(2):
        result = kernel.run((n,), (local,), buffer(4 * n), buffer(4 * n), buffer(24 * n), cl.LocalMemory(64),
                            buffer(64), np.int32(n), trace_records=100000)
        assert_as_traced(result)
