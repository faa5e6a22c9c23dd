"""Names of tables when several results are written together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pasta.tools.result import Result, ResultTable


def table_names(results: Sequence[Result]) -> list[tuple[str, ResultTable]]:
    """Return all tables with unique names: one that occurs twice is written ``title.name``, then numbered."""
    counts = Counter(table.name for result in results for table in result.tables)
    names: list[tuple[str, ResultTable]] = []
    taken: set[str] = set()
    for result in results:
        for table in result.tables:
            wanted = table.name if counts[table.name] == 1 else f"{result.title}.{table.name}"
            name, number = wanted, 2
            while name in taken:
                name, number = f"{wanted}.{number}", number + 1
            taken.add(name)
            names.append((name, table))
    return names
