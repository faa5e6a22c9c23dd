"""PyTorch: whether pasta can follow the installed version, found out by recording it for a moment."""

from __future__ import annotations

import importlib.metadata
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pasta.cli.checks.check import Check, run_child
from pasta.errors import PastaError

_PROGRAM = "import torch; print((torch.ones(4) + 1).sum())"
_SECONDS = 120.0


def torch_checks() -> Iterator[Check]:
    """Yield one check of the PyTorch of this Python."""
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        yield Check("none", "torch", "not installed in this Python")
        return
    with tempfile.TemporaryDirectory(prefix="pasta-", ignore_cleanup_errors=True) as folder:
        try:
            yield _recorded(version, Path(folder, "torch.pasta"))
        except PastaError as error:
            yield Check("warn", "torch", f"{version}: {error.message}", error.fix)


def _recorded(version: str, output: Path) -> Check:
    from pasta.inject.environment import record_environment
    from pasta.inject.options import RecordOptions
    from pasta.trace import Trace

    target = record_environment(RecordOptions(output=str(output)), os.environ)
    ended = run_child([sys.executable, "-c", _PROGRAM], {**os.environ, **target.variables}, _SECONDS)
    if ended.failure:
        return Check("warn", "torch", f"{version} does not run: {ended.failure}", "pip install --force-reinstall torch")
    if not output.exists():
        return Check("warn", "torch", f"{version}: pasta saw no operator", "pip install -U pasta-profiler")
    with Trace.open(output) as trace:
        told = trace.manifest.get("backends", {}).get("torch")
        if told is None or "op" not in trace.present:
            return Check("warn", "torch", f"{version}: operators are not recorded ({told})", "pip install -U torch")
        return Check("ok", "torch", str(told))
