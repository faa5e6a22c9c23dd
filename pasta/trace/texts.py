"""The strings of a shard: numbers to text, many at a time."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

Numbers = np.ndarray[Any, np.dtype[Any]]


class Texts:
    """Strings by number, added in runs of consecutive numbers; number 0 is null, and so is one never added.

    A run may begin at any number (a damaged chunk leaves a gap), so what is kept is in proportion to the strings,
    whatever their numbers are.
    """

    def __init__(self) -> None:
        self._runs: dict[int, pl.Series] = {}
        self._index: tuple[Numbers, Numbers, Numbers, pl.Series] | None = None

    def add(self, first: int, text: bytes, ends: Numbers) -> None:
        """Add the strings numbered from ``first`` on: string i is ``text`` up to ``ends[i]``, from the end before."""
        bounds = [0, *ends.tolist()]
        cut = [text[begin:end] for begin, end in pairwise(bounds)]
        try:
            strings = pl.Series(cut, dtype=pl.Binary).cast(pl.String)
        except pl.exceptions.ComputeError:  # not UTF-8, or cut inside a character
            strings = pl.Series([piece.decode("utf-8", errors="replace") for piece in cut], dtype=pl.String)
        self._runs[first] = strings
        self._index = None

    def gather(self, numbers: Numbers) -> pl.Series:
        """Return the text of each number."""
        if not numbers.any():
            return pl.Series([None], dtype=pl.String).new_from_index(0, len(numbers))
        firsts, lengths, places, strings = self._indexed()
        run = np.searchsorted(firsts, numbers, side="right") - 1
        within = numbers.astype(np.int64) - firsts[run]
        missing = (run < 0) | (within >= lengths[run]) | (numbers == 0)
        return strings.gather(np.where(missing, len(strings) - 1, places[run] + within))

    def _indexed(self) -> tuple[Numbers, Numbers, Numbers, pl.Series]:
        """First number, length, and place in the joined strings of each run; a null follows the strings."""
        if self._index is None:
            runs = sorted(self._runs.items())
            firsts = np.array([first for first, _ in runs] or [0], np.int64)
            lengths = np.array([len(strings) for _, strings in runs] or [0], np.int64)
            joined = pl.concat([*(strings for _, strings in runs), pl.Series([None], dtype=pl.String)])
            self._index = firsts, lengths, np.cumsum(lengths) - lengths, joined
        return self._index

    def __len__(self) -> int:
        return sum(len(strings) for strings in self._runs.values())
