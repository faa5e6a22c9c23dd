"""Runs a function through TorchScript and through torch.compile, three times each."""

import torch


def f(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() + x.cos()).relu()


x = torch.ones(3)
scripted = torch.jit.script(f)
compiled = torch.compile(f, backend="eager")
for _ in range(3):
    scripted(x)
compiled(x)
x.tan()
for _ in range(3):
    compiled(x)
