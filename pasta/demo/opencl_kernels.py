"""OpenCL kernels whose behaviour is known, each checked against the host.

    pasta record -- python -m pasta.demo.opencl_kernels --size 512 --repeat 3

Vector add, tiled matrix product, reduction in local memory, a transpose that reads rows and writes columns, one that
goes through local memory, and a breadth-first search whose launches depend on the graph. Needs pyopencl and numpy.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

#: Edge of a tile, in elements: a work-group is TILE x TILE.
TILE = 16
#: Work-items of a one-dimensional work-group.
GROUP = 64

SOURCE = """
kernel void vector_add(global const float *a, global const float *b, global float *c) {
  const size_t i = get_global_id(0);
  c[i] = a[i] + b[i];
}

kernel void matmul(global const float *a, global const float *b, global float *c, const int n) {
  local float tile_a[TILE][TILE];
  local float tile_b[TILE][TILE];
  const int column = get_global_id(0), row = get_global_id(1);
  const int x = get_local_id(0), y = get_local_id(1);
  float sum = 0;
  for (int t = 0; t < n; t += TILE) {
    tile_a[y][x] = a[row * n + t + x];
    tile_b[y][x] = b[(t + y) * n + column];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = 0; k < TILE; ++k) sum += tile_a[y][k] * tile_b[k][x];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  c[row * n + column] = sum;
}

kernel void reduce(global const int *in, global int *sums) {
  local int partial[GROUP];
  const int i = get_local_id(0);
  partial[i] = in[get_global_id(0)];
  for (int width = GROUP / 2; width > 0; width /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (i < width) partial[i] += partial[i + width];
  }
  if (i == 0) sums[get_group_id(0)] = partial[0];
}

kernel void transpose_naive(global const float *in, global float *out, const int n) {
  const int x = get_global_id(0), y = get_global_id(1);
  out[x * n + y] = in[y * n + x];
}

kernel void transpose_tiled(global const float *in, global float *out, const int n) {
  local float tile[TILE][TILE + 1];
  const int x = get_local_id(0), y = get_local_id(1);
  const int column = get_group_id(0) * TILE, row = get_group_id(1) * TILE;
  tile[y][x] = in[(row + y) * n + column + x];
  barrier(CLK_LOCAL_MEM_FENCE);
  out[(column + y) * n + row + x] = tile[x][y];
}

kernel void bfs_level(global const int *first, global const int *edges, global int *depth, const int level,
                      global int *changed) {
  const int node = get_global_id(0);
  if (depth[node] != level) return;
  for (int e = first[node]; e < first[node + 1]; ++e) {
    if (depth[edges[e]] < 0) {
      depth[edges[e]] = level + 1;
      *changed = 1;
    }
  }
}
"""


class Device(NamedTuple):
    """What the kernels run on."""

    context: Any
    queue: Any
    kernels: dict[str, Any]


def open_device(wanted: str | None) -> Device:
    """Open the first device, or the first whose platform or device name contains ``wanted``. Raises LookupError."""
    import pyopencl as cl

    devices = [device for platform in cl.get_platforms() for device in platform.get_devices()]
    if wanted is not None:
        devices = [d for d in devices if wanted.lower() in f"{d.platform.name} {d.name}".lower()]
    elif len(devices) > 1:
        devices = [d for d in devices if "oclgrind" not in d.platform.name.lower()] or devices
    if not devices:
        raise LookupError("no OpenCL device" + (f" is called {wanted}" if wanted else ""))
    context = cl.Context(devices[:1])
    program = cl.Program(context, SOURCE).build([f"-DTILE={TILE}", f"-DGROUP={GROUP}"])
    kernels = {kernel.function_name: kernel for kernel in program.all_kernels()}
    return Device(context, cl.CommandQueue(context), kernels)


def _inputs(device: Device, *arrays: npt.NDArray[Any]) -> list[Any]:
    """Return buffers with the arrays' contents."""
    import pyopencl as cl

    flags = cl.mem_flags
    return [cl.Buffer(device.context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=array) for array in arrays]


def _output(device: Device, array: npt.NDArray[Any]) -> Any:
    """Return a buffer of the array's size."""
    import pyopencl as cl

    return cl.Buffer(device.context, cl.mem_flags.WRITE_ONLY, array.nbytes)


