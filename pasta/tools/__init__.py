"""Analyses of a trace: one module a tool. What this module exports is all that a new one needs."""

from pasta.tools.base import Tool, ToolOptions, TraceView, option
from pasta.tools.result import Finding, Result, ResultColumn, ResultTable, Samples

__all__ = [
    "Finding",
    "Result",
    "ResultColumn",
    "ResultTable",
    "Samples",
    "Tool",
    "ToolOptions",
    "TraceView",
    "option",
]
