"""The tables of a rocpd database under one suffix, whichever version wrote them.

In schema version 3 an event has its times and its process, thread, agent, queue and stream; in version 4 it refers to
``rocpd_timestamp`` and ``rocpd_track`` for them. All references count within a ``guid``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pasta.importers.sqlite import Database, Row, quote


class Event(NamedTuple):
    """One row of a table of events; numbers of processes, threads and agents are those of their tables."""

    guid: str
    start: int
    end: int | None
    process: int | None
    thread: int | None
    agent: int | None
    queue: int | None
    stream: int | None
    correlation: int | None
    category: str | None
    details: str | None
    numbers: Sequence[int | None]
    texts: Sequence[str | None]


class RocpdTables:
    """Reads the tables whose names end with ``suffix``."""

    def __init__(self, db: Database, suffix: str) -> None:
        self._db = db
        self._suffix = suffix

    @property
    def version(self) -> str | None:
        """The schema version, None where the file does not say."""
        table = self._name("rocpd_metadata")
        if not self._db.has(table, "tag", "value"):
            return None
        found = self._db.value(f"SELECT CAST(value AS TEXT) FROM {quote(table)} WHERE tag = 'schema_version'")
        return None if found is None else str(found)

    def descriptions(self, name: str, numbers: Sequence[str], texts: Sequence[str]) -> dict[tuple[str, int], Row]:
        """Return a table of descriptions by (guid, id): its ``numbers``, then its ``texts``."""
        table = self._name(name)
        if not self._db.has(table, "id"):
            return {}
        columns = [
            *(self._guid(table, "e"), self._db.column(table, "id", "e")),
            *(self._db.column(table, number, "e") for number in numbers),
            *(self._db.text(table, text, "e") for text in texts),
        ]
        rows = self._db.rows(f"SELECT {', '.join(columns)} FROM {quote(table)} e")
        return {(guid, number): tuple(values) for guid, number, *values in rows}

    def events(
        self,
        name: str,
        numbers: Sequence[str] = (),
        strings: Sequence[str] = (),
        plain: Sequence[str] = (),
        where: str = "1",
    ) -> Iterator[Event]:
        """Yield the rows of a table of events in order of start.

        ``numbers`` are columns; ``texts`` of an event are its ``strings``, which are numbers of ``rocpd_string``, and
        then its ``plain`` texts. ``where`` is SQL that may use the name of the event's ``category``.
        """
        db, table = self._db, self._name(name)
        if table not in db.tables:
            return
        event, event_join = self._join("rocpd_event", "v", table, "event_id")
        track, track_join = self._join("rocpd_track", "t", table, "track_id")
        homes = ((table, "e"), (track, "t"))
        begin = self._time(table, "start")
        if db.has(table, "timestamp"):
            begin = db.column(table, "timestamp", "e")
        elif db.has(table, "timestamp_id"):
            begin = self._timestamp(table, "timestamp_id")
        columns = [
            *(self._guid(table, "e"), f"{begin} AS begin", self._time(table, "end")),
            *(self._either(homes, column) for column in ("pid", "tid", "agent_id", "queue_id", "stream_id")),
            db.column(event, "stack_id", "v"),
            f"{self._string(event, 'v', 'category_id')} AS category",
            db.text(event, "extdata", "v"),
            *(db.column(table, number, "e") for number in numbers),
            *(self._either_string(homes, column) for column in strings),
            *(db.text(table, column, "e") for column in plain),
        ]
        query = (
            f"SELECT {', '.join(columns)} FROM {quote(table)} e{event_join}{track_join}"
            f" WHERE begin IS NOT NULL AND ({where}) ORDER BY begin"
        )
        for row in db.rows(query):
            common, rest = row[:11], row[11:]
            yield Event._make((*common, rest[: len(numbers)], rest[len(numbers) :]))

    def _name(self, table: str) -> str:
        return f"{table}{self._suffix}"

    def _guid(self, table: str, alias: str) -> str:
        return f"coalesce({self._db.text(table, 'guid', alias)}, '')"

    def _same(self, table: str, alias: str, other: str, other_alias: str = "e") -> str:
        """Return SQL for two rows being of one guid."""
        return f"{self._guid(table, alias)} = {self._guid(other, other_alias)}"

    def _join(self, name: str, alias: str, table: str, reference: str) -> tuple[str, str]:
        """Return the table that ``reference`` points to and SQL to join it; nothing where either is missing."""
        target = self._name(name)
        if not (self._db.has(table, reference) and self._db.has(target, "id")):
            return "", ""
        same = self._same(target, alias, table)
        return target, f" LEFT JOIN {quote(target)} {alias} ON {alias}.id = e.{reference} AND {same}"

    def _either(self, homes: Sequence[tuple[str, str]], column: str) -> str:
        table, alias = next((home for home in homes if self._db.has(home[0], column)), homes[0])
        return self._db.column(table, column, alias)

    def _either_string(self, homes: Sequence[tuple[str, str]], column: str) -> str:
        table, alias = next((home for home in homes if self._db.has(home[0], column)), homes[0])
        return self._string(table, alias, column)

    def _string(self, table: str, alias: str, reference: str) -> str:
        """Return SQL for the text that a column refers to in ``rocpd_string``."""
        strings = self._name("rocpd_string")
        if not (self._db.has(table, reference) and self._db.has(strings, "id", "string")):
            return "NULL"
        same = self._same(strings, "s", table, alias)
        return f"(SELECT CAST(s.string AS TEXT) FROM {quote(strings)} s WHERE s.id = {alias}.{reference} AND {same})"

    def _time(self, table: str, which: str) -> str:
        """Return SQL for the start or the end of a row."""
        if self._db.has(table, which):
            return self._db.time(table, which, "e")
        return self._timestamp(table, f"{which}_id")

    def _timestamp(self, table: str, reference: str) -> str:
        stamps = self._name("rocpd_timestamp")
        if not (self._db.has(table, reference) and self._db.has(stamps, "id", "value")):
            return "NULL"
        same = self._same(stamps, "s", table, "e")
        value = self._db.time(stamps, "value", "s")
        return f"(SELECT {value} FROM {quote(stamps)} s WHERE s.id = e.{reference} AND {same})"
