"""pasta schema: the tables and columns that every trace has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pasta.cli.options import FormatOption, OutputOption, complete_table
from pasta.cli.output import write_results
from pasta.schema import SCHEMA_VERSION, TABLES, Table, sealed_columns

if TYPE_CHECKING:
    from pasta.tools.result import ResultTable


def command(
    tables: Annotated[
        list[str] | None,
        typer.Argument(metavar="TABLE", show_default=False, help="Tables to describe.", autocompletion=complete_table),
    ] = None,
    every: Annotated[bool, typer.Option("--all", "-a", help="Describe the columns of every table.")] = False,
    format: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """List the tables of a trace, or the columns of a table with their units and meanings."""
    from pasta.tools.result import Result
    from pasta.trace.frames import find_table

    chosen = list(TABLES.values()) if every else [find_table(name) for name in tables or []]
    described = [_columns(table) for table in chosen] or [_tables()]
    title = f"Tables of a trace (schema version {SCHEMA_VERSION})"
    write_results(Result(title, described, header=[] if chosen else [title]), format, output)


def _tables() -> ResultTable:
    import polars as pl

    from pasta.tools.result import ResultColumn, ResultTable

    rows = [(table.name, len(sealed_columns(table)), ", ".join(table.key), table.meaning) for table in TABLES.values()]
    frame = pl.DataFrame(rows, schema=["table", "columns", "key", "meaning"], orient="row")
    units = {"columns": "count"}
    columns = tuple(ResultColumn(name, units.get(name, ""), key=name == "table") for name in frame.columns)
    return ResultTable("tables", frame, columns, title="Tables")


def _columns(table: Table) -> ResultTable:
    import polars as pl

    from pasta.tools.result import ResultColumn, ResultTable

    rows = [(c.name, c.type.value, c.unit, c.meaning, ", ".join(c.values)) for c in sealed_columns(table)]
    frame = pl.DataFrame(rows, schema=["column", "type", "unit", "meaning", "values"], orient="row")
    columns = tuple(ResultColumn(name, key=name == "column") for name in frame.columns)
    note = f"rows of equal {', '.join(table.key)} describe the same thing" if table.key else ""
    return ResultTable(table.name, frame, columns, title=f"{table.name}: {table.meaning}", note=note)
