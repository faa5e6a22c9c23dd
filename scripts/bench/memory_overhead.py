"""Overhead of the NVIDIA memory pass beside native and the floor, an empty patch, interleaved in one run.

    python scripts/bench/memory_overhead.py [--rounds 2] [--repeat 4] [--workloads a,b] [--accelprof DIR] [-o FILE]

The floor instruments every global access and asynchronous copy with a patch that returns at once: what no tool on the
Sanitizer API gets below while it instruments every launch. `trace-cpu` writes every access and analyses the trace on
the CPU, which is part of its time. `--accelprof` is a built checkout of AccelProf, whose tools analyse as they go; it
does not patch asynchronous copies, so it has fewer accesses to analyse.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from harness import PASTA, ROOT, Variant, compare_on_gpu
from memory_workloads import WORKLOADS

#: Name of the variant -> what PASTA_MEMORY and PASTA_SAMPLE are set to.
SELECTIONS = {
    "floor": {"PASTA_MEMORY": "floor"},
    "objects": {"PASTA_MEMORY": "objects"},
    "objects+sites+blocks": {"PASTA_MEMORY": "objects,sites,blocks"},
    "all": {"PASTA_MEMORY": "all"},
    "sample3": {"PASTA_MEMORY": "objects,sites,blocks", "PASTA_SAMPLE": "3"},
    "trace-cpu": {"PASTA_MEMORY": "trace", "PASTA_MEMORY_BUFFER": "2G"},
}
SAMPLED = frozenset(name for name in WORKLOADS if name.endswith("_50"))
SMALL = frozenset(["resnet18_small"])  # what a CPU analyses in minutes
EVERY = frozenset(WORKLOADS) - SAMPLED
#: Variants that are not for every workload that is not sampled.
ONLY = {"native": None, "sample3": SAMPLED, "trace-cpu": SMALL, "accelprof-app_analysis_cpu": SMALL}

# AccelProf takes the program's outputs away, and finds torch only in a program called python3.
ACCELPROF = 'cd "$1" && exec "$2" -t "$3" -o "$1" python3 "${@:5}" --output /dev/fd/3 3>&1 >&2'


def sanitizer_libraries() -> list[Path]:
    """Return the Sanitizer libraries of this Python's wheels."""
    places = [Path(entry) for entry in sys.path if entry]
    names = ("nvidia/*/compute-sanitizer/libsanitizer-public.so", "nvidia/*/lib/libsanitizer-public.so")
    return [path for place in places for name in names for path in sorted(place.glob(name))]


def accelprof(home: Path, tool: str, folder: Path, timeout_s: float) -> Variant:
    """Return a tool of AccelProf; it loads the Sanitizer library that pasta takes, unless LD_LIBRARY_PATH has one."""
    import torch

    name = f"accelprof-{tool}"
    output = folder / name
    output.mkdir()
    libraries = [os.environ.get("LD_LIBRARY_PATH", ""), *(str(path.parent) for path in sanitizer_libraries()[:1])]
    libraries += ["/usr/local/cuda/compute-sanitizer", str(Path(torch.__file__).parent / "lib")]
    variables = {
        "ACCEL_PROF_HOME": str(home),
        "LD_LIBRARY_PATH": ":".join(filter(None, libraries)),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    prefix = ["bash", "-c", ACCELPROF, "bash", str(output), str(home / "bin" / "accelprof"), tool]
    return Variant(name, prefix, variables, workloads=ONLY.get(name, EVERY), timeout_s=timeout_s)


def variants(folder: Path, options: argparse.Namespace) -> list[Variant]:
    """Return native, every selection, and AccelProf's tools."""
    hints = {"PASTA_SANITIZER_HINTS": ":".join(map(str, sanitizer_libraries()))}
    found = [Variant("native")]
    for name, selection in SELECTIONS.items():
        trace = folder / f"{name}.pasta"
        prefix = [*PASTA, "record", "-q", "-f", "-o", str(trace), "--"]
        found.append(
            Variant(name, prefix, hints | selection, workloads=ONLY.get(name, EVERY), timeout_s=options.timeout)
        )

    def analyse() -> None:
        command = [*PASTA, "analyze", "-t", "workingset", "--from", "trace", str(folder / "trace-cpu.pasta")]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT, timeout=options.timeout)

    found[-1].analyse = analyse
    if options.accelprof is not None:
        tools = ("app_metric", "app_analysis", "app_analysis_cpu")
        found += [accelprof(options.accelprof.resolve(), tool, folder, options.timeout) for tool in tools]
    return found


if __name__ == "__main__":
    assert __doc__ is not None
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--accelprof", type=Path, help="a built checkout of AccelProf")
    parser.add_argument("--timeout", type=float, default=180, help="seconds that a process may take")
    names = ",".join(WORKLOADS)
    compare_on_gpu(__doc__, "memory_workloads.py", names, variants, "memory_overhead.json", parser)
