"""The schema's tables as polars frames: column types, empty frames, and checks of frames that others made.

Text and enumerations are plain ``String`` columns. Parquet stores them with a dictionary, so they cost little on disk;
any reader shows them as text; and a value added to an enumeration later needs no new column type, as it would with
``pl.Enum``, whose comparisons fail on values that it does not list.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache

import polars as pl

from pasta.errors import PastaError
from pasta.schema import TABLES, Column, Table, Type, sealed_columns

DTYPES: dict[Type, pl.DataType] = {
    Type.I64: pl.Int64(),
    Type.I32: pl.Int32(),
    Type.F64: pl.Float64(),
    Type.BOOL: pl.Boolean(),
    Type.STR: pl.String(),
    Type.ENUM: pl.String(),
}


def find_table(name: str) -> Table:
    """Return the table called ``name``; raises ``PastaError`` that suggests the nearest name."""
    table = TABLES.get(name)
    if table is None:
        near = get_close_matches(name, TABLES, n=1)
        fix = f"did you mean `{near[0]}`?" if near else "`pasta schema` lists the tables"
        raise PastaError(f"there is no table `{name}`", fix)
    return table


@cache
def _dtypes(name: str) -> dict[str, pl.DataType]:
    return {column.name: DTYPES[column.type] for column in sealed_columns(TABLES[name])}


def frame_schema(table: Table) -> pl.Schema:
    """Return names and types of the columns of ``table`` in a sealed trace, in order."""
    return pl.Schema(_dtypes(table.name))


def empty_frame(table: Table) -> pl.DataFrame:
    """Return a frame of no rows with every column of ``table``."""
    return pl.DataFrame(schema=frame_schema(table))


def conform(frame: pl.DataFrame, table: Table) -> pl.DataFrame:
    """Return ``frame`` with exactly the columns of ``table``: missing ones are null, order and types are the schema's.

    Integers widen or narrow when every value fits, integers become floats, categories become text. Raises
    ``PastaError`` for a column that the table does not have, for any other type, for a number that does not fit and
    for a value that an enumeration does not list.
    """
    columns = {column.name: column for column in sealed_columns(table)}
    for name in frame.columns:
        if name not in columns:
            near = get_close_matches(name, columns, n=1)
            fix = f"did you mean `{near[0]}`?" if near else f"`pasta schema {table.name}` lists its columns"
            raise PastaError(f"table `{table.name}` has no column `{name}`", fix)
    if frame.schema != frame_schema(table):
        frame = frame.select(
            _cast(frame[name], column, table)
            if name in frame.columns
            else pl.lit(None, DTYPES[column.type]).alias(name)
            for name, column in columns.items()
        )
    _check_values(frame, table)
    return frame


def _cast(series: pl.Series, column: Column, table: Table) -> pl.Series:
    have, want = series.dtype, DTYPES[column.type]
    if have == want:
        return series
    allowed = (
        have == pl.Null
        or (have.is_integer() and want.is_numeric())
        or (have == pl.Float32 and want == pl.Float64)
        or (have in (pl.Categorical, pl.Enum) and want == pl.String)
    )
    where = f"column `{column.name}` of table `{table.name}`"
    if not allowed:
        raise PastaError(f"{where} has type {have}", f"it must be {want}")
    try:
        return series.cast(want)
    except pl.exceptions.InvalidOperationError as error:
        raise PastaError(
            f"{where} has a value that does not fit {want}", "leave out values that are unknown"
        ) from error


def _check_values(frame: pl.DataFrame, table: Table) -> None:
    enums = [column for column in table.columns if column.type is Type.ENUM]
    if not enums or frame.is_empty():
        return
    unlisted = frame.select(
        pl.col(c.name).filter(~pl.col(c.name).is_in(c.values)).unique().head(1).implode().alias(c.name) for c in enums
    )
    for column in enums:
        values = unlisted[column.name][0]
        if len(values):
            raise PastaError(
                f"column `{column.name}` of table `{table.name}` has the value {values[0]!r}",
                f"it must be one of {', '.join(column.values)}",
            )


def full_schema(frame: pl.LazyFrame, have: pl.Schema, table: Table) -> pl.LazyFrame:
    """Return stored rows with exactly the columns of ``table``, where ``have`` is the schema of ``frame``.

    This is for reading: a trace by an older pasta lacks columns, one by a newer pasta has more.
    """
    want = frame_schema(table)
    if have == want:
        return frame
    return frame.select(
        (pl.col(name).cast(dtype) if have[name] != dtype else pl.col(name))
        if name in have
        else pl.lit(None, dtype).alias(name)
        for name, dtype in want.items()
    )
