"""pasta dump: every record of a shard as text, to see what a process really wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    shard: Annotated[
        Path, typer.Argument(metavar="SHARD", show_default=False, help="A .pastashard file of a recording.")
    ],
) -> None:
    """Print every record of a shard, then what is wrong with it."""
    from pasta.trace.dump import dump

    for line in dump(shard):
        print(line)
