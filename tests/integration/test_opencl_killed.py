"""A program that is killed amid launches leaves everything up to its last second, sealed or not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from opencl_run import need_intel
from recorded import PASTA, environment

from pasta.trace import Trace

SECOND = 1_000_000_000

#: Launches in groups of 1,000, waits for each group, and says how many are done and when (CLOCK_MONOTONIC).
LOOP = """
import time
import pyopencl as cl
device = next(p for p in cl.get_platforms() if "Intel" in p.name).get_devices()[0]
context = cl.Context([device])
queue = cl.CommandQueue(context)
kernel = cl.Kernel(cl.Program(context, "kernel void f(global int *a) { a[get_global_id(0)] += 1; }").build(), "f")
buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, 256)
kernel.set_args(buffer)
done = 0
while True:
    for _ in range(1000):
        cl.enqueue_nd_range_kernel(queue, kernel, (64,), (64,))
    queue.finish()
    done += 1000
    print(done, time.monotonic_ns(), flush=True)
"""


@pytest.mark.parametrize("victim", ["program", "pasta and program"])
def test_all_but_the_last_second_is_there(victim: str, tmp_path: Path) -> None:
    variables = environment(**need_intel().variables)
    output = tmp_path / "t.pasta"
    command = [*PASTA, "record", "-q", "-o", output, "--", sys.executable, "-c", LOOP]
    pasta = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables)
    assert pasta.stdout is not None
    progress: list[tuple[int, int]] = []
    while not progress or progress[-1][0] < 10_000 or progress[-1][1] - progress[0][1] < 2 * SECOND:
        done, at = pasta.stdout.readline().split()
        progress.append((int(done), int(at)))
    child = int(Path(f"/proc/{pasta.pid}/task/{pasta.pid}/children").read_text().split()[0])
    if victim != "program":
        pasta.kill()
    os.kill(child, signal.SIGKILL)
    killed = progress[-1][1]
    pasta.wait(timeout=60)
    pasta.stdout.read()  # until the program is gone
    if victim == "program":
        assert pasta.returncode == -signal.SIGKILL
    at_least = max(done for done, at in progress if at < killed - SECOND)
    with Trace.open(output) as trace:
        launches = trace.kernel.collect()
        ended = trace.table("process").collect()
    assert at_least <= launches.height
    assert launches["launch_id"].n_unique() == launches.height
    assert ended["how_ended"].to_list() == ["killed"]
    # The command line reads it too, and says that the end may be missing.
    info = subprocess.run([*PASTA, "info", output, "-f", "json"], capture_output=True, text=True, env=variables)
    assert any("ended without" in loss["cause"] for loss in json.loads(info.stdout)["loss"]), info.stdout
    query = [*PASTA, "analyze", output, "--tool", "kernels", "-f", "json"]
    analyzed = json.loads(subprocess.run(query, capture_output=True, text=True, env=variables).stdout)
    assert analyzed["tables"][0]["rows"][0]["calls"] == launches.height
