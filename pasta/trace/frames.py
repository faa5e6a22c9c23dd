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
from pasta.schema import TABLES, Table, Type, sealed_columns

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
    if frame.width == 0:
        return empty_frame(table)
    if frame.schema != frame_schema(table):
        expressions = _columns(frame.schema, table)
        try:
            frame = frame.with_columns(expressions).select(list(columns))
        except pl.exceptions.InvalidOperationError as error:
            why = str(error).splitlines()[0]
            raise PastaError(f"table `{table.name}`: {why}", "leave out values that are unknown") from error
    _check_values(frame, table)
    return frame


def full_schema(frame: pl.LazyFrame, have: pl.Schema, table: Table) -> pl.LazyFrame:
    """Return stored rows with exactly the columns of ``table``, where ``have`` is the schema of ``frame``.

    This is for reading: a trace by an older pasta lacks columns, which become null; one by a newer pasta has more,
    which are left out. Raises ``PastaError`` for a column of a wrong type.
    """
    want = frame_schema(table)
    return frame if have == want else frame.with_columns(_columns(have, table)).select(want.names())


def _columns(have: pl.Schema, table: Table) -> list[pl.Expr]:
    """Return the columns of ``table`` as expressions on a frame whose schema is ``have``."""
    expressions = []
    for name, want in frame_schema(table).items():
        if name not in have:
            expressions.append(pl.lit(None, want).alias(name))
        elif have[name] == want:
            expressions.append(pl.col(name))
        elif _becomes(have[name], want):
            expressions.append(pl.col(name).cast(want))
        else:
            raise PastaError(f"column `{name}` of table `{table.name}` has type {have[name]}", f"it must be {want}")
    return expressions


def _becomes(have: pl.DataType, want: pl.DataType) -> bool:
    return (
        have == pl.Null
        or (have.is_integer() and want.is_numeric())
        or (have == pl.Float32 and want == pl.Float64)
        or (have in (pl.Categorical, pl.Enum) and want == pl.String)
    )


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
