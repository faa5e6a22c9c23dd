"""Which interval encloses which, for intervals that a database hands out in order: nothing but the open ones is held.

The rules are those of ``nesting.enclosing``, which takes whole arrays.
"""

from __future__ import annotations

from collections.abc import Hashable

#: Stands for the end of an interval that never ended.
NEVER = (1 << 63) - 1


class OpenIntervals:
    """The intervals that are open on one thread at a time; all must come ordered by (thread, start, -end)."""

    def __init__(self) -> None:
        self._thread: Hashable = None
        self._open: list[tuple[int, int]] = []

    def push(self, thread: Hashable, start: int, end: int | None, number: int) -> int | None:
        """Open the interval ``number`` and return the number of the innermost one around its start, or None."""
        parent = self.enclosing(thread, start)
        self._open.append((NEVER if end is None else end, number))
        return parent

    def enclosing(self, thread: Hashable, at: int) -> int | None:
        """Return the number of the innermost interval that is open on ``thread`` at the time ``at``, or None."""
        if thread != self._thread:
            self._thread = thread
            self._open.clear()
        while self._open and self._open[-1][0] <= at:
            self._open.pop()
        return self._open[-1][1] if self._open else None
