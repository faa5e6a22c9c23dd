"""The workload of opencl_overhead.py: 10,000 launches of a 64-item kernel; prints one JSON line a measurement."""

from __future__ import annotations

import argparse
import json
import time

import pyopencl as cl

LAUNCHES = 10_000


def main() -> None:
    """Measure wall time a launch, waiting included, ``--repeat`` times on each device whose name holds ``--device``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--device", default="")
    options = parser.parse_args()
    for platform in cl.get_platforms():
        for device in platform.get_devices():
            if options.device not in platform.name or "Oclgrind" in platform.name:
                continue  # the simulator takes 0.2 ms a launch: pasta's part would not show
            context = cl.Context([device])
            queue = cl.CommandQueue(context)
            program = cl.Program(context, "kernel void k(global int *a) { a[get_global_id(0)] += 1; }").build()
            kernel = cl.Kernel(program, "k")
            buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4096)
            kernel.set_args(buffer)

            def loop() -> float:
                began = time.perf_counter()
                for _ in range(LAUNCHES):
                    cl.enqueue_nd_range_kernel(queue, kernel, (64,), (64,))  # noqa: B023
                queue.finish()  # noqa: B023
                return (time.perf_counter() - began) / LAUNCHES * 1e6

            loop()
            for _ in range(options.repeat):
                print(json.dumps({"workload": platform.name, "unit": "us/launch", "value": loop()}), flush=True)


if __name__ == "__main__":
    main()
