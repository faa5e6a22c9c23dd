"""The training demonstration: the same line with and without pasta, and the trace that the documentation shows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from torch_runs import PYTHON, record, run

from pasta.trace import Trace

pytest.importorskip("torch")

_DEMO = [PYTHON, "-m", "pasta.demo.torch_train", "--steps", "3"]


def test_demo_trains_the_same_and_shows_every_phase(tmp_path: Path) -> None:
    plain = run(*_DEMO)
    result = record(tmp_path / "trace", *_DEMO)
    assert (result.status, result.stdout) == (plain.status, plain.stdout)
    assert plain.stdout.startswith("3 steps, loss ")
    trace = Trace.open(tmp_path / "trace")
    ranges = trace.table("range").collect()
    assert Counter(ranges.filter(source="pasta")["name"]) == {"step": 3, "batch": 3}
    steps = set(ranges.filter(name="step")["range_id"])
    # torch.optim annotates zero_grad and step, once each in every step of ours.
    optimizer = ranges.filter(source="record_function")
    assert Counter(optimizer["parent_id"]) == dict.fromkeys(steps, 2)
    assert set(trace.table("op").collect()["phase"]) == {"forward", "backward", "optimizer", "other"}


def test_demo_refuses_nonsense() -> None:
    result = run(PYTHON, "-m", "pasta.demo.torch_train", "--steps", "0")
    assert result.status == 2
    assert "--steps takes a number from 1" in result.stderr
