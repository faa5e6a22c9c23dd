"""The directory form is read by other programs as it is, here by DuckDB."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from pasta.trace import TraceWriter

duckdb = pytest.importorskip("duckdb")


def write_trace(path: Path, ranks: list[int | None]) -> None:
    with TraceWriter(path, "dir") as writer:
        for rank in ranks:
            kernels = pl.DataFrame({"name": ["a", "b"], "start_ns": [1, 2], "rank": [rank, rank]})
            writer.append("kernel", kernels.cast({"rank": pl.Int32}))
        writer.manifest["command"] = ["./a"]


def test_duckdb_reads_the_tables_of_one_process(tmp_path: Path) -> None:
    write_trace(tmp_path / "t.pasta", [None])
    query = f"SELECT name, start_ns, rank FROM '{tmp_path}/t.pasta/kernel/*.parquet' ORDER BY name"
    assert duckdb.sql(query).fetchall() == [("a", 1, None), ("b", 2, None)]


def test_duckdb_reads_ranks_as_a_hive_partition(tmp_path: Path) -> None:
    write_trace(tmp_path / "t.pasta", [0, 3, 3])
    parts = f"read_parquet('{tmp_path}/t.pasta/kernel/*/*.parquet', hive_partitioning = true)"
    assert duckdb.sql(f"SELECT rank, count(*) FROM {parts} GROUP BY rank ORDER BY rank").fetchall() == [(0, 2), (3, 4)]
    files = duckdb.sql(f"SELECT DISTINCT filename FROM {parts.replace(')', ', filename = true)')} WHERE rank = 3")
    assert all("/rank=3/" in name for (name,) in files.fetchall())


def test_duckdb_reads_rows_with_and_without_a_rank_together(tmp_path: Path) -> None:
    write_trace(tmp_path / "t.pasta", [None, 3])
    query = f"SELECT rank, count(*) FROM '{tmp_path}/t.pasta/kernel/**/*.parquet' GROUP BY rank ORDER BY rank"
    assert duckdb.sql(query).fetchall() == [(3, 2), (None, 2)]


def test_polars_alone_reads_ranks_as_a_hive_partition(tmp_path: Path) -> None:
    write_trace(tmp_path / "t.pasta", [0, 3])
    kernels = pl.scan_parquet(tmp_path / "t.pasta" / "kernel").filter(pl.col("rank") == 3)
    assert kernels.select("name", "rank").collect().rows() == [("a", 3), ("b", 3)]
