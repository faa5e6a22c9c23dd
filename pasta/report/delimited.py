"""csv and tsv: unscaled values under the columns' names, for other programs to read.

A single table is a plain csv file. Several are separated by an empty line, each under a line ``# NAME``. Findings
are sentences, not rows: json has them.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

from pasta.report.json_format import strict
from pasta.report.names import table_names
from pasta.tools.result import Result

if TYPE_CHECKING:
    from pasta.report.reporter import Terminal

_SEPARATORS = {"csv": ",", "tsv": "\t"}
_ROWS_AT_ONCE = 10_000


def write(results: Sequence[Result], out: TextIO, format: str, terminal: Terminal) -> None:
    """Write every table; an unknown value is an empty cell."""
    tables = table_names(results)
    writer, quoting = (
        csv.writer(out, delimiter=_SEPARATORS[format], lineterminator="\n", quoting=quoting)
        for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL)
    )
    for index, (name, table) in enumerate(tables):
        if len(tables) > 1:
            out.write(f"{chr(10) if index else ''}# {name}\n")
        columns = [column.name for column in table.columns]
        writer.writerow(columns)
        for part in table.frame.select(columns).iter_slices(_ROWS_AT_ONCE):
            for row in part.iter_rows():
                cells = [_cell(value) for value in row]
                # Before Python 3.13, csv leaves a carriage return without quotes, where readers end the row.
                returns = any(isinstance(cell, str) and "\r" in cell for cell in cells)
                (quoting if returns else writer).writerow(cells)


def _cell(value: Any) -> Any:
    """Return a scalar as it is and anything nested as JSON."""
    plain = strict(value)
    return json.dumps(plain) if isinstance(plain, list | dict) else plain
