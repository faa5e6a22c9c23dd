"""Analyses of a trace: one module a tool. What this module exports is all that a new one needs."""

from pasta.tools.base import (
    Finding,
    Result,
    ResultColumn,
    ResultTable,
    Samples,
    Tool,
    ToolOptions,
    TraceView,
    option,
)

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
