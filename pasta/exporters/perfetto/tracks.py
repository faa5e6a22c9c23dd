"""The tracks of a Perfetto trace: made when the first event needs them, named after the identity tables."""

from __future__ import annotations

from typing import Any

import polars as pl

from pasta.exporters.perfetto.packets import PacketWriter
from pasta.exporters.perfetto.timeline import PROCESS
from pasta.tools.base import TraceView

Key = tuple[Any, ...]


class Tracks:
    """Gives the track of a process, thread, device, stream or lane, and adds it on the first call.

    Every key begins with rank and pid of the process, as in ``PROCESS``.
    """

    def __init__(self, trace: TraceView, packets: PacketWriter) -> None:
        self._packets = packets
        self._made: dict[Key, int] = {}
        self._pids: dict[tuple[int, int], int] = {}
        self._processes = _identities(trace, "process", (), ("executable", "command", "host"))
        self._threads = _identities(trace, "thread", ("thread_id",), ("name",))
        self._devices = _identities(trace, "device", ("device_id",), ("name",))
        self._streams = _identities(trace, "stream", ("stream_id",), ("name",))

    def of(self, kind: str, key: Key) -> int:
        """Return the track of a `Timeline` of ``kind`` whose owner is ``key``."""
        made = (kind, *key)
        if made not in self._made:
            process, rest = key[:2], key[2:]
            if kind == "thread":
                self._made[made] = self._thread(process, rest[0])
            elif kind == "stream":
                self._made[made] = self._stream(process, *rest)
            else:
                self._made[made] = self._packets.track(kind, self.process(process))
        return self._made[made]

    def lane(self, kind: str, key: Key, number: int) -> int:
        """Return lane ``number`` (from 0) of the track of ``key``; the UI shows lanes of equal names together."""
        base = self.of(kind, key)
        if number == 0:
            return base
        made = ("lane", kind, *key, number)
        if made not in self._made:
            # A thread has one track of its own; what overlaps there goes below its process.
            if kind == "thread":
                name, parent = f"thread {key[2]} (overlapping)", self.process(key[:2])
            elif kind == "stream":
                name, parent = self._stream_name(key[:2], key[3]), self.device(key[:2], key[2])
            else:
                name, parent = kind, self.process(key[:2])
            self._made[made] = self._packets.track(name, parent)
        return self._made[made]

    def counter(self, key: Key, name: str) -> int:
        """Return the counter ``name`` of a process (``rank pid``) or of a device (``rank pid device_id``)."""
        made = ("counter", *key, name)
        if made not in self._made:
            parent = self.device(key[:2], key[2]) if len(key) > 2 and key[2] is not None else self.process(key[:2])
            self._made[made] = self._packets.counter(name, parent)
        return self._made[made]

    def process(self, key: Key) -> int:
        """Return the track of the process ``(rank, pid)``."""
        made = ("process", *key)
        if made not in self._made:
            rank, pid = key
            executable, command, host = self._processes.get(key, (None, None, None))
            parts = [f"rank {rank}" if rank is not None else "", _short(executable or command), host or ""]
            name = " ".join(part for part in parts if part) or "process"
            self._made[made] = self._packets.process(name, self._pid(rank, pid), command or "")
        return self._made[made]

    def device(self, process: Key, device: int | None) -> int:
        """Return the track that holds the streams and counters of a device."""
        made = ("device", *process, device)
        if made not in self._made:
            (name,) = self._devices.get((*process, device), (None,))
            label = "device" if device is None else f"device {device}"
            self._made[made] = self._packets.track(f"{label}: {name}" if name else label, self.process(process))
        return self._made[made]

    def _thread(self, process: Key, thread: int | None) -> int:
        if thread is None:
            return self._packets.track("unknown thread", self.process(process))
        self.process(process)
        (name,) = self._threads.get((*process, thread), (None,))
        return self._packets.thread(name or "", self._pid(*process), thread)

    def _stream(self, process: Key, device: int | None, stream: int | None) -> int:
        return self._packets.track(self._stream_name(process, stream), self.device(process, device))

    def _stream_name(self, process: Key, stream: int | None) -> str:
        (name,) = self._streams.get((*process, stream), (None,))
        return name or ("unknown stream" if stream is None else f"stream {stream}")

    def _pid(self, rank: int | None, pid: int) -> int:
        """Return the pid that stands for the process; Perfetto has one host, so equal pids of two ranks must differ."""
        key = (-1 if rank is None else rank, pid)
        if key not in self._pids:
            taken = set(self._pids.values())
            self._pids[key] = pid if pid not in taken else max(taken) + 1
        return self._pids[key]


def _identities(trace: TraceView, table: str, ids: tuple[str, ...], values: tuple[str, ...]) -> dict[Key, Key]:
    """Return the last non-null ``values`` of each row of an identity table, by process and ``ids``."""
    keys = [*PROCESS, *ids]
    frame = trace.table(table).group_by(keys, maintain_order=True).agg(pl.col(values).drop_nulls().last()).collect()
    return {row[: len(keys)]: row[len(keys) :] for row in frame.iter_rows()}


def _short(command: str | None) -> str:
    first = (command or "").split(" ")[0]
    return first.rsplit("/", 1)[-1]
