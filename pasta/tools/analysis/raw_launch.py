"""One launch of the raw path, from rows of `access` to counts, in arrays: ``xp`` is numpy or CuPy.

Independent of the reducers in csrc/device/nvidia: it looks at lanes one by one, in the order of the trace. Only array
functions that numpy and CuPy share are used.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl

from pasta.tools.analysis.address_map import Pieces

#: Rows that are expanded to lanes at once: 32 lanes of several arrays each.
_CHUNK = 1 << 15

_PAGE, _BLOCK, _SECTOR = 12, 21, 5  # log2 of the bytes
_PASS = 128  # bytes that shared memory gives in one pass: 32 banks of 4
_LARGEST = 32  # bytes of a lane's plain access; more is a copy of consecutive bytes
_PAGE_BITS = 45  # of a page's number
_GLOBAL, _SHARED = 0, 1


class Launch(NamedTuple):
    """The columns of `access` of one launch, sorted by execution; kinds and spaces are numbers."""

    execution: Any
    site_id: Any
    kind: Any  # 0 load, 1 store, 2 atomic
    space: Any  # 0 global, 1 shared
    lanes: Any
    address: Any
    stride: Any
    bytes: Any


class _Lanes(NamedTuple):
    """A chunk, one entry a lane that takes part."""

    row: Any  # in the chunk
    lane: Any
    address: Any


def reduce_launch(launch: Launch, pieces: Pieces, xp: Any = np) -> dict[str, pl.DataFrame]:
    """Return ``objects`` (by ``piece``; null where nothing is), ``blocks`` and ``sites`` of a launch."""
    launch = Launch(*(xp.asarray(column) for column in launch))
    parts: dict[str, list[pl.DataFrame]] = {"objects": [], "blocks": [], "sites": []}
    pages = []
    memory = _Memory(pieces, xp)
    for chunk in _chunks(launch, xp):
        lanes = _expand(chunk, xp)
        of_memory = chunk.space[lanes.row] == _GLOBAL
        seen = _Lanes(*(column[of_memory] for column in lanes))
        parts["objects"].append(memory.objects(chunk, seen))
        parts["blocks"].append(memory.blocks(seen))
        pages.append(memory.pages(chunk, seen))
        parts["sites"].append(_sites(chunk, lanes, xp))
    sums = ("loads", "stores", "atomics", "load_bytes", "store_bytes", "atomic_bytes")
    objects = pl.concat(parts["objects"]).group_by("piece", maintain_order=True).agg(
        pl.col(sums).sum(), pl.col("first").min(), pl.col("end").max()
    )  # fmt: skip
    blocks = pl.concat(parts["blocks"]).group_by("piece", "offset", "bytes", maintain_order=True).agg(
        pl.col("accesses").sum()
    )  # fmt: skip
    return {
        "objects": objects.join(memory.count_pages(xp.concatenate(pages)), on="piece", how="left").sort("piece"),
        "blocks": blocks.sort("piece", "offset"),
        "sites": _by_site(pl.concat(parts["sites"])).sort("site_id", "space"),
    }


def _chunks(launch: Launch, xp: Any) -> list[Launch]:
    """Cut into chunks at the ends of executions."""
    rows = int(launch.execution.size)
    cuts = [0]
    while rows - cuts[-1] > _CHUNK:
        execution = launch.execution[cuts[-1] + _CHUNK]
        cut = int(xp.searchsorted(launch.execution, execution, side="left"))
        # An execution has 32 rows at most, so that this moves on.
        cuts.append(cut)
    return [Launch(*(column[low:high] for column in launch)) for low, high in zip(cuts, [*cuts[1:], rows], strict=True)]


def _expand(chunk: Launch, xp: Any) -> _Lanes:
    bits = ((chunk.lanes[:, None] >> xp.arange(32)[None, :]) & 1) != 0
    rank = xp.cumsum(bits, axis=1) - 1
    addresses = chunk.address[:, None] + rank * chunk.stride[:, None]
    row, lane = xp.nonzero(bits)
    return _Lanes(row, lane, addresses[bits])


def _frame(xp: Any, **columns: Any) -> pl.DataFrame:
    host = (lambda array: array) if xp is np else xp.asnumpy
    return pl.DataFrame({name: np.asarray(host(column)).astype(np.int64) for name, column in columns.items()})


def _is_span(size: Any) -> Any:
    """Whether these bytes are a copy of consecutive bytes and not one aligned access."""
    return (size > _LARGEST) | (size == 0) | ((size & (size - 1)) != 0)


def _numbered(counts: Any, xp: Any) -> tuple[Any, Any]:
    """For ``counts`` things each, return whose each thing is, and which of its owner's it is."""
    ends = xp.cumsum(counts)
    total = int(ends[-1]) if counts.size else 0
    owner = xp.searchsorted(ends, xp.arange(total), side="right")
    return owner, xp.arange(total) - (ends - counts)[owner]


