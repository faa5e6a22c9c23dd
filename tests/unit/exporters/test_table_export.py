"""Tables as Parquet and CSV files, whole or not at all."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from pasta.errors import PastaError
from pasta.exporters import export
from pasta.schema import TABLES, sealed_columns
from pasta.tools.testing import trace_of

TRACE = trace_of(
    kernel=[{"start_ns": 0, "end_ns": 10, "name": 'a "b", c'}, {"name": None}],
    memcpy=[{"start_ns": 5, "kind": "h2d", "bytes": 4096}],
)


@pytest.mark.parametrize(("format", "read"), [("parquet", pl.read_parquet), ("csv", pl.read_csv)])
def test_each_table_with_rows_is_one_file(tmp_path: Path, format: str, read: object) -> None:
    assert export(TRACE, format, tmp_path / "out") == 3
    assert {path.name for path in (tmp_path / "out").iterdir()} == {f"kernel.{format}", f"memcpy.{format}"}
    frame = read(tmp_path / "out" / f"kernel.{format}")  # type: ignore[operator]
    assert frame.columns == [column.name for column in sealed_columns(TABLES["kernel"])]
    assert frame["name"].to_list() == ['a "b", c', None]
    assert frame["end_ns"].to_list() == [10, None]


def test_only_the_tables_that_were_named(tmp_path: Path) -> None:
    counted: list[int] = []
    assert export(TRACE, "csv", tmp_path / "out", ["memcpy"], advance=counted.append) == 1
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["memcpy.csv"]
    assert counted == [1]


def test_an_output_that_exists_is_kept_without_overwrite(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(PastaError, match="--force-overwrite"):
        export(TRACE, "csv", tmp_path / "out")
    assert (tmp_path / "out").read_text() == "mine"


def test_an_export_replaces_an_export(tmp_path: Path) -> None:
    export(TRACE, "parquet", tmp_path / "out")
    export(TRACE, "csv", tmp_path / "out", ["memcpy"], overwrite=True)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["memcpy.csv"]


def test_a_directory_that_holds_anything_else_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("mine")
    with pytest.raises(PastaError, match="something else"):
        export(TRACE, "csv", tmp_path / "home", overwrite=True)
    assert (tmp_path / "home" / "letter.txt").read_text() == "mine"


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(PastaError, match="no table"):
        export(TRACE, "csv", tmp_path / "out", ["bogus"])
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(PastaError, match="missing/out: No such file or directory"):
        export(TRACE, "csv", tmp_path / "missing" / "out")
