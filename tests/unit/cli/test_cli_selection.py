"""How times and numbers are written on the command line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pasta.cli.selection import filters_of, parse_numbers, parse_window
from pasta.errors import PastaError

SECOND = 10**9


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("5s-9s", (5 * SECOND, 9 * SECOND)),
        ("5s-", (5 * SECOND, None)),
        ("-9s", (None, 9 * SECOND)),
        ("1s+9s", (1 * SECOND, 10 * SECOND)),
        ("1.5ms-2us", (1_500_000, 2_000)),
        ("3ns-4µs", (3, 4_000)),
        ("1m-1h", (60 * SECOND, 3600 * SECOND)),
        (" 5s - 9s ", (5 * SECOND, 9 * SECOND)),
    ],
)
def test_windows_of_time(text: str, window: tuple[int | None, int | None]) -> None:
    assert parse_window(text) == window


@pytest.mark.parametrize(
    "text", ["", "-", "+", "5s", "5-9", "5s+", "+9s", "5s--9s", "s-9s", "5x-9x", "-5s-9s", "5s-9s-1s"]
)
def test_what_is_not_a_window_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(PastaError, match="5s-9s") as refused:
        parse_window(text)
    assert repr(text) in refused.value.message


@given(st.text(max_size=20))
def test_any_text_is_a_window_or_refused(text: str) -> None:
    try:
        start, end = parse_window(text)
    except PastaError:
        return
    assert start is not None or end is not None


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("0", {0}), ("0,3-5", {0, 3, 4, 5}), (" 7 , 7 ", {7}), ("2-2", {2})],
)
def test_lists_of_numbers(text: str, numbers: set[int]) -> None:
    assert parse_numbers("--rank", text) == numbers


def test_no_list_is_no_number() -> None:
    assert parse_numbers("--rank", None) == frozenset()


@pytest.mark.parametrize("text", ["", "a", "1,", "5-3", "1-2-3", "-1", "0-999999999", "1234567890123"])
def test_what_is_not_a_list_is_refused_by_the_name_of_its_option(text: str) -> None:
    with pytest.raises(PastaError, match=r"--rank .* is not a list of numbers"):
        parse_numbers("--rank", text)


def test_all_options_become_one_filter() -> None:
    filters = filters_of("1s-2s", "step", "gemm", "0-1", "3")
    assert (filters.time, filters.range, filters.kernel) == ((SECOND, 2 * SECOND), "step", "gemm")
    assert (filters.ranks, filters.devices) == ({0, 1}, {3})
