"""The schema is consistent, and what is generated from it is up to date."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pasta.schema import TABLES, Table, Type, sealed_columns, table_by_id

ROOT = Path(__file__).resolve().parents[2]


def test_generated_files_are_up_to_date() -> None:
    result = subprocess.run(
        [sys.executable, ROOT / "scripts" / "codegen.py", "--check"], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout


def test_ids_are_unique_and_never_zero() -> None:
    ids = [table.id for table in TABLES.values()]
    assert len(set(ids)) == len(ids)
    assert 0 not in ids  # strings, in a shard
    assert all(table_by_id(table.id) is table for table in TABLES.values())
    assert table_by_id(max(ids) + 1) is None


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_table(table: Table) -> None:
    names = [column.name for column in sealed_columns(table)]
    assert len(set(names)) == len(names)
    assert set(table.key) <= set(names)
    for column in table.columns:
        assert column.meaning
        assert column.name.endswith("_ns") == (column.unit == "ns")
        assert (column.type is Type.ENUM) == bool(column.values)
        assert len(column.values) < 255  # a byte in a shard, of which 255 is null


def test_every_time_is_int64() -> None:
    for table in TABLES.values():
        for column in table.columns:
            if column.unit == "ns":
                assert column.type is Type.I64
