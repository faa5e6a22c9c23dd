"""Frames that others make are brought to the schema or refused with a message that names what is wrong."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from pasta.errors import PastaError
from pasta.schema import TABLES, sealed_columns
from pasta.trace.frames import conform, empty_frame, find_table


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_an_empty_frame_has_the_sealed_columns_in_order(table: Any) -> None:
    assert empty_frame(table).columns == [column.name for column in sealed_columns(table)]
    assert conform(pl.DataFrame(), table).equals(empty_frame(table))


def test_missing_columns_become_null_for_every_row() -> None:
    frame = conform(pl.DataFrame({"name": ["a", "b"]}), TABLES["kernel"])
    assert frame.height == 2
    assert frame["grid_x"].to_list() == [None, None]


def test_integers_and_categories_are_converted() -> None:
    frame = pl.DataFrame(
        {
            "pid": pl.Series([7], dtype=pl.UInt64),
            "start_ns": pl.Series([5], dtype=pl.UInt32),
            "kind": pl.Series(["h2d"], dtype=pl.Categorical),
            "asynchronous": pl.Series([None], dtype=pl.Null),
        }
    )
    row = conform(frame, TABLES["memcpy"]).select("pid", "start_ns", "kind", "asynchronous")
    assert row.rows() == [(7, 5, "h2d", None)]
    assert row.dtypes == [pl.Int32, pl.Int64, pl.String, pl.Boolean]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"nmae": ["a"]}, "no column `nmae`; did you mean `name`"),
        ({"zzzzzz": [1]}, "no column `zzzzzz`; `pasta schema kernel`"),
        ({"start_ns": [1.5]}, "`start_ns` of table `kernel` has type Float64; it must be Int64"),
        ({"name": [1]}, "`name` of table `kernel` has type Int64; it must be String"),
        ({"compiled": [1]}, "`compiled` of table `kernel` has type Int64; it must be Boolean"),
        ({"pid": [2**31]}, "`kernel`.*2147483648"),
    ],
)
def test_other_columns_types_and_values_are_refused(columns: dict[str, list[Any]], message: str) -> None:
    with pytest.raises(PastaError, match=message):
        conform(pl.DataFrame(columns), TABLES["kernel"])


def test_a_value_that_an_enumeration_does_not_list_is_refused() -> None:
    with pytest.raises(PastaError, match="`kind` of table `memcpy` has the value 'h2x'; it must be one of unknown"):
        conform(pl.DataFrame({"kind": ["h2d", None, "h2x"]}), TABLES["memcpy"])


def test_an_unknown_table_is_refused() -> None:
    with pytest.raises(PastaError, match="no table `qqq`; `pasta schema` lists"):
        find_table("qqq")
