"""Attribution of accesses to memory objects, when it takes the device to find out. Expected counts by hand or numpy."""

from __future__ import annotations

import numpy as np
import pytest
from spirv_harness import Kernel, Svm, buffer, context, native, open_cl

pytestmark = pytest.mark.usefixtures("device")

#: Every way to add and to reduce that a device may need.
DEVICE_KINDS = [
    {},
    {"sub_groups": False},
    {"int64_atomics": False},
    {"sub_groups": False, "int64_atomics": False, "many_cores": True},
]

SELECT = """
kernel void choose(global float *a, global float *b, global float *c, int mask) {
  int i = get_global_id(0);
  global float *p = (i & mask) ? a : b;
  c[i] = p[i];
  p[i] = 0;
}"""


@pytest.mark.parametrize("reducers", DEVICE_KINDS)
def test_two_buffers_chosen_by_select(reducers: dict[str, bool]) -> None:
    n = 1000
    kernel = Kernel(SELECT, "choose", extents=True, **reducers)
    result = kernel.run((n,), None, buffer(4 * n), buffer(4 * n), buffer(4 * n), np.int32(64))
    from_a = np.flatnonzero(np.arange(n) & 64)
    for argument, chosen in ((0, from_a), (1, np.setdiff1d(np.arange(n), from_a))):
        found = result.object(argument)
        assert (found["loads"], found["stores"]) == (len(chosen), len(chosen))
        assert found["load_bytes"] == 4 * len(chosen)
        assert found["lines"] == len(np.unique(chosen // 16))
        assert (found["first_offset"], found["last_offset"]) == (4 * chosen.min(), 4 * chosen.max() + 3)
    assert result.object(2)["stores"] == n
    assert all(site["elsewhere"] == 0 for site in result.sites)
    assert sorted(site["candidates"] for site in result.sites if site["dynamic"] is not None) == [[0, 1], [0, 1]]


def test_buffers_that_swap_roles_in_a_loop() -> None:
    source = """
    kernel void ping_pong(global int *a, global int *b, int steps) {
      int i = get_global_id(0);
      global int *from = a, *to = b;
      for (int s = 0; s < steps; ++s) {
        to[i] = from[i] + 1;
        global int *t = from; from = to; to = t;
      }
    }"""
    n, steps = 128, 5
    result = Kernel(source, "ping_pong").run((n,), None, buffer(4 * n), buffer(4 * n), np.int32(steps))
    assert (result.object(0)["loads"], result.object(0)["stores"]) == (3 * n, 2 * n)
    assert (result.object(1)["loads"], result.object(1)["stores"]) == (2 * n, 3 * n)


def test_pointers_kept_in_a_private_struct_and_array() -> None:
    source = """
    typedef struct { global int *first; global int *second; } Pair;
    void store(Pair *pair, int i) { pair->first[i] = 1; pair->second[i] = pair->first[i]; }
    kernel void go(global int *a, global int *b, int which) {
      Pair pair = {a, b};
      store(&pair, get_global_id(0));
      global int *many[4] = {a, b, a, b};
      many[(get_global_id(0) + which) & 3][0] = 5;
    }"""
    n = 64
    result = Kernel(source, "go").run((n,), None, buffer(4 * n), buffer(4 * n), np.int32(1))
    assert (result.object(0)["loads"], result.object(0)["stores"]) == (n, n + n // 2)
    assert (result.object(1)["loads"], result.object(1)["stores"]) == (0, n + n // 2)


@pytest.mark.parametrize("reducers", DEVICE_KINDS)
def test_linked_list_in_shared_virtual_memory(reducers: dict[str, bool]) -> None:
    source = """
    typedef struct Node { global struct Node *next; long value; } Node;
    kernel void walk(global Node *head, global long *out) {
      long sum = 0;
      for (global Node *n = head; n; n = n->next) sum += n->value;
      out[get_global_id(0)] = sum;
    }"""
    cl = open_cl()
    assert cl is not None
    # The list alternates between two allocations; the kernel is given a pointer into the middle of the first.
    pools = [cl.svm_empty(context(), cl.svm_mem_flags.READ_WRITE, (100, 2), np.int64) for _ in range(2)]
    for pool in pools:
        pool[:] = 0
    places = [(k % 2, 10 + 3 * k) for k in range(20)]
    addresses = [pools[p].ctypes.data + 16 * row for p, row in places]
    for k, (p, row) in enumerate(places):
        pools[p][row] = (addresses[k + 1] if k + 1 < len(places) else 0, k + 1)
    ranges = [native().AddressRange(100 + p, pools[p].ctypes.data, pools[p].nbytes) for p in range(2)]
    n = 32
    out = buffer(8 * n)
    kernel = Kernel(source, "walk", extents=True, **reducers)
    result = kernel.run((n,), (8,), Svm(pools[0], 10), out, ranges=ranges, same_object={0: 100})
    found = {o["object_id"]: o for o in result.objects}
    for p in range(2):
        rows = np.array([row for pool, row in places if pool == p])
        # The head itself is reached through the argument or, as every other node, through a loaded pointer.
        assert found[100 + p]["loads"] == 2 * len(rows) * n
        assert found[100 + p]["load_bytes"] == 16 * len(rows) * n
        lines = np.unique((pools[p].ctypes.data + 16 * rows) // 64)
        assert found[100 + p]["lines"] == len(lines)
        assert found[100 + p]["first_offset"] == 16 * rows.min()
        assert found[100 + p]["last_offset"] == 16 * rows.max() + 15
    assert found[1]["stores"] == n


def test_addresses_outside_every_known_range_are_an_unknown_object() -> None:
    source = """
    kernel void through(global const ulong *pointer, global int *out) {
      out[get_global_id(0)] = *(global int *)pointer[0];
    }"""
    cl = open_cl()
    assert cl is not None
    hidden = cl.svm_empty(context(), cl.svm_mem_flags.READ_WRITE, 16, np.int32)
    hidden[:] = 7
    n = 50
    result = Kernel(source, "through").run((n,), None, buffer(np.array([hidden.ctypes.data], np.uint64)), buffer(4 * n))
    unknown = [o for o in result.objects if o["object_id"] == -1]
    assert [(o["loads"], o["load_bytes"], o["lines"]) for o in unknown] == [(n, 4 * n, None)]
    assert result.object(0)["loads"] == n


def test_sub_buffers_are_objects_of_their_own() -> None:
    source = """
    kernel void copy(global const int *in, global int *out) { size_t i = get_global_id(0); out[i] = in[i]; }"""
    whole = buffer(8192)
    first, second = whole[0:2048], whole[4096:8192]
    result = Kernel(source, "copy", extents=True).run((256,), None, first, second)
    assert (result.object(0)["loads"], result.object(0)["lines"]) == (256, 16)
    assert (result.object(1)["stores"], result.object(1)["first_offset"]) == (256, 0)


def test_one_buffer_given_twice_is_one_object() -> None:
    source = """
    kernel void shift(global const int *in, global int *out) { size_t i = get_global_id(0); out[i + 512] = in[i]; }"""
    n = 256
    both = buffer(4 * 1024)
    result = Kernel(source, "shift", extents=True).run((n,), None, both, both, same_object={1: 0})
    assert len(result.objects) == 1
    found = result.object(0)
    assert (found["loads"], found["stores"], found["argument"]) == (n, n, None)
    assert found["lines"] == 2 * n // 16
    assert (found["first_offset"], found["last_offset"]) == (0, 4 * (512 + n) - 1)


def test_an_argument_without_a_buffer_is_not_touched() -> None:
    source = "kernel void maybe(global int *p, global int *q) { if (p) p[get_global_id(0)] = 1; q[0] = 1; }"
    result = Kernel(source, "maybe").run((10,), None, None, buffer(64))
    assert [o["object_id"] for o in result.objects] == [1]


GENERIC = """
int take(int *p, int i) { return p[i]; }
kernel void anywhere(global int *a, local int *l, global int *out) {
  int mine[4] = {1, 2, 3, 4};
  int i = get_global_id(0), k = get_local_id(0);
  l[k] = i;
  barrier(CLK_LOCAL_MEM_FENCE);
  int *any = i % 4 == 0 ? a : i % 4 == 1 ? (int *)l : mine;
  out[i] = take(any, i & 3) + take(a, 0) + take(mine, 1);
}"""


def test_generic_pointers_to_global_local_and_private_memory() -> None:
    cl = open_cl()
    assert cl is not None
    n = 128
    result = Kernel(GENERIC, "anywhere").run((n,), (32,), buffer(64), cl.LocalMemory(4 * 32), buffer(4 * n))
    assert result.object(0)["loads"] == n + n // 4
    assert result.object(1)["space"] == "local"
    assert (result.object(1)["loads"], result.object(1)["stores"]) == (n // 4, n)
    assert sum(site["elsewhere"] for site in result.sites) == n // 2  # `mine`, through `any`
    assert result.object(2)["stores"] == n


def test_images_count_texels() -> None:
    source = """
    kernel void invert(read_only image2d_t in, sampler_t s, write_only image2d_t out) {
      int2 at = (int2)(get_global_id(0), get_global_id(1));
      write_imagef(out, at, 1 - read_imagef(in, s, at));
    }"""
    cl = open_cl()
    assert cl is not None
    w, h = 32, 24
    form = cl.ImageFormat(cl.channel_order.RGBA, cl.channel_type.FLOAT)
    images = [cl.Image(context(), cl.mem_flags.READ_WRITE, form, shape=(w, h)) for _ in range(2)]
    sampler = cl.Sampler(context(), False, cl.addressing_mode.CLAMP_TO_EDGE, cl.filter_mode.NEAREST)
    result = Kernel(source, "invert").run((w, h), None, images[0], sampler, images[1])
    read, written = result.object(0), result.object(2)
    assert (read["space"], read["loads"], read["load_bytes"], read["lines"]) == ("image", w * h, 16 * w * h, None)
    assert (written["stores"], written["store_bytes"]) == (w * h, 16 * w * h)


def test_objects_too_large_for_a_map_of_lines_are_seen_in_pages() -> None:
    source = "kernel void sparse(global uchar *p, uint step) { p[(size_t)get_global_id(0) * step] = 1; }"
    kernel = Kernel(source, "sparse")
    data = buffer(1 << 20)
    result = kernel.run((64,), None, data, np.uint32(8192), map_bytes=1024)
    found = result.object(0)
    assert (found["lines"], found["pages_4k"]) == (None, 64)
    assert result.binding.slot_bytes < kernel.run((64,), None, data, np.uint32(8192)).binding.slot_bytes


def test_more_candidates_than_counters_go_through_the_table() -> None:
    names = [f"p{k}" for k in range(12)]
    arguments = ", ".join(f"global int *{name}" for name in names)
    source = f"""
    kernel void many({arguments}) {{
      int i = get_global_id(0);
      global int *all[12] = {{{", ".join(names)}}};
      for (int k = 0; k < 36; ++k) all[(i + k) % 12][k] += 1;
    }}"""
    n = 48
    result = Kernel(source, "many").run((n,), None, *[buffer(4 * 36) for _ in names])
    assert [(o["loads"], o["stores"]) for o in result.objects] == [(3 * n, 3 * n)] * 12
