"""One step of a small network, the same in every process: ``resnet18`` forward, or ``gpt2`` forward and backward.

Only the step is collected: what comes before it warms up, so that libraries allocate nothing during it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
import torch

from pasta import annotate


def resnet18() -> Callable[[], None]:
    import torchvision

    model = torchvision.models.resnet18().cuda().eval()
    images = torch.randn(1, 3, 128, 128, device="cuda")

    def run() -> None:
        with torch.no_grad():
            model(images)

    return run


def gpt2() -> Callable[[], None]:
    import transformers

    sizes = {"vocab_size": 1000, "n_embd": 128, "n_layer": 2, "n_head": 4, "n_positions": 64}
    config = transformers.GPT2Config(**sizes, bos_token_id=None, eos_token_id=None)
    model = transformers.GPT2LMHeadModel(config).cuda().train()
    tokens = torch.randint(1000, (2, 32), device="cuda")

    def run() -> None:
        model.zero_grad(set_to_none=False)
        model(input_ids=tokens, labels=tokens).loss.backward()

    return run


if __name__ == "__main__":
    annotate.stop()
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    run = {"resnet18": resnet18, "gpt2": gpt2}[sys.argv[1]]()
    run()
    torch.cuda.synchronize()
    annotate.start()
    run()
    torch.cuda.synchronize()
    annotate.stop()
