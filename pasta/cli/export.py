"""pasta export: a trace in the formats of other programs."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from pasta.cli.options import NewFileOption, OverwriteOption, TraceArgument, complete_table
from pasta.cli.progress import progress
from pasta.errors import PastaError


class Target(str, Enum):
    """Formats that a trace can be exported to."""

    PARQUET = "parquet"
    CSV = "csv"
    PERFETTO = "perfetto"


def command(
    trace: TraceArgument,
    output: NewFileOption,
    to: Annotated[
        Target | None,
        typer.Option(
            "--to",
            show_default=False,
            help="parquet, csv: a directory with a file a table; perfetto: a file for https://ui.perfetto.dev. "
            "Default: perfetto for OUT.pftrace.",
        ),
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            metavar="TABLE",
            show_default=False,
            help="Table to write (parquet, csv); repeatable. Default: all that have rows.",
            autocompletion=complete_table,
        ),
    ] = None,
    force_overwrite: OverwriteOption = False,
) -> None:
    """Turn a trace into Parquet or CSV files, or into a file for Perfetto."""
    target = to or _by_suffix(output)
    if table and target is Target.PERFETTO:
        raise PastaError("--table is for parquet and csv", "leave it out: Perfetto files hold all events")

    from pasta.exporters import export
    from pasta.trace import Trace
    from pasta.trace.frames import find_table

    names = [find_table(name).name for name in table or []]
    if output.exists() and trace.exists() and output.samefile(trace):
        raise PastaError(f"{output} is the trace itself", "choose another name")
    with Trace.open(trace) as opened:
        for note in opened.notes:
            print(f"pasta: {note}", file=sys.stderr)
        with progress(f"writing {output}", _rows(opened.manifest.get("rows"), names)) as bar:
            written = export(opened, target.value, output, names, overwrite=force_overwrite, advance=bar.advance)
    what = "events" if target is Target.PERFETTO else "rows"
    print(f"pasta: {output}  {written} {what}", file=sys.stderr)


def _by_suffix(output: Path) -> Target:
    if output.suffix in (".pftrace", ".perfetto-trace"):
        return Target.PERFETTO
    raise PastaError(f"cannot tell which format {output} is to have", "add --to parquet, --to csv or --to perfetto")


def _rows(counts: object, names: list[str]) -> int | None:
    """Return how many rows there are to write, as far as the manifest tells."""
    if not isinstance(counts, dict):
        return None
    chosen = [count for name, count in counts.items() if not names or name in names]
    return sum(count for count in chosen if isinstance(count, int))
