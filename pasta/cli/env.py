"""pasta env: the variables that record sets, for where it cannot be the parent (containers, mpirun, Slurm)."""

from __future__ import annotations

import os
import shlex
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from pasta.inject.options import RecordOptions


class Shell(str, Enum):
    """Syntaxes of a variable's assignment; ``docker`` is the lines of ``--env-file``."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    CSH = "csh"
    DOCKER = "docker"


def command(
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="TRACE", help="Trace to write; the same % patterns as in pasta record."),
    ] = "pasta-%h-%p.pasta",
    trace: Annotated[
        str | None,
        typer.Option("--trace", "-t", metavar="LIST", show_default=False, help="What to record. Default: all."),
    ] = None,
    kernels: Annotated[
        str | None,
        typer.Option("--kernels", "-k", metavar="REGEX", show_default=False, help="Record only these kernels."),
    ] = None,
    ranks: Annotated[
        str | None, typer.Option("--ranks", metavar="LIST", show_default=False, help="Record only these ranks: 0,3-5.")
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            "--device", metavar="NAME", show_default=False, help="cpu: the CPU OpenCL device of the cpu extra."
        ),
    ] = None,
    shell: Annotated[
        Shell | None,
        typer.Option("--shell", show_default=False, help="Syntax of the lines. Default: that of $SHELL, else bash."),
    ] = None,
    library: Annotated[
        bool, typer.Option("--library", help="Print only the path of libpasta_inject.so, for LD_PRELOAD.")
    ] = False,
) -> None:
    """Print the variables that record sets, for containers and launchers.

    In bash: eval "$(pasta env -o run-%r.pasta)" && mpirun ./program. Each process leaves a trace that is readable as
    it is. Every other option of record is a variable too: see pasta-record(1).
    """
    from pasta.inject.environment import record_environment
    from pasta.inject.library import library_path

    if library:
        print(library_path())
        return
    options = RecordOptions(output=os.path.abspath(output), trace=trace, kernels=kernels, ranks=ranks)
    target = record_environment(options, os.environ, device=device)
    for note in target.notes:
        print(f"pasta: {note}", file=sys.stderr)
    syntax = shell or _own_shell()
    for name, value in target.variables.items():
        print(_assignment(syntax, name, value))


def _own_shell() -> Shell:
    name = Path(os.environ.get("SHELL", "")).name
    return Shell(name) if name in [shell.value for shell in Shell] else Shell.BASH


def _assignment(shell: Shell, name: str, value: str) -> str:
    if shell is Shell.DOCKER:
        return f"{name}={value}"
    quoted = shlex.quote(value)
    if shell is Shell.FISH:
        return f"set -gx {name} {quoted}"
    return f"setenv {name} {quoted}" if shell is Shell.CSH else f"export {name}={quoted}"