class _Memory:
    """The pieces of memory at the launch; lanes that are in none belong to piece number ``none``."""

    def __init__(self, pieces: Pieces, xp: Any) -> None:
        self.xp, self.none = xp, pieces.begin.size
        # One more piece, of no bytes, so that every number has a row.
        nowhere = np.iinfo(np.int64).max
        self.begin = xp.asarray(np.append(pieces.begin, nowhere))
        self.end = xp.asarray(np.append(pieces.end, nowhere))
        self.tracked = xp.asarray(np.append(~pieces.reserved, False))

    def _piece(self, address: Any) -> Any:
        at = self.xp.searchsorted(self.begin, address, side="right") - 1
        inside = (at >= 0) & (address < self.end[at])
        return self.xp.where(inside, at, self.none)

    def _ends(self, chunk: Launch, lanes: _Lanes, piece: Any) -> Any:
        """Return the end of each lane's access; copies end where their object does."""
        size = chunk.bytes[lanes.row]
        end = lanes.address + size
        return self.xp.where(_is_span(size), self.xp.minimum(end, self.end[piece]), end)

    def objects(self, chunk: Launch, lanes: _Lanes) -> pl.DataFrame:
        xp = self.xp
        piece, kind, size = self._piece(lanes.address), chunk.kind[lanes.row], chunk.bytes[lanes.row]
        places = 3 * (self.none + 1)
        count = xp.bincount(piece * 3 + kind, minlength=places).reshape(-1, 3)
        # Sums of floating point numbers below 2**53 are exact.
        moved = xp.bincount(piece * 3 + kind, weights=size.astype(np.float64), minlength=places).reshape(-1, 3)
        frame = _frame(
            xp, piece=xp.arange(self.none + 1), loads=count[:, 0], stores=count[:, 1], atomics=count[:, 2],
            load_bytes=moved[:, 0], store_bytes=moved[:, 1], atomic_bytes=moved[:, 2],
        ).filter(pl.sum_horizontal("loads", "stores", "atomics") > 0)  # fmt: skip
        known = (piece != self.none) & (size > 0)
        end = self._ends(chunk, lanes, piece)[known]
        piece, address = piece[known], lanes.address[known]
        extents = _frame(
            xp,
            piece=(touched := xp.unique(piece)),
            first=self._extreme(piece, address, touched, "left") - self.begin[touched],
            end=self._extreme(piece, end, touched, "right") - self.begin[touched],
        )
        return frame.join(extents, on="piece", how="left")

    def _extreme(self, piece: Any, value: Any, touched: Any, side: str) -> Any:
        """Return the smallest (``left``) or largest (``right``) value of each touched piece."""
        order = self.xp.lexsort(self.xp.stack([value, piece]))
        at = self.xp.searchsorted(piece[order], touched, side=side)
        return value[order][at if side == "left" else at - 1]

    def blocks(self, lanes: _Lanes) -> pl.DataFrame:
        xp = self.xp
        piece = self._piece(lanes.address)
        counted = self.tracked[piece]
        piece, address = piece[counted], lanes.address[counted]
        key = piece << 20 | (address - self.begin[piece]) >> _BLOCK
        key, count = xp.unique(key, return_counts=True)
        piece, offset = key >> 20, (key & ((1 << 20) - 1)) << _BLOCK
        size = xp.minimum(1 << _BLOCK, self.end[piece] - self.begin[piece] - offset)
        return _frame(xp, piece=piece, offset=offset, bytes=size, accesses=count)

    def pages(self, chunk: Launch, lanes: _Lanes) -> Any:
        """Return the pages touched, each once, as piece and page number in one."""
        xp = self.xp
        piece = self._piece(lanes.address)
        end = self._ends(chunk, lanes, piece)
        counted = self.tracked[piece] & (end > lanes.address)
        piece, first, last = piece[counted], lanes.address[counted] >> _PAGE, (end[counted] - 1) >> _PAGE
        owner, number = _numbered(last - first + 1, xp)
        return xp.unique(piece[owner] << _PAGE_BITS | first[owner] + number)

    def count_pages(self, pages: Any) -> pl.DataFrame:
        """Count distinct pages of each size by piece; null for pieces whose pages are not counted."""
        xp = self.xp
        counts = {}
        for name, shift in (("pages_4k", 0), ("pages_64k", 4), ("pages_2m", 9)):
            larger = pages >> _PAGE_BITS << _PAGE_BITS | (pages & ((1 << _PAGE_BITS) - 1)) >> shift
            counts[name] = xp.bincount(xp.unique(larger) >> _PAGE_BITS, minlength=self.none + 1)
        frame = _frame(xp, piece=xp.arange(self.none + 1), tracked=self.tracked, **counts)
        return frame.filter(pl.col("tracked") != 0).drop("tracked")


