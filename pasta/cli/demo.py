"""pasta demo: record and analyse a small real program on whatever device is here."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from pasta.errors import PastaError

if TYPE_CHECKING:
    from pasta.trace.seal import Summary


def command(
    program: Annotated[
        str | None, typer.Argument(metavar="[PROGRAM]", help="Which demo; --list names them. Default: the first.")
    ] = None,
    output: Annotated[str, typer.Option("--output", "-o", help="Trace to write. Default: NAME-PID.pasta.")] = "",
    force_overwrite: Annotated[
        bool, typer.Option("--force-overwrite", "-f", help="Replace a trace that is there.")
    ] = False,
    device: Annotated[
        str | None, typer.Option("--device", help="cpu: use the CPU OpenCL device of the cpu extra.")
    ] = None,
    list_programs: Annotated[bool, typer.Option("--list", help="List the demo programs.")] = False,
) -> int:
    """Record and analyse a small real program on whatever device is here."""
    from pasta.demo import PROGRAMS

    if list_programs:
        for name, demo in PROGRAMS.items():
            print(f"{name:<16} {demo.summary}")
        return 0
    name = program or next(iter(PROGRAMS))
    if name not in PROGRAMS:
        from pasta.cli.suggest import unknown

        raise unknown("demo", name, list(PROGRAMS), "pasta demo --list")
    return _run(name, output, force_overwrite, device)


def _run(name: str, output: str, force: bool, device: str | None) -> int:
    from pasta.cli.record import report
    from pasta.demo import PROGRAMS
    from pasta.inject.icd import INSTALL_HINT
    from pasta.inject.options import RecordOptions
    from pasta.inject.recording import Recording

    demo = PROGRAMS[name]
    missing = demo.missing()
    if missing:
        raise PastaError(f"the demo {name} needs {', '.join(missing)}", f"install it: {INSTALL_HINT}")
    target = [sys.executable, str(demo.path)]
    print(f"pasta: recording {name}: {demo.summary}", file=sys.stderr, flush=True)
    recorded = Recording(target, RecordOptions(output=output, force=force), device=device).run()
    report(recorded)
    if recorded.ended.status != 0:
        raise PastaError(f"the demo {name} failed", "pasta doctor says what this machine lacks", exit_code=1)
    _analyze(recorded.traces)
    return 0


def _analyze(traces: Sequence[Summary]) -> None:
    """Show what `pasta analyze` shows of the traces."""
    from pasta.cli.main import run

    for trace in traces:
        run(["analyze", str(trace.path)])
