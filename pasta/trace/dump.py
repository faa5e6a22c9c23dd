"""A shard as text, chunk by chunk, to look at what a process really wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pasta.trace.container import cannot_read
from pasta.trace.shards import Shard


def dump(path: Path) -> Iterator[str]:
    """Yield the lines of a shard's dump: each chunk's table, rows and values that are not null, then the faults.

    Times are as stored (``CLOCK_MONOTONIC``, nanoseconds). Raises ``PastaError`` when the file cannot be read.
    """
    try:
        shard = Shard(path)
    except OSError as error:
        raise cannot_read(path, error) from error
    yield f"{path.name}: {shard.size} bytes, {len(shard.texts)} strings, {len(shard.chunks)} chunks of rows"
    for chunk in shard.chunks:
        yield f"{chunk.table.name}: {chunk.rows} rows"
        for row in shard.frame([chunk]).iter_rows(named=True):
            yield "  " + " ".join(f"{name}={value!r}" for name, value in row.items() if value is not None)
    for fault in shard.faults:
        rows = "" if fault.rows is None else f" ({fault.rows} rows)"
        yield f"fault: {fault.table or 'unknown table'}{rows}: {fault.cause}"
