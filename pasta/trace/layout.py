"""Names on the disk: what a trace, a recording and one that is being sealed look like.

A trace holds the same members in both forms, as paths in a directory or as stored members of a ZIP file::

    manifest.json
    kernel/part-0.parquet            rows of processes that have no rank
    kernel/rank=3/part-0.parquet     rows of rank 3

The column `rank` is in the parts too, so that each is complete in itself; the folders let DuckDB, Spark, Dask and
polars skip ranks (hive layout). Rows without a rank are not put in a folder for null, so the trace of one process
shows no sign of ranks.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

MANIFEST = "manifest.json"
#: Value of `format` in every manifest: what tells a trace from any other ZIP file or directory.
FORMAT = "pasta-trace"
#: A larger manifest is not read.
MAX_MANIFEST_BYTES = 64 << 20
#: table, rank or None, number of the part
PART = re.compile(r"([a-z_]{1,64})/(?:rank=(-?\d{1,10})/)?part-(\d{1,10})\.parquet", re.ASCII)

#: Written by ``pasta record`` where it can: JSON that goes into the manifest.
RECORDING_JSON = "recording.json"
#: Written by the session: names the recording that owns the directory.
RECORDING_ID = "recording.id"
#: pid, generation (images of that pid before this one)
SHARD = re.compile(r"shard-(\d{1,9})-(\d{1,9})\.pastashard", re.ASCII)


def part_path(table: str, rank: int | None, number: int) -> str:
    """Return the path of a part within a trace."""
    folder = table if rank is None else f"{table}/rank={rank}"
    return f"{folder}/part-{number}.parquet"


def is_recording(directory: Path) -> bool:
    """Return whether ``directory`` holds a recording that is not sealed; raises ``OSError``."""
    names = [entry.name for entry in directory.iterdir()]
    return MANIFEST not in names and any(
        name in (RECORDING_JSON, RECORDING_ID) or SHARD.fullmatch(name) for name in names
    )


def may_replace(path: Path) -> bool:
    """Return whether ``path`` is nothing, a file, or a directory that holds only what pasta writes; ``OSError``."""
    if path.is_symlink() or not path.is_dir():
        return True
    if is_recording(path) or not any(path.iterdir()):
        return True
    try:
        with (path / MANIFEST).open("rb") as file:
            manifest = json.loads(file.read(MAX_MANIFEST_BYTES))
    except (FileNotFoundError, ValueError, RecursionError):
        return False
    return isinstance(manifest, dict) and manifest.get("format") == FORMAT


def set_aside(path: Path) -> Path:
    """Return where a recording stands while the trace that was made of it takes its place."""
    return path.with_name(path.name + ".recording")
