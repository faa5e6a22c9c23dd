"""Parts of OpenCL that few kernels use: images of all kinds, pipes, specialization constants, hand-written SPIR-V."""

from __future__ import annotations

import numpy as np
import pytest
from spirv_harness import Kernel, buffer, compile_source, context, native, open_cl
from test_spirv_module import assemble

pytestmark = pytest.mark.usefixtures("device")


def test_images_without_a_sampler_and_of_three_dimensions() -> None:
    source = """
    kernel void blur(read_only image1d_t line, write_only image3d_t volume, read_write image2d_t both) {
      int x = get_global_id(0), y = get_global_id(1);
      int4 sum = 0;
      for (int k = 0; k <= y; ++k) sum += read_imagei(line, x + k);
      write_imagei(volume, (int4)(x, y, 1, 0), sum);
      write_imagei(both, (int2)(x, y), read_imagei(both, (int2)(x, y)) + sum);
    }"""
    cl = open_cl()
    assert cl is not None
    w, h = 16, 4
    form = cl.ImageFormat(cl.channel_order.RGBA, cl.channel_type.SIGNED_INT32)
    flags = cl.mem_flags.READ_WRITE
    images = [cl.Image(context(), flags, form, shape=shape) for shape in ((w + h,), (w, h, 2), (w, h))]
    result = Kernel(source, "blur", coalescing=True, divergence=True, blocks=True).run((w, h), (w, h), *images)
    read = w * h * (h + 1) // 2
    found = {o["object_id"]: (o["loads"], o["load_bytes"], o["stores"], o["store_bytes"]) for o in result.objects}
    assert found == {0: (read, 16 * read, 0, 0), 1: (0, 0, w * h, 16 * w * h),
                     2: (w * h, 16 * w * h, w * h, 16 * w * h)}  # fmt: skip
    assert {o["lines"] for o in result.objects} == {None}
    assert result.blocks == []  # an image has no addresses
    # A sub-group is two rows: the longer loop of each counts.
    assert [s["executions"] for s in result.sites if s["root"] == 0] == [2 + 4]
    assert {s["sectors"] for s in result.sites} == {None}


PIPE = """
kernel void put(write_only pipe int p, global const int *in) { write_pipe(p, &in[get_global_id(0)]); }
kernel void take(read_only pipe int p, global int *out) { read_pipe(p, &out[get_global_id(0)]); }"""


