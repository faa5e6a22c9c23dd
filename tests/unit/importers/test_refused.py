"""Formats that pasta knows and cannot read are refused by name, with what to do instead."""

from __future__ import annotations

from pathlib import Path

import pytest
import real_traces
from sqlite_builder import SqliteBuilder

from pasta.errors import PastaError
from pasta.importers import import_files

FOLDER = real_traces.folder()


def refused(path: Path) -> PastaError:
    with pytest.raises(PastaError) as error:
        import_files([path], path.parent / "out.pasta")
    assert error.value.exit_code == 2
    assert not (path.parent / "out.pasta").exists()
    return error.value


@pytest.mark.parametrize(
    ("content", "label", "fix"),
    [
        (b"NVR\0\x12\0\0\0\x08\x01", "Nsight Compute report", "pasta record --memory"),
        (b'"Index","KernelName","gpu-id","queue-id"\n0,"axpy",1,2\n', "table of rocprof v1", "rocprofv3"),
        (b"Dispatch_ID,GPU_ID,Kernel_Name,SQ_WAVES\n0,4,axpy,3\n", "rocprof-compute", "rocprofv3"),
    ],
)
def test_files_are_known_by_their_first_bytes(tmp_path: Path, content: bytes, label: str, fix: str) -> None:
    path = tmp_path / "renamed.json"
    path.write_bytes(content)
    error = refused(path)
    assert label in error.message
    assert fix in error.fix


@pytest.mark.parametrize(
    ("table", "columns", "label"),
    [
        ("OPS", {"BeginNs": 1, "EndNs": 2}, "database of rocprof v1"),
        ("compute_workload", {"workload_id": 1}, "rocprof-compute"),
    ],
)
def test_databases_are_known_by_their_tables(tmp_path: Path, table: str, columns: dict[str, int], label: str) -> None:
    file = SqliteBuilder(tmp_path / "results.db")
    file.add(table, columns)
    assert label in refused(file.done()).message


@pytest.mark.skipif(FOLDER is None, reason="the public traces are not here: set PASTA_TEST_TRACES")
@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("legacy/rocprofv1_HIP_trace_results.db", "database of rocprof v1"),
        ("legacy/rocprofv1_HIP_trace_results.json", "rocprof v1"),
        ("rocprofv3/rocoptiq_rocprof_compute.db", "rocprof-compute"),
    ],
)
def test_real_files_of_other_tools_are_refused(tmp_path: Path, name: str, label: str) -> None:
    assert FOLDER is not None
    with pytest.raises(PastaError, match=label):
        import_files([FOLDER / name], tmp_path / "out.pasta")
