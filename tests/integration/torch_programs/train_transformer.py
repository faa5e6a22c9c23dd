"""Trains a small transformer; prints as JSON what torch.profiler saw of it, when asked to profile.

usage: train_transformer.py [profile]
"""

import json
import sys
import tempfile
from collections import Counter

import torch
from torch import nn

import pasta

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(
    nn.Embedding(50, 16),
    nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True),
    nn.Linear(16, 50),
)
optimizer = torch.optim.AdamW(model.parameters())
tokens = torch.randint(0, 50, (4, 9))


def train(steps: int) -> None:
    for _ in range(steps):
        with torch.autograd.profiler.record_function("step"):
            optimizer.zero_grad()
            scores = model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            optimizer.step()


train(1)  # what torch does once (lazy initialisation) is not compared
if "profile" in sys.argv:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        train(3)
    events = profile.profiler.kineto_results.events()
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        profile.export_chrome_trace(file.name)
        with open(file.name) as trace:
            memory = [event["args"] for event in json.load(trace)["traceEvents"] if event["name"] == "[memory]"]
    print(
        json.dumps(
            {
                "names": Counter(event.name() for event in events if event.name() != "[memory]"),
                "memory": [[event["Bytes"], event["Total Allocated"]] for event in memory],
                "averages": {row.key: row.count for row in profile.key_averages()},
            }
        )
    )
else:
    with pasta.range("window"):
        train(3)