def test_pipes_count_packets_and_the_memory_behind_the_pointer() -> None:
    # The packet's pointer is generic in OpenCL C, so its memory is found at run time.
    cl = open_cl()
    assert cl is not None
    n = 64
    values = np.arange(n, dtype=np.int32)
    pipe = cl.Pipe(context(), cl.mem_flags.READ_WRITE | cl.mem_flags.HOST_NO_ACCESS, 4, n)
    put = Kernel(PIPE, "put").run((n,), None, pipe, buffer(values))
    (written,) = [s for s in put.sites if s["space"] == "pipe"]
    assert (written["kind"], written["lanes"], written["accessed_bytes"]) == ("store", n, 4 * n)
    assert (put.object(1)["loads"], put.object(1)["load_bytes"], put.object(1)["lines"]) == (n, 4 * n, n // 16)
    out = buffer(4 * n)
    take = Kernel(PIPE, "take").run((n,), None, pipe, out)
    assert (take.object(0)["loads"], take.object(0)["load_bytes"]) == (n, 4 * n)
    assert (take.object(1)["stores"], take.object(1)["store_bytes"]) == (n, 4 * n)


def test_a_specialization_constant_decides_when_the_program_is_built() -> None:
    module = assemble("""
        OpCapability Addresses
        OpCapability Kernel
        OpCapability Int64
        OpMemoryModel Physical64 OpenCL
        OpEntryPoint Kernel %20 "fill" %id
        OpDecorate %id BuiltIn GlobalInvocationId
        OpDecorate %id Constant
        OpDecorate %count SpecId 7
        %void = OpTypeVoid
        %bool = OpTypeBool
        %uint = OpTypeInt 32 0
        %ulong = OpTypeInt 64 0
        %vector = OpTypeVector %ulong 3
        %input = OpTypePointer Input %vector
        %global = OpTypePointer CrossWorkgroup %uint
        %kernel = OpTypeFunction %void %global
        %count = OpSpecConstant %uint 3
        %zero = OpConstant %uint 0
        %one = OpConstant %uint 1
        %id = OpVariable %input Input
        %20 = OpFunction %void None %kernel
        %p = OpFunctionParameter %global
        %entry = OpLabel
        %ids = OpLoad %vector %id Aligned 32
        %item = OpCompositeExtract %ulong %ids 0
        %at = OpInBoundsPtrAccessChain %global %p %item
        OpBranch %head
        %head = OpLabel
        %k = OpPhi %uint %zero %entry %next %body
        %more = OpULessThan %bool %k %count
        OpBranchConditional %more %body %done
        %body = OpLabel
        OpStore %at %k Aligned 4
        %next = OpIAdd %uint %k %one
        OpBranch %head
        %done = OpLabel
        OpReturn
        OpFunctionEnd
    """)
    n = 32
    given = Kernel.of_module(module, "fill", {}).run((n,), None, buffer(4 * n))
    assert given.object(0)["stores"] == 3 * n
    set_by_the_program = Kernel.of_module(module, "fill", {7: np.uint32(5)}).run((n,), None, buffer(4 * n))
    assert (set_by_the_program.object(0)["stores"], set_by_the_program.object(0)["lines"]) == (5 * n, n // 16)


def test_vector_loads_and_stores_at_offsets() -> None:
    source = """
    kernel void shift(global const uchar *in, global uchar *out, int skip) {
      int i = get_global_id(0);
      vstore16(vload16(2 * i + 1, in + skip), i, out + 64);
    }"""
    n, skip = 40, 3
    kernel = Kernel(source, "shift", extents=True, coalescing=True, trace=True)
    result = kernel.run((n,), (n,), buffer(32 * n + 64), buffer(16 * n + 64), np.int32(skip), trace_records=2 * n)
    read, written = result.object(0), result.object(1)
    first = 16 * (2 * np.arange(n) + 1) + skip
    assert read["lines"] == len(set(first // 64) | set((first + 15) // 64))
    assert (read["first_offset"], read["last_offset"]) == (first[0], first[-1] + 15)
    assert (written["first_offset"], written["last_offset"]) == (64, 64 + 16 * n - 1)
    (load,) = [s for s in result.sites if s["kind"] == "load"]
    lines = [{*(first[g] // 64), *((first[g] + 15) // 64)} for g in (slice(0, 32), slice(32, n))]
    assert load["sectors"] == sum(map(len, lines))


def test_memory_accesses_are_those_of_the_source() -> None:
    # Before any optimisation: what an optimiser would drop, merge or move out of the loop is counted as written.
    source = """
    kernel void wasteful(global const int *a, global int *out, int n) {
      int i = get_global_id(0);
      int dead = a[i + 7];
      int sum = a[i] + a[i];
      for (int j = 0; j < n; ++j) sum += a[0];
      out[i] = sum;
      out[i] = sum + 1;
    }"""
    n, steps = 16, 5
    for options in ("-cl-std=CL3.0", "-cl-std=CL3.0 -cl-opt-disable"):
        result = Kernel(source, "wasteful", options).run((n,), None, buffer(256), buffer(4 * n), np.int32(steps))
        assert (result.object(0)["loads"], result.object(1)["stores"]) == ((3 + steps) * n, 2 * n)


def test_a_device_with_32_bit_atomics_only_gets_no_64_bit_ones() -> None:
    module = compile_source("kernel void k(global int *p, global int *q) { (p[0] ? p : q)[get_global_id(0)] = 1; }")
    capability = np.array([2 << 16 | 17, 12], np.uint32).tobytes()  # OpCapability Int64Atomics
    assert capability in native().instrument(module)[0]
    assert capability not in native().instrument(module, int64_atomics=False, blocks=True, extents=True)[0]
