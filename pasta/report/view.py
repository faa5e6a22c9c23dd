"""Sort, choose columns and cut rows of a result: applied once, before any format sees it."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from pasta.errors import PastaError
from pasta.tools.result import Result, ResultColumn, ResultTable


@dataclass(frozen=True)
class View:
    """What of each table to show; the defaults show it as the tool made it.

    ``sort``: columns, most important first; a number sorts descending and a text ascending unless the name is
    prefixed with ``+`` (ascending) or ``-`` (descending). ``fields``: columns in this order. ``limit``: rows a
    table, 0 for all; None leaves it to the format (see `ResultTable.top`). ``percent_limit``: drop rows whose
    first percentage is lower. A table without the columns asked for stays as it is; that no table has one is an
    error.
    """

    sort: Sequence[str] = ()
    fields: Sequence[str] = ()
    limit: int | None = None
    percent_limit: float | None = None


def apply_view(results: Sequence[Result], view: View) -> list[Result]:
    """Return ``results`` with every table sorted, cut and narrowed as ``view`` says; raises `PastaError`."""
    tables = [table for result in results for table in result.tables]
    _require(tables, [name.lstrip("+-") for name in view.sort], "sort by")
    _require(tables, view.fields, "show")
    if view.limit is not None and view.limit < 0:
        raise PastaError(f"a limit of {view.limit} rows is negative", "use 0 for all rows")
    return [dataclasses.replace(result, tables=[_apply(t, view) for t in result.tables]) for result in results]


def _require(tables: Sequence[ResultTable], wanted: Sequence[str], verb: str) -> None:
    known = {column.name for table in tables for column in table.columns}
    for name in wanted:
        if tables and name not in known:
            close = difflib.get_close_matches(name, sorted(known), n=3)
            raise PastaError(
                f"cannot {verb} {name!r}: no column has that name", f"use {', '.join(close or sorted(known))}"
            )


def _apply(table: ResultTable, view: View) -> ResultTable:
    columns = {column.name: column for column in table.columns}
    frame = table.frame
    keys = [name for name in view.sort if name.lstrip("+-") in columns]
    if keys:
        frame = frame.sort(
            [key.lstrip("+-") for key in keys],
            descending=[_descending(key, columns[key.lstrip("+-")]) for key in keys],
            nulls_last=True,
            maintain_order=True,
        )
    share = next((column.name for column in table.columns if column.unit == "%"), None)
    if view.percent_limit is not None and share is not None:
        frame = frame.filter(pl.col(share) >= view.percent_limit)
    top = table.top
    if view.limit is not None:
        frame, top = (frame.head(view.limit) if view.limit else frame), None
    shown = tuple(columns[name] for name in view.fields if name in columns) or table.columns
    return dataclasses.replace(table, frame=frame, columns=shown, top=top)


def _descending(key: str, column: ResultColumn) -> bool:
    if key[0] in "+-":
        return key[0] == "-"
    return column.unit not in ("", "id")
