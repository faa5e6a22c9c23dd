"""pasta query: SQL over the tables of a trace, in polars' dialect."""

from __future__ import annotations

import re
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pasta.cli.options import FormatOption, LimitOption, OutputOption, TraceArgument
from pasta.cli.output import view_of, write_results
from pasta.cli.progress import progress
from pasta.errors import PastaError
from pasta.schema import TABLES

if TYPE_CHECKING:
    import polars as pl

    from pasta.trace import Trace

#: First words of statements that read. polars has others; they would only change its own list of tables.
_READING = ("select", "with", "from", "values", "explain", "show")


def command(
    trace: TraceArgument,
    sql: Annotated[str, typer.Argument(metavar="SQL", show_default=False, help='For example "SELECT name FROM op".')],
    limit: LimitOption = None,
    format: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """Run a SELECT over the tables of a trace; pasta schema lists them.

    The dialect is that of polars' SQLContext. Times are nanoseconds, sizes are bytes.
    """
    from pasta.tools.result import Result, ResultColumn, ResultTable
    from pasta.trace import Trace

    with Trace.open(trace) as opened:
        with progress("running the query"):
            frame = execute(opened, sql)
        columns = tuple(ResultColumn(name, _unit(name)) for name in frame.columns)
        result = Result("query", [ResultTable("query", frame, columns)], header=_notes(trace, opened))
        write_results(result, format, output, view_of(limit=limit))


def execute(trace: Trace, sql: str) -> pl.DataFrame:
    """Return the rows that ``sql`` selects; raises ``PastaError`` for what is not a query or names nothing."""
    import polars as pl

    word = re.match(r"[\s(]*([a-z]*)", sql, re.IGNORECASE)
    if word is None or word[1].lower() not in _READING:
        raise PastaError("this SQL is not a query", 'begin with SELECT, for example "SELECT name FROM kernel"')
    context = pl.SQLContext({name: trace.table(name) for name in TABLES}, eager=False)
    try:
        selected = context.execute(sql)
        return selected.collect(engine="streaming") if isinstance(selected, pl.LazyFrame) else selected
    except pl.exceptions.PolarsError as error:
        raise _explained(str(error)) from error


def _explained(message: str) -> PastaError:
    """Turn polars' message about a query into one line that suggests what may have been meant."""
    relation = re.search(r"relation '(.*)' was not found", message)
    if relation:
        near = get_close_matches(relation[1], TABLES, n=3, cutoff=0.5)
        return PastaError(f"no table {relation[1]!r}", _guess(near, "pasta schema lists the tables"))
    column = re.search(r'unable to find column "(.*?)"(?:; valid columns: (.*))?', message)
    if column:
        known = re.findall(r'"(.*?)"', column[2] or "")
        near = get_close_matches(column[1], known, n=3, cutoff=0.5)
        return PastaError(f"no column {column[1]!r}", _guess(near, "pasta schema TABLE lists the columns"))
    line = " ".join(message.split())
    return PastaError(f"the query does not work: {line[:200]}", "the dialect is that of polars' SQLContext")


def _guess(near: list[str], listing: str) -> str:
    return f"did you mean {' or '.join(near)}?" if near else listing


def _unit(column: str) -> str:
    """Guess the unit of a result's column from its name, as the schema spells units in names."""
    if column.endswith("_ns"):
        return "ns"
    if column == "bytes" or column.endswith("_bytes"):
        return "bytes"
    return "id" if column.endswith("_id") or column in ("pid", "rank") else ""


def _notes(path: Path, trace: Trace) -> list[str]:
    return [f"{path.name}: {note}" for note in trace.notes]
