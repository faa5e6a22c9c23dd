"""Where the public traces are that the importers are tested on; they are not part of the project."""

from __future__ import annotations

import os
from pathlib import Path

_BESIDE = Path(__file__).resolve().parents[4] / "shared" / "data" / "traces"


def folder() -> Path | None:
    """Return ``$PASTA_TEST_TRACES``, else ``shared/data/traces`` beside the checkout; None when it is not there."""
    path = Path(os.environ.get("PASTA_TEST_TRACES", _BESIDE))
    return path if (path / "EXPECTED.tsv").is_file() else None
