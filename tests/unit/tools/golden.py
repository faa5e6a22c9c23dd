"""What a user sees of a tool's result, for tests that compare it with a table written by hand."""

from __future__ import annotations

from dataclasses import replace
from textwrap import dedent
from typing import Any

from pasta.report import Terminal, View, render
from pasta.tools import Result, TraceView
from pasta.tools.registry import find
from pasta.tools.runner import run

US = 1_000  # ns
MS = 1_000_000


def result_of(tool: str, trace: TraceView, **options: Any) -> Result:
    """Run a built-in tool with these options."""
    return run(tool, trace, find(tool).Options(**options))


def shown(result: Result, *fields: str) -> str:
    """Return the screen without its header: tables with these columns only (default: all) and findings."""
    text = render(replace(result, header=("header",)), "table", View(fields=fields), Terminal())
    return text.removeprefix("header\n\n")


def table(text: str) -> str:
    """Return a table written in a test as it stands on the screen."""
    return dedent(text).lstrip("\n")
