"""Whether the process that writes a shard still runs; apart from the reader, which imports polars."""

from __future__ import annotations

import fcntl
from pathlib import Path


def is_live(path: Path) -> bool:
    """Return whether the process that writes the shard still runs: it holds a lock on it for its lifetime."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # a file system without locks
            return False
        return False
