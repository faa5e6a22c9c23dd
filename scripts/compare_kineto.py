"""Compare pasta's record of kernels with torch.profiler's on the same training steps; needs an NVIDIA GPU.

    python scripts/compare_kineto.py [--steps 10] [--models resnet18,gpt2]

The same deterministic steps of ResNet-18 and GPT-2 small (random weights, nothing is downloaded) run in two fresh
processes, one under torch.profiler and one under ``pasta record``, which collect the kernels of the steps after the
warm-up. The number of launches of every kernel name and grid must be equal, and the total time of kernels within 2 %.
Exits with 1 where they are not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RANGE = "compared"
WARM_UP = 20  # steps: cuDNN has chosen, memory is there, clocks are up
TOLERANCE = 0.02

#: A kernel name and its grid.
Launch = tuple[str, tuple[int, int, int]]


@dataclass
class Kernels:
    """What one profiler saw: launches of each name and grid, and the time of all kernels."""

    launches: Counter[Launch]
    total_ms: float


def training_step(model: str) -> Callable[[], None]:
    """Return one training step of the model, on the GPU."""
    import torch

    torch.manual_seed(0)
    if model == "resnet18":
        import torchvision

        network = torchvision.models.resnet18().cuda()
        images, labels = torch.randn(32, 3, 224, 224, device="cuda"), torch.randint(1000, (32,), device="cuda")
        optimizer = torch.optim.SGD(network.parameters(), lr=0.01)

        def loss() -> torch.Tensor:
            return torch.nn.functional.cross_entropy(network(images), labels)
    else:
        import transformers

        network = transformers.GPT2LMHeadModel(transformers.GPT2Config()).cuda()
        tokens = torch.randint(50257, (4, 256), device="cuda")
        optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)

        def loss() -> torch.Tensor:
            return network(input_ids=tokens, labels=tokens).loss

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step


def work(model: str, steps: int, kineto_file: Path | None) -> None:
    """Run the steps: under torch.profiler where ``kineto_file`` names its trace, else in a range of pasta's."""
    import torch

    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True, warn_only=True)
    step = training_step(model)
    for _ in range(WARM_UP):
        step()
    torch.cuda.synchronize()

    def profiled() -> None:
        for _ in range(steps):
            step()
        torch.cuda.synchronize()

    if kineto_file is None:
        import pasta

        with pasta.range(RANGE):
            profiled()
        return
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        profiled()
    profiler.export_chrome_trace(str(kineto_file))


def run(model: str, steps: int, prefix: list[str], *arguments: str) -> None:
    """Run ``work`` in a process of its own, behind ``prefix``."""
    command = [sys.executable, str(Path(__file__).resolve()), "--worker", model, "--steps", str(steps), *arguments]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PASTA_")}
    environment |= {"PYTHONPATH": path, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    subprocess.run([*prefix, *command], env=environment, check=True)


def seen_by_kineto(model: str, steps: int, folder: Path) -> Kernels:
    """Return the kernels in torch.profiler's own trace."""
    file = folder / f"{model}.json"
    run(model, steps, [], "--kineto", str(file))
    events = [e for e in json.loads(file.read_text())["traceEvents"] if e.get("cat") == "kernel"]
    launches = Counter((e["name"], tuple(e["args"]["grid"])) for e in events)
    return Kernels(launches, sum(e["dur"] for e in events) / 1e3)


def seen_by_pasta(model: str, steps: int, folder: Path) -> tuple[Kernels, dict[str, str]]:
    """Return the kernels in pasta's trace, and readable names by mangled ones."""
    from pasta.trace import Trace

    file = folder / f"{model}.pasta"
    options = ["-q", "-o", str(file), "--capture-range=range", "-p", RANGE]
    run(model, steps, [sys.executable, "-m", "pasta", "record", *options, "--"])
    with Trace.open(file) as trace:
        rows = trace.kernel.collect()
    grids = rows.select("grid_x", "grid_y", "grid_z").rows()
    launches = Counter(zip(rows["name"], grids, strict=True))
    readable = dict(rows.select("mangled", "name").drop_nulls().unique().rows())
    return Kernels(launches, (rows["end_ns"] - rows["start_ns"]).sum() / 1e6), readable


def compare(model: str, steps: int, folder: Path) -> bool:
    """Print what both profilers saw of ``model``; return whether it is the same."""
    kineto = seen_by_kineto(model, steps, folder)
    pasta, readable = seen_by_pasta(model, steps, folder)
    # Kineto leaves very long names mangled.
    kineto.launches = Counter((readable.get(name, name), grid) for name, grid in kineto.launches.elements())
    ratio = pasta.total_ms / kineto.total_ms if kineto.total_ms else float("nan")
    same_time = abs(ratio - 1) <= TOLERANCE
    print(f"{'model':10} {'profiler':15} {'kernels':>8} {'names':>6} {'name+grid':>10} {'total ms':>9}  ratio")
    for profiler, kernels in (("torch.profiler", kineto), ("pasta", pasta)):
        names = len({name for name, _ in kernels.launches})
        counts = f"{kernels.launches.total():8} {names:6} {len(kernels.launches):10} {kernels.total_ms:9.3f}"
        print(f"{model:10} {profiler:15} {counts}" + (f"  {ratio:.4f}" if profiler == "pasta" else ""))
    different = sorted(
        key for key in kineto.launches.keys() | pasta.launches.keys() if kineto.launches[key] != pasta.launches[key]
    )
    for name, grid in different[:20]:
        both = f"torch.profiler {kineto.launches[name, grid]}, pasta {pasta.launches[name, grid]}"
        print(f"  differs: {both} x {grid} {name[:100]}")
    if len(different) > 20:
        print(f"  and {len(different) - 20} more")
    if not same_time:
        print(f"  times differ by more than {TOLERANCE:.0%}")
    return bool(kineto.launches) and not different and same_time


def main() -> int:
    """Compare every model, or be the process that runs one."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--models", default="resnet18,gpt2")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--kineto", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker, options.steps, options.kineto)
        return 0
    sys.path.insert(0, str(ROOT))
    with tempfile.TemporaryDirectory() as folder:
        same = [compare(model, options.steps, Path(folder)) for model in options.models.split(",")]
    print("equal" if all(same) else "not equal")
    return 0 if all(same) else 1


if __name__ == "__main__":
    sys.exit(main())
