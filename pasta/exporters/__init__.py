"""Traces in other formats. One function for all of them: whole output or none, in bounded memory."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from pasta.errors import PastaError
from pasta.exporters import perfetto, tables
from pasta.schema import TABLES
from pasta.tools.base import TraceView
from pasta.trace.writer import replace

#: Formats, each with what it makes.
FORMATS: dict[str, str] = {
    "parquet": "a directory with one Parquet file a table",
    "csv": "a directory with one CSV file a table",
    "perfetto": "a file for https://ui.perfetto.dev",
}

#: Called with a number of rows that were done.
Advance = Callable[[int], None]


def export(
    trace: TraceView,
    format: str,
    output: Path,
    names: Sequence[str] = (),
    *,
    overwrite: bool = False,
    advance: Advance = lambda rows: None,
) -> int:
    """Write ``trace`` as ``format`` to ``output`` and return the number of rows (perfetto: events) written.

    ``names`` are the tables to write; empty means all that have rows. Raises ``PastaError`` when ``output`` exists
    and ``overwrite`` is false, or cannot be written; ``output`` is complete or as it was.
    """
    if os.path.lexists(output):
        if not overwrite:
            raise PastaError(f"{output} exists", "choose another name or pass --force-overwrite")
        if not _may_replace(output):
            raise PastaError(f"{output} holds something else than an export", "choose another name")
    try:
        staging = Path(tempfile.mkdtemp(prefix=f".{output.name}.", suffix=".exporting", dir=output.parent))
        try:
            made = staging / "made"
            if format == "perfetto":
                with made.open("wb") as file:
                    written = perfetto.write(trace, file, advance)
            else:
                made.mkdir()
                written = tables.write(trace, made, format, names, advance)
            replace(made, output)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    except OSError as error:
        fix = "choose another place with --output"
        raise PastaError(f"cannot write {output}: {error.strerror or error}", fix) from error
    return written


def _may_replace(output: Path) -> bool:
    """Return whether ``output`` is a file, or a directory with nothing but files of tables."""
    if not output.is_dir():
        return output.is_file() or output.is_symlink()
    return all(entry.stem in TABLES and entry.suffix in (".csv", ".parquet") for entry in output.iterdir())
