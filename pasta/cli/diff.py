"""pasta diff: compare two traces with a tool; B - A."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from pasta.cli import selection
from pasta.cli.options import FieldsOption, FormatOption, LimitOption, OutputOption, SortOption
from pasta.cli.output import view_of, write_results
from pasta.cli.progress import progress
from pasta.cli.tool_options import DEFAULT_TOOL, find_tools, options_of, with_tool_options
from pasta.cli.tools import complete_tool
from pasta.errors import PastaError

EXIT_GREW = 1


class Match(str, Enum):
    """How rows of the two traces find their partner."""

    NAME = "name"
    BASE = "base"
    OP = "op"
    RANGE = "range"


def build(arguments: Sequence[str]) -> Callable[..., int]:
    """Return the verb's function with the options of the tool that ``arguments`` name."""
    tools = find_tools(arguments)
    if len(tools) > 1:
        raise PastaError("diff compares with one tool", "give --tool once")
    return with_tool_options(_diff, tools)


def _diff(
    a: Annotated[Path, typer.Argument(metavar="A", show_default=False, help="The trace to compare with.")],
    b: Annotated[Path, typer.Argument(metavar="B", show_default=False, help="The trace that changed.")],
    tool: Annotated[
        str,
        typer.Option(
            "--tool",
            "-t",
            metavar="NAME",
            help="Analysis whose results are compared. Its own options follow below.",
            autocompletion=complete_tool,
        ),
    ] = DEFAULT_TOOL,
    match: Annotated[
        Match,
        typer.Option(
            "--match",
            "-m",
            help="How rows find their partner: by name, by name without template arguments, by operator or by range.",
        ),
    ] = Match.NAME,
    column: Annotated[
        str | None,
        typer.Option(
            "--column",
            "-c",
            metavar="NAME",
            show_default=False,
            help="Column to compare. Default: the tool's main one.",
        ),
    ] = None,
    fail_above: Annotated[
        str | None,
        typer.Option(
            "--fail-above",
            metavar="PERCENT[:NAME]",
            show_default=False,
            help="Exit with 1 when the total, or the row or table NAME, grew by more: 5% or 5%:step.",
        ),
    ] = None,
    format: FormatOption = None,
    output: OutputOption = None,
    sort: SortOption = None,
    fields: FieldsOption = None,
    limit: LimitOption = None,
    time: selection.TimeOption = None,
    range: selection.RangeOption = None,
    kernel: selection.KernelOption = None,
    rank: selection.RankOption = None,
    device: selection.DeviceOption = None,
    **tool_values: Any,
) -> int:
    """Compare two traces: what B costs more (+) or less (-) than A.

    Rows are sorted by how much they changed; those of one trace only are listed apart.
    """
    from pasta.tools import registry
    from pasta.tools.diff import diff_traces
    from pasta.trace import Trace

    kind = registry.find(tool)
    filters = selection.filters_of(time, range, kernel, rank, device)
    with Trace.open(a) as before, Trace.open(b) as after:
        with progress(f"running {kind.name} on both"):
            diff = diff_traces(
                kind,
                before,
                after,
                options_of(kind, tool_values),
                filters,
                match=match.value,
                column=column,
                labels=(str(a), str(b)),
            )
        grew = diff.exceeds(fail_above) if fail_above is not None else None
        write_results(diff.result(), format, output, view_of(sort, fields, limit))
    if grew is None:
        return 0
    print(f"pasta: {grew}", file=sys.stderr)
    return EXIT_GREW
