"""A recording that is not sealed: the shards of all its processes, turned into the tables of a trace.

A process image is one pid's life between two execs; each writes its own shard. recording.json may give `anchor_ns`,
time 0 of the trace on ``CLOCK_MONOTONIC``; without it time 0 is the start of the first process.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import polars as pl

from pasta.schema import TABLES, Table, sealed_columns
from pasta.shard_lock import is_live
from pasta.trace.attribute import Attribution
from pasta.trace.binaries import Binaries
from pasta.trace.collectives import join_calls
from pasta.trace.frames import conform, empty_frame
from pasta.trace.layout import RECORDING_JSON, SHARD
from pasta.trace.rows import merge_by_start, merge_identity, shift_times, sort_by_start, sum_losses
from pasta.trace.shards import MAX_ROWS, Chunk, Fault, Shard
from pasta.trace.writer import PART_ROWS

_NEVER = (1 << 63) - 1

UNFLUSHED = "the process ended without a last word: what it had not written yet, at most its last second, is missing"
RUNNING = "the process was still running when its recording was sealed: what it wrote later is missing"


@dataclass(frozen=True)
class RootStatus:
    """How the program that ``pasta record`` started ended: one of ``exit_status`` and ``exit_signal`` is set."""

    pid: int
    exit_status: int | None = None
    exit_signal: int | None = None


@dataclass
class Image:
    """One process image and its shard; ``live`` while the process runs."""

    pid: int
    generation: int
    shard: Shard
    live: bool
    rank: int | None = None

    def frame(self, chunks: list[Chunk]) -> pl.DataFrame:
        """Return rows of ``chunks`` with every column of the sealed table; times are still the shard's."""
        table = chunks[0].table
        frame = self.shard.frame(chunks).with_columns(pid=pl.lit(self.pid, pl.Int32))
        if "rank" not in frame.columns:
            frame = frame.with_columns(rank=pl.lit(self.rank, pl.Int32))
        return frame.select(column.name for column in sealed_columns(table))

    def rows(self, table: Table) -> pl.DataFrame:
        """Return all rows of ``table``."""
        chunks = self.shard.chunks_of(table)
        return self.frame(chunks) if chunks else empty_frame(table)

    def last_seen(self) -> int | None:
        """Return the latest time in the shard."""
        return max((chunk.last_ns for chunk in self.shard.chunks if chunk.last_ns is not None), default=None)

    def first_seen(self) -> int | None:
        """Return the earliest start in the shard."""
        return min((chunk.first_ns for chunk in self.shard.chunks if chunk.first_ns is not None), default=None)


