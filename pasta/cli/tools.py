"""pasta tools: the analyses that there are, what each needs and which options it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pasta.cli.options import FormatOption, OutputOption
from pasta.cli.output import write_results

if TYPE_CHECKING:
    from pasta.tools import Tool
    from pasta.tools.result import Result


def complete_tool(incomplete: str) -> list[str]:
    """Return the names of tools that begin with ``incomplete``, for the shell."""
    from pasta.tools import registry

    return [name for name in registry.names() if name.startswith(incomplete)]


def command(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            show_default=False,
            help="Tools to describe: names, or paths of Python files.",
            autocompletion=complete_tool,
        ),
    ] = None,
    format: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """List the analyses that pasta analyze --tool takes, or describe some with their options."""
    from pasta.tools import registry

    if names:
        write_results([_described(registry.find(name)) for name in names], format, output)
    else:
        write_results(_listing(), format, output)


def _listing() -> Result:
    import polars as pl

    from pasta.tools import registry
    from pasta.tools.result import Result, ResultColumn, ResultTable

    rows = [(info.name, info.summary, info.origin, ", ".join(info.aliases)) for info in registry.listing()]
    names = ["tool", "summary", "origin", "aliases"]
    frame = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")
    columns = tuple(ResultColumn(name, key=name == "tool") for name in names)
    return Result("Tools", [ResultTable("tools", frame, columns, title="Tools")], header=["pasta tools NAME: options"])


def _described(tool: type[Tool]) -> Result:
    import polars as pl

    from pasta.tools.base import option_specs
    from pasta.tools.result import Result, ResultColumn, ResultTable

    rows = [
        (spec.flag, "|".join(spec.choices) or spec.type.__name__, _shown(spec.default), spec.help)
        for spec in option_specs(tool.Options)
    ]
    names = ["option", "type", "default", "meaning"]
    frame = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")
    columns = tuple(ResultColumn(name, key=name == "option") for name in names)
    table = ResultTable(tool.name, frame, columns, title=f"Options of {tool.name}")
    needs = f"needs: {', '.join(sorted(tool.needs)) or 'nothing'}"
    return Result(tool.name, [table], header=[f"{tool.name}: {tool.summary}", needs])


def _shown(default: object) -> str:
    return "" if default is None else str(default)
