"""The traces that the tests of the command line use, made by ``TraceWriter`` of rows that are known.

``a.pasta``: one process, three launches of ``gemm`` (10, 20 and 30 µs) and one of ``copy`` (40 µs): 100 µs of kernels.
``b.pasta``: the same, but the last ``gemm`` takes 90 µs, and ``copy`` is called ``fill``.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import polars as pl

from pasta.trace import TraceWriter

MICROSECOND = 1000


def write_samples(folder: Path) -> None:
    """Write all sample inputs, good and bad, into ``folder``."""
    write_trace(folder / "a.pasta", last_gemm=30, other="copy")
    write_trace(folder / "b.pasta", last_gemm=90, other="fill")
    write_trace(folder / "dir.pasta", last_gemm=30, other="copy", form="dir")
    with TraceWriter(folder / "norows.pasta"):
        pass
    data = (folder / "a.pasta").read_bytes()
    (folder / "cut.pasta").write_bytes(data[: len(data) // 2])
    (folder / "empty.pasta").write_bytes(b"")
    (folder / "text.pasta").write_text("this is no trace\n")
    (folder / "flipped.pasta").write_bytes(flipped(data))
    newer = folder / "newer.pasta"
    shutil.copytree(folder / "dir.pasta", newer)
    manifest = json.loads((newer / "manifest.json").read_text())
    (newer / "manifest.json").write_text(json.dumps(manifest | {"schema_version": 999}))
    (folder / "emptydir.pasta").mkdir()
    (folder / "mine.py").write_text(TOOL)
    (folder / "broken.py").write_text("import nowhere_at_all\n")
    (folder / "two words.pasta").write_bytes(data)
    (folder / "kineto.json").write_text(json.dumps(KINETO))
    (folder / "taken").write_text("mine")


def write_trace(path: Path, last_gemm: int, other: str, form: str = "file") -> None:
    durations = [10, 20, last_gemm, 40]
    starts = [0, 100, 200, 400]
    rows = len(durations)
    kernels = pl.DataFrame(
        {
            "pid": [1] * rows,
            "rank": [0] * rows,
            "thread_id": [1] * rows,
            "device_id": [0] * rows,
            "stream_id": [0] * rows,
            "start_ns": [s * MICROSECOND for s in starts],
            "end_ns": [(s + d) * MICROSECOND for s, d in zip(starts, durations, strict=True)],
            "name": ["gemm", "gemm", "gemm", other],
            "correlation_id": list(range(rows)),
            "launch_id": list(range(rows)),
        }
    )
    launches = kernels.select("pid", "rank", "thread_id", "start_ns", "correlation_id").with_columns(
        end_ns=pl.col("start_ns") + MICROSECOND, name=pl.lit("clEnqueueNDRangeKernel"), api=pl.lit("opencl")
    )
    process = {"pid": [1], "rank": [0], "start_ns": [0], "end_ns": [600 * MICROSECOND], "command": ["./solver input"]}
    device = {"pid": [1], "rank": [0], "device_id": [0], "name": ["Test Device"], "kind": ["gpu"]}
    step = {"pid": [1], "rank": [0], "thread_id": [1], "start_ns": [0], "end_ns": [150 * MICROSECOND]}
    with TraceWriter(path, form="dir" if form == "dir" else "file") as writer:
        writer.append("process", pl.DataFrame({**process, "exit_status": [0], "how_ended": ["exit"]}))
        writer.append("device", pl.DataFrame(device))
        writer.append("kernel", kernels)
        writer.append("api", launches)
        writer.append("range", pl.DataFrame({**step, "name": ["step"], "kind": ["push_pop"]}))
        writer.append(
            "loss", pl.DataFrame({"pid": [1], "source": ["opencl"], "table": ["memcpy"], "cause": ["asleep"]})
        )
        writer.manifest.update(command=["./solver", "input"], options={"trace": "kernel,api,range"})


def flipped(data: bytes) -> bytes:
    """Return ``data`` with the bytes of its middle third inverted."""
    third = len(data) // 3
    return data[:third] + bytes(byte ^ 0xFF for byte in data[third : 2 * third]) + data[2 * third :]


TOOL = """
from dataclasses import dataclass
import polars as pl
from pasta.tools import Result, ResultColumn, ResultTable, Tool, ToolOptions, option

class Mine(Tool):
    name, summary, needs = "mine", "counts launches", {"kernel"}

    @dataclass(frozen=True)
    class Options(ToolOptions):
        add: int = option(0, "number to add")

    def run(self, trace, options):
        rows = trace.table("kernel").select(launches=pl.len() + options.add).collect()
        return Result("mine", [ResultTable("mine", rows, (ResultColumn("launches", "count"),))])
"""

KINETO = {
    "schemaVersion": 1,
    "traceEvents": [
        {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 10.0, "dur": 5.0}
        | {"args": {"device": 0, "stream": 7, "correlation": 3}},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 100, "tid": 100, "ts": 1.0, "dur": 2.0}
        | {"args": {"correlation": 3}},
    ],
}
