"""Overhead of the NVIDIA memory pass beside native and the floor, an empty patch, interleaved in one run.

    python scripts/bench/memory_overhead.py [--rounds 2] [--repeat 4] [--workloads a,b] [-o FILE]

The floor instruments every global access and asynchronous copy with a patch that returns at once: what no tool on the
Sanitizer API gets below while it instruments every launch.
"""

from __future__ import annotations

import sys
from pathlib import Path

from harness import PASTA, Variant, compare_on_gpu

#: Name of the variant -> what PASTA_MEMORY and PASTA_SAMPLE are set to.
SELECTIONS = {
    "floor": {"PASTA_MEMORY": "floor"},
    "objects": {"PASTA_MEMORY": "objects"},
    "objects+sites+blocks": {"PASTA_MEMORY": "objects,sites,blocks"},
    "all": {"PASTA_MEMORY": "all"},
    "sample3": {"PASTA_MEMORY": "objects,sites,blocks", "PASTA_SAMPLE": "3"},
}


def sanitizer_libraries() -> str:
    """Return the Sanitizer libraries of this Python's wheels, a colon list."""
    places = [Path(entry) for entry in sys.path if entry]
    names = ("nvidia/*/compute-sanitizer/libsanitizer-public.so", "nvidia/*/lib/libsanitizer-public.so")
    return ":".join(str(path) for place in places for name in names for path in sorted(place.glob(name)))


def variants(folder: Path) -> list[Variant]:
    """Return native and every selection."""
    found = [Variant("native")]
    for name, selection in SELECTIONS.items():
        prefix = [*PASTA, "record", "-q", "-f", "-o", str(folder / f"{name}.pasta"), "--"]
        found.append(Variant(name, prefix, {"PASTA_SANITIZER_HINTS": sanitizer_libraries(), **selection}))
    return found


if __name__ == "__main__":
    assert __doc__ is not None
    compare_on_gpu(
        __doc__, "memory_workloads.py", "launch_loop,resnet18,resnet18_train,bert,gpt2,gpt2_train", variants,
        "memory_overhead.json",
    )  # fmt: skip
