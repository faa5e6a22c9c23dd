"""The one interface of all formats: results and a view in, text out."""

from __future__ import annotations

import difflib
import importlib
import io
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TextIO, cast

from pasta.errors import PastaError
from pasta.report.view import View, apply_view
from pasta.tools.result import Result

#: Formats and the modules that write them; each has a function ``write(results, out, terminal)``.
FORMATS: dict[str, str] = {
    "table": "pasta.report.table",
    "csv": "pasta.report.delimited",
    "tsv": "pasta.report.delimited",
    "json": "pasta.report.json_format",
    "markdown": "pasta.report.markdown",
}


@dataclass(frozen=True)
class Terminal:
    """Where the text goes: ``width`` in columns (None: no limit, as in a pipe), colours, and a UTF-8 encoding."""

    width: int | None = None
    color: bool = False
    unicode: bool = True

    @classmethod
    def of(cls, stream: TextIO) -> Terminal:
        """Describe ``stream``. Colour needs a terminal, and neither ``NO_COLOR`` nor ``TERM=dumb``."""
        encoding = (getattr(stream, "encoding", None) or "utf-8").lower().replace("-", "")
        is_terminal = stream.isatty()
        plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
        return cls(
            width=shutil.get_terminal_size().columns if is_terminal else None,
            color=is_terminal and not plain,
            unicode=encoding.startswith("utf"),
        )


class Reporter(Protocol):
    """A module that writes one format (or, for csv and tsv, a family of them)."""

    def write(self, results: Sequence[Result], out: TextIO, format: str, terminal: Terminal) -> None:
        """Write ``results``, to which the view has been applied, to ``out``."""


def write(
    results: Result | Sequence[Result],
    out: TextIO,
    format: str = "table",
    view: View | None = None,
    terminal: Terminal | None = None,
) -> None:
    """Write one or several results to ``out``; ``terminal`` defaults to what ``out`` is. Raises `PastaError`."""
    reporter = _reporter(format)
    every = [results] if isinstance(results, Result) else list(results)
    reporter.write(apply_view(every, view or View()), out, format, terminal or Terminal.of(out))


def render(
    results: Result | Sequence[Result],
    format: str = "table",
    view: View | None = None,
    terminal: Terminal | None = None,
) -> str:
    """Return what `write` writes; ``terminal`` defaults to a pipe."""
    out = io.StringIO()
    write(results, out, format, view, terminal or Terminal())
    return out.getvalue()


def _reporter(format: str) -> Reporter:
    if format not in FORMATS:
        close = difflib.get_close_matches(format, FORMATS, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise PastaError(f"there is no format {format!r}", f"{hint}use {', '.join(FORMATS)}")
    return cast(Reporter, importlib.import_module(FORMATS[format]))
