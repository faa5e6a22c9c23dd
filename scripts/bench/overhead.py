"""Overhead of the NVIDIA timing pass beside native, the CUPTI floor and other profilers, interleaved in one run.

    python scripts/bench/overhead.py [--rounds 2] [--repeat 4] [--workloads a,b] [-o results/overhead.json]
    python scripts/bench/table.py results/overhead.json      the same as a table in Markdown

A process runs each workload in a fork of its own, which makes a trace of its own: bytes_per_kernel is its size on the
disk, divided by its kernels.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

from harness import PASTA, Variant, compare_on_gpu

HERE = Path(__file__).parent


def build_floor(folder: Path) -> Path | None:
    """Compile the bare injection against the CUPTI that torch uses; None when there is no compiler or header."""
    headers = [p for d in sys.path if d for p in Path(d).glob("nvidia/*/include") if (p / "cupti.h").exists()]
    headers += [p for p in [Path("/usr/local/cuda/extras/CUPTI/include")] if (p / "cupti.h").exists()]
    libraries = [p for d in sys.path if d for p in sorted(Path(d).glob("nvidia/*/lib/libcupti.so.*"))]
    if not headers or not libraries:
        return None
    library = folder / "libfloor.so"
    includes = [f"-I{p}" for p in [*headers, "/usr/local/cuda/include"]]
    subprocess.run(
        ["g++", "-O2", "-shared", "-fPIC", *includes, HERE / "cupti_floor.cpp", "-o", library, libraries[0],
         f"-Wl,-rpath,{libraries[0].parent}"], check=True,
    )  # fmt: skip
    return library


def variants(folder: Path, _: argparse.Namespace) -> list[Variant]:
    """Return every variant that this machine can run."""

    def pasta(name: str, *options: str) -> Variant:
        output = folder / f"{name}.pasta"

        def bytes_per_kernel(workload: str) -> dict[str, float]:
            from pasta.trace import Trace

            trace = output.with_stem(f"{name}-{workload}")  # see gpu_workloads.py
            with Trace.open(trace) as opened:
                kernels = opened.manifest["rows"].get("kernel", 0)
            return {"bytes_per_kernel": trace.stat().st_size / kernels} if kernels else {}

        return Variant(name, [*PASTA, "record", "-q", "-f", "-o", str(output), *options, "--"], after=bytes_per_kernel)

    found = [Variant("native")]
    floor = build_floor(folder)
    if floor is not None:
        found.append(Variant("floor", environment={"CUDA_INJECTION64_PATH": str(floor)}))
    found += [
        pasta("pasta", "-t", "cuda"),
        pasta("pasta-kernel", "-t", "kernel"),
        pasta("pasta-torch"),
        Variant("torch.profiler-cuda", arguments=["--profiler", "torch.profiler-cuda"]),
        Variant("torch.profiler-cpu-cuda", arguments=["--profiler", "torch.profiler-cpu-cuda"]),
    ]
    if importlib.util.find_spec("triton") is not None:
        found.append(Variant("proton", arguments=["--profiler", "proton"]))
    if shutil.which("nsys"):
        options = ["-t", "cuda", "--trace-fork-before-exec=true", "-f", "true", "-o", str(folder / "nsys")]
        found.append(Variant("nsys", ["nsys", "profile", *options]))
    return found


if __name__ == "__main__":
    assert __doc__ is not None
    workloads = "launch_loop,resnet50_train,gpt2_train,compiled_mlp,graph_replay"
    compare_on_gpu(__doc__, "gpu_workloads.py", workloads, variants, "overhead.json")
