"""Turn a `Result` into text: one module a format, one interface (`render`, `write`)."""

from pasta.report.reporter import FORMATS, Terminal, render, write
from pasta.report.view import View

__all__ = ["FORMATS", "Terminal", "View", "render", "write"]
