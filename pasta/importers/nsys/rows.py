"""From rows of a table of an Nsight Systems export to rows of a table of pasta: one SQL query, columns by name.

Columns are those of NVIDIA's exporter documentation. One that an export lacks becomes null. Numbers of enumerations
are looked up in the file's own ``ENUM_*`` tables, which exist since schema 3.0, else in the constants given here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pasta.importers.base import Report, Sink
from pasta.importers.nsys.target import NO_ID, pid_of
from pasta.importers.sqlite import Database

#: Columns that every table of device work has.
COMMON = frozenset({"start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid"})


class RowMaker:
    """Makes rows of one database, after ``nsys_calls`` has left ``temp.launch`` there."""

    def __init__(self, db: Database, sink: Sink, report: Report, sole_process: int) -> None:
        self.db = db
        self.sink = sink
        self.report = report
        self._sole = sole_process

    def copy(self, source: str, table: str, columns: Mapping[str, str], where: str = "1") -> None:
        """Import the rows of ``source`` for which ``where`` holds; ``columns`` maps columns of ``table`` to SQL.

        In this SQL, the row is ``e`` and the call that started it ``l``.
        """
        if source not in self.db.tables:
            return
        rows = self.sink.table(table, "pid", *columns)
        for process, *values in self.db.rows(self.select(source, columns, where)):
            rows.add(pid_of(process), *values)

    def select(self, source: str, columns: Mapping[str, str], where: str = "1") -> str:
        """Return the query of ``copy``: its first column is the process key, the others are ``columns``."""
        started = self.time(source, "start")
        if missing := self.db.value(f"SELECT count(*) FROM {source} e WHERE {started} IS NULL"):
            self.report.skipped[f"row of {source} without a start"] += missing
        process = self.process(source)
        fields = ", ".join(f"{sql} AS {name}" for name, sql in columns.items())
        join = f"l.process = {process} AND l.correlation = {self.number(source, 'correlationId')}"
        return (
            f"SELECT {process} AS process, {fields} FROM {source} e"
            f" LEFT JOIN temp.launch l ON {join} WHERE {started} IS NOT NULL AND ({where})"
        )

    def process(self, source: str) -> str:
        """Return SQL for the key of the row's process."""
        key = self.number(source, "globalPid")
        return f"CASE WHEN {key} IS NULL THEN {self._sole} ELSE {key} >> 24 END"

    def work(self, source: str) -> dict[str, str]:
        """Return SQL for the columns that all device work has."""
        return {
            "start_ns": self.time(source, "start"),
            "end_ns": self.time(source, "end"),
            "thread_id": "l.thread",
            **{f"{name}_id": self.identity(source, f"{name}Id") for name in ("device", "context", "stream")},
            "correlation_id": f"NULLIF({self.number(source, 'correlationId')}, 0)",
            "op_id": "l.op",
        }

    def number(self, source: str, name: str) -> str:
        """Return SQL for a whole number of the row."""
        return self.db.column(source, name, "e")

    def time(self, source: str, name: str) -> str:
        """Return SQL for a time of the row, in ns."""
        return self.db.time(source, name, "e")

    def identity(self, source: str, name: str) -> str:
        """Return SQL for a device, context or stream; CUPTI writes 2^32 - 1 for none."""
        return f"NULLIF({self.number(source, name)}, {NO_ID})"

    def decode(self, source: str, name: str, codes: Mapping[int, str]) -> str:
        """Return SQL for the text that ``codes`` has for a number of the row; null for other numbers."""
        number = self.number(source, name)
        cases = " ".join(f"WHEN {code} THEN '{text}'" for code, text in codes.items())
        return f"CASE {number} {cases} END" if cases and number != "NULL" else "NULL"

    def codes(self, enumeration: str, words: Mapping[str, str], known: Iterable[str]) -> dict[int, str]:
        """Return what the numbers of ``enumeration`` mean in pasta's words.

        ``words`` maps the ends of NVIDIA's names to these; ``known`` are these ends in the order of their numbers.
        """
        names: dict[int, str] = dict(enumerate(known))
        if self.db.has(enumeration, "id", "name"):
            query = f"SELECT {self.db.column(enumeration, 'id')}, CAST(name AS TEXT) FROM {enumeration}"
            names.update((number, name or "") for number, name in self.db.rows(query) if number is not None)
        longest_first = sorted(words, key=len, reverse=True)
        found: dict[int, str] = {}
        for number, name in names.items():
            end = next((end for end in longest_first if f"_{name}".endswith(f"_{end}")), None)
            if end is not None:
                found[number] = words[end]
        return found

    def leftovers(self, source: str, *used: str) -> None:
        """Report the columns of ``source`` that have no place, ``used`` and the common ones aside."""
        if source in self.db.tables:
            self.report.unplaced.update(self.db.unplaced(source, COMMON.union(used)))
