"""Markdown: the tables as people see them, to paste into an issue or a pull request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from pasta.report.cells import clean, format_table
from pasta.report.text import findings_lines, heading, top_rows
from pasta.tools.result import Result

if TYPE_CHECKING:
    from pasta.report.reporter import Terminal


def write(results: Sequence[Result], out: TextIO, format: str, terminal: Terminal) -> None:
    """Write every result under a heading; findings become a list."""
    for result in results:
        out.write(f"## {_escape(result.title)}\n\n")
        out.writelines(f"{_escape(clean(line))}  \n" for line in result.header)
        for table in (table for table in result.tables if not table.detail):
            shown = top_rows(table)
            columns = format_table(shown)
            out.write(f"\n### {_escape(heading(table))}\n\n")
            out.write(_row([c.heading for c in columns]))
            out.write(_row(["---:" if c.right else "---" for c in columns]))
            out.writelines(_row([_escape(t) for t in texts]) for texts in zip(*(c.texts for c in columns), strict=True))
        if result.findings:
            out.write("\n### Findings\n\n")
            out.writelines(f"- {_escape(line)}\n" for line in findings_lines(result.findings))
        out.write("\n")


def _row(texts: Sequence[str]) -> str:
    return f"| {' | '.join(texts)} |\n"


def _escape(text: str) -> str:
    for character in "\\|`*_<>":
        text = text.replace(character, f"\\{character}")
    return text
