"""A rank of a job: 5 all-reduces of 4 MiB, 3 broadcasts of 1 MiB."""

import os

import torch
import torch.distributed as dist

device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)
large, small = torch.ones(1 << 20, device=device), torch.ones(1 << 18, device=device)
for _ in range(5):
    dist.all_reduce(large)
for _ in range(3):
    dist.broadcast(small, src=0)
torch.cuda.synchronize()
assert float(large[0]) == float(dist.get_world_size() ** 5)
dist.destroy_process_group()
