"""The workloads of opencl_memory_overhead.py: loops of launches; prints one JSON line a measurement.

Each measurement has a program of its own, built and launched once (with another global size) before the clock starts,
and a queue of its own that is given back before it stops: with ``--memory`` its counts have then been read and written.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

os.environ["PYOPENCL_NO_CACHE"] = "1"  # as --memory has it: native builds as often as the rest

import numpy as np
import pyopencl as cl
import pyopencl.array

from pasta.demo.opencl_kernels import GROUP, SOURCE, TILE, open_device

SORTED = 1 << 14  # elements


class Demo(NamedTuple):
    """A kernel of pasta.demo.opencl_kernels. Its launches make half a million accesses: a trace holds a million."""

    edge: int  # of its matrices; vectors have its square
    buffers: int
    has_matrices: bool


KERNELS = {
    "vector_add": Demo(512, 3, False),
    "matmul": Demo(64, 3, True),
    "reduce": Demo(256, 2, False),
    "transpose_naive": Demo(512, 2, True),
    "transpose_tiled": Demo(256, 2, True),
}


def timed(context: Any, loop: Callable[[Any], None]) -> float:
    """Return the seconds that ``loop`` takes with a queue of its own."""
    began = time.perf_counter()
    queue = cl.CommandQueue(context)
    loop(queue)
    queue.finish()
    del queue
    return time.perf_counter() - began


def demo(context: Any, name: str, launches: int) -> float:
    """Return microseconds a launch of a demo kernel."""
    edge, buffers, has_matrices = KERNELS[name]
    program = cl.Program(context, SOURCE).build([f"-DTILE={TILE}", f"-DGROUP={GROUP}"])
    kernel = cl.Kernel(program, name)
    data = np.zeros(edge * edge, np.float32)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    memory = [cl.Buffer(context, flags, hostbuf=data) for _ in range(buffers)]
    kernel.set_args(*memory, *[np.int32(edge)] * has_matrices)
    shape, group = ((edge, edge), (TILE, TILE)) if has_matrices else ((edge * edge,), (GROUP,))
    first = (*shape[:-1], shape[-1] // 2)
    timed(context, lambda queue: cl.enqueue_nd_range_kernel(queue, kernel, first, group))

    def loop(queue: Any) -> None:
        for _ in range(launches):
            cl.enqueue_nd_range_kernel(queue, kernel, shape, group)

    return timed(context, loop) / launches * 1e6


def sort(context: Any, launches: int) -> float:
    """Return microseconds a launch of pyopencl's radix sort, some of which another size has launched before."""
    from pyopencl.algorithm import RadixSort

    by_key = RadixSort(context, "int *ary", key_expr="ary[i]", sort_arg_names=["ary"], key_dtype=np.int32)
    numbers = (np.arange(SORTED, dtype=np.int64) * 2654435761 % 65536).astype(np.int32)
    counted = 0
    launch = cl._cl.enqueue_nd_range_kernel

    def counting(*arguments: Any, **options: Any) -> Any:
        nonlocal counted
        counted += 1
        return launch(*arguments, **options)

    def loop(queue: Any, elements: int) -> None:
        nonlocal counted
        counted = 0
        while counted < launches:
            by_key(cl.array.to_device(queue, numbers[:elements]), key_bits=16, queue=queue)

    cl._cl.enqueue_nd_range_kernel = counting
    timed(context, lambda queue: loop(queue, SORTED // 4))
    seconds = timed(context, lambda queue: loop(queue, SORTED))
    cl._cl.enqueue_nd_range_kernel = launch
    return seconds / counted * 1e6


def main() -> None:
    """Measure each workload ``--repeat`` times."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--launches", type=int, default=100)
    parser.add_argument("--workloads", default=",".join([*KERNELS, "sort"]))
    parser.add_argument("--device", default=None)
    options = parser.parse_args()
    context = open_device(options.device).context
    for name in options.workloads.split(","):
        for _ in range(options.repeat):
            value = sort(context, options.launches) if name == "sort" else demo(context, name, options.launches)
            print(json.dumps({"workload": name, "unit": "us/launch", "value": value}), flush=True)


if __name__ == "__main__":
    main()
