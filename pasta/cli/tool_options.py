"""``--tool``, and the options of tools as options of a verb: a tool's ``Options`` become typer parameters."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from pasta.cli.tools import complete_tool
from pasta.errors import PastaError

if TYPE_CHECKING:
    from pasta.tools import Tool
    from pasta.tools.base import OptionSpec

DEFAULT_TOOL = "workload"

ToolOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tool",
        "-t",
        metavar="NAME",
        show_default=False,
        help=f"Analysis to run, or the path of a Python file with one; repeatable. Default: {DEFAULT_TOOL}. "
        "Its own options follow below.",
        autocompletion=complete_tool,
    ),
]


def find_tools(arguments: Sequence[str]) -> list[type[Tool]]:
    """Return the tools that a command line asks for before it is parsed; raises ``PastaError`` for an unknown one."""
    from pasta.tools import registry

    return [registry.find(name) for name in named_tools(arguments) or [DEFAULT_TOOL]]


def named_tools(arguments: Sequence[str]) -> list[str]:
    """Return the values of ``--tool`` (``-t``) on a command line that was not parsed yet."""
    values = []
    for argument, following in zip(arguments, [*arguments, ""][1:], strict=True):
        if argument == "--":
            break
        if argument in ("--tool", "-t"):
            values.append(following)
        elif argument.startswith("--tool="):
            values.append(argument.removeprefix("--tool="))
        elif argument.startswith("-t"):
            values.append(argument[2:])
    return split_names(values)


def split_names(values: Sequence[str]) -> list[str]:
    """Return the names of tools in ``values``, each of which may be several with commas between."""
    return [name for value in values for name in value.split(",") if name]


def with_tool_options(function: Callable[..., Any], tools: Sequence[type[Tool]]) -> Callable[..., Any]:
    """Return ``function`` with its ``**`` parameter replaced by a parameter for each option of ``tools``."""
    signature = inspect.signature(function, eval_str=True)
    fixed = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    added = list(_parameters(tools, {p.name for p in fixed}))

    @wraps(function)
    def command(**values: Any) -> Any:
        return function(**values)

    command.__signature__ = signature.replace(parameters=[*fixed, *added])  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in [*fixed, *added]}
    return command


def options_of(tool: type[Tool], values: dict[str, Any]) -> Any:
    """Return the tool's options, with those of ``values`` (parameters of `with_tool_options`) that are its own."""
    names = {field.name for field in dataclasses.fields(tool.Options)}
    plain = {name: value.value if isinstance(value, Enum) else value for name, value in values.items()}
    return tool.Options(**{name: value for name, value in plain.items() if name in names})


def _parameters(tools: Sequence[type[Tool]], taken: set[str]) -> Iterator[inspect.Parameter]:
    from pasta.tools.base import option_specs

    seen: dict[str, OptionSpec] = {}
    for tool in tools:
        for spec in option_specs(tool.Options):
            if spec.name in taken:
                message = f"tool {tool.name} has an option {spec.flag}, as the verb itself has"
                raise PastaError(message, "rename it")
            known = seen.setdefault(spec.name, spec)
            if known is spec:
                yield _parameter(tool, spec)
            elif (known.type, known.default, known.choices) != (spec.type, spec.default, spec.choices):
                raise PastaError(f"these tools differ in what {spec.flag} is", "run them one at a time")


def _parameter(tool: type[Tool], spec: OptionSpec) -> inspect.Parameter:
    kind: Any = spec.type
    default = spec.default
    if spec.choices:
        kind = _choices(spec)
        default = None if default is None else kind(default)
    flag = f"{spec.flag}/--no-{spec.flag.removeprefix('--')}" if spec.type is bool and default else spec.flag
    option = typer.Option(flag, help=f"{tool.name}: {spec.help}", show_default=default is not None)
    annotation: Any = Annotated[kind if default is not None else Optional[kind], option]  # noqa: UP045
    return inspect.Parameter(spec.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _choices(spec: OptionSpec) -> type[Enum]:
    """Return an enumeration of the option's choices, which typer shows, checks and completes."""
    make_enum: Any = Enum
    choices: type[Enum] = make_enum(spec.name, {choice: choice for choice in spec.choices}, type=str)
    return choices
