"""What info tells about a trace, and that a strange manifest does not stop it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pasta.cli.info import describe
from pasta.trace import Trace, TraceWriter


def info(path: Path, manifest: dict[str, Any], **tables: pl.DataFrame) -> dict[str, list[dict[str, Any]]]:
    """Write a trace and return the tables that describe it."""
    with TraceWriter(path) as writer:
        writer.manifest.update(manifest)
        for name, frame in tables.items():
            writer.append(name, frame)
    with Trace.open(path) as trace:
        return {table.name: table.frame.to_dicts() for table in describe(trace).tables}


KERNELS = pl.DataFrame({"pid": [1, 1], "start_ns": [5, 90], "end_ns": [100, None], "name": ["a", "b"]})


def test_counts_and_times_of_each_table(tmp_path: Path) -> None:
    told = info(tmp_path / "t.pasta", {}, kernel=KERNELS)
    assert told["tables"] == [{"table": "kernel", "rows": 2, "first_ns": 5, "last_ns": 100}]


def test_facts_of_the_recording(tmp_path: Path) -> None:
    manifest = {
        "command": ["python", "my train.py"],
        "host": "node7",
        "clock": {"realtime_ns": 1_700_000_000_250_000_000},  # 2023-11-14 22:13:20.25 UTC
        "options": {"trace": "kernel"},
    }
    facts = {row["fact"]: row["value"] for row in info(tmp_path / "t.pasta", manifest, kernel=KERNELS)["trace"]}
    assert facts["command"] == "python 'my train.py'"
    assert facts["time 0"] == "2023-11-14 22:13:20.250+00:00"
    assert facts["length"] == "95 ns"
    assert (facts["host"], facts["options"]) == ("node7", "trace kernel")


def reasons(told: dict[str, list[dict[str, Any]]]) -> dict[str, str]:
    return {row["table"]: row["why"] for row in told["absent"]}


def test_why_a_table_is_empty(tmp_path: Path) -> None:
    loss = pl.DataFrame({"pid": [1], "source": ["cupti"], "table": ["memcpy"], "cause": ["another subscriber"]})
    why = reasons(info(tmp_path / "t.pasta", {"options": {"trace": "kernel,memory"}}, loss=loss))
    assert why["memcpy"] == "lost: another subscriber"
    assert why["op"] == "not asked for: recorded with --trace=kernel,memory"
    assert why["memset"] == why["kernel"] == "the program did nothing of this kind that a backend could see"
    assert why["access_site"] == "needs pasta record --memory"
    assert "loss" not in why


def test_memory_that_was_asked_for_and_not_seen_is_no_missing_option(tmp_path: Path) -> None:
    why = reasons(info(tmp_path / "t.pasta", {"options": {"memory": "objects"}}, kernel=KERNELS))
    assert why["access_object"] == "the program did nothing of this kind that a backend could see"


def test_an_import_cannot_tell_more_than_its_files(tmp_path: Path) -> None:
    manifest = {"import": {"label": "Nsight Systems", "skipped": {"a broken row": 3}, "unplaced": {"GPU metrics": 7}}}
    told = info(tmp_path / "t.pasta", manifest, kernel=KERNELS)
    assert set(reasons(told).values()) == {"the imported files have none"}
    assert told["left_out"] == [
        {"what": "skipped: a broken row", "how_many": "3"},
        {"what": "unplaced: GPU metrics", "how_many": "7"},
    ]


def test_backends_say_how_they_were_validated(tmp_path: Path) -> None:
    told = info(tmp_path / "t.pasta", {"backends": {"rocm": "never run on AMD hardware"}})
    assert told["backends"] == [{"backend": "rocm", "validation": "never run on AMD hardware"}]


def test_columns_that_say_nothing_are_left_out(tmp_path: Path) -> None:
    device = pl.DataFrame({"pid": [1], "device_id": [0], "name": ["H200"]})
    assert info(tmp_path / "t.pasta", {}, device=device)["device"] == [{"pid": 1, "device_id": 0, "name": "H200"}]


@pytest.mark.parametrize("value", [None, 7, "text", [], {}, [1], {"a": None}, [[1, 2]], True, 1e300])
def test_a_manifest_of_any_shape_is_described(tmp_path: Path, value: Any) -> None:
    names = ("command", "directory", "host", "clock", "import", "merged", "options", "versions", "backends", "losses")
    told = info(tmp_path / "t.pasta", dict.fromkeys(names, value), kernel=KERNELS)
    assert json.dumps(told)


def test_which_memory_instructions_were_counted(tmp_path: Path) -> None:
    """Two modules: one without tma_load, which the library refused from then on. Shared memory was not asked for."""
    logs = ["instrumented: global memcpy_async tma_load", "instrumented: global memcpy_async"]
    build = pl.DataFrame({"pid": [1] * 3, "log": [*logs, "warnings of another compiler"]})
    cause = "tma_load instructions cannot be patched: not supported"
    loss = pl.DataFrame({"pid": [1], "source": ["sanitizer"], "table": ["access_object"], "cause": [cause]})
    manifest = {
        "options": {"memory": "objects,sites"},
        "instructions": {"generic": 1, "global": 5, "shared": 2, "texture": 1, "tma_load": 3, "strange": "many"},
    }
    rows = info(tmp_path / "t.pasta", manifest, build=build, loss=loss)["instructions"]
    assert [tuple(row.values()) for row in rows] == [
        ("global", "yes", 2, 5, None),
        ("memcpy_async", "yes", 2, None, None),
        ("tma_load", "in part", 1, 3, cause),
        ("generic", "yes", 2, 1, None),
        ("shared", "no", 0, 2, "not asked for: --memory=shared"),
        ("texture", "no", 0, 1, "the Sanitizer cannot patch them"),
    ]


def test_a_trace_of_two_passes_says_what_matched(tmp_path: Path) -> None:
    passes = {"launches": {"both": 7, "timing_only": 0, "memory_only": 2}, "strange": [1]}
    rows = info(tmp_path / "t.pasta", {"passes": passes}, kernel=KERNELS)["passes"]
    assert rows == [{"what": "launches", "matched": "7 in both, 2 of the memory pass only"}]
