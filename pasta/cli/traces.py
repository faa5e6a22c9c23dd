"""Open the traces that a verb was given."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pasta.cli.progress import progress

if TYPE_CHECKING:
    from pasta.trace import Trace


@contextmanager
def open_merged(paths: Sequence[Path]) -> Iterator[Trace]:
    """Open one trace, or several as one: those are merged into a temporary directory (of ``TMPDIR``)."""
    from pasta.trace import Trace
    from pasta.trace.merge import merge

    if len(paths) == 1:
        with Trace.open(paths[0]) as trace:
            yield trace
        return
    with tempfile.TemporaryDirectory(prefix="pasta-") as folder:
        with progress(f"merging {len(paths)} traces"):
            merged = merge(paths, Path(folder, "merged.pasta"))
        with Trace.open(merged) as trace:
            yield trace
