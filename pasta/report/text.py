"""Sentences around the tables, shared by the formats that people read: headings, findings, losses."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Sequence

import polars as pl

from pasta.report.cells import clean
from pasta.tools.result import Finding, ResultTable, by_severity
from pasta.tools.units import duration, grouped

_SIGNS = {"high": "▲", "medium": "●", "low": "○", "info": "·"}
_ASCII_SIGNS = {"high": "!", "medium": "*", "low": "-", "info": "."}
#: Sentences are wrapped to at most this many columns, however wide the terminal is.
_LONGEST_LINE = 110
_SHARE_COLUMNS = 10
_INDENT = 11


def top_rows(table: ResultTable) -> ResultTable:
    """Return the table with the rows that are to be seen at first."""
    return table if table.top is None else dataclasses.replace(table, frame=table.frame.head(table.top))


def heading(table: ResultTable) -> str:
    """Return the table's title, with how many of its rows are shown when not all are."""
    title = clean(table.title or table.name)
    if table.top is None or table.frame.height <= table.top:
        return title
    return f"{title} (top {grouped(table.top)} of {grouped(table.frame.height)})"


def findings_lines(findings: Sequence[Finding]) -> list[str]:
    """Return one line a finding: severity, sentence, share of the time, remedy."""
    return [
        f"{finding.severity}: {clean(finding.text)}{f' ({_share(finding)})' if _share(finding) else ''}"
        + (f" → {clean(finding.remedy)}" if finding.remedy else "")
        for finding in by_severity(findings)
    ]


def findings_block(findings: Sequence[Finding], width: int | None, unicode: bool) -> list[tuple[str, str]]:
    """Return (line, severity) pairs: each finding's sentence with its share at the right, then its remedy."""
    lines: list[tuple[str, str]] = []
    signs = _SIGNS if unicode else _ASCII_SIGNS
    for finding in by_severity(findings):
        label = f"  {signs[finding.severity]} {finding.severity}".ljust(_INDENT)
        body = wrap(clean(finding.text), width, _INDENT + _SHARE_COLUMNS)
        share = _share(finding)
        if share and width is None:
            body[0] += f"  {share}"
        elif share:
            body[0] = body[0].ljust(min(width or 0, _LONGEST_LINE) - _INDENT - _SHARE_COLUMNS) + share.rjust(
                _SHARE_COLUMNS
            )
        body += wrap(clean(finding.remedy), width, _INDENT) if finding.remedy else []
        lines.append((label + body[0], finding.severity))
        lines.extend((" " * _INDENT + line, "") for line in body[1:])
    return lines


def loss_lines(loss: pl.DataFrame) -> list[str]:
    """Return one sentence for each row of the `loss` table."""
    lines = []
    for row in loss.iter_rows(named=True):
        records = row.get("records")
        count = f"{grouped(records)} records" if records is not None else "an unknown number of records"
        where = f" of {row['table']}" if row.get("table") else ""
        why = f": {row['cause']}" if row.get("cause") else ""
        remedy = f"; {row['remedy']}" if row.get("remedy") else ""
        lines.append(clean(f"{row.get('source') or 'unknown'} lost {count}{where}{why}{remedy}"))
    return lines


def _share(finding: Finding) -> str:
    if finding.share is not None:
        return f"{finding.share * 100:.1f} %"
    return duration(finding.cost_ns) if finding.cost_ns is not None else ""


def wrap(text: str, width: int | None, taken: int = 0) -> list[str]:
    """Break a sentence into lines for a terminal of ``width`` of which ``taken`` columns are used; a pipe has one."""
    if width is None:
        return [text]
    return textwrap.wrap(text, max(min(width, _LONGEST_LINE) - taken, 20), break_on_hyphens=False) or [""]
