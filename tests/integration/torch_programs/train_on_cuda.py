"""Trains a small model on a CUDA device; prints as JSON what torch's own allocator counted."""

import json
import os

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 8)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(20):
    loss = model(torch.randn(32, 64, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
torch.cuda.synchronize()
stats = torch.cuda.memory_stats()
print(
    json.dumps(
        {
            "version": torch.__version__,
            "allocations": stats["allocation.all.allocated"],
            "frees": stats["allocation.all.freed"],
            "allocated": torch.cuda.memory_allocated(),
            "reserved": torch.cuda.memory_reserved(),
        }
    ),
    flush=True,
)
os._exit(0)  # nothing is freed after the count
