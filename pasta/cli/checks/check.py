"""One line of ``pasta doctor``, and how to look at something that may crash."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pasta.errors import PastaError

#: ``none``: not on this machine, which is no fault.
Status = Literal["ok", "warn", "fail", "none"]


@dataclass(frozen=True)
class Check:
    """What was looked at and found; ``fix`` is a command, or what to do. ``is_accelerator``: ok means it is usable."""

    status: Status
    name: str
    found: str
    fix: str = ""
    is_accelerator: bool = False


@dataclass(frozen=True)
class Ended:
    """How a child process ended: its standard output, or why there is none that counts."""

    output: str
    failure: str = ""


#: The fix for a build without a backend: building it again finds the headers, which come as wheels.
REBUILD = "pip install --force-reinstall --no-binary pasta-profiler pasta-profiler"


def library_exports(entry: str) -> bool:
    """Return whether the injected library has the entry point of a vendor's door."""
    from pasta.inject.library import library_path

    try:
        return entry.encode() + b"\0" in library_path().read_bytes()
    except (OSError, PastaError):
        return False


def run_child(command: Sequence[str], environment: Mapping[str, str], seconds: float) -> Ended:
    """Run ``command`` for at most ``seconds``; a crash or a hang is an answer, not an exception."""
    try:
        child = subprocess.run(
            command, env=dict(environment), capture_output=True, text=True, errors="replace", timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return Ended("", f"no answer in {seconds:g} s")
    except OSError as error:
        return Ended("", f"cannot run {command[0]}: {error.strerror}")
    if child.returncode < 0:
        return Ended("", f"killed by {signal.Signals(-child.returncode).name}")
    if child.returncode > 0:
        last = child.stderr.strip().splitlines()[-1:] or [f"exit status {child.returncode}"]
        return Ended("", last[0])
    return Ended(child.stdout)
