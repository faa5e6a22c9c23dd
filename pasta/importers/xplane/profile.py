"""What the planes of one XLA profile share while it is imported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from pasta.importers.annotations import Annotations
from pasta.importers.base import Report, Sink
from pasta.importers.ids import Ids
from pasta.importers.xplane.messages import XEvent, XLine, XPlane


class Profile:
    """One host's profile on its way into rows."""

    def __init__(self, pid: int, sink: Sink, report: Report, numbers: Iterator[int], shift_ns: int) -> None:
        self.pid = pid
        self.sink = sink
        self.report = report
        self.annotations = Annotations(sink, numbers, "jax")
        self.events = 0
        #: Thread of the call with this correlation id.
        self.callers: dict[int, int] = {}
        self._shift_ps = shift_ns * 1000
        self._thread_ids = Ids()
        self._threads: dict[int, str] = {}
        self._left: Counter[str] = Counter()

    def interval(self, line: XLine, event: XEvent) -> tuple[int, int]:
        """Return start and end of an event in nanoseconds."""
        start = line.timestamp_ns * 1000 + event.offset_ps + self._shift_ps
        return start // 1000, (start + max(event.duration_ps, 0)) // 1000

    def thread(self, line: XLine, os_thread: int | None = None) -> int | None:
        """Return the thread id of a line: the operating system's, or one made for the line."""
        number = self._thread_ids(f"{line.number} {line.name}") if os_thread is None else os_thread
        if number is not None:
            self._threads[number] = line.name
        return number

    def stats(self, plane: XPlane, event: XEvent, used: Collection[str]) -> dict[str, object]:
        """Return the stats of an event by name, and count those that are not ``used``."""
        found = dict(plane.stat(span) for span in event.stats)
        self._left.update(name for name in found if name not in used and not name.startswith("_"))
        return found

    def finish(self) -> None:
        """Add the threads, and report the stats that had no place."""
        rows = self.sink.table("thread", "pid", "thread_id", "name")
        for number, name in sorted(self._threads.items()):
            rows.add(self.pid, number, name)
        for name, count in self._left.items():
            self.report.unplaced[f"stat {name}"] += count
