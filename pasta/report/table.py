"""The screen: what ran, tables that never wrap, findings and losses. Colour only repeats what a sign says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from rich.color import ColorSystem
from rich.style import Style

from pasta.report.cells import ascii_text, clean, format_table
from pasta.report.layout import cut_middle, lay_out
from pasta.report.text import findings_block, heading, loss_lines, top_rows, wrap
from pasta.tools.result import Result, ResultTable

if TYPE_CHECKING:
    from pasta.report.reporter import Terminal

_TITLE = Style(bold=True)
_HEADING = Style(dim=True)
_SEVERITY = {"high": Style(color="red", bold=True), "medium": Style(color="yellow"), "low": Style(color="cyan")}


def write(results: Sequence[Result], out: TextIO, format: str, terminal: Terminal) -> None:
    """Write results one below the other; a loss that they share is told once, at the end."""
    losses: list[str] = []
    for index, result in enumerate(results):
        blocks = [_header(result, terminal, titled=len(results) > 1)]
        blocks += [_table(table, terminal) for table in result.tables if not table.detail]
        blocks.append(_findings(result, terminal))
        losses += [line for line in loss_lines(result.loss) if line not in losses]
        text = "\n\n".join("\n".join(block) for block in blocks if block)
        text = text if terminal.unicode else ascii_text(text)
        out.write(f"{chr(10) if index and text else ''}{text}{chr(10) if text else ''}")
    if losses:
        lines = [_styled("Not recorded", _TITLE, terminal)]
        lines += [f"  {part}" for line in losses for part in wrap(line, terminal.width, 2)]
        text = "\n".join(lines)
        out.write(f"\n{text if terminal.unicode else ascii_text(text)}\n")


def _header(result: Result, terminal: Terminal, titled: bool) -> list[str]:
    title = [_styled(clean(result.title), _TITLE, terminal)] if titled or not result.header else []
    return title + [part for line in result.header for part in wrap(clean(line), terminal.width)]


def _table(table: ResultTable, terminal: Terminal) -> list[str]:
    title = heading(table) if terminal.width is None else cut_middle(heading(table), terminal.width, terminal.unicode)
    lines = [_styled(title, _TITLE, terminal)]
    if table.frame.height:
        width = None if terminal.width is None else terminal.width - 2
        layout = lay_out(format_table(top_rows(table), terminal.unicode), width, terminal.unicode)
        lines.append("  " + _styled(layout.heading, _HEADING, terminal))
        lines.extend("  " + row for row in layout.rows)
        if layout.left_out:
            left_out = f"  no room for {', '.join(layout.left_out)}: widen the terminal or choose with --fields"
            lines.append(_styled(cut_middle(left_out, terminal.width or 80, terminal.unicode), _HEADING, terminal))
    else:
        lines.append("  (no rows)")
    if table.note:
        lines += [f"  {part}" for part in wrap(clean(table.note), terminal.width, 2)]
    return lines


def _findings(result: Result, terminal: Terminal) -> list[str]:
    if not result.findings:
        return []
    lines = findings_block(result.findings, terminal.width, terminal.unicode)
    styled = [
        _styled(line, _SEVERITY[severity], terminal) if severity in _SEVERITY else line for line, severity in lines
    ]
    return [_styled("Findings", _TITLE, terminal), *styled]


def _styled(text: str, style: Style, terminal: Terminal) -> str:
    return style.render(text, color_system=ColorSystem.STANDARD) if terminal.color else text
