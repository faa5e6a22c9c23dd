"""pasta import: other profilers' files, as a trace."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pasta.cli.options import OverwriteOption
from pasta.cli.progress import progress
from pasta.errors import PastaError

if TYPE_CHECKING:
    from pasta.importers import ImportSummary, Kind

#: Reasons of one kind that are told; the manifest has them all (`pasta info`).
_MOST_TOLD = 5


def _complete_kind(incomplete: str) -> list[str]:
    from pasta.importers import Kind

    return [kind.value for kind in Kind if kind.value.startswith(incomplete)]


def command(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE", show_default=False, help="Files or directories of one format; several are one trace."
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="OUT", show_default=False, help="Trace to write. Default: FILE.pasta."),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="FORMAT",
            show_default=False,
            help="Format of the files, where their content does not tell.",
            autocompletion=_complete_kind,
        ),
    ] = None,
    force_overwrite: OverwriteOption = False,
    directory: Annotated[
        bool, typer.Option("--dir", help="Write a directory of Parquet files instead of one file.")
    ] = False,
) -> None:
    """Turn the files of another profiler into a trace.

    Reads PyTorch profiler (Kineto) and Chrome JSON, Nsight Systems SQLite exports, rocprofv3, rocpd, RPD, JAX
    xplane and Perfetto files, packed with gzip or not.
    """
    from pasta.importers.run import import_files

    with progress("importing") as bar:
        summary = import_files(
            files,
            output,
            None if kind is None else _kind(kind),
            "dir" if directory else "file",
            bar.reach,
            overwrite=force_overwrite,
        )
    for line in _told(summary):
        print(f"pasta: {line}", file=sys.stderr)


def _kind(name: str) -> Kind:
    from pasta.cli.suggest import unknown
    from pasta.importers import Kind

    names = [kind.value for kind in Kind]
    if name not in names:
        error = unknown("format", name, names, "")
        raise PastaError(error.message, f"use {', '.join(names)}")
    return Kind(name)


def _told(summary: ImportSummary) -> list[str]:
    """Return what to say about an import: what came in, what did not, and what to type next."""
    rows = ", ".join(f"{count} {table}" for table, count in sorted(summary.rows.items(), key=lambda item: -item[1]))
    lines = [f"{summary.output}  from {summary.kind.value} {summary.version}".rstrip() + f"  {rows}"]
    lines += summary.notes
    for what, counts in (
        ("no table has a place for", summary.unplaced),
        ("skipped", summary.skipped),
        ("kept without what it refers to", summary.unmatched),
    ):
        told = sorted(counts.items(), key=lambda item: -item[1])
        lines += [f"{what}: {count} {reason}" for reason, count in told[:_MOST_TOLD]]
        if len(told) > _MOST_TOLD:
            lines.append(f"{what}: {len(told) - _MOST_TOLD} more kinds; pasta info lists them")
    return [*lines, f"next: pasta analyze {summary.output}"]
