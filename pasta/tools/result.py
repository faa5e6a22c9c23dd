"""What a tool returns: tables, findings and what was lost, as data. Reporters turn it into text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import polars as pl

Severity = Literal["high", "medium", "low", "info"]

#: From the most to the least severe: the order in which findings are shown.
SEVERITIES: tuple[Severity, ...] = ("high", "medium", "low", "info")


@dataclass(frozen=True)
class ResultColumn:
    """One column of a result: what its numbers are, so that a reporter can show them and `diff` compare them.

    ``unit`` is the unit of the stored values: ``ns``, ``bytes``, ``bytes/s``, ``%`` (0 to 100), ``count``,
    ``ratio``, ``id``, ``series`` (a list of numbers over time), or ``""`` for text. Reporters for people scale ``ns``
    and ``bytes``, columns of one ``family`` alike; csv and json never do.
    ``title`` is the heading for people (the name when empty). ``key`` columns identify a row across traces.
    ``merge`` says how rows that become one are merged: ``sum``, ``min``, ``max``, ``mean:WEIGHT`` (mean weighted
    by column WEIGHT), or ``""``: cannot be merged. ``bar`` asks a text reporter for a bar beside a percentage.
    """

    name: str
    unit: str = ""
    title: str = ""
    key: bool = False
    merge: str = ""
    bar: bool = False
    family: str = ""

    @property
    def heading(self) -> str:
        """What people read above the column, without its unit."""
        if self.title:
            return self.title
        ending = {"ns": "_ns", "bytes": "_bytes"}.get(self.unit, "")
        return self.name.removesuffix(ending).replace("_", " ")


@dataclass(frozen=True)
class Samples:
    """Single measurements behind a column of a table (calls, steps), from which `diff` judges significance.

    ``frame`` has the table's key columns and ``value``; ``column`` is the table's column that they explain.
    """

    column: str
    frame: pl.DataFrame


@dataclass(frozen=True)
class ResultTable:
    """One table of a result. ``frame`` has at least the columns named in ``columns``, in any order.

    ``top`` is the number of rows that a person wants to see at first (None: all); csv and json give all rows.
    ``note`` is one line shown under the table. ``detail`` tables are too detailed for a screen: files have them.
    """

    name: str
    frame: pl.DataFrame
    columns: tuple[ResultColumn, ...]
    title: str = ""
    top: int | None = None
    note: str = ""
    detail: bool = False
    samples: Samples | None = None

    def column(self, name: str) -> ResultColumn:
        """Return the column called ``name``; raises ``KeyError`` when there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(f"table {self.name} has no column {name}")

    @property
    def keys(self) -> tuple[str, ...]:
        """Names of the columns that identify a row."""
        return tuple(column.name for column in self.columns if column.key)


@dataclass(frozen=True)
class Finding:
    """A sentence with evidence: what is wrong, where, what it costs and what to do.

    ``id`` names the kind of finding (``device-idle``) and never changes between versions. ``cost_ns`` is the time
    at stake and ``share`` its fraction (0 to 1) of the wall time; None where time is not what is lost.
    ``evidence`` holds the JSON-able numbers and names that the sentence was made from.
    """

    id: str
    severity: Severity
    text: str
    cost_ns: int | None = None
    share: float | None = None
    remedy: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """Everything a tool found. ``header`` says what ran; ``loss`` has the trace's `loss` rows that concern it."""

    title: str
    tables: Sequence[ResultTable] = ()
    findings: Sequence[Finding] = ()
    header: Sequence[str] = ()
    loss: pl.DataFrame = field(default_factory=pl.DataFrame)

    def table(self, name: str) -> ResultTable:
        """Return the table called ``name``; raises ``KeyError`` when there is none."""
        for table in self.tables:
            if table.name == name:
                return table
        raise KeyError(f"result {self.title!r} has no table {name}")


def by_severity(findings: Sequence[Finding]) -> list[Finding]:
    """Sort findings: most severe first, then most costly."""
    return sorted(findings, key=lambda f: (SEVERITIES.index(f.severity), -(f.cost_ns or 0), f.id))
