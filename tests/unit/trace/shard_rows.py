"""Hypothesis strategies of rows that a process may record."""

from __future__ import annotations

from hypothesis import strategies as st
from shard_encoder import Row

from pasta.schema import Column, Table, Type

#: Any value but the one that stands for null.
VALUES = {
    Type.I64: st.integers(-(2**63) + 1, 2**63 - 1),
    Type.I32: st.integers(-(2**31) + 1, 2**31 - 1),
    Type.F64: st.floats(allow_nan=False),
    Type.BOOL: st.booleans(),
    Type.STR: st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
}


def values_of(column: Column) -> st.SearchStrategy[object]:
    values = st.sampled_from(column.values) if column.type is Type.ENUM else VALUES[column.type]
    return st.none() | values


def rows_of(table: Table) -> st.SearchStrategy[Row]:
    """Rows with every column of the table, any of them null."""
    return st.fixed_dictionaries({column.name: values_of(column) for column in table.columns})
