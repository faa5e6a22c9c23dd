"""Exact counts of kernels whose access pattern is known: every expected number is derived in the test.

Lines are 64 bytes and buffers of the runtime begin at a line, so an array of n floats has n/16 of them.
"""

from __future__ import annotations

import numpy as np
import pytest
from spirv_harness import Kernel, Result, buffer, contents

pytestmark = pytest.mark.usefixtures("device")


def floats(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.float32)


def expect(result: Result, argument: int, **wanted: int) -> None:
    """The object behind `argument` has exactly these counts; those not named are 0 (lines and pages: not checked)."""
    found = result.object(argument)
    for name in ("loads", "stores", "atomics", "load_bytes", "store_bytes", "atomic_bytes"):
        assert found[name] == wanted.get(name, 0), (argument, name, found)
    for name in set(wanted) & {"lines", "pages_4k", "pages_64k", "pages_2m", "first_offset", "last_offset"}:
        assert found[name] == wanted[name], (argument, name, found)


VECTOR_ADD = """
kernel void add(global const float *a, global const float *b, global float *c, uint n) {
  uint i = get_global_id(0);
  if (i < n) c[i] = a[i] + b[i];
}"""


@pytest.mark.parametrize("local_size", [None, (1,), (2,), (3,), (64,), (96,)])
def test_vector_add_counts_one_access_per_element(local_size: tuple[int, ...] | None) -> None:
    n, work_items = 5000, 5376
    kernel = Kernel(VECTOR_ADD, "add")
    out = buffer(4 * n)
    result = kernel.run((work_items,), local_size, buffer(floats(n)), buffer(floats(n)), out, np.uint32(n))
    for argument in (0, 1):
        expect(result, argument, loads=n, load_bytes=4 * n, lines=-(-n // 16), first_offset=0, last_offset=4 * n - 1)
    expect(result, 2, stores=n, store_bytes=4 * n, lines=-(-n // 16))
    np.testing.assert_array_equal(contents(out, floats(n)), 2 * floats(n))
    if local_size:
        assert result.local_size == [*local_size, 1, 1]


def test_work_items_of_the_grid_that_do_nothing_are_not_counted() -> None:
    kernel = Kernel(VECTOR_ADD, "add")
    result = kernel.run((64,), None, buffer(64), buffer(64), buffer(64), np.uint32(0))
    assert result.objects == []
    assert [site["lanes"] for site in result.sites] == [0, 0, 0]


@pytest.mark.parametrize("stride", [1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 48, 63, 64])
def test_strided_reads_touch_every_line_until_the_stride_exceeds_one(stride: int) -> None:
    source = """
    kernel void strided(global const float *in, global float *out, uint stride) {
      size_t i = get_global_id(0);
      out[i] = in[i * stride];
    }"""
    n = 1024
    kernel = Kernel(source, "strided")
    result = kernel.run((n,), None, buffer(floats(n * stride)), buffer(4 * n), np.uint32(stride))
    lines = len(np.unique(np.arange(n) * stride * 4 // 64))
    pages = len(np.unique(np.arange(n) * stride * 4 // 4096))
    found = result.object(0)
    expect(result, 0, loads=n, load_bytes=4 * n, lines=lines)
    assert pages <= found["pages_4k"] <= pages + 1  # the buffer need not begin at a page
    expect(result, 1, stores=n, store_bytes=4 * n, lines=n // 16)


@pytest.mark.parametrize("k", [1, 2, 5, 9])
def test_a_kernel_that_touches_every_kth_line(k: int) -> None:
    source = """
    kernel void every(global uchar *data, uint k) { data[get_global_id(0) * k * 64 + 13] = 1; }"""
    n = 300
    kernel = Kernel(source, "every", extents=True)
    result = kernel.run((n,), None, buffer(n * k * 64), np.uint32(k))
    expect(result, 0, stores=n, store_bytes=n, lines=n, first_offset=13, last_offset=(n - 1) * k * 64 + 13)


def test_without_extents_offsets_are_rounded_out_to_lines() -> None:
    source = "kernel void one(global uchar *data) { data[100] = 1; }"
    expect(Kernel(source, "one").run((1,), None, buffer(1000)), 0, stores=1, store_bytes=1, lines=1,
           first_offset=64, last_offset=127)
    expect(Kernel(source, "one", extents=True).run((1,), None, buffer(1000)), 0, stores=1, store_bytes=1, lines=1,
           first_offset=100, last_offset=100)


MATMUL = """
kernel void matmul(global const float *a, global const float *b, global float *c, uint n) {
  uint x = get_global_id(0), y = get_global_id(1);
  float sum = 0;
  for (uint k = 0; k < n; ++k) sum += a[y * n + k] * b[k * n + x];
  c[y * n + x] = sum;
}"""

TILED = """
#define T 16
kernel void matmul(global const float *a, global const float *b, global float *c, uint n) {
  local float ta[T][T], tb[T][T];
  uint x = get_global_id(0), y = get_global_id(1), lx = get_local_id(0), ly = get_local_id(1);
  float sum = 0;
  for (uint t = 0; t < n; t += T) {
    ta[ly][lx] = a[y * n + t + lx];
    tb[ly][lx] = b[(t + ly) * n + x];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = 0; k < T; ++k) sum += ta[ly][k] * tb[k][lx];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  c[y * n + x] = sum;
}"""


def multiply(source: str, n: int) -> Result:
    rng = np.random.default_rng(n)
    a, b = (rng.integers(0, 4, (n, n)).astype(np.float32) for _ in range(2))
    out = buffer(4 * n * n)
    result = Kernel(source, "matmul").run((n, n), (16, 16), buffer(a), buffer(b), out, np.uint32(n))
    np.testing.assert_array_equal(contents(out, a), a @ b)
    return result


def test_naive_matrix_product_reads_each_operand_n_times() -> None:
    n = 64
    result = multiply(MATMUL, n)
    for argument in (0, 1):
        expect(result, argument, loads=n**3, load_bytes=4 * n**3, lines=n * n // 16)
    expect(result, 2, stores=n * n, store_bytes=4 * n * n, lines=n * n // 16)


def test_tiled_matrix_product_reads_each_operand_n_over_tile_times() -> None:
    n, tile = 64, 16
    result = multiply(TILED, n)
    for argument in (0, 1):
        expect(result, argument, loads=n**3 // tile, load_bytes=4 * n**3 // tile, lines=n * n // 16)
    expect(result, 2, stores=n * n, store_bytes=4 * n * n, lines=n * n // 16)
    local = [site for site in result.sites if site["space"] == "local"]
    assert sum(s["lanes"] for s in local if s["kind"] == "store") == 2 * n**3 // tile
    assert sum(s["lanes"] for s in local if s["kind"] == "load") == 2 * n**3


@pytest.mark.parametrize("statement", ["out[y * n + x] = in[x * n + y]", "out[x * n + y] = in[y * n + x]"])
def test_transpose_both_ways_touches_all_lines_once(statement: str) -> None:
    source = f"""
    kernel void transpose(global const float *in, global float *out, uint n) {{
      size_t x = get_global_id(0), y = get_global_id(1);
      {statement};
    }}"""
    n = 96
    data = floats(n * n).reshape(n, n)
    out = buffer(4 * n * n)
    result = Kernel(source, "transpose").run((n, n), (8, 8), buffer(data), out, np.uint32(n))
    expect(result, 0, loads=n * n, load_bytes=4 * n * n, lines=n * n // 16)
    expect(result, 1, stores=n * n, store_bytes=4 * n * n, lines=n * n // 16)
    np.testing.assert_array_equal(contents(out, data), data.T)


def test_histogram_counts_global_and_local_atomics() -> None:
    source = """
    kernel void histogram(global const uchar *in, global uint *bins, uint n) {
      local uint mine[64];
      uint l = get_local_id(0);
      if (l < 64) mine[l] = 0;
      barrier(CLK_LOCAL_MEM_FENCE);
      for (uint i = get_global_id(0); i < n; i += get_global_size(0)) atomic_inc(&mine[in[i] & 63]);
      barrier(CLK_LOCAL_MEM_FENCE);
      if (l < 64) atomic_add(&bins[l], mine[l]);
    }"""
    n, groups, group_size = 20000, 5, 128
    data = np.random.default_rng(3).integers(0, 64, n).astype(np.uint8)
    bins = buffer(64 * 4)
    kernel = Kernel(source, "histogram")
    result = kernel.run((groups * group_size,), (group_size,), buffer(data), bins, np.uint32(n))
    expect(result, 0, loads=n, load_bytes=n, lines=-(-n // 64))
    expect(result, 1, atomics=64 * groups, atomic_bytes=4 * 64 * groups, lines=4)
    local = {s["kind"]: s["lanes"] for s in result.sites if s["space"] == "local"}
    assert local == {"store": 64 * groups, "atomic": n, "load": 64 * groups}
    np.testing.assert_array_equal(contents(bins, np.zeros(64, np.uint32)), np.bincount(data, minlength=64))


def test_five_point_stencil_reads_each_inner_point_five_times() -> None:
    source = """
    kernel void stencil(global const float *in, global float *out, int w, int h) {
      int x = get_global_id(0), y = get_global_id(1);
      if (x == 0 || y == 0 || x == w - 1 || y == h - 1) return;
      int i = y * w + x;
      out[i] = in[i] + in[i - 1] + in[i + 1] + in[i - w] + in[i + w];
    }"""
    w, h = 80, 48
    inner = (w - 2) * (h - 2)
    result = Kernel(source, "stencil").run((w, h), (16, 4), buffer(floats(w * h)), buffer(4 * w * h), np.int32(w),
                                           np.int32(h))
    points = np.zeros((h, w), bool)
    points[1:-1, 1:-1] = True
    read = points.copy()
    for axis, by in ((0, 1), (0, -1), (1, 1), (1, -1)):
        read |= np.roll(points, by, axis)
    lines_of = lambda touched: int(touched.reshape(-1, 16).any(axis=1).sum())  # noqa: E731
    expect(result, 0, loads=5 * inner, load_bytes=20 * inner, lines=lines_of(read))
    expect(result, 1, stores=inner, store_bytes=4 * inner, lines=lines_of(points))


def test_gather_touches_the_lines_of_its_indices() -> None:
    source = """
    kernel void gather(global const float *table, global const uint *index, global float *out) {
      size_t i = get_global_id(0);
      out[i] = table[index[i]];
    }"""
    n, size = 700, 100000
    index = np.random.default_rng(5).integers(0, size, n).astype(np.uint32)
    result = Kernel(source, "gather").run((n,), None, buffer(floats(size)), buffer(index), buffer(4 * n))
    expect(result, 0, loads=n, load_bytes=4 * n, lines=len(np.unique(index // 16)))
    expect(result, 1, loads=n, load_bytes=4 * n)


def test_array_of_structs_touches_all_lines_and_struct_of_arrays_one_quarter() -> None:
    n = 1024
    of_structs = """
    typedef struct { float x, y, z, w; } P;
    kernel void sum(global const P *p, global float *out) { size_t i = get_global_id(0); out[i] = p[i].x; }"""
    of_arrays = """
    kernel void sum(global const float *x, global float *out) { size_t i = get_global_id(0); out[i] = x[i]; }"""
    data = floats(4 * n)
    structs = Kernel(of_structs, "sum").run((n,), None, buffer(data), buffer(4 * n))
    arrays = Kernel(of_arrays, "sum").run((n,), None, buffer(data), buffer(4 * n))
    expect(structs, 0, loads=n, load_bytes=4 * n, lines=4 * n // 16)
    expect(arrays, 0, loads=n, load_bytes=4 * n, lines=n // 16)


@pytest.mark.parametrize("width", [2, 3, 4, 8, 16])
def test_vector_loads_and_stores_move_whole_vectors_at_their_offset(width: int) -> None:
    source = f"""
    kernel void copy(global const float *in, global float *out, uint skip) {{
      size_t i = get_global_id(0);
      vstore{width}(vload{width}(i, in + skip), i, out);
    }}"""
    n, skip = 200, 5
    data = floats(n * width + skip)
    out = buffer(4 * n * width)
    result = Kernel(source, "copy", extents=True).run((n,), None, buffer(data), out, np.uint32(skip))
    last = 4 * (skip + n * width) - 1
    expect(result, 0, loads=n, load_bytes=4 * width * n, lines=last // 64 - 4 * skip // 64 + 1,
           first_offset=4 * skip, last_offset=last)
    expect(result, 1, stores=n, store_bytes=4 * width * n, lines=-(-4 * n * width // 64))
    np.testing.assert_array_equal(contents(out, data[skip:]), data[skip:])


def test_half_precision_loads_convert_two_bytes_each() -> None:
    source = """
    kernel void widen(global const half *in, global float *out, global half *back) {
      size_t i = get_global_id(0);
      float4 v = vload_half4(i, in);
      vstore4(v, i, out);
      vstore_half(v.x, i, back);
    }"""
    n = 64
    data = np.arange(4 * n, dtype=np.float16)
    out = buffer(16 * n)
    result = Kernel(source, "widen").run((n,), None, buffer(data), out, buffer(2 * n))
    expect(result, 0, loads=n, load_bytes=8 * n, lines=8 * n // 64)
    expect(result, 1, stores=n, store_bytes=16 * n)
    expect(result, 2, stores=n, store_bytes=2 * n, lines=2 * n // 64)
    np.testing.assert_array_equal(contents(out, data.astype(np.float32)), data)


def test_struct_assignment_is_one_copy_of_its_size() -> None:
    source = """
    typedef struct { int a; double b; char c; } S;  // 24 bytes with padding
    kernel void move(global S *s) { size_t i = get_global_id(0); s[i] = s[i + 100]; }"""
    n = 100
    result = Kernel(source, "move").run((n,), None, buffer(24 * 2 * n))
    expect(result, 0, loads=n, load_bytes=24 * n, stores=n, store_bytes=24 * n, lines=-(-24 * 2 * n // 64))
    assert {site["kind"] for site in result.sites} == {"copy_load", "copy_store"}


def test_async_copies_count_elements_once_a_work_group() -> None:
    source = """
    kernel void stage(global const int *in, global int *out, uint stride) {
      local int tile[100];
      size_t g = get_group_id(0);
      event_t e = async_work_group_strided_copy(tile, in + g * 100 * stride, 100, stride, 0);
      wait_group_events(1, &e);
      e = async_work_group_copy(out + g * 100, tile, 100, 0);
      wait_group_events(1, &e);
    }"""
    groups, stride = 6, 3
    data = np.arange(groups * 100 * stride, dtype=np.int32)
    out = buffer(4 * groups * 100)
    result = Kernel(source, "stage").run((groups * 32,), (32,), buffer(data), out, np.uint32(stride))
    elements = groups * 100
    touched = len(np.unique(np.arange(elements) * stride * 4 // 64))
    expect(result, 0, loads=elements, load_bytes=4 * elements, lines=touched)
    expect(result, 1, stores=elements, store_bytes=4 * elements, lines=-(-4 * elements // 64))
    np.testing.assert_array_equal(contents(out, data[: elements]), data[::stride])


def test_loops_switches_and_early_returns_are_counted_by_the_path_taken() -> None:
    source = """
    kernel void paths(global int *out, global const int *in) {
      int i = get_global_id(0);
      if (i % 7 == 6) return;
      for (int k = 0; k < i % 5; ++k) {
        if (k == 3) break;
        out[i] += in[k];
      }
      switch (i % 4) {
        case 0: out[i] = 1; break;
        case 1: out[i] = 2;
        case 2: out[i] += 3; return;
        default: ;
      }
      while (out[i] < 0) out[i] = -out[i];
    }"""
    n = 1000
    out = buffer(4 * n)
    kernel = Kernel(source, "paths")
    result = kernel.run((n,), None, out, buffer(np.ones(16, np.int32)))
    loads = stores = table_loads = 0
    for i in range(n):  # the kernel, line by line
        if i % 7 == 6:
            continue
        turns = min(i % 5, 3)
        loads, stores, table_loads = loads + turns, stores + turns, table_loads + turns
        case = i % 4
        stores += {0: 1, 1: 2, 2: 1, 3: 0}[case]
        loads += {0: 0, 1: 1, 2: 1, 3: 0}[case]
        loads += case in (0, 3)
    expect(result, 0, loads=loads, load_bytes=4 * loads, stores=stores, store_bytes=4 * stores)
    expect(result, 1, loads=table_loads, load_bytes=4 * table_loads)


def test_a_helper_called_with_different_buffers_is_told_apart() -> None:
    source = """
    float first(global const float *p, int n) { float s = 0; for (int k = 0; k < n; ++k) s += p[k]; return s; }
    float both(global const float *p, global const float *q) { return first(p, 2) + first(q, 3); }
    kernel void call(global const float *a, global const float *b, global float *c) {
      size_t i = get_global_id(0);
      c[i] = both(a, b) + first(b, 4);
    }"""
    n = 320
    result = Kernel(source, "call").run((n,), None, buffer(floats(16)), buffer(floats(16)), buffer(4 * n))
    expect(result, 0, loads=2 * n, load_bytes=8 * n, lines=1)
    expect(result, 1, loads=7 * n, load_bytes=28 * n, lines=1)
    expect(result, 2, stores=n, store_bytes=4 * n)


def test_constant_arguments_and_program_scope_variables_are_objects() -> None:
    source = """
    constant float weights[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    global int launches = 0;
    kernel void scale(constant float *factor, global float *data) {
      size_t i = get_global_id(0);
      data[i] *= factor[0] * weights[i & 7];
      if (i == 0) ++launches;
    }"""
    n = 64
    result = Kernel(source, "scale", extents=True).run((n,), None, buffer(floats(4)), buffer(floats(n)))
    expect(result, 0, loads=n, load_bytes=4 * n, lines=1, first_offset=0, last_offset=3)
    expect(result, 1, loads=n, load_bytes=4 * n, stores=n, store_bytes=4 * n)
    variables = {o["space"]: o for o in result.objects if o["argument"] is None}
    assert variables["constant"]["loads"] == n
    assert variables["constant"]["last_offset"] == 31
    assert (variables["global"]["loads"], variables["global"]["stores"]) == (1, 1)


def test_three_dimensional_launches_with_an_offset() -> None:
    source = """
    kernel void fill(global int *out) {
      size_t x = get_global_id(0) - 3, y = get_global_id(1) - 1, z = get_global_id(2) - 2;
      out[(z * 6 + y) * 10 + x] = 1;
    }"""
    out = buffer(4 * 10 * 6 * 4)
    result = Kernel(source, "fill").run((10, 6, 4), (5, 2, 1), out, global_offset=(3, 1, 2))
    expect(result, 0, stores=240, store_bytes=960, lines=15)
    assert result.local_size == [5, 2, 1]
    assert contents(out, np.zeros(240, np.int32)).all()
