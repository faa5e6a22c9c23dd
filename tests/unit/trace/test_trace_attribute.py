"""Device work finds its thread and operator through the call that started it."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from pasta.schema import TABLES
from pasta.trace.attribute import Attribution, operators_at
from pasta.trace.frames import empty_frame


def rows(table: str, *values: dict[str, object]) -> pl.DataFrame:
    """Rows of ``table`` of process 1; columns left out are null."""
    empty = empty_frame(TABLES[table])
    return pl.DataFrame([{"pid": 1} | value for value in values], schema=empty.schema)


OPS = rows(
    "op",
    # thread 7:   0 ──── linear ──────── 100
    #               10 ─ addmm ─ 50
    #                  20 mm 50 (ends with its caller)
    {"thread_id": 7, "op_id": 1, "parent_id": None, "start_ns": 0, "end_ns": 100},
    {"thread_id": 7, "op_id": 2, "parent_id": 1, "start_ns": 10, "end_ns": 50},
    {"thread_id": 7, "op_id": 3, "parent_id": 2, "start_ns": 20, "end_ns": 50},
    {"thread_id": 8, "op_id": 4, "parent_id": None, "start_ns": 0, "end_ns": 5},
)


def test_innermost_operator() -> None:
    times = [-1, 0, 9, 10, 20, 49, 50, 99, 100]
    moments = pl.DataFrame(
        {"pid": 1, "thread_id": 7, "start_ns": times},
        schema={"pid": pl.Int32, "thread_id": pl.Int32, "start_ns": pl.Int64},
    )
    assert operators_at(OPS, moments)["op_id"].to_list() == [None, 1, 1, 2, 3, 3, 1, 1, None]


def test_kernels_get_thread_and_operator_of_their_call() -> None:
    api = rows(
        "api",
        {"thread_id": 7, "start_ns": 30, "correlation_id": 100, "name": "cudaLaunchKernel"},
        {"thread_id": 7, "start_ns": 31, "correlation_id": 100, "name": "cuLaunchKernel"},
        {"thread_id": 8, "start_ns": 60, "correlation_id": 101, "name": "cudaGraphLaunch"},
    )
    tables = {"api": api, "op": OPS}
    kernel = rows(
        "kernel",
        {"correlation_id": 101, "launch_id": 1},
        {"correlation_id": 100, "launch_id": 2},
        {"correlation_id": 999, "launch_id": 3},  # its call was not recorded
        {"correlation_id": 100, "launch_id": 4, "thread_id": 9, "op_id": 5},  # the backend knew
        {"correlation_id": None, "launch_id": 5},
    )
    filled = Attribution(tables.__getitem__).fill("kernel", kernel)
    assert filled.columns == kernel.columns
    assert filled.select("launch_id", "thread_id", "op_id").rows() == [
        (1, 8, None),
        (2, 7, 3),
        (3, None, None),
        (4, 9, 5),
        (5, None, None),
    ]


def test_work_that_starts_before_its_call_is_counted_and_stays() -> None:
    api = rows("api", *({"thread_id": 7, "start_ns": 100 * i, "correlation_id": i} for i in range(4)))
    attribution = Attribution({"api": api, "op": OPS}.__getitem__)
    starts = [5, 100, 170, 297]  # the last two 30 ns and 3 ns too early
    kernel = rows("kernel", *({"correlation_id": i, "start_ns": start} for i, start in enumerate(starts)))
    assert attribution.fill("kernel", kernel)["start_ns"].to_list() == starts
    assert attribution.notes() == [
        "2 rows of kernel start before the call that launched them, by up to 30 ns: the clocks of host and device are"
        " that far apart"
    ]


def test_calls_are_not_read_when_no_row_needs_them() -> None:
    def fail(name: str) -> pl.DataFrame:
        raise AssertionError(name)

    known = rows("kernel", {"correlation_id": 1, "thread_id": 2, "op_id": 3})
    assert Attribution(fail).fill("kernel", known).equals(known)
    assert Attribution(fail).fill("op", OPS).equals(OPS)


@st.composite
def nested(draw: st.DrawFn) -> list[tuple[int, int | None, int, int]]:
    """Operators (id, parent, start, end) that nest, as calls on one thread do; some begin or end together."""
    operators: list[tuple[int, int | None, int, int]] = []

    def add(parent: int | None, start: int, end: int, depth: int) -> None:
        at = start
        while at < end and depth < 4 and draw(st.booleans()):
            begin = draw(st.integers(at, end - 1))
            finish = draw(st.integers(begin + 1, end))
            number = len(operators) + 1
            operators.append((number, parent, begin, finish))
            add(number, begin, finish, depth + 1)
            at = finish

    add(None, 0, 40, 0)
    return operators


@given(nested())
def test_equals_search_through_all_operators(operators: list[tuple[int, int | None, int, int]]) -> None:
    frame = rows(
        "op", *({"thread_id": 7, "op_id": o, "parent_id": p, "start_ns": s, "end_ns": e} for o, p, s, e in operators)
    )
    times = list(range(-1, 42))
    moments = pl.DataFrame(
        {"pid": 1, "thread_id": 7, "start_ns": times},
        schema={"pid": pl.Int32, "thread_id": pl.Int32, "start_ns": pl.Int64},
    )
    # Ids rise with depth, so that the innermost of the operators that cover a moment has the largest.
    expected = [max((o for o, _, s, e in operators if s <= t < e), default=None) for t in times]
    assert operators_at(frame, moments)["op_id"].to_list() == expected
