"""Every public trace gives the counts and the busy time that were counted independently of pasta.

EXPECTED.tsv, which comes with the traces, was made by programs of a few lines over the raw files (JSON, SQL), not with
the importers. ``kernel_ns`` is the sum of all kernels' durations; it must be equal to the nanosecond, since the
coarser sources state whole microseconds.
"""

from __future__ import annotations

import csv
from pathlib import Path

import polars as pl
import pytest
import real_traces

from pasta.errors import PastaError
from pasta.importers import import_files
from pasta.trace import Trace

FOLDER = real_traces.folder()

#: What those programs looked past, counted here with SQL. Operators of ``emit_nvtx``:
#: SELECT count(*) FROM NVTX_EVENTS WHERE text LIKE '%, op_id = %'. The fill of a hipMemsetAsync:
#: SELECT count(*) FROM op WHERE opType = 'FillBuffer'. Calls of the runtime, without those of the tracer itself:
#: SELECT count(*) FROM api WHERE apiName LIKE 'hip%'.
ALSO: dict[str, dict[str, int]] = {
    "nsys/nsysai_mfu_2gpu_after.sqlite.gz": {"ops": 16693},
    "nsys/nsysai_mfu_2gpu_before.sqlite.gz": {"ops": 18656},
    "rpd/matmul_result_large.rpd": {"memsets": 1, "runtime_calls": 120},
}


def expected() -> list[dict[str, str]]:
    if FOLDER is None:
        return []
    with open(FOLDER / "EXPECTED.tsv", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


@pytest.mark.skipif(FOLDER is None, reason="the public traces are not here: set PASTA_TEST_TRACES")
@pytest.mark.parametrize("row", expected(), ids=lambda row: row["file"])
def test_counts_and_busy_time_are_those_counted_in_the_file(row: dict[str, str], tmp_path: Path) -> None:
    want = {name: int(value) for name, value in row.items() if name != "file"} | ALSO.get(row["file"], {})
    assert FOLDER is not None
    if not any(want.values()) and refused(FOLDER / row["file"], tmp_path):
        return
    import_files([FOLDER / row["file"]], tmp_path / "trace.pasta", overwrite=True)
    with Trace.open(tmp_path / "trace.pasta") as trace:
        assert counts(trace) == want


def refused(path: Path, folder: Path) -> bool:
    """Return whether the import of a file with nothing to count says so, and leaves nothing behind."""
    try:
        import_files([path], folder / "trace.pasta")
    except PastaError as error:
        return error.exit_code == 2 and not list(folder.iterdir())
    return False


def counts(trace: Trace) -> dict[str, int]:
    def rows(table: str, *keep: pl.Expr) -> int:
        return int(trace.table(table).filter(*keep).select(pl.len()).collect().item())

    busy = trace.kernel.select((pl.col("end_ns") - pl.col("start_ns")).sum()).collect().item()
    return {
        "kernels": rows("kernel"),
        "kernel_ns": int(busy),
        "memcpys": rows("memcpy"),
        "memsets": rows("memset"),
        "uvm_migrations": rows("uvm", pl.col("kind").str.starts_with("migrate")),
        "ops": rows("op"),
        "runtime_calls": rows("api", ~pl.col("api").is_in(["hsa", "other"])),
    }
