"""Somebody else's SQLite database, read with suspicion: any table or column may be missing, of another type or absurd.

Only tables are read, never views, virtual tables or generated columns, so a hostile file cannot make a query run for
ever: what one costs is bounded by the file's size. Queries that sort or join spill to SQLite's own temporary files.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from pasta.importers.packed import Source, connect, database_errors, names

#: Rows fetched at a time.
FETCH_ROWS = 8192

Row = tuple[Any, ...]


class Database:
    """One open database: ``tables`` maps the name of each table to its columns, in order."""

    def __init__(self, source: Source, connection: sqlite3.Connection) -> None:
        self.source = source
        self._connection = connection
        #: Added to every time that ``time`` reads, to place this file on the clock of another.
        self.shift_ns = 0
        # Virtual tables have no page of their own: what reading one costs is up to the module behind it.
        with database_errors(source.path):
            tables = names(connection, "type = 'table' AND rootpage > 0")
        self.tables: Mapping[str, tuple[str, ...]] = {
            name: tuple(str(row[1]) for row in self.rows(f"PRAGMA table_info({quote(name)})")) for name in tables
        }

    def rows(self, query: str, parameters: Iterable[Any] = ()) -> Iterator[Row]:
        """Yield the rows of ``query``; errors of SQLite become ``PastaError``."""
        with database_errors(self.source.path), closing(self._connection.execute(query, tuple(parameters))) as cursor:
            while batch := cursor.fetchmany(FETCH_ROWS):
                yield from batch

    def value(self, query: str, parameters: Iterable[Any] = ()) -> Any:
        """Return the first column of the first row, or None when there is no row."""
        return next((row[0] for row in self.rows(query, parameters)), None)

    def create(self, table: str, *columns: str) -> TempTable:
        """Make the table ``temp.<table>``, which SQLite keeps outside the file."""
        self._temporary(lambda: self._connection.execute(f"CREATE TEMP TABLE {table} ({', '.join(columns)})"))
        places = ", ".join("?" for column in columns if not column.startswith("PRIMARY KEY"))
        insert = f"INSERT OR IGNORE INTO temp.{table} VALUES ({places})"
        return TempTable(lambda rows: self._temporary(lambda: self._connection.executemany(insert, rows)))

    def _temporary(self, action: Callable[[], object]) -> None:
        with database_errors(self.source.path):
            action()

    def has(self, table: str, *columns: str) -> bool:
        """Return whether ``table`` is there with all of ``columns``."""
        return table in self.tables and set(columns) <= set(self.tables[table])

    def count(self, table: str) -> int:
        """Return the number of rows of ``table``; 0 when it is not there."""
        return int(self.value(f"SELECT count(*) FROM {quote(table)}")) if table in self.tables else 0

    def column(self, table: str, name: str, alias: str = "") -> str:
        """Return SQL for a whole number of ``table``; ``NULL`` where the column or a number in it is missing."""
        if name not in self.tables.get(table, ()):
            return "NULL"
        full = f"{alias}.{quote(name)}" if alias else quote(name)
        return f"CASE typeof({full}) WHEN 'integer' THEN {full} END"

    def time(self, table: str, name: str, alias: str = "") -> str:
        """Return SQL for a time of ``table`` in ns; ``NULL`` where it is missing."""
        column = self.column(table, name, alias)
        return f"({column} + {self.shift_ns})" if self.shift_ns and column != "NULL" else column

    def text(self, table: str, name: str, alias: str = "") -> str:
        """Return SQL for text of ``table``; ``NULL`` where the column, or text in it, is missing or empty."""
        if name not in self.tables.get(table, ()):
            return "NULL"
        return f"NULLIF(CAST({f'{alias}.' if alias else ''}{quote(name)} AS TEXT), '')"

    def unplaced(self, table: str, used: Iterable[str]) -> Counter[str]:
        """Return the columns of ``table`` besides ``used`` with their number of values that say something.

        0, -1 and empty text are what the writers of these files put where they have nothing to say.
        """
        left = [name for name in self.tables.get(table, ()) if name not in set(used)]
        if not left:
            return Counter()
        nothing = "(0, -1, 4294967295, '', '[]', '{}')"
        sums = ", ".join(f"sum({quote(name)} NOT IN {nothing})" for name in left)
        counts = next(self.rows(f"SELECT {sums} FROM {quote(table)}"))
        return Counter({f"{table}.{name}": int(n) for name, n in zip(left, counts, strict=True) if n})


class Texts:
    """Texts of a table of strings by their number, each read once: for names, of which there are few."""

    def __init__(self, db: Database, table: str, column: str) -> None:
        self._db = db
        self._there = db.has(table, "id", column)
        self._query = f"SELECT CAST({quote(column)} AS TEXT) FROM {quote(table)} WHERE id = ?"
        self._known: dict[int | None, str | None] = {None: None}

    def __call__(self, number: int | None) -> str | None:
        """Return the text, None for a number that has none."""
        try:
            return self._known[number]
        except KeyError:
            text = self._db.value(self._query, (number,)) if self._there else None
            self._known[number] = text or None
            return self._known[number]


class TempTable:
    """A temporary table that is filled row by row; a row whose primary key is already there is left out."""

    def __init__(self, insert: Callable[[list[Row]], None]) -> None:
        self._insert = insert
        self._pending: list[Row] = []

    def add(self, *values: Any) -> None:
        """Add one row; queries see it after ``flush``."""
        self._pending.append(values)
        if len(self._pending) >= FETCH_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write what was added."""
        self._insert(self._pending)
        self._pending.clear()


def quote(name: str) -> str:
    """Return ``name`` as a SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def opened(source: Source) -> Iterator[Database]:
    """The database ``source``, unpacked where needed, open for reading only; ``PastaError`` when that is impossible."""
    with database_errors(source.path):
        connection = connect(source.plain)
    with closing(connection):
        with database_errors(source.path):
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
        yield Database(source, connection)
    if source.plain == source.path:
        source.tick(source.size)
