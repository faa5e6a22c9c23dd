"""pasta report: one self-contained HTML page about a trace."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pasta.cli import selection
from pasta.cli.options import OverwriteOption, TracesArgument
from pasta.cli.output import open_output
from pasta.cli.progress import progress
from pasta.cli.tool_options import split_names
from pasta.cli.tools import complete_tool
from pasta.cli.traces import open_merged
from pasta.errors import PastaError

if TYPE_CHECKING:
    from pasta.tools import Tool
    from pasta.trace import Trace


def command(
    traces: TracesArgument,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", show_default=False, help="Page to write. Default: TRACE.html."),
    ] = None,
    tool: Annotated[
        list[str] | None,
        typer.Option(
            "--tool",
            "-t",
            metavar="NAME",
            show_default=False,
            help="Analysis to show; repeatable. Default: all that have something to say about the trace.",
            autocompletion=complete_tool,
        ),
    ] = None,
    force_overwrite: OverwriteOption = False,
    time: selection.TimeOption = None,
    range: selection.RangeOption = None,
    kernel: selection.KernelOption = None,
    rank: selection.RankOption = None,
    device: selection.DeviceOption = None,
) -> None:
    """Write one self-contained HTML page about a trace: it needs no network and no server."""
    from pasta import report
    from pasta.tools import runner

    page = output or Path(f"{traces[0].name.removesuffix('.pasta')}.html")
    if page.exists() and not force_overwrite:
        raise PastaError(f"{page} exists", "choose another name or pass --force-overwrite")
    filters = selection.filters_of(time, range, kernel, rank, device)
    with open_merged(traces) as trace:
        kinds = _tools(trace, split_names(tool or []))
        with progress("analysing", len(kinds)) as bar:
            results = []
            for kind in kinds:
                results.append(runner.run(kind, trace, filters=filters))
                bar.advance(1)
        with open_output(str(page)) as out:
            report.write(results, out, "html")
    print(f"pasta: {page}", file=sys.stderr)


def _tools(trace: Trace, names: list[str]) -> list[type[Tool]]:
    """Return the tools that were named, or those whose tables the trace has."""
    from pasta.tools import registry

    kinds = [registry.find(name) for name in names or registry.names()]
    return [kind for kind in kinds if names or kind.needs <= trace.present]
