"""Results go to standard output or to a file, whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path

import polars as pl
import pytest

from pasta.cli.options import Format
from pasta.cli.output import open_output, view_of, write_results
from pasta.errors import PastaError
from pasta.tools.result import Result, ResultColumn, ResultTable

RESULT = Result("calls", [ResultTable("calls", pl.DataFrame({"ns": [1500]}), (ResultColumn("ns", "ns"),))])


@pytest.mark.parametrize(
    ("name", "beginning"),
    [("a.csv", "ns\n1500\n"), ("a", "ns\n1500\n"), ("a.tsv", "ns\n1500\n"), ("a.json", '{"version": 1'), ("a.md", "")],
)
def test_the_suffix_of_a_file_chooses_the_format(tmp_path: Path, name: str, beginning: str) -> None:
    write_results(RESULT, None, str(tmp_path / name))
    assert (tmp_path / name).read_text().startswith(beginning)


def test_an_option_wins_over_the_suffix(tmp_path: Path) -> None:
    write_results(RESULT, Format.JSON, str(tmp_path / "a.csv"))
    assert json.loads((tmp_path / "a.csv").read_text())["tables"][0]["rows"] == [{"ns": 1500}]


def test_standard_output_gets_a_table_in_convenient_units(capsys: pytest.CaptureFixture[str]) -> None:
    write_results(RESULT, None, "-")
    assert "1.50" in capsys.readouterr().out  # microseconds


def test_a_file_stays_as_it_was_when_writing_fails(tmp_path: Path) -> None:
    path = tmp_path / "kept.csv"
    path.write_text("before")
    with pytest.raises(PastaError, match="no column has that name"):
        write_results(RESULT, None, str(path), view_of(sort="bogus"))
    assert [entry.name for entry in tmp_path.iterdir()] == ["kept.csv"]
    assert path.read_text() == "before"


def test_a_new_file_has_the_rights_that_the_umask_leaves(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_results(RESULT, None, str(tmp_path / "a.csv"))
    finally:
        os.umask(before)
    assert (tmp_path / "a.csv").stat().st_mode & 0o777 == 0o640


def test_a_device_is_written_to_and_not_replaced() -> None:
    with open_output("/dev/null") as out:
        out.write("nothing")
    assert not Path("/dev/null").is_file()


def test_a_file_that_cannot_be_written_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(PastaError, match=r"missing/a\.csv: No such file or directory"):
        write_results(RESULT, None, str(tmp_path / "missing" / "a.csv"))


def test_lists_of_columns_are_separated_by_commas() -> None:
    view = view_of(sort="+name, -calls", fields="name,", limit=3, percent_limit=0.5)
    assert (view.sort, view.fields, view.limit, view.percent_limit) == (("+name", "-calls"), ("name",), 3, 0.5)
