"""The workloads of memory_overhead.py; prints one JSON line a measurement. Random weights, no downloads."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import torch

Step = Callable[[], None]


def launch_loop() -> tuple[Step, int, str]:
    """5,000 tiny kernels, back to back: what instrumenting costs a launch."""
    x = torch.randn(1024, device="cuda")

    def run() -> None:
        y = x
        for _ in range(5_000):
            y = y + 1

    return run, 5_000, "us/launch"


def vision(name: str, batch: int, train: bool) -> tuple[Step, int, str]:
    """A torchvision network on images of 224 x 224."""
    import torchvision

    model = getattr(torchvision.models, name)().cuda().train(train)
    images = torch.randn(batch, 3, 224, 224, device="cuda")
    labels = torch.randint(1000, (batch,), device="cuda")
    return steps(model, lambda: torch.nn.functional.cross_entropy(model(images), labels), train)


def bert(train: bool) -> tuple[Step, int, str]:
    """BERT-base, batch 8 of 128 tokens."""
    import transformers

    model = transformers.BertForMaskedLM(transformers.BertConfig()).cuda().train(train)
    tokens = torch.randint(30_000, (8, 128), device="cuda")
    return steps(model, lambda: model(input_ids=tokens, labels=tokens).loss, train)


def gpt2(train: bool) -> tuple[Step, int, str]:
    """GPT-2 small, batch 4 of 256 tokens."""
    import transformers

    model = transformers.GPT2LMHeadModel(transformers.GPT2Config()).cuda().train(train)
    tokens = torch.randint(50_257, (4, 256), device="cuda")
    return steps(model, lambda: model(input_ids=tokens, labels=tokens).loss, train)


def whisper(train: bool) -> tuple[Step, int, str]:
    """Whisper-small, batch 2 of 30 seconds, 64 tokens."""
    import transformers

    shape = {"encoder_layers": 12, "decoder_layers": 12, "d_model": 768, "encoder_ffn_dim": 3072,
             "decoder_ffn_dim": 3072, "encoder_attention_heads": 12, "decoder_attention_heads": 12}  # fmt: skip
    model = transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(**shape)).cuda().train(train)
    sound, tokens = torch.randn(2, 80, 3000, device="cuda"), torch.randint(50_000, (2, 64), device="cuda")
    return steps(model, lambda: model(input_features=sound, labels=tokens).loss, train)


def steps(
    model: torch.nn.Module, loss: Callable[[], torch.Tensor], train: bool, count: int = 1
) -> tuple[Step, int, str]:
    """Return inference, or forward, backward and optimizer, ``count`` times."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def run() -> None:
        for _ in range(count):
            if train:
                optimizer.zero_grad()
                loss().backward()
                optimizer.step()
            else:
                with torch.no_grad():
                    loss()

    return run, count, "ms/step"


def resnet18_train_50() -> tuple[Step, int, str]:
    """50 training steps of ResNet-18, batch 32: what sampling is for."""
    import torchvision

    model = torchvision.models.resnet18().cuda()
    images, labels = torch.randn(32, 3, 224, 224, device="cuda"), torch.randint(1000, (32,), device="cuda")
    return steps(model, lambda: torch.nn.functional.cross_entropy(model(images), labels), True, 50)


WORKLOADS: dict[str, Callable[[], tuple[Step, int, str]]] = {
    "launch_loop": launch_loop,
    "resnet18": lambda: vision("resnet18", 8, False),
    "resnet18_batch64": lambda: vision("resnet18", 64, False),
    "resnet18_train": lambda: vision("resnet18", 8, True),
    "resnet34": lambda: vision("resnet34", 8, False),
    "resnet34_train": lambda: vision("resnet34", 8, True),
    "alexnet": lambda: vision("alexnet", 32, False),
    "alexnet_train": lambda: vision("alexnet", 32, True),
    "bert": lambda: bert(False),
    "bert_train": lambda: bert(True),
    "gpt2": lambda: gpt2(False),
    "gpt2_train": lambda: gpt2(True),
    "whisper": lambda: whisper(False),
    "whisper_train": lambda: whisper(True),
    "resnet18_train_50": resnet18_train_50,
}


def main() -> None:
    """Run each workload once to warm up, then ``--repeat`` times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--no-warmup", action="store_true", help="for sampling, which measures the first launches")
    options = parser.parse_args()
    for name in options.workloads.split(","):
        run, units, unit = WORKLOADS[name]()
        if not options.no_warmup:
            run()
        for _ in range(options.repeat):
            torch.cuda.synchronize()
            began = time.perf_counter()
            run()
            torch.cuda.synchronize()
            seconds = time.perf_counter() - began
            value = seconds * (1e6 if unit.startswith("us") else 1e3) / units
            print(json.dumps({"workload": name, "unit": unit, "value": value}), flush=True)


if __name__ == "__main__":
    main()
