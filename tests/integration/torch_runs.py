"""Runs Python programs with and without pasta, for the tests of torch and of the annotations.

``PASTA_TEST_PYTHON`` names another Python to run them with: how further versions of torch are verified.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from pasta.errors import PastaError
from pasta.inject.environment import record_environment
from pasta.inject.options import RecordOptions
from pasta.trace import Trace

ROOT = Path(__file__).parents[2]
PYTHON = os.environ.get("PASTA_TEST_PYTHON", sys.executable)
PROGRAMS = Path(__file__).parent / "torch_programs"


@dataclass
class Run:
    """A program that has ended."""

    status: int
    stdout: str
    stderr: str


def run(*command: str | Path, environment: Mapping[str, str] | None = None) -> Run:
    """Run a program without pasta, which it may import."""
    full = {**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})}
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, env=full, timeout=240)
    return Run(result.returncode, result.stdout, result.stderr)


def python(program: str | Path, *arguments: str) -> list[str]:
    """Return the command that runs a file of ``torch_programs``, or a text."""
    source = [str(program)] if isinstance(program, Path) else ["-c", program]
    return [PYTHON, *source, *arguments]


def record(output: Path, *command: str, environment: Mapping[str, str] | None = None, **options: object) -> Run:
    """Run a program as ``pasta record`` does, unsealed; its trace is ``output``."""
    own = {"PYTHONPATH": str(ROOT), **(environment or {})}
    try:
        target = record_environment(RecordOptions(output=str(output), **options), own, command)  # type: ignore[arg-type]
    except PastaError as error:
        pytest.skip(str(error))
    return run(*command, environment={**own, **target.variables})


def recorded(output: Path, *command: str, environment: Mapping[str, str] | None = None, **options: object) -> Trace:
    """Return the trace of a program that must succeed."""
    result = record(output, *command, environment=environment, **options)
    assert result.status == 0, result.stderr
    return Trace.open(output)
