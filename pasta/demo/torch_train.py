"""A small training on the CPU that shows most of what pasta records: operators, phases, tensors, ranges, kernels.

    pasta record -- python -m pasta.demo.torch_train --steps 20

Needs torch. Where pyopencl finds a device, each batch is made by an OpenCL kernel.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import pasta

_BATCH, _LENGTH, _TOKENS, _WIDTH = 8, 16, 64, 32

#: Token i of batch `seed`: a fixed pseudo-random sequence (Knuth's multiplicative hash).
_KERNEL = """
kernel void make_tokens(global int *tokens, uint seed, uint count) {
  uint i = get_global_id(0);
  tokens[i] = (int)(((i + seed) * 2654435761u >> 16) % count);
}
"""


def _opencl_batches() -> Callable[[int], Any] | None:
    """Return a function that makes the tokens of a batch on an OpenCL device, or None without one."""
    try:
        import numpy as np
        import pyopencl as cl

        devices = [device for platform in cl.get_platforms() for device in platform.get_devices()]
        context = cl.Context(devices[:1])
        queue = cl.CommandQueue(context)
        kernel = cl.Kernel(cl.Program(context, _KERNEL).build(), "make_tokens")
    except Exception:  # no pyopencl, no device, or one that cannot compile: the host makes the batches
        return None

    def make(seed: int) -> Any:
        tokens = np.empty(_BATCH * _LENGTH, dtype=np.int32)
        buffer = cl.Buffer(context, cl.mem_flags.WRITE_ONLY, tokens.nbytes)
        kernel(queue, tokens.shape, None, buffer, np.uint32(seed), np.uint32(_TOKENS))
        cl.enqueue_copy(queue, tokens, buffer)
        return tokens

    return make


def _host_batches(seed: int) -> Any:
    """Return the same tokens, made by the host."""
    import numpy as np

    index = np.arange(_BATCH * _LENGTH, dtype=np.uint32) + np.uint32(seed)
    return ((index * np.uint32(2654435761)) >> 16).astype(np.int32) % _TOKENS


def train(steps: int) -> tuple[float, str]:
    """Train for ``steps`` steps; returns the last loss and where the batches were made."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    torch.set_num_threads(1)
    on_device = _opencl_batches()
    make = on_device or _host_batches
    model = nn.Sequential(
        nn.Embedding(_TOKENS, _WIDTH),
        nn.TransformerEncoderLayer(_WIDTH, 4, 2 * _WIDTH, dropout=0.0, batch_first=True),
        nn.Linear(_WIDTH, _TOKENS),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loss = torch.zeros(())
    for step in range(steps):
        with pasta.range("step"):
            with pasta.range("batch"):
                tokens = torch.from_numpy(make(step % 4)).long().reshape(_BATCH, _LENGTH)
            optimizer.zero_grad()
            scores = model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return loss.item(), "OpenCL" if on_device else "the host"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the demonstration and print one line."""
    parser = argparse.ArgumentParser(prog="torch_train", description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10, help="training steps (default: 10)")
    steps = parser.parse_args(arguments).steps
    if steps < 1:
        parser.error("--steps takes a number from 1")
    loss, where = train(steps)
    print(f"{steps} steps, loss {loss:.4f}, batches made by {where}")


if __name__ == "__main__":
    main()
