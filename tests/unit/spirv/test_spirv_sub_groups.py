"""Coalescing, divergence and bank conflicts, counted on the device: equal to closed forms, and to the trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from spirv_harness import WORK_GROUPS, Kernel, Result, buffer, open_cl
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


@pytest.mark.parametrize("reducers", [COMPARED, {"divergence": True}])
def test_divergent_lanes(reducers: dict[str, bool]) -> None:
    source = """
    kernel void triangle(global int *out) {
      int i = get_global_id(0);
      for (int k = 0; k <= i % 8; ++k) out[i * 8 + k] = k;
    }"""
    n, width = 64, 8
    kernel = Kernel(source, "triangle", trace=True, width=width, **reducers)
    result = kernel.run((n,), (32,), buffer(4 * 8 * n), trace_records=n * 8)
    site = site_of(result, "store")
    assert site["executions"] == n // width * 8  # the longest lane runs 8 times
    assert site["lanes"] == n // width * (8 * 9 // 2)
    if reducers == COMPARED:
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


def test_what_finds_no_room_is_not_guessed() -> None:
    source = """
    kernel void fill(global int *out, global const int *rows) {
      int i = get_global_id(0);
      for (int k = 0; k < rows[i % 64]; ++k) out[(i * 7 + k * 64) % 4096] = k;
    }"""
    rows = buffer(np.arange(64, dtype=np.int32))
    kernel = Kernel(source, "fill", **COMPARED)
    room = kernel.run((256,), (64,), buffer(4 * 4096), rows)
    assert not room.lanes_lost
    # Two sub-groups of each of the four work-groups; the longest lanes of theirs run 31 and 63 times.
    assert site_of(room, "store")["executions"] == 4 * (31 + 63)
    tight = kernel.run((256,), (64,), buffer(4 * 4096), rows, scratch_bytes=WORK_GROUPS * (64 + 64 * 8))
    assert tight.lanes_lost
    assert site_of(tight, "store")["sectors"] is None
    assert [site["lanes"] for site in tight.sites] == [site["lanes"] for site in room.sites]
    none = kernel.run((256,), (64,), buffer(4 * 4096), rows, scratch_bytes=0)
    assert none.lanes_lost
    assert {site["executions"] for site in none.sites} == {None}
    # The scratches are as they were: the next launch finds them so.
    assert kernel.run((256,), (64,), buffer(4 * 4096), rows).sites == room.sites


def test_a_full_table_is_searched_once_by_each_work_item() -> None:
    source = """
    kernel void walk(global int *out, int n) {
      int i = get_global_id(0);
      for (int k = 0; k < n; ++k) out[(i * 7 + k * 64) % 4096] = k;
    }"""
    n, groups = 1000, 4
    kernel = Kernel(source, "walk", **COMPARED)
    entries = 8  # a work-group's table has room for a few of its 2 * n sub-group accesses
    scratch = WORK_GROUPS * (64 + 64 * entries)
    result = kernel.run((64 * groups,), (64,), buffer(4 * 4096), np.int32(n), scratch_bytes=scratch)
    assert result.lanes_lost
    store = site_of(result, "store")
    assert (store["lanes"], store["sectors"]) == (64 * groups * n, None)
    words = np.frombuffer(result.slot, np.uint64)
    # Of 64 * groups * n accesses no more than the first of each work-item that finds no room looks for it.
    assert [0 < words[word] <= 64 * groups for word in kernel.plan.lost_words] == [True]


def test_launches_of_many_work_groups_side_by_side() -> None:
    source = """
    kernel void rows(global const int *in, global int *out, int n) {
      local int sums[64];
      int i = get_global_id(0), k = get_local_id(0);
      int sum = 0;
      for (int j = 0; j < n; ++j) sum += in[i * n + j];
      sums[k] = sum;
      barrier(CLK_LOCAL_MEM_FENCE);
      if (k % 2) out[i] = sums[k ^ 1];
    }"""
    groups, n = 300, 20
    kernel = Kernel(source, "rows", **COMPARED)
    result = kernel.run((64 * groups,), (64,), buffer(4 * 64 * groups * n), buffer(4 * 64 * groups), np.int32(n))
    load, store = site_of(result, "load"), site_of(result, "store")
    # 32 lanes 80 bytes apart, in rows of 2560: 32 lines at each step; 128 bytes would fill two.
    assert load["executions"] == 2 * groups * n
    assert (load["sectors"], load["ideal_sectors"]) == (64 * groups * n, 4 * groups * n)
    # Every second of 32 ints: both of their lines, for the bytes of one.
    assert (store["executions"], store["lanes"], store["sectors"], store["ideal_sectors"]) == (
        2 * groups, 32 * groups, 4 * groups, 2 * groups)
    assert site_of(result, "store", "local")["bank_conflicts"] == 0
