"""Which memory object, and tensor in it, holds an address at a moment: replayed from the allocations of a trace."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

Ints = npt.NDArray[np.int64]

#: In `Pieces`, an object or a tensor that there is none of.
NONE = -1
_CUT, _LARGEST_CUT = 1 << 32, 1 << 40


@dataclass(frozen=True)
class Pieces:
    """Disjoint parts of the address space in order of address: objects, cut where tensors begin and end."""

    begin: Ints
    end: Ints
    object_id: Ints
    tensor_id: Ints  # NONE where no tensor is
    offset: Ints  # of the piece in its object, bytes
    reserved: npt.NDArray[np.bool_]  # addresses that were reserved, and hold neither object nor tensor


class _Layer:
    """Ranges that do not overlap: a new one ends those that it meets, whose own end was not seen."""

    def __init__(self) -> None:
        self._begins: list[int] = []  # sorted
        self._ranges: dict[int, tuple[int, int]] = {}  # end and id, by begin
        self._begin_of: dict[int, int] = {}  # by id

    def add(self, id: int, begin: int, end: int) -> None:
        at = bisect_right(self._begins, begin)
        if at and self._ranges[self._begins[at - 1]][0] > begin:
            at -= 1
        while at < len(self._begins) and self._begins[at] < end:
            self.remove(self._ranges[self._begins[at]][1])
        self._begins.insert(at, begin)
        self._ranges[begin] = end, id
        self._begin_of[id] = begin

    def remove(self, id: int) -> None:
        begin = self._begin_of.pop(id, None)
        if begin is not None:
            del self._ranges[begin]
            del self._begins[bisect_left(self._begins, begin)]

    def arrays(self) -> tuple[Ints, Ints, Ints]:
        """Return begin, end and id of the ranges, sorted by begin."""
        rows = np.array([(begin, *self._ranges[begin]) for begin in self._begins], dtype=np.int64).reshape(-1, 3)
        return rows[:, 0].copy(), rows[:, 1].copy(), rows[:, 2].copy()


class AddressMap:
    """The `alloc` and `tensor` rows of one process, as a map for any moment; moments must not go back."""

    def __init__(self, alloc: pl.DataFrame, tensor: pl.DataFrame) -> None:
        self._events = _events(alloc, "object_id") + _events(tensor, "tensor_id")
        self._events.sort(key=lambda event: event[0])
        self._next = 0
        self._reservations, self._objects, self._tensors = _Layer(), _Layer(), _Layer()
        self._pieces: Pieces | None = None

    def at(self, time_ns: int) -> Pieces:
        """Return what lay where at ``time_ns``, a time of the trace."""
        while self._next < len(self._events) and self._events[self._next][0] <= time_ns:
            self._apply(self._events[self._next][1])
            self._next += 1
            self._pieces = None
        if self._pieces is None:
            self._pieces = self._cut()
        return self._pieces

    def _apply(self, row: dict[str, Any]) -> None:
        if "tensor_id" in row:
            layer, id = self._tensors, row["tensor_id"]
        else:
            layer, id = self._reservations if row["allocator"] == "reservation" else self._objects, row["object_id"]
        if row["action"] == "free":
            for holder in (layer, self._reservations) if "object_id" in row else (layer,):
                holder.remove(id)
        elif row["address"] is not None and row["bytes"]:
            layer.add(id, row["address"], row["address"] + row["bytes"])

    def _cut(self) -> Pieces:
        layers = [layer.arrays() for layer in (self._reservations, self._objects, self._tensors)]
        points = np.unique(np.concatenate([part for begin, end, _ in layers for part in (begin, end)]))
        points = np.union1d(points, _cuts(points))
        begin, end = points[:-1], points[1:]
        reservation, object_, tensor = (_holders(layer, begin) for layer in layers)
        owner = np.where(object_ != NONE, object_, reservation)
        tensor = np.where(owner != NONE, tensor, NONE)
        starts = {id: begin for begins, _, ids in layers[:2] for begin, id in zip(begins, ids, strict=True)}
        # A boundary that changes nothing is none: that of a reservation behind an object, say.
        same = (owner[1:] == owner[:-1]) & (tensor[1:] == tensor[:-1]) & (begin[1:] % _CUT != 0)
        first = np.concatenate([[True], ~same])[: owner.size]
        last = np.concatenate([~same, [True]])[: owner.size]
        begin, end, reserved = begin[first], end[last], (object_ == NONE) & (tensor == NONE)
        owner, tensor, reserved = owner[first], tensor[first], reserved[first]
        held = owner != NONE
        begin, end, owner, tensor, reserved = begin[held], end[held], owner[held], tensor[held], reserved[held]
        offset = begin - np.array([starts[id] for id in owner.tolist()], dtype=np.int64)
        return Pieces(begin, end, owner, tensor, offset, reserved)


def _cuts(points: Ints) -> Ints:
    """Return the multiples of `_CUT` where pieces end, as on the device: all but those in endless reservations."""
    pairs = zip(points[:-1].tolist(), points[1:].tolist(), strict=True)
    cuts = (range(-(-low // _CUT) * _CUT, high, _CUT) for low, high in pairs if high - low <= _LARGEST_CUT)
    return np.fromiter((cut for part in cuts for cut in part), dtype=np.int64)


def _holders(layer: tuple[Ints, Ints, Ints], points: Ints) -> Ints:
    """Return the id of the range that holds each point; NONE: there is none."""
    begin, end, id = layer
    if not begin.size:
        return np.full(points.size, NONE, dtype=np.int64)
    at = np.searchsorted(begin, points, side="right") - 1
    return np.where((at >= 0) & (points < end[at]), id[at], NONE)


def _events(rows: pl.DataFrame, id: str) -> list[tuple[int, dict[str, Any]]]:
    columns = ["start_ns", "action", id, "address", "bytes", *(["allocator"] if id == "object_id" else [])]
    known = rows.select(columns).drop_nulls([id, "start_ns"])
    return [(row["start_ns"], row) for row in known.sort("start_ns", maintain_order=True).iter_rows(named=True)]
