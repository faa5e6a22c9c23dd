"""Measure the import of a large PyTorch trace: MB/s of JSON on one core, and the peak of resident memory.

    python scripts/bench/kineto_import.py --megabytes 1000

writes a file of that size by repeating one training step in the layout of today's Kineto (operators two deep with
shapes, a runtime call, a kernel and an arrow for each, Python frames, memory events) with new times and ids, then
imports it in a process of its own with one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

KERNEL = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >"
)
HEADER = """{
  "schemaVersion": 1,
  "deviceProperties": [{"id": 0, "name": "NVIDIA H100", "totalGlobalMem": 85018279936, "warpSize": 32, "numSms": 132}],
  "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1},
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1767189312000000000,
  "traceEvents": [
"""
FOOTER = """  {
    "ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 1.000
  }
  ],
  "traceName": "synthetic.json"
}
"""


def launch(number: int) -> str:
    """One operator within another, with its call, kernel, arrow, memory event and a Python frame: 10 events."""
    start = 1_000_000_000 + number * 50
    outer, inner = 2 * number + 1, 2 * number + 2
    host = '"pid": 4711, "tid": 4711'
    shapes = '"Input type": ["float", "float"], "Input Strides": [[1024, 1], [1]], "Input Dims": [[64, 1024], [1024]]'
    frame = f'"Python parent id": {number or "null"}, "Python id": {number + 1}, "Ev Idx": {number}'
    device = f'"device": 0, "context": 1, "stream": 7, "correlation": {number + 1}'
    occupancy = '"registers per thread": 32, "shared memory": 0, "blocks per SM": 1.9, "warps per SM": 15.5'
    shape = '"grid": [256, 1, 1], "block": [256, 1, 1], "est. achieved occupancy %": 24'
    memory = f'"Total Reserved": 2097152, "Total Allocated": 1048576, "Bytes": {-512 if number % 2 else 512}'

    def event(kind: str, category: str, name: str, where: str, at: int, length: int, args: str) -> str:
        times = f'"ts": {start + at}.{number % 1000:03}, "dur": {length}.250'
        head = f'"ph": "{kind}", "cat": "{category}", "name": "{name}", {where}'
        return f'  {{\n    {head},\n    {times},\n    "args": {{\n      {args}\n    }}\n  }},\n'

    def arrow(kind: str, where: str, at: int) -> str:
        bind = ', "bp": "e"' if kind == "f" else ""
        head = f'"ph": "{kind}", "id": {number + 1}, {where}, "ts": {start + at}.000'
        return f'  {{\n    {head},\n    "cat": "ac2g", "name": "ac2g"{bind}\n  }},\n'

    def operator(identity: int) -> str:
        return f'"External id": {identity},"Record function id": 0, {shapes}, "Ev Idx": {identity}'

    return "".join(
        (
            event("X", "python_function", f"model.py({number % 900}): forward", host, 0, 45, frame),
            event("X", "cpu_op", "aten::linear", host, 2, 40, operator(outer)),
            event("X", "cpu_op", "aten::addmm", host, 5, 30, operator(inner)),
            event("i", "cpu_instant_event", "[memory]", host, 6, 0, f'{memory}, "Addr": 140000000, "Device Type": 1'),
            event(
                "X", "cuda_runtime", "cudaLaunchKernel", host, 8, 6, f'"External id": {inner}, "cbid": 211, {device}'
            ),
            arrow("s", host, 8),
            event(
                *("X", "kernel", KERNEL, '"pid": 0, "tid": 7', 16, 9),
                f'"External id": {inner}, "queued": 0, {device}, {occupancy}, {shape}',
            ),
            arrow("f", '"pid": 0, "tid": 7', 16),
        )
    )


def generate(path: Path, size: int) -> int:
    """Write about ``size`` bytes of trace to ``path`` and return how many launches it has."""
    number = 0
    with open(path, "w", encoding="utf-8") as file:
        written = file.write(HEADER)
        while written < size:
            written += file.write("".join(launch(number + index) for index in range(1000)))
            number += 1000
        file.write(FOOTER)
    return number


def measure(path: Path, output: Path) -> Iterator[tuple[str, float]]:
    """Import ``path`` and yield what it took; run it in a fresh process, as resident memory never shrinks."""
    from pasta.importers import import_files

    clock, cpu = time.perf_counter(), time.process_time()
    summary = import_files([path], output)
    yield "seconds", time.perf_counter() - clock
    yield "cpu_seconds", time.process_time() - cpu
    yield "peak_rss_mib", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    yield "megabytes", path.stat().st_size / 1e6
    yield "trace_megabytes", output.stat().st_size / 1e6
    yield from ((f"rows.{table}", rows) for table, rows in summary.rows.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=200, help="size of the JSON file")
    parser.add_argument("--threads", type=int, default=1, help="threads of polars")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(dict(measure(options.measure, options.measure.with_suffix(".pasta")))))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "synthetic.json"
        launches = generate(path, options.megabytes * 1_000_000)
        environment = os.environ | {"POLARS_MAX_THREADS": str(options.threads)}
        command = [sys.executable, __file__, "--measure", str(path)]
        result = json.loads(subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout)
    expected = {"rows.op": 2 * launches, "rows.kernel": launches, "rows.api": launches, "rows.tensor": launches}
    assert expected.items() <= result.items(), (expected, result)
    print(f"{result['megabytes']:.0f} MB, {launches} launches: {result['megabytes'] / result['seconds']:.1f} MB/s")
    print(
        f"{result['cpu_seconds']:.1f} s of CPU time in {result['seconds']:.1f} s; peak {result['peak_rss_mib']:.0f} MiB"
    )
    print(f"trace of {result['trace_megabytes']:.1f} MB")


if __name__ == "__main__":
    main()
