"""Options that several verbs share, spelled once."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from pasta.schema import TABLES


class Format(str, Enum):
    """Forms in which results are printed."""

    TABLE = "table"
    CSV = "csv"
    TSV = "tsv"
    JSON = "json"
    MARKDOWN = "markdown"


def complete_table(incomplete: str) -> list[str]:
    """Return the names of tables that begin with ``incomplete``, for the shell."""
    return [name for name in TABLES if name.startswith(incomplete)]


TraceArgument = Annotated[Path, typer.Argument(metavar="TRACE", show_default=False, help="A trace.")]
TracesArgument = Annotated[
    list[Path],
    typer.Argument(metavar="TRACE", show_default=False, help="Traces; several are the ranks of one job."),
]
FormatOption = Annotated[
    Format | None,
    typer.Option(
        "--format",
        "-f",
        metavar="FORMAT",
        show_default=False,
        help="table, csv, tsv, json or markdown. Default: table on standard output, by its suffix or csv in a file.",
    ),
]
OutputOption = Annotated[
    str | None,
    typer.Option("--output", "-o", metavar="FILE", show_default=False, help="Write to FILE; - is standard output."),
]
NewFileOption = Annotated[
    Path, typer.Option("--output", "-o", metavar="OUT", show_default=False, help="What to write.")
]
OverwriteOption = Annotated[bool, typer.Option("--force-overwrite", "-f", help="Replace the output when it exists.")]
SortOption = Annotated[
    str | None,
    typer.Option(
        "--sort",
        "-s",
        metavar="COLUMNS",
        show_default=False,
        help="Sort by these columns, for example total_ns or +name,-calls (+ ascending, - descending).",
    ),
]
FieldsOption = Annotated[
    str | None,
    typer.Option(
        "--fields", "-F", metavar="COLUMNS", show_default=False, help="Show only these columns, in this order."
    ),
]
LimitOption = Annotated[
    int | None,
    typer.Option(
        "--limit", "-n", metavar="ROWS", show_default=False, help="Show at most so many rows a table; 0: all."
    ),
]
PercentLimitOption = Annotated[
    float | None,
    typer.Option(
        "--percent-limit", metavar="PERCENT", show_default=False, help="Leave out rows below this share of the whole."
    ),
]
