"""Small SQLite files, table by table: a table gets the columns of its first row."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any


class SqliteBuilder:
    """Writes the database ``path``; ``add`` makes tables as they are needed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tables: dict[str, tuple[str, ...]] = {}
        self._strings: dict[str, int] = {}
        self._database = sqlite3.connect(path)

    def add(self, table: str, *rows: dict[str, Any]) -> None:
        """Add ``rows``, all with the same columns, to ``table``; columns have no declared type, so any value fits."""
        for row in rows:
            if table not in self.tables:
                self.tables[table] = tuple(row)
                key = " INTEGER PRIMARY KEY"
                columns = ", ".join(f'"{name}"{key if name == "id" else ""}' for name in row)
                self._database.execute(f'CREATE TABLE "{table}" ({columns})')
            names = ", ".join(f'"{name}"' for name in row)
            places = ", ".join("?" * len(row))
            self._database.execute(f'INSERT INTO "{table}" ({names}) VALUES ({places})', tuple(row.values()))

    def string(self, text: str, table: str = "StringIds", column: str = "value") -> int:
        """Return the number of ``text`` in the table of strings."""
        if text not in self._strings:
            self._strings[text] = len(self._strings) + 1
            self.add(table, {"id": self._strings[text], column: text})
        return self._strings[text]

    def done(self) -> Path:
        """Close the file and return its path."""
        self._database.commit()
        self._database.close()
        return self.path
