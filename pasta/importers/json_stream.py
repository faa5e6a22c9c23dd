"""A JSON document with one huge array, read in bounded memory: batches of its elements, then whatever stands beside it.

Two ways give the same elements. The fast one cuts the buffer after an element that is followed by another and lets
``msgspec`` decode the piece as an array; a wrong cut, inside an element, cannot decode, because the piece would not be
balanced. The careful one finds where each element ends by its brackets and decodes it alone, so that one element that
is not JSON (``-nan``, a bad escape) costs only itself. It takes over for a piece when the fast one fails.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import msgspec

from pasta.errors import PastaError
from pasta.importers.packed import Source

Item = TypeVar("Item")

#: Bytes that are decoded together: 7 000 events, 10 MB as objects. Measured best: larger ones leave the CPU's caches,
#: smaller ones make too many small columns.
BATCH_BYTES = 2 << 20
#: An element or header value longer than this is taken for damage.
MAX_ITEM_BYTES = 32 << 20
#: So is one with more strings and brackets than this, which take some seconds to count.
MAX_ITEM_MARKS = 4 << 20

#: How far from the end of a batch to look for the end of an element.
_CUT_WINDOW = 1 << 16
_CUTS_TRIED = 3

# A string ends at its quote, at a line end (a raw one cannot be in it: the quote is missing) or with the buffer, so
# every quote matches and a search is linear in the buffer whatever it holds.
_STRUCTURE = re.compile(rb'"[^"\\\n]*(?:\\[^\n][^"\\\n]*)*("|\n|\\?\Z)|[{}\[\]]')
_SPACE = re.compile(rb"[ \t\r\n]*")
_BETWEEN = re.compile(rb"[ \t\r\n,]*")
_SCALAR = re.compile(rb"[^\s,:{}\[\]\"]+")
_OPENING = b"{["
_CLOSING = b"}]"


class JsonStream(Generic[Item]):
    """The elements of the array under ``key``, or of the document itself when that is an array.

    ``decode`` turns the bytes of an array into elements and raises ``msgspec.DecodeError`` for what it does not
    expect; ``salvage`` gets a value that only the tolerant parser of the standard library could read and returns an
    element, or None when there is none in it. ``boundary`` matches from the last byte of an element to the first of
    the next. While ``batches`` runs, ``header`` fills with the other members, ``skipped`` counts what was left out,
    and ``broken`` says where and why the document ended early.
    """

    def __init__(
        self,
        source: Source,
        key: str,
        decode: Callable[[bytes], list[Item]],
        salvage: Callable[[Any], Item | None],
        boundary: bytes = rb"\}\s*,\s*\{",
    ) -> None:
        self.header: dict[str, Any] = {}
        self.skipped: Counter[str] = Counter()
        self.broken: str | None = None
        self._source = source
        self._key = key
        self._decode = decode
        self._salvage = salvage
        self._boundary = re.compile(boundary)
        self._pieces = source.read()
        self._buffer = b""
        self._position = 0
        self._consumed = 0
        self._ended = False
        self._too_large = False

    def batches(self) -> Iterator[list[Item]]:
        """Yield the elements in batches, in the order of the file; raises ``PastaError`` when it is not JSON at all."""
        opening = self._next(_SPACE)
        if opening == b"\xef":  # a byte order mark
            self._position += 3
            opening = self._next(_SPACE)
        if opening == b"[":
            self._position += 1
            yield from self._elements(optional_end=True)
        elif opening == b"{":
            self._position += 1
            yield from self._members()
        else:
            raise PastaError(f"{self._source.path} is not JSON")
        if self._source.broken:
            self.broken = self._source.broken

    def _members(self) -> Iterator[list[Item]]:
        while True:
            mark = self._next(_BETWEEN)
            if mark == b"}":
                return
            if mark != b'"':
                return self._break("a name was expected")
            name = self._value()
            if not isinstance(name, str) or self._next(_SPACE) != b":":
                return self._break("a name was expected")
            self._position += 1
            if self._next(_SPACE) == b"[" and name == self._key:
                self._position += 1
                yield from self._elements(optional_end=False)
                if self.broken:
                    return
            else:
                value = self._value()
                if self.broken:
                    return
                self.header[name] = value

    def _elements(self, optional_end: bool) -> Iterator[list[Item]]:
        while True:
            self._fill(BATCH_BYTES)
            items = self._fast()
            if items is None:
                items, ended = self._careful()
                if ended:
                    yield items
                    return
            yield items
            if not items and self._next(_BETWEEN) == b"":
                if not optional_end:
                    self._break("the array is not closed")
                return
            if self.broken:
                return

    def _fast(self) -> list[Item] | None:
        """Decode the buffer up to the last element that another follows; None when that is not possible."""
        start = max(self._position, len(self._buffer) - _CUT_WINDOW)
        cuts = [match.start() + 1 for match in self._boundary.finditer(self._buffer, start)]
        begin = self._after(_BETWEEN)
        for cut in cuts[: -_CUTS_TRIED - 1 : -1]:
            try:
                items = self._decode(b"[%b]" % self._buffer[begin:cut])
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
            self._position = cut
            return items
        return None

    def _careful(self) -> tuple[list[Item], bool]:
        """Decode the elements in the buffer one by one; also return whether the array ended there."""
        items: list[Item] = []
        while True:
            mark = self._next(_BETWEEN, fill=not items)
            if mark in (b"", b"]"):
                self._position += len(mark)
                return items, mark == b"]"
            end = self._end_of_value()
            if end is None:
                if items:
                    return items, False  # more is read before the next batch
                if not self._grow():
                    self._break("an element is incomplete")
                    return items, False
                continue
            raw = self._buffer[self._position : end]
            item = self._one(raw)
            if item is not None:
                items.append(item)
            self._position = end

    def _one(self, raw: bytes) -> Item | None:
        try:
            return self._decode(b"[%b]" % raw)[0]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
        try:
            item = self._salvage(loads(raw))
        except (ValueError, RecursionError):
            self.skipped["element that is not JSON"] += 1
            return None
        if item is None:
            self.skipped["element that is not an event"] += 1
        return item

    def _value(self) -> Any:
        """Read one value of any kind; sets ``broken`` and returns None when there is none."""
        while (end := self._end_of_value()) is None:
            if not self._grow():
                self._break("a value is incomplete")
                return None
        raw = self._buffer[self._position : end]
        try:
            value = loads(raw)
        except (ValueError, RecursionError):
            self._break("a value is not JSON")
            return None
        self._position = end
        return value

    def _end_of_value(self) -> int | None:
        """Return where the value at the position ends, None when it goes on beyond the buffer."""
        begin = self._position
        first = self._buffer[begin : begin + 1]
        if first not in (b"{", b"[", b'"'):
            scalar = _SCALAR.match(self._buffer, begin)
            end = scalar.end() if scalar else begin + 1
            return end if end < len(self._buffer) or self._ended else None
        depth = 0
        for count, match in enumerate(_STRUCTURE.finditer(self._buffer, begin)):
            if count == MAX_ITEM_MARKS:
                self._too_large = True
                return None
            mark = match.group()
            if mark in _OPENING:
                depth += 1
            elif mark in _CLOSING:
                depth -= 1
            elif match.end() == len(self._buffer) and match.group(1) not in (b'"', b"\n"):
                return None
            if depth <= 0:
                return match.end()
        return None

    def _next(self, space: re.Pattern[bytes], fill: bool = True) -> bytes:
        """Skip ``space`` and return the byte that follows it; nothing at the end (of the buffer, without ``fill``)."""
        while True:
            self._position = self._after(space)
            if self._position < len(self._buffer) or not fill or not self._fill(1):
                return self._buffer[self._position : self._position + 1]

    def _after(self, space: re.Pattern[bytes]) -> int:
        match = space.match(self._buffer, self._position)
        return match.end() if match else self._position

    def _fill(self, size: int) -> bool:
        """Read until ``size`` bytes follow the position; return whether anything follows it."""
        have = len(self._buffer) - self._position
        if have < size and not self._ended:
            parts = [self._buffer[self._position :]]
            self._consumed += self._position
            self._position = 0
            while have < size:
                piece = next(self._pieces, None)
                if piece is None:
                    self._ended = True
                    break
                parts.append(piece)
                have += len(piece)
            self._buffer = b"".join(parts)
        return have > 0

    def _grow(self) -> bool:
        """Read twice as much as follows the position; return False when there is no more or it would be too much."""
        have = len(self._buffer) - self._position
        if self._ended or self._too_large or have > MAX_ITEM_BYTES:
            return False
        self._fill(max(2 * have, 1 << 16))
        return True

    def _break(self, why: str) -> None:
        at = self._consumed + self._position
        self.broken = self._source.broken or f"{why} at byte {at}"


def loads(raw: bytes) -> Any:
    """Parse JSON as tolerantly as the standard library can: NaN (None), control characters, bad UTF-8, any number.

    Numbers with a fraction stay text (``Number``), so nothing is lost. Raises ``ValueError`` or ``RecursionError``.
    """
    text = raw.decode("utf-8", "replace")
    value = json.loads(text, strict=False, parse_float=Number, parse_constant=lambda name: None)
    return value if "\\u" not in text else _without_surrogates(value)


class Number(str):
    """A number as it was written."""

    __slots__ = ()


def _without_surrogates(value: Any) -> Any:
    """Replace lone surrogates, which JSON can escape and UTF-8 cannot hold."""
    if isinstance(value, str):
        return type(value)(value.encode("utf-8", "replace").decode("utf-8"))
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(name): _without_surrogates(item) for name, item in value.items()}
    return value
