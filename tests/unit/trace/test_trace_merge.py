"""Traces of ranks become one: one clock, unique pids, everything else as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pasta.errors import PastaError
from pasta.trace import Trace, TraceWriter
from pasta.trace.merge import MAX_PID, PID_LIMIT, merge, unique_pids


def rank(path: Path, number: int, pid: int, realtime_ns: int | None, **manifest: Any) -> Path:
    """A trace of one rank with a kernel at 100 ns and a child process."""
    with TraceWriter(path) as writer:
        writer.append(
            "process",
            pl.DataFrame(
                {"pid": [pid, pid + 1], "rank": [number] * 2, "parent_pid": [1, pid], "start_ns": [0, 50]},
            ),
        )
        writer.append("kernel", pl.DataFrame({"pid": [pid], "rank": [number], "start_ns": [100], "launch_id": [1]}))
        writer.append(
            "loss", pl.DataFrame({"pid": [pid], "table": ["api"], "records": [number + 1], "cause": ["full"]})
        )
        writer.manifest.update(manifest, clock={"realtime_ns": realtime_ns}, devices=[{"name": "H200"}])
    return path


def rows(trace: Trace, table: str, *columns: str) -> list[tuple[Any, ...]]:
    return trace.table(table).select(columns).collect().rows()


def test_times_are_placed_by_the_time_of_day(tmp_path: Path) -> None:
    zero = rank(tmp_path / "0.pasta", 0, 10, 1_000_000_500)
    one = rank(tmp_path / "1.pasta", 1, 20, 1_000_000_000)
    with Trace.open(merge([zero, one], tmp_path / "all.pasta")) as trace:
        assert rows(trace, "kernel", "rank", "pid", "start_ns", "launch_id") == [(0, 10, 600, 1), (1, 20, 100, 1)]
        assert trace.manifest["clock"]["realtime_ns"] == 1_000_000_000
        assert trace.notes == []


def test_a_trace_without_the_time_of_day_keeps_its_times(tmp_path: Path) -> None:
    zero = rank(tmp_path / "0.pasta", 0, 10, 1_000)
    one = rank(tmp_path / "1.pasta", 1, 20, None)
    with Trace.open(merge([zero, one], tmp_path / "all.pasta")) as trace:
        assert rows(trace, "kernel", "rank", "start_ns") == [(0, 100), (1, 100)]
        assert trace.notes == ["1.pasta does not know the time of day: its times are not aligned with the others"]


def test_equal_pids_of_two_hosts_become_unique(tmp_path: Path) -> None:
    zero = rank(tmp_path / "0.pasta", 0, 10, 0)
    one = rank(tmp_path / "1.pasta", 1, 10, 0)
    with Trace.open(merge([zero, one], tmp_path / "all.pasta")) as trace:
        new = 10 + PID_LIMIT
        assert rows(trace, "process", "rank", "pid", "parent_pid") == [
            (0, 10, 1),
            (0, 11, 10),
            (1, new, 1),
            (1, new + 1, new),
        ]
        assert rows(trace, "kernel", "rank", "pid") == [(0, 10), (1, new)]
        assert trace.manifest["merged"][1]["renumbered_pids"] == {"10": new, "11": new + 1}


def test_the_manifest_keeps_what_is_common_and_adds_up_the_rest(tmp_path: Path) -> None:
    zero = rank(tmp_path / "0.pasta", 0, 10, 0, command=["./a"], options={"memory": True}, backends={"cupti": "run"})
    one = rank(tmp_path / "1.pasta", 1, 20, 0, command=["./a"], options={}, backends={"torch": "run"})
    with Trace.open(merge([zero, one], tmp_path / "all.pasta")) as trace:
        assert trace.manifest["command"] == ["./a"]
        assert "options" not in trace.manifest
        assert trace.manifest["devices"] == [{"name": "H200"}]
        assert trace.manifest["backends"] == {"cupti": "run", "torch": "run"}
        assert trace.manifest["losses"] == [{"table": "api", "records": 3, "cause": "full"}]
        assert trace.manifest["rows"] == {"process": 4, "kernel": 2, "loss": 2}


def test_the_directory_form_has_a_folder_a_rank(tmp_path: Path) -> None:
    paths = [rank(tmp_path / f"{i}.pasta", i, 10 * i, 0) for i in range(3)]
    merged = merge(paths, tmp_path / "all.pasta")
    assert sorted(path.name for path in (merged / "kernel").iterdir()) == ["rank=0", "rank=1", "rank=2"]


def test_mistakes_are_named(tmp_path: Path) -> None:
    one = rank(tmp_path / "1.pasta", 1, 10, 0)
    with pytest.raises(PastaError, match="nothing to merge"):
        merge([], tmp_path / "all.pasta")
    with pytest.raises(PastaError, match="given twice"):
        merge([one, tmp_path / "." / "1.pasta"], tmp_path / "all.pasta")
    with pytest.raises(PastaError, match="does not exist"):
        merge([one, tmp_path / "2.pasta"], tmp_path / "all.pasta")
    assert not (tmp_path / "all.pasta").exists()


def test_containers_that_all_start_with_pid_1_get_unique_pids() -> None:
    used: set[int] = set()
    for container in range(1000):
        new = unique_pids([1], used).get(1, 1)
        assert new not in used
        assert 0 < new <= MAX_PID
        if container <= MAX_PID // PID_LIMIT:
            assert new % PID_LIMIT == 1
        used.add(new)
