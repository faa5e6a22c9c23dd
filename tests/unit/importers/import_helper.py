"""Import files and look at the rows: what every test of an importer does."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from pasta.errors import PastaError
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


#: Settings of tests that import many generated files.
MANY_FILES = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])

#: Bytes to damage: positions, taken modulo the size of the file, and the bits to flip there.
FLIPS = st.lists(st.tuples(st.integers(0, 2**20), st.integers(1, 255)), min_size=1, max_size=30)


def import_damaged(path: Path, flips: list[tuple[int, int]], first: int = 0) -> None:
    """Import a copy of ``path`` with ``flips`` from byte ``first`` on: anything but a ``PastaError`` is raised."""
    content = bytearray(path.read_bytes())
    for position, bits in flips:
        content[first + position % (len(content) - first)] ^= bits
    damaged = path.with_name(f"damaged-{path.name}")
    damaged.write_bytes(content)
    with contextlib.suppress(PastaError):
        imported(damaged)
