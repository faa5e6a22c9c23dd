"""Write a trace: any number of frames for any table, in bounded memory, sealed at once or not at all."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zipfile
import zlib
from collections import Counter
from io import BytesIO
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import polars as pl

import pasta
from pasta.errors import PastaError
from pasta.schema import SCHEMA_VERSION, Table
from pasta.trace.frames import conform, find_table
from pasta.trace.layout import FORMAT, MANIFEST, may_replace, part_path, set_aside

Form = Literal["file", "dir"]

#: Rows held in memory before a part is written, of all tables together, and so the largest part.
PART_ROWS = 1 << 19
#: Rows that share statistics: a reader that wants a time or a rank skips the others.
ROW_GROUP_ROWS = 1 << 17
#: Times and ids are most of a trace. Of these zstd's lowest level makes less than its default, in less time, and so do
#: pages smaller than polars' (measured on CUDA, OpenCL and imported traces: 3 to 16 % less).
ZSTD_LEVEL = 1
PAGE_BYTES = 1 << 18


class TraceWriter:
    """Writes the trace ``path`` as one file or as a directory, laid out as ``pasta.trace.layout`` says.

    A context manager: leaving the block seals ``path`` atomically, an exception leaves nothing behind. ``manifest``
    takes whatever describes the trace (JSON values); the writer adds ``format``, ``schema_version``,
    ``pasta_version``, ``rows`` (per table), ``time_span_ns`` (first start and last end of any row, or null) and
    ``crc32`` (of each part).

    Raises ``PastaError`` when ``path`` exists and ``overwrite`` is false, when it is a directory of something else,
    or when it cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], form: Form = "file", *, overwrite: bool = False) -> None:
        self.path = Path(path)
        self.form: Form = form
        self.manifest: dict[str, Any] = {}
        #: Rows appended so far, per table.
        self.rows: Counter[str] = Counter()
        #: First start and last end of any row so far.
        self.time_span_ns: tuple[int, int] | None = None
        self._held: dict[str, list[pl.DataFrame]] = {}
        self._held_rows: Counter[str] = Counter()
        self._parts: Counter[tuple[str, int | None]] = Counter()
        self._crc32: dict[str, int] = {}
        if not overwrite and os.path.lexists(self.path):
            raise PastaError(f"{self.path} exists", "choose another name or pass --force-overwrite")
        try:
            if not may_replace(self.path):
                raise PastaError(f"{self.path} is a directory that holds something else", "choose another name")
            self._final = Path(os.path.abspath(self.path))
            prefix = f".{self._final.name}."
            self._staging = Path(tempfile.mkdtemp(prefix=prefix, suffix=".sealing", dir=self._final.parent))
        except OSError as error:
            raise _cannot_write(self.path, error) from error
        self._target = self._staging / "trace"
        self._zip: zipfile.ZipFile | None = None
        if form == "file":
            self._zip = zipfile.ZipFile(self._target, "w", zipfile.ZIP_STORED)
        else:
            self._target.mkdir()

    def append(self, table: str, frame: pl.DataFrame) -> None:
        """Add the rows of ``frame`` to ``table``; columns that it lacks become null (see ``frames.conform``)."""
        described = find_table(table)
        rows = conform(frame, described)
        if rows.is_empty():
            return
        self.rows[table] += rows.height
        self._extend_span(rows, described)
        try:
            while rows.height:
                fitting = rows.head(PART_ROWS - self._held_rows.total())
                rows = rows.slice(fitting.height)
                self._held.setdefault(table, []).append(fitting)
                self._held_rows[table] += fitting.height
                if self._held_rows.total() == PART_ROWS:
                    self._flush(self._held_rows.most_common(1)[0][0])
        except OSError as error:
            raise _cannot_write(self.path, error) from error

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._seal()
        except OSError as failure:
            raise _cannot_write(self.path, failure) from failure
        finally:
            if self._zip is not None and self._zip.fp is not None:
                self._zip.close()
            shutil.rmtree(self._staging, ignore_errors=True)

    def _extend_span(self, rows: pl.DataFrame, table: Table) -> None:
        names = [str(name) for name in ("start_ns", "end_ns") if name in rows.columns]
        if not names or table.name == "clock":
            return
        low, high = rows.select(low=pl.min_horizontal(pl.min(*names)), high=pl.max_horizontal(pl.max(*names))).row(0)
        if low is not None:
            before = self.time_span_ns or (low, high)
            self.time_span_ns = (min(before[0], low), max(before[1], high))

    def _flush(self, table: str) -> None:
        rows = pl.concat(self._held.pop(table))
        del self._held_rows[table]
        for (rank,), part in rows.partition_by("rank", as_dict=True, maintain_order=True).items():
            number = self._parts[table, rank]
            self._parts[table, rank] += 1
            self._write(part_path(table, rank, number), part)

    def _write(self, member: str, part: pl.DataFrame) -> None:
        parquet = BytesIO()
        part.write_parquet(
            parquet,
            compression="zstd",
            compression_level=ZSTD_LEVEL,
            row_group_size=ROW_GROUP_ROWS,
            data_page_size=PAGE_BYTES,
        )
        self._crc32[member] = zlib.crc32(parquet.getbuffer())
        self._add(member, parquet.getbuffer())

    def _add(self, member: str, data: bytes | memoryview) -> None:
        if self._zip is not None:
            info = zipfile.ZipInfo(member)  # of 1980: equal rows give equal files
            info.external_attr = 0o644 << 16
            self._zip.writestr(info, data)
        else:
            file = self._target / member
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)

    def _seal(self) -> None:
        for table in list(self._held):
            self._flush(table)
        text = json.dumps(self._complete_manifest(), indent=2, ensure_ascii=False) + "\n"
        self._add(MANIFEST, text.encode("utf-8", errors="replace"))
        if self._zip is not None:
            self._zip.close()
        sync(self._target)
        replace(self._target, self._final)

    def _complete_manifest(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "schema_version": SCHEMA_VERSION,
            "pasta_version": pasta.__version__,
            **self.manifest,
            "rows": dict(sorted(self.rows.items())),
            "time_span_ns": list(self.time_span_ns) if self.time_span_ns else None,
            "crc32": self._crc32,
        }


def sync(path: Path) -> None:
    """Wait until ``path``, and all that is in it, is on the disk."""
    for entry in (*path.rglob("*"), path) if path.is_dir() else (path,):
        sync_one(entry)


def sync_one(entry: Path) -> None:
    """Wait until a file, or the list of names in a directory, is on the disk."""
    descriptor = os.open(entry, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace(new: Path, path: Path) -> None:
    """Put ``new`` at ``path``, atomically unless a directory stands there.

    A directory is set aside until the new one is in its place (see ``layout.set_aside``), so that pasta, killed in
    between, loses nothing.
    """
    if path.is_symlink() or not path.is_dir():
        if new.is_dir() and os.path.lexists(path):
            path.unlink()
        os.rename(new, path)
        return
    names = (set_aside(path).with_suffix(f".recording{number or ''}") for number in count())
    aside = next(name for name in names if not os.path.lexists(name))
    os.rename(path, aside)
    os.rename(new, path)
    sync_one(path.parent)
    shutil.rmtree(aside, ignore_errors=True)


def _cannot_write(path: Path, error: OSError) -> PastaError:
    return PastaError(f"cannot write {path}: {error.strerror or error}", "choose another place with --output")
