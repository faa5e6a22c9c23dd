"""Values to text for people: one unit a column, named in its heading, and thousands set apart."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import Any

import polars as pl

from pasta.tools.result import ResultColumn, ResultTable
from pasta.tools.units import SCALES, grouped, scale_of

_UNKNOWN = "-"
_BAR_CELLS = 16
_EIGHTHS = "▏▎▍▌▋▊▉█"
_LEVELS = "▁▂▃▄▅▆▇█"
_ASCII = str.maketrans({"µ": "u", "…": "..", "·": "-", "×": "x", "±": "+-",  # noqa: RUF001
                        **dict.fromkeys("▏▎▍", None), **dict.fromkeys("▌▋▊▉█", "#"),
                        **dict(zip(_LEVELS, ".:-=+*%#", strict=True))})  # fmt: skip


@dataclass(frozen=True)
class Cells:
    """One column ready to be laid out: heading, texts, and whether it is aligned to the right."""

    heading: str
    texts: list[str]
    right: bool


def format_table(table: ResultTable, unicode: bool = True) -> list[Cells]:
    """Format all columns of a table; a percentage with ``bar`` is followed by a column of bars."""
    families = _families(table)
    columns: list[Cells] = []
    for column in table.columns:
        values = table.frame.get_column(column.name).to_list()
        cells = _format(column, table.frame.schema[column.name], values, families.get(column.family))
        columns.append(cells)
        if column.bar:
            columns.append(Cells("", [_bar(value) for value in values], right=False))
    return columns if unicode else [_ascii(cells) for cells in columns]


def _families(table: ResultTable) -> dict[str, tuple[float, str]]:
    """Choose a common scale for columns of one family: that of their middle value, so that most read well."""
    pooled: dict[tuple[str, str], list[float]] = {}
    for column in table.columns:
        if column.family and column.unit in SCALES and table.frame.schema[column.name].is_numeric():
            values = _finite(table.frame.get_column(column.name).to_list())
            pooled.setdefault((column.family, column.unit), []).extend(abs(value) for value in values if value)
    return {family: scale_of([median(values)] if values else [], unit) for (family, unit), values in pooled.items()}


def clean(text: str) -> str:
    """Return ``text`` on one line and without characters that would steer a terminal: names are untrusted."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _format(column: ResultColumn, dtype: pl.DataType, values: list[Any], scale: tuple[float, str] | None) -> Cells:
    title = clean(column.heading)
    if isinstance(dtype, pl.List | pl.Array):
        return Cells(title, [_series(value) for value in values], right=False)
    if not dtype.is_numeric():
        return Cells(title, [_text(value) for value in values], right=column.unit != "")
    whole = dtype.is_integer()
    if column.unit in SCALES:
        size, unit = scale or scale_of(_finite(values), column.unit)
        decimals = 2 if size > 1 else 0 if whole else 1
    else:
        size, unit = 1, column.unit if column.unit in ("%", "kHz") else ""
        decimals = 0 if whole else {"%": 1, "ratio": 3}.get(column.unit, 1)
    heading = title if not unit or title == unit else f"{title} {unit}"
    number = str if column.unit == "id" else (lambda value: _rounded(value / size if size > 1 else value, decimals))
    texts = [_UNKNOWN if value is None or not math.isfinite(value) else number(value) for value in values]
    return Cells(heading, texts, right=True)


def _finite(values: list[Any]) -> list[float]:
    return [float(value) for value in values if value is not None and math.isfinite(value)]


def _rounded(value: float, decimals: int) -> str:
    """Round, but never show something small as nothing."""
    smallest = 10.0**-decimals
    if 0 < abs(value) < smallest / 2:
        return f"{'-' if value < 0 else ''}<{smallest:.{decimals}f}"
    return grouped(value, decimals)


def _text(value: Any) -> str:
    if value is None:
        return _UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    return clean(str(value))


def ascii_text(text: str) -> str:
    """Return ``text`` for a terminal that knows no other characters."""
    return text if text.isascii() else text.translate(_ASCII).encode("ascii", "replace").decode("ascii")


def _ascii(cells: Cells) -> Cells:
    return Cells(ascii_text(cells.heading), [ascii_text(text) for text in cells.texts], cells.right)


def _bar(percent: Any) -> str:
    """Draw 0 to 100 % in 16 cells, to an eighth of a cell."""
    if not isinstance(percent, int | float) or not math.isfinite(percent):
        return ""
    eighths = round(min(max(percent, 0.0), 100.0) / 100 * _BAR_CELLS * 8)
    full, rest = divmod(eighths, 8)
    return _EIGHTHS[-1] * full + (_EIGHTHS[rest - 1] if rest else "")


def _series(values: Any) -> str:
    """Draw numbers over time as one character each, relative to the largest; nothing is a blank."""
    numbers = [value if isinstance(value, int | float) and math.isfinite(value) else 0 for value in values or ()]
    largest = max(numbers, default=0)
    if largest <= 0:
        return ""
    return "".join(_LEVELS[math.ceil(max(n, 0) / largest * len(_LEVELS)) - 1] if n > 0 else " " for n in numbers)
