"""The GPU workloads of overhead.py; prints one JSON line a measurement. Weights are random, nothing is downloaded.

Each workload runs in a fork: what is slow to import is imported once, and no workload finds another's memory, contexts
or kernels. Recorded by pasta, the fork's trace is beside this process's own, with the workload's name at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator

# To ask whether there is a GPU must not start CUDA before the fork.
os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
import torch

LAUNCHES = 50_000


def launch_loop() -> tuple[Callable[[], None], int, str]:
    """Tiny kernels, back to back: the cost of a launch."""
    x = torch.randn(1024, device="cuda")

    def run() -> None:
        y = x
        for _ in range(LAUNCHES):
            y = y + 1

    return run, LAUNCHES, "us/launch"


def resnet50_train() -> tuple[Callable[[], None], int, str]:
    """Training steps of ResNet-50, batch 64."""
    import torchvision

    model = torchvision.models.resnet50().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images, labels = torch.randn(64, 3, 224, 224, device="cuda"), torch.randint(1000, (64,), device="cuda")

    def run() -> None:
        for _ in range(10):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()

    return run, 10, "ms/step"


def gpt2_train() -> tuple[Callable[[], None], int, str]:
    """Training steps of GPT-2 small, batch 8 of 512 tokens, bf16."""
    import transformers

    model = transformers.GPT2LMHeadModel(transformers.GPT2Config()).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(50257, (8, 512), device="cuda")

    def run() -> None:
        for _ in range(10):
            optimizer.zero_grad()
            with torch.autocast("cuda", torch.bfloat16):
                loss = model(input_ids=tokens, labels=tokens).loss
            loss.backward()
            optimizer.step()

    return run, 10, "ms/step"


def compiled_mlp() -> tuple[Callable[[], None], int, str]:
    """A torch.compile'd MLP, forward only."""
    layers = [m for _ in range(8) for m in (torch.nn.Linear(512, 512), torch.nn.GELU())]
    model = torch.compile(torch.nn.Sequential(*layers).cuda())
    x = torch.randn(64, 512, device="cuda")

    def run() -> None:
        with torch.no_grad():
            for _ in range(500):
                model(x)

    return run, 500, "ms/step"


def graph_replay() -> tuple[Callable[[], None], int, str]:
    """A CUDA graph of 40 small kernels, replayed."""
    x = torch.randn(1 << 16, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            x * 1.01
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x
        for _ in range(20):
            y = y * 1.01 + 0.1

    def run() -> None:
        for _ in range(500):
            graph.replay()

    return run, 500, "ms/step"


WORKLOADS = {f.__name__: f for f in (launch_loop, resnet50_train, gpt2_train, compiled_mlp, graph_replay)}


@contextlib.contextmanager
def profiled(kind: str) -> Iterator[None]:
    """Profile the block with the profiler of that name; what it does after the block is not measured."""
    if kind.startswith("torch.profiler"):
        from torch.profiler import ProfilerActivity, profile

        activities = [ProfilerActivity.CUDA] + ([ProfilerActivity.CPU] if "cpu" in kind else [])
        profiler = profile(activities=activities)
        profiler.start()
        yield
        profiler.stop()
        return
    if kind == "proton":
        import tempfile

        import triton.profiler as proton

        session = proton.start(tempfile.mktemp(prefix="proton"), hook=None)
        yield
        torch.cuda.synchronize()
        proton.finalize(session)
        return
    yield


def measure(name: str, options: argparse.Namespace) -> None:
    """Measure the workload ``options.repeat`` times after a warm-up."""
    torch.manual_seed(0)
    run, steps, unit = WORKLOADS[name]()
    run()
    torch.cuda.synchronize()
    for _ in range(options.repeat):
        with profiled(options.profiler):
            torch.cuda.synchronize()
            began = time.perf_counter()
            run()
            torch.cuda.synchronize()
            seconds = (time.perf_counter() - began) / steps
        value = seconds * (1e6 if unit == "us/launch" else 1e3)
        print(json.dumps({"workload": name, "unit": unit, "value": value}), flush=True)


def main() -> int:
    """Measure each workload in a process of its own; the number of those that failed is the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--repeat", type=int, default=4)
    parser.add_argument("--profiler", default="none")
    options = parser.parse_args()
    names = options.workloads.split(",")
    if "resnet50_train" in names:
        import torchvision  # noqa: F401
    if "gpt2_train" in names:
        import transformers

        assert transformers.GPT2LMHeadModel  # imported when it is first named
    output, failed = os.environ.get("PASTA_OUTPUT"), 0
    for name in names:
        if output is not None:
            os.environ["PASTA_OUTPUT"] = f"{output.removesuffix('.pasta')}-{name}.pasta"
        child = os.fork()
        if child == 0:
            measure(name, options)
            return 0
        _, status = os.waitpid(child, 0)
        failed += status != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
