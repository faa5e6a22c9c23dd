"""Runs kernels on Oclgrind and prints what its plug-in counted: JSON on stdin, JSON on stdout.

A process of its own, because an OpenCL loader reads its list of drivers once. Input: a list of
{source, kernel, global, local, arguments}; an argument is {"buffer": hex}, {"local": bytes} or {"int": value}.
Output: for each, {"counts": {argument: [loads, load bytes, stores, store bytes, atomics]}, "buffers": {argument: hex}};
the key "local" stands for all local memory.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from typing import Any

import numpy as np
import pyopencl as cl


class CapturedStderr:
    """The lines that native code writes to stderr meanwhile."""

    def __enter__(self) -> CapturedStderr:
        self.file = tempfile.TemporaryFile()
        self.saved = os.dup(2)
        os.dup2(self.file.fileno(), 2)
        return self

    def __exit__(self, *_: object) -> None:
        os.dup2(self.saved, 2)
        os.close(self.saved)
        self.file.seek(0)
        self.lines = self.file.read().decode().splitlines()
        os.write(2, "\n".join(line for line in self.lines if not line.startswith("COUNT")).encode())


def buffer_number(target: cl.Buffer, context: cl.Context, queue: cl.CommandQueue) -> int:
    """The simulator's number of a buffer: that of the only one that a kernel writes to."""
    probe = cl.Program(context, "kernel void probe(global char *p) { p[0] = 1; }").build()
    with CapturedStderr() as seen:
        probe.probe(queue, (1,), (1,), target)
        queue.finish()
    return next(int(line.split()[2]) for line in seen.lines if line.startswith("COUNT 1 "))


def run(case: dict[str, Any], context: cl.Context, queue: cl.CommandQueue) -> dict[str, Any]:
    arguments, buffers, argument_of = [], {}, {}
    for number, argument in enumerate(case["arguments"]):
        if "buffer" in argument:
            data = np.frombuffer(bytes.fromhex(argument["buffer"]), np.uint8)
            buffers[number] = cl.Buffer(context, cl.mem_flags.READ_WRITE, data.nbytes)
            argument_of[buffer_number(buffers[number], context, queue)] = number
            cl.enqueue_copy(queue, buffers[number], data)
            arguments.append(buffers[number])
        elif "local" in argument:
            arguments.append(cl.LocalMemory(argument["local"]))
        else:
            arguments.append(np.int32(argument["int"]))
    # Without optimisation, so that every access of the source is executed.
    program = cl.Program(context, case["source"]).build("-cl-opt-disable")
    with CapturedStderr() as seen:
        getattr(program, case["kernel"])(queue, case["global"], case["local"], *arguments)
        queue.finish()
    counts: dict[str, list[int]] = {}
    for line in seen.lines:
        if not line.startswith("COUNT"):
            continue
        space, number, *values = map(int, line.split()[1:])
        key = str(argument_of.get(number, f"buffer {number}")) if space == 1 else "local"
        if space in (1, 3):
            counts[key] = [a + b for a, b in zip(counts.get(key, [0] * 5), values, strict=True)]
    contents = {}
    for number, source in buffers.items():
        out = np.empty(source.size, np.uint8)
        cl.enqueue_copy(queue, out, source)
        queue.finish()
        contents[str(number)] = out.tobytes().hex()
    return {"counts": counts, "buffers": contents}


def main() -> None:
    platform = next(p for p in cl.get_platforms() if "Oclgrind" in p.name)
    context = cl.Context(platform.get_devices())
    queue = cl.CommandQueue(context)
    json.dump([run(case, context, queue) for case in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    main()
