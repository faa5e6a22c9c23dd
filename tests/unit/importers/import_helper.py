"""Import files and look at the rows: what every test of an importer does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from pasta.importers import ImportSummary, import_files
from pasta.trace import Trace


class Imported:
    """The trace that came out of an import, and what the import said about it."""

    def __init__(self, trace: Path, summary: ImportSummary, manifest: dict[str, Any]) -> None:
        self.path = trace
        self.summary = summary
        self.manifest = manifest["import"]

    def frame(self, table: str) -> pl.DataFrame:
        """Return all rows of a table."""
        with Trace.open(self.path) as trace:
            return trace.table(table).collect()

    def rows(self, table: str, *columns: str) -> list[Any]:
        """Return the rows: tuples of ``columns``, a list of values for one column, without any dicts without nulls."""
        frame = self.frame(table)
        if len(columns) == 1:
            return frame[columns[0]].to_list()
        if columns:
            return frame.select(columns).rows()
        return [{name: value for name, value in row.items() if value is not None} for row in frame.to_dicts()]


def imported(*paths: Path, into: Path | None = None) -> Imported:
    """Import ``paths`` as one trace, beside the first of them."""
    output = (into or paths[0].parent) / "imported.pasta"
    summary = import_files(paths, output, overwrite=True)
    with Trace.open(output) as trace:
        manifest = dict(trace.manifest)
    return Imported(output, summary, manifest)


def beside(path: Path) -> Sequence[str]:
    """Return the names of all files in the folder of ``path``."""
    return sorted(file.name for file in path.parent.iterdir())
