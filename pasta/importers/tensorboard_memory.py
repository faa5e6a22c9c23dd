"""Memory timelines of PyTorch's profiler (``export_memory_timeline(... .raw.json.gz)``), also read by TensorBoard.

The document is a list of ``[time in ns, action, bytes, category]``. Tensors have no names and no addresses, so nothing
joins an allocation with its free; what is left is the life of memory in time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
import polars as pl

from pasta.importers.base import Head, Kind, Report, Sink
from pasta.importers.json_stream import JsonStream
from pasta.importers.packed import Source

_START = re.compile(rb"\s*\[\s*\[\s*-?\d+\s*,\s*[1-4]\s*,\s*-?\d+\s*,\s*\d\s*\]")

#: ``torch.profiler._memory_profiler``: actions, and the order of the categories.
_PREEXISTING, _CREATE, _CHANGE, _DESTROY = 1, 2, 3, 4
_CATEGORIES = (
    *("parameter", "optimizer state", "input", "temporary", "activation", "gradient", "autograd detail", "unknown"),
)

_Int = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
_Record = tuple[_Int, _Int, _Int, _Int]


class TensorBoardMemory:
    """The importer; see the module's docstring."""

    kind = Kind.TENSORBOARD_MEMORY
    label = "PyTorch memory timeline"

    def sniff(self, head: Head) -> bool:
        """A list whose first element is a list of four integers."""
        return bool(_START.match(head.start))

    def read(self, sources: Sequence[Source], sink: Sink, report: Report) -> None:
        """Write creations and destructions as ``tensor`` rows, each file under a pid of its own (0, 1, ...)."""
        origin: int | None = None
        for pid, source in enumerate(sources):
            stream = JsonStream(source, "", msgspec.json.Decoder(list[_Record]).decode, _record, rb"\]\s*,\s*\[")
            for batch in stream.batches():
                if not batch:
                    continue
                if origin is None:
                    origin = next((time for time, *_ in batch if time > 0), None)
                sink.append("tensor", _tensors(batch, pid, origin, report))
            report.skipped += stream.skipped
            if stream.broken:
                report.incomplete(source, stream.broken)
        report.epoch_ns = origin


def _tensors(batch: list[_Record], pid: int, origin: int | None, report: Report) -> pl.DataFrame:
    times, actions, sizes, categories = (np.array(column, dtype=np.int64) for column in zip(*batch, strict=True))
    kept = np.isin(actions, (_PREEXISTING, _CREATE, _DESTROY))
    changes = int((actions == _CHANGE).sum())
    if changes:
        report.unplaced["changes of a tensor's version or category"] += changes
    unknown = len(actions) - int(kept.sum()) - changes
    if unknown:
        report.skipped["record of an unknown action"] += unknown
    for category, count in Counter(categories[kept].tolist()).items():
        name = _CATEGORIES[category] if 0 <= category < len(_CATEGORIES) else f"number {category}"
        report.unplaced[f"category of a tensor: {name}"] += count
    early = kept & (times < 0)
    if early.any():
        report.unmatched["tensors older than the recording (placed at its first moment)"] += int(early.sum())
    start = np.where(times < 0, 0, times - (origin or 0))[kept]
    return pl.DataFrame(
        {
            "pid": pl.Series(np.full(len(start), pid)),
            "start_ns": start,
            "action": np.where(actions == _DESTROY, "free", "alloc")[kept],
            "bytes": np.abs(sizes)[kept],
        }
    )


def _record(value: Any) -> _Record | None:
    """No record can be made of a value that the fast parser refused."""
    return None


IMPORTERS = (TensorBoardMemory(),)
