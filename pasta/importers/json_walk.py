"""A JSON document of nested objects and arrays, handed out value by value: in memory is a batch of them at most."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from pasta.importers.json_stream import _BETWEEN, _SPACE, JsonStream
from pasta.importers.packed import Source

#: Where a value stands: names of members, and numbers of elements from 0.
Path = tuple[str | int, ...]

#: Documents nest no deeper than this before ``enter`` has to say no.
_MAX_DEPTH = 16


class JsonWalk(JsonStream[Any]):
    """Values of a document with their paths; ``enter`` says of a path whether to go into the object or array there.

    What it does not enter is one value. ``broken`` says where and why the document ended early.
    """

    def __init__(self, source: Source, enter: Callable[[Path], bool]) -> None:
        super().__init__(source, "", msgspec.json.decode, lambda value: value)
        self._enter = enter

    def values(self) -> Iterator[tuple[Path, Any]]:
        """Yield all values in the order of the file."""
        yield from self._walk(())
        if self._source.broken:
            self.broken = self._source.broken

    def _walk(self, path: Path) -> Iterator[tuple[Path, Any]]:
        mark = self._next(_SPACE)
        if mark not in (b"{", b"[") or len(path) > _MAX_DEPTH or not self._enter(path):
            value = self._value()
            if not self.broken:
                yield path, value
            return
        self._position += 1
        if mark == b"[" and not self._enter((*path, 0)):
            number = 0
            for batch in self._elements(optional_end=False):
                for value in batch:
                    yield (*path, number), value
                    number += 1
            return
        closing = b"}" if mark == b"{" else b"]"
        element = 0
        while not self.broken:
            following = self._next(_BETWEEN)
            if following == closing:
                self._position += 1
                return
            name: Any = element
            if mark == b"{":
                name = self._value() if following == b'"' else None
                if not isinstance(name, str) or self._next(_SPACE) != b":":
                    return self._break("a name was expected")
                self._position += 1
            elif not following:
                return self._break("an array is not closed")
            yield from self._walk((*path, name))
            element += 1
