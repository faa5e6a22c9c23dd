"""The trace of every access: equal to the counters, and coalescing and bank conflicts computed from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from spirv_harness import Kernel, Result, buffer, open_cl

pytestmark = pytest.mark.usefixtures("device")


def assert_trace_agrees(result: Result) -> None:
    """Both ways, which share no code past the instrumentation, say the same of every site and object."""
    assert result.trace_lost == 0
    traced = result.from_trace()
    key = lambda o: (o["object_id"], o["space"])  # noqa: E731
    assert sorted(traced["objects"], key=key) == sorted(result.objects, key=key)
    counts = ("lanes", "accessed_bytes", "elsewhere")
    assert [[s[c] for c in counts] for s in traced["sites"]] == [[s[c] for c in counts] for s in result.sites]


EVERYTHING = """
typedef struct { float x; char tag; double w; } Item;
int helper(global const int *p, local int *l, int i) { return i > 3 ? p[i] + l[i & 7] : l[i & 7]; }
kernel void everything(global int *a, global int *b, global Item *items, local int *scratch, constant int *c, int n) {
  int i = get_global_id(0), k = get_local_id(0);
  scratch[k & 7] = k;
  barrier(CLK_LOCAL_MEM_FENCE);
  global int *p = i & 2 ? a : b;
  for (int j = 0; j < (i & 7); ++j) p[(i + j) % n] += helper(a, scratch, j) + c[j];
  items[i] = items[(i + 1) % n];
  items[i].w = i;
  atomic_add(&b[i % n], 1);
  vstore3(vload3(i % (n / 3), a), 0, b + 1);
  event_t e = async_work_group_copy(scratch, a + 2, 8, 0);
  wait_group_events(1, &e);
}"""


@pytest.mark.parametrize("int64_atomics", [True, False])
@pytest.mark.parametrize("sub_groups", [True, False])
def test_counters_and_trace_agree(sub_groups: bool, int64_atomics: bool) -> None:
    cl = open_cl()
    assert cl is not None
    n = 192
    kernel = Kernel(EVERYTHING, "everything", extents=True, trace=True, sub_groups=sub_groups,
                    int64_atomics=int64_atomics)
    result = kernel.run((n,), (64,), buffer(4 * n), buffer(4 * n), buffer(24 * n), cl.LocalMemory(64), buffer(64),
                        np.int32(n), trace_records=100000)
    assert len({site["kind"] for site in result.sites}) == 5
    assert_trace_agrees(result)


def test_a_full_trace_says_how_much_it_lost() -> None:
    source = "kernel void fill(global int *p) { p[get_global_id(0)] = 1; }"
    result = Kernel(source, "fill", trace=True).run((1000,), None, buffer(4000), trace_records=300)
    assert result.trace_lost == 700
    traced = result.from_trace()
    assert traced["trace_lost"] == 700
    assert traced["sites"][0]["lanes"] == 300


def site_of(source: str, name: str, kind: str, size: tuple[int, ...], local: tuple[int, ...], width: int,
            *arguments: Any, banks: int = 32) -> dict[str, Any]:
    result = Kernel(source, name, trace=True).run(size, local, *arguments, trace_records=1 << 16)
    found = [s for s in result.from_trace(width, banks)["sites"] if s["kind"] == kind]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("stride", [1, 2, 4, 8, 16, 32])
@pytest.mark.parametrize("width", [8, 16, 32])
def test_sectors_of_strided_reads(stride: int, width: int) -> None:
    source = """
    kernel void strided(global const float *in, uint stride) {
      float x = in[get_global_id(0) * stride];
      if (x > 1) return;
    }"""
    n = 256
    site = site_of(source, "strided", "load", (n,), (64,), width, buffer(4 * n * stride), np.uint32(stride))
    # A sub-group spans width * stride * 4 bytes, from a line's start; ideal is width * 4.
    assert site["executions"] == n // width
    assert site["sectors"] == n // width * min(width, -(-width * stride * 4 // 64))
    assert site["ideal_sectors"] == n // width * -(-width * 4 // 64)


def test_sub_groups_of_a_two_dimensional_group_are_consecutive_local_ids() -> None:
    source = """
    kernel void column(global const float *in, uint n) {
      float x = in[get_global_id(0) * n + get_global_id(1)];
      if (x > 1) return;
    }"""
    n = 32
    site = site_of(source, "column", "load", (n, n), (8, 4), 16, buffer(4 * n * n), np.uint32(n))
    # 16 work-items: 8 rows, 2 neighbouring columns: 8 lines where 1 would do.
    assert (site["executions"], site["sectors"], site["ideal_sectors"]) == (64, 64 * 8, 64)


def test_divergent_lanes_count_as_fewer_lanes_in_as_many_executions() -> None:
    source = """
    kernel void triangle(global int *out) {
      int i = get_global_id(0);
      for (int k = 0; k <= i % 8; ++k) out[i * 8 + k] = k;
    }"""
    n, width = 64, 8
    site = site_of(source, "triangle", "store", (n,), (32,), width, buffer(4 * 8 * n))
    assert site["executions"] == n // width * 8  # the longest lane runs 8 times
    assert site["lanes"] == n // width * (8 * 9 // 2)


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
    site = next(
        s
        for s in Kernel(source, "banks", trace=True)
        .run((64,), (32,), np.uint32(stride), buffer(64), trace_records=1000)
        .from_trace(32, 32)["sites"]
        if s["kind"] == "store" and s["space"] == "local"
    )
    # 32 lanes hit 32 / gcd(32, stride) banks, gcd times each: gcd - 1 passes too many in each of two groups.
    assert site["bank_conflicts"] == 2 * (int(np.gcd(32, stride)) - 1)
    assert site["sectors"] is None