class Recording:
    """The shards of ``directory``, indexed. ``info`` is recording.json, ``notes`` what a reader should know."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.notes: list[str] = []
        #: Kinds of memory instructions in the binaries of measured kernels, and how many kernels have each.
        self.kinds: dict[str, int] = {}
        self.info = self._read_info()
        self._unread: list[tuple[int, Fault]] = []
        self.images = self._read_images()
        self._processes = [merge_identity(image.rows(TABLES["process"]), TABLES["process"]) for image in self.images]
        self._find_ranks()
        self.anchor_ns = self._find_anchor()

    def tables(self, root: RootStatus | None) -> Iterator[tuple[str, pl.DataFrame]]:
        """Yield names and rows of the sealed tables, a table in one or more frames, times since the anchor.

        Each table with `start_ns` comes in its order (see ``rows.merge_by_start``), the others as they were written.
        Identity tables and `loss` come in one frame; `loss` is last.
        """
        processes, losses = self._end_processes(root)
        yield "process", self._place(sort_by_start(processes))
        attribution = Attribution(self._rows)
        binaries = Binaries(self.directory)
        lines = merge_identity(self._rows("line"), TABLES["line"])
        for table in TABLES.values():
            if table.name in ("process", "loss"):
                continue
            if table.name == "line":
                yield table.name, binaries.fill_lines(lines)
            elif table.key:
                yield table.name, self._place(sort_by_start(merge_identity(self._rows(table.name), table)))
            elif table.name == "collective":
                rows = attribution.fill(table.name, self._rows(table.name))
                if rows.height:
                    rows = join_calls(rows, attribution.started().select("pid", "correlation_id", "called_ns"))
                yield table.name, self._place(sort_by_start(rows))
            else:
                for frame in self._in_order(table):
                    filled = attribution.fill(table.name, frame)
                    if table.name == "kernel":
                        filled = binaries.fill_kernels(filled)
                    yield table.name, self._place(filled)
        self.notes += attribution.notes()
        self.kinds = binaries.kinds()
        losses = pl.concat([losses, self._rows("loss"), self._faults(), _frame(binaries.losses, TABLES["loss"])])
        yield "loss", self._place(sort_by_start(sum_losses(losses)))

    def _rows(self, name: str) -> pl.DataFrame:
        return pl.concat([empty_frame(TABLES[name]), *(image.rows(TABLES[name]) for image in self.images)])

    def _read_info(self) -> dict[str, Any]:
        try:
            info = json.loads((self.directory / RECORDING_JSON).read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            self.notes.append(f"{RECORDING_JSON} cannot be read: {error}")
            return {}
        if not isinstance(info, dict):
            self.notes.append(f"{RECORDING_JSON} is not an object")
            return {}
        return info

    def _read_images(self) -> list[Image]:
        found = sorted(
            (int(match[1]), int(match[2]), path)
            for path in self.directory.iterdir()
            if (match := SHARD.fullmatch(path.name)) and path.is_file() and not path.is_symlink()
        )
        images = []
        for pid, generation, path in found:
            try:
                live = is_live(path)  # before reading: one that ends in between has written everything by then
                images.append(Image(pid, generation, Shard(path), live))
            except OSError as error:
                self._unread.append((pid, Fault(None, None, f"its shard cannot be read: {error.strerror}")))
        return images

    def _find_ranks(self) -> None:
        known: dict[int, int] = {}
        for image, processes in zip(self.images, self._processes, strict=True):
            ranks = processes["rank"].drop_nulls()
            image.rank = int(ranks[-1]) if len(ranks) else known.get(image.pid)
            if image.rank is not None:
                known[image.pid] = image.rank

    def _find_anchor(self) -> int:
        anchor = self.info.get("anchor_ns")
        if isinstance(anchor, int) and not isinstance(anchor, bool) and abs(anchor) < 1 << 62:
            return anchor
        starts = [frame["start_ns"].min() for frame in self._processes]
        seen = [start for start in starts if isinstance(start, int)]
        seen = seen or [first for image in self.images if (first := image.first_seen()) is not None]
        return min(seen, default=0)

    def _place(self, frame: pl.DataFrame) -> pl.DataFrame:
        return shift_times(frame, -self.anchor_ns)

    def _in_order(self, table: Table) -> Iterator[pl.DataFrame]:
        batches = self._batches(table)
        if any(column.name == "start_ns" for column in table.columns):
            yield from merge_by_start(batches, PART_ROWS)
        else:
            yield from (frame for frame, _ in batches)

    def _batches(self, table: Table) -> Iterator[tuple[pl.DataFrame, int | None]]:
        """Yield rows of chunks ordered by their earliest start, and the earliest start of what comes later."""
        chunks = [
            (_NEVER if chunk.first_ns is None else chunk.first_ns, number, chunk)
            for number, image in enumerate(self.images)
            for chunk in image.shard.chunks_of(table)
        ]
        chunks.sort(key=lambda entry: entry[:2])  # stable: a shard's own order where starts are equal
        begin = rows = 0
        for end, (_, _, chunk) in enumerate(chunks, 1):
            rows += chunk.rows
            if rows < MAX_ROWS and end < len(chunks):
                continue
            batch = sorted(chunks[begin:end], key=lambda entry: entry[1])
            frames = [
                self.images[number].frame([chunk for *_, chunk in group])
                for number, group in groupby(batch, key=lambda entry: entry[1])
            ]
            yield pl.concat(frames), chunks[end][0] if end < len(chunks) else None
            begin, rows = end, 0

    def _end_processes(self, root: RootStatus | None) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the rows of `process`, each with its end as far as it is known, and what that says of losses."""
        last_image = {image.pid: image.generation for image in self.images}
        processes: list[dict[str, Any]] = []
        losses: list[dict[str, Any]] = []
        for image, frame in zip(self.images, self._processes, strict=True):
            is_last = image.generation == last_image[image.pid]
            own_root = root if root is not None and root.pid == image.pid and is_last else None
            identity: dict[str, Any] = {"pid": image.pid, "rank": image.rank}
            for row in frame.to_dicts() or [{**identity, "start_ns": image.first_seen(), "how_ended": None}]:
                if row["how_ended"] is None:
                    cause = RUNNING if image.live else UNFLUSHED
                    losses.append({**identity, "source": "session", "start_ns": image.last_seen(), "cause": cause})
                    if not image.live:
                        row["how_ended"] = "killed" if is_last else "exec"  # the pid went on as another image
                        row["end_ns"] = image.last_seen()
                        if own_root is not None and own_root.exit_status is not None:
                            row["how_ended"] = "_exit"  # it did exit, and no exit hook ran
                if own_root is not None and row["how_ended"] != "exec":
                    row["exit_status"], row["exit_signal"] = own_root.exit_status, own_root.exit_signal
                    if own_root.exit_signal is not None:
                        row["how_ended"] = "killed"  # even if it was on its way out
                processes.append(row)
        return _frame(processes, TABLES["process"]), _frame(losses, TABLES["loss"])

    def _faults(self) -> pl.DataFrame:
        ranks = {image.pid: image.rank for image in self.images}
        faults = [(image.pid, fault) for image in self.images for fault in image.shard.faults] + self._unread
        rows = [
            {
                "pid": pid,
                "rank": ranks.get(pid),
                "source": "shard",
                "table": fault.table,
                "records": fault.rows,
                "cause": fault.cause,
                "remedy": fault.remedy or None,
            }
            for pid, fault in faults
        ]
        told = self.info.get("not_recorded")  # what the launcher knew that it would leave out
        for row in told if isinstance(told, list) else []:
            if isinstance(row, dict):
                rows.append({name: str(row.get(name, "")) for name in ("source", "cause", "remedy")})
        return _frame(rows, TABLES["loss"])





def _frame(rows: list[dict[str, Any]], table: Table) -> pl.DataFrame:
    if not rows:
        return empty_frame(table)
    return conform(pl.DataFrame(rows, infer_schema_length=None), table)
