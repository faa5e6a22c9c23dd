"""No trace breaks a tool: tables with any values, unknown ones too, as damaged or foreign traces have them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pasta.errors import PastaError
from pasta.report import render
from pasta.schema import TABLES, Column, Type, sealed_columns
from pasta.tools import registry
from pasta.tools.base import option_specs
from pasta.tools.diff import diff
from pasta.tools.filters import Filters
from pasta.tools.runner import run
from pasta.tools.testing import MemoryTrace, trace_of

#: Few values, so that rows of different tables refer to each other and times collide.
NUMBERS = st.one_of(st.integers(0, 5), st.integers(0, 60), st.none())
NAMES = st.sampled_from(["step 1", "step 2", "void f<1>(int)", "f", "", None])
VALUES = {
    Type.I64: NUMBERS,
    Type.I32: NUMBERS,
    Type.F64: st.floats(),
    Type.BOOL: st.booleans() | st.none(),
    Type.STR: NAMES,
}


def value_of(column: Column) -> st.SearchStrategy[Any]:
    return st.sampled_from([*column.values, None]) if column.type is Type.ENUM else VALUES[column.type]


def rows_of(name: str) -> st.SearchStrategy[list[dict[str, Any]]]:
    row = {column.name: value_of(column) for column in sealed_columns(TABLES[name])}
    return st.lists(st.fixed_dictionaries(row), min_size=1, max_size=5) | st.just([])


traces = st.fixed_dictionaries({name: rows_of(name) for name in TABLES}).map(lambda tables: trace_of(**tables))
filters = st.just(Filters()) | st.builds(
    Filters,
    time=st.sampled_from([(None, None), (1, None), (2, 40)]),
    range=st.sampled_from([None, None, "step 1"]),
    kernel=st.sampled_from([None, "f"]),
    devices=st.sampled_from([frozenset(), frozenset({0, 1, 2})]),
)
slow = settings(max_examples=10, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("name", registry.BUILTIN)
@slow
@given(trace=traces, filters=filters, data=st.data())
def test_any_trace(name: str, trace: MemoryTrace, filters: Filters, data: st.DataObject) -> None:
    tool = registry.find(name)
    choices = {
        spec.name: data.draw(st.sampled_from(spec.choices)) for spec in option_specs(tool.Options) if spec.choices
    }
    try:
        result = run(tool, trace, tool.Options(**choices), filters)
    except PastaError:
        return
    render(result)
    json.loads(render(result, "json"))
    compared = diff(result, result)
    assert all(comparison.only_a.is_empty() for comparison in compared.comparisons)
    assert not any(change for comparison in compared.comparisons for change in comparison.both["delta"].drop_nulls())
