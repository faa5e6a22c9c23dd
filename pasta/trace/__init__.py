"""The trace: record shards sealed into Parquet tables, opened as lazy polars frames.

Importing this package imports polars (about 0.2 s), so verbs of the command line import it when they run.
"""

from __future__ import annotations

from pasta.trace.trace import Trace
from pasta.trace.writer import TraceWriter

__all__ = ["Trace", "TraceWriter"]