def _read(device: Device, buffer: Any, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Read the buffer into the array, and wait."""
    import pyopencl as cl

    cl.enqueue_copy(device.queue, array, buffer)
    return array


def _floats(count: int) -> npt.NDArray[np.float32]:
    """Return ``count`` small whole numbers: sums of their products are exact in any order."""
    import numpy as np

    return (np.arange(count, dtype=np.int64) * 7 % 11).astype(np.float32)


def vector_add(device: Device, size: int) -> bool:
    """Add two vectors of ``size`` squared elements."""
    import numpy as np

    a, b = _floats(size * size), _floats(size * size)[::-1].copy()
    out = _output(device, a)
    device.kernels["vector_add"](device.queue, a.shape, (GROUP,), *_inputs(device, a, b), out)
    return bool(np.array_equal(_read(device, out, np.empty_like(a)), a + b))


def matmul(device: Device, size: int) -> bool:
    """Multiply two ``size`` x ``size`` matrices, a tile at a time through local memory."""
    import numpy as np

    a = _floats(size * size).reshape(size, size)
    b = a[::-1].copy()
    out = _output(device, a)
    device.kernels["matmul"](device.queue, (size, size), (TILE, TILE), *_inputs(device, a, b), out, np.int32(size))
    return bool(np.array_equal(_read(device, out, np.empty_like(a)), a @ b))


def reduction(device: Device, size: int) -> bool:
    """Sum ``size`` squared integers: a partial sum a work-group, the rest on the host."""
    import numpy as np

    values = np.arange(size * size, dtype=np.int32) % 1000
    sums = np.empty(values.size // GROUP, dtype=np.int32)
    out = _output(device, sums)
    device.kernels["reduce"](device.queue, values.shape, (GROUP,), *_inputs(device, values), out)
    return int(_read(device, out, sums).sum()) == int(values.sum())


def _transpose(device: Device, size: int, kernel: str) -> bool:
    import numpy as np

    a = _floats(size * size).reshape(size, size)
    out = _output(device, a)
    device.kernels[kernel](device.queue, (size, size), (TILE, TILE), *_inputs(device, a), out, np.int32(size))
    return bool(np.array_equal(_read(device, out, np.empty_like(a)), a.T))


def transpose_naive(device: Device, size: int) -> bool:
    """Transpose with uncoalesced writes: neighbouring work-items write ``size`` elements apart."""
    return _transpose(device, size, "transpose_naive")


def transpose_tiled(device: Device, size: int) -> bool:
    """Transpose through local memory: reads and writes are both coalesced."""
    return _transpose(device, size, "transpose_tiled")


def bfs(device: Device, size: int) -> bool:
    """Search a binary tree of ``size`` nodes from its root: one launch a level, and one that finds no more."""
    import numpy as np
    import pyopencl as cl

    first = np.minimum(np.arange(size + 1) * 2, size - 1).astype(np.int32)
    edges = np.arange(1, size, dtype=np.int32)
    depth = np.full(size, -1, dtype=np.int32)
    depth[0] = 0
    expected = np.floor(np.log2(np.arange(size) + 1)).astype(np.int32)

    nodes = _inputs(device, first, edges)
    changed = np.empty(1, dtype=np.int32)
    flags = cl.mem_flags
    depths = cl.Buffer(device.context, flags.READ_WRITE | flags.COPY_HOST_PTR, hostbuf=depth)
    any_changed = cl.Buffer(device.context, flags.READ_WRITE, changed.nbytes)
    level, found = 0, True
    while found:
        cl.enqueue_fill_buffer(device.queue, any_changed, np.zeros(1, dtype=np.int32), 0, changed.nbytes)
        device.kernels["bfs_level"](device.queue, (size,), None, *nodes, depths, np.int32(level), any_changed)
        found = bool(_read(device, any_changed, changed)[0])
        level += 1
    return bool(np.array_equal(_read(device, depths, depth), expected))


PROGRAMS: dict[str, Callable[[Device, int], bool]] = {
    "vector_add": vector_add,
    "matmul": matmul,
    "reduction": reduction,
    "transpose_naive": transpose_naive,
    "transpose_tiled": transpose_tiled,
    "bfs": bfs,
}


def _size(text: str) -> int:
    if not text.isdecimal() or int(text) < TILE or int(text) % TILE:
        raise argparse.ArgumentTypeError(f"{text} is not a multiple of {TILE}")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the kernels; returns the exit status: 1 when a result is wrong, 2 when there is no device."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--size", type=_size, default=256, help=f"edge of the matrices, a multiple of {TILE}")
    parser.add_argument("--repeat", type=int, default=1, help="how often to run each")
    parser.add_argument("--device", help="part of the name of the platform or device")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=f"some of {', '.join(PROGRAMS)} (default: all)")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.programs if name not in PROGRAMS]
    if unknown:
        parser.error(f"no program is called {unknown[0]}")
    try:
        device = open_device(options.device)
    except LookupError as error:
        print(f"opencl_kernels: {error}", file=sys.stderr)
        return 2
    names = options.programs or list(PROGRAMS)
    wrong = [name for name in names for _ in range(options.repeat) if not PROGRAMS[name](device, options.size)]
    print(f"{', '.join(wrong)}: wrong result" if wrong else f"{len(names)} programs: results correct")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
