"""What starting costs: `pasta --help` imports no verb, and nothing that is slow to import."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from pasta.cli.main import VERBS

SLOW = {"numpy", "polars", "rich", "pydantic", "pasta.trace", "pasta.tools", "pasta.report", "pasta.importers"}


def imported_by(*arguments: str) -> set[str]:
    """Return the modules that a process has imported when it ran ``pasta ARGUMENTS``."""
    program = (
        "import atexit, json, sys\n"
        "atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))\n"
        f"from pasta.cli.main import main\nmain({list(arguments)!r})\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    return set(json.loads(ended.stderr.splitlines()[-1]))


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], []])
def test_help_imports_nothing_slow_and_no_verb(arguments: list[str]) -> None:
    modules = imported_by(*arguments)
    assert not modules & SLOW
    assert not modules & {verb.module for verb in VERBS.values()}


def test_a_verb_imports_no_other_verb() -> None:
    modules = imported_by("schema", "kernel")
    assert modules & {verb.module for verb in VERBS.values()} == {"pasta.cli.schema"}


@pytest.mark.parametrize("arguments", [["--help"], ["-o", "x", "--", "/nonexistent/program"]])
def test_record_imports_nothing_slow_before_the_program_starts(arguments: list[str]) -> None:
    assert not imported_by("record", *arguments) & SLOW


def test_completion_of_verbs_imports_nothing_slow() -> None:
    program = (
        "import atexit, sys\n"
        "atexit.register(lambda: print('polars' in sys.modules, file=sys.stderr))\n"
        "from pasta.cli.main import main\nmain([])\n"
    )
    variables = {**os.environ, "_PASTA_COMPLETE": "complete_bash", "COMP_WORDS": "pasta an", "COMP_CWORD": "1"}
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=variables)
    assert ended.stdout.split() == ["analyze"]
    assert ended.stderr.split() == ["False"]
