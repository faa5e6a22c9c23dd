"""Ranks for the rows of processes whose rank is known only from elsewhere in the source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from pasta.importers.base import Sink


@dataclass(frozen=True)
class WithRanks:
    """Passes rows on to ``sink`` with the rank of their process; put it where a ``Sink`` expects its writer."""

    sink: Sink
    ranks: Mapping[int, int]

    def append(self, table: str, frame: pl.DataFrame) -> None:
        """Add the rows of ``frame``, whose rank is taken from ``ranks`` by ``pid``."""
        if self.ranks:
            rank = pl.col("pid").replace_strict(self.ranks, default=None, return_dtype=pl.Int32)
            frame = frame.with_columns(rank=rank)
        self.sink.append(table, frame)
