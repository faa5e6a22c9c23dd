"""Triton: 30 launches of a kernel of 1,024 programs of 4 warps."""

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


n = 1 << 20
x, y, out = torch.ones(n, device="cuda"), torch.ones(n, device="cuda"), torch.empty(n, device="cuda")
for _ in range(30):
    add_kernel[(n // 1024,)](x, y, out, n, BLOCK=1024, num_warps=4)
torch.cuda.synchronize()
assert bool((out == 2).all())
