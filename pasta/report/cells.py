"""Values to text for people: one unit a column, named in its heading, and thousands set apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from pasta.tools.result import ResultColumn, ResultTable

#: What each unit may be shown as, smallest first: (size of one, its name).
_SCALES: dict[str, tuple[tuple[float, str], ...]] = {
    "ns": ((1, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")),
    "bytes": ((1, "B"), (2**10, "KiB"), (2**20, "MiB"), (2**30, "GiB"), (2**40, "TiB")),
    "bytes/s": ((1, "B/s"), (1e3, "kB/s"), (1e6, "MB/s"), (1e9, "GB/s"), (1e12, "TB/s")),
}
#: Endings of column names that only repeat the unit, left out of headings.
_UNIT_ENDINGS = ("_ns", "_bytes", "_pct")
_ASCII = {"µs": "us"}
_BAR_CELLS = 16
_EIGHTHS = " ▏▎▍▌▋▊▉"


@dataclass(frozen=True)
class Cells:
    """One column ready to be laid out: heading, texts, and whether it is aligned to the right."""

    heading: str
    texts: list[str]
    right: bool


def format_table(table: ResultTable, unicode: bool = True) -> list[Cells]:
    """Format all columns of a table; a percentage with ``bar`` is followed by a column of bars."""
    columns: list[Cells] = []
    for column in table.columns:
        series = table.frame.get_column(column.name)
        columns.append(_format(column, series, unicode))
        if column.bar:
            columns.append(Cells("", [_bar(value, unicode) for value in series.to_list()], right=False))
    return columns


def clean(text: str) -> str:
    """Return ``text`` on one line and without characters that would steer a terminal: names are untrusted."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else "\N{REPLACEMENT CHARACTER}" for c in text)


def duration(ns: float) -> str:
    """Return a single time with the unit that suits it: ``29.0 ms``."""
    return _single(ns, _SCALES["ns"])


def size(number: float) -> str:
    """Return a single size with the unit that suits it: ``1.5 GiB``."""
    return _single(number, _SCALES["bytes"])


def grouped(value: float, decimals: int = 0) -> str:
    """Return a number with its thousands set apart by spaces: ``8 431``."""
    return f"{value:,.{decimals}f}".replace(",", " ")


def _single(value: float, scales: Sequence[tuple[float, str]]) -> str:
    scale, unit = _scale([value], scales)
    decimals = 0 if scale == 1 and float(value).is_integer() else 1 if abs(value / scale) >= 10 else 2
    return f"{grouped(value / scale, decimals)} {unit}"


def _scale(values: Sequence[float], scales: Sequence[tuple[float, str]]) -> tuple[float, str]:
    largest = max((abs(value) for value in values), default=0.0)
    return next(((scale, name) for scale, name in reversed(scales) if largest >= scale), scales[0])


def _format(column: ResultColumn, series: pl.Series, unicode: bool) -> Cells:
    values = series.to_list()
    title = clean(column.title) or _without_unit(column.name)
    if not series.dtype.is_numeric():
        return Cells(_plain(title, unicode), [_plain(_text(value), unicode) for value in values], right=False)
    numbers = [float(value) for value in values if value is not None and math.isfinite(value)]
    show, unit = _number_format(column.unit, series, numbers)
    heading = title if not unit or title == unit else f"{title} {unit}"
    texts = ["-" if value is None or not math.isfinite(value) else show(value) for value in values]
    return Cells(_plain(heading, unicode), [_plain(text, unicode) for text in texts], right=True)


def _number_format(unit: str, series: pl.Series, numbers: list[float]) -> tuple[Callable[[Any], str], str]:
    whole = series.dtype.is_integer()
    if unit in _SCALES:
        scale, name = _scale(numbers, _SCALES[unit])
        decimals = 2 if scale > 1 else 0 if whole else 1
        return (lambda value: _rounded(value / scale, decimals)), name
    if unit == "%":
        return (lambda value: _rounded(value, 1)), "%"
    if unit == "id":
        return str, ""
    if unit in ("count", ""):
        return (lambda value: grouped(value) if whole else _rounded(value, 1)), ""
    if unit == "ratio":
        return (lambda value: _rounded(value, 3)), ""
    return (lambda value: grouped(value) if whole else _rounded(value, 2)), unit


def _rounded(value: float, decimals: int) -> str:
    """Round, but never show something small as nothing."""
    smallest = 10.0**-decimals
    if 0 < abs(value) < smallest / 2:
        return f"{'-' if value < 0 else ''}<{smallest:.{decimals}f}"
    return grouped(value, decimals)


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return clean(str(value))


def _without_unit(name: str) -> str:
    for ending in _UNIT_ENDINGS:
        name = name.removesuffix(ending)
    return name.replace("_", " ")


def _plain(text: str, unicode: bool) -> str:
    if unicode or text.isascii():
        return text
    for character, replacement in _ASCII.items():
        text = text.replace(character, replacement)
    return text.encode("ascii", "replace").decode("ascii")


def _bar(percent: Any, unicode: bool) -> str:
    """Draw 0 to 100 % in 16 cells, in eighths of a cell where the encoding has them."""
    if not isinstance(percent, int | float) or not math.isfinite(percent):
        return ""
    eighths = round(min(max(percent, 0.0), 100.0) / 100 * _BAR_CELLS * 8)
    full, rest = divmod(eighths, 8)
    if not unicode:
        return "#" * (full + (rest >= 4))
    return "█" * full + (_EIGHTHS[rest] if rest else "")
