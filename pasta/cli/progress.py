"""Progress on stderr: a bar for what takes longer than a second, on a terminal only."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: What takes less than this is not worth a bar.
DELAY_SECONDS = 1.0


class Bar:
    """How far some work is; drawn once it has been shown, until then only counted. Safe to use from any thread."""

    def __init__(self, doing: str, total: int | None = None) -> None:
        self._doing = doing
        self._done, self._total = 0, total
        self._lock = threading.Lock()
        self._hidden = False
        self._draw: Callable[[], None] = lambda: None
        self._close: Callable[[], None] = lambda: None

    def advance(self, steps: int) -> None:
        """Count ``steps`` more."""
        with self._lock:
            self._done += steps
            self._draw()

    def reach(self, done: int, total: int) -> None:
        """Say that ``done`` of ``total`` steps are done."""
        with self._lock:
            self._done, self._total = done, total
            self._draw()

    def show(self) -> None:
        """Draw the bar, unless the work is already over."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("pasta: {task.description}", markup=False), BarColumn(), TimeElapsedColumn())
        drawn = Progress(*columns, console=Console(file=sys.stderr), transient=True)
        with self._lock:
            if self._hidden:
                return
            task = drawn.add_task(self._doing, total=self._total, completed=self._done)
            self._draw = lambda: drawn.update(task, completed=self._done, total=self._total)
            self._close = drawn.stop
            drawn.start()

    def hide(self) -> None:
        """Remove the bar; the work is over."""
        with self._lock:
            self._hidden = True
            self._close()


@contextmanager
def progress(doing: str, total: int | None = None) -> Iterator[Bar]:
    """Show ``doing`` while the block runs, which tells the bar how many of ``total`` steps are done (None: unknown)."""
    bar = Bar(doing, total)
    timer = threading.Timer(DELAY_SECONDS, bar.show)
    timer.daemon = True
    if sys.stderr.isatty():
        timer.start()
    try:
        yield bar
    finally:
        timer.cancel()
        bar.hide()
