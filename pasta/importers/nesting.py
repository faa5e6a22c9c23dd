"""Which interval of a thread encloses which: parents of operators and ranges, operators that ran at a moment."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

#: Intervals that are Python objects at a time.
_CHUNK = 1 << 16


def enclosing(thread: Ints, start: Ints, end: Ints, opens: Flags, order: Ints) -> Ints:
    """Return for each interval the index of the innermost one that encloses its start on the same thread, or -1.

    ``opens`` marks the intervals that can enclose others. Of two that are equal the one with the lower ``order``
    encloses the other. An interval encloses the moments from its start up to, not including, its end: one that begins
    at the tick at which another ends is its sibling. Ends need not nest, because clocks round.
    """
    sequence = np.lexsort((order, -end, ~opens, start, thread))
    parents: Ints = np.empty(len(sequence), dtype=np.int64)
    stack: list[int] = []
    ends: list[int] = []
    current: int | None = None
    for first in range(0, len(sequence), _CHUNK):
        chunk = sequence[first : first + _CHUNK]
        columns = (chunk, thread[chunk], start[chunk], end[chunk], opens[chunk])
        found: list[int] = []
        for index, owner, begin, finish, opening in zip(*(column.tolist() for column in columns), strict=True):
            if owner != current:
                current = owner
                stack.clear()
                ends.clear()
            while ends and ends[-1] <= begin:
                stack.pop()
                ends.pop()
            found.append(stack[-1] if stack else -1)
            if opening:
                stack.append(index)
                ends.append(finish)
        parents[chunk] = found
    return parents


def nearest(parents: Ints, marked: Flags) -> Ints:
    """Return for each interval the index of its nearest ancestor that is ``marked``, or -1.

    ``parents`` must have no cycle. Each round doubles how far every interval looks, so a deep chain takes few.
    """
    up = parents.copy()
    while True:
        pending = up >= 0
        pending[pending] = ~marked[up[pending]]
        if not pending.any():
            return up
        up[pending] = up[up[pending]]
