"""Options of tools become options of the verb."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import typer

from pasta import report
from pasta.cli.main import load
from pasta.cli.options import Format
from pasta.cli.tool_options import named_tools, options_of, with_tool_options
from pasta.errors import PastaError
from pasta.tools import Result, Tool, ToolOptions, TraceView, option, registry
from pasta.tools.base import option_specs


class First(Tool):
    name, summary = "first", "has one option of each type"

    @dataclass(frozen=True)
    class Options(ToolOptions):
        top_rows: int = option(5, "rows to show")
        share: float | None = option(None, "least share")
        by: str = option("name", "what a row is", choices=("name", "op"))
        exact: bool = option(False, "count exactly")
        idle: bool = option(True, "count idle time")

    def run(self, trace: TraceView, options: Any) -> Result:
        return Result("first")


class Second(First):
    name = "second"

    @dataclass(frozen=True)
    class Options(ToolOptions):
        top_rows: int = option(5, "rows to show")
        bins: int = option(10, "bins")


class Disagreeing(First):
    name = "disagreeing"

    @dataclass(frozen=True)
    class Options(ToolOptions):
        top_rows: str = option("all", "rows to show")


class Clashing(First):
    name = "clashing"

    @dataclass(frozen=True)
    class Options(ToolOptions):
        verbose: bool = option(False, "say more")


Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run() -> Run:
    """Run a verb that returns its values with these tools and arguments."""

    def run_verb(tools: list[type[Tool]], *arguments: str) -> dict[str, Any]:
        def verb(verbose: bool = False, **values: Any) -> dict[str, Any]:
            return values

        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command()(with_tool_options(verb, tools))
        values = typer.main.get_command(app).main(list(arguments), standalone_mode=False)
        assert isinstance(values, dict)
        return values

    return run_verb


def test_defaults_are_those_of_the_tool(run: Run) -> None:
    assert options_of(First, run([First])) == First.Options()


def test_every_type_of_option_is_read(run: Run) -> None:
    values = run([First], "--top-rows", "7", "--share", "2.5", "--by", "op", "--exact", "--no-idle")
    assert options_of(First, values) == First.Options(top_rows=7, share=2.5, by="op", exact=True, idle=False)


def test_tools_share_an_option_on_which_they_agree(run: Run) -> None:
    values = run([First, Second], "--top-rows", "3", "--bins", "4")
    assert options_of(First, values).top_rows == options_of(Second, values).top_rows == 3
    assert options_of(Second, values).bins == 4


def test_tools_that_disagree_about_an_option_are_refused(run: Run) -> None:
    with pytest.raises(PastaError, match="differ in what --top-rows is"):
        run([First, Disagreeing])


def test_a_tool_may_not_take_an_option_of_the_verb(run: Run) -> None:
    with pytest.raises(PastaError, match="--verbose, as the verb itself has"):
        run([Clashing])


@pytest.mark.parametrize(
    "arguments", [["--by", "nothing"], ["--top-rows", "many"], ["--no-such-option"], ["--bins", "1"]]
)
def test_what_the_tool_does_not_take_is_refused(run: Run, arguments: list[str]) -> None:
    with pytest.raises(typer.BadParameter.__mro__[1]):  # click's UsageError, wherever typer has it
        run([First], *arguments)


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ([], []),
        (["a.pasta", "--tool", "kernels"], ["kernels"]),
        (["--tool=kernels,api", "a.pasta", "-t", "sync"], ["kernels", "api", "sync"]),
        (["-tkernels"], ["kernels"]),
        (["--tool"], []),
        (["--", "--tool", "kernels"], []),
    ],
)
def test_tools_are_found_before_the_command_line_is_parsed(arguments: list[str], names: list[str]) -> None:
    assert named_tools(arguments) == names


@pytest.mark.parametrize("name", registry.BUILTIN)
@pytest.mark.parametrize("verb", ["analyze", "diff"])
def test_no_tool_of_pasta_takes_an_option_of_a_verb(verb: str, name: str) -> None:
    flags = {option for parameter in load(verb, ["--tool", name]).params for option in parameter.opts}
    assert {spec.flag for spec in option_specs(registry.find(name).Options)} <= flags


def test_the_options_of_a_format_are_those_of_the_reporters() -> None:
    assert {format.value for format in Format} == set(report.FORMATS)
