"""The man pages say what the verbs do: the same options, all sections, and roff made from the Markdown."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pasta.cli.main import VERBS, group, load
from pasta.cli.tool_options import DEFAULT_TOOL
from pasta.tools import registry
from pasta.tools.base import option_specs

ROOT = Path(__file__).parents[3]
SECTIONS = [
    "NAME",
    "SYNOPSIS",
    "DESCRIPTION",
    "OPTIONS",
    "EXIT STATUS",
    "ENVIRONMENT",
    "FILES",
    "EXAMPLES",
    "SEE ALSO",
]
PAGES = ["pasta", *(f"pasta-{name}" for name, verb in VERBS.items() if not verb.hidden)]


def page(name: str) -> str:
    return (ROOT / "man" / f"{name}.1.md").read_text()


def documented(name: str) -> set[str]:
    """Return the options that stand at the beginning of a line of the section OPTIONS."""
    options = re.search(r"^# OPTIONS\n(.*?)^# ", page(name), re.MULTILINE | re.DOTALL)
    assert options is not None
    lines = re.findall(r"^\*\*-.*$", options[1], re.MULTILINE)
    return {option for line in lines for option in re.findall(r"\*\*(--?[A-Za-z-]+)\*\*", line)}


def real(name: str) -> set[str]:
    command = group() if name == "pasta" else load(name.removeprefix("pasta-"))
    shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    options = {option for parameter in shown for option in (*parameter.opts, *parameter.secondary_opts)}
    return {option for option in options if option.startswith("-")} | {"-h", "--help"}


def options_of_default_tool() -> set[str]:
    """Return what a tool adds to a verb's options: `pasta tools NAME` describes it, not the page."""
    return {spec.flag for spec in option_specs(registry.find(DEFAULT_TOOL).Options)}


@pytest.mark.parametrize("name", PAGES)
def test_page_has_exactly_the_options_of_the_verb(name: str) -> None:
    of_tools = options_of_default_tool() if name in ("pasta-analyze", "pasta-diff") else set()
    assert documented(name) == real(name) - of_tools


@pytest.mark.parametrize("name", PAGES)
def test_page_has_all_sections_in_order(name: str) -> None:
    assert re.findall(r"^# (.*)$", page(name), re.MULTILINE) == SECTIONS


def test_main_page_names_every_verb() -> None:
    assert {name for name in PAGES if f"**{name}**(1)\n:" in page("pasta")} == set(PAGES) - {"pasta"}


def test_there_is_no_page_of_a_verb_that_is_gone() -> None:
    written = {path.name.removesuffix(".1.md") for path in (ROOT / "man").glob("*.md")}
    assert set(PAGES) <= written <= {"pasta", *(f"pasta-{name}" for name in VERBS)}


@pytest.mark.skipif(shutil.which("pandoc") is None, reason="needs pandoc")
def test_roff_is_made_from_the_markdown(tmp_path: Path) -> None:
    subprocess.run([ROOT / "scripts" / "manpages.sh", tmp_path], check=True)
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_text() for path in (ROOT / "man").glob("*.1")}


def test_without_pandoc_the_pages_stay(tmp_path: Path) -> None:
    tools, pages = tmp_path / "bin", tmp_path / "man"
    tools.mkdir()
    for tool in ("dirname", "basename", "sed", "tr", "mktemp", "rm"):
        found = shutil.which(tool)
        assert found is not None
        (tools / tool).symlink_to(found)
    pages.mkdir()
    (pages / "pasta.1").write_text("as it was")
    result = subprocess.run(
        ["/bin/sh", ROOT / "scripts" / "manpages.sh", pages], env={"PATH": str(tools)}, capture_output=True, text=True
    )
    assert result.returncode == 1
    assert "no pandoc" in result.stderr
    assert [(page.name, page.read_text()) for page in pages.iterdir()] == [("pasta.1", "as it was")]


@pytest.mark.parametrize("name", PAGES)
def test_roff_has_the_options(name: str) -> None:
    roff = (ROOT / "man" / f"{name}.1").read_text().replace("\\-", "-")
    assert [option for option in sorted(documented(name)) if f"[B]{option}\\f" not in roff] == []
