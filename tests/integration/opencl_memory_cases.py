"""Programs whose memory accesses follow from their arguments: opencl_memory_cases.py PLATFORM CASE

Each prints a JSON object of what it saw, which must be the same with and without ``--memory``.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

os.environ["PYOPENCL_NO_CACHE"] = "1"  # as `--memory` has it: a cached program has another binary

import numpy as np
import pyopencl as cl

warnings.simplefilter("ignore")

N = 4096  # elements of the vectors
EDGE, TILE = 32, 8  # of the matrices

SOURCE = """\
kernel void vector_add(global const float *a, global const float *b, global float *c) {
  int i = get_global_id(0);
  c[i] = a[i] + b[i];
}
kernel void strided(global const float *a, global float *c, int stride) {
  int i = get_global_id(0);
  c[i] = a[i * stride];
}
kernel void matmul(global const float *a, global const float *b, global float *c, int n) {
  int row = get_global_id(1), column = get_global_id(0);
  float sum = 0;
  for (int k = 0; k < n; ++k)
    sum += a[row * n + k] * b[k * n + column];
  c[row * n + column] = sum;
}
kernel void transpose(global const float *a, global float *c, int n) {
  c[get_global_id(0) * n + get_global_id(1)] = a[get_global_id(1) * n + get_global_id(0)];
}
kernel void transpose_tiled(global const float *a, global float *c, int n, local float *tile) {
  int x = get_local_id(0), y = get_local_id(1), edge = get_local_size(0);
  tile[y * edge + x] = a[get_global_id(1) * n + get_global_id(0)];
  barrier(CLK_LOCAL_MEM_FENCE);
  c[(get_group_id(0) * edge + y) * n + get_group_id(1) * edge + x] = tile[x * edge + y];
}
kernel void increment(global int *a) {
  a[get_global_id(0)] += 1;
}
kernel void copy(global const int *a, global int *c) {
  c[get_global_id(0)] = a[get_global_id(0)];
}
"""


class Device:
    """A queue, and what every case does with it."""

    def __init__(self, platform: str) -> None:
        device = next(p for p in cl.get_platforms() if platform in p.name).get_devices()[0]
        self.context = cl.Context([device])
        self.queue = cl.CommandQueue(self.context)

    def kernel(self, name: str, source: str = SOURCE) -> cl.Kernel:
        return cl.Kernel(cl.Program(self.context, source).build(), name)

    def buffer(self, data: np.ndarray[Any, Any]) -> cl.Buffer:
        return cl.Buffer(self.context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=data)

    def digest(self, buffer: cl.Buffer) -> str:
        out = np.empty(buffer.size, np.uint8)
        cl.enqueue_copy(self.queue, out, buffer)
        return hashlib.sha256(out.tobytes()).hexdigest()


def vector(count: int = N) -> np.ndarray[Any, Any]:
    return np.arange(count, dtype=np.float32)


def vector_add(device: Device) -> Any:
    a, b, c = device.buffer(vector()), device.buffer(2 * vector()), device.buffer(0 * vector())
    device.kernel("vector_add")(device.queue, (N,), None, a, b, c)
    return device.digest(c)


def strided(device: Device) -> Any:
    digests = []
    kernel = device.kernel("strided")
    for stride in (1, 2, 16, 64):
        a, c = device.buffer(vector(N * stride)), device.buffer(0 * vector())
        kernel(device.queue, (N,), None, a, c, np.int32(stride))
        digests.append(device.digest(c))
    return digests


def matrices(device: Device) -> Any:
    a, b = device.buffer(vector(EDGE * EDGE) % 7), device.buffer(vector(EDGE * EDGE) % 5)
    product, naive, tiled = (device.buffer(0 * vector(EDGE * EDGE)) for _ in range(3))
    n, shape = np.int32(EDGE), (EDGE, EDGE)
    device.kernel("matmul")(device.queue, shape, None, a, b, product, n)
    device.kernel("transpose")(device.queue, shape, None, a, naive, n)
    tile = cl.LocalMemory(TILE * TILE * 4)
    device.kernel("transpose_tiled")(device.queue, shape, (TILE, TILE), a, tiled, n, tile)
    return [device.digest(buffer) for buffer in (product, naive, tiled)]


def shared_buffers(device: Device) -> Any:
    """Two kernels on the same buffers, and half of one as a sub-buffer."""
    a, c = device.buffer(np.arange(N, dtype=np.int32)), device.buffer(np.zeros(N, np.int32))
    increment, copy = device.kernel("increment"), device.kernel("copy")
    increment(device.queue, (N,), None, a)
    copy(device.queue, (N,), None, a, c)
    increment(device.queue, (N // 2,), None, c.get_sub_region(N * 2, N * 2))
    return [device.digest(a), device.digest(c)]


def loop(device: Device) -> Any:
    """Launches without a wait, many more than the smallest buffer for results holds."""
    a = device.buffer(np.zeros(N, np.int32))
    increment = device.kernel("increment")
    for _ in range(1000):
        increment(device.queue, (N,), None, a)
    out = np.empty(N, np.int32)
    cl.enqueue_copy(device.queue, out, a)
    return [int(out.min()), int(out.max())]


def large(device: Device) -> Any:
    """The first elements of a buffer of 64 MiB."""
    a = device.buffer(np.zeros(1 << 24, np.int32))
    device.kernel("increment")(device.queue, (N,), None, a)
    return device.digest(a)


def sizes(device: Device) -> Any:
    """Ten launches each of two global sizes, in turn."""
    a = device.buffer(np.zeros(N, np.int32))
    increment = device.kernel("increment")
    for _ in range(10):
        increment(device.queue, (N,), None, a)
        increment(device.queue, (N // 2,), None, a)
    return device.digest(a)


def queries(device: Device) -> Any:
    """What a program can ask of its programs and kernels; and builds that fail."""
    program = cl.Program(device.context, SOURCE).build("-cl-kernel-arg-info")
    kernel = cl.Kernel(program, "vector_add")
    info = cl.kernel_info
    seen: list[Any] = [kernel.num_args, kernel.get_info(info.REFERENCE_COUNT), kernel.get_info(info.FUNCTION_NAME)]
    seen += [program.num_kernels, program.kernel_names, len(program.all_kernels()), program.reference_count]
    seen += [kernel.get_arg_info(i, cl.kernel_arg_info.NAME) for i in range(3)]
    seen.append(hashlib.sha256(program.binaries[0]).hexdigest())
    for index in (3, 4):
        try:
            kernel.set_arg(index, np.int32(0))
        except cl.Error as error:
            seen.append(str(error))
    for source in ("kernel void broken(global int *a) { a[0] = nothing; }", "kernel void f() {"):
        try:
            cl.Program(device.context, source).build()
        except cl.RuntimeError as error:
            seen.append(str(error).replace(repr(device.context.devices[0]), "DEVICE").splitlines()[4:])
    try:
        kernel(device.queue, (3,), (2,), *(device.buffer(vector()) for _ in range(3)))
    except cl.Error as error:
        seen.append(str(error))
    return seen


def clones(device: Device) -> Any:
    """A copy of a kernel keeps the arguments of the original; arguments set later are its own."""
    a, b = device.buffer(np.zeros(N, np.int32)), device.buffer(np.zeros(N, np.int32))
    kernel = device.kernel("increment")
    kernel.set_args(a)
    copy = kernel.clone()
    kernel.set_args(b)
    cl.enqueue_nd_range_kernel(device.queue, copy, (N,), None)
    cl.enqueue_nd_range_kernel(device.queue, kernel, (N // 2,), None)
    return [device.digest(a), device.digest(b)]


def binary(device: Device) -> Any:
    built = cl.Program(device.context, SOURCE).build()
    loaded = cl.Program(device.context, device.context.devices, built.binaries).build()
    a = device.buffer(np.zeros(N, np.int32))
    cl.Kernel(loaded, "increment")(device.queue, (N,), None, a)
    return device.digest(a)


def svm(device: Device) -> Any:
    """Shared virtual memory: an argument in the middle of an allocation."""
    a = cl.svm_empty(device.context, cl.svm_mem_flags.READ_WRITE, N, np.int32)
    pointer = cl.SVM(a)
    with pointer.map_rw(device.queue) as host:
        host[:] = 0
    kernel = device.kernel("increment")
    kernel(device.queue, (N // 2,), None, cl.SVM(a[N // 2 :]))
    device.queue.finish()
    with pointer.map_ro(device.queue) as host:
        return hashlib.sha256(np.array(host).tobytes()).hexdigest()


CASES: dict[str, Callable[[Device], Any]] = {
    case.__name__: case
    for case in (vector_add, strided, matrices, shared_buffers, loop, large, sizes, queries, clones, binary, svm)
}

if __name__ == "__main__":
    print(json.dumps(CASES[sys.argv[2]](Device(sys.argv[1]))))
