"""PyTorch's memory timelines; the public file's counts were taken with json and collections.Counter."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import polars as pl
import pytest
import real_traces
from kineto_maker import rows

from pasta.importers import Kind, import_files
from pasta.trace import Trace

FOLDER = real_traces.folder()


def test_creations_and_destructions_are_tensors(tmp_path: Path) -> None:
    # [time, action, bytes, category]: 1 existed before, 2 created, 3 changed, 4 destroyed.
    records = [
        [-1, 1, 512, 0],
        [1000, 2, 64, 7],
        [1500, 3, -64, 7],
        [1500, 3, 64, 4],
        [2000, 4, -64, 4],
        [2500, 9, 1, 1],
    ]
    path = tmp_path / "memory.raw.json.gz"
    path.write_bytes(gzip.compress(json.dumps(records).encode()))
    summary = import_files([path], tmp_path / "out.pasta")
    assert summary.kind is Kind.TENSORBOARD_MEMORY
    with Trace.open(tmp_path / "out.pasta") as trace:
        assert [tuple(row.values()) for row in rows(trace, "tensor", "start_ns", "action", "bytes", "address")] == [
            (0, "alloc", 512, None),
            (0, "alloc", 64, None),
            (1000, "free", 64, None),
        ]
    assert summary.unmatched == {"tensors older than the recording (placed at its first moment)": 1}
    assert summary.skipped == {"record of an unknown action": 1}
    assert summary.unplaced == {
        "changes of a tensor's version or category": 2,
        "category of a tensor: parameter": 1,
        "category of a tensor: unknown": 1,
        "category of a tensor: activation": 1,
    }


def test_records_that_are_none_cost_only_themselves(tmp_path: Path) -> None:
    text = f"[[5, 2, 64, 7], [6, 2, {2**70}, 7], [7, 2], [8, 2, 1.5, 7], [9, 4, -64, 7]]"
    (tmp_path / "memory.json").write_text(text)
    summary = import_files([tmp_path / "memory.json"], tmp_path / "out.pasta")
    assert summary.rows["tensor"] == 2
    assert summary.skipped == {"element that is not an event": 3}


@pytest.mark.skipif(FOLDER is None, reason="the public traces are not here: set PASTA_TEST_TRACES")
def test_the_public_timeline_balances(tmp_path: Path) -> None:
    assert FOLDER is not None
    import_files([FOLDER / "kineto" / "hta_memory_timeline.raw.gz"], tmp_path / "out.pasta")
    with Trace.open(tmp_path / "out.pasta") as trace:
        counts = trace.tensor.group_by("action").agg(pl.len()).collect()
        assert dict(counts.iter_rows()) == {"alloc": 645 + 3345, "free": 3345}
