"""pasta merge: the traces of several processes or ranks, as one."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from pasta.cli.options import NewFileOption, OverwriteOption, TracesArgument
from pasta.cli.progress import progress


def command(
    traces: TracesArgument,
    output: NewFileOption,
    force_overwrite: OverwriteOption = False,
    file: Annotated[
        bool, typer.Option("--file", help="Write one file instead of a directory of Parquet files.")
    ] = False,
) -> None:
    """Join the traces of several processes or ranks into one, on one clock."""
    from pasta.trace import Trace
    from pasta.trace.merge import merge

    with progress(f"merging {len(traces)} traces"):
        merge(traces, output, "file" if file else "dir", overwrite=force_overwrite)
    with Trace.open(output) as merged:
        for note in merged.notes:
            print(f"pasta: {note}", file=sys.stderr)
    print(f"pasta: {output}  from {len(traces)} traces", file=sys.stderr)
    print(f"pasta: next: pasta analyze {output}", file=sys.stderr)