def _sites(chunk: Launch, lanes: _Lanes, xp: Any) -> pl.DataFrame:
    """Return a row an execution: where it was, and what it needed."""
    _, first, of_row = xp.unique(chunk.execution, return_index=True, return_inverse=True)
    count = int(first.size)
    of_lane, size = of_row[lanes.row], chunk.bytes[lanes.row]
    active = xp.bincount(of_lane, minlength=count)
    total = xp.bincount(of_lane, weights=size.astype(np.float64), minlength=count).astype(np.int64)
    span = xp.bincount(of_lane, weights=_is_span(size).astype(np.float64), minlength=count) > 0
    begin = lanes.address >> _SECTOR
    owner, number = _numbered(xp.where(size > 0, ((lanes.address + size - 1) >> _SECTOR) - begin + 1, 0), xp)
    sectors = _distinct(of_lane[owner], begin[owner] + number, count, xp)
    packed = (total + (1 << _SECTOR) - 1) >> _SECTOR
    return _frame(
        xp, site_id=chunk.site_id[first], kind=chunk.kind[first], space=chunk.space[first], lanes=active, bytes=total,
        sectors=sectors, ideal_sectors=xp.where(span, sectors, xp.minimum(packed, sectors)),
        bank_conflicts=xp.maximum(_passes(chunk, lanes, of_lane, count, xp) - (total + _PASS - 1) // _PASS, 0),
    )  # fmt: skip


def _distinct(owner: Any, value: Any, owners: int, xp: Any) -> Any:
    """Count the different values of each owner."""
    values, rank = xp.unique(value, return_inverse=True)
    pairs = xp.unique(owner * max(int(values.size), 1) + rank)
    return xp.bincount(pairs // max(int(values.size), 1), minlength=owners)


def _passes(chunk: Launch, lanes: _Lanes, of_lane: Any, count: int, xp: Any) -> Any:
    """Return the passes through shared memory of each execution; 0 for those elsewhere.

    Lanes are served in groups that fill 128 bytes; in a group each bank gives one word a pass, whoever asks for it.
    """
    shared = chunk.space[lanes.row] == _SHARED
    execution, lane, address = of_lane[shared], lanes.lane[shared], lanes.address[shared]
    width = xp.maximum(chunk.bytes[lanes.row][shared], 4)
    group = lane // xp.minimum(_PASS // width, 32)
    word, bank = address // width, address // width % (_PASS // width)
    # A word has 24 bits, a bank and a group 5 each.
    asked = xp.unique(((execution * 32 + group) * 32 + bank) << 24 | word)
    banks, words = xp.unique(asked >> 24, return_counts=True)
    groups = xp.unique(banks // 32)
    most = xp.sort(banks // 32 * 64 + words)  # at most 32 words: the last of a group is its largest
    largest = most[xp.searchsorted(most // 64, groups, side="right") - 1] % 64
    return xp.bincount(groups // 32, weights=largest.astype(np.float64), minlength=count).astype(np.int64)


def _by_site(executions: pl.DataFrame) -> pl.DataFrame:
    on_chip = pl.col("space") == _SHARED
    return executions.group_by("site_id", "kind", "space", maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("executions"),
        pl.col("lanes", "bytes", "sectors", "ideal_sectors", "bank_conflicts").sum(),
        pl.col("lanes").min().alias("min_lanes"),
        pl.col("lanes").max().alias("max_lanes"),
    ).with_columns(
        pl.when(~on_chip).then(pl.col("sectors", "ideal_sectors")),
        pl.when(on_chip).then(pl.col("bank_conflicts")),
    )  # fmt: skip
