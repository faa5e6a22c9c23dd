"""Runs programs under `pasta record` for the integration tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pasta.trace import Trace

PASTA = [sys.executable, "-m", "pasta"]


def environment(**variables: str) -> dict[str, str]:
    """This environment without anything of pasta's own, and ``variables``."""
    return {k: v for k, v in os.environ.items() if not k.startswith("PASTA_")} | variables


def record(
    command: Sequence[str | Path], output: Path, options: Sequence[str] = (), **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run ``command`` under ``pasta record -o output options``; the trace is complete when this returns."""
    return subprocess.run(
        [*PASTA, "record", "-o", output, *options, "--", *command],
        capture_output=True, text=True, timeout=240, env=environment(**variables),
    )  # fmt: skip


def record_python(
    code: str, output: Path, options: Sequence[str] = (), **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run Python ``code`` under ``pasta record``."""
    return record([sys.executable, "-c", code], output, options, **variables)


__all__ = ["PASTA", "Trace", "environment", "record", "record_python"]
