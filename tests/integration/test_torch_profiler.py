"""pasta against torch.profiler: the same operators, annotations and allocations, and neither disturbs the other."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from torch_runs import PROGRAMS, python, record, recorded, run

from pasta.trace import Trace

pytest.importorskip("torch")

_TRAIN = PROGRAMS / "train_transformer.py"


@pytest.fixture(scope="module")
def profile() -> dict[str, Any]:
    """What torch.profiler says of the program, without pasta."""
    result = run(*python(_TRAIN, "profile"))
    assert result.status == 0, result.stderr
    return dict(json.loads(result.stdout))


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pl.DataFrame]:
    """Rows of pasta from the part of the program that torch.profiler profiles."""
    trace = recorded(tmp_path_factory.mktemp("window") / "trace", *python(_TRAIN))
    ranges = trace.table("range").collect()
    start, end = ranges.filter(name="window").select("start_ns", "end_ns").row(0)
    inside = pl.col("start_ns").is_between(start, end)
    return {name: trace.table(name).filter(inside).collect() for name in ("op", "range", "tensor")}


def test_operators_and_annotations_are_torch_profilers(
    profile: dict[str, Any], window: dict[str, pl.DataFrame]
) -> None:
    annotations = window["range"].filter(source="record_function")["name"]
    assert Counter(window["op"]["name"]) + Counter(annotations) == profile["names"]
    assert Counter(annotations)["step"] == 3


def test_allocations_are_torch_profilers(profile: dict[str, Any], window: dict[str, pl.DataFrame]) -> None:
    # torch.profiler does not see the end of a block that was allocated before it started: leave those out.
    known: set[int] = set()
    sizes = []
    for row in window["tensor"].sort("start_ns").iter_rows(named=True):
        if row["action"] == "alloc":
            known.add(row["address"])
            sizes.append(row["bytes"])
        elif row["address"] in known:
            known.remove(row["address"])
            sizes.append(-row["bytes"])
    assert sizes == [size for size, _ in profile["memory"]]


def test_frees_have_the_size_of_their_allocation(window: dict[str, pl.DataFrame]) -> None:
    live: dict[int, int] = {}
    matched = 0
    for row in window["tensor"].sort("start_ns").iter_rows(named=True):
        if row["action"] == "alloc":
            live[row["address"]] = row["bytes"]
        elif row["address"] in live:
            assert row["bytes"] == live.pop(row["address"])
            matched += 1
    assert matched > 0


def test_users_profiler_sees_the_same_with_pasta(profile: dict[str, Any], tmp_path: Path) -> None:
    result = record(tmp_path / "trace", *python(_TRAIN, "profile"))
    assert result.status == 0
    assert json.loads(result.stdout) == profile
    # And pasta misses nothing while torch.profiler is on: the steps are the same with and without it.
    trace = Trace.open(tmp_path / "trace")
    undisturbed = recorded(tmp_path / "undisturbed", *python(_TRAIN))
    assert Counter(trace.table("op").collect()["name"]) == Counter(undisturbed.table("op").collect()["name"])
