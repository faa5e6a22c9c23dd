"""Calls cuBLAS, cuDNN and attention once each, on operands that are allocations of their own; prints where they lie.

Only these calls are collected by pasta, each in a range with its name, and by ncu with --profile-from-start off. Run it
with PYTORCH_NO_CUDA_MEMORY_CACHING=1: an allocation is then a tensor, of its exact size.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import torch
from torch.nn import functional

from pasta import annotate

annotate.stop()
torch.manual_seed(0)
torch.backends.cudnn.benchmark = False

#: m, n, k of the products.
SHAPES = [(1024, 2048, 512), (2048, 2048, 2048)]
TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32, "fp32": torch.float32}
#: Of attention: batch, heads, tokens, size of a head.
ATTENTION = [(2, 8, 128, 64), (2, 8, 512, 64), (1, 8, 2048, 128)]


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=dtype)


def gemm(kind: str, m: int, n: int, k: int) -> tuple[dict[str, torch.Tensor], Callable[[], torch.Tensor]]:
    torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
    a, b, out = random(m, k, dtype=TYPES[kind]), random(k, n, dtype=TYPES[kind]), random(m, n, dtype=TYPES[kind])
    return {"a": a, "b": b}, lambda: torch.mm(a, b, out=out)


def convolution() -> tuple[dict[str, torch.Tensor], Callable[[], torch.Tensor]]:
    torch.backends.cudnn.allow_tf32 = True
    x = random(8, 64, 56, 56).to(memory_format=torch.channels_last)
    w = random(64, 64, 3, 3).to(memory_format=torch.channels_last)
    return {"x": x, "w": w}, lambda: functional.conv2d(x, w, padding=1)


def attention(*shape: int) -> tuple[dict[str, torch.Tensor], Callable[[], torch.Tensor]]:
    q, k, v = (random(*shape, dtype=torch.bfloat16) for _ in range(3))
    return {"q": q, "k": k, "v": v}, lambda: functional.scaled_dot_product_attention(q, k, v)


def place(tensor: torch.Tensor) -> tuple[int, int]:
    return tensor.data_ptr(), tensor.numel() * tensor.element_size()


def main() -> None:
    calls = {f"gemm-{kind}-{'x'.join(map(str, s))}": (gemm, (kind, *s)) for kind in TYPES for s in SHAPES}
    calls["convolution"] = (convolution, ())
    calls |= {f"attention-{'x'.join(map(str, shape))}": (attention, shape) for shape in ATTENTION}
    kept = []  # so that no two tensors of the program have one address
    for name, (make, arguments) in calls.items():
        operands, call = make(*arguments)
        torch.cuda.synchronize()
        annotate.start()
        torch.cuda.profiler.start()
        with annotate.range(name), torch.no_grad():
            result = call()
            torch.cuda.synchronize()
        torch.cuda.profiler.stop()
        annotate.stop()
        kept.append((operands, result))
        print(json.dumps({"call": name, "operands": {k: place(t) for k, t in operands.items()},
                          "result": place(result)}), flush=True)  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
