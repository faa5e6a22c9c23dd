"""JSON: one strict object with a version, one row a line. The shape is a promise to scripts.

    {"version": 1,
     "tables": [{"name", "columns": [{"name", "unit"}], "rows": [{column: value}]}],
     "findings": [{"id", "severity", "text", "cost_ns", "share", "remedy", "evidence"}],
     "loss": [{column of the `loss` table: value}]}

Values keep the units of their columns (times are ns, shares of findings 0 to 1); what is unknown is null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

import polars as pl

from pasta.report.names import table_names
from pasta.tools.result import Finding, Result, by_severity

if TYPE_CHECKING:
    from pasta.report.reporter import Terminal

VERSION = 1
_ROWS_AT_ONCE = 10_000


def write(results: Sequence[Result], out: TextIO, format: str, terminal: Terminal) -> None:
    """Write all results as one object."""
    out.write(f'{{"version": {VERSION},\n "tables": [')
    for index, (name, table) in enumerate(table_names(results)):
        columns = [{"name": column.name, "unit": column.unit} for column in table.columns]
        head = json.dumps({"name": name, "columns": columns})[:-1]
        out.write(f'{"," if index else ""}\n  {head}, "rows": [')
        _write_list(_rows(table.frame.select([column.name for column in table.columns])), out)
        out.write("]}")
    out.write('],\n "findings": [')
    _write_list((_finding(f) for f in by_severity([f for r in results for f in r.findings])), out)
    out.write('],\n "loss": [')
    _write_list((row for loss in _losses(results) for row in _rows(loss)), out)
    out.write("]}\n")


def _write_list(values: Iterator[Any], out: TextIO) -> None:
    for index, value in enumerate(values):
        out.write(f"{',' if index else ''}\n   {json.dumps(value, allow_nan=False)}")


def _rows(frame: pl.DataFrame) -> Iterator[dict[str, Any]]:
    for part in frame.iter_slices(_ROWS_AT_ONCE):
        for row in part.iter_rows(named=True):
            yield {name: strict(value) for name, value in row.items()}


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "id": finding.id,
        "severity": finding.severity,
        "text": finding.text,
        "cost_ns": finding.cost_ns,
        "share": strict(finding.share),
        "remedy": finding.remedy,
        "evidence": strict(finding.evidence),
    }


def _losses(results: Sequence[Result]) -> list[pl.DataFrame]:
    """Tools that ran over the same trace report the same losses; give each once."""
    losses: list[pl.DataFrame] = []
    for result in results:
        if result.loss.height and not any(result.loss.equals(known) for known in losses):
            losses.append(result.loss)
    return losses


def strict(value: Any) -> Any:
    """Return ``value`` as what JSON has: NaN and infinities become None, unknown types their text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, pl.Series | list | tuple):
        return [strict(item) for item in value]
    if hasattr(value, "item"):  # a numpy scalar
        return strict(value.item())
    return str(value)
