"""pasta analyze: run tools over a trace and print what they found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pasta.cli import selection
from pasta.cli.options import (
    FieldsOption,
    FormatOption,
    LimitOption,
    OutputOption,
    PercentLimitOption,
    SortOption,
    TracesArgument,
)
from pasta.cli.output import view_of, write_results
from pasta.cli.progress import progress
from pasta.cli.tool_options import (
    DEFAULT_TOOL,
    ToolOption,
    find_tools,
    options_of,
    split_names,
    with_tool_options,
)
from pasta.cli.traces import open_merged
from pasta.errors import PastaError

if TYPE_CHECKING:
    from pasta.tools.base import TraceView


class Engine(str, Enum):
    """What runs a tool that works in parts."""

    THREADS = "threads"
    DASK = "dask"


class Source(str, Enum):
    """What memory accesses are taken from."""

    REDUCED = "reduced"
    TRACE = "trace"
    TRACE_CUPY = "trace-cupy"


def build(arguments: Sequence[str]) -> Callable[..., None]:
    """Return the verb's function with the options of the tools that ``arguments`` name."""
    return with_tool_options(_analyze, find_tools(arguments))


def _analyze(
    traces: TracesArgument,
    tool: ToolOption = None,
    format: FormatOption = None,
    output: OutputOption = None,
    sort: SortOption = None,
    fields: FieldsOption = None,
    limit: LimitOption = None,
    percent_limit: PercentLimitOption = None,
    time: selection.TimeOption = None,
    range: selection.RangeOption = None,
    kernel: selection.KernelOption = None,
    rank: selection.RankOption = None,
    device: selection.DeviceOption = None,
    source: Annotated[
        Source,
        typer.Option(
            "--from",
            help="Take memory accesses as the device reduced them, or compute them from each one (recorded with "
            "--memory=trace), on the CPU or with CuPy on a GPU.",
        ),
    ] = Source.REDUCED,
    engine: Annotated[
        Engine, typer.Option("--engine", help="What runs tools that work in parts, a process at a time.")
    ] = Engine.THREADS,
    scheduler: Annotated[
        str | None,
        typer.Option(
            "--scheduler", metavar="ADDRESS", show_default=False, help="Dask scheduler; default: one on this machine."
        ),
    ] = None,
    **tool_values: Any,
) -> None:
    """Run one or more analyses on a trace.

    pasta tools lists them; pasta analyze --tool NAME --help shows the options of one.
    """
    from pasta.tools import registry, runner

    if scheduler is not None and engine is not Engine.DASK:
        raise PastaError("--scheduler is for the dask engine", "add --engine dask")
    filters = selection.filters_of(time, range, kernel, rank, device)
    with open_merged(traces) as opened:
        trace = _accesses_from(source, opened)
        results = []
        for name in split_names(tool or [DEFAULT_TOOL]):
            kind = registry.find(name)
            with progress(f"running {kind.name}"):
                options = options_of(kind, tool_values)
                results.append(runner.run(kind, trace, options, filters, engine=engine.value, scheduler=scheduler))
        write_results(results, format, output, view_of(sort, fields, limit, percent_limit))


def _accesses_from(source: Source, trace: TraceView) -> TraceView:
    if source is Source.REDUCED:
        return trace
    from pasta.tools.analysis.raw_accesses import RawAccesses, array_module

    return RawAccesses(trace, array_module("cupy" if source is Source.TRACE_CUPY else "numpy"))
