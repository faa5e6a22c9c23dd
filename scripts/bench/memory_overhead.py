"""Overhead of the NVIDIA memory pass beside native and the floor, an empty patch, interleaved in one run.

    python scripts/bench/memory_overhead.py [--rounds 3] [--repeat 3] [--workloads a,b] [-o FILE]

The floor instruments every global access and asynchronous copy with a patch that returns at once: what no tool on the
Sanitizer API gets below while it instruments every launch.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from harness import PASTA, ROOT, Variant, report, run_interleaved, to_rows

HERE = Path(__file__).parent

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


def main() -> None:
    """Run everything and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="processes of each variant")
    parser.add_argument("--repeat", type=int, default=3, help="measurements a process")
    parser.add_argument("--workloads", default="launch_loop,resnet18,resnet18_train,bert,gpt2,gpt2_train")
    parser.add_argument("--variants", default="", help="a comma list; default: all")
    parser.add_argument("-o", "--output", type=Path, default=HERE / "results" / "memory_overhead.json")
    options = parser.parse_args()
    import torch

    sys.path.insert(0, str(ROOT))
    with tempfile.TemporaryDirectory() as folder:
        chosen = [v for v in variants(Path(folder)) if not options.variants or v.name in options.variants.split(",")]
        command = [
            sys.executable, str(HERE / "memory_workloads.py"), "--workloads", options.workloads,
            "--repeat", str(options.repeat),
        ]  # fmt: skip
        samples = run_interleaved(command, chosen, options.rounds)
    report(to_rows(samples), f"{torch.cuda.get_device_name(0)}, CUDA {torch.version.cuda}", options.output)


if __name__ == "__main__":
    main()
