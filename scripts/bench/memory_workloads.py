"""The workloads of memory_overhead.py; prints one JSON line a measurement. Random weights, no downloads.

A workload warms up while pasta does not collect, so that its first kernels, which load code, are in no measurement, and
sampling begins with what is measured.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

SECONDS = 1.0  # that a workload is repeated for at most
STEPS = 5  # of a warm-up, recorded as the rest: what a profiler learns in the first steps it has in a long run


@dataclass
class Work:
    """``run(n)`` does n units of work. A measurement is a unit's time, of ``units`` one after the other."""

    run: Callable[[int], None]
    units: int = 1
    unit: str = "ms/step"


def launch_loop() -> Work:
    """5,000 tiny kernels, back to back: what instrumenting costs a launch."""
    x = torch.randn(1024)

    def run(count: int) -> None:
        y = x
        for _ in range(count):
            y = y + 1

    return Work(run, 5_000, "us/launch")


def steps(model: torch.nn.Module, loss: Callable[[], torch.Tensor], train: bool, units: int = 1) -> Work:
    """Inference, or forward, backward and optimizer."""
    model.train(train)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def run(count: int) -> None:
        for _ in range(count):
            if train:
                optimizer.zero_grad()
                loss().backward()
                optimizer.step()
            else:
                with torch.no_grad():
                    loss()

    return Work(run, units)


def vision(name: str, train: bool, batch: int = 8, pixels: int = 224, units: int = 1) -> Work:
    """A torchvision network on square images."""
    import torchvision

    model = getattr(torchvision.models, name)()
    images, labels = torch.randn(batch, 3, pixels, pixels), torch.randint(1000, (batch,))
    return steps(model, lambda: torch.nn.functional.cross_entropy(model(images), labels), train, units)


def language(model: Any, tokens: torch.Tensor, train: bool, units: int = 1) -> Work:
    """A transformer on random tokens."""
    return steps(model, lambda: model(input_ids=tokens, labels=tokens).loss, train, units)


def bert(train: bool) -> Work:
    """BERT-base, batch 8 of 128 tokens."""
    from transformers import BertConfig, BertForMaskedLM

    return language(BertForMaskedLM(BertConfig()), torch.randint(30_000, (8, 128)), train)


def gpt2(train: bool, units: int = 1) -> Work:
    """GPT-2 small, batch 4 of 256 tokens."""
    from transformers import GPT2Config, GPT2LMHeadModel

    return language(GPT2LMHeadModel(GPT2Config()), torch.randint(50_257, (4, 256)), train, units)


def whisper(train: bool) -> Work:
    """Whisper-small, batch 2 of 30 seconds, 64 tokens."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    shape = {"encoder_layers": 12, "decoder_layers": 12, "d_model": 768, "encoder_ffn_dim": 3072,
             "decoder_ffn_dim": 3072, "encoder_attention_heads": 12, "decoder_attention_heads": 12}  # fmt: skip
    model: Any = WhisperForConditionalGeneration(WhisperConfig(**shape))
    sound, tokens = torch.randn(2, 80, 3000), torch.randint(50_000, (2, 64))
    return steps(model, lambda: model(input_features=sound, labels=tokens).loss, train)


WORKLOADS: dict[str, Callable[[], Work]] = {
    "launch_loop": launch_loop,
    "resnet18": lambda: vision("resnet18", False),
    "resnet18_train": lambda: vision("resnet18", True),
    "resnet18_batch64": lambda: vision("resnet18", False, 64),
    "resnet34": lambda: vision("resnet34", False),
    "resnet34_train": lambda: vision("resnet34", True),
    "alexnet": lambda: vision("alexnet", False, 32),
    "alexnet_train": lambda: vision("alexnet", True, 32),
    "bert": lambda: bert(False),
    "bert_train": lambda: bert(True),
    "gpt2": lambda: gpt2(False),
    "gpt2_train": lambda: gpt2(True),
    "whisper": lambda: whisper(False),
    "whisper_train": lambda: whisper(True),
    # What sampling is for: measured once a process, because only then are the first launches among what is measured.
    "resnet18_train_50": lambda: vision("resnet18", True, 32, units=50),
    "gpt2_train_50": lambda: gpt2(True, 50),
    # Small enough for a CPU to analyse every access.
    "resnet18_small": lambda: vision("resnet18", False, 1, 64),
}


def measure(name: str, device: str, repeat: int) -> None:
    """Measure a workload ``repeat`` times, less when that takes longer than ``SECONDS``, as does the warm-up before.

    The workloads of 50 steps have none: their first launches are what is measured.
    """
    from pasta import annotate

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    torch.manual_seed(0)
    annotate.stop()
    with torch.device(device):
        work = WORKLOADS[name]()
    work.run(1)
    wait()
    annotate.start()
    sampled = name.endswith("_50")
    began = time.perf_counter()
    for _ in range(0 if sampled else STEPS):
        work.run(1)
        wait()
        if time.perf_counter() - began > SECONDS:
            break
    began = time.perf_counter()
    for _ in range(1 if sampled else repeat):
        start = time.perf_counter()
        work.run(work.units)
        wait()
        end = time.perf_counter()
        value = (end - start) * (1e6 if work.unit.startswith("us") else 1e3) / work.units
        print(json.dumps({"workload": name, "unit": work.unit, "value": value}), flush=True)
        if end - began > SECONDS:
            return


def main() -> int:
    """Measure each workload in turn; the number of those that failed is the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--repeat", type=int, default=4)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--output", type=Path, help="a file for the lines; default: standard output")
    options = parser.parse_args()
    if options.output is not None:
        sys.stdout = options.output.open("w")
    failed = 0
    for name in options.workloads.split(","):
        try:
            measure(name, options.device, options.repeat)
        except Exception:  # the others are measured all the same
            traceback.print_exc()
            failed += 1
        gc.collect()  # what a workload had is not measured with the next
        if options.device == "cuda":
            torch.cuda.empty_cache()
    return failed


if __name__ == "__main__":
    sys.exit(main())
