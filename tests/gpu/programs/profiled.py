"""A program that uses torch.profiler itself: 100 launches before, 100 inside, 100 after; prints what it saw."""

import collections
import json

import torch
from torch.profiler import ProfilerActivity, profile


def work(x: torch.Tensor) -> torch.Tensor:
    for _ in range(100):
        x = x + 1
    torch.cuda.synchronize()
    return x


x = work(torch.zeros(1024, device="cuda"))
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
    x = work(x)
x = work(x)
counts: dict[str, int] = collections.Counter()
kernel_us = 0.0
for event in profiler.events():
    kind = "device" if str(event.device_type).endswith("CUDA") else "host"
    counts[f"{kind} {event.name}"] += 1
    if kind == "device" and "elementwise" in event.name:
        kernel_us += event.time_range.elapsed_us()
print(json.dumps({"result": float(x.sum()), "counts": dict(sorted(counts.items())), "kernel_us": kernel_us}))
