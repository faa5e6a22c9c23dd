"""Overhead of the NVIDIA timing pass beside native, the CUPTI floor and other profilers, interleaved in one run.

    python scripts/bench/overhead.py [--rounds 3] [--repeat 3] [--workloads a,b] [-o results/overhead.json]
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from harness import PASTA, ROOT, Variant, report, run_interleaved, to_rows

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


def variants(folder: Path) -> list[Variant]:
    """Return every variant that this machine can run."""

    def pasta(name: str, *options: str) -> Variant:
        trace = folder / f"{name}.pasta"

        def bytes_per_kernel() -> dict[str, float]:
            from pasta.trace import Trace

            with Trace.open(trace) as opened:
                kernels = opened.manifest["rows"].get("kernel", 0)
            return {"bytes_per_kernel": trace.stat().st_size / max(kernels, 1)}

        return Variant(name, [*PASTA, "record", "-q", "-f", "-o", str(trace), *options, "--"], after=bytes_per_kernel)

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
        nsys = ["nsys", "profile", "-t", "cuda", "-f", "true", "-o", str(folder / "nsys")]
        found.append(Variant("nsys", nsys))
    return found


def main() -> None:
    """Run everything and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="processes of each variant")
    parser.add_argument("--repeat", type=int, default=3, help="measurements a process")
    parser.add_argument("--workloads", default="launch_loop,resnet50_train,gpt2_train,compiled_mlp,graph_replay")
    parser.add_argument("--variants", default="", help="a comma list; default: all")
    parser.add_argument("-o", "--output", type=Path, default=HERE / "results" / "overhead.json")
    options = parser.parse_args()
    import torch

    sys.path.insert(0, str(ROOT))
    with tempfile.TemporaryDirectory() as folder:
        chosen = [v for v in variants(Path(folder)) if not options.variants or v.name in options.variants.split(",")]
        command = [
            sys.executable, str(HERE / "gpu_workloads.py"), "--workloads", options.workloads,
            "--repeat", str(options.repeat),
        ]  # fmt: skip
        samples = run_interleaved(command, chosen, options.rounds)
    report(to_rows(samples), f"{torch.cuda.get_device_name(0)}, CUDA {torch.version.cuda}", options.output)


if __name__ == "__main__":
    main()
